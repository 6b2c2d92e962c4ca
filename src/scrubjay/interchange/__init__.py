"""Memories as files: export and import, and transcripts from elsewhere."""
