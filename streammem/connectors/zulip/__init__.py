"""Zulip: the export of an organisation (realm.json and messages-000001.json ...)."""
