"""Runs one benchmark through the public verbs and scores what comes back.

A loader turns a file into a `Benchmark`: what was said, what is asked, and which labels answer
it. `measure` adds every message (one message, one `add`, with an idempotency key, so that a
second run over the same store adds nothing), waits for `flush`, asks every question, and
returns a `Report`. Only `Memory`'s public verbs are used: the score is what a user gets.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scrubjay.errors import InvalidInput
from scrubjay.evals import score
from scrubjay.evals.report import Latency, Report

if TYPE_CHECKING:
    from scrubjay import Hit, Memory, Result

Progress = Callable[[int, int, str], None]
"""`progress(done, total, stage)`; the stages are "add", "embed" and "ask"."""

Labels = Sequence[Collection[str]]
Scorer = Callable[[Labels, Collection[str]], dict[str, float]]
T = TypeVar("T")

_MOST_HITS = 1000
_MOST_NOTES = 10


@dataclass(frozen=True, slots=True)
class Said:
    """One message to add. `label` is what a hit on it counts for: a dialogue id, a session."""

    user_id: str
    session_id: str
    key: str
    label: str
    role: str
    content: str
    occurred_at: datetime
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """One question, asked at `now`; `gold` holds the labels that answer it, never none."""

    question_id: str
    user_id: str
    text: str
    now: datetime
    gold: frozenset[str]
    group: str


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A loaded file: messages, questions, and how its answers are scored.

    `by` names the groups of the report ("category"). `depth` is how many hits a search asks
    for, or, where `distinct_labels` is set, how many different labels it must bring (more hits
    are then asked for until they are there or the memories are exhausted). `skipped` says how
    many questions were left out, by reason. `with_context` measures the tokens of `context`.
    """

    name: str
    by: str
    says: Sequence[Said]
    questions: Sequence[Question]
    scorer: Scorer
    depth: int
    distinct_labels: bool = False
    with_context: bool = False
    skipped: Mapping[str, int] = field(default_factory=dict)


def measure(memory: Memory, benchmark: Benchmark, progress: Progress | None = None) -> Report:
    """Add what was said, ask what is asked, and score it.

    The vectors a report speaks of are those that were there: a question counts as
    "words and vectors" when its own embedding was computed, which `Report.channels` shows.
    Errors of the store or the model pass through.
    """
    tell = progress or _silent
    started = time.perf_counter()
    answers = _ingest(memory, benchmark.says, tell)
    tell(0, 1, "embed")
    memory.flush(progress=lambda done, jobs, _: tell(done, jobs, "embed"))
    tell(1, 1, "embed")
    ingested = time.perf_counter() - started

    asked = _Asked()
    total = len(benchmark.questions)
    for done, question in enumerate(benchmark.questions, start=1):
        asked.record(question, *_ask(memory, benchmark, question, answers))
        if benchmark.with_context:
            asked.tokens.append(_context_tokens(memory, question))
        tell(done, total, "ask")
    return asked.report(benchmark, seconds_to_ingest=ingested)


class _Answers:
    """Which labels a hit counts for: by its memory id, and by the turns among its sources."""

    def __init__(self) -> None:
        self._labels: dict[str, dict[str, None]] = defaultdict(dict)

    def learn(self, ids: Iterable[str], label: str) -> None:
        for each in ids:
            self._labels[each][label] = None

    def of(self, hit: Hit) -> list[str]:
        ids = [hit.id, *(source.turn_id for source in hit.memory.sources)]
        return list(dict.fromkeys(label for i in ids for label in self._labels.get(i, ())))


def _ingest(memory: Memory, says: Sequence[Said], tell: Progress) -> _Answers:
    """One message, one `add`; an identical message may come back with the id of the first."""
    answers = _Answers()
    for done, said in enumerate(says, start=1):
        receipt = memory.add(
            {"role": said.role, "content": said.content},
            user_id=said.user_id,
            session_id=said.session_id,
            occurred_at=said.occurred_at,
            metadata=dict(said.metadata),
            idempotency_key=said.key,
        )
        answers.learn((*receipt.ids, *receipt.turn_ids), said.label)
        tell(done, len(says), "add")
    return answers


def _ask(
    memory: Memory, benchmark: Benchmark, question: Question, answers: _Answers
) -> tuple[dict[str, float], Result]:
    """Search deep enough; the scores, and the last search's result for its timings and notes."""
    top_k = benchmark.depth
    while True:
        result = memory.search(
            question.text, user_id=question.user_id, top_k=top_k, now=question.now
        )
        ranked = [answers.of(hit) for hit in result]
        enough = not benchmark.distinct_labels or len(score.distinct(ranked)) >= benchmark.depth
        if enough or len(ranked) < top_k or top_k >= _MOST_HITS:
            return benchmark.scorer(ranked, question.gold), result
        top_k = min(top_k * 2, _MOST_HITS)


def _context_tokens(memory: Memory, question: Question) -> int:
    return memory.context(question.text, user_id=question.user_id, now=question.now).tokens


class _Asked:
    """What the questions brought so far."""

    def __init__(self) -> None:
        self.scores: list[tuple[str, dict[str, float]]] = []
        self.total_ms: list[float] = []
        self.bare_ms: list[float] = []
        self.embedded = 0
        self.tokens: list[int] = []
        self.notes: Counter[str] = Counter()

    def record(self, question: Question, scores: dict[str, float], result: Result) -> None:
        embed = result.timings.get("embed", 0.0)
        self.scores.append((question.group, scores))
        self.total_ms.append(result.timings["total"])
        self.bare_ms.append(result.timings["total"] - embed)
        self.embedded += embed > 0
        self.notes.update(result.notes)

    def report(self, benchmark: Benchmark, seconds_to_ingest: float) -> Report:
        groups: dict[str, list[dict[str, float]]] = defaultdict(list)
        for group, scores in self.scores:
            groups[group].append(scores)
        return Report(
            name=benchmark.name,
            by=benchmark.by,
            messages=len(benchmark.says),
            questions=len(self.scores),
            skipped=dict(benchmark.skipped),
            questions_embedded=self.embedded,
            notes=dict(self.notes.most_common(_MOST_NOTES)),
            overall=_means(scores for _, scores in self.scores),
            groups={
                group: {"questions": len(rows), **_means(rows)}
                for group, rows in sorted(groups.items())
            },
            tokens_per_query=score.mean(self.tokens) if self.tokens else None,
            with_embedding=Latency.of(self.total_ms),
            without_embedding=Latency.of(self.bare_ms),
            seconds_to_ingest=seconds_to_ingest,
        )


def _means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            columns[name].append(value)
    return {name: score.mean(values) for name, values in columns.items()}


def _silent(done: int, total: int, stage: str) -> None:
    """No progress wanted."""


def read_json(path: Path) -> tuple[Any, str]:
    """The file's JSON and a short fingerprint of its bytes; `InvalidInput` when it has none.

    The fingerprint names the users of an evaluation, so that two files never mix in one store.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InvalidInput(
            f"cannot read the evaluation data {str(path)!r}: {why}; give the path of the set's "
            "JSON file"
        ) from error
    try:
        return json.loads(raw), hashlib.sha256(raw).hexdigest()[:8]
    except ValueError as error:
        raise InvalidInput(
            f"the evaluation data {str(path)!r} is not JSON ({type(error).__name__}); "
            "give the set's own JSON file, unpacked"
        ) from error


def need(holder: object, key: str, kind: type[T], where: str) -> T:
    """`holder[key]`, of the right type; `InvalidInput` that names the place otherwise.

    >>> need({"turns": []}, "turns", list, "session 3")
    []
    """
    if not isinstance(holder, dict):
        raise InvalidInput(f"{where}: expected an object, found {type(holder).__name__}")
    value = holder.get(key)
    if not isinstance(value, kind):
        found = "nothing" if key not in holder else type(value).__name__
        raise InvalidInput(
            f"{where}: {key!r} should be {kind.__name__}, found {found}; is this the right file?"
        )
    return value


def need_strings(holder: object, key: str, where: str) -> list[str]:
    """`holder[key]` as a list of strings; `InvalidInput` otherwise.

    >>> need_strings({"ids": ["a"]}, "ids", "question 1")
    ['a']
    """
    values = need(holder, key, list, where)
    if not all(isinstance(value, str) for value in values):
        raise InvalidInput(f"{where}: {key!r} should hold strings only; is this the right file?")
    return [str(value) for value in values]


def parse_time(text: str, pattern: re.Pattern[str], where: str) -> datetime:
    """A naive time from a pattern of five groups (year month day hour minute).

    >>> parse_time("2023.5.27.10.20", re.compile(r"[.]".join(["([0-9]+)"] * 5)), "here")
    datetime.datetime(2023, 5, 27, 10, 20)
    """
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{where}: cannot read the time {text!r}")
    year, month, day, hour, minute = (int(part) for part in found.groups())
    try:
        return datetime(year, month, day, hour, minute)  # noqa: DTZ001 - the caller adds the zone
    except ValueError as error:
        raise InvalidInput(f"{where}: the time {text!r} is not in the calendar") from error


def check_limit(limit: int | None) -> None:
    """`InvalidInput` unless `limit` is None or a count of at least one question."""
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise InvalidInput(f"limit counts questions and starts at 1, not {limit!r}")
