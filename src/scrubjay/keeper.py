"""The parts of a memory, and the verbs that look after the store as a whole.

Import and export, backup and restore, counts, health, rebuilding. `memory.MemoryCore` adds the
verbs of single memories.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from scrubjay.errors import InvalidInput, masked
from scrubjay.guard.access import authorise, check_id, make_scope
from scrubjay.index.cache import IndexCache
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.index.segments import without
from scrubjay.interchange import archive
from scrubjay.life import upkeep
from scrubjay.life.upkeep import Health, Progress
from scrubjay.model import (
    OWNER,
    MemoryRecord,
    Principal,
    RecallPolicy,
    Receipt,
    Right,
    Scope,
    partition_of,
    visible_partitions,
)
from scrubjay.ports import Background, Clock, Store
from scrubjay.read.options import MAX_QUERY_CHARS
from scrubjay.storage import Entry, Request
from scrubjay.text.normal import clean
from scrubjay.write.episode import Writing

Time = datetime | date | str | int | float
"""A time as callers give it: a datetime, a date, ISO 8601, or seconds or milliseconds."""

_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a memory is made of. `wiring` fills it."""

    store: Store
    cache: IndexCache
    embedding: Embedding
    large: LargePartitions | None
    background: Background
    clock: Clock
    zone: tzinfo
    tenant: str
    policy: RecallPolicy


def check_memory_id(value: object) -> str:
    """An id as a string. One that no memory has is not found later; no string is an error."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"an id is a string that a receipt gave, not {masked(value)}")
    return value


def check_query(value: object) -> str:
    """A question's clean text. Blank is allowed and finds nothing by words."""
    if not isinstance(value, str):
        raise InvalidInput(f"a query is a string, not {type(value).__name__}")
    if len(value) > MAX_QUERY_CHARS:
        raise InvalidInput(
            f"the query has {len(value)} characters, more than {MAX_QUERY_CHARS}; ask a shorter one"
        )
    text = clean(value)[0]
    if not text.strip():
        raise InvalidInput("the query is blank; ask something, or use `list` for all memories")
    return text


def check_path(value: object) -> Path:
    """A file's path. Raises `InvalidInput` for what is none."""
    if not isinstance(value, (str, Path)) or not str(value).strip() or "\x00" in str(value):
        raise InvalidInput(f"a file is named by a string or a Path, not {masked(value)}")
    return Path(value).expanduser()


class Keeper:
    """The parts, and the verbs over all of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def export(
        self,
        path: str | Path,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        principal: Principal = OWNER,
    ) -> Mapping[str, int]:
        """Write everything of one user to a JSON-lines file: turns, memories, all versions.

        With `agent_id`, what that agent may see; without, also what is private to any agent. The
        file ends with counts and a checksum, so that a cut one is known. Returns the counts.
        """
        scope = self._scope(principal, Right.READ, user_id, device_id, agent_id)
        keys = self._parts.store.subject_partitions(scope)
        if agent_id is not None:
            keys = [key for key in keys if key.owner in ("", agent_id)]
        return archive.export(self._parts.store, keys, check_path(path))

    def import_(
        self,
        path: str | Path,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        progress: Progress | None = None,
        principal: Principal = OWNER,
    ) -> Mapping[str, int]:
        """Read a file that `export` wrote: ids, times, versions and states come back as they were.

        The whole file is checked first; `ImportFailed` names the line, and nothing is imported.
        What is here already, or was forgotten here, is skipped, so a second import does
        nothing. Another `user_id` than the file's gives the memories to that user. Returns
        `{"written": …, "skipped": …}`.
        """
        parts = self._parts
        scope = self._scope(principal, Right.WRITE, user_id, device_id)
        counts = archive.import_(
            parts.store, scope, check_path(path), progress, embed=parts.embedding.configured
        )
        parts.background.wake()
        return counts

    def backup(
        self, path: str | Path, *, progress: Progress | None = None, principal: Principal = OWNER
    ) -> Path:
        """Write a consistent copy of the whole store to a file, while it is in use."""
        authorise(principal, Right.ADMIN, Scope(user_id="*", tenant=self._parts.tenant))
        target = check_path(path)
        if target.exists():
            raise InvalidInput(f"{target} exists; name a new file for the backup")
        if not target.parent.is_dir():
            raise InvalidInput(f"there is no directory {target.parent}; make it first")
        report = None if progress is None else lambda done, all_: progress(done, all_, "pages")
        self._parts.store.backup(str(target), report)
        return target

    def restore(self, path: str | Path, *, principal: Principal = OWNER) -> int:
        """Put a backup in the place of the whole store's content.

        What was forgotten after the backup stays forgotten; returns how many memories that left
        out. Raises `StoreDamaged`, with nothing changed, when the file is no sound backup.
        """
        authorise(principal, Right.ADMIN, Scope(user_id="*", tenant=self._parts.tenant))
        source = check_path(path)
        if not source.is_file():
            raise InvalidInput(f"there is no file {source}; name one that `backup` wrote")
        left_out = self._parts.store.restore(str(source), without)
        self._parts.cache.clear()
        self._parts.embedding.look_again()
        if self._parts.large is not None:
            self._parts.large.catch_up()
        self._parts.background.wake()
        return left_out

    def stats(
        self,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        principal: Principal = OWNER,
    ) -> Mapping[str, Any]:
        """Counts of one user's rows; without a user, of the whole store with its jobs and size."""
        parts = self._parts
        if user_id is None and device_id is None:
            authorise(principal, Right.ADMIN, Scope(user_id="*", tenant=parts.tenant))
            return upkeep.store_stats(parts.store, parts.cache, parts.embedding)
        scope = self._scope(principal, Right.READ, user_id, device_id, agent_id)
        return parts.store.counts(
            visible_partitions(scope)[:-1] if agent_id else parts.store.subject_partitions(scope)
        )

    def doctor(self, *, repair: bool = False, principal: Principal = OWNER) -> Health:
        """Look for damage between file, rows, indexes and jobs; with `repair`, mend what can be."""
        parts = self._parts
        authorise(principal, Right.ADMIN, Scope(user_id="*", tenant=parts.tenant))
        health = upkeep.doctor(
            parts.store, parts.cache, parts.embedding, parts.large, repair=repair
        )
        if repair:
            parts.background.wake()
        return health

    def reindex(
        self, *, progress: Progress | None = None, principal: Principal = OWNER
    ) -> Mapping[str, int]:
        """Build the words anew and give every memory a vector of the present model.

        Reading goes on meanwhile; an interrupted call is taken up where it was by the next.
        Raises `ModelUnavailable` when the model cannot be used.
        """
        parts = self._parts
        authorise(principal, Right.ADMIN, Scope(user_id="*", tenant=parts.tenant))
        return upkeep.reindex(parts.store, parts.cache, parts.embedding, parts.large, progress)

    def flush(self, timeout_s: float | None = None, *, progress: Progress | None = None) -> bool:
        """Wait for the background work. False at the timeout, or if jobs wait for a retry."""
        if timeout_s is not None and not isinstance(timeout_s, (int, float)):
            raise InvalidInput(f"timeout_s is a number of seconds, not {masked(timeout_s)}")
        return self._parts.background.flush(timeout_s, progress)

    def close(self) -> None:
        """Finish the job at hand and release everything. A second call does nothing."""
        self._parts.background.close()
        self._parts.embedding.close()
        self._parts.store.close()

    # -- steps that verbs share -------------------------------------------------------------

    def _scope(
        self,
        principal: Principal,
        right: Right,
        user_id: object,
        device_id: object,
        agent_id: object = None,
        session_id: object = None,
        namespace: object = None,
    ) -> Scope:
        """The checked scope of a call that its principal has the right to make."""
        scope = make_scope(
            user_id=user_id,
            device_id=device_id,
            agent_id=agent_id,
            session_id=session_id,
            namespace=namespace,
            tenant=self._parts.tenant,
        )
        authorise(principal, right, scope)
        return scope

    def _request(self, key: object, entries: Sequence[Entry], writing: Writing) -> Request | None:
        """The idempotency key with a keyed digest of everything that came with it.

        What is digested is what is stored, so that the order of keys, or a list around a single
        message, makes no other body; a time that was not given is left out.
        """
        checked = check_id("idempotency_key", key)
        if checked is None:
            return None
        said = []
        for number, turn in enumerate(entry.turn for entry in entries):
            assumed = writing.now + timedelta(microseconds=number)
            at = None if turn.occurred_at == assumed else turn.occurred_at
            said.append((turn.role, turn.content, turn.source_class, at, turn.metadata))
        shared = (writing.kind, writing.visibility, writing.expires_at, writing.scope.to_dict())
        body = json.dumps([said, shared], sort_keys=True, default=str)
        digest = blake2b(
            body.encode("utf-8", "surrogatepass"), digest_size=16, key=writing.secret
        ).digest()
        return Request(checked, digest)

    def _waited(self, receipt: Receipt, scope: Scope) -> Receipt:
        """The receipt once its memories have their vectors, or the time to wait is over."""
        self._parts.background.flush(_WAIT_S)
        keys, model = visible_partitions(scope), self._model_number()
        memories: list[MemoryRecord] = []
        pending: list[str] = []
        with self._parts.store.snapshot() as snapshot:
            for memory_id in dict.fromkeys(receipt.ids):
                record = snapshot.locate(keys, memory_id)
                if record is None:
                    continue
                memories.append(record)
                states = snapshot.partitions([partition_of(record)])
                if receipt.pending and not snapshot.vectors(states[0], model, [record.seq]):
                    pending.append(memory_id)
        return replace(receipt, memories=tuple(memories), pending=tuple(pending))

    def _model_number(self) -> int:
        """The model whose vectors are searched: the one in use, or the store's last."""
        row = self._parts.embedding.row
        if row is not None:
            return row.number
        known = self._parts.store.models()
        return known[-1].number if known else 0
