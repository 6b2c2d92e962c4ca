"""Two stores that live through the same say the same.

Random operations, the same ones with the same ids and the same clock, are played on an embedded
store and on another; every answer is compared: contents, order, states, versions, counts, bytes of
exports, types of errors. Relevance, score and what explains them may differ by 1e-6; on everything
else the two agree to the letter. Tails are sealed and segments merged all along.

`SCRUBJAY_CONGRUENCE_OPS` is how many operations; `SCRUBJAY_CONGRUENCE_SEED` repeats a run that
failed, and a smaller number of operations stops at the one that differed.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from congruence_ops import START, Author, Operation

from places import Places, Where
from scrubjay import Memory, errors, model
from scrubjay.backends.sql import journal
from scrubjay.index import compact
from scrubjay.model import Erasure, MemoryRecord, Value, plain
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import SimulatedClock
from scrubjay.worker import Worker

TOLERANCE = 1e-6
OPERATIONS = int(os.environ.get("SCRUBJAY_CONGRUENCE_OPS", "0") or 0)
SEED = int(os.environ.get("SCRUBJAY_CONGRUENCE_SEED", "20260101"))
_OF_THE_ENGINE = ("bytes_on_disk", "bytes_cached")
_MOST_PAGES = 6


class Player:
    """One of the two memories, and how each operation is done on it."""

    def __init__(self, where: Where, clock: SimulatedClock, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.memory = Memory(
            where,
            settings=load(embedder="none", background=False),
            embedder=HashEmbedder(64),
            clock=clock,
        )
        parts = self.memory._parts
        self._worker = Worker(parts.store, parts.embedding)  # its thread is never started
        self.memory.search("the model is loaded by this", user_id="nobody")

    def play(self, operation: Operation) -> Any:
        """The answer in plain data; an error of Scrubjay's is an answer too."""
        try:
            return self._plain(operation, self.call(operation))
        except errors.ScrubjayError as exc:
            return {"error": type(exc).__name__}

    def call(self, operation: Operation) -> Any:
        verb, arguments = operation.verb, operation.arguments
        if verb == "work":
            while self._worker._work():
                pass
            return dict(self.memory._parts.store.counts(self.memory._parts.store.partition_keys()))
        if verb in ("export", "import_"):
            return getattr(self.memory, verb)(self.directory / operation.positional[0], **arguments)
        if verb == "list":
            return list(self._pages(arguments))
        return getattr(self.memory, verb)(*operation.positional, **arguments)

    def _pages(self, arguments: Mapping[str, Any]) -> Iterator[Any]:
        cursor = None
        for _ in range(_MOST_PAGES):
            page = self.memory.list(**arguments, cursor=cursor)
            yield {"items": page.items, "total": page.total, "more": page.next_cursor is not None}
            cursor = page.next_cursor
            if cursor is None:
                return

    def _plain(self, operation: Operation, answer: Any) -> Any:
        if operation.verb == "export":
            return [answer, (self.directory / operation.positional[0]).read_text("utf-8")]
        if isinstance(answer, Erasure):  # its notes are about files
            return {**_as_plain(answer), "notes": None}
        found = _as_plain(answer)
        if isinstance(found, dict):
            found.pop("timings", None)
            for name in _OF_THE_ENGINE:
                found.pop(name, None)
        return found


def _as_plain(value: Any) -> Any:
    """Plain data that still tells 1 from 1.0 and True."""
    if isinstance(value, MemoryRecord):
        return {**value.to_dict(), "metadata": {k: repr(v) for k, v in value.metadata.items()}}
    if isinstance(value, Value):
        names = (n for n in value.__dataclass_fields__ if not n.startswith("_"))  # type: ignore[attr-defined]
        return {name: _as_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(k): _as_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_plain(v) for v in value]
    return plain(value)


def difference(one: Any, other: Any, path: str = "answer") -> str | None:
    """Where two answers differ first; None where they agree."""
    if isinstance(one, float) and isinstance(other, float):
        return None if abs(one - other) <= TOLERANCE else f"{path}: {one!r} != {other!r}"
    if type(one) is not type(other):
        return f"{path}: {one!r} != {other!r}"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{path}: only in one of them: {sorted(one.keys() ^ other.keys())}"
        found = (difference(one[k], other[k], f"{path}.{k}") for k in one)
    elif isinstance(one, list):
        if len(one) != len(other):
            return f"{path}: {len(one)} items != {len(other)} items"
        pairs = enumerate(zip(one, other, strict=True))
        found = (difference(a, b, f"{path}[{n}]") for n, (a, b) in pairs)
    else:
        return None if one == other else f"{path}: {one!r} != {other!r}"
    return next((f for f in found if f is not None), None)


class Duet:
    """Plays the same on two stores and compares."""

    def __init__(self, one: Where, other: Where, directory: Path) -> None:
        self.clock = SimulatedClock(START)
        self.ids = random.Random()
        """Where the chance in ids comes from; set anew before each call."""
        self.players = [
            Player(where, self.clock, directory / name)
            for name, where in (("one", one), ("other", other))
        ]

    def live_through(self, seed: int, count: int) -> Counter[str]:
        """Play `count` operations on both; how often each verb and each error came."""
        author = Author(random.Random(seed))
        seen: Counter[str] = Counter()
        for number in range(count):
            operation = author.next()
            self.clock.set(author.now)
            answers = [self.play(player, operation, number) for player in self.players]
            found = difference(*answers)
            assert found is None, (
                f"seed {seed}, operation {number}: {operation}\n{found}\n"
                f"one:   {_short(answers[0])}\nother: {_short(answers[1])}"
            )
            author.heard(operation, answers[0])
            seen[answers[0]["error"] if _is_error(answers[0]) else operation.verb] += 1
        return seen

    def play(self, player: Player, operation: Operation, number: int) -> Any:
        self.ids.seed(number)
        return player.play(operation)

    def close(self) -> None:
        for player in self.players:
            player.memory.close()


@pytest.fixture
def duet(place: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duet]:
    """An embedded store and the other one, with segments of a few rows."""
    monkeypatch.setattr(journal, "SEAL_AT", 12)
    monkeypatch.setattr(compact, "SMALLEST", 12)
    monkeypatch.setattr(compact, "FAN_OUT", 3)
    duet = Duet(tmp_path / "embedded", place(), tmp_path)
    monkeypatch.setattr(model, "os", SimpleNamespace(urandom=duet.ids.randbytes))
    yield duet
    duet.close()


def assert_alike(duet: Duet, seed: int, count: int) -> None:
    """They lived alike, nothing of it was trivial, and both are sound."""
    seen = duet.live_through(seed, count)
    one, other = (player.memory for player in duet.players)
    assert seen["add"] > count / 5, seen
    assert seen["search"] > count / 10, seen
    if count >= 2_000:
        assert {"NotFound", "InvalidInput", "IdempotencyConflict", "export", "import_", "forget",
                "history", "context", "reindex"} <= seen.keys(), seen  # fmt: skip
    assert segments_of(one) == segments_of(other)
    assert {kind for kind, _ in segments_of(one)} == {"words", "vectors"}
    for memory in (one, other):
        assert memory.doctor().problems == ()


def _usual(place: Places) -> int:
    """Two embedded stores only show that the play itself is the same each time."""
    return OPERATIONS or (2_000 if place.kind != "sqlite" else 300)


def test_two_stores_say_the_same(duet: Duet, place: Places) -> None:
    """Two thousand operations."""
    assert_alike(duet, SEED, _usual(place))


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_two_stores_say_the_same_for_long(duet: Duet, place: Places) -> None:
    """Twenty thousand, of another seed."""
    assert_alike(duet, SEED + 1, OPERATIONS or (20_000 if place.kind != "sqlite" else 300))


@pytest.mark.embedded_only("the comparison itself is on trial")
def test_a_difference_is_told(duet: Duet) -> None:
    """One memory more, an expiry a moment off: the next answer that shows it names the place."""
    duet.live_through(1, 60)
    duet.players[1].memory.add("one too many", user_id="ada")
    with pytest.raises(AssertionError, match=r"seed 2, operation \d+: \w+\("):
        duet.live_through(2, 200)
    assert difference({"a": [1.0]}, {"a": [1.0 + 1e-7]}) is None
    assert difference({"a": [1.0]}, {"a": [1.1]}) == "answer.a[0]: 1.0 != 1.1"
    assert difference([1], [True]) == "answer[0]: 1 != True"


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.keys() == {"error"}


def _short(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, default=repr)[:6_000]


def segments_of(memory: Memory) -> Sequence[tuple[str, int]]:
    """(kind, count) of each segment of the store."""
    store = memory._parts.store
    with store.snapshot() as snapshot:
        states = snapshot.partitions(store.partition_keys())
        return [(i.kind, i.count) for state in states for i in snapshot.segments(state)]
