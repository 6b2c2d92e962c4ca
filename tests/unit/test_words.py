"""The tokeniser: tables by script, and properties that try to break it."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrubjay.text import words as module
from scrubjay.text.words import is_character, is_identifier, query_words, words

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
HAN = st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5)


def finds(query: str, text: str) -> bool:
    """Whether every token of the query is a token of the text."""
    wanted = query_words(query)
    return bool(wanted) and set(wanted) <= set(words(text))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("  \n\t … — !!! ()", []),
        ("____ '' -- ..", []),
        ("cats and dogs", ["cat", "and", "dog"]),
        ("Running RUNNING runs", ["run", "run", "run"]),
        ("the user's", ["the", "user"]),
        ("users' cats", ["user", "cat"]),
        ("don't don’t dont", ["dont", "dont", "dont"]),
        ("we'll I'm they're", ["we", "i", "they"]),
        ("O'Brien", ["obrien", "brien"]),
        ("naïve café CAFÉ cafe\u0301", ["naiv", "cafe", "cafe", "cafe"]),
        ("Straße strasse", ["strass", "strass"]),
        ("İstanbul", ["istanbul"]),
        ("Łódź Øre", ["lodz", "ore"]),
        ("ﬁle ｆｉｌｅ", ["file", "file"]),
        ("U.S.A. e.g. x", ["usa", "eg", "x"]),
        ("PDFs APIs", ["pdf", "api"]),
        ("3.5 12:30 7", ["3.5", "3", "5", "12:30", "12", "30", "7"]),
        ("1,234,567", ["=1234567"]),
        ("١٢٣ १२३ ๑๒๓", ["123", "123", "123"]),
        ("🎉🎉 ok", ["🎉", "🎉", "ok"]),
        ("C++ C# .NET", ["=c++", "=c#", "=.net"]),
        ("Ｃ＋＋", ["=c++"]),
        ("猫", ["~猫"]),
        ("灌溉", ["灌溉", "~灌", "~溉"]),
        ("книги Ёлка", ["книг", "елк"]),
        ("كِتَابٌ كتـــاب", ["كتاب", "كتاب"]),
        ("أحمد احمد إحمد", ["احمد", "احمد", "احمد"]),
        ("Ελλάς ελλας", ["ελλασ", "ελλασ"]),
        ("हिन्दी", ["हिन्दी"]),
        ("שָׁלוֹם שלום", ["שלום", "שלום"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert words(text) == tokens


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("DD20260115-7731", {"=dd20260115", "dd", "7731"}),
        ("src/app/main.py", {"=app/main.py", "=main.py", "src", "app", "main", "py"}),
        ("E1042", {"1042"}),
        ("MY_APP__CACHE_TTL", {"my", "app", "cach", "ttl"}),
        ("so-2026-00419", {"so", "2026", "=00419"}),
        ("ring_buffer.rs", {"=ring_buffer", "ring", "buffer", "rs"}),
        ("ada.king+list@example.com", {"=example.com", "king", "list"}),
        ("https://example.com/a/guide.html?lang=en#top", {"=example.com", "=guide.html", "top"}),
        ("1.2.3", {"1", "2", "3"}),
        ("v2.0.1-rc.1", {"=v2.0.1", "=rc.1"}),
        ("192.168.0.1", {"192", "168"}),
        ("20260309A17", {"=20260309", "17"}),
        ("getUserName", {"get", "user", "name"}),
        ("std::vector", {"std", "vector"}),
        ("C:\\temp\\notes.txt", {"=notes.txt", "temp"}),
        ("550e8400-e29b-41d4-a716-446655440000", {"=446655440000"}),
        ("__init__", {"init"}),
        ("rk-902b", {"rk", "902"}),
        ("13800138000", set()),
        ("ASP.NET", {"=.net", "asp"}),
        ("2026-03-09", {"2026", "03", "09"}),
    ],
)
def test_identifiers_are_kept_whole_and_in_parts(identifier: str, parts: set[str]) -> None:
    tokens = words(identifier)
    whole = "=" + identifier.lower()
    assert whole in tokens
    assert is_identifier(whole)
    assert parts <= set(tokens)
    assert len(tokens) == len(set(tokens))


@pytest.mark.parametrize(
    "name", ["word", "GitHub", "JavaScript", "iPhone", "macOS", "and/or", "5kg", "well-known", "Q3"]
)
def test_ordinary_words_are_not_identifiers(name: str) -> None:
    assert not any(map(is_identifier, words(name)))


def test_names_in_any_case_meet() -> None:
    for a, b in [("GitHub", "github"), ("JavaScript", "javascript"), ("e-mail", "email")]:
        assert set(words(b)) <= set(words(a))


def test_near_twins_differ() -> None:
    for a, b in [
        ("SO-2026-00419", "SO-2026-00491"),
        ("E4017", "E4071"),
        ("ring_buffer.rs", "ring_bufer.rs"),
        ("C++", "C"),
        ("C#", "C"),
        (".NET", "net"),
        ("C++", "C#"),
        ("1.2.3", "1.2.4"),
    ]:
        assert not set(filter(is_identifier, words(a))) & set(filter(is_identifier, words(b))) or (
            words(a)[0] != words(b)[0]
        )
        assert words(a)[0] not in words(b)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("灌溉", "昨晚确认了灌溉计划"),
        ("灌溉计划", "昨晚确认了灌溉计划"),
        ("溉", "昨晚确认了灌溉计划"),
        ("灌溉的计划呢", "昨晚确认了灌溉和计划"),
        ("我的猫呢？", "家里养了一只猫"),
        ("折り紙", "昨日は折り紙教室に通った"),
        ("紙", "昨日は折り紙教室に通った"),
        ("ｺﾝﾋﾟｭｰﾀ", "コンピュータを買った"),
        ("도자기", "어제 도자기를 만들었다"),
        ("ภาษา", "ฉันเรียนภาษาไทย"),
        ("rk-902b", "仓库盘点(stock)含 UPS 与 rk-902b"),
        ("20260309a17", "订单号20260309A17退款"),
        ("退款", "订单号20260309A17退款"),
        ("c#", "用C#写的"),
        (".net", "迁到.NET上"),
        ("C++", "Java/C++和Go"),
        ("圖書館", "我在图书馆"),
        ("图书馆", "我在圖書館裡"),
        ("台灣 頭髮 瞭解 看著", "台湾 头发 了解 看着"),
        ("книга", "я читаю книгу"),
        ("كتاب", "قرأت الكتاب"),
        ("Αθηνα", "Στην Αθήνα"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ।"),
        ("ＳＯ－２０２６－００４１９", "order so-2026-00419."),
        ("SO‑2026‑00419", "order so-2026-00419."),
        ("2026年", "它在2026年3月上线"),
        ("Tiếng Viet", "tôi học tiếng Việt"),
        ("🎉", "party 🎉!"),
        ("caches", "the cache_ttl setting"),
        ("don’t", "I don't know"),
        ("用戶 user", "这个user是用户"),
        ("丁香-4", "暗号丁香-4"),
        ("ALPHA-1", "x needle ALPHA-1 y"),
    ],
)
def test_query_finds_text(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "tokens"),
    [
        ("What is the cache TTL?", ["cach", "ttl"]),
        ("who is it", ["who", "is", "it"]),
        ("the IT budget", ["IT".lower(), "budget"]),
        ("灌溉的计划是什么", ["灌溉", "计划"]),
        ("什么", ["什么"]),
        ("的", ["~的"]),
        ("我的猫", ["~猫"]),
        ("目的", ["目的"]),
        ("昨日は折り紙", ["昨日", "日は", "は折", "折り", "り纸"]),
        ("ภาษา", ["ภาษ", "าษา"]),
        ("", []),
        ("?!", []),
    ],
)
def test_query_words(query: str, tokens: list[str]) -> None:
    assert query_words(query) == tokens


def test_characters_come_once_and_only_short_queries_ask_for_them() -> None:
    tokens = words("哈" * 1000 + "，哈")
    assert [token for token in tokens if is_character(token)] == ["~哈"]
    assert not any(map(is_character, query_words("昨晚确认了灌溉计划")))


@given(ANY_TEXT)
@example("\ud800")
@example("a\udfffb\0c")
@example("\u0301_\u0301'\u0301")
@example("ـ_ـ.ـ")
@example("ﷺ" * 20)
def test_never_raises_and_stays_bounded(text: str) -> None:
    tokens = words(text)
    assert all(tokens)
    assert max(map(len, tokens), default=0) <= 64
    assert len(tokens) <= 5 * len(unicodedata.normalize("NFKC", text))
    assert set(query_words(text)) <= set(tokens)
    assert bool(query_words(text)) == bool(tokens)
    "".join(tokens).encode()


@given(ANY_TEXT)
def test_the_cache_changes_nothing(text: str) -> None:
    warm = words(text)
    module._known.clear()
    assert words(text) == warm == words(text)


@given(ANY_TEXT)
def test_canonical_forms_meet(text: str) -> None:
    for form in ("NFC", "NFD"):
        assert words(unicodedata.normalize(form, text)) == words(text)


IDENTIFIER = st.one_of(
    st.from_regex(r"[A-Z]{1,3}-?[0-9]{4,8}(-[0-9A-Z]{2,5})?", fullmatch=True),
    st.from_regex(r"[a-z]{2,6}(_[a-z]{2,6}){1,3}(\.[a-z]{2,3})?", fullmatch=True),
    st.from_regex(r"([a-z]{2,6}/){1,4}[a-z]{2,8}\.(py|rs|md)", fullmatch=True),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){2,3}", fullmatch=True),
    st.from_regex(r"[0-9]{8}[A-Z][0-9]{2}", fullmatch=True),
    st.from_regex(r"[a-z]{2,5}([A-Z][a-z]{2,5}){1,3}", fullmatch=True),
    st.from_regex(r"[a-z]{2,6}\.[a-z]{2,6}@[a-z]{2,6}\.com", fullmatch=True),
    st.from_regex(
        r"https://[a-z]{2,8}\.org/[a-z]{2,6}/[0-9]{2,6}\?q=[a-z0-9]{1,9}", fullmatch=True
    ),
    st.sampled_from(["C++", "C#", ".NET", "MY_APP__CACHE_TTL", "node.js", "x86_64"]),
)
AROUND = st.sampled_from(
    [*" \n\t()[]{}<>\"'`*，。：；！？、（）《》“”|!;~$^…", "号", "の", "를", "ไทย"]
)
AFTER = st.sampled_from([*",.:", ". ", ", ", ": ", "'s ", "."])


@given(IDENTIFIER, AROUND, AROUND)
@example("C++", "号", "的")
@example("ring_buffer.rs", "“", "”")
def test_identifier_is_found_between_anything(identifier: str, left: str, right: str) -> None:
    assert set(query_words(identifier)) <= set(words(f"see{left}{identifier}{right}then"))
    assert set(query_words(identifier.upper())) <= set(words(identifier.upper()))


@given(IDENTIFIER, AFTER)
def test_identifier_is_found_before_punctuation(identifier: str, after: str) -> None:
    assert set(query_words(identifier)) <= set(words(f"see {identifier}{after}"))


@given(st.from_regex(r"[A-Z]{2,3}-?[0-9]{4,8}", fullmatch=True), st.sampled_from([*":/=#@&?"]))
def test_code_is_found_after_a_label(code: str, sign: str) -> None:
    assert set(query_words(code)) <= set(words(f"id{sign}{code} x"))


@given(st.text(HAN, min_size=1, max_size=30), st.data())
def test_any_part_of_a_chinese_run_is_found(run: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    assert set(query_words(run[start:end])) <= set(words(run))


SIMPLE, TRADITIONAL = "软件发现历史书籍图书馆开会计划订单", "軟件發現歷史書籍圖書館開會計劃訂單"


@given(st.integers(0, 16), st.integers(1, 8))
def test_traditional_and_simplified_are_the_same(start: int, size: int) -> None:
    part = slice(start, start + size)
    assert words(SIMPLE[part]) == words(TRADITIONAL[part])
    assert query_words(SIMPLE[part]) == query_words(TRADITIONAL[part])


def test_long_runs_stay_small_and_are_found_by_themselves() -> None:
    data = random.Random(0).randbytes(75_000)
    encoded = base64.b64encode(data).decode()
    lines = base64.encodebytes(data).decode()
    for text, most in [
        ("x" * 50_000, 1_000),
        ("Xy9" * 17_000, 1_000),
        ("я" * 50_000, 1_000),
        (encoded, 20_000),
        (lines, 20_000),
        ("哈" * 10_000, 30_000),
        ("a-b." * 12_500, 1_000),
        ("_" * 50_000, 1),
        ("." * 50_000, 1),
        ("'" * 50_000, 1),
        ("é" * 50_000, 1_000),
    ]:
        tokens = words(text)
        assert len(tokens) <= most
        assert set(query_words(text)) <= set(tokens)
        assert max(map(len, tokens), default=0) <= 64


def test_a_long_address_is_found_whole_and_by_its_parts() -> None:
    url = "https://example.com/" + "/".join(f"section{i}" for i in range(40)) + "/guide.html"
    text = f"read {url}, please"
    assert finds(url, text)
    assert finds("guide html", text)
    assert len(url) > 128
    other = url.replace("section39", "section93")
    assert not set(query_words(other)) <= set(words(text))


def test_importing_loads_no_dictionary() -> None:
    code = (
        "import sys, scrubjay.text.words as w; w.words('12:30 !');"
        "print([m for m in ('Stemmer', 'rjieba', 'opencc', 'numpy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
