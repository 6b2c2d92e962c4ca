"""LongMemEval (Wu et al., ICLR 2025): which of many chat sessions hold the answer.

Reads two shapes. The *official* one (`longmemeval_s.json`) is a list of questions, each with a
haystack of its own: each question is a user, and only the user's turns are added. The *pool*
form is `{sessions, questions}`: one user holds every session, and all questions are asked of it.
A pool is cut to the turns that hold evidence before it is written, which in some sessions is the
assistant's alone, so every turn of it is added, each in its role. In both, one turn is one
message; a session is found through any of its turns; questions whose id ends in `_abs` have no
answer and are skipped. Times carry no zone in the set and are read as UTC.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrubjay.errors import InvalidInput
from scrubjay.evals import score
from scrubjay.evals.harness import (
    Benchmark,
    Labels,
    Question,
    Said,
    check_limit,
    need,
    need_strings,
    parse_time,
    read_json,
)

_SESSIONS = 10
_TIME = re.compile(r"(\d{4})/(\d{2})/(\d{2}) (?:\(\w+\) )?(\d{2}):(\d{2})")


def load(path: Path, limit: int | None = None) -> Benchmark:
    """The sessions and questions of a LongMemEval file, in either shape.

    `limit` keeps the first questions that have an answer. In the official form only their
    haystacks are added; in the pool form the pool is the haystack of each, and stays whole.
    Raises `InvalidInput` when the file is missing or has another shape.
    """
    check_limit(limit)
    data, fingerprint = read_json(path)
    if isinstance(data, dict):
        return _pool(data, f"longmemeval-{fingerprint}-pool", limit)
    if isinstance(data, list) and data:
        return _official(data, f"longmemeval-{fingerprint}", limit)
    raise InvalidInput(
        "LongMemEval: expected a list of questions with 'haystack_sessions', or an object with "
        "'sessions' and 'questions'"
    )


def scores(ranked: Labels, gold: Collection[str]) -> dict[str, float]:
    """`recall_any@5 recall_all@5 recall_all@10 ndcg@10` of one question, over sessions.

    >>> scores([["s2"], ["s2"], ["s1"]], {"s1"})["recall_all@5"]
    1.0
    """
    sessions = score.distinct(ranked)
    return {
        "recall_any@5": score.recall_any(sessions, gold, 5),
        "recall_all@5": score.recall_all(sessions, gold, 5),
        "recall_all@10": score.recall_all(sessions, gold, 10),
        "ndcg@10": score.ndcg(sessions, gold, 10),
    }


def parse_date(text: str, where: str = "LongMemEval") -> datetime:
    """The date of a session or question, as UTC.

    >>> parse_date("2023/05/27 (Sat) 10:20").isoformat()
    '2023-05-27T10:20:00+00:00'
    """
    return parse_time(text, _TIME, where).replace(tzinfo=UTC)


def _pool(data: dict[str, Any], user_id: str, limit: int | None) -> Benchmark:
    says: list[Said] = []
    known: set[str] = set()
    for number, session in enumerate(need(data, "sessions", list, "LongMemEval pool"), start=1):
        where = f"LongMemEval session {number}"
        session_id = need(session, "session_id", str, where)
        known.add(session_id)
        says += _session(
            user_id,
            number,
            session_id,
            need(session, "date", str, where),
            need(session, "turns", list, where),
            roles=("user", "assistant"),
        )
    questions: list[Question] = []
    skipped: Counter[str] = Counter()
    for item in need(data, "questions", list, "LongMemEval pool"):
        questions += _question(item, user_id, known, skipped)
        if len(questions) == limit:
            break
    return _benchmark(says, questions, skipped)


def _official(data: list[Any], prefix: str, limit: int | None) -> Benchmark:
    says: list[Said] = []
    questions: list[Question] = []
    skipped: Counter[str] = Counter()
    for number, item in enumerate(data, start=1):
        where = f"LongMemEval question {number}"
        user_id = f"{prefix}-{need(item, 'question_id', str, where)}"
        ids = need_strings(item, "haystack_session_ids", where)
        dates = need_strings(item, "haystack_dates", where)
        sessions = need(item, "haystack_sessions", list, where)
        if not len(ids) == len(dates) == len(sessions):
            raise InvalidInput(f"{where}: its session ids, dates and sessions differ in number")
        haystack: list[Said] = []
        for place, (session_id, date, turns) in enumerate(
            zip(ids, dates, sessions, strict=True), start=1
        ):
            haystack += _session(user_id, place, session_id, date, turns, roles=("user",))
        asked = list(_question(item, user_id, set(ids), skipped))
        if asked:
            says += haystack
            questions += asked
        if len(questions) == limit:
            break
    return _benchmark(says, questions, skipped)


def _benchmark(says: list[Said], questions: list[Question], skipped: Counter[str]) -> Benchmark:
    return Benchmark(
        name="longmemeval",
        by="type",
        says=says,
        questions=questions,
        scorer=scores,
        depth=_SESSIONS,
        distinct_labels=True,
        skipped=dict(skipped),
    )


def _session(
    user_id: str, place: int, session_id: str, date: str, turns: object, roles: Collection[str]
) -> Iterator[Said]:
    """One session's turns in these roles; a session id may come twice, its place does not."""
    where = f"LongMemEval session {session_id!r}"
    when = parse_date(date, where)
    if not isinstance(turns, list):
        raise InvalidInput(f"{where}: its turns should be a list, found {type(turns).__name__}")
    for number, turn in enumerate(turns, start=1):
        role = need(turn, "role", str, where)
        content = need(turn, "content", str, where)
        if role in roles and content.strip():
            yield Said(
                user_id=user_id,
                session_id=session_id,
                key=f"{user_id}-{place}-{number}",
                label=session_id,
                role=role,
                content=content,
                occurred_at=when,
                metadata={"session": session_id, "message": f"{place}-{number}"},
            )


def _question(
    item: object, user_id: str, known: set[str], skipped: Counter[str]
) -> Iterator[Question]:
    """The question, unless it has no answer."""
    question_id = need(item, "question_id", str, "LongMemEval question")
    where = f"LongMemEval question {question_id!r}"
    gold = frozenset(need_strings(item, "answer_session_ids", where))
    if question_id.endswith("_abs"):
        skipped["no answer"] += 1
    elif not gold:
        skipped["no evidence"] += 1
    elif not gold <= known:
        raise InvalidInput(f"{where}: {len(gold - known)} of its answer sessions are not there")
    else:
        yield Question(
            question_id=question_id,
            user_id=user_id,
            text=need(item, "question", str, where),
            now=parse_date(need(item, "question_date", str, where), where),
            gold=gold,
            group=need(item, "question_type", str, where),
        )
