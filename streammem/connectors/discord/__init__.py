"""Discord: JSON files of DiscordChatExporter, one for each channel (or part of it)."""
