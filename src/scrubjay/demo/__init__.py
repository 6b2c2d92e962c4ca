"""A bilingual conversation of our own making, and questions whose memories are known.

Maya, a designer, writes English; 周琳, an engineer, writes Chinese; neither exists. Both change
their minds, name orders, files, people and pets, and each has a tool result. `ingest` adds the
conversation through the public verbs (a second time adds nothing), `ask` tells for each question
whether the memory that answers it is among the first five. `python -m scrubjay.demo` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrubjay import Hit, Memory

FIRST = 5
"""A question is answered when its memory is among this many hits."""


@dataclass(frozen=True, slots=True)
class Line:
    """One turn of the sample conversation. `key` makes adding it again add nothing."""

    user_id: str
    session_id: str
    role: str
    content: str
    occurred_at: datetime
    key: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question asked at `now`; the memory that answers it contains `expects`."""

    user_id: str
    question: str
    now: datetime
    expects: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question brought back, best first. `embed_ms` is 0 when words alone were searched."""

    question: Question
    hits: Sequence[Hit]
    notes: Sequence[str]
    embed_ms: float
    total_ms: float

    @property
    def found(self) -> bool:
        """Whether the expected memory is among the hits."""
        return any(self.matches(hit) for hit in self.hits)

    def matches(self, hit: Hit) -> bool:
        """Whether this hit is the expected memory."""
        return self.question.expects in hit.content


def conversation() -> Iterator[Line]:
    """The turns of both users, in the order in which they were said.

    >>> next(conversation()).user_id
    'maya'
    """
    text = files(__name__).joinpath("conversation.jsonl").read_text(encoding="utf-8")
    for number, row in enumerate(map(json.loads, text.splitlines()), start=1):
        yield Line(
            user_id=row["user_id"],
            session_id=row["session_id"],
            role=row["role"],
            content=row["content"],
            occurred_at=datetime.fromisoformat(row["occurred_at"]),
            key=f"demo-{number}",
        )


def questions() -> list[Question]:
    """Six questions in English and six in Chinese.

    >>> len(questions())
    12
    """
    text = files(__name__).joinpath("questions.json").read_text(encoding="utf-8")
    return [
        Question(
            user_id=row["user_id"],
            question=row["question"],
            now=datetime.fromisoformat(row["now"]),
            expects=row["expects"],
        )
        for row in json.loads(text)
    ]


def ingest(memory: Memory, lines: Iterable[Line], tell: Callable[[], object]) -> int:
    """Add every line, one `add` each, and return how many; `tell` is called after each."""
    count = 0
    for line in lines:
        memory.add(
            {"role": line.role, "content": line.content},
            user_id=line.user_id,
            session_id=line.session_id,
            occurred_at=line.occurred_at,
            idempotency_key=line.key,
        )
        count += 1
        tell()
    return count


def ask(memory: Memory, question: Question) -> Answer:
    """Search for the first five memories that answer the question."""
    result = memory.search(
        question.question, user_id=question.user_id, top_k=FIRST, now=question.now
    )
    return Answer(
        question=question,
        hits=list(result),
        notes=list(result.notes),
        embed_ms=result.timings.get("embed", 0.0),
        total_ms=result.timings.get("total", 0.0),
    )
