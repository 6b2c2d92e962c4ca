"""The verbs of memories. Each orders the steps and does none of them.

A verb makes a scope of the ids it is given, asks `access` whether its principal may, and calls
the stages of `write`, `read` or `life`. The verbs that look after the store as a whole are in
`keeper`. `scrubjay.Memory` is this class with a store and a model behind it; `wiring` puts the
two together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scrubjay.errors import InvalidInput, masked
from scrubjay.guard.access import authorise, check_id
from scrubjay.keeper import Keeper, Time, check_memory_id, check_query
from scrubjay.life import upkeep
from scrubjay.life.forget import forget
from scrubjay.model import (
    OWNER,
    Erasure,
    Kind,
    MemoryRecord,
    Page,
    Principal,
    RecallPolicy,
    Receipt,
    Result,
    Right,
    Scope,
    SourceClass,
    State,
    Version,
    Visibility,
    visible_partitions,
    written_partition,
)
from scrubjay.read import browse, options
from scrubjay.read.filters import parse as parse_filters
from scrubjay.read.hits import hydrate
from scrubjay.read.pack import FORMATS, Context, Format, pack
from scrubjay.read.plan import make_plan
from scrubjay.read.search import candidates
from scrubjay.storage import Target
from scrubjay.text.instants import read_time
from scrubjay.text.instants import zone as named_zone
from scrubjay.text.tokens import estimate
from scrubjay.write import prepare
from scrubjay.write.episode import Writing

_CONTEXT_HITS = 40


class MemoryCore(Keeper):
    """The verbs over a set of parts. Thread-safe; use it as a context manager or `close` it."""

    # -- writing ----------------------------------------------------------------------------

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        occurred_at: Time | None = None,
        metadata: Mapping[str, Any] | None = None,
        kind: str = Kind.EPISODE,
        visibility: str = Visibility.SHARED,
        expires_at: Time | None = None,
        idempotency_key: str | None = None,
        source_class: str | None = None,
        time_zone: str | None = None,
        wait: bool = False,
        principal: Principal = OWNER,
    ) -> Receipt:
        """Remember what was said. When this returns, every turn is on disk and findable by words.

        `messages` is text, a message (`{"role": …, "content": …}`, tool calls included) or a
        list of these, which are one conversation. A statement that is already known gains a
        source and keeps its id. With `idempotency_key` a repeated call writes nothing and
        returns the first outcome. `wait` waits for the vectors and fills `Receipt.memories`.

        Raises `ScopeRequired` without a user or device, `InvalidInput` for what cannot be
        stored, `IdempotencyConflict`, and `StoreError`s; then nothing was written.

        >>> import scrubjay, tempfile
        >>> with scrubjay.Memory(tempfile.mkdtemp(), embedder="none") as memory:
        ...     receipt = memory.add("I prefer a window seat.", user_id="ada")
        ...     memory.search("seat", user_id="ada")[0].content
        'I prefer a window seat.'
        """
        parts, now = self._parts, self._parts.clock()
        scope = self._scope(
            principal, Right.WRITE, user_id, device_id, agent_id, session_id, namespace
        )
        shown = options.one_of("visibility", visibility, Visibility)
        if shown is Visibility.PRIVATE and scope.agent_id is None:
            raise InvalidInput("a private memory belongs to an agent; pass agent_id")
        if shown is Visibility.COMMON:
            authorise(principal, Right.ADMIN, scope)
        zone = parts.zone if time_zone is None else named_zone(time_zone)
        writing = Writing(
            scope=scope,
            visibility=shown,
            now=now,
            zone=zone,
            secret=parts.store.secret(),
            occurred_at=occurred_at,
            metadata=metadata,
            kind=options.one_of("kind", kind, Kind),
            expires_at=None if expires_at is None else read_time("expires_at", expires_at, zone)[0],
            source_class=None
            if source_class is None
            else options.one_of("source_class", source_class, SourceClass),
        )
        entries, skipped, notes = prepare(messages, writing)
        if writing.expires_at is not None and writing.expires_at <= now:
            notes = (*notes, "expires_at lies in the past, so this is stored and never found")
        journalled = parts.store.journal(
            written_partition(scope, shown),
            entries,
            request=self._request(idempotency_key, entries, writing),
            embed=parts.embedding.configured,
            priority=0 if len(entries) <= 64 else 1,
        )
        parts.background.wake()
        ids = tuple(i for entry_ids in journalled.ids for i in entry_ids)
        new = tuple(dict.fromkeys(i for i in ids if i not in journalled.repeated))
        status = "replayed" if journalled.replayed else "stored" if new else "duplicate"
        receipt = Receipt(
            ids=ids,
            turn_ids=journalled.turn_ids,
            status=status,  # type: ignore[arg-type]
            duplicates=tuple(sorted(journalled.repeated)),
            pending=new if parts.embedding.configured else (),
            skipped=tuple(skipped),
            notes=tuple(notes),
        )
        return self._waited(receipt, scope) if wait else receipt

    def update(
        self,
        memory_id: str,
        content: str,
        *,
        reason: str = "updated",
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        occurred_at: Time | None = None,
        metadata: Mapping[str, Any] | None = None,
        principal: Principal = OWNER,
    ) -> MemoryRecord:
        """Give a memory a new version; the old one is kept as superseded, with the reason.

        An id of an older version means its chain. Kind, session, namespace, an expiry that is
        still to come and, unless given, metadata are kept. Raises `NotFound`, `InvalidInput`.
        """
        parts = self._parts
        scope = self._scope(principal, Right.WRITE, user_id, device_id, agent_id)
        keys = visible_partitions(scope)
        with parts.store.snapshot() as snapshot:
            old = browse.one(snapshot, keys, check_memory_id(memory_id))
        if old.visibility is Visibility.COMMON:
            authorise(principal, Right.ADMIN, scope)
        now, expires_at = parts.clock(), old.expires_at
        if expires_at is not None and expires_at <= now:
            expires_at = None
        writing = Writing(
            scope=old.scope,
            visibility=old.visibility,
            now=now,
            zone=parts.zone,
            secret=parts.store.secret(),
            occurred_at=occurred_at,
            metadata=old.metadata if metadata is None else metadata,
            kind=old.kind,
            expires_at=expires_at,
            source_class=old.source_class,
        )
        entries, _, _ = prepare([{"role": old.role.value, "content": content}], writing)
        if len(entries[0].episodes) != 1:
            raise InvalidInput("the new content is too long for one memory; `add` splits long text")
        said, embed = options.text("reason", reason), parts.embedding.configured
        record = parts.store.supersede(keys, old.id, entries[0], said, embed=embed)
        parts.background.wake()
        return record

    def delete(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        principal: Principal = OWNER,
    ) -> Erasure:
        """Erase one memory with all its versions and its words in the journal.

        The same as `forget(memory_id=…)`. Raises `NotFound`.
        """
        return self.forget(
            memory_id=check_memory_id(memory_id),
            user_id=user_id,
            device_id=device_id,
            agent_id=agent_id,
            principal=principal,
        )

    def forget(
        self,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        memory_id: str | None = None,
        session_id: str | None = None,
        turn_id: str | None = None,
        before: Time | None = None,
        principal: Principal = OWNER,
    ) -> Erasure:
        """Erase for good: one memory, a session, a turn, what is older, or all of a user.

        With the user alone, everything of that user goes, the private memories of every agent
        included; with an agent as well, what is private to that agent. The result counts what
        went and what a probe then found. Raises `ScopeRequired` without a user or device, and
        `NotFound`.
        """
        parts = self._parts
        scope = self._scope(principal, Right.WRITE, user_id, device_id, agent_id)
        given = [x for x in (memory_id, session_id, turn_id, before) if x is not None]
        if len(given) > 1:
            raise InvalidInput("forget one thing at a time: a memory, a session, a turn or a time")
        target = Target(
            whole=not given,
            memory_id=None if memory_id is None else check_memory_id(memory_id),
            session_id=check_id("session_id", session_id),
            turn_id=None if turn_id is None else check_memory_id(turn_id),
            before=None if before is None else read_time("before", before, parts.zone)[0],
        )
        keys = parts.store.subject_partitions(scope)
        if agent_id is not None:
            own = (agent_id,) if target.whole else ("", agent_id)
            keys = [key for key in keys if key.owner in own]
        if target.memory_id is not None and self._is_common(target.memory_id, scope):
            authorise(principal, Right.ADMIN, scope)
            keys = [*visible_partitions(scope)[-1:]]
        return forget(
            parts.store, parts.cache, parts.embedding, parts.large, keys, target, parts.clock()
        )

    def _is_common(self, memory_id: str, scope: Scope) -> bool:
        with self._parts.store.snapshot() as snapshot:
            return snapshot.locate(visible_partitions(scope)[-1:], memory_id) is not None

    # -- reading ----------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        known_at: Time | None = None,
        kinds: Sequence[str] | None = None,
        tiers: Sequence[str] | None = None,
        include_history: bool = False,
        threshold: float | None = None,
        policy: RecallPolicy | Mapping[str, float] | None = None,
        explain: bool = False,
        now: Time | None = None,
        time_zone: str | None = None,
        principal: Principal = OWNER,
    ) -> Result:
        """The memories that answer a question, best first.

        Only memories of the scope and within all of the narrowing are looked at. `filters` are
        on metadata (`{"tag": "trip"}`, `{"rating": {">=": 4}}`); `since` and `until` on when it
        was said, a day given as `until` being included; `threshold` cuts by relevance, which is
        0 to 1 and means the same everywhere. `as_of` asks what was true then, `known_at` what
        had been recorded then. `now` stands for the present, for replays.

        Raises `ScopeRequired`, `InvalidInput`.
        """
        began = time.perf_counter()
        parts = self._parts
        scope = self._scope(
            principal, Right.READ, user_id, device_id, agent_id, session_id, namespace
        )
        zone = parts.zone if time_zone is None else named_zone(time_zone)
        chosen = options.make_policy(parts.policy, policy)
        k = options.whole_number(
            "top_k", chosen.top_k if top_k is None else top_k, 1, options.MAX_TOP_K
        )
        least = options.fraction("threshold", chosen.threshold if threshold is None else threshold)
        present = parts.clock() if now is None else read_time("now", now, zone)[0]
        criteria = options.make_criteria(
            scope, present, zone, kinds=kinds, tiers=tiers, since=since, until=until, as_of=as_of,
            known_at=known_at, include_history=include_history,
        )  # fmt: skip
        conditions = parse_filters(filters)
        text = check_query(query)
        vector, note = parts.embedding.query(text)
        embedded = time.perf_counter()
        row = parts.embedding.row
        plan = make_plan(text, vector, row.baseline if row else 0.0, criteria, conditions, least)
        keys = visible_partitions(scope)
        with parts.cache.view(keys, self._model_number()) as (snapshot, view):
            found, failure = candidates(snapshot, view, plan, chosen, k, parts.large)
            hits = hydrate(snapshot, found, scope, keys, criteria, explain=explain)
            pending = sum(p.pending for _, p in view) if parts.embedding.configured else 0
        note = note or failure or upkeep.mismatch_note(parts.embedding)
        if pending and note is None:
            note = upkeep.pending_note(pending)
        ended = time.perf_counter()
        return Result(
            hits=tuple(hits),
            pending=pending,
            notes=(note,) if note else (),
            timings={
                "embed": (embedded - began) * 1e3 if vector is not None else 0.0,
                "search": (ended - embedded) * 1e3,
                "total": (ended - began) * 1e3,
            },
        )

    def context(
        self,
        /,
        query: str,
        *,
        max_tokens: int = 1200,
        format: Format = "markdown",  # noqa: A002 - the word that callers know
        language: str | None = None,
        count_tokens: Callable[[str], int] = estimate,
        top_k: int = _CONTEXT_HITS,
        time_zone: str | None = None,
        **search: Any,
    ) -> Context:
        """A block of the best memories for a prompt: numbered, dated, fenced as data.

        It never has more than `max_tokens` by `count_tokens`, an estimate good for English and
        Chinese unless another is given. `format` is markdown, xml, json or text; labels are in
        `language` (`en`, `zh`), by default the question's. The other arguments are those of
        `search`. Raises what `search` raises.
        """
        options.whole_number("max_tokens", max_tokens, 1, 1_000_000)
        if not callable(count_tokens):
            raise InvalidInput("count_tokens is a function from text to a count")
        if format not in FORMATS:
            raise InvalidInput(f"format is one of {', '.join(FORMATS)}, not {masked(format)}")
        if language not in (None, "en", "zh"):
            raise InvalidInput(f"language is en or zh, not {masked(language)}")
        result = self.search(query, top_k=top_k, time_zone=time_zone, **search)
        block = pack(
            result.hits,
            query=query,
            max_tokens=max_tokens,
            form=format,
            zone=self._parts.zone if time_zone is None else named_zone(time_zone),
            count=count_tokens,
            language=language,
        )
        return replace(block, pending=result.pending, notes=result.notes)

    def get(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        principal: Principal = OWNER,
    ) -> MemoryRecord:
        """One memory by its id. Raises `NotFound` when it is not in this scope."""
        scope = self._scope(principal, Right.READ, user_id, device_id, agent_id)
        with self._parts.store.snapshot() as snapshot:
            return browse.one(snapshot, visible_partitions(scope), check_memory_id(memory_id))

    def list(
        self,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        namespace: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        filters: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        kinds: Sequence[str] | None = None,
        tiers: Sequence[str] | None = None,
        states: Sequence[str] | None = (State.ACTIVE,),
        now: Time | None = None,
        principal: Principal = OWNER,
    ) -> Page:
        """A page of memories, newest first, with the count of all and the next page's cursor.

        `states=None` lists every state. What is added or deleted between two pages moves no
        other memory into or out of a later page. Raises `InvalidInput`.
        """
        parts = self._parts
        scope = self._scope(
            principal, Right.READ, user_id, device_id, agent_id, session_id, namespace
        )
        count = options.whole_number("limit", limit, 1, browse.MAX_PAGE)
        present = parts.clock() if now is None else read_time("now", now, parts.zone)[0]
        criteria = options.make_criteria(
            scope, present, parts.zone, kinds=kinds, tiers=tiers, since=since, until=until,
            as_of=None, known_at=None, include_history=False,
            states=options.several("states", states, State),
        )  # fmt: skip
        conditions = parse_filters(filters)
        with parts.store.snapshot() as snapshot:
            return browse.page(
                snapshot, visible_partitions(scope), criteria, conditions, count, cursor
            )

    def history(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        device_id: str | None = None,
        agent_id: str | None = None,
        principal: Principal = OWNER,
    ) -> tuple[Version, ...]:
        """Every version of a memory and each time it was said again, oldest first."""
        scope = self._scope(principal, Right.READ, user_id, device_id, agent_id)
        with self._parts.store.snapshot() as snapshot:
            return browse.history(snapshot, visible_partitions(scope), check_memory_id(memory_id))
