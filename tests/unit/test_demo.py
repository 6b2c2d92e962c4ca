"""The sample conversation is what it promises, and the demo shows what a search brings."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import scrubjay
from scrubjay import demo
from scrubjay.demo.__main__ import main
from scrubjay.errors import StoreReadOnly
from scrubjay.model import Hit, Kind, MemoryRecord, Result, Role, Scope, State

LINES = list(demo.conversation())


def test_the_conversation_is_long_and_bilingual() -> None:
    assert len(LINES) >= 160
    assert len({line.session_id for line in LINES}) >= 8
    tools = Counter(line.user_id for line in LINES if line.role == "tool")
    assert tools == {"maya": 1, "zhoulin": 1}
    assert {line.role for line in LINES} == {"user", "assistant", "tool"}
    assert any("\u4e00" <= letter <= "\u9fff" for letter in LINES[-1].content)


def test_turns_stand_in_the_order_in_which_they_were_said() -> None:
    times = [line.occurred_at for line in LINES]
    assert times == sorted(times)
    assert all(time.tzinfo is not None for time in times)
    assert len({line.key for line in LINES}) == len(LINES)
    assert len({line.content for line in LINES}) == len(LINES)


def test_each_question_has_one_memory_said_before_it() -> None:
    asked = demo.questions()
    assert Counter(question.user_id for question in asked) == {"maya": 6, "zhoulin": 6}
    for question in asked:
        said = [line for line in LINES if question.expects in line.content]
        assert [line.user_id for line in said] == [question.user_id], question
        last = max(line.occurred_at for line in LINES if line.user_id == question.user_id)
        assert last < question.now, "a question must not be asked before its answer was said"


@dataclass
class FakeMemory:
    """Knows the questions' answers, as far as `knows` goes."""

    path: Path
    knows: bool = True
    embed: float = 1.5
    records: list[MemoryRecord] = field(default_factory=list)

    def __enter__(self) -> FakeMemory:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def add(self, message: dict[str, str], **given: Any) -> None:
        self.records.append(
            MemoryRecord(
                id=given["idempotency_key"],
                scope=Scope(user_id=given["user_id"], session_id=given["session_id"]),
                kind=Kind.EPISODE,
                content=message["content"],
                occurred_at=given["occurred_at"],
                recorded_at=given["occurred_at"],
                role=Role(message["role"]),
            )
        )

    def flush(self, progress: object = None) -> None:
        return None

    def search(self, query: str, *, user_id: str, top_k: int, now: datetime) -> Result:
        expects = next(q.expects for q in demo.questions() if q.question == query)
        mine = [r for r in self.records if r.scope.user_id == user_id]
        mine.sort(key=lambda r: (expects in r.content) != self.knows)
        hits = tuple(
            Hit(
                id=r.id,
                content=r.content,
                relevance=0.9,
                score=0.8,
                kind=r.kind,
                occurred_at=r.occurred_at,
                confidence=1.0,
                state=State.ACTIVE,
                memory=r,
            )
            for r in mine[:top_k]
        )
        return Result(hits=hits, timings={"embed": self.embed, "total": self.embed + 1})

    def context(self, query: str, **_: Any) -> Any:
        return SimpleNamespace(text="[m1] a memory in brackets", tokens=7)


def shown(monkeypatch: pytest.MonkeyPatch, *arguments: str, **fake: Any) -> tuple[int, str]:
    monkeypatch.setattr(scrubjay, "Memory", lambda path: FakeMemory(path, **fake), raising=False)
    console = Console(file=io.StringIO(), width=100)
    code = main(arguments, console)
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_the_demo_shows_and_counts_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = shown(monkeypatch)
    assert code == 0
    assert text.rstrip().endswith("12 of 12 questions answered by a memory in the first five")
    assert "Searched by words and vectors." in text
    assert "[m1] a memory in brackets" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_missing_memory_is_named_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = shown(monkeypatch, knows=False, embed=0.0)
    assert code == 1
    assert "0 of 12 questions answered" in text
    assert "expected, and not found: aisle from now on" in text
    assert "words only" in text


def test_a_refusing_store_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(path: Path) -> FakeMemory:
        raise StoreReadOnly(f"{path} cannot be written; choose another --path")

    monkeypatch.setattr(scrubjay, "Memory", refuse, raising=False)
    console = Console(file=io.StringIO(), width=300)
    assert main(["--path", str(tmp_path)], console) == 2
    assert isinstance(console.file, io.StringIO)
    assert "StoreReadOnly" in console.file.getvalue()
