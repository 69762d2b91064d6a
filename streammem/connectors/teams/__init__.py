"""Microsoft Teams: Graph chatMessage pages, change notifications, the tenant export."""
