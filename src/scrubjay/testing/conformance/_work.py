"""Background work: jobs under leases, sealing, models and their vectors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scrubjay.errors import ModelMismatch
from scrubjay.index.segments import without
from scrubjay.index.words import pack
from scrubjay.model import PartitionKey
from scrubjay.ports import Store
from scrubjay.storage import NewSegment, Target
from scrubjay.testing.conformance._base import Reopen, StoreSuite, done, together
from scrubjay.testing.conformance.build import (
    ADA,
    BOB,
    T0,
    at,
    entry,
    seal_vectors,
    seal_words,
    seen,
    seqs_of,
    state_of,
    vector,
    vectors_segment,
    words_segment,
    write,
)


class StoreJobs(StoreSuite):
    """Claimed under a lease, completed, given back or dead, and always visible."""

    def test_a_job_comes_back_as_it_was(self, store: Store) -> None:
        """Kind, partition and payload."""
        payload = {"seqs": [1, 2], "name": "键", "none": None, "f": 0.5}
        store.enqueue(ADA, "work", payload)
        (job,) = store.claim(5, 60, at(0))
        assert (job.kind, job.partition, dict(job.payload)) == ("work", ADA, payload)
        assert job.attempts == 1
        assert job.last_error is None

    def test_by_priority_and_age(self, store: Store) -> None:
        """Up to the limit, the lower number first, then the older."""
        for number, priority in enumerate((5, 1, 5, 0, 1)):
            store.enqueue(ADA, "work", {"n": number}, priority)
        first = store.claim(3, 60, at(0))
        assert [j.payload["n"] for j in first] == [3, 1, 4]
        store.complete(first)
        second = store.claim(9, 60, at(0))
        assert [j.payload["n"] for j in second] == [0, 2]
        assert store.claim(9, 60, at(0)) == []

    def test_one_kind_a_claim(self, store: Store) -> None:
        """The kind of the job whose turn it is."""
        for kind in ("a", "b", "a", "b"):
            store.enqueue(ADA, kind, {})
        first = store.claim(9, 60, at(0))
        assert [j.kind for j in first] == ["a", "a"]
        store.complete(first)
        assert [j.kind for j in store.claim(9, 60, at(0))] == ["b", "b"]

    def test_a_partition_is_worked_on_by_one(self, store: Store, reopen: Reopen) -> None:
        """While a job of it is under a lease its others wait; those of other users do not."""
        for number in range(3):
            store.enqueue(ADA, "work", {"n": number})
        store.enqueue(BOB, "work", {"n": 3})
        other = reopen()
        (first,) = store.claim(1, 60, at(0))
        assert first.payload["n"] == 0
        assert [j.payload["n"] for j in other.claim(9, 60, at(0))] == [3]
        assert other.claim(9, 60, at(0)) == []
        store.complete([first])
        assert [j.payload["n"] for j in other.claim(9, 60, at(0))] == [1, 2]

    def test_a_lease_runs_out(self, store: Store, reopen: Reopen) -> None:
        """The job of a worker that died is ready again, and its attempts are counted."""
        store.enqueue(ADA, "work", {})
        store.claim(5, 60, at(0))
        other = reopen()
        assert other.claim(5, 60, at(seconds=59)) == []
        assert other.job_counts(at(seconds=59)).leased == 1
        assert other.job_counts(at(seconds=61)).ready == 1
        (job,) = other.claim(5, 60, at(seconds=61))
        assert job.attempts == 2

    def test_no_two_claims_hold_the_same(self, store: Store, reopen: Reopen) -> None:
        """However many claim at once."""
        keys = [PartitionKey("default", f"user:{n}") for n in range(8)]
        for number in range(40):
            store.enqueue(keys[number % 8], "work", {"n": number})
        handles = [store, reopen(), reopen()]
        held: list[int] = []

        def work(number: int) -> None:
            while len(held) < 40:
                jobs = handles[number % 3].claim(3, 60, at(0))
                held.extend(job.payload["n"] for job in jobs)
                handles[number % 3].complete(jobs)

        done(together(6, work))
        assert sorted(held) == list(range(40))
        for first in range(8):
            mine = [n for n in held if n % 8 == first]
            assert mine == sorted(mine), "the jobs of one user came out of order"

    def test_what_is_complete_leaves(self, store: Store) -> None:
        """And only that."""
        for number in range(3):
            store.enqueue(ADA, "work", {"n": number})
        jobs = store.claim(5, 60, at(0))
        store.complete(jobs[:2])
        store.complete([])
        assert store.counts([ADA])["jobs"] == 1
        store.complete(jobs)  # again: it may have been done by another worker
        assert store.counts([ADA])["jobs"] == 0

    def test_given_back_for_later(self, store: Store) -> None:
        """With the new payload and the reason, to be tried at its time."""
        store.enqueue(ADA, "work", {"n": 1})
        (job,) = store.claim(5, 60, at(0))
        store.fail(job, "the model is down", at(seconds=30), {"n": 2})
        assert store.claim(5, 60, at(seconds=29)) == []
        counts = store.job_counts(at(seconds=29))
        assert (counts.ready, counts.leased, counts.waiting, counts.dead) == (0, 0, 1, 0)
        assert dict(counts.kinds) == {"work": 1}
        (again,) = store.claim(5, 60, at(seconds=30))
        assert again.id == job.id
        assert dict(again.payload) == {"n": 2}
        assert again.last_error == "the model is down"
        assert again.attempts == 2

    def test_dead_jobs_stay_visible(self, store: Store) -> None:
        """Of their partition, with the reason, and are not claimed."""
        store.enqueue(ADA, "work", {"n": 1})
        (job,) = store.claim(5, 60, at(0))
        store.fail(job, "refused", None, {"n": 9})
        assert store.claim(5, 60, at(99)) == []
        (dead,) = store.dead_jobs([BOB, ADA])
        assert dead.last_error == "refused"
        assert dict(dead.payload) == {"n": 9}
        assert store.dead_jobs([BOB]) == []
        counts = store.job_counts(at(99))
        assert (counts.dead, dict(counts.kinds)) == (1, {})

    def test_revive(self, store: Store) -> None:
        """Every dead job is ready again, and every waiting one due now."""
        for retry in (None, at(99)):
            store.enqueue(ADA, "work", {})
            (job,) = store.claim(5, 60, at(0))
            store.fail(job, "no", retry, {})
        assert store.revive() == 2
        assert len(store.claim(5, 60, at(0))) == 2

    def test_a_claim_is_as_large_as_its_work(self, store: Store) -> None:
        """An `embed` job counts for each of its memories, and one job is always taken."""
        for number in range(4):
            write(store, *[f"thing {number} {n}" for n in range(10)], embed=True)
        sizes = []
        while jobs := store.claim(20, 60, at(0)):
            sizes.append([len(job.payload["seqs"]) for job in jobs])
            store.complete(jobs)
        assert sizes == [[10, 10], [10, 10]]
        write(store, *[f"more {n}" for n in range(30)], embed=True)
        assert len(store.claim(5, 60, at(0))) == 1

    def test_counts_up_to_a_time(self, store: Store) -> None:
        """All of them, or only those added by then."""
        store.enqueue(ADA, "work", {})
        assert store.job_counts(at(0)).ready == 1
        assert store.job_counts(at(0), datetime.now(UTC)).ready == 1
        assert store.job_counts(at(0), datetime.now(UTC) - timedelta(hours=1)).ready == 0

    def test_a_seal_job_is_added_once(self, store: Store) -> None:
        """A second is the same as the first, for each partition."""
        for _ in range(3):
            store.enqueue(ADA, "seal", {})
        store.enqueue(BOB, "seal", {})
        assert store.job_counts(at(0)).ready == 2

    def test_a_gone_jobs_outcome_is_no_error(self, store: Store) -> None:
        """Its partition may have been erased meanwhile."""
        write(store, "one")
        store.enqueue(ADA, "work", {})
        (job,) = store.claim(5, 60, at(0))
        store.erase([ADA], Target(whole=True), without, T0)
        store.fail(job, "too late", at(1), {})
        store.complete([job])
        assert store.job_counts(at(9)).kinds == {}

    def test_a_worker_that_lost_its_lease_changes_nothing(self, store: Store) -> None:
        """No two claims hold the same job, so the first one's failure is no longer its own."""
        store.enqueue(ADA, "work", {"n": 1})
        (lost,) = store.claim(5, 60, at(0))
        (held,) = store.claim(5, 60, at(seconds=61))
        store.fail(lost, "late", at(seconds=62), dict(lost.payload))
        assert store.claim(5, 60, at(seconds=63)) == []
        store.complete([held])
        assert store.job_counts(at(9)).kinds == {}


class StoreSegments(StoreSuite):
    """`seal` puts a segment in the place of what it was made from, or changes nothing."""

    def test_words(self, store: Store) -> None:
        """The blob as given; the tail is empty; the epoch grew."""
        seqs = seqs_of(store, write(store, "one", "two"))
        with store.snapshot() as snapshot:
            before = state_of(snapshot)
        segment = seal_words(store)
        with store.snapshot() as snapshot:
            after = state_of(snapshot)
            (info,) = snapshot.segments(after)
            assert (info.kind, info.model, info.count) == ("words", 0, 2)
            assert (info.min_seq, info.max_seq) == (seqs[0], seqs[-1])
            assert snapshot.segment_blob(after, info.sid) == segment.blob
            assert snapshot.tail_words(after) == []
        assert after.epoch > before.epoch
        assert store.check() == []

    def test_vectors(self, store: Store) -> None:
        """They leave the tail and can still be read whole."""
        model = store.add_model("m", 16, 0.0).number
        (seq,) = seqs_of(store, write(store, "one"))
        store.put_vectors(ADA, model, {seq: vector(1)})
        seal_vectors(store, model)
        with store.snapshot() as snapshot:
            state = state_of(snapshot)
            assert snapshot.tail_vectors(state, model) == []
            assert snapshot.vectors(state, model, [seq]) == {seq: vector(1)}
            assert [i.model for i in snapshot.segments(state)] == [model]

    def test_segments_are_ordered(self, store: Store) -> None:
        """By kind, model and lowest sequence."""
        one, two = (store.add_model(name, 16, 0.0).number for name in ("m1", "m2"))
        for text in ("first", "second"):
            (seq,) = seqs_of(store, write(store, text))
            for model in (two, one):
                store.put_vectors(ADA, model, {seq: vector(seq)})
                seal_vectors(store, model)
            seal_words(store)
        with store.snapshot() as snapshot:
            found = snapshot.segments(state_of(snapshot))
        order = [(i.kind, i.model, i.min_seq) for i in found]
        assert len(order) == 6
        assert order == sorted(order)

    def test_merging(self, store: Store) -> None:
        """`replaces` go, in one step with what takes their place."""
        for text in ("one", "two"):
            write(store, text)
            seal_words(store)
        with store.snapshot() as snapshot:
            infos = snapshot.segments(state_of(snapshot))
        replaced = tuple(i.sid for i in infos)
        merged = NewSegment("words", 0, 2, 1, 2, b"merged", replaces=replaced)
        assert store.seal(ADA, merged)
        with store.snapshot() as snapshot:
            (info,) = snapshot.segments(state_of(snapshot))
            assert snapshot.segment_blob(state_of(snapshot), info.sid) == b"merged"
        assert not store.seal(ADA, merged)

    def test_a_tail_that_is_gone(self, store: Store) -> None:
        """False, with nothing changed: of two sealers one wins, and erasing wins over both."""
        write(store, "one", "two")
        with store.snapshot() as snapshot:
            segment = words_segment(snapshot)
        assert store.seal(ADA, segment)
        assert not store.seal(ADA, segment)
        with store.snapshot() as snapshot:
            assert len(snapshot.segments(state_of(snapshot))) == 1
        (gone,) = write(store, "three")
        write(store, "four")
        with store.snapshot() as snapshot:
            late = words_segment(snapshot)
        store.erase([ADA], Target(memory_id=gone), without, T0)
        before = store.counts([ADA])
        assert not store.seal(ADA, late)
        assert store.counts([ADA]) == before
        assert store.check() == []

    def test_vectors_that_are_gone(self, store: Store) -> None:
        """The same for vectors, also for one that was written again meanwhile."""
        model = store.add_model("m", 16, 0.0).number
        one, two = write(store, "one", "two")
        a, b = seqs_of(store, [one, two])
        store.put_vectors(ADA, model, {a: vector(1), b: vector(2)})
        with store.snapshot() as snapshot:
            late = vectors_segment(snapshot, model)
        store.put_vectors(ADA, model, {a: vector(3)})
        assert not store.seal(ADA, late)
        with store.snapshot() as snapshot:
            later = vectors_segment(snapshot, model)
        store.erase([ADA], Target(memory_id=two), without, T0)
        assert not store.seal(ADA, later)
        with store.snapshot() as snapshot:
            assert [r[1] for r in snapshot.tail_vectors(state_of(snapshot), model)] == [a]

    def test_another_partitions_rows(self, store: Store) -> None:
        """The same numbers elsewhere are not these."""
        write(store, "one")
        with store.snapshot() as snapshot:
            segment = words_segment(snapshot)
        assert not store.seal(BOB, segment)
        assert seen(store) == ["one"]

    def test_racing_sealers(self, store: Store) -> None:
        """One wins, and no word is twice in the index."""
        write(store, *[f"thing {n}" for n in range(20)])
        with store.snapshot() as snapshot:
            segment = words_segment(snapshot)
        assert sum(done(together(8, lambda _: store.seal(ADA, segment)))) == 1
        assert store.check() == []

    def test_rebuilding(self, store: Store) -> None:
        """Words and their segments are thrown away and written anew from the content."""
        write(store, "one fish", "two fish", session="s")
        write(store, "red fish")
        with store.snapshot() as snapshot:
            first = snapshot.tail_words(state_of(snapshot))
        seal_words(store)
        assert store.rebuild_words(ADA, pack) == 3
        with store.snapshot() as snapshot:
            state = state_of(snapshot)
            assert snapshot.tail_words(state) == first
            assert [i for i in snapshot.segments(state) if i.kind == "words"] == []
        assert store.rebuild_words(BOB, pack) == 0

    def test_rebuilding_keeps_who_follows_whom(self, store: Store) -> None:
        """Repetitions, versions, silence between sessions: what was linked stays linked."""
        a = write(store, "in session a", session="a")
        write(store, "in session b", "in session a", "after the repetition", session="b")
        store.journal(ADA, [entry("no session 1"), entry("no session 2")], embed=False)
        store.supersede([ADA], a[0], entry("a anew", session="a", when=at(1)), "", embed=False)
        write(store, "a goes on", session="a")
        with store.snapshot() as snapshot:
            before = {r.seq: r.previous for r in snapshot.tail_words(state_of(snapshot))}
        store.rebuild_words(ADA, pack)
        with store.snapshot() as snapshot:
            after = {r.seq: r.previous for r in snapshot.tail_words(state_of(snapshot))}
        assert after == before


class StoreModels(StoreSuite):
    """Models by name, and the vectors written for them."""

    def test_a_known_one_keeps_its_number_and_baseline(self, store: Store, reopen: Reopen) -> None:
        """From any handle."""
        first = store.add_model("m", 384, 0.8)
        again = reopen().add_model("m", 384, 0.1)
        assert again == first
        assert (first.name, first.dimension, first.baseline) == ("m", 384, 0.8)
        assert first.number > 0

    def test_another_dimension(self, store: Store) -> None:
        """ModelMismatch, and the model stays as it was."""
        first = store.add_model("m", 384, 0.8)
        with pytest.raises(ModelMismatch):
            store.add_model("m", 768, 0.8)
        assert store.models() == [first]

    def test_oldest_first(self, store: Store) -> None:
        """In the order they came."""
        names = ["b", "a", "c"]
        for name in names:
            store.add_model(name, 8, 0.0)
        assert [m.name for m in store.models()] == names

    def test_writing_again_replaces(self, store: Store) -> None:
        """One vector for each sequence and model; one that is gone is left out."""
        model = store.add_model("m", 16, 0.0).number
        (seq,) = seqs_of(store, write(store, "one"))
        assert store.put_vectors(ADA, model, {seq: vector(1), 99: vector(9)}) == 1
        with store.snapshot() as snapshot:
            before = state_of(snapshot)
        assert store.put_vectors(ADA, model, {seq: vector(2)}) == 1
        with store.snapshot() as snapshot:
            after = state_of(snapshot)
            assert snapshot.vectors(after, model, [seq]) == {seq: vector(2)}
        assert store.counts([ADA])["vectors"] == 1
        assert after.generation > before.generation

    def test_what_is_missing(self, store: Store) -> None:
        """By partition, up to a limit, and counted."""
        model = store.add_model("m", 16, 0.0).number
        mine = seqs_of(store, write(store, "one", "two", "three"))
        theirs = seqs_of(store, write(store, "four", key=BOB), BOB)
        assert store.count_missing(model) == 4
        assert store.missing_vectors(ADA, model, 0, 10) == mine
        assert store.missing_vectors(ADA, model, 0, 2) == mine[:2]
        assert store.missing_vectors(ADA, model, mine[0], 10) == mine[1:]
        assert store.missing_vectors(BOB, model, 0, 10) == theirs
        store.put_vectors(ADA, model, {s: vector(s) for s in mine})
        assert store.missing_vectors(ADA, model, 0, 10) == []
        assert store.missing_vectors(BOB, model, 0, 10) == theirs
        assert store.count_missing(model) == 1

    def test_two_models_side_by_side(self, store: Store) -> None:
        """Dropping one leaves the other."""
        one, two = (store.add_model(name, 16, 0.0).number for name in ("m1", "m2"))
        (seq,) = seqs_of(store, write(store, "one"))
        store.put_vectors(ADA, one, {seq: vector(1)})
        store.put_vectors(ADA, two, {seq: vector(2)})
        seal_vectors(store, one)
        assert store.drop_model(one) == 1
        assert [m.number for m in store.models()] == [two]
        with store.snapshot() as snapshot:
            state = state_of(snapshot)
            assert snapshot.segments(state) == []
            assert snapshot.models() == [two]
            assert snapshot.vectors(state, two, [seq]) == {seq: vector(2)}
            assert snapshot.vectors(state, one, [seq]) == {}

    def test_texts(self, store: Store) -> None:
        """Of those sequences that still exist."""
        one, two = write(store, "one", "two")
        a, b = seqs_of(store, [one, two])
        store.erase([ADA], Target(memory_id=one), without, T0)
        assert store.texts(ADA, [a, b, 99]) == {b: "two"}
        assert store.texts(ADA, []) == {}
