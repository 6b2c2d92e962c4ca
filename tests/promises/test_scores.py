"""What relevance and score promise: a scale, an order, and no dependence on how a memory lies.

Relevance is in 0 to 1 and is what a threshold cuts. Score orders the hits. Neither changes when
tails are sealed, words are indexed anew, the store is opened again or moved by an export, nor
with the order in which the same things were said. Filters apply before the top k.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from places import Places, times
from scrubjay import Hit, Memory
from scrubjay.index import compact
from scrubjay.model import PartitionKey
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import SimulatedClock

Open = Callable[..., Memory]
USER = "ada"
KEY = PartitionKey("default", "user:ada")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOLERANCE = 1e-5

_WORDS = [
    "tea",
    "coffee",
    "train",
    "ticket",
    "window",
    "seat",
    "hotel",
    "Vienna",
    "Shanghai",
    "meeting",
    "budget",
    "invoice",
    "Monday",
    "garden",
    "violin",
    "recipe",
    "pepper",
    "doctor",
    "allergy",
    "peanuts",
    "passport",
    "flight",
    "delay",
    "museum",
    "rain",
    "订票",
    "靠窗",
    "座位",
    "上海",
    "会议",
    "预算",
    "花生",
    "过敏",
    "护照",
    "航班",
    "延误",
    "医生",
    "DD20260115-7731",
    "E1042",
    "src/app/main.py",
]

QUESTIONS = (
    "window seat on the train to Vienna", "花生过敏", "E1042", "DD20260115-7731", "budget", "座位",
    "when is the meeting about the invoice?", "zzz nothing like that", "a", "src/app/main.py",
)  # fmt: skip


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randint(3, 25)))


def fill(memory: Memory, count: int = 700, seed: int = 1) -> None:
    """Sessions, single statements, repetitions, roles and times of all sorts."""
    chance = random.Random(seed)
    said: list[str] = []
    number = 0
    while number < count:
        session = chance.choice([None, "s1", "s2", "s3"])
        messages = []
        for _ in range(chance.randint(1, 6)):
            text = chance.choice(said) if said and chance.random() < 0.05 else sentence(chance)
            said.append(text)
            role = chance.choice(["user", "assistant", "tool"])
            messages.append({"role": role, "content": text})
            number += 1
        when = NOW - timedelta(days=chance.uniform(0, 400))
        memory.add(messages, user_id=USER, session_id=session, occurred_at=when,
                   metadata={"n": number % 7})  # fmt: skip


def looks(memory: Memory, **options: Any) -> dict[str, dict[str, tuple[float, float]]]:
    """Every question's answers by content, with relevance and score."""
    options = {"top_k": 1_000, "now": NOW, **options}
    found = {}
    for question in QUESTIONS:
        hits = memory.search(question, user_id=USER, **options)
        found[question] = {f"{h.content}|{h.memory.role}": (h.relevance, h.score) for h in hits}
    return found


def assert_same(
    one: dict[str, dict[str, tuple[float, float]]], other: dict[str, dict[str, tuple[float, float]]]
) -> None:
    for question, answers in one.items():
        assert answers.keys() == other[question].keys(), question
        for content, numbers in answers.items():
            assert other[question][content] == pytest.approx(numbers, abs=TOLERANCE), content


@pytest.fixture(params=["words", "vectors"])
def filled(
    request: pytest.FixtureRequest, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> Memory:
    monkeypatch.setattr(compact, "SMALLEST", 1_000_000)  # all of it stays a tail at first
    model = HashEmbedder(128) if request.param == "vectors" else "none"
    memory = open_memory(embedder=model, clock=SimulatedClock(NOW))
    fill(memory)
    memory.flush(60)
    return memory


def test_the_scale_and_the_order(filled: Memory) -> None:
    """Relevance lies in 0 to 1; scores never rise; the best comes first."""
    for question in QUESTIONS:
        hits = filled.search(question, user_id=USER, top_k=1_000, now=NOW)
        for hit in hits:
            assert 0.0 <= hit.relevance <= 1.0
            assert 0.0 <= hit.score <= hit.relevance + TOLERANCE
            assert isinstance(hit.relevance, float)
            assert isinstance(hit.score, float)
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert len({hit.id for hit in hits}) == len(hits)


def test_the_same_words_are_highly_relevant(open_memory: Open) -> None:
    """A statement asked for in its own words is near 1, one without a word of it near 0."""
    memory = open_memory(embedder=HashEmbedder())
    memory.add("the quarterly report is due on Friday", user_id=USER, wait=True)
    memory.add("violins are made of spruce and maple", user_id=USER, wait=True)
    best, *rest = memory.search("the quarterly report is due on Friday", user_id=USER)
    assert best.relevance > 0.9
    assert all(hit.relevance < 0.2 for hit in rest)


def test_fewer_are_the_first_of_more(filled: Memory) -> None:
    """`top_k` cuts a list that does not depend on it."""
    for question in QUESTIONS:
        everything = filled.search(question, user_id=USER, top_k=1_000, now=NOW)
        for k in (1, 2, 3, 5, 10, 50, 333):
            some = filled.search(question, user_id=USER, top_k=k, now=NOW)
            assert [h.id for h in some] == [h.id for h in everything][:k]


@pytest.mark.parametrize("least", [0.05, 0.2, 0.4, 0.7, 0.999, 1.0])
def test_a_threshold_cuts_by_relevance_before_the_top_k(filled: Memory, least: float) -> None:
    """What is at or above it comes, up to k of them; nothing else does."""
    for question in QUESTIONS:
        everything = filled.search(question, user_id=USER, top_k=1_000, now=NOW)
        above = [h.id for h in everything if h.relevance >= least]
        for k in (1, 3, 10, 1_000):
            cut = filled.search(question, user_id=USER, top_k=k, now=NOW, threshold=least)
            assert [h.id for h in cut] == above[:k]


def test_an_older_better_answer_passes_the_threshold(open_memory: Open) -> None:
    """Recency orders; it does not push a relevant memory out below one that is not."""
    memory = open_memory(clock=SimulatedClock(NOW))
    memory.add("pepper", user_id=USER, occurred_at=NOW)
    policy = {"recency": 0.9, "before_weight": 0.0, "after_weight": 0.0}
    memory.add("salt pepper", user_id=USER, occurred_at=NOW - timedelta(days=900))
    hits = memory.search("salt pepper", user_id=USER, policy=policy, now=NOW)
    assert [h.content for h in hits] == ["pepper", "salt pepper"]
    least = (hits[0].relevance + hits[1].relevance) / 2
    for k in (1, 2):
        found = memory.search(
            "salt pepper", user_id=USER, policy=policy, now=NOW, top_k=k, threshold=least
        )
        assert [h.content for h in found] == ["salt pepper"]


def test_doubt_orders_before_the_cut(open_memory: Open) -> None:
    """Trust and confidence decide with the rest which are the k best."""
    memory = open_memory(clock=SimulatedClock(NOW))
    policy = {"trust": 1.0, "recency": 0.01}
    memory.add("the gate code is 1234", user_id=USER, source_class="web", occurred_at=NOW)
    memory.add("the gate code is 9999", user_id=USER, occurred_at=NOW - timedelta(days=300))
    both = memory.search("gate code", user_id=USER, policy=policy, now=NOW, top_k=2)
    one = memory.search("gate code", user_id=USER, policy=policy, now=NOW, top_k=1)
    assert both[0].content == "the gate code is 9999"
    assert one[0].id == both[0].id


def test_sealing_changes_no_score(filled: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tail, segments, merged segments, a cold cache."""
    before = looks(filled)
    store = filled._parts.store
    monkeypatch.setattr(compact, "SMALLEST", 32)
    monkeypatch.setattr(compact, "_BATCH", 40)
    assert compact.seal(store, KEY) > 3
    assert_same(before, looks(filled))
    compact.seal(store, KEY, everything=True)
    assert_same(before, looks(filled))
    filled._parts.cache.clear()
    assert_same(before, looks(filled))


def test_reindexing_changes_no_score(filled: Memory) -> None:
    """Words written anew, vectors as they were."""
    before = looks(filled)
    filled.reindex()
    assert_same(before, looks(filled))


def test_reindexing_after_changes_changes_no_score(filled: Memory) -> None:
    """Also where memories were updated and forgotten in between."""
    chance = random.Random(3)
    records = list(filled.list(user_id=USER, limit=1_000))
    for record in chance.sample(records, 60):
        filled.update(record.id, sentence(chance), user_id=USER)
    for record in chance.sample(list(filled.list(user_id=USER, limit=1_000)), 60):
        filled.delete(record.id, user_id=USER)
    filled.flush(60)
    before = looks(filled)
    filled.reindex()
    filled.flush(60)
    assert_same(before, looks(filled))


def test_opening_again_changes_no_score(filled: Memory, open_memory: Open) -> None:
    """Another process would see the same."""
    before = looks(filled)
    model = filled._parts.embedding
    again = open_memory(
        embedder=HashEmbedder(128) if model.configured else "none", clock=SimulatedClock(NOW)
    )
    assert_same(before, looks(again))


def test_moving_changes_no_score(filled: Memory, open_memory: Open, tmp_path: Path) -> None:
    """An export, imported elsewhere, answers as the original does."""
    before = looks(filled)
    filled.export(tmp_path / "e", user_id=USER)
    other = open_memory(
        "other",
        embedder=HashEmbedder(128) if filled._parts.embedding.configured else "none",
        clock=SimulatedClock(NOW),
    )
    other.import_(tmp_path / "e", user_id=USER)
    other.flush(60)
    assert_same(before, looks(other))


def test_others_change_no_score(filled: Memory) -> None:
    """Scores neither depend on nor betray what another user says."""
    before = looks(filled)
    chance = random.Random(9)
    for number in range(20):
        filled.add([sentence(chance) for _ in range(50)], user_id=f"other{number}")
    filled.add("budget " * 50, user_id="other", agent_id="x", visibility="private")
    filled.flush(60)
    assert_same(before, looks(filled))


@pytest.mark.parametrize("model", ["none", "hash"])
def test_the_order_of_saying_changes_no_score(open_memory: Open, model: str) -> None:
    """The same statements at the same times, written in another order."""
    chance = random.Random(21)
    said = [(sentence(chance), NOW - timedelta(days=n)) for n in range(300)]
    found = []
    for number in range(3):
        memory = open_memory(
            f"s{number}", embedder=HashEmbedder(128) if model == "hash" else "none"
        )
        for text, when in said:
            memory.add(text, user_id=USER, occurred_at=when)
        memory.flush(60)
        found.append(looks(memory))
        chance.shuffle(said)
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


def test_any_small_store_keeps_the_promises(place: Places) -> None:
    """The scale, the order, the prefix and the threshold, in any small world."""
    examples = settings().max_examples

    @settings(max_examples=times(place, examples, examples // 3))
    @given(st.randoms(use_true_random=False), st.integers(1, 60), st.booleans())
    def keeps(chance: random.Random, count: int, vectors: bool) -> None:
        _keeps_the_promises(place, chance, count, vectors=vectors)

    keeps()


def _keeps_the_promises(place: Places, chance: random.Random, count: int, *, vectors: bool) -> None:
    model = HashEmbedder(32) if vectors else "none"
    with place.fresh() as where, Memory(where, embedder=model) as memory:
        for _ in range(count):
            memory.add(sentence(chance), user_id=USER, session_id=chance.choice([None, "s"]),
                       occurred_at=NOW - timedelta(days=chance.uniform(0, 99)))  # fmt: skip
        memory.flush(30)
        question = sentence(chance)
        everything = list(memory.search(question, user_id=USER, top_k=1_000, now=NOW))
        assert all(0 <= h.score <= h.relevance + TOLERANCE <= 1 + 2 * TOLERANCE
                   for h in everything)  # fmt: skip
        k, least = chance.randint(1, 20), chance.random()
        some = memory.search(question, user_id=USER, top_k=k, now=NOW)
        assert [h.id for h in some] == [h.id for h in everything[:k]]
        cut = memory.search(question, user_id=USER, top_k=k, threshold=least, now=NOW)
        assert [h.id for h in cut] == [h.id for h in everything if h.relevance >= least][:k]


@pytest.mark.parametrize("odd", [
    datetime(1, 1, 4, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC),
    datetime(9999, 12, 28, tzinfo=UTC),
])  # fmt: skip
def test_far_times_break_no_score(open_memory: Open, odd: datetime) -> None:
    """Memories from the year 1 or of the year 9999 have scores like others."""
    memory = open_memory()
    memory.add("long ago or far ahead", user_id=USER, occurred_at=odd)
    for now in (NOW, odd, datetime(1900, 1, 1, tzinfo=UTC)):
        (hit,) = memory.search("long ago", user_id=USER, now=now)
        assert 0 < hit.score <= hit.relevance <= 1


def _crowd(memory: Memory, count: int) -> None:
    """Others' memories, all about the same thing."""
    people = 50
    for person in range(people):
        texts = [
            f"the blue train to Vienna leaves at {n % 24} from platform {n}"
            for n in range(count // people)
        ]
        memory.add(texts, user_id=f"other{person}")
    assert memory.stats()["memories"] >= count


def _stands_out(memory: Memory) -> None:
    for options in ({}, {"top_k": 1}, {"kinds": ["episode"]}, {"filters": {"mine": True}}):
        began = time.perf_counter()
        hits = memory.search("blue train to Vienna", user_id="alone", **options)
        took = time.perf_counter() - began
        assert [h.content for h in hits] == ["my train to Vienna is the blue one"]
        assert took < 0.5
    assert memory.list(user_id="alone").total == 1


def _alone_in_a_crowd(memory: Memory, count: int) -> None:
    memory.add("my train to Vienna is the blue one", user_id="alone", metadata={"mine": True})
    _crowd(memory, count)
    _stands_out(memory)
    # The same within one user: the one that the filter wants among all that fit better.
    memory.add("my train to Vienna is the blue one", user_id="other7", metadata={"mine": True},
               session_id="only", namespace="n", occurred_at="1999-01-01")  # fmt: skip
    narrowings: list[dict[str, Any]] = [
        {"filters": {"mine": True}}, {"session_id": "only"}, {"namespace": "n"},
        {"until": "2000-01-01"}, {"as_of": "1999-06-01"},
    ]  # fmt: skip
    for narrowing in narrowings:
        hits: list[Hit] = list(
            memory.search("blue train to Vienna platform", user_id="other7", top_k=1, **narrowing)
        )
        assert [h.content for h in hits] == ["my train to Vienna is the blue one"]


@pytest.mark.slow
def test_one_among_100_000_of_others(open_memory: Open, place: Places) -> None:
    """A user with one memory finds it. (On a server it is one among 20,000.)"""
    memory = open_memory()
    _alone_in_a_crowd(memory, times(place, 100_000, 20_000))


@pytest.mark.soak
def test_one_among_a_million_of_others(open_memory: Open, place: Places) -> None:
    """The same, ten times larger."""
    memory = open_memory()
    _alone_in_a_crowd(memory, times(place, 1_000_000, 200_000))


def test_a_tie_breaks_by_time_then_id(open_memory: Open) -> None:
    """The newest first; the order is the same each time."""
    memory = open_memory()
    policy = {"recency": 0.0}
    texts = [f"alpha {c}" for c in "bcdefghij"]
    for number, text in enumerate(texts):
        memory.add(text, user_id=USER, occurred_at=NOW + timedelta(seconds=number))
    first = [h.content for h in memory.search("alpha", user_id=USER, top_k=20, policy=policy)]
    assert first == texts[::-1]
    for _ in range(3):
        again = [h.content for h in memory.search("alpha", user_id=USER, top_k=20, policy=policy)]
        assert again == first
    assert [
        h.content for h in memory.search("alpha", user_id=USER, top_k=4, policy=policy)
    ] == first[:4]
