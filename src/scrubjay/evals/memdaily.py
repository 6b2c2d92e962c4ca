"""MemDaily (MemSim, Zhang et al. 2024): Chinese everyday messages and questions about them.

Reads a list of trajectories `{id, kind, messages, question, question_time, target_ids}`. Each is
a user; one message is one `add` at its time in Asia/Shanghai; the question is asked at its
`question_time`, without its choices; recall counts the messages in `target_ids`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

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

_TIME = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日(?: 周.)? (\d{1,2}):(\d{2})")
_CUTS = (5, 10)


def load(path: Path, limit: int | None = None) -> Benchmark:
    """The messages and questions of a MemDaily file.

    `limit` keeps the first trajectories, each of which has one question.
    Raises `InvalidInput` when the file is missing or has another shape.
    """
    check_limit(limit)
    trajectories, fingerprint = read_json(path)
    if not isinstance(trajectories, list) or not trajectories:
        raise InvalidInput("MemDaily: expected a list of trajectories with 'messages'")
    says: list[Said] = []
    questions: list[Question] = []
    skipped = 0
    for number, item in enumerate(trajectories, start=1):
        where = f"MemDaily trajectory {number}"
        user_id = f"memdaily-{fingerprint}-{need(item, 'id', str, where)}"
        messages = list(_messages(need(item, "messages", list, where), user_id, where))
        gold = frozenset(need_strings(item, "target_ids", where))
        missing = gold - {said.label for said in messages}
        if missing:
            raise InvalidInput(f"{where}: {len(missing)} of its target messages are not there")
        if not gold:
            skipped += 1
            continue
        says += messages
        questions.append(
            Question(
                question_id=user_id,
                user_id=user_id,
                text=need(item, "question", str, where),
                now=parse_message_time(need(item, "question_time", str, where), where),
                gold=gold,
                group=need(item, "kind", str, where),
            )
        )
        if len(questions) == limit:
            break
    return Benchmark(
        name="memdaily",
        by="kind",
        says=says,
        questions=questions,
        scorer=scores,
        depth=max(_CUTS),
        skipped={"no evidence": skipped} if skipped else {},
    )


def scores(ranked: Labels, gold: Collection[str]) -> dict[str, float]:
    """`recall@5` and `recall@10` of one question.

    >>> scores([{"t1"}, {"n4"}], {"t1", "t2"})
    {'recall@5': 0.5, 'recall@10': 0.5}
    """
    return {f"recall@{k}": score.recall_at(ranked, gold, k) for k in _CUTS}


def parse_message_time(text: str, where: str = "MemDaily") -> datetime:
    """The time of a message or question, in Asia/Shanghai.

    >>> parse_message_time("2024年04月01日 周一 07:34").isoformat()
    '2024-04-01T07:34:00+08:00'
    """
    return parse_time(text, _TIME, where).replace(tzinfo=ZoneInfo("Asia/Shanghai"))


def _messages(messages: list[object], user_id: str, where: str) -> Iterator[Said]:
    for message in messages:
        message_id = need(message, "id", str, where)
        content = need(message, "message", str, where)
        if content.strip():
            yield Said(
                user_id=user_id,
                session_id=user_id,
                key=f"{user_id}-{message_id}",
                label=message_id,
                role="user",
                content=content,
                occurred_at=parse_message_time(need(message, "time", str, where), where),
                metadata={"message_id": message_id},
            )
