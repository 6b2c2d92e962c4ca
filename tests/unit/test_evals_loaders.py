"""The loaders on small invented files of the official shapes, and the run on a small fake.

With `SCRUBJAY_EVAL_DATA` naming a folder that holds the real sets, they are loaded too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import scrubjay
from scrubjay import evals
from scrubjay.errors import IdempotencyConflict, InvalidInput

LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "conv-a",
        "conversation": {
            "speaker_a": "Ines",
            "speaker_b": "Tomas",
            "session_2_date_time": "12:05 am on 3 March, 2024",
            "session_2": [{"speaker": "Tomas", "dia_id": "D2:1", "text": "The kiln cracked."}],
            "session_1_date_time": "4:30 pm on 28 February, 2024",
            "session_1": [
                {"speaker": "Ines", "dia_id": "D1:1", "text": "I adopted a grey parrot."},
                {
                    "speaker": "Tomas",
                    "dia_id": "D1:2",
                    "text": "Look at this!",
                    "blip_caption": "a photo of a clay bowl",
                    "img_url": ["https://example.org/bowl.jpg"],
                },
                {"speaker": "Ines", "dia_id": "D1:3", "text": ""},
            ],
            "session_3_date_time": "1:00 pm on 9 March, 2024",
        },
        "qa": [
            {
                "question": "Which bird did Ines adopt?",
                "answer": "a parrot",
                "evidence": ["D1:1"],
                "category": 4,
            },
            {
                "question": "What broke, and what was shown?",
                "answer": 2024,
                "evidence": ["D2:1; D1:2", "D", "D:1:9", "D44:1"],
                "category": 1,
            },
            {"question": "Why?", "answer": "none", "evidence": [], "category": 3},
            {"question": "Which cat?", "adversarial_answer": "x", "evidence": [], "category": 5},
        ],
    },
    {
        "sample_id": "conv-b",
        "conversation": {
            "session_1_date_time": "9:00 am on 1 April, 2024",
            "session_1": [{"speaker": "Noor", "dia_id": "D1:1", "text": "I plant tulips."}],
        },
        "qa": [
            {"question": "What flowers?", "answer": "tulips", "evidence": ["D1:1"], "category": 2}
        ],
    },
]
POOL: dict[str, Any] = {
    "sessions": [
        {
            "session_id": "s1",
            "date": "2024/02/20 (Tue) 03:10",
            "turns": [{"role": "user", "content": "My cello needs new strings."}],
        },
        {
            "session_id": "s2",
            "date": "2024/02/21 (Wed) 03:10",
            "turns": [{"role": "assistant", "content": "The ferry leaves at seven."}],
        },
    ],
    "questions": [
        {
            "question_id": "q1_abs",
            "question_type": "multi-session",
            "question": "Which drum?",
            "question_date": "2024/03/01 (Fri) 08:00",
            "answer": ["none"],
            "answer_session_ids": ["s1"],
        },
        {
            "question_id": "q2",
            "question_type": "single-session-user",
            "question": "What does my cello need?",
            "question_date": "2024/03/01 (Fri) 08:00",
            "answer": ["strings"],
            "answer_session_ids": ["s1"],
        },
    ],
}
OFFICIAL: list[dict[str, Any]] = [
    {
        "question_id": f"o{n}",
        "question_type": "knowledge-update",
        "question": "Where does my sister live now?",
        "question_date": "2024/03/01 (Fri) 08:00",
        "answer": "Porto",
        "answer_session_ids": ["answer_1"],
        "haystack_session_ids": ["noise_1", "answer_1"],
        "haystack_dates": ["2024/02/01 (Thu) 10:00", "2024/02/02 (Fri) 10:00"],
        "haystack_sessions": [
            [
                {"role": "user", "content": f"Tell me about rivers {n}."},
                {"role": "assistant", "content": "Rivers flow."},
            ],
            [
                {"role": "user", "content": "My sister moved to Porto."},
                {"role": "user", "content": "She likes it."},
            ],
        ],
    }
    for n in (1, 2)
]
MEMDAILY: list[dict[str, Any]] = [
    {
        "id": "01_x",
        "kind": "simple",
        "messages": [
            {"id": "t1", "message": "我表弟在苏州开花店。", "time": "2024年04月01日 周一 07:34"},
            {"id": "n1", "message": "今天有点困。", "time": "2024年04月01日 周一 08:05"},
        ],
        "question": "我表弟在哪里开花店？",
        "question_time": "2024年04月04日 周四 07:21",
        "answer": "苏州",
        "choices": {"A": "苏州"},
        "target_ids": ["t1"],
    }
]


def write(folder: Path, data: object) -> Path:
    path = folder / "data.json"
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def test_locomo_turns_carry_speaker_caption_time_and_id(tmp_path: Path) -> None:
    loaded = evals.load("locomo", write(tmp_path, LOCOMO))
    first = [(s.label, s.content, s.occurred_at.isoformat()) for s in loaded.says[:3]]
    assert first == [
        ("D1:1", "Ines: I adopted a grey parrot.", "2024-02-28T16:30:00+00:00"),
        (
            "D1:2",
            "Tomas: Look at this! [image: a photo of a clay bowl]",
            "2024-02-28T16:30:00+00:00",
        ),
        ("D2:1", "Tomas: The kiln cracked.", "2024-03-03T00:05:00+00:00"),
    ]
    assert loaded.says[0].metadata == {"dialogue_id": "D1:1", "speaker": "Ines"}
    assert len({s.session_id for s in loaded.says}) == 3
    assert len({s.user_id for s in loaded.says}) == 2


def test_locomo_evidence_is_what_matches_and_exists(tmp_path: Path) -> None:
    loaded = evals.load("locomo", write(tmp_path, LOCOMO))
    assert [(q.group, q.gold) for q in loaded.questions] == [
        ("4 single-hop", {"D1:1"}),
        ("1 multi-hop", {"D2:1", "D1:2"}),
        ("2 temporal", {"D1:1"}),
    ]
    assert loaded.skipped == {"no evidence": 1, "adversarial": 1}
    assert loaded.questions[0].now.isoformat() == "2024-03-03T00:05:00+00:00"


def test_a_limit_keeps_only_the_conversations_it_needs(tmp_path: Path) -> None:
    loaded = evals.load("locomo", write(tmp_path, LOCOMO), limit=2)
    assert len(loaded.questions) == 2
    assert {s.user_id for s in loaded.says} == {loaded.questions[0].user_id}


def test_longmemeval_pool_is_one_user(tmp_path: Path) -> None:
    loaded = evals.load("longmemeval", write(tmp_path, POOL))
    assert [(s.label, s.role) for s in loaded.says] == [("s1", "user"), ("s2", "assistant")]
    assert {s.user_id for s in loaded.says} == {loaded.questions[0].user_id}
    assert [q.question_id for q in loaded.questions] == ["q2"]
    assert loaded.skipped == {"no answer": 1}
    assert loaded.questions[0].now.isoformat() == "2024-03-01T08:00:00+00:00"


def test_longmemeval_official_is_one_user_a_question(tmp_path: Path) -> None:
    loaded = evals.load("longmemeval", write(tmp_path, OFFICIAL))
    assert [s.label for s in loaded.says] == ["noise_1", "answer_1", "answer_1"] * 2
    assert len({s.user_id for s in loaded.says}) == 2
    one = evals.load("longmemeval", write(tmp_path, OFFICIAL), limit=1)
    assert (len(one.questions), len(one.says)) == (1, 3)


def test_memdaily_times_are_in_shanghai(tmp_path: Path) -> None:
    loaded = evals.load("memdaily", write(tmp_path, MEMDAILY))
    assert loaded.says[0].occurred_at.isoformat() == "2024-04-01T07:34:00+08:00"
    assert loaded.questions[0].now.isoformat() == "2024-04-04T07:21:00+08:00"
    assert loaded.questions[0].gold == {"t1"}


@pytest.mark.parametrize("name", evals.NAMES)
@pytest.mark.parametrize("data", [{}, [], [{}], "text", None, [[]], {"sessions": [{}]}])
def test_a_wrong_file_is_an_invalid_input(tmp_path: Path, name: str, data: object) -> None:
    with pytest.raises(InvalidInput):
        evals.load(name, write(tmp_path, data))


@pytest.mark.parametrize("name", evals.NAMES)
def test_a_file_of_another_set_is_an_invalid_input(tmp_path: Path, name: str) -> None:
    for other, data in [("locomo", LOCOMO), ("longmemeval", POOL), ("memdaily", MEMDAILY)]:
        if other != name:
            with pytest.raises(InvalidInput):
                evals.load(name, write(tmp_path, data))


def test_unreadable_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        evals.load("locomo", tmp_path / "nothing.json")
    with pytest.raises(InvalidInput, match="directory"):
        evals.load("locomo", tmp_path)
    (tmp_path / "torn.json").write_bytes(b'[{"sample_id": "c\xff')
    with pytest.raises(InvalidInput, match="not JSON"):
        evals.load("locomo", tmp_path / "torn.json")


def test_unknown_names_limits_and_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="locomo, longmemeval, memdaily"):
        evals.load("squad", write(tmp_path, LOCOMO))
    for limit in (0, -3, True):
        with pytest.raises(InvalidInput, match="starts at 1"):
            evals.load("locomo", write(tmp_path, LOCOMO), limit=limit)
    odd = json.loads(json.dumps(MEMDAILY).replace("04\\u670801\\u65e5", "13\\u670801\\u65e5"))
    with pytest.raises(InvalidInput, match="not in the calendar"):
        evals.load("memdaily", write(tmp_path, odd))


def test_missing_gold_is_a_damaged_file(tmp_path: Path) -> None:
    pool = {**POOL, "sessions": POOL["sessions"][1:]}
    with pytest.raises(InvalidInput, match="answer sessions are not there"):
        evals.load("longmemeval", write(tmp_path, pool))
    broken = [{**MEMDAILY[0], "target_ids": ["t9"]}]
    with pytest.raises(InvalidInput, match="target messages are not there"):
        evals.load("memdaily", write(tmp_path, broken))


# --- the run, on a fake that shares words between question and memory --------------------------


@dataclass
class Row:
    id: str
    content: str
    user_id: str
    sources: list[Any]

    @property
    def memory(self) -> Row:
        return self


@dataclass
class Source:
    turn_id: str


@dataclass
class Receipt:
    ids: list[str]
    turn_ids: list[str]


@dataclass
class Found:
    hits: list[Row]
    timings: dict[str, float]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.hits)


@dataclass
class Context:
    tokens: int


@dataclass
class FakeMemory:
    """Ranks a user's memories by shared words; identical texts become one memory."""

    path: Path
    settings: Any = None
    rows: dict[str, Row] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[str, Receipt]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    flushed: int = 0

    def __enter__(self) -> FakeMemory:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def add(self, message: dict[str, str], *, user_id: str, idempotency_key: str, **_: Any) -> Any:
        known = self.keys.get((user_id, idempotency_key))
        if known is not None:
            if known[0] != message["content"]:
                raise IdempotencyConflict("the same key, another body")
            return known[1]
        turn = f"turn-{len(self.keys)}"
        row = self.rows.setdefault(
            f"{user_id}/{message['content']}",
            Row(f"memory-{len(self.rows)}", message["content"], user_id, []),
        )
        row.sources.append(Source(turn))
        receipt = Receipt([row.id], [turn])
        self.keys[user_id, idempotency_key] = (message["content"], receipt)
        return receipt

    def flush(self, progress: object = None) -> None:
        self.flushed += 1

    def search(self, query: str, *, user_id: str, top_k: int, now: datetime) -> Found:
        self.asked.append(top_k)
        words = set(query.lower())
        mine = [row for row in self.rows.values() if row.user_id == user_id]
        mine.sort(key=lambda row: -len(words & set(row.content.lower())) / len(row.content))
        return Found(mine[:top_k], {"embed": 2.0, "total": 5.0})

    def context(self, query: str, *, user_id: str, now: datetime) -> Context:
        return Context(tokens=100)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[FakeMemory]:
    opened: list[FakeMemory] = []

    def open_fake(path: Path, settings: Any = None) -> FakeMemory:
        known = next((each for each in opened if each.path == path), None)
        if known is None:
            known = FakeMemory(path, settings)
            opened.append(known)
        return known

    monkeypatch.setattr(scrubjay, "Memory", open_fake, raising=False)
    return opened


def test_a_run_adds_asks_and_reports(tmp_path: Path, fake: list[FakeMemory]) -> None:
    steps: list[tuple[int, int, str]] = []
    report = evals.run(
        "locomo", write(tmp_path, LOCOMO), progress=lambda *step: steps.append(step)
    ).to_dict()
    assert (report["messages"], report["questions"]) == (4, 3)
    assert report["channels"] == "words and vectors"
    assert report["recall@20"] == 1.0
    assert set(report["by_category"]) == {"1 multi-hop", "2 temporal", "4 single-hop"}
    assert report["tokens_per_query"] == 100.0
    assert report["latency_ms"]["with_embedding"] == {"p50": 5.0, "p95": 5.0}
    assert report["latency_ms"]["without_embedding"] == {"p50": 3.0, "p95": 3.0}
    assert steps[0] == (1, 4, "add")
    assert steps[-1] == (3, 3, "ask")
    assert (1, 1, "embed") in steps
    assert fake[0].flushed == 1


def test_a_temporary_store_is_gone_afterwards(tmp_path: Path, fake: list[FakeMemory]) -> None:
    evals.run("memdaily", write(tmp_path, MEMDAILY))
    assert not fake[0].path.parent.exists()


def test_a_named_store_is_not_filled_twice(tmp_path: Path, fake: list[FakeMemory]) -> None:
    data = write(tmp_path, LOCOMO)
    first = evals.run("locomo", data, store=tmp_path / "kept")
    again = evals.run("locomo", data, store=tmp_path / "kept")
    assert len(fake) == 1
    assert len(fake[0].rows) == first.messages
    assert again.overall == first.overall


def test_another_file_gets_other_users(tmp_path: Path, fake: list[FakeMemory]) -> None:
    evals.run("locomo", write(tmp_path, LOCOMO), store=tmp_path / "kept")
    evals.run("locomo", write(tmp_path, LOCOMO[:1]), store=tmp_path / "kept")
    assert len({row.user_id for row in fake[0].rows.values()}) == 3


def test_a_repeated_statement_counts_for_every_label(
    tmp_path: Path, fake: list[FakeMemory]
) -> None:
    twice = json.loads(json.dumps(LOCOMO[:1]))
    twice[0]["conversation"]["session_2"].append(
        {"speaker": "Ines", "dia_id": "D2:2", "text": "I adopted a grey parrot."}
    )
    twice[0]["qa"] = [
        {"question": "parrot adopted?", "answer": 1, "evidence": ["D1:1", "D2:2"], "category": 4}
    ]
    report = evals.run("locomo", write(tmp_path, twice))
    assert len(fake[0].rows) == 3
    assert report.overall["recall@5"] == 1.0


def test_sessions_are_searched_until_ten_are_there(tmp_path: Path, fake: list[FakeMemory]) -> None:
    pool = {
        "sessions": [
            {
                "session_id": f"s{n}",
                "date": "2024/02/20 (Tue) 03:10",
                "turns": [{"role": "user", "content": f"strings {n} {m}"} for m in range(4)],
            }
            for n in range(12)
        ],
        "questions": [{**POOL["questions"][1], "answer_session_ids": ["s1"]}],
    }
    report = evals.run("longmemeval", write(tmp_path, pool))
    assert fake[0].asked == [10, 20, 40]
    assert report.tokens_per_query is None
    assert "tokens_per_query" not in report.to_dict()


def test_few_memories_end_the_deepening(tmp_path: Path, fake: list[FakeMemory]) -> None:
    report = evals.run("longmemeval", write(tmp_path, POOL))
    assert fake[0].asked == [10]
    assert report.overall["recall_any@5"] == 1.0
    assert report.groups == {"single-session-user": {"questions": 1, **report.overall}}


# --- the real sets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("locomo", "locomo.json"),
        ("longmemeval", "longmemeval_pool.json"),
        ("longmemeval", "longmemeval_s_one.json"),
        ("memdaily", "memdaily.json"),
    ],
)
def test_the_real_sets_load(name: str, file: str) -> None:
    folder = os.environ.get("SCRUBJAY_EVAL_DATA")
    if not folder:
        pytest.skip("SCRUBJAY_EVAL_DATA does not name the folder of the evaluation sets")
    path = Path(folder) / file
    if not path.exists():
        pytest.skip(f"the folder SCRUBJAY_EVAL_DATA names holds no {file}")
    loaded = evals.load(name, path)
    assert loaded.questions
    assert len({(said.user_id, said.key) for said in loaded.says}) == len(loaded.says)
    labels = {(said.user_id, said.label) for said in loaded.says}
    assert all((q.user_id, label) in labels for q in loaded.questions for label in q.gold)
    assert all(said.content.strip() for said in loaded.says)
