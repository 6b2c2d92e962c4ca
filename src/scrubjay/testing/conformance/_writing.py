"""Writing: `Store.journal`, repetition, idempotency and `Store.supersede`."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from scrubjay.errors import IdempotencyConflict, NotFound, ScrubjayError
from scrubjay.model import PartitionKey, State
from scrubjay.ports import Store
from scrubjay.storage import Entry, Journalled, Request, Target
from scrubjay.testing.conformance._base import Reopen, StoreSuite, done, together
from scrubjay.testing.conformance.build import (
    ADA,
    BOB,
    T0,
    at,
    entry,
    everything,
    record_of,
    seal_words,
    seen,
    seqs_of,
    state_of,
    write,
)

_TEXTS = (
    "  leading and trailing  ",
    "line one\r\nline two\ttab",
    "订单号 DD20260115-7731，改到靠窗座位。",
    "👩‍👩‍👧 family, e\u0301 kept as it came",
    "quote ' double \" back \\ percent % under _ null-ish \\0",
    "עברית العربية ไทย 한국어",
    "x" * 100_000,
)


class StoreJournal(StoreSuite):
    """One transaction writes turns, episodes, words, sources and jobs."""

    def test_everything_of_a_turn_is_written(self, store: Store) -> None:
        """Turns, episodes, words, sources and jobs appear together."""
        said = entry("tea at four", "cake at five", session="s1")
        outcome = store.journal(ADA, [said])
        assert outcome.ids == (tuple(e.record.id for e in said.episodes),)
        assert outcome.turn_ids == (said.turn.id,)
        assert not outcome.repeated
        assert not outcome.replayed
        counts = store.counts([ADA])
        assert counts["turns"] == 1
        assert counts["memories"] == counts["memories.active"] == 2
        assert counts["sources"] == counts["words"] == 2
        assert counts["jobs"] == 1
        with store.snapshot() as snapshot:
            words = snapshot.tail_words(state_of(snapshot))
            turns = list(snapshot.turns(state_of(snapshot)))
        assert [w.postings for w in words] == [e.postings for e in said.episodes]
        assert [w.length for w in words] == [e.length for e in said.episodes]
        assert [t.content for t in turns] == ["tea at four cake at five"]

    @pytest.mark.parametrize("text", _TEXTS)
    def test_content_comes_back_as_it_was_said(self, store: Store, text: str) -> None:
        """No byte of a content is changed on its way."""
        (memory_id,) = write(store, text)
        assert record_of(store, memory_id).content == text

    def test_every_field_comes_back(self, store: Store) -> None:
        """Scope, times, numbers and the types of metadata survive."""
        metadata: dict[str, Any] = {
            "n": 2**53 + 1, "f": 0.1, "t": True, "none": None, "day": date(2026, 1, 2),
            "at": at(1), "list": [1, "1", {"deep": [None]}], "键": "值", "empty": {},
        }  # fmt: skip
        said = entry(
            "all of it", session="s'1", namespace="n/1", when=at(1), recorded=at(2),
            metadata=metadata, expires_at=at(9), trust=0.25, confidence=0.5, importance=0.75,
            language="en", valid_from=at(0), valid_to=at(8),
        )  # fmt: skip
        store.journal(ADA, [said])
        given = said.episodes[0].record
        found = record_of(store, given.id)
        assert replace(found, seq=0) == given
        assert [type(v) for v in found.metadata.values()] == [type(v) for v in metadata.values()]

    def test_sequences_are_given_in_order(self, store: Store) -> None:
        """`next_seq` is one more than the highest ever given."""
        first = seqs_of(store, write(store, "a1", "b2", "c3"))
        second = seqs_of(store, write(store, "d4"))
        assert first == sorted(set(first))
        assert first[0] >= 1
        assert second[0] > first[-1]
        with store.snapshot() as snapshot:
            assert state_of(snapshot).next_seq == second[0] + 1

    def test_sequences_are_never_given_again(self, store: Store) -> None:
        """Nor after everything was erased: late work must not meet a new memory."""
        highest = seqs_of(store, write(store, "one", "two", "three"))[-1]
        store.erase([ADA], Target(whole=True), lambda *_: None, T0)
        assert seqs_of(store, write(store, "four"))[0] > highest

    def test_nothing_is_there_when_it_raises(self, store: Store) -> None:
        """All or nothing, and the error is one of ours."""
        write(store, "before")
        twice = entry("same turn twice")
        with pytest.raises(ScrubjayError):
            store.journal(ADA, [entry("fine so far"), twice, twice])
        assert seen(store) == ["before"]
        counts = store.counts([ADA])
        assert counts["turns"] == counts["words"] == counts["sources"] == 1
        assert store.check() == []

    def test_a_failed_call_among_others_harms_none(self, store: Store) -> None:
        """Calls that share a transaction stand and fall alone."""
        twice = entry("the same turn twice")

        def work(number: int) -> Journalled:
            entries = [twice, twice] if number == 7 else [entry(f"thing {number}")]
            return store.journal(ADA, entries, embed=False)

        outcomes = together(16, work)
        assert [i for i, o in enumerate(outcomes) if isinstance(o, BaseException)] == [7]
        assert sorted(seen(store)) == sorted(f"thing {n}" for n in range(16) if n != 7)

    def test_it_survives_the_handle(self, store: Store, reopen: Reopen) -> None:
        """Another handle sees it as soon as the call has returned."""
        other = reopen()
        for number in range(3):
            write(store, f"thing {number}")
            assert seen(other) == [f"thing {n}" for n in range(number + 1)]

    def test_generations_tell_of_every_change(self, store: Store) -> None:
        """`generation` grows with each change; an append alone leaves `epoch`."""
        write(store, "one")
        with store.snapshot() as snapshot:
            before = state_of(snapshot)
        write(store, "two")
        with store.snapshot() as snapshot:
            after = state_of(snapshot)
            again = state_of(snapshot)
        assert after.generation > before.generation
        assert after.epoch == before.epoch
        assert again == after

    def test_embed_asks_for_the_new_memories(self, store: Store) -> None:
        """One job holds the new memories; without `embed` there is none."""
        write(store, "no vector wanted")
        assert store.claim(9, 60, at(0)) == []
        ids = write(store, "one", "two", embed=True)
        (job,) = store.claim(9, 60, at(0))
        assert job.kind == "embed"
        assert job.partition == ADA
        assert list(job.payload["seqs"]) == seqs_of(store, ids)

    def test_a_lower_priority_goes_first(self, store: Store) -> None:
        """A live write passes a bulk that came before it."""
        store.journal(ADA, [entry("bulk")], priority=1)
        store.journal(BOB, [entry("live", key=BOB)], priority=0)
        assert [job.partition for job in store.claim(1, 60, at(0))] == [BOB]

    def test_episodes_remember_the_one_before_in_their_session(self, store: Store) -> None:
        """Across calls, and past what other sessions say meanwhile."""
        a1, a2 = seqs_of(store, write(store, "a1 said", "a2 said", session="a"))
        (b1,) = seqs_of(store, write(store, "b1 said", session="b"))
        (a3,) = seqs_of(store, write(store, "a3 said", session="a"))
        (alone,) = seqs_of(store, write(store, "no session"))
        with store.snapshot() as snapshot:
            rows = {r.seq: r.previous for r in snapshot.tail_words(state_of(snapshot))}
        assert rows == {a1: 0, a2: a1, b1: 0, a3: a2, alone: 0}

    def test_two_sessions_in_one_call_stay_two(self, store: Store) -> None:
        """What follows in the call need not follow in the session."""
        store.journal(ADA, [entry("a1 said", session="a")], embed=False)
        mixed = [entry("b1 said", session="b"), entry("a2 said", session="a")]
        store.journal(ADA, mixed, embed=False)
        with store.snapshot() as snapshot:
            rows = [r.previous for r in snapshot.tail_words(state_of(snapshot))]
            first = snapshot.tail_words(state_of(snapshot))[0].seq
        assert rows == [0, 0, first]

    def test_writers_lose_and_double_nothing(self, store: Store) -> None:
        """Many threads, one partition: each turn once, each sequence once."""

        def work(number: int) -> list[str]:
            return [write(store, f"writer {number} line {i}")[0] for i in range(10)]

        ids = [i for found in done(together(12, work)) for i in found]
        assert len(set(ids)) == 120
        assert len(set(seqs_of(store, ids))) == 120
        assert len(seen(store)) == 120
        assert store.check() == []

    @pytest.mark.parametrize("session", [None, "s"])
    def test_each_follows_the_one_before(self, store: Store, session: str | None) -> None:
        """In its session, and within a call where there is none: from the first write on."""
        write(store, "a", "b", session=session)
        write(store, "c", session="other")
        write(store, "d", "e", session=session)
        with store.snapshot() as snapshot:
            links = snapshot.links(state_of(snapshot))
        assert links == ({2: 1, 4: 2, 5: 4} if session else {2: 1, 5: 4})

    def test_two_handles_write_at_once(self, store: Store, reopen: Reopen) -> None:
        """Handles share the partition's lock as threads do."""
        handles = [store, reopen(), reopen()]

        def work(number: int) -> None:
            for i in range(10):
                write(handles[number % 3], f"handle {number} line {i}")

        done(together(6, work))
        assert len(set(seen(store))) == 60
        assert store.check() == []


class StoreDedup(StoreSuite):
    """The store keeps at most one active episode of a hash in a partition."""

    def test_a_repetition_is_a_further_source(self, store: Store) -> None:
        """The episode keeps its id and gains the new turn."""
        first, second = entry("the same words"), entry("the same words", when=at(1), session="s2")
        store.journal(ADA, [first])
        outcome = store.journal(ADA, [second])
        known = first.episodes[0].record.id
        assert outcome.ids == ((known,),)
        assert outcome.repeated == {known}
        assert outcome.turn_ids == (second.turn.id,)
        sources = record_of(store, known).sources
        assert [s.turn_id for s in sources] == [first.turn.id, second.turn.id]
        assert store.counts([ADA])["turns"] == 2
        assert store.counts([ADA])["memories"] == 1
        with store.snapshot() as snapshot:
            assert len(snapshot.tail_words(state_of(snapshot))) == 1

    def test_within_one_call_too(self, store: Store) -> None:
        """Repetitions inside a call are found as well."""
        outcome = store.journal(ADA, [entry("hello again"), entry("hello again")])
        assert outcome.ids[0] == outcome.ids[1]
        assert store.counts([ADA])["sources"] == 2

    def test_the_repetition_is_seen_by_time_and_session(self, store: Store) -> None:
        """A memory is found under every session and time it was said in."""
        write(store, "the same words", session="a", when=at(0))
        write(store, "the same words", session="b", when=at(5))
        for session in ("a", "b"):
            assert seen(store, criteria=everything(session_id=session)) == ["the same words"]
        assert seen(store, criteria=everything(since=at(4))) == ["the same words"]
        assert seen(store, criteria=everything(until=at(1))) == ["the same words"]
        assert seen(store, criteria=everything(since=at(1), until=at(4))) == []

    def test_a_repetition_changes_the_generation(self, store: Store) -> None:
        """Readers must notice its new times."""
        write(store, "the same words")
        with store.snapshot() as snapshot:
            before = state_of(snapshot).generation
        write(store, "the same words", when=at(1))
        with store.snapshot() as snapshot:
            assert state_of(snapshot).generation > before

    def test_partitions_do_not_share(self, store: Store) -> None:
        """What another user said is no repetition."""
        (mine,), (theirs,) = write(store, "same"), write(store, "same", key=BOB)
        assert mine != theirs
        assert store.counts([BOB])["memories"] == 1

    def test_what_is_not_active_is_not_repeated(self, store: Store) -> None:
        """After a newer version, the old words said again are a new memory."""
        (old,) = write(store, "I live in Bonn")
        store.supersede([ADA], old, entry("I live in Rome", when=at(1)), "moved", embed=False)
        (anew,) = write(store, "I live in Bonn", when=at(2))
        assert anew != old
        assert record_of(store, anew).state is State.ACTIVE

    def test_what_has_expired_is_not_repeated(self, store: Store) -> None:
        """Expired memories are never active, whatever their row says."""
        (old,) = write(store, "the code is 4711", expires_at=at(1))
        (anew,) = write(store, "the code is 4711", when=at(2), expires_at=at(3))
        assert anew != old
        now = everything(now=at(2), states=(State.ACTIVE,))
        assert seen(store, criteria=now) == ["the code is 4711"]

    def test_racing_repetitions_make_one(self, store: Store) -> None:
        """However many say it at the same moment."""
        ids = done(together(12, lambda _: write(store, "all at once")[0]))
        assert len(set(ids)) == 1
        assert store.counts([ADA])["turns"] == 12
        assert store.counts([ADA])["memories"] == 1


class StoreRequests(StoreSuite):
    """With a known `request.key` nothing is written and the first outcome is returned."""

    def test_the_first_outcome_comes_back(self, store: Store, reopen: Reopen) -> None:
        """From any handle, and marked as replayed."""
        first = store.journal(ADA, [entry("once"), entry("more")], request=Request("k", b"d"))
        before = store.counts([ADA])
        again = reopen().journal(ADA, [entry("once"), entry("more")], request=Request("k", b"d"))
        assert (again.ids, again.turn_ids) == (first.ids, first.turn_ids)
        assert again.replayed
        assert not first.replayed
        assert store.counts([ADA]) == before

    def test_another_body_is_an_error(self, store: Store) -> None:
        """And nothing of it is written."""
        store.journal(ADA, [entry("once")], request=Request("k", b"d"))
        before = store.counts([ADA])
        with pytest.raises(IdempotencyConflict):
            store.journal(ADA, [entry("other")], request=Request("k", b"e"))
        assert store.counts([ADA]) == before

    def test_keys_belong_to_their_partition(self, store: Store) -> None:
        """Another user's same key is another key."""
        store.journal(ADA, [entry("mine")], request=Request("k", b"d"))
        outcome = store.journal(BOB, [entry("theirs", key=BOB)], request=Request("k", b"e"))
        assert not outcome.replayed

    def test_racing_calls_write_once(self, store: Store) -> None:
        """All of them get the one outcome."""
        outcomes = done(
            together(
                12, lambda _: store.journal(ADA, [entry("at once")], request=Request("k", b"d"))
            )
        )
        assert len({o.ids for o in outcomes}) == 1
        assert sum(not o.replayed for o in outcomes) == 1
        assert store.counts([ADA])["turns"] == 1

    def test_a_failed_call_keeps_no_key(self, store: Store) -> None:
        """The key can be used again for what was not written."""
        twice = entry("twice")
        with pytest.raises(ScrubjayError):
            store.journal(ADA, [twice, twice], request=Request("k", b"d"))
        assert not store.journal(ADA, [entry("fine")], request=Request("k", b"e")).replayed

    def test_erasing_takes_the_record_along(self, store: Store) -> None:
        """Said again with the same key, it is written again."""
        outcome = store.journal(ADA, [entry("once")], request=Request("k", b"d"))
        store.erase([ADA], Target(memory_id=outcome.ids[0][0]), lambda *_: None, T0)
        assert not store.journal(ADA, [entry("once")], request=Request("k", b"d")).replayed


class StoreVersions(StoreSuite):
    """`supersede` writes the next version of the chain a memory belongs to."""

    def _next(self, text: str, day: float) -> Entry:
        return entry(text, when=at(day))

    def test_the_head_is_retired(self, store: Store) -> None:
        """It becomes superseded, with the reason and the time, and points to the new one."""
        (old_id,) = write(store, "I live in Bonn")
        new = store.supersede([ADA], old_id, self._next("I live in Rome", 1), "moved", embed=False)
        old = record_of(store, old_id)
        assert (old.state, old.superseded_by, old.reason) == (State.SUPERSEDED, new.id, "moved")
        assert old.retired_at == new.recorded_at == at(1)
        assert (new.state, new.version, new.supersedes) == (State.ACTIVE, 2, old_id)
        assert record_of(store, new.id) == new
        with store.snapshot() as snapshot:
            assert snapshot.hidden(state_of(snapshot)) == [old.seq]

    def test_an_older_id_means_its_chain(self, store: Store) -> None:
        """The current head is superseded, not the version that was named."""
        (first,) = write(store, "v1")
        store.supersede([ADA], first, self._next("v2", 1), "", embed=False)
        third = store.supersede([ADA], first, self._next("v3", 2), "", embed=False)
        assert third.version == 3
        with store.snapshot() as snapshot:
            chain = snapshot.chain(state_of(snapshot), record_of(store, first))
        assert [r.content for r in chain] == ["v1", "v2", "v3"]
        assert [r.state for r in chain] == [State.SUPERSEDED, State.SUPERSEDED, State.ACTIVE]

    def test_racing_calls_make_one_line(self, store: Store) -> None:
        """Each has one predecessor and one successor."""
        (first,) = write(store, "v0")
        outcomes = done(
            together(
                10,
                lambda n: store.supersede(
                    [ADA], first, self._next(f"version {n}", n + 1), "race", embed=False
                ),
            )
        )
        assert sorted(r.version for r in outcomes) == list(range(2, 12))
        with store.snapshot() as snapshot:
            chain = snapshot.chain(state_of(snapshot), record_of(store, first))
        assert [r.supersedes for r in chain] == [None, *[r.id for r in chain[:-1]]]
        assert [r.superseded_by for r in chain] == [*[r.id for r in chain[1:]], None]
        assert store.check() == []

    def test_only_inside_the_keys(self, store: Store) -> None:
        """NotFound for an id of another partition, and nothing changes."""
        (theirs,) = write(store, "bob's", key=BOB)
        for memory_id in (theirs, "no such id", "00000000-0000-7000-8000-000000000000"):
            with pytest.raises(NotFound):
                store.supersede([ADA], memory_id, self._next("mine now", 1), "", embed=False)
        assert seen(store, BOB) == ["bob's"]
        assert seen(store) == []

    def test_readers_notice(self, store: Store) -> None:
        """Superseding is more than an append: the epoch grows."""
        (first,) = write(store, "v1")
        with store.snapshot() as snapshot:
            before = state_of(snapshot)
        store.supersede([ADA], first, self._next("v2", 1), "", embed=True)
        with store.snapshot() as snapshot:
            after = state_of(snapshot)
        assert after.epoch > before.epoch
        assert after.generation > before.generation
        assert [job.kind for job in store.claim(5, 60, at(0))] == ["embed"]

    def test_a_version_may_say_what_another_memory_says(self, store: Store) -> None:
        """Two chains stay two, also where both come to the same words."""
        (one,), (two,) = write(store, "red"), write(store, "blue")
        new = store.supersede([ADA], one, self._next("blue", 1), "", embed=False)
        assert new.id != two
        back = store.supersede([ADA], one, self._next("red", 2), "", embed=False)
        assert (back.version, back.content) == (3, "red")
        assert store.check() == []

    def test_sealed_versions_are_hidden_too(self, store: Store) -> None:
        """Whether the words are in a tail or in a segment."""
        (first,) = write(store, "v1")
        seal_words(store)
        store.supersede([ADA], first, self._next("v2", 1), "", embed=False)
        with store.snapshot() as snapshot:
            assert snapshot.hidden(state_of(snapshot)) == seqs_of(store, [first])

    def test_private_partitions_have_their_own_chains(self, store: Store) -> None:
        """The new version lies where the old one did."""
        private = PartitionKey("default", "user:ada", "planner")
        (first,) = write(store, "v1", key=private)
        new = entry("v2", key=private, when=at(1))
        store.supersede([private, ADA], first, new, "", embed=False)
        assert seen(store, private) == ["v1", "v2"]
        assert seen(store) == []
