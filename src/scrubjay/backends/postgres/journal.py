"""The quick way to journal: one call of the server's function `journal` for what is simply new.

The function needs to be told at which sequence the new memories begin, so that everything about
them can be made ready here; where another process wrote in between it answers with the right one.
Whatever is not simple (a new partition, a repeated statement, a known idempotency key) is left to
the shared steps, in a transaction of several round trips.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scrubjay.backends.sql import journal as steps
from scrubjay.backends.sql.rows import Rows, first_source, id_bytes, micros, micros_or_none
from scrubjay.model import PartitionKey, State
from scrubjay.storage import Entry, Journalled, NewMemory, Request

NOT_SIMPLE = -1


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything the function takes but the first sequence and what depends on it."""

    key: PartitionKey
    hashes: list[bytes]
    said: str
    said_blobs: list[bytes | None]
    kept: str
    kept_blobs: list[bytes | None]
    outcome: Journalled


def is_simple(entries: Sequence[Entry]) -> bool:
    """Whether all of it is active, said once, and has the one source it was cut from."""
    episodes = [new for entry in entries for new in entry.episodes]
    return len({new.content_hash for new in episodes}) == len(episodes) and all(
        new.record.state is State.ACTIVE
        and len(new.record.sources) == 1
        and first_source(new.record) is not None
        and new.record.supersedes is None
        for new in episodes
    )


def prepare(rows: Rows, key: PartitionKey, entries: Sequence[Entry]) -> Prepared:
    """The rows of simple entries, as the function takes them."""
    said: list[dict[str, Any]] = []
    said_blobs: list[bytes | None] = []
    kept: list[dict[str, Any]] = []
    kept_blobs: list[bytes | None] = []
    last: dict[str | None, int] = {}
    for entry in entries:
        turn = entry.turn
        said.append(
            {"place": len(said) + 1, "id": id_bytes(turn.id).hex(), "role": turn.role,
             "source_class": turn.source_class, "occurred_at": micros(turn.occurred_at),
             "recorded_at": micros(turn.recorded_at), **_narrowing(entry)}
        )  # fmt: skip
        said_blobs += [
            rows.seal_text(turn.content, key, "content"),
            rows.seal_metadata(turn.metadata, key),
        ]
        conversation = turn.scope.session_id
        for new in entry.episodes:
            place = len(kept) + 1
            after = last.get(conversation, 0)
            kept.append({"place": place, "after": after, **_narrowing(entry), **_memory(new)})
            kept_blobs += [
                rows.seal_text(new.record.content, key, "content"),
                rows.seal_metadata(new.record.metadata, key),
                rows.seal_bytes(new.postings, key, "words"),
            ]
            last[conversation] = place
    ids = tuple(tuple(new.record.id for new in entry.episodes) for entry in entries)
    return Prepared(
        key=key,
        hashes=[new.content_hash for entry in entries for new in entry.episodes],
        said=json.dumps(said),
        said_blobs=said_blobs,
        kept=json.dumps(kept),
        kept_blobs=kept_blobs,
        outcome=Journalled(ids, tuple(entry.turn.id for entry in entries)),
    )


def _narrowing(entry: Entry) -> dict[str, str | None]:
    scope = entry.turn.scope
    return {
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "namespace": scope.namespace,
        "device_id": scope.device_id,
    }


def _memory(new: NewMemory) -> dict[str, Any]:
    record = new.record
    (source,) = record.sources
    return {
        "id": id_bytes(record.id).hex(),
        "kind": record.kind,
        "tier": record.tier,
        "state": record.state,
        "role": record.role,
        "source_class": record.source_class,
        "language": record.language,
        "trust": record.trust,
        "confidence": record.confidence,
        "importance": record.importance,
        "occurred_at": micros(record.occurred_at),
        "recorded_at": micros(record.recorded_at),
        "valid_from": micros_or_none(record.valid_from),
        "valid_to": micros_or_none(record.valid_to),
        "expires_at": micros_or_none(record.expires_at),
        "version": record.version,
        "turn": id_bytes(source.turn_id).hex(),
        "start": source.start,
        "stop": source.end,
        "rule": source.rule,
        "length": new.length,
    }


def arguments(
    rows: Rows,
    prepared: Prepared,
    wall: str,
    pid: bytes,
    first: int,
    request: Request | None,
    *,
    embed: bool,
    priority: int,
) -> tuple[object, ...]:
    """The values of the query `journal`, for memories that begin at sequence `first`."""
    key, outcome = prepared.key, prepared.outcome
    payloads, sizes = [], []
    end = first + len(prepared.hashes)
    for start in range(first, end if embed else first, steps.EMBED_BATCH):
        seqs = list(range(start, min(end, start + steps.EMBED_BATCH)))
        payloads.append(rows.seal_json({"seqs": seqs}, key, "payload"))
        sizes.append(len(seqs))
    asked: tuple[object, ...] = (None, None, None)
    if request is not None:
        kept = rows.seal_json([outcome.ids, outcome.turn_ids], key, "outcome")
        asked = (request.key, request.digest, kept)
    return (
        wall, pid, first, prepared.hashes, prepared.said, prepared.said_blobs, prepared.kept,
        prepared.kept_blobs, *asked, payloads, sizes, priority, steps.present_micros(),
        steps.SEAL_AT, rows.seal_json({}, key, "payload"),
    )  # fmt: skip
