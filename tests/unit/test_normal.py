"""Cleaning: what is replaced, what is noted, and that all else stays."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.text.normal import clean

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


@pytest.mark.parametrize(
    ("text", "cleaned", "notes"),
    [
        ("", "", []),
        ("plain", "plain", []),
        ("cafe\u0301", "café", []),
        ("ok \ud83d cut", "ok \ufffd cut", ["replaced 1 lone surrogate"]),
        ("\udc8f start", "\ufffd start", ["replaced 1 lone surrogate"]),
        ("\ud800\ud800", "\ufffd\ufffd", ["replaced 2 lone surrogates"]),
        ("\udc00-\ud800", "\ufffd-\ufffd", ["replaced 2 lone surrogates"]),
        ("good \ud83c\udf78", "good \U0001f378", ["joined 1 surrogate pair"]),
        (
            "\ud83c\udf78\udf78",
            "\U0001f378\ufffd",
            ["joined 1 surrogate pair", "replaced 1 lone surrogate"],
        ),
        ("a\0b\0", "a\ufffdb\ufffd", ["replaced 2 NULs"]),
        ("\0\udcff", "\ufffd\ufffd", ["replaced 1 lone surrogate", "replaced 1 NUL"]),
    ],
)
def test_clean(text: str, cleaned: str, notes: list[str]) -> None:
    assert clean(text) == (cleaned, notes)


@pytest.mark.parametrize(
    "text",
    [
        "  spaces\tand\r\nline ends \u3000\u00a0 ",
        "Ｆｕｌｌ　ｗｉｄｔｈ，①ﬁ½™",
        "zero\u200bwidth\u200d\ufeff\u2060",
        "https://example.com/?q=%E7%8C%AB&x=1#top",
        "👨\u200d👩\u200d👧 ❤\ufe0f 👍🏽",
        "\x01\x07\x1b[31m\x7f",
        "\ufffd \ufffe \U0010ffff",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert clean(text) == (text, [])


@given(ANY_TEXT)
def test_clean_text_can_be_stored(text: str) -> None:
    cleaned, notes = clean(text)
    cleaned.encode()
    assert "\0" not in cleaned
    assert unicodedata.is_normalized("NFC", cleaned)
    assert clean(cleaned) == (cleaned, [])
    if not notes:
        assert cleaned == unicodedata.normalize("NFC", text)
