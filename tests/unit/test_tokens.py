"""Token estimates: plausible numbers, additive, and a cut that keeps its budget."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.text.tokens import cut, estimate

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
MIXED = st.lists(
    st.sampled_from(
        [
            "word ",
            "ABCdef",
            "XML",
            "SO-2026-00491",
            "猫",
            "。",
            "かな",
            "한국",
            "e\u0301",
            "🇨🇳",
            "12345",
            "...",
            "\n\n",
            "   ",
            "привет ",
            "a" * 100,
            "Q" * 90,
            "https://a.b/c?d=1 ",
        ]
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("   ", 0, 2),
        ("word", 1, 2),
        ("The quick brown fox jumps over the lazy dog.", 9, 11),
        ("Please remember that I moved to Lisbon in March 2026.", 11, 14),
        ("请记住，我在二〇二六年三月搬到了里斯本。", 18, 29),
        ("return [x for x in items if x.price > 10]", 12, 16),
        ("\ud800", 1, 3),
        ("x" * 50_000, 5_000, 50_000),
        ("哈" * 10_000, 8_000, 15_000),
    ],
)
def test_estimate(text: str, low: int, high: int) -> None:
    assert low <= estimate(text) <= high


@given(ANY_TEXT, ANY_TEXT)
def test_estimate_is_additive_over_lines(a: str, b: str) -> None:
    a, b = a.strip(), b.strip()
    assert abs(estimate(f"{a}\n\n{b}") - estimate(a) - estimate(b)) <= 2


@given(st.one_of(ANY_TEXT, MIXED), st.integers(-1, 60))
@example("a" * 50_000, 10)
@example("." * 500, 3)
@example("🇨🇳" * 9, 7)
def test_cut_keeps_its_budget(text: str, budget: int) -> None:
    short = cut(text, budget)
    assert text.startswith(short)
    assert estimate(short) <= max(budget, 0)
    if estimate(text) <= budget:
        assert short == text


@pytest.mark.parametrize(
    ("text", "budget", "short"),
    [
        ("one two three four", 3, "one two"),
        ("灌溉计划很好", 4, "灌溉计"),
        ("order SO-2026-00491 shipped", 5, "order"),
        ("用户订单SO-2026-00491已发货", 8, "用户订单"),
        ("see https://example.com/a/b/c now", 5, "see"),
        ("x🇨🇳", 3, "x"),
        ("word", 0, ""),
        ("word", -5, ""),
    ],
)
def test_cut_ends_at_a_whole_word(text: str, budget: int, short: str) -> None:
    assert cut(text, budget) == short


def test_cut_uses_what_it_may() -> None:
    for text in ("word " * 500, "猫和狗。" * 500, "x" * 5_000, "=" * 5_000, "1" * 5_000):
        assert estimate(cut(text, 100)) >= 97
