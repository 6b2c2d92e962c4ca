"""Turns, and the verbatim episodes cut from them.

A long turn becomes several episodes of about 400 characters that together cover it; each one
quotes its span, so that what comes back is what was said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from hashlib import blake2b
from typing import Any

from scrubjay.index.words import pack
from scrubjay.model import (
    TRUST_BY_SOURCE,
    Kind,
    MemoryRecord,
    Role,
    Scope,
    Source,
    SourceClass,
    State,
    Turn,
    Visibility,
    new_id,
)
from scrubjay.storage import Entry, NewMemory
from scrubjay.text import metadata as metadata_json
from scrubjay.text.instants import read_time
from scrubjay.text.language import detect
from scrubjay.text.segments import split
from scrubjay.write.clean import Message

SEGMENT_CHARS = 400

_CLASS_BY_ROLE = {
    Role.USER: SourceClass.USER,
    Role.ASSISTANT: SourceClass.ASSISTANT,
    Role.SYSTEM: SourceClass.ASSISTANT,
    Role.TOOL: SourceClass.TOOL,
}


@dataclass(frozen=True, slots=True)
class Writing:
    """What all messages of one call share."""

    scope: Scope
    visibility: Visibility
    now: datetime
    zone: tzinfo
    secret: bytes
    occurred_at: object = None
    metadata: Mapping[str, Any] | None = None
    kind: Kind = Kind.EPISODE
    expires_at: datetime | None = None
    source_class: SourceClass | None = None


def turns(messages: Sequence[Message], writing: Writing, notes: list[str]) -> Iterator[Turn]:
    """A turn for each message. Messages without a time of their own keep their order in it."""
    shared = metadata_json.check(writing.metadata)
    base = writing.now
    if writing.occurred_at is not None:
        base, note = read_time("occurred_at", writing.occurred_at, writing.zone)
        notes.extend([note] if note else [])
    for number, message in enumerate(messages):
        at = base + timedelta(microseconds=number)
        if message.occurred_at is not None:
            at, note = read_time("occurred_at", message.occurred_at, writing.zone)
            notes.extend([note] if note else [])
        own = metadata_json.check(message.metadata)
        yield Turn(
            id=new_id(writing.now),
            scope=writing.scope,
            role=message.role,
            content=message.content,
            occurred_at=at,
            recorded_at=writing.now,
            source_class=writing.source_class or _CLASS_BY_ROLE[message.role],
            metadata={**shared, **own},
        )


def entry(turn: Turn, state: State, writing: Writing) -> Entry:
    """A turn with its episodes."""
    spans = split(turn.content, SEGMENT_CHARS)
    return Entry(turn, tuple(_episode(turn, start, end, state, writing) for start, end in spans))


def _episode(turn: Turn, start: int, end: int, state: State, writing: Writing) -> NewMemory:
    content = turn.content[start:end]
    record = MemoryRecord(
        id=new_id(writing.now),
        scope=turn.scope,
        kind=writing.kind,
        content=content,
        occurred_at=turn.occurred_at,
        recorded_at=turn.recorded_at,
        visibility=writing.visibility,
        state=state,
        role=turn.role,
        source_class=turn.source_class,
        trust=TRUST_BY_SOURCE[turn.source_class],
        language=detect(content),
        expires_at=writing.expires_at,
        metadata=turn.metadata,
        sources=(Source(turn.id, start, end, turn.occurred_at, turn.scope.session_id),),
    )
    return new_memory(record, writing.secret)


def new_memory(record: MemoryRecord, secret: bytes) -> NewMemory:
    """A record with its words and the hash by which its repetition is known.

    Two statements are the same when content, kind, speaker, namespace, expiry and metadata
    are. The hash is keyed, so that it tells nothing to who has only the file.
    """
    parts = (
        record.content,
        record.kind.value,
        record.role.value,
        record.source_class.value,
        record.scope.namespace or "",
        record.expires_at.isoformat() if record.expires_at else "",
        metadata_json.dumps(record.metadata) if record.metadata else "",
    )
    digest = blake2b("\x00".join(parts).encode("utf-8"), digest_size=16, key=secret).digest()
    postings, length = pack(record.content)
    return NewMemory(record, digest, postings, length)
