"""Slack: exports, events, pages of the Web API. The same message payload comes in all of them."""
