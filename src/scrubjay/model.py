"""The frozen values that travel between the rooms.

Values only: no input or output, nothing heavier than the standard library, so that
importing them costs next to nothing. Every value has `to_dict()`, with the same names in
Python, over HTTP and in `--json`. Times are aware UTC with microseconds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal


class Role(StrEnum):
    """Who spoke in a turn."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class Kind(StrEnum):
    """What a memory is: a verbatim episode, or a statement derived from episodes."""

    EPISODE = "episode"
    FACT = "fact"
    PREFERENCE = "preference"
    DECISION = "decision"
    COMMITMENT = "commitment"
    EVENT = "event"
    INSIGHT = "insight"
    ATTRIBUTE = "attribute"


class Tier(StrEnum):
    """How long a memory is meant to last."""

    WORKING = "working"
    EPISODIC = "episodic"
    PROFILE = "profile"
    PERMANENT = "permanent"


class State(StrEnum):
    """Whether a memory is current. Only `active` ones are found by default."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    MERGED = "merged"
    QUARANTINED = "quarantined"
    STALE = "stale"
    FORGOTTEN = "forgotten"


class SourceClass(StrEnum):
    """Who said it. Trust follows from it."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    IMPORT = "import"
    WEB = "web"


class Visibility(StrEnum):
    """Who of a user's agents may see a memory."""

    SHARED = "shared"
    PRIVATE = "private"
    COMMON = "common"


class Right(StrEnum):
    """What a principal may do."""

    READ = "read"
    WRITE = "write"
    REVEAL = "reveal"
    REVIEW = "review"
    ADMIN = "admin"


TRUST_BY_SOURCE: Mapping[SourceClass, float] = {
    SourceClass.USER: 1.0,
    SourceClass.IMPORT: 0.8,
    SourceClass.TOOL: 0.7,
    SourceClass.ASSISTANT: 0.6,
    SourceClass.WEB: 0.4,
}


class Value:
    """Gives the frozen values below their one way of becoming plain data."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The value as plain dicts, lists, strings and numbers, ready for JSON.

        >>> Scope(user_id="ada").to_dict()["user_id"]
        'ada'
        """
        return {
            f.name: plain(getattr(self, f.name))
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if not f.name.startswith("_")
        }


def plain(value: Any) -> Any:
    """`value` as JSON knows it: times in ISO 8601, enums by value, values by `to_dict`."""
    if isinstance(value, Value):
        return value.to_dict()
    if isinstance(value, StrEnum):
        return value.value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    return value


@dataclass(frozen=True, slots=True)
class Scope(Value):
    """Whose memories a call may touch. Every read and write of the store takes one.

    `user_id` or `device_id` names the subject and is required. `agent_id` opens that
    agent's private memories beside the user's shared ones; `session_id` and `namespace`
    only ever narrow. Build one with `scrubjay.guard.access.make_scope`, which checks the ids.
    """

    user_id: str | None = None
    device_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    namespace: str | None = None
    tenant: str = "default"

    @property
    def subject(self) -> str:
        """The user, or else the device, as the partition's key. Never empty.

        >>> Scope(user_id="ada").subject
        'user:ada'
        """
        if self.user_id:
            return f"user:{self.user_id}"
        if self.device_id:
            return f"device:{self.device_id}"
        raise ValueError("a scope names a user or a device")


@dataclass(frozen=True, slots=True)
class Principal(Value):
    """Who asks, and with which rights. In the library it is the owner unless given.

    `tenant` is the only one it may act in; None, as the owner has it, is the memory's own.
    """

    name: str = "owner"
    rights: frozenset[Right] = frozenset(Right)
    tenant: str | None = None


OWNER = Principal()


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One partition: all memories of a tenant, subject and visibility owner.

    `owner` is "" for what all agents of the subject share, else the private agent's id.
    Common knowledge of the tenant has the subject `common:`, which no user id can make.
    """

    tenant: str
    subject: str
    owner: str = ""


def visible_partitions(scope: Scope) -> tuple[PartitionKey, ...]:
    """The partitions a scope may read: the agent's private, the user's shared, the common.

    >>> [k.owner or k.subject for k in visible_partitions(Scope(user_id="u", agent_id="a"))]
    ['a', 'user:u', 'common:']
    """
    private = (PartitionKey(scope.tenant, scope.subject, scope.agent_id),) if scope.agent_id else ()
    return (
        *private,
        PartitionKey(scope.tenant, scope.subject),
        PartitionKey(scope.tenant, "common:"),
    )


def written_partition(scope: Scope, visibility: Visibility) -> PartitionKey:
    """The one partition a write goes to."""
    if visibility is Visibility.COMMON:
        return PartitionKey(scope.tenant, "common:")
    if visibility is Visibility.PRIVATE:
        if not scope.agent_id:
            raise ValueError("a private memory needs an agent_id")
        return PartitionKey(scope.tenant, scope.subject, scope.agent_id)
    return PartitionKey(scope.tenant, scope.subject)


@dataclass(frozen=True, slots=True)
class Turn(Value):
    """One message or tool result, raw and immutable: a line of the journal."""

    id: str
    scope: Scope
    role: Role
    content: str
    occurred_at: datetime
    recorded_at: datetime
    source_class: SourceClass = SourceClass.USER
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source(Value):
    """Where a memory came from: a turn, the characters [start, end) of it, and by what rule."""

    turn_id: str
    start: int
    end: int
    occurred_at: datetime
    session_id: str | None = None
    rule: str = "verbatim"


@dataclass(frozen=True, slots=True)
class MemoryRecord(Value):
    """One recallable unit with everything known about it."""

    id: str
    scope: Scope
    kind: Kind
    content: str
    occurred_at: datetime
    recorded_at: datetime
    visibility: Visibility = Visibility.SHARED
    tier: Tier = Tier.EPISODIC
    state: State = State.ACTIVE
    role: Role = Role.USER
    source_class: SourceClass = SourceClass.USER
    trust: float = 1.0
    confidence: float = 1.0
    importance: float = 0.5
    language: str = "und"
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    retired_at: datetime | None = None
    expires_at: datetime | None = None
    version: int = 1
    supersedes: str | None = None
    superseded_by: str | None = None
    reason: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    seq: int = 0


def partition_of(record: MemoryRecord) -> PartitionKey:
    """The partition a record lies in."""
    return written_partition(record.scope, record.visibility)


@dataclass(frozen=True, slots=True)
class Skipped(Value):
    """A part of a write that was not done as asked, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Receipt(Value):
    """What a write returns. Once it is in hand, the turns are on disk.

    `ids` are the memories the turns became, one or more for each turn, in order; a statement
    that repeats an earlier one gives the earlier id. `status` is `stored`, or `duplicate`
    when every id was there before, or `replayed` for a known idempotency key.
    `pending` names the memories not yet findable by meaning. `memories` is filled by
    `wait=True`.
    """

    ids: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()
    status: Literal["stored", "duplicate", "replayed"] = "stored"
    duplicates: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    memories: tuple[MemoryRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasure(Value):
    """What `forget` returns: how many rows of each store are gone, and what a probe then found."""

    target: str
    counts: Mapping[str, int] = field(default_factory=dict)
    memory_ids: tuple[str, ...] = ()
    probe: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the probe found nothing left."""
        return not any(self.probe.values())


@dataclass(frozen=True, slots=True)
class Hit(Value):
    """One memory that answers a search. Higher relevance and score are better."""

    id: str
    content: str
    relevance: float
    score: float
    kind: Kind
    occurred_at: datetime
    confidence: float
    state: State
    memory: MemoryRecord
    explanation: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Result(Value):
    """The hits of a search, best first, with what the caller should know about them.

    `pending` counts this scope's memories that cannot be found by meaning yet. `notes` says
    when the search did less than it could. `timings` holds milliseconds: `embed`, `search`,
    `total`.
    """

    hits: tuple[Hit, ...] = ()
    pending: int = 0
    notes: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]


@dataclass(frozen=True, slots=True)
class Page(Value):
    """One page of a listing, newest first. `next_cursor` is None on the last one."""

    items: tuple[MemoryRecord, ...] = ()
    next_cursor: str | None = None
    total: int = 0

    def __iter__(self) -> Iterator[MemoryRecord]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Version(Value):
    """One entry of a memory's history, oldest first."""

    event: Literal["add", "update", "repeat", "retire"]
    at: datetime
    memory: MemoryRecord
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RecallPolicy(Value):
    """The tunable numbers of reading. Every weight is a bounded share of the score.

    `vector_weight` is the share of meaning beside words; `before_weight` and `after_weight` say
    how much the turn before and after a memory speak for it; `recency`, `trust` and
    `confidence` lower the score by at most their own share; `half_life_days` is when recency has
    halved.
    """

    top_k: int = 5
    threshold: float = 0.0
    vector_weight: float = 0.45
    before_weight: float = 0.45
    after_weight: float = 0.25
    recency: float = 0.02
    confidence: float = 0.02
    trust: float = 0.02
    half_life_days: float = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """Background work for one partition, claimed under a lease."""

    id: int
    kind: str
    partition: PartitionKey
    payload: Mapping[str, Any]
    attempts: int = 0
    lease: int = 0
    last_error: str | None = None


def new_id(at: datetime) -> str:
    """A UUIDv7 of that time (RFC 9562, section 5.7): 48 bits of milliseconds, then chance.

    >>> from datetime import UTC
    >>> new_id(datetime(2026, 1, 1, tzinfo=UTC))[:13]
    '019b76da-a800'
    """
    millis = max(0, int(at.timestamp() * 1000)) & ((1 << 48) - 1)
    chance = os.urandom(10).hex()
    head = f"{millis:012x}"
    variant = "89ab"[int(chance[3], 16) & 3]
    return f"{head[:8]}-{head[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"
