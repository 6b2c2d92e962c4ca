"""Redaction, before the journal: what is forbidden never reaches the disk."""

from __future__ import annotations

from scrubjay.model import Turn


def redact(turn: Turn) -> Turn:
    """The turn as it may be stored. No rule stands here yet: the turn itself."""
    return turn
