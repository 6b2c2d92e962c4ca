"""The quick checks before the journal: a suspicious turn is quarantined before any recall."""

from __future__ import annotations

from scrubjay.model import State, Turn


def first_state(turn: Turn) -> State:
    """The state in which a turn's memories begin. No rule stands here yet: active."""
    del turn
    return State.ACTIVE
