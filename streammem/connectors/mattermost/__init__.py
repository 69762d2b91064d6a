"""Mattermost: the bulk export (`mmctl export create`, `mattermost export bulk`)."""
