"""Forgetting is complete: no verb finds it, no byte of the directory holds it, nothing brings it
back: not an older export, not a restored backup, not background work that was under way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay import Erasure, Memory, Receipt, errors
from scrubjay.index import compact
from scrubjay.index.segments import read_vectors, read_words
from scrubjay.index.words import query_terms
from scrubjay.model import PartitionKey
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import SimulatedClock

Open = Callable[..., Memory]
USER = "ada"
KEY = PartitionKey("default", "user:ada")
NAME = "Wolpertinger"
"""The planted word; nothing else of a store has it."""
HOWS = ("memory", "session", "turn", "before", "user")


def every_byte(directory: Path) -> bytes:
    return b"".join(
        b"\n" + str(file.name).encode() + b"\n" + file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    )


def traces(data: bytes, word: str = NAME) -> list[str]:
    """In which forms a word is in these bytes."""
    forms = {
        "utf-8": word.encode(),
        "lower": word.lower().encode(),
        "utf-16": word.encode("utf-16-le"),
        "term": b"".join(t.to_bytes(8, "little") for t in query_terms(word)),
    }
    return [name for name, form in forms.items() if form in data]


def plant(memory: Memory) -> Receipt:
    """The planted memory among others, with an update, a repetition and metadata."""
    clock = memory._parts.clock()
    for number in range(30):
        memory.add(f"harmless line {number} about tea", user_id=USER, session_id="keep",
                   occurred_at=clock)  # fmt: skip
    receipt = memory.add(
        {"role": "user", "content": f"my landlord is called {NAME}"},
        user_id=USER, session_id="gone", occurred_at=clock - timedelta(days=40),
        metadata={"who": NAME}, idempotency_key="planted",
    )  # fmt: skip
    for number in range(30, 60):
        memory.add(f"harmless line {number} about tea", user_id=USER, session_id="keep",
                   occurred_at=clock)  # fmt: skip
    return receipt


def forget(memory: Memory, how: str, receipt: Receipt) -> Erasure:
    target: dict[str, Any] = {
        "memory": {"memory_id": receipt.ids[0]},
        "session": {"session_id": "gone"},
        "turn": {"turn_id": receipt.turn_ids[0]},
        "before": {"before": memory._parts.clock() - timedelta(days=20)},
        "user": {},
    }[how]
    return memory.forget(user_id=USER, **target)


def assert_gone(memory: Memory, receipt: Receipt, tmp_path: Path, word: str = NAME) -> None:
    """By no verb, in no state, in no version."""
    for query in (word, f"my landlord is called {word}", "landlord", "tea"):
        for options in ({}, {"include_history": True}, {"session_id": "gone"},
                        {"as_of": memory._parts.clock() - timedelta(days=30)},
                        {"known_at": memory._parts.clock()},
                        {"filters": {"who": word}}):  # fmt: skip
            hits = memory.search(query, user_id=USER, top_k=1_000, **options)
            assert not [h for h in hits if word in h.content or word in str(h.memory.metadata)]
            assert word not in memory.context(query, user_id=USER, **options).text
    for states in (("active",), None):
        page = memory.list(user_id=USER, limit=1_000, states=states)
        assert not [r for r in page if word in r.content or word in str(r.to_dict())]
    for memory_id in receipt.ids:
        for verb in (memory.get, memory.history, memory.delete):
            with pytest.raises(errors.NotFound):
                verb(memory_id, user_id=USER)
        with pytest.raises(errors.NotFound):
            memory.update(memory_id, "something else", user_id=USER)
    file = tmp_path / "probe.jsonl"
    memory.export(file, user_id=USER)
    assert word not in file.read_text("utf-8")
    file.unlink()


@pytest.mark.parametrize("layout", ["tail", "sealed", "merged"])
@pytest.mark.parametrize("how", HOWS)
def test_it_is_gone(
    open_memory: Open, tmp_path: Path, how: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every verb, from every byte on disk, and from RAM."""
    monkeypatch.setattr(compact, "SMALLEST", 4)
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    assert memory.flush(30)
    if layout != "tail":
        compact.seal(memory._parts.store, KEY, everything=layout == "merged")
    assert memory.search(NAME, user_id=USER)[0].id == receipt.ids[0]
    assert traces(every_byte(tmp_path / "store"))
    erasure = forget(memory, how, receipt)
    assert erasure.complete
    assert receipt.ids[0] in erasure.memory_ids
    assert erasure.notes == ()
    assert traces(every_byte(tmp_path / "store")) == []
    assert_gone(memory, receipt, tmp_path)
    left = 0 if how == "user" else 60
    assert memory.list(user_id=USER).total == left
    assert len(memory.search("tea", user_id=USER, top_k=100)) == left
    assert memory.doctor().problems == ()
    memory.close()
    with open_memory(embedder=HashEmbedder(64)) as again:
        assert_gone(again, receipt, tmp_path)
    assert traces(every_byte(tmp_path / "store")) == []


@pytest.mark.parametrize("how", HOWS)
def test_segments_are_rewritten(open_memory: Open, how: str) -> None:
    """The sealed words and vectors no longer hold the memory; the others are still there."""
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    memory.flush(30)
    store = memory._parts.store
    compact.seal(store, KEY, everything=True)
    seq = memory.get(receipt.ids[0], user_id=USER).seq
    (term,) = query_terms(NAME)

    def held() -> tuple[set[int], set[int], set[int]]:
        words: set[int] = set()
        vectors: set[int] = set()
        terms: set[int] = set()
        with store.snapshot() as snapshot:
            for state in snapshot.partitions([KEY]):
                for info in snapshot.segments(state):
                    blob = snapshot.segment_blob(state, info.sid)
                    if info.kind == "words":
                        words |= set(read_words(blob).seqs.tolist())
                        terms |= set(read_words(blob).terms.tolist())
                    else:
                        vectors |= set(read_vectors(blob).seqs.tolist())
        return words, vectors, terms

    words, vectors, terms = held()
    assert seq in words
    assert seq in vectors
    assert term in terms
    forget(memory, how, receipt)
    words, vectors, terms = held()
    assert seq not in words
    assert seq not in vectors
    assert term not in terms
    assert len(words) == len(vectors) == (0 if how == "user" else 60)


@pytest.mark.parametrize("how", HOWS)
def test_an_older_export_brings_nothing_back(open_memory: Open, tmp_path: Path, how: str) -> None:
    """What was forgotten is skipped: turns too."""
    memory = open_memory()
    receipt = plant(memory)
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    forget(memory, how, receipt)
    outcome = memory.import_(tmp_path / "e.jsonl", user_id=USER)
    assert outcome["written"] == 0
    assert_gone(memory, receipt, tmp_path)
    assert traces(every_byte(tmp_path / "store")) == []
    assert memory.doctor().problems == ()


@pytest.mark.parametrize("days", [-4_000, 4_000], ids=["slow clock", "fast clock"])
def test_no_clock_brings_it_back(open_memory: Open, tmp_path: Path, days: int) -> None:
    """Forgetting a user whole holds against an older export, whatever the clocks said."""
    clock = SimulatedClock(datetime.now(UTC) + timedelta(days=days))
    memory = open_memory(clock=clock)
    receipt = memory.add(f"my landlord is called {NAME}", user_id=USER)
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    memory.backup(tmp_path / "b")
    memory.forget(user_id=USER)
    memory.import_(tmp_path / "e.jsonl", user_id=USER)
    assert_gone(memory, receipt, tmp_path)
    memory.restore(tmp_path / "b")
    assert_gone(memory, receipt, tmp_path)
    # Said anew it stays, also through an export of its own.
    clock.advance(seconds=1)
    memory.add("a new beginning", user_id=USER)
    memory.export(tmp_path / "new.jsonl", user_id=USER)
    memory.import_(tmp_path / "new.jsonl", user_id=USER)
    assert [r.content for r in memory.list(user_id=USER)] == ["a new beginning"]
    with open_memory(tmp_path / "fresh", clock=clock) as fresh:
        assert fresh.import_(tmp_path / "new.jsonl", user_id=USER)["written"] == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_restored_backup_brings_nothing_back(open_memory: Open, tmp_path: Path, how: str) -> None:
    """It is forgotten again, in the same step."""
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    memory.flush(30)
    compact.seal(memory._parts.store, KEY, everything=True)
    memory.backup(tmp_path / "b")
    forget(memory, how, receipt)
    left_out = memory.restore(tmp_path / "b")
    assert left_out >= 1
    assert_gone(memory, receipt, tmp_path)
    assert traces(every_byte(tmp_path / "store")) == []
    assert memory.list(user_id=USER).total == (0 if how == "user" else 60)
    assert memory.doctor().problems == ()


def test_a_restore_is_one_step_for_other_readers(open_memory: Open, tmp_path: Path) -> None:
    """At no moment does another handle find what was forgotten."""
    memory, other = open_memory(), open_memory()
    memory.add([f"line {n} about tea" for n in range(3_000)], user_id=USER)
    receipt = memory.add(f"my landlord is called {NAME}", user_id=USER)
    memory.backup(tmp_path / "b")
    memory.forget(memory_id=receipt.ids[0], user_id=USER)
    stop = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not stop.is_set():
            with other._parts.store.snapshot() as snapshot:
                seen.append(snapshot.locate([KEY], receipt.ids[0]) is not None)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        memory.restore(tmp_path / "b")
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 3
    assert not any(seen)


def test_a_failed_restore_changes_nothing(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it fails in the middle, where what was forgotten is forgotten again."""
    from scrubjay.backends.sqlite import backup

    memory = open_memory()
    receipt = plant(memory)
    memory.backup(tmp_path / "b")
    memory.forget(memory_id=receipt.ids[0], user_id=USER)
    memory.add("after the backup", user_id=USER)

    def broken(*_: object, **__: object) -> int:
        raise errors.StoreFull("no space left; free some")

    monkeypatch.setattr(backup, "forget_again", broken)
    with pytest.raises(errors.StoreFull):
        memory.restore(tmp_path / "b")
    assert_gone(memory, receipt, tmp_path)
    assert memory.search("after the backup", user_id=USER)[0].content == "after the backup"
    assert memory.doctor().problems == ()


def test_a_backup_of_a_newer_schema_changes_nothing(open_memory: Open, tmp_path: Path) -> None:
    """SchemaTooNew, and the store is as it was."""
    import sqlite3

    memory = open_memory()
    memory.add("one", user_id=USER)
    memory.backup(tmp_path / "b")
    with sqlite3.connect(tmp_path / "b") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    memory.add("two", user_id=USER)
    with pytest.raises(errors.SchemaTooNew):
        memory.restore(tmp_path / "b")
    assert memory.list(user_id=USER).total == 2
    memory.close()
    assert open_memory().list(user_id=USER).total == 2


class Gate(HashEmbedder):
    """Holds every text that has a word in it until it is let go."""

    def __init__(self, word: str) -> None:
        super().__init__(64)
        self.word = word
        self.reached, self.go = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        if role == "passage" and any(self.word in text for text in texts):
            self.reached.set()
            assert self.go.wait(30)
        return super().embed(texts, role)


@pytest.mark.parametrize("how", HOWS)
def test_late_vectors_bring_nothing_back(open_memory: Open, tmp_path: Path, how: str) -> None:
    """A job that had read the text when it was forgotten finds nothing to write to."""
    gate = Gate(NAME)
    memory = open_memory(embedder=gate)
    receipt = plant(memory)
    assert gate.reached.wait(30)
    forget(memory, how, receipt)
    # The user comes back before the job ends: its vector must not land on the new memory.
    memory.add("an entirely different sentence", user_id=USER, session_id="new")
    gate.go.set()
    memory.flush(30)
    assert_gone(memory, receipt, tmp_path)
    assert traces(every_byte(tmp_path / "store")) == []
    stats = memory.stats(user_id=USER)
    assert stats["vectors"] == stats["memories"]
    alone = {"vector_weight": 1.0, "before_weight": 0.0, "after_weight": 0.0}
    text = "an entirely different sentence"
    hit = memory.search(text, user_id=USER, policy=alone, explain=True, top_k=1)[0]
    assert hit.content == text
    assert hit.explanation
    assert hit.explanation["meaning"] > 0.95
    assert memory.doctor().problems == ()


def test_a_late_seal_brings_nothing_back(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment built before the forgetting is not put in place after it."""
    memory = open_memory()
    receipt = plant(memory)
    store = memory._parts.store
    with store.snapshot() as snapshot:
        (state,) = snapshot.partitions([KEY])
        segment = compact._next_segment(snapshot, state, 1)
    assert segment
    for how in ("memory", "user"):
        if how == "user":
            memory.forget(user_id=USER)
            memory.add([f"new line {n}" for n in range(61)], user_id=USER)
        else:
            forget(memory, how, receipt)
        assert not store.seal(KEY, segment)
    assert_gone(memory, receipt, tmp_path)
    assert traces(every_byte(tmp_path / "store")) == []


def test_the_cache_of_texts_forgets_too(open_memory: Open) -> None:
    """No text of it stays in RAM."""
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    memory.flush(30)
    memory.search(f"my landlord is called {NAME}", user_id=USER)
    memory.forget(memory_id=receipt.ids[0], user_id=USER)
    assert NAME not in str(list(memory._parts.embedding._cache))
    assert memory._parts.cache.nbytes == 0


@pytest.mark.parametrize("how", HOWS)
def test_the_key_can_be_used_again(open_memory: Open, how: str) -> None:
    """The record of the request is gone: the same call writes again, and is found."""
    memory = open_memory()
    receipt = plant(memory)
    forget(memory, how, receipt)
    again = memory.add(
        f"my landlord is called {NAME}", user_id=USER, session_id="gone", idempotency_key="planted"
    )
    assert again.status == "stored"
    assert again.ids != receipt.ids
    assert memory.search(NAME, user_id=USER)[0].id == again.ids[0]


def test_every_version_goes(open_memory: Open, tmp_path: Path) -> None:
    """Named by any of them; also those that said it before an update took it out."""
    memory = open_memory()
    for named in range(3):
        first = memory.add(f"version 1 is {NAME} {named}", user_id=USER)
        second = memory.update(first.ids[0], f"version 2 is {NAME} {named}", user_id=USER)
        third = memory.update(second.id, f"version 3 is clean {named}", user_id=USER)
        ids = (first.ids[0], second.id, third.id)
        erasure = memory.delete(ids[named], user_id=USER)
        assert set(erasure.memory_ids) == set(ids)
        for memory_id in ids:
            with pytest.raises(errors.NotFound):
                memory.get(memory_id, user_id=USER)
    assert memory.stats(user_id=USER)["turns"] == 0
    assert traces(every_byte(tmp_path / "store")) == []
    assert memory.doctor().problems == ()


def test_the_rest_of_a_turn_stays(open_memory: Open, tmp_path: Path) -> None:
    """One segment of a long turn goes, also from the raw turn; the others stay to the letter."""
    memory = open_memory()
    parts = [f"Paragraph {n} is about {'tea ' * 80}." for n in range(8)]
    parts[4] = f"Paragraph 4 is about {NAME} " + "secret " * 60 + "."
    receipt = memory.add("\n\n".join(parts), user_id=USER, metadata={"n": 1})
    assert len(receipt.ids) >= 8
    (target,) = [
        i for i in receipt.ids if NAME in memory.get(i, user_id=USER).content
    ]  # fmt: skip
    kept = {i: memory.get(i, user_id=USER).content for i in receipt.ids if i != target}
    memory.delete(target, user_id=USER)
    assert {i: memory.get(i, user_id=USER).content for i in kept} == kept
    assert traces(every_byte(tmp_path / "store")) == []
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    text = (tmp_path / "e.jsonl").read_text("utf-8")
    assert NAME not in text
    assert "Paragraph 5 is about" in text
    # An import of that export elsewhere works, with what is left.
    with open_memory(tmp_path / "fresh") as fresh:
        fresh.import_(tmp_path / "e.jsonl", user_id=USER)
        assert fresh.list(user_id=USER).total == len(kept)


def test_a_repetition_elsewhere_is_not_taken_along(open_memory: Open) -> None:
    """What was also said in another session stays, with no trace of the forgotten one."""
    memory = open_memory()
    memory.add(["hello there", f"called {NAME}"], user_id=USER, session_id="gone")
    memory.add("hello there", user_id=USER, session_id="kept")
    memory.forget(user_id=USER, session_id="gone")
    (record,) = memory.list(user_id=USER, states=None)
    assert record.content == "hello there"
    assert record.scope.session_id == "kept"
    assert [s.session_id for s in record.sources] == ["kept"]
    assert memory.list(user_id=USER, session_id="gone").total == 0
    assert len(memory.search("hello", user_id=USER, session_id="gone")) == 0
    assert len(memory.search("hello", user_id=USER, session_id="kept")) == 1
    assert memory.doctor().problems == ()


def test_all_agents_of_a_user_go(open_memory: Open, tmp_path: Path) -> None:
    """With the user alone, what is private to any agent goes along; with an agent, only its own."""
    memory = open_memory()
    for agent in ("a", "b"):
        memory.add(f"{agent} knows {NAME}", user_id=USER, agent_id=agent, visibility="private")
    memory.add(f"shared {NAME}", user_id=USER)
    memory.add("common word", user_id="boss", visibility="common")
    memory.forget(user_id=USER, agent_id="a")
    assert memory.list(user_id=USER, agent_id="a").total == 2
    assert memory.list(user_id=USER, agent_id="b").total == 3
    erasure = memory.forget(user_id=USER)
    assert erasure.complete
    assert memory.list(user_id=USER, agent_id="b").total == 1
    assert traces(every_byte(tmp_path / "store")) == []
    assert b"user:ada" not in every_byte(tmp_path / "store")


def test_names_of_sessions_go_too(open_memory: Open, tmp_path: Path) -> None:
    """Ids may say who someone is; those of what is forgotten whole are gone from the disk."""
    memory = open_memory()
    memory.add("a note", user_id="Wolpertinger@example.org", session_id=f"s-{NAME}",
               agent_id=f"a-{NAME}", namespace=f"n-{NAME}", metadata={NAME: NAME})  # fmt: skip
    memory.add("a note", user_id="other")
    memory.forget(user_id="Wolpertinger@example.org")
    assert traces(every_byte(tmp_path / "store")) == []


def test_bytes_under_churn(open_memory: Open, tmp_path: Path) -> None:
    """Pages that were split, merged and moved leave no copies behind."""
    memory = open_memory(embedder=HashEmbedder(32))
    chance = random.Random(11)
    planted: list[str] = []
    for round_ in range(12):
        batch = []
        for _ in range(40):
            size = chance.choice((1, 5, 40, 200, 900))
            is_planted = chance.random() < 0.4
            word = NAME if is_planted else "harmless"
            batch.append((is_planted, f"{word} {chance.random()} " + f"{word}x " * size))
        for is_planted, text in batch:
            receipt = memory.add(text, user_id=USER, session_id=f"s{round_}")
            if is_planted:  # long texts repeat themselves: their segments are one memory
                planted += [i for i in dict.fromkeys(receipt.ids) if i not in planted]
        chance.shuffle(planted)
        for memory_id in planted[: len(planted) // 2]:
            memory.delete(memory_id, user_id=USER)
        planted = planted[len(planted) // 2 :]
    for memory_id in planted:
        memory.delete(memory_id, user_id=USER)
    assert traces(every_byte(tmp_path / "store")) == []
    memory.flush(30)
    assert traces(every_byte(tmp_path / "store")) == []
    assert memory.doctor().problems == ()


def test_a_reader_in_the_way_is_named(open_memory: Open, tmp_path: Path) -> None:
    """While someone still reads the old state, the receipt says that the log holds old pages."""
    from scrubjay.settings import load

    memory = open_memory(settings=load(embedder="none", write_timeout_s=0.2))
    other = open_memory()
    receipt = plant(memory)
    with other._parts.store.snapshot() as snapshot:
        snapshot.partitions([KEY])
        erasure = memory.forget(memory_id=receipt.ids[0], user_id=USER)
        assert erasure.notes
    memory.add("the next write", user_id=USER)
    deadline = time.monotonic() + 10
    while traces(every_byte(tmp_path / "store")) and time.monotonic() < deadline:
        memory.flush(1)
        time.sleep(0.2)
    assert traces(every_byte(tmp_path / "store")) == [], "the old pages stay in the log"


def test_forgetting_nothing(open_memory: Open) -> None:
    """A session that never was, a user who never came: nothing happens, and it says so."""
    memory = open_memory()
    memory.add("one", user_id=USER)
    assert memory.forget(user_id=USER, session_id="never").memory_ids == ()
    assert memory.forget(user_id=USER, before="1990-01-01").memory_ids == ()
    assert memory.forget(user_id="nobody").complete
    for target in ({"memory_id": "no id"}, {"turn_id": "00000000-0000-7000-8000-000000000000"}):
        with pytest.raises(errors.NotFound):
            memory.forget(user_id=USER, **target)
    with pytest.raises(errors.InvalidInput):
        memory.forget(user_id=USER, session_id="a", before="2026-01-01")
    assert memory.list(user_id=USER).total == 1


def test_a_renamed_import_stays_forgotten(open_memory: Open, tmp_path: Path) -> None:
    """What bob took over from ada and forgot does not come back when ada has gone."""
    memory = open_memory()
    memory.add(f"called {NAME}", user_id=USER)
    memory.export(tmp_path / "e", user_id=USER)
    memory.import_(tmp_path / "e", user_id="bob")
    (copy,) = memory.list(user_id="bob")
    memory.delete(copy.id, user_id="bob")
    memory.forget(user_id=USER)
    memory.import_(tmp_path / "e", user_id="bob")
    assert memory.list(user_id="bob", states=None).total == 0
    assert memory.stats(user_id="bob")["turns"] == 0
