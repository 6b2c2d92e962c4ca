"""Nothing brings back what was forgotten: no older export, no restored backup, no late work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from promise_helpers import (
    HOWS,
    KEY,
    NAME,
    USER,
    Open,
    assert_gone,
    forget,
    plant,
    traces,
)

from places import Places
from scrubjay import errors
from scrubjay.index import compact
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import SimulatedClock


@pytest.mark.parametrize("how", HOWS)
def test_an_older_export_brings_nothing_back(
    open_memory: Open, place: Places, tmp_path: Path, how: str
) -> None:
    """What was forgotten is skipped: turns too."""
    memory = open_memory()
    receipt = plant(memory)
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    forget(memory, how, receipt)
    outcome = memory.import_(tmp_path / "e.jsonl", user_id=USER)
    assert outcome["written"] == 0
    assert_gone(memory, receipt, tmp_path)
    assert traces(place.every_byte()) == []
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
    with open_memory("fresh", clock=clock) as fresh:
        assert fresh.import_(tmp_path / "new.jsonl", user_id=USER)["written"] == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_restored_backup_brings_nothing_back(
    open_memory: Open, place: Places, tmp_path: Path, how: str
) -> None:
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
    assert traces(place.every_byte()) == []
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
    open_memory: Open, place: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it fails in the middle, where what was forgotten is forgotten again."""
    memory = open_memory()
    receipt = plant(memory)
    memory.backup(tmp_path / "b")
    memory.forget(memory_id=receipt.ids[0], user_id=USER)
    memory.add("after the backup", user_id=USER)

    def broken(*_: object, **__: object) -> int:
        raise errors.StoreFull("no space left; free some")

    module = import_module(f"scrubjay.backends.{place.kind}.backup")
    monkeypatch.setattr(module, "forget_again", broken)
    with pytest.raises(errors.StoreFull):
        memory.restore(tmp_path / "b")
    assert_gone(memory, receipt, tmp_path)
    assert memory.search("after the backup", user_id=USER)[0].content == "after the backup"
    assert memory.doctor().problems == ()


@pytest.mark.embedded_only("its backup is a store of its own kind, with a number to change")
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
def test_late_vectors_bring_nothing_back(
    open_memory: Open, place: Places, tmp_path: Path, how: str
) -> None:
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
    assert traces(place.every_byte()) == []
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
    open_memory: Open, place: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert traces(place.every_byte()) == []


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
