"""Promise 2: the next search in the same scope sees every acknowledged turn, from anywhere.

From the same thread, another thread, another handle and another process; while tails are sealed
and segments merged; after an update, a forgetting, an import and a restored backup. A reader that
has the partition in RAM must notice; one that has not must see no less.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from places import Places, Where
from scrubjay import Memory, State
from scrubjay.backends.sql import journal
from scrubjay.index import compact
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import SimulatedClock

Open = Callable[..., Memory]
USER = "ada"


def naming(word: str, contents: list[str]) -> list[str]:
    """Those that hold the whole word. (Search also finds what shares its parts.)"""
    return [content for content in contents if word in content.split()]


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [hit.content for hit in memory.search(query, user_id=USER, **options)]  # type: ignore[arg-type]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seal after eight rows, merge eight of eight: compaction runs all the time."""
    monkeypatch.setattr(journal, "SEAL_AT", 8)
    monkeypatch.setattr(compact, "SMALLEST", 8)


class Reader:
    """A process of its own with the store open, its cache warm; it answers searches."""

    SCRIPT = textwrap.dedent("""
        import json, sys
        from scrubjay import Memory
        with Memory(sys.argv[1], embedder="none") as memory:
            for line in sys.stdin:
                query = json.loads(line)
                hits = memory.search(query, user_id="ada", top_k=20)
                print(json.dumps([h.content for h in hits]), flush=True)
    """)

    def __init__(self, where: Where) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, str(where)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def found(self, query: str) -> list[str]:
        import json

        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(query) + "\n")
        self.process.stdin.flush()
        return naming(query, json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.communicate(timeout=30)


@pytest.fixture
def reader(open_memory: Open, place: Places) -> Iterator[Reader]:
    open_memory().close()
    reader = Reader(place())
    reader.found("warm up")
    yield reader
    reader.close()


def test_another_process_sees_every_verb_at_once(
    open_memory: Open, reader: Reader, tmp_path: Path, busy: None
) -> None:
    """Each write is searched for from the other process as soon as it is acknowledged."""
    memory = open_memory(embedder=HashEmbedder(32))
    for number in range(120):
        receipt = memory.add(f"marker mk{number}q stands here", user_id=USER)
        assert reader.found(f"mk{number}q") == [f"marker mk{number}q stands here"]
        if number % 10 == 3:
            memory.update(receipt.ids[0], f"changed cg{number}q now", user_id=USER)
            assert reader.found(f"cg{number}q") == [f"changed cg{number}q now"]
            assert reader.found(f"mk{number}q") == []
        if number % 10 == 7:
            memory.delete(receipt.ids[0], user_id=USER)
            assert reader.found(f"mk{number}q") == []
    memory.flush(30)
    assert reader.found("mk0q") == ["marker mk0q stands here"]
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    memory.backup(tmp_path / "b.db")
    memory.forget(user_id=USER)
    assert reader.found("mk0q") == []
    memory.add("said anew mk0q", user_id=USER)
    assert reader.found("mk0q") == ["said anew mk0q"]
    memory.restore(tmp_path / "b.db")
    assert reader.found("mk1q") == []


def test_another_handle_sees_vectors_too(open_memory: Open, busy: None) -> None:
    """A memory found by meaning in one handle is found so in the other."""
    writer, other = open_memory(embedder=HashEmbedder()), open_memory(embedder=HashEmbedder())
    alone = {"vector_weight": 1.0, "before_weight": 0.0, "after_weight": 0.0}
    for number in range(40):
        text = f"the violet dragon of valley v{number}x"
        receipt = writer.add(text, user_id=USER, wait=True)
        assert receipt.pending == ()
        assert found(other, text, policy=alone, top_k=1) == [text]


def test_other_threads_see_it_while_sealing_runs(open_memory: Open, busy: None) -> None:
    """Writers hand over what they wrote; readers look for it at once."""
    memory = open_memory(embedder=HashEmbedder(32))
    failures: list[str] = []
    stop = threading.Event()
    written: list[int] = []

    def read() -> None:
        seen = 0
        while not stop.is_set():
            last = len(written)
            failures.extend(
                f"{number} is not found"
                for number in range(max(seen, last - 3), last)
                if found(memory, f"mk{number}q", top_k=1) != [f"marker mk{number}q"]
            )
            seen = last

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    try:
        for number in range(400):
            memory.add(f"marker mk{number}q", user_id=USER)
            written.append(number)
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert not failures, failures[:3]
    for number in range(0, 400, 7):
        assert found(memory, f"mk{number}q", top_k=1) == [f"marker mk{number}q"]
    memory.flush(30)
    assert memory.doctor().problems == ()


def test_four_threads_each_see_their_own(open_memory: Open, busy: None) -> None:
    """Write, read, update, read, forget, read: in each thread, none waits for the others."""
    memory = open_memory(embedder=HashEmbedder(32))
    failures: list[object] = []

    def work(me: int) -> None:
        try:
            for number in range(60):
                word = f"t{me}w{number}q"
                receipt = memory.add(f"marker {word}", user_id=USER)
                assert naming(word, found(memory, word, top_k=1)) == [f"marker {word}"], "after add"
                new = memory.update(receipt.ids[0], f"changed {word}", user_id=USER)
                assert naming(word, found(memory, word, top_k=1)) == [f"changed {word}"], (
                    "after update"
                )
                if number % 3 == 0:
                    memory.delete(new.id, user_id=USER)
                    assert naming(word, found(memory, word, top_k=1)) == [], "after delete"
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, repr(failures[0])
    memory.flush(30)
    assert memory.doctor().problems == ()


@pytest.mark.parametrize("is_sealed", [False, True], ids=["tail", "sealed"])
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("model", ["none", "hash"])
def test_an_old_version_is_not_found(
    open_memory: Open, is_sealed: bool, is_warm: bool, model: str
) -> None:
    """After an update the old words find nothing, unless history is asked for."""
    memory = open_memory(embedder=HashEmbedder() if model == "hash" else "none")
    receipt = memory.add("the meeting is in room Aquamarine", user_id=USER, wait=True)
    if is_sealed:
        compact.seal(memory._parts.store, memory._parts.store.partition_keys()[0], everything=True)
    if is_warm:
        assert found(memory, "Aquamarine")
    memory.update(receipt.ids[0], "the meeting is in room Vermilion", user_id=USER)
    if not is_warm:
        memory._parts.cache.clear()
    for _ in range(2):
        assert found(memory, "the meeting in room Aquamarine") == [
            "the meeting is in room Vermilion"
        ]
        hits = memory.search("room Aquamarine", user_id=USER, include_history=True)
        assert {h.state for h in hits} == {State.ACTIVE, State.SUPERSEDED}
        memory.flush(20)
    assert [r.content for r in memory.list(user_id=USER)] == ["the meeting is in room Vermilion"]


def test_what_expires_disappears_by_itself(open_memory: Open) -> None:
    """No write tells the cache: the clock does, to the microsecond."""
    clock = SimulatedClock(datetime(2026, 5, 1, tzinfo=UTC))
    memory = open_memory(clock=clock)
    end = datetime(2026, 5, 2, 0, 0, 0, 123457, tzinfo=UTC)
    memory.add("the code is Heliotrope", user_id=USER, expires_at=end)
    for moment, expected in (
        (end.replace(microsecond=123456), 1),
        (end, 0),
        (end.replace(microsecond=123458), 0),
    ):
        clock.set(moment)
        assert len(found(memory, "Heliotrope")) == expected
        assert memory.list(user_id=USER).total == expected
    clock.set(datetime(2026, 5, 1, 12, tzinfo=UTC))  # the clock may be set back
    assert len(found(memory, "Heliotrope")) == 1


def test_a_repetition_is_found_in_its_new_session_at_once(open_memory: Open) -> None:
    """Its words are there already; the narrowing must see the new turn all the same."""
    memory = open_memory()
    memory.add("the same words", user_id=USER, session_id="a")
    assert found(memory, "words", session_id="b") == []
    memory.add("the same words", user_id=USER, session_id="b")
    assert found(memory, "words", session_id="b") == ["the same words"]


def test_metadata_filters_see_the_newest(open_memory: Open) -> None:
    """What was cached for filters follows too."""
    memory = open_memory()
    memory.add("first note", user_id=USER, metadata={"n": 1})
    assert found(memory, "note", filters={"n": {">": 0}}) == ["first note"]
    receipt = memory.add("second note", user_id=USER, metadata={"n": 2})
    assert sorted(found(memory, "note", filters={"n": {">": 0}})) == ["first note", "second note"]
    memory.update(receipt.ids[0], "second note", user_id=USER, metadata={"n": -2})
    assert found(memory, "note", filters={"n": {">": 0}}) == ["first note"]
    assert found(memory, "note", filters={"n": -2}) == ["second note"]


def test_one_partition_more_is_seen(open_memory: Open) -> None:
    """Private and common memories appear beside what was cached before they existed."""
    memory = open_memory()
    memory.add("shared note", user_id=USER)
    assert found(memory, "note", agent_id="a") == ["shared note"]
    memory.add("private note", user_id=USER, agent_id="a", visibility="private")
    memory.add("common note", user_id="boss", visibility="common")
    assert sorted(found(memory, "note", agent_id="a")) == [
        "common note", "private note", "shared note",
    ]  # fmt: skip


def test_a_small_cache_changes_nothing(open_memory: Open) -> None:
    """Partitions leave and come back; every search is whole."""
    from scrubjay.settings import load

    memory = open_memory(settings=load(cache_mb=1, embedder="none"))
    for number in range(30):
        texts = [f"user {number} line {i} " + f"filler{i} " * 30 for i in range(60)]
        memory.add(texts, user_id=f"u{number}")
    for round_ in range(2):
        for number in range(30):
            hits = memory.search(f"line {round_}", user_id=f"u{number}", top_k=100)
            assert len(hits) == 60
    assert memory.stats()["bytes_cached"] < 4 * 1_048_576
