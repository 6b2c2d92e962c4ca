"""Erasing: everything a target names, in one transaction, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrubjay.errors import NotFound
from scrubjay.index import segments as sealed
from scrubjay.index.segments import without
from scrubjay.model import PartitionKey
from scrubjay.ports import Store
from scrubjay.storage import Rest, Target
from scrubjay.testing.conformance._base import Reopen, StoreSuite
from scrubjay.testing.conformance.build import (
    ADA,
    BOB,
    T0,
    at,
    entry,
    everything,
    seal_vectors,
    seal_words,
    seen,
    seqs_of,
    state_of,
    vector,
    words_segment,
    write,
)

PLANTED = "Xylophonist"


class StoreErase(StoreSuite):
    """Remove everything a target names from these partitions, in one transaction."""

    def test_a_memory_and_all_that_hangs_on_it(self, store: Store) -> None:
        """Sources, vectors, words and jobs go with it; the rest stays."""
        model = store.add_model("m", 16, 0.0).number
        gone, kept = write(store, "to be gone", "to be kept", embed=True)
        gone_seq, kept_seq = seqs_of(store, [gone, kept])
        store.put_vectors(ADA, model, {gone_seq: vector(1), kept_seq: vector(2)})
        erasure = store.erase([ADA], Target(memory_id=gone), without, T0)
        assert erasure.memory_ids == (gone,)
        assert seen(store) == ["to be kept"]
        counts = store.counts([ADA])
        for table in ("turns", "memories", "sources", "vectors", "words"):
            assert counts[table] == 1, table
        assert counts["tombstones"] >= 1
        (job,) = store.claim(9, 60, at(0))
        assert list(job.payload["seqs"]) == [kept_seq]
        assert store.check() == []
        with store.snapshot() as snapshot:
            state = state_of(snapshot)
            assert [r.seq for r in snapshot.tail_words(state)] == [kept_seq]
            assert snapshot.locate([ADA], gone) is None

    def test_a_job_with_nothing_left_goes(self, store: Store) -> None:
        """No job waits for a memory that is gone."""
        (gone,) = write(store, "to be gone", embed=True)
        store.erase([ADA], Target(memory_id=gone), without, T0)
        assert store.claim(9, 60, at(0)) == []

    def test_every_version(self, store: Store) -> None:
        """Whichever version is named, all go."""
        for named in (0, 1, 2):
            (first,) = write(store, f"v1 of {named}")
            ids = [first]
            for n in (2, 3):
                new = entry(f"v{n} of {named}", when=at(n))
                ids.append(store.supersede([ADA], first, new, "", embed=False).id)
            erasure = store.erase([ADA], Target(memory_id=ids[named]), without, T0)
            assert set(erasure.memory_ids) == set(ids)
            assert seen(store) == []
        assert store.check() == []

    @pytest.mark.parametrize("named", [0, 1])
    def test_every_version_when_a_turn_is_named(self, store: Store, named: int) -> None:
        """No version outlives another, whatever names it."""
        said = entry("v1")
        store.journal(ADA, [said])
        new = entry("v2", when=at(1))
        store.supersede([ADA], said.episodes[0].record.id, new, "", embed=False)
        turn = (said, new)[named].turn.id
        store.erase([ADA], Target(turn_id=turn), without, T0)
        assert seen(store) == []
        assert store.check() == []

    def test_the_span_in_the_turn_is_overwritten(self, store: Store) -> None:
        """What else the turn says stays, at its place."""
        said = entry("first part.", "SECOND PART.", "third part.")
        store.journal(ADA, [said])
        store.erase([ADA], Target(memory_id=said.episodes[1].record.id), without, T0)
        with store.snapshot() as snapshot:
            (turn,) = snapshot.turns(state_of(snapshot))
        assert turn.content.startswith("first part.")
        assert turn.content.endswith("third part.")
        assert "SECOND" not in turn.content
        assert "PART" not in turn.content
        assert len(turn.content) == len(said.turn.content)
        assert seen(store) == ["first part.", "third part."]

    def test_a_turn_with_no_memory_left_goes(self, store: Store) -> None:
        """After the last of its memories."""
        said = entry("first part.", "second part.")
        store.journal(ADA, [said])
        for new in said.episodes:
            store.erase([ADA], Target(memory_id=new.record.id), without, T0)
        assert store.counts([ADA])["turns"] == 0

    def test_a_span_said_twice_in_one_turn(self, store: Store) -> None:
        """Both places are overwritten."""
        said = entry("echo", "something else", "echo")
        store.journal(ADA, [said])
        store.erase([ADA], Target(memory_id=said.episodes[0].record.id), without, T0)
        with store.snapshot() as snapshot:
            (turn,) = snapshot.turns(state_of(snapshot))
        assert "echo" not in turn.content
        assert "something else" in turn.content

    def test_every_turn_that_said_it(self, store: Store) -> None:
        """A repeated memory is overwritten in each of its turns."""
        (memory_id,) = write(store, f"I am a {PLANTED}")
        write(store, f"I am a {PLANTED}", when=at(1))
        store.erase([ADA], Target(memory_id=memory_id), without, T0)
        assert store.counts([ADA])["turns"] == 0

    def test_a_turn(self, store: Store) -> None:
        """The turn goes, and what only it said."""
        said, other = entry("only here", "said elsewhere too"), entry("said elsewhere too")
        store.journal(ADA, [said])
        store.journal(ADA, [other])
        store.erase([ADA], Target(turn_id=said.turn.id), without, T0)
        assert seen(store) == ["said elsewhere too"]
        with store.snapshot() as snapshot:
            assert [t.id for t in snapshot.turns(state_of(snapshot))] == [other.turn.id]
        assert store.check() == []

    def test_a_session(self, store: Store) -> None:
        """All that was said in it, and the traces of it on what was said elsewhere too."""
        write(store, "only in a", "in both", session="a")
        write(store, "in both", "only in b", session="b")
        store.erase([ADA], Target(session_id="a"), without, T0)
        assert seen(store) == ["in both", "only in b"]
        assert seen(store, criteria=everything(session_id="a")) == []
        assert seen(store, criteria=everything(session_id="b")) == ["in both", "only in b"]
        assert store.check() == []

    def test_what_is_older(self, store: Store) -> None:
        """What was said before a time, half-open, and only then."""
        for day in range(4):
            write(store, f"day {day}", "every day", when=at(day))
        store.erase([ADA], Target(before=at(2)), without, T0)
        assert seen(store) == ["every day", "day 2", "day 3"]
        assert seen(store, criteria=everything(until=at(2))) == []
        assert store.check() == []

    def test_all_of_it(self, store: Store) -> None:
        """Every row of these partitions and of no other; no tombstone names what was there."""
        planner = PartitionKey("default", "user:ada", "planner")
        for key in (ADA, planner, BOB):
            write(store, "one", "two", key=key, embed=True, session="s")
            seal_words(store, key)
        store.enqueue(ADA, "work", {"n": 1})
        store.erase([ADA, planner], Target(whole=True), without, T0)
        assert not any(store.counts([ADA, planner]).values())
        assert seen(store, BOB) == ["one", "two"]
        assert {job.partition for job in store.claim(9, 60, at(0))} == {BOB}
        assert store.check() == []

    def test_segments_are_rewritten(self, store: Store) -> None:
        """Through `rewrite`, words and vectors alike; readers get a new number and epoch."""
        model = store.add_model("m", 16, 0.0).number
        ids = write(store, "one one", "two two", "three three")
        seqs = seqs_of(store, ids)
        store.put_vectors(ADA, model, {s: vector(s) for s in seqs})
        seal_words(store)
        seal_vectors(store, model)
        with store.snapshot() as snapshot:
            before, old = state_of(snapshot), snapshot.segments(state_of(snapshot))
        store.erase([ADA], Target(memory_id=ids[1]), without, T0)
        rest = [seqs[0], seqs[2]]
        with store.snapshot() as snapshot:
            after, new = state_of(snapshot), snapshot.segments(state_of(snapshot))
            blobs = {i.kind: snapshot.segment_blob(after, i.sid) for i in new}
        assert not {i.sid for i in old} & {i.sid for i in new}
        assert after.epoch > before.epoch
        assert sealed.read_words(blobs["words"]).seqs.tolist() == rest
        assert sorted(sealed.read_vectors(blobs["vectors"]).seqs.tolist()) == rest
        assert {info.count for info in new} == {2}

    def test_a_segment_with_nothing_left_goes(self, store: Store) -> None:
        """When `rewrite` returns None."""
        (memory_id,) = write(store, "alone")
        seal_words(store)
        store.erase([ADA], Target(memory_id=memory_id), without, T0)
        with store.snapshot() as snapshot:
            assert snapshot.segments(state_of(snapshot)) == []

    def test_nothing_changes_when_the_rewriting_fails(self, store: Store) -> None:
        """One transaction."""
        ids = write(store, "one", "two")
        seal_words(store)
        before = store.counts([ADA])

        def broken(*_: object) -> Rest | None:
            raise RuntimeError("a segment that cannot be read")

        with pytest.raises(RuntimeError):
            store.erase([ADA], Target(memory_id=ids[0]), broken, T0)
        assert store.counts([ADA]) == before
        assert seen(store) == ["one", "two"]

    def test_unknown_targets(self, store: Store) -> None:
        """NotFound for a memory or turn that is not in these partitions."""
        theirs = entry("bob's", key=BOB)
        store.journal(BOB, [theirs])
        unknown = "00000000-0000-7000-8000-000000000000"
        for memory_id in (theirs.episodes[0].record.id, unknown, "no id"):
            with pytest.raises(NotFound):
                store.erase([ADA], Target(memory_id=memory_id), without, T0)
        for turn_id in (theirs.turn.id, unknown, "no id"):
            with pytest.raises(NotFound):
                store.erase([ADA], Target(turn_id=turn_id), without, T0)
        assert seen(store, BOB) == ["bob's"]

    def test_readers_of_other_handles_notice(self, store: Store, reopen: Reopen) -> None:
        """At once, and by generation and epoch."""
        ids = write(store, "one", "two")
        other = reopen()
        with other.snapshot() as snapshot:
            before = state_of(snapshot)
        store.erase([ADA], Target(memory_id=ids[0]), without, T0)
        with other.snapshot() as snapshot:
            after = state_of(snapshot)
        assert after.generation > before.generation
        assert after.epoch > before.epoch
        assert seen(other) == ["two"]

    def test_a_late_vector_finds_nothing(self, store: Store) -> None:
        """Work that began before the erasure brings nothing back."""
        model = store.add_model("m", 16, 0.0).number
        first, second = write(store, "one", "two")
        gone, kept = seqs_of(store, [first, second])
        store.erase([ADA], Target(memory_id=first), without, T0)
        assert store.put_vectors(ADA, model, {gone: vector(1), kept: vector(2)}) == 1
        assert store.check() == []

    def test_late_work_finds_nothing_in_a_new_beginning(self, store: Store) -> None:
        """Nor when the user has come back: neither a vector nor a segment fits by chance."""
        model = store.add_model("m", 16, 0.0).number
        seqs = seqs_of(store, write(store, "one", "two"))
        with store.snapshot() as snapshot:
            late = words_segment(snapshot)
        store.erase([ADA], Target(whole=True), without, T0)
        write(store, "three", "four")
        assert store.put_vectors(ADA, model, {s: vector(s) for s in seqs}) == 0
        assert not store.seal(ADA, late)
        with store.snapshot() as snapshot:
            assert snapshot.segments(state_of(snapshot)) == []

    @pytest.mark.parametrize("is_sealed", [False, True])
    @pytest.mark.parametrize("what", ["memory", "turn", "session", "before", "whole"])
    def test_no_byte_is_left(
        self, store: Store, stored_bytes: Callable[[], bytes], what: str, is_sealed: bool
    ) -> None:
        """After the commit no file of the store holds the content."""
        filler = [entry(f"filler {n} " + "text " * 40, session="keep") for n in range(60)]
        secret = entry(
            f"my name is {PLANTED}", session="gone", when=at(-1), metadata={"by": PLANTED}
        )
        store.journal(ADA, [*filler[:30], secret, *filler[30:]], embed=False)
        if is_sealed:
            seal_words(store)
        assert PLANTED.encode() in stored_bytes()
        targets = {
            "memory": Target(memory_id=secret.episodes[0].record.id),
            "turn": Target(turn_id=secret.turn.id),
            "session": Target(session_id="gone"),
            "before": Target(before=at(0)),
            "whole": Target(whole=True),
        }
        store.erase([ADA], targets[what], without, T0)
        assert PLANTED.encode() not in stored_bytes()
