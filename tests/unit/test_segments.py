"""Segments: they cover the text, keep within the limit and break nothing they need not."""

from __future__ import annotations

import base64
import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.text.segments import is_boundary, split

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)
# Text rich in what matters here: enders, quotes, spaces, marks, flags, joiners, fences.
RICH = st.lists(
    st.sampled_from(
        [
            "a",
            "Bc ",
            "word ",
            "3.5",
            ". ",
            "! ",
            "。",
            "？”",
            "，",
            "\n",
            "\n\n",
            "\r\n",
            "猫",
            "か",
            "e\u0301",
            "🇨🇳",
            "👨\u200d👩\u200d👧",
            "👍🏽",
            "क्ष",
            "น้ำ",
            "```\n",
            "각",
            "https://a.b/c?d=e ",
            "\ud800",
        ]
    ),
    max_size=120,
).map("".join)

ENGLISH = (
    'She prefers window seats, because her knees hurt. Dr. Stone said "stop!" Then she left at '
    "3.5 km/h. "
)
CHINESE = "昨晚我们确认了灌溉计划，下周要把仓库盘点做完。他说：“好的！”然后他走了。"


def pieces(text: str, limit: int) -> list[str]:
    return [text[start:end] for start, end in split(text, limit)]


def check(text: str, limit: int) -> list[tuple[int, int]]:
    spans = split(text, limit)
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    assert all(start < end for start, end in spans)
    assert all(end - start <= max(limit * 3 // 2, 1) for start, end in spans)
    gaps = [text[end:start] for (_, end), (start, _) in pairwise([(0, 0), *spans])]
    tail = text[spans[-1][1] :] if spans else text
    assert not "".join([*gaps, tail]).strip()
    if len(text) > limit:
        assert all(text[start:end].strip() == text[start:end] for start, end in spans)
    return spans


@given(ANY_TEXT, st.integers(1, 50))
@example(" " * 60, 10)
@example("a" + "\u0301" * 200, 10)
@example("🇨🇳" * 40, 7)
@example("\n" * 99 + "x", 5)
@example("```\nx\n" * 30, 20)
def test_spans_cover_and_keep_the_limit(text: str, limit: int) -> None:
    check(text, limit)


@given(RICH, st.integers(1, 80))
def test_rich_text(text: str, limit: int) -> None:
    spans = check(text, limit)
    # The longest cluster in RICH has five code points: above that, none is ever cut.
    if limit >= 8:
        assert all(is_boundary(text, end, start) for start, end in spans)


@given(ANY_TEXT)
def test_a_short_text_is_one_span(text: str) -> None:
    assert split(text, 300) == ([(0, len(text))] if text.strip() else [])


def test_a_limit_is_positive() -> None:
    with pytest.raises(ValueError, match="limit"):
        split("x", 0)


def test_paragraphs_come_first() -> None:
    text = f"{ENGLISH}{ENGLISH.strip()}\n\n{ENGLISH}{ENGLISH}"
    first, *_ = pieces(text, 300)
    assert first == (ENGLISH * 2).strip()


@pytest.mark.parametrize(("sentence", "limit"), [(ENGLISH, 260), (CHINESE, 90)])
def test_sentences_stay_whole(sentence: str, limit: int) -> None:
    for piece in pieces(sentence * 30, limit):
        assert piece[-1] in ".。"
        assert not piece.endswith("Dr.")


def test_quotes_stay_with_their_sentence() -> None:
    for piece in pieces("他说：“好的，我们明天再谈！”" * 20, 30):
        assert piece.startswith("他说")
        assert piece.endswith("！”")


def test_clauses_then_words() -> None:
    assert all(p[-1] == "，" for p in pieces("这是很长的一句话，" * 40, 40)[:-1])
    assert all(p.endswith(";") for p in pieces("one two three four; " * 40, 50)[:-1])
    for piece in pieces("word-and-word " * 80, 50):
        assert set(piece.split()) == {"word-and-word"}


def test_lines_of_a_log_stay_whole() -> None:
    log = "\n".join(f"2026-01-02 10:00:{i:02} INFO step {i} ok" for i in range(60))
    for piece in pieces(log, 200):
        assert piece.startswith("2026")
        assert piece.endswith("ok")


def test_code_that_fits_stays_together() -> None:
    code = "```python\nfor x in y:\n\n    print(x)\n\n\n    do(x)\n```"
    text = f"{ENGLISH}{ENGLISH}\n\n{code}\n\n{ENGLISH}{ENGLISH}"
    assert sum(code in piece for piece in pieces(text, 180)) == 1
    assert len(pieces(text, 180)) > 2


def test_addresses_stay_whole_where_they_can() -> None:
    url = "https://example.com/a/b?x=1&y=2,3;z=4"
    for text in (f"see {url} " * 40, f"请看{url} ，谢谢。" * 40):
        assert sum(piece.count(url) for piece in pieces(text, 100)) == 40


def test_large_and_odd_texts() -> None:
    data = random.Random(0).randbytes(75_000)
    for text in (
        ENGLISH * 1_000,
        CHINESE * 2_500,
        base64.b64encode(data).decode(),
        base64.encodebytes(data).decode(),
        "a" * 50_000,
        "哈" * 10_000,
        "." * 100_000,
        '!"' * 50_000,
        "\n" * 100_000 + "x",
        "`" * 50_000,
        "\u0301" * 20_000,
        "🇨🇳" * 20_000,
    ):
        spans = check(text, 400)
        assert len(spans) <= len(text) // 170 + 1


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301",
        "🇨🇳",
        "👨\u200d👩\u200d👧",
        "👍🏽",
        "\r\n",
        "न्दि",
        "น้",
        "\u1100\u1161\u11a8",
        "❤\ufe0f",
    ],
)
def test_no_boundary_inside_a_cluster(cluster: str) -> None:
    text = f"x{cluster}y"
    assert [i for i in range(1, len(text)) if is_boundary(text, i, 0)] == [1, len(text) - 1]
