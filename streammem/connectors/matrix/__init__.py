"""Matrix: Element's JSON export, and events as its servers hand them out."""
