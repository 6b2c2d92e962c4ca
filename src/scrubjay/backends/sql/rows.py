"""Between rows and values: times as microseconds, ids as 16 bytes, large values by the codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from scrubjay.errors import StoreDamaged
from scrubjay.model import (
    Kind,
    MemoryRecord,
    PartitionKey,
    Role,
    Scope,
    Source,
    SourceClass,
    State,
    Tier,
    Turn,
    Visibility,
)
from scrubjay.ports import Codec
from scrubjay.text import metadata as metadata_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_KINDS = {kind.value: kind for kind in Kind}
_TIERS = {tier.value: tier for tier in Tier}
_STATES = {state.value: state for state in State}
_ROLES = {role.value: role for role in Role}
_CLASSES = {source_class.value: source_class for source_class in SourceClass}


def micros(value: datetime) -> int:
    """Microseconds since 1970 of an aware time.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (value - _EPOCH) // _MICROSECOND


def micros_or_none(value: datetime | None) -> int | None:
    """`micros`, with None for None."""
    return None if value is None else micros(value)


def moment(value: int) -> datetime:
    """The time of a count of microseconds."""
    return _EPOCH + timedelta(microseconds=value)


def moment_or_none(value: int | None) -> datetime | None:
    """`moment`, with None for None."""
    return None if value is None else moment(value)


def id_bytes(value: str) -> bytes:
    """An id as its 16 bytes; one that is no UUID gives bytes that no row has.

    >>> id_bytes("01890a5d-ac96-774b-bcce-b302099a8057").hex()[:8]
    '01890a5d'
    """
    try:
        found = bytes.fromhex(value.replace("-", ""))
    except ValueError:
        return b""
    return found if len(found) == 16 else b""


def id_text(value: bytes) -> str:
    """The text of an id's bytes."""
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_text_or_none(value: bytes | None) -> str | None:
    """`id_text`, with None for None."""
    return None if value is None else id_text(value)


_UNREADABLE = (KeyError, ValueError, OverflowError, TypeError)
"""What comes of a row whose bytes were changed."""


def _damage(what: str) -> StoreDamaged:
    return StoreDamaged(
        f"a stored {what} is unreadable; `scrubjay doctor` looks for more, and `scrubjay "
        "restore` brings a backup back"
    )


class Rows:
    """Reads and writes rows of one store through its codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def seal_text(self, text: str, key: PartitionKey, purpose: str) -> bytes:
        """Text as it is stored."""
        return self._codec.seal(text.encode("utf-8"), key, purpose)

    def open_text(self, blob: bytes, key: PartitionKey, purpose: str) -> str:
        """Text as it was given. Raises `StoreDamaged`."""
        try:
            return self._codec.open(blob, key, purpose).decode("utf-8")
        except _UNREADABLE as exc:
            raise _damage(purpose) from exc

    def seal_bytes(self, data: bytes, key: PartitionKey, purpose: str) -> bytes:
        """Bytes as they are stored."""
        return self._codec.seal(data, key, purpose)

    def open_bytes(self, blob: bytes, key: PartitionKey, purpose: str) -> bytes:
        """Bytes as they were given."""
        return self._codec.open(blob, key, purpose)

    def seal_metadata(self, value: Mapping[str, Any], key: PartitionKey) -> bytes | None:
        """Metadata as it is stored; None for none, which costs nothing to skip."""
        return self.seal_text(metadata_json.dumps(value), key, "metadata") if value else None

    def open_metadata(self, blob: bytes | None, key: PartitionKey) -> dict[str, Any]:
        """Metadata as it was given."""
        if blob is None:
            return {}
        value: dict[str, Any] = self.open_json(blob, key, "metadata")
        return value

    def seal_json(self, value: Any, key: PartitionKey, purpose: str) -> bytes:
        """Plain data as it is stored."""
        return self.seal_text(metadata_json.dumps(value), key, purpose)

    def open_json(self, blob: bytes, key: PartitionKey, purpose: str) -> Any:
        """Plain data as it was given. Raises `StoreDamaged`."""
        try:
            return metadata_json.loads(self.open_text(blob, key, purpose))
        except _UNREADABLE as exc:
            raise _damage(purpose) from exc

    def turn_row(self, turn: Turn, pid: object, key: PartitionKey) -> tuple[Any, ...]:
        """The values of `insert_turn`."""
        scope = turn.scope
        return (
            id_bytes(turn.id), pid, turn.role.value, turn.source_class.value,
            self.seal_text(turn.content, key, "content"), micros(turn.occurred_at),
            micros(turn.recorded_at), scope.agent_id, scope.session_id, scope.namespace,
            scope.device_id, self.seal_metadata(turn.metadata, key),
        )  # fmt: skip

    def turn(self, row: Sequence[Any], key: PartitionKey) -> Turn:
        """The turn of a row of the query `turns`."""
        (
            _,
            id_,
            role,
            source_class,
            content,
            occurred,
            recorded,
            agent,
            session,
            space,
            device,
            meta,
        ) = row
        try:
            return Turn(
                id=id_text(id_),
                scope=_scope(key, agent, session, space, device),
                role=_ROLES[role],
                content=self.open_text(content, key, "content"),
                occurred_at=moment(occurred),
                recorded_at=moment(recorded),
                source_class=_CLASSES[source_class],
                metadata=self.open_metadata(meta, key),
            )
        except _UNREADABLE as exc:
            raise _damage("turn") from exc

    def memory_row(
        self,
        record: MemoryRecord,
        seq: int,
        content_hash: bytes,
        previous: int,
        pid: object,
        key: PartitionKey,
        first: Source | None,
    ) -> tuple[Any, ...]:
        """The values of `insert_memory`; `first` is the source that stands in the row itself."""
        scope = record.scope
        return (
            id_bytes(record.id), pid, seq, record.kind.value, record.tier.value,
            record.state.value, record.role.value, record.source_class.value,
            self.seal_text(record.content, key, "content"), content_hash, record.language,
            record.trust, record.confidence, record.importance, micros(record.occurred_at),
            micros(record.recorded_at), micros_or_none(record.valid_from),
            micros_or_none(record.valid_to), micros_or_none(record.retired_at),
            micros_or_none(record.expires_at), record.version,
            id_bytes(record.supersedes) if record.supersedes else None,
            id_bytes(record.superseded_by) if record.superseded_by else None, record.reason,
            scope.agent_id, scope.session_id, scope.namespace, scope.device_id,
            self.seal_metadata(record.metadata, key), previous,
            *((id_bytes(first.turn_id), first.start, first.end, first.rule) if first
              else (None, None, None, None)),
        )  # fmt: skip

    def record(
        self, row: Sequence[Any], key: PartitionKey, further: Sequence[Source]
    ) -> MemoryRecord:
        """The record of a row of the query `records`, with its further sources."""
        (
            id_, seq, kind, tier, state, role, source_class, content, language, trust, confidence,
            importance, occurred, recorded, valid_from, valid_to, retired, expires, version,
            supersedes, superseded_by, reason, agent, session, namespace, device, meta,
            turn, start, stop, rule, _,
        ) = row  # fmt: skip
        try:
            first = turn and Source(id_text(turn), start, stop, moment(occurred), session, rule)
            return MemoryRecord(
                id=id_text(id_),
                scope=_scope(key, agent, session, namespace, device),
                kind=_KINDS[kind],
                content=self.open_text(content, key, "content"),
                occurred_at=moment(occurred),
                recorded_at=moment(recorded),
                visibility=_visibility(key),
                tier=_TIERS[tier],
                state=_STATES[state],
                role=_ROLES[role],
                source_class=_CLASSES[source_class],
                trust=trust,
                confidence=confidence,
                importance=importance,
                language=language,
                valid_from=moment_or_none(valid_from),
                valid_to=moment_or_none(valid_to),
                retired_at=moment_or_none(retired),
                expires_at=moment_or_none(expires),
                version=version,
                supersedes=id_text_or_none(supersedes),
                superseded_by=id_text_or_none(superseded_by),
                reason=reason,
                metadata=self.open_metadata(meta, key),
                sources=_in_order(first, further),
                seq=seq,
            )
        except _UNREADABLE as exc:
            raise _damage("memory") from exc


def _visibility(key: PartitionKey) -> Visibility:
    if key.subject == "common:":
        return Visibility.COMMON
    return Visibility.PRIVATE if key.owner else Visibility.SHARED


@lru_cache(maxsize=4096)
def _scope(
    key: PartitionKey, agent: str | None, session: str | None, space: str | None, device: str | None
) -> Scope:
    user = key.subject.removeprefix("user:") if key.subject.startswith("user:") else None
    return Scope(
        user_id=user,
        device_id=device,
        agent_id=agent,
        session_id=session,
        namespace=space,
        tenant=key.tenant,
    )


def source_of(row: Sequence[Any]) -> Source:
    """The source of a row of the query `sources_of`, whose first column is the sequence."""
    _, turn, start, stop, occurred, session, rule = row
    return Source(id_text(turn), start, stop, moment(occurred), session, rule)


def _in_order(first: Source | None, further: Sequence[Source]) -> tuple[Source, ...]:
    """All sources, the oldest first."""
    if not further:
        return (first,) if first else ()
    known = [*([first] if first else []), *further]
    return tuple(sorted(known, key=lambda s: (s.occurred_at, s.turn_id, s.start)))


def first_source(record: MemoryRecord) -> Source | None:
    """The source that was said at the memory's own time, in its own session."""
    for source in record.sources:
        if (source.occurred_at, source.session_id) == (record.occurred_at, record.scope.session_id):
            return source
    return None
