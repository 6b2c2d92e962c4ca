"""LoCoMo (Maharana et al., ACL 2024): very long conversations between two people.

Reads the official `locomo10.json` shape: a list of `{sample_id, conversation, qa}`. One turn is
one message, with its speaker's name in front, since it was said between two named people, and
its picture's caption behind. A question is answered by the turns in its `evidence`; recall is
averaged over the questions of categories 1 to 4. Times carry no zone in the set and are read
as UTC. Each question is asked at the end of its conversation's last session.
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
    parse_time,
    read_json,
)

CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop"}
"""The scored categories; 5 (adversarial) has no retrieval to score."""

_CUTS = (1, 5, 10, 20)
_DIALOGUE_ID = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_TIME = re.compile(r"(\d{1,2}):(\d{2}) ([ap]m) on (\d{1,2}) (\w+), (\d{4})", re.IGNORECASE)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2}) (\d{2}):(\d{2})")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def load(path: Path, limit: int | None = None) -> Benchmark:
    """The conversations and questions of a LoCoMo file.

    `limit` keeps the first questions that are scored, and only the conversations they need.
    Raises `InvalidInput` when the file is missing or has another shape.
    """
    check_limit(limit)
    samples, fingerprint = read_json(path)
    if not isinstance(samples, list) or not samples:
        raise InvalidInput("LoCoMo: expected a list of conversations with 'conversation' and 'qa'")
    says: list[Said] = []
    questions: list[Question] = []
    skipped: Counter[str] = Counter()
    for number, sample in enumerate(samples, start=1):
        where = f"LoCoMo conversation {number}"
        user_id = f"locomo-{fingerprint}-{need(sample, 'sample_id', str, where)}"
        turns = list(_turns(need(sample, "conversation", dict, where), user_id, where))
        if not turns:
            raise InvalidInput(f"{where}: no 'session_N' with turns; is this the right file?")
        asked = list(_questions(sample, turns, where, skipped))
        says += turns
        questions += asked
        if limit is not None and len(questions) >= limit:
            break
    return Benchmark(
        name="locomo",
        by="category",
        says=says,
        questions=questions[:limit],
        scorer=scores,
        depth=max(_CUTS),
        with_context=True,
        skipped=dict(skipped),
    )


def scores(ranked: Labels, gold: Collection[str]) -> dict[str, float]:
    """`recall@1 recall@5 recall@10 recall@20` and `mrr` (within 20 hits) of one question.

    >>> scores([{"D1:1"}, {"D1:2"}], {"D1:2"})["mrr"]
    0.5
    """
    found = {f"recall@{k}": score.recall_at(ranked, gold, k) for k in _CUTS}
    return {**found, "mrr": score.reciprocal_rank(ranked, gold)}


def parse_session_time(text: str, where: str = "LoCoMo") -> datetime:
    """The time of a session, as UTC.

    >>> parse_session_time("1:56 pm on 8 May, 2023").isoformat()
    '2023-05-08T13:56:00+00:00'
    """
    found = _TIME.fullmatch(text.strip())
    month = found and found[5][:3].lower()
    if not found or month not in _MONTHS:
        raise InvalidInput(f"{where}: cannot read the time {text!r}, e.g. '1:56 pm on 8 May, 2023'")
    hour = int(found[1]) % 12 + (12 if found[3].lower() == "pm" else 0)
    iso = f"{found[6]}-{_MONTHS.index(month) + 1:02}-{int(found[4]):02} {hour:02}:{found[2]}"
    return parse_time(iso, _ISO, where).replace(tzinfo=UTC)


def _turns(conversation: dict[str, Any], user_id: str, where: str) -> Iterator[Said]:
    """Every turn with something in it, session after session."""
    sessions = sorted(
        (int(found[1]), name)
        for name in conversation
        if (found := _SESSION.fullmatch(name)) and isinstance(conversation[name], list)
    )
    for _, name in sessions:
        when = parse_session_time(need(conversation, f"{name}_date_time", str, where), where)
        for turn in conversation[name]:
            dialogue_id = need(turn, "dia_id", str, f"{where}, {name}")
            here = f"{where}, {dialogue_id}"
            speaker = need(turn, "speaker", str, here)
            text = need(turn, "text", str, here).strip()
            caption = turn.get("blip_caption")
            if isinstance(caption, str) and caption.strip():
                text = f"{text} [image: {caption.strip()}]".strip()
            if text:
                yield Said(
                    user_id=user_id,
                    session_id=f"{user_id}-{name}",
                    key=f"{user_id}-{dialogue_id}",
                    label=dialogue_id,
                    role="user",
                    content=f"{speaker}: {text}",
                    occurred_at=when,
                    metadata={"dialogue_id": dialogue_id, "speaker": speaker},
                )


def _questions(
    sample: dict[str, Any], turns: list[Said], where: str, skipped: Counter[str]
) -> Iterator[Question]:
    """The questions of categories 1 to 4 with evidence that exists; the others are counted."""
    known = {turn.label for turn in turns}
    for number, item in enumerate(need(sample, "qa", list, where), start=1):
        here = f"{where}, question {number}"
        category = need(item, "category", int, here)
        if category not in CATEGORIES:
            skipped["adversarial"] += 1
            continue
        gold = known.intersection(
            dialogue_id
            for part in need(item, "evidence", list, here)
            for dialogue_id in _DIALOGUE_ID.findall(str(part))
        )
        if not gold:
            skipped["no evidence"] += 1
            continue
        yield Question(
            question_id=f"{turns[0].user_id}-q{number}",
            user_id=turns[0].user_id,
            text=need(item, "question", str, here),
            now=max(turn.occurred_at for turn in turns),
            gold=frozenset(gold),
            group=CATEGORIES[category],
        )
