"""What several files of this folder share: a child that is killed, and a word that is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from places import Where
from scrubjay import Erasure, Memory, Receipt, errors
from scrubjay.index.words import query_terms
from scrubjay.model import PartitionKey
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder

CHILD = Path(__file__).with_name("child.py")
USER = "ada"
LEASE_S = 0.5
Repeat = Callable[..., int]
Open = Callable[..., Memory]


def text_of(number: int) -> str:
    """What child.py says as its statement of that number."""
    return (
        f"note kq{number:06d}z about topic{number % 7} and colour{number % 5} of day{number // 9}"
    )


@dataclass
class Heard:
    """What a child said before it died."""

    began: set[int] = field(default_factory=set)
    acked: dict[int, str] = field(default_factory=dict)
    lines: list[list[str]] = field(default_factory=list)

    def read(self, output: str) -> None:
        whole = output[: output.rfind("\n") + 1]
        for line in whole.splitlines():
            parts = line.split()
            self.lines.append(parts)
            if parts[:2] == ["begin", "add"]:
                self.began.add(int(parts[2]))
            elif parts[:2] == ["ack", "add"]:
                self.acked[int(parts[2])] = parts[3] if len(parts) > 3 else ""


def run_child(
    *arguments: object, kill_after_s: float | None = None, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run child.py; kill it that long after it is ready. (exit code, what it said)."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    assert child.stdout is not None
    said: list[bytes] = []
    ready = threading.Event()

    def listen() -> None:
        for line in child.stdout:  # type: ignore[union-attr]
            said.append(line)
            ready.set()
        ready.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        ready.wait(60)
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            child.send_signal(signal.SIGKILL)
        child.wait(120)
    finally:
        child.kill()
        listener.join()
        stderr = child.stderr.read().decode() if child.stderr else ""
        child.stdout.close()
        if child.stderr:
            child.stderr.close()
    assert "Traceback" not in stderr, stderr
    return child.returncode, b"".join(said).decode()


def reopened(where: Where) -> Memory:
    return Memory(where, settings=load(embedder="none"), embedder=HashEmbedder(64))


def flushed(memory: Memory) -> None:
    """All vectors are there. What a dead worker had claimed waits for its lease to run out."""
    deadline = time.monotonic() + 60
    while not memory.flush(5):
        assert time.monotonic() < deadline, "the background work does not come to an end"


def assert_found(memory: Memory, numbers: Sequence[int]) -> None:
    """By its own word, and by meaning alone."""
    for number in numbers:
        found = memory.search(f"kq{number:06d}z", user_id=USER, top_k=1)
        assert [h.content for h in found] == [text_of(number)], f"statement {number} by word"
        alone = {"vector_weight": 1.0, "before_weight": 0.0, "after_weight": 0.0}
        found = memory.search(text_of(number), user_id=USER, top_k=3, policy=alone, explain=True)
        near = {h.content: h.explanation["meaning"] for h in found if h.explanation}
        assert near.get(text_of(number), 0) > 0.95, f"statement {number} by meaning"


def contents(memory: Memory, **options: object) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = memory.list(user_id=USER, limit=10_000, cursor=cursor, **options)  # type: ignore[arg-type]
        found += [record.content for record in page]
        cursor = page.next_cursor
        if cursor is None:
            return found


# -- forgetting

KEY = PartitionKey("default", "user:ada")
NAME = "Wolpertinger"
"""The planted word; nothing else of a store has it."""
HOWS = ("memory", "session", "turn", "before", "user")


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
