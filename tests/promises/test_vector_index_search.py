"""A partition too large for RAM is searched as any other: the VectorIndex is only a copy.

On PostgreSQL with pgvector as the settings open it, on the embedded store with the exact fake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from promise_helpers import HOWS, NAME, USER, Open, assert_gone, flushed, forget, plant

from places import Places
from scrubjay import Memory, Result, errors
from scrubjay.index import compact, large
from scrubjay.index.cache import IndexCache
from scrubjay.index.large import LargePartitions
from scrubjay.model import PartitionKey
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder, InMemoryVectorIndex
from scrubjay.testing.faults import Fault, FaultyStore
from scrubjay.worker import NoWorker, Worker
from scrubjay.write.embed import embed_jobs

KEY = PartitionKey("default", f"user:{USER}")
LEAST = 50
COUNT = 700
Over = Callable[..., Memory]


def statement(number: int) -> str:
    return (
        f"kq{number:04d}z about topic{number % 23} and colour{number % 7} "
        f"seen with shape{number % 101} on day{number // 9}"
    )


def say(memory: Memory, numbers: Sequence[int] = range(COUNT), **options: Any) -> None:
    options = {"user_id": USER, "session_id": "talk", **options}
    memory.add([{"role": "user", "content": statement(n)} for n in numbers], **options)


def settle(memory: Memory, key: PartitionKey = KEY) -> None:
    """All vectors are written, copied by however many jobs that takes, and sealed."""
    store = memory._parts.store
    flushed(memory)
    while store.job_counts(datetime.now(UTC)).kinds:
        flushed(memory)
    compact.seal(store, key, everything=True)


def index_of(memory: Memory) -> Any:
    assert memory._parts.large is not None
    return memory._parts.large._vectors


def held(memory: Memory, key: PartitionKey = KEY) -> list[int]:
    found: list[int] = index_of(memory).seqs(key, 1).tolist()
    return found


def outside(memory: Memory, key: PartitionKey = KEY) -> int:
    """How many vectors the partition in RAM leaves to the VectorIndex, 0 when it has all."""
    found = memory._parts.cache._slots[key, 1].partition
    assert found is not None
    assert (found.outside is None) == (len(found._vectors) > 0)
    return 0 if found.outside is None else len(found.outside)


@pytest.fixture
def over(place: Places, open_memory: Open) -> Over:
    """Opens a memory over a VectorIndex; on SQLite over `index`, or its own, wrapped by `wrap`."""
    fakes: dict[str, InMemoryVectorIndex] = {}

    def open_(
        least: int = LEAST, *, where: str = "store", wrap: Any = None, background: bool = True
    ) -> Memory:
        chosen: dict[str, Any] = {"background": background, "pool_size": 3}
        if place.kind == "postgres":
            chosen |= {"vector_index": "pgvector", "vector_index_from": least}
        memory = open_memory(where, embedder=HashEmbedder(), settings=load(**chosen))
        parts = memory._parts
        index: Any = fakes.setdefault(where, InMemoryVectorIndex())
        if parts.large is not None:
            index = parts.large._vectors
        kept = LargePartitions(parts.store, index if wrap is None else wrap(index), least)
        memory._parts = replace(
            parts,
            large=kept,
            cache=IndexCache(parts.store, 1 << 28, kept),
            background=Worker(parts.store, parts.embedding, kept)
            if background
            else NoWorker(parts.store),
        )
        return memory

    return open_


def scores(found: Result) -> dict[str, tuple[float, float]]:
    assert not found.notes
    return {hit.content: (hit.relevance, hit.score) for hit in found}


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"query": statement(123)},
    {"query": "topic5 and colour3", "top_k": 25},
    {"query": "shape17", "top_k": 40, "policy": {"vector_weight": 1.0}},
    {"query": "colour2 with shape9", "filters": {"even": True}, "top_k": 30},
    {"query": "topic1", "session_id": "other", "top_k": 30},
    {"query": "seen on day30", "include_history": True, "top_k": 20},
    {"query": "nothing of that kind at all"},
)


def test_the_same_relevance_in_ram_and_outside(open_memory: Open, over: Over) -> None:
    """Whoever is among the best has the relevance it has in RAM, with every narrowing."""
    far = over()
    say(far, range(0, COUNT, 2), metadata={"even": True})
    say(far, range(1, COUNT, 2), session_id="other")
    ids = [record.id for record in far.list(user_id=USER, limit=40)]
    for memory_id in ids[:20]:
        far.update(memory_id, f"corrected {memory_id} about topic3", user_id=USER)
    settle(far)
    near = open_memory(embedder=HashEmbedder())
    for question in QUESTIONS:
        expected = scores(near.search(user_id=USER, **question))
        found = scores(far.search(user_id=USER, **question))
        assert list(found) == list(expected), question
        for content, (relevance, score) in expected.items():
            assert found[content] == pytest.approx((relevance, score), abs=1e-3), question
    assert outside(far) == COUNT + 20
    assert not outside(near)
    say(far, range(COUNT, COUNT + 20))  # a tail beside what is outside
    flushed(far)
    query = statement(COUNT + 7)
    assert scores(far.search(query, user_id=USER)) == scores(near.search(query, user_id=USER))


def test_a_partition_that_grows_is_brought_over(
    over: Over, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches, by jobs that let others go first; until then RAM answers."""
    monkeypatch.setattr(large, "_BATCH", 40)
    monkeypatch.setattr(large, "_AT_ONCE", 100)
    small = over(10_000)
    say(small, range(300))
    settle(small)
    assert held(small) == []
    small.search(statement(1), user_id=USER)
    assert not outside(small)
    built: list[PartitionKey] = []
    memory = over(wrap=lambda index: Watching(index, built=built))
    found = memory.search(statement(1), user_id=USER)
    assert not found.notes
    assert not outside(memory)
    settle(memory)
    assert held(memory) == list(range(1, 301))
    assert built == [KEY]
    say(memory, range(300, 310))
    settle(memory)
    assert memory.search(statement(1), user_id=USER)[0].content == statement(1)
    assert outside(memory) == 310
    assert memory.doctor().sound


class Watching:
    """A VectorIndex that writes down what is built, and does something before it puts."""

    def __init__(
        self,
        index: Any,
        *,
        built: list[PartitionKey] | None = None,
        before_put: Callable[[], object] = lambda: None,
    ) -> None:
        self._index = index
        self._built = [] if built is None else built
        self._before_put = before_put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def build(self, partition: PartitionKey) -> int:
        self._built.append(partition)
        return int(self._index.build(partition))

    def put(self, *args: Any) -> None:
        self._before_put()
        self._index.put(*args)


class Crash(BaseException):
    """The process died here."""


def test_a_crash_between_store_and_index_loses_nothing(over: Over) -> None:
    """The job is completed after both, so that it runs again."""

    def crash() -> None:
        raise Crash

    memory = over(wrap=lambda index: Watching(index, before_put=crash), background=False)
    say(memory, range(60))
    parts, now = memory._parts, datetime.now(UTC)
    jobs = parts.store.claim(100, 20, now)
    with pytest.raises(Crash):
        embed_jobs(parts.store, parts.embedding, jobs, now, parts.large)
    assert parts.store.counts([KEY])["vectors"] == 60
    assert held(memory) == []
    again = over(background=False)
    parts, later = again._parts, now + timedelta(seconds=30)
    jobs = parts.store.claim(100, 20, later)
    assert [job.kind for job in jobs] == ["embed"]
    embed_jobs(parts.store, parts.embedding, jobs, later, parts.large)
    assert held(again) == list(range(1, 61))


def test_an_index_that_fails_is_said(over: Over) -> None:
    """Words alone, with a note, for all of the search; and nobody else's memories."""
    down = errors.StoreUnavailable("the server went for lunch; try again")
    memory = over(wrap=lambda index: FaultyStore(index, faults=[Fault("search", 1, down)]))
    say(memory, range(200))
    say(memory, [500], user_id="bob")
    memory.add("kq0003z is what only this agent knows", user_id=USER, agent_id="planner",
               visibility="private")  # fmt: skip
    settle(memory)
    found = memory.search("kq0003z", user_id=USER, agent_id="planner", top_k=20, explain=True)
    assert found.notes == (f"searched by words alone: {down}",)
    assert {hit.content for hit in found} >= {
        statement(3), "kq0003z is what only this agent knows"
    }  # fmt: skip
    assert all(hit.explanation is not None and not hit.explanation["meaning"] for hit in found)
    assert all(hit.memory.scope.user_id == USER for hit in found)
    found = memory.search("kq0003z", user_id=USER, agent_id="planner")
    assert not found.notes
    assert outside(memory)


def test_an_index_that_lacks_vectors_is_said_and_mended(over: Over) -> None:
    """An answer shorter than it should be is none; a job brings what is lacking."""
    memory = over()
    say(memory, range(150))
    settle(memory)
    assert not memory.search(statement(5), user_id=USER).notes
    memory._parts.large._asked.clear()  # type: ignore[union-attr]
    index_of(memory).remove(KEY, range(1, 101))
    found = memory.search(statement(5), user_id=USER)
    assert "lacks vectors" in found.notes[0]
    assert found[0].content == statement(5)
    flushed(memory)
    assert held(memory) == list(range(1, 151))
    assert not memory.search(statement(5), user_id=USER).notes


def test_doctor_finds_and_repairs(over: Over) -> None:
    """What is lacking, what is gone, and what belongs to nobody."""
    memory = over()
    say(memory, range(80))
    settle(memory)
    assert memory.doctor().sound
    index, vector = index_of(memory), np.full(256, 0.0625, np.float16).tobytes()
    index.remove(KEY, [3, 4, 5])
    index.put(KEY, 1, {1_000: vector})
    index.put(PartitionKey("default", "user:nobody"), 1, {1: vector})
    health = memory.doctor()
    assert "lacks 3 vectors" in health.problems[0]
    assert "has 1 that are gone" in health.problems[0]
    health = memory.doctor(repair=True)
    assert health.sound
    assert health.repaired
    assert held(memory) == list(range(1, 81))
    assert held(memory, PartitionKey("default", "user:nobody")) == []


@pytest.mark.parametrize("how", HOWS)
def test_forgetting_reaches_the_index(over: Over, how: str, tmp_path: Path) -> None:
    """Its vectors go with the rest, and the probe has looked."""
    memory = over(10)
    receipt = plant(memory)
    settle(memory)
    assert len(held(memory)) == 61
    with memory._parts.store.snapshot() as snapshot:
        record = snapshot.locate([KEY], receipt.ids[0])
    assert record is not None
    memory.search(NAME, user_id=USER)
    erasure = forget(memory, how, receipt)
    assert erasure.probe["vector_index"] == 0
    assert record.seq not in held(memory)
    assert len(held(memory)) == (0 if how == "user" else 60)
    assert_gone(memory, receipt, tmp_path)


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_forgotten_while_it_is_put_does_not_stay(over: Over, whole: bool) -> None:
    """The Store is looked at again after each put."""
    memory = over(10, background=False)
    say(memory, range(20))
    ids = [record.id for record in memory.list(user_id=USER)]

    def forget_now() -> None:
        memory.forget(user_id=USER, **({} if whole else {"memory_id": ids[0]}))

    parts = memory._parts
    kept = LargePartitions(
        parts.store, Watching(index_of(memory), before_put=forget_now), 10
    )  # fmt: skip
    now = datetime.now(UTC)
    embed_jobs(parts.store, parts.embedding, parts.store.claim(100, 20, now), now, kept)
    assert len(held(memory)) == (0 if whole else 19)


def test_reindex_and_restore_rebuild_it(over: Over, tmp_path: Path) -> None:
    """With another secret's partitions and with those said after the backup."""
    memory = over()
    say(memory, range(90))
    settle(memory)
    memory.backup(tmp_path / "copy")
    say(memory, range(90, 120))
    settle(memory)
    index_of(memory).put(KEY, 1, {1: np.zeros(256, np.float16).tobytes()})  # nobody's vector
    memory.reindex()
    assert held(memory) == list(range(1, 121))
    alone = {"vector_weight": 1.0, "before_weight": 0.0, "after_weight": 0.0}
    found = memory.search(statement(0), user_id=USER, policy=alone)
    assert (found[0].content, found.notes) == (statement(0), ())
    assert found[0].relevance > 0.95
    memory.restore(tmp_path / "copy")
    flushed(memory)
    assert held(memory) == list(range(1, 91))
    other = over(where="other")
    say(other, range(200, 300), user_id="bob")
    settle(other, PartitionKey("default", "user:bob"))
    other.restore(tmp_path / "copy")
    flushed(other)
    assert held(other) == list(range(1, 91))
    assert held(other, PartitionKey("default", "user:bob")) == []
    assert other.doctor().sound
    assert other.search(statement(7), user_id=USER)[0].content == statement(7)


def test_scopes_stay_apart(over: Over) -> None:
    """Each asks the VectorIndex for its own partitions."""
    memory = over()
    say(memory, range(100))
    say(memory, range(100, 200), user_id="bob")
    say(memory, range(200, 300), agent_id="planner", visibility="private")
    bob, planner = PartitionKey("default", "user:bob"), replace(KEY, owner="planner")
    for key in (KEY, bob, planner):
        settle(memory, key)
    alone = {"vector_weight": 1.0}
    for options, numbers in (
        ({"user_id": USER}, range(100)),
        ({"user_id": "bob"}, range(100, 200)),
        ({"user_id": USER, "agent_id": "planner"}, (*range(100), *range(200, 300))),
    ):
        found = memory.search(statement(150), top_k=300, policy=alone, **options)
        assert not found.notes
        assert {hit.content for hit in found} <= {statement(n) for n in numbers}


def test_more_searches_than_connections(over: Over) -> None:
    """A search holds a connection of the store's while it asks the index, and none waits long."""
    memory = over()
    users = [f"user{n}" for n in range(8)]
    for user in users:
        say(memory, range(60), user_id=user)
    for user in users:
        settle(memory, PartitionKey("default", f"user:{user}"))
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda n: memory.search(statement(n), user_id=users[n % 8]), range(60))]
    assert [each[0].content for each in found] == [statement(n) for n in range(60)]
    assert not any(each.notes for each in found)


def test_a_directory_has_no_pgvector(tmp_path: Path) -> None:
    with pytest.raises(errors.SettingsError, match=r"vector_index.*directory"):
        Memory(tmp_path / "store", settings=load(vector_index="pgvector"), embedder="none")
    assert not (tmp_path / "store").exists()
