"""Reading without a question: pages, one memory, its history."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from scrubjay.errors import InvalidInput, NotFound, masked
from scrubjay.model import MemoryRecord, Page, PartitionKey, Version
from scrubjay.ports import Snapshot
from scrubjay.read.filters import Condition
from scrubjay.storage import Criteria, PartitionState

MAX_PAGE = 10_000
_CURSOR = re.compile(r"[0-9]{1,3}\.[0-9]{1,18}")


def page(
    snapshot: Snapshot,
    keys: Sequence[PartitionKey],
    criteria: Criteria,
    conditions: Sequence[Condition],
    limit: int,
    cursor: str | None,
) -> Page:
    """One page, newest first within each partition: private, then shared, then common.

    The cursor names the last memory shown by partition and sequence, so that what is added or
    deleted meanwhile moves nothing.
    """
    states = snapshot.partitions(keys)
    place, before = _read_cursor(cursor)
    items: list[MemoryRecord] = []
    total = 0
    following: str | None = None
    for state in states:
        seqs = _selected(snapshot, state, criteria, conditions)
        total += len(seqs)
        rank = keys.index(state.key)
        if rank < place:
            continue
        left = [s for s in reversed(seqs) if rank > place or s < before]
        room = limit - len(items)
        items += snapshot.records(state, left[:room])
        if len(left) > room and following is None:
            last = left[room - 1] if room else left[0] + 1
            following = f"{rank}.{last}"
    return Page(tuple(items), following, total)


def _read_cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return -1, 0
    rank, _, seq = str(cursor).partition(".")
    if not (isinstance(cursor, str) and _CURSOR.fullmatch(cursor)):
        raise InvalidInput(
            f"the cursor {masked(cursor)} is not one that `list` gave; leave it out to begin anew"
        )
    return int(rank), int(seq)


def _selected(
    snapshot: Snapshot,
    state: PartitionState,
    criteria: Criteria,
    conditions: Sequence[Condition],
) -> list[int]:
    seqs = snapshot.select(state, criteria)
    if not conditions:
        return seqs
    metadata: dict[int, Mapping[str, Any]] = dict(snapshot.metadata(state))
    none: dict[str, Any] = {}
    return [s for s in seqs if all(c.holds(metadata.get(s, none)) for c in conditions)]


def one(snapshot: Snapshot, keys: Sequence[PartitionKey], memory_id: str) -> MemoryRecord:
    """The record of an id in these partitions. Raises `NotFound`."""
    record = snapshot.locate(keys, memory_id)
    if record is None:
        raise NotFound(
            f"no memory {masked(memory_id)} in this scope; `list` shows the ids that there are"
        )
    return record


def history(
    snapshot: Snapshot, keys: Sequence[PartitionKey], memory_id: str
) -> tuple[Version, ...]:
    """Every version of a memory and every time it was said again, oldest first."""
    record = one(snapshot, keys, memory_id)
    for state in snapshot.partitions(keys):
        chain = snapshot.chain(state, record)
        if chain:
            break
    found: list[Version] = []
    for version in chain:
        event = "add" if version.supersedes is None else "update"
        prior = found[-1].memory.reason if found and event == "update" else None
        found.append(Version(event, version.recorded_at, version, prior))  # type: ignore[arg-type]
        found += [
            Version("repeat", source.occurred_at, version, "said again")
            for source in version.sources[1:]
        ]
        if version.retired_at is not None and version.superseded_by is None:
            found.append(Version("retire", version.retired_at, version, version.reason))
    return tuple(found)
