"""What happens to a message before the journal, in order:

1. `clean.read_messages`: the caller's messages become clean ones, or a clear error
2. `episode.turns`: a turn each, with its time, role and source class
3. `guard.redact.redact`: what is forbidden never reaches the disk
4. `guard.poison.first_state`: a suspicious turn begins in quarantine
5. `episode.entry`: the verbatim episodes of each turn, with their words

Each stage is a plain function. `embed` is what the worker does afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay.guard.poison import first_state
from scrubjay.guard.redact import redact
from scrubjay.model import Skipped
from scrubjay.storage import Entry
from scrubjay.write.clean import read_messages
from scrubjay.write.episode import Writing, entry, turns


def prepare(messages: object, writing: Writing) -> tuple[list[Entry], list[Skipped], Sequence[str]]:
    """(entries for the journal, what was left out and why, notes). Raises `InvalidInput`."""
    clean, skipped, notes = read_messages(messages)
    entries = []
    for turn in turns(clean, writing, notes):
        kept = redact(turn)
        entries.append(entry(kept, first_state(kept), writing))
    return entries, skipped, tuple(dict.fromkeys(notes))
