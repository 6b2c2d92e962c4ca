"""Bad input: each a documented error that says what to do, or a noted repair; nothing is lost.

An error is a `ScrubjayError`, its text has something to act on, and never holds what may be
private. A warning on the way is an error too (the test settings make it one).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from places import Places
from scrubjay import Memory, RecallPolicy, errors
from scrubjay.settings import load

Open = Callable[..., Memory]
USER = "ada"
PRIVATE = "Zwiebelkuchen"
"""Stands for what may be private: no error may repeat it."""
UNKNOWN = "00000000-0000-7000-8000-000000000000"


class Odd:
    """An object of a type nobody expects."""

    def __repr__(self) -> str:
        return f"<Odd {PRIVATE}>"


def _circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    """One with something in it that must still be there afterwards."""
    memory = open_memory()
    memory.add("what was here before", user_id=USER, metadata={"n": 1, "none": None, "l": [1]})
    return memory


def assert_refused(
    memory: Memory, call: Callable[[], object], kind: type[errors.ScrubjayError]
) -> None:
    with pytest.raises(errors.ScrubjayError) as caught:
        call()
    assert isinstance(caught.value, kind), repr(caught.value)
    text = str(caught.value)
    assert len(text) > 15, "the text says too little"
    assert len(text) < 500, "the text goes on and on"
    assert PRIVATE not in text
    assert PRIVATE.lower() not in text.lower()
    assert [r.content for r in memory.list(user_id=USER)] == ["what was here before"]
    assert memory.stats(user_id=USER)["turns"] == 1


_MESSAGES: dict[str, Any] = {
    "empty": "", "blank": " \t\n\u3000", "no messages": [], "blank messages": ["", {"content": " "}],
    "none": None, "number": 7, "bytes": PRIVATE.encode(), "object": Odd(), "set": {"a"},
    "generator": (x for x in "ab"), "list of numbers": [1, 2], "list of lists": [["a"]],
    "no content": {"role": "user"}, "content none": {"role": "user", "content": None},
    "content number": {"role": "user", "content": 7}, "content object": {"content": Odd()},
    "content bytes": {"content": PRIVATE.encode()}, "content dict": {"content": {"text": "a"}},
    "part number": {"content": [7]}, "part without type": {"content": [{"x": PRIVATE}]},
    "unknown role": {"role": PRIVATE, "content": "a"}, "role number": {"role": 5, "content": "a"},
    "role none": {"role": None, "content": "a"}, "role list": {"role": [], "content": "a"},
    "role empty": {"role": "", "content": "a"},
    "tool calls number": {"role": "assistant", "tool_calls": 5},
    "tool calls text": {"role": "assistant", "tool_calls": "abc"},
    "tool call without name": {"role": "assistant", "tool_calls": [{"function": {}}]},
    "tool call of tuples": {"tool_calls": [{"function": {"name": "f", "arguments": {(1, 2): 3}}}]},
    "tool call in a circle": {"tool_calls": [{"function": {"name": "f", "arguments": _circular()}}]},
    "5 MB": PRIVATE[0] * 5_000_000, "metadata of a message": {"content": "a", "metadata": PRIVATE},
    "time of a message": {"content": "a", "occurred_at": PRIVATE},
    "one bad among good": ["good", {"role": "user", "content": 9}],
    "too many": ["a"] * 100_001,
}  # fmt: skip


@pytest.mark.parametrize("name", _MESSAGES)
def test_messages(memory: Memory, name: str) -> None:
    assert_refused(memory, lambda: memory.add(_MESSAGES[name], user_id=USER), errors.InvalidInput)


_ODD_TIMES: dict[str, Any] = {
    "words": PRIVATE, "empty": "", "object": Odd(), "list": [1], "bool": True, "nan": float("nan"),
    "inf": float("inf"), "minus inf": float("-inf"), "huge": 10**400, "large": 10**19,
    "before year 1": -10**14, "year 0": "0000-01-01", "year 10000": "10000-01-01",
    "month 13": "2026-13-01", "30 February": "2026-02-30", "hour 25": "2026-01-01T25:00:00",
    "offset 99": "2026-01-01T00:00:00+99:00", "dict": {}, "bytes": b"2026-01-01",
    "complex": 1j, "first": datetime.min, "last": datetime.max,  # noqa: DTZ901
    "first aware": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "last aware": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    "first date": date.min, "arabic digits": "\u0662\u0660\u0662\u0666-01-01",
}  # fmt: skip


@pytest.mark.parametrize("name", _ODD_TIMES)
def test_times(memory: Memory, name: str) -> None:
    """In every parameter that takes one."""
    value = _ODD_TIMES[name]
    calls: list[Callable[[], object]] = [
        lambda: memory.add("a", user_id=USER, occurred_at=value),
        lambda: memory.add("a", user_id=USER, expires_at=value),
        lambda: memory.add({"content": "a", "timestamp": value}, user_id=USER),
        lambda: memory.update(memory.list(user_id=USER).items[0].id, "b", user_id=USER,
                              occurred_at=value),
        *[
            lambda p=p: memory.search("here", user_id=USER, **{p: value})  # type: ignore[misc]
            for p in ("since", "until", "as_of", "known_at", "now")
        ],
        *[
            lambda p=p: memory.list(user_id=USER, **{p: value})  # type: ignore[misc]
            for p in ("since", "until", "now")
        ],
        lambda: memory.context("here", user_id=USER, since=value),
        lambda: memory.forget(user_id=USER, before=value),
    ]  # fmt: skip
    for call in calls:
        assert_refused(memory, call, errors.InvalidInput)


def test_naive_times_are_read_in_the_zone_and_noted(open_memory: Open) -> None:
    memory = open_memory(settings=load(timezone="Asia/Shanghai", embedder="none"))
    receipt = memory.add("a", user_id=USER, occurred_at="2026-03-09T18:00:00")
    assert any("zone" in note for note in receipt.notes)
    record = memory.get(receipt.ids[0], user_id=USER)
    assert record.occurred_at == datetime(2026, 3, 9, 10, tzinfo=UTC)
    receipt = memory.add("b", user_id=USER, occurred_at=datetime(2026, 3, 9, 18),  # noqa: DTZ001
                         time_zone="Europe/Paris")  # fmt: skip
    record = memory.get(receipt.ids[0], user_id=USER)
    assert record.occurred_at == datetime(2026, 3, 9, 17, tzinfo=UTC)


_ODD_METADATA: dict[str, Any] = {
    "text": PRIVATE, "list": [1], "number": 5, "bytes value": {"a": PRIVATE.encode()},
    "object": {"a": Odd()}, "set": {"a": {1}}, "number key": {5: 1}, "bytes key": {b"Zwiebelkuchen": 1},
    "empty key": {"": 1}, "dollar key": {"$Zwiebelkuchen": 1}, "nested dollar": {"a": {"$date": "x"}},
    "nan": {"a": float("nan")}, "inf": {"a": [float("inf")]}, "circle": {"a": _circular()},
    "too deep": _deep(100), "far too deep": _deep(5_000), "too large": {"a": "x" * 100_000},
    "5,000 digits": {"a": 10**5_000}, "complex": {"a": 1j}, "large in Chinese": {"a": "汉" * 60_000},
}  # fmt: skip


@pytest.mark.parametrize("name", _ODD_METADATA)
def test_metadata(memory: Memory, name: str) -> None:
    value = _ODD_METADATA[name]
    known = memory.list(user_id=USER).items[0].id
    for call in (
        lambda: memory.add("a", user_id=USER, metadata=value),
        lambda: memory.add({"content": "a", "metadata": value}, user_id=USER),
        lambda: memory.update(known, "b", user_id=USER, metadata=value),
    ):
        assert_refused(memory, call, errors.InvalidInput)


_ODD_FILTERS: dict[str, Any] = {
    "text": PRIVATE, "list": ["n"], "number": 5, "number key": {5: 5}, "empty key": {"": 1},
    "quoted key": {"n' OR 1=1 --": 1}, "dotted oddly": {"a..b": 1}, "dollar": {"$where": "1"},
    "unknown operator": {"n": {"$gt": 1}}, "words for an operator": {"n": {PRIVATE: 1}},
    "operator number": {"n": {5: 1}}, "no operator": {"n": {}}, "in text": {"n": {"in": "abc"}},
    "in number": {"n": {"in": 5}}, "in dicts": {"n": {"in": [{}]}}, "exists 1": {"n": {"exists": 1}},
    "an object": {"n": Odd()}, "bytes": {"n": b"1"}, "a set": {"n": {1}}, "nested": {"n": {"=": {}}},
    "lists in lists": {"n": [[1]]}, "scope": {"user_id": "bob"}, "AND": {"AND": [{"n": 1}]},
}  # fmt: skip


@pytest.mark.parametrize("name", _ODD_FILTERS)
def test_filters(memory: Memory, name: str) -> None:
    value = _ODD_FILTERS[name]
    if name == "AND":  # a metadata key may be called so; a list of dicts is no value
        value = {"AND": [{"n": 1}]}
    for call in (
        lambda: memory.search("here", user_id=USER, filters=value),
        lambda: memory.context("here", user_id=USER, filters=value),
        lambda: memory.list(user_id=USER, filters=value),
    ):
        assert_refused(memory, call, errors.InvalidInput)


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">=", "in", "contains"])
def test_filters_compare_anything_with_anything(memory: Memory, operator: str) -> None:
    """Values of different types are different; no pair of them is an error."""
    values: list[Any] = [None, True, 1, 1.5, "a", [1], ["a"], [None], date(2026, 1, 1),
                         datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", [True, "a"]]  # fmt: skip
    memory.add("everything here", user_id=USER, metadata={f"k{n}": v for n, v in enumerate(values)})
    for n in range(len(values)):
        for wanted in values:
            value = [wanted] if operator == "in" else wanted
            if operator == "in" and isinstance(wanted, list):
                continue
            memory.list(user_id=USER, filters={f"k{n}": {operator: value}})


def test_numbers(memory: Memory) -> None:
    """Negative, zero, huge, broken, of another type."""
    for value in (-1, 0, 10**30, 1_001, True, 1.5, "5", float("nan"), [1], Odd()):
        assert_refused(
            memory, lambda v=value: memory.search("here", user_id=USER, top_k=v),
            errors.InvalidInput,
        )  # fmt: skip
    for value in (-1, 0, 10**30, 10_001, True, 1.5, "5", float("nan"), None, Odd()):
        assert_refused(
            memory, lambda v=value: memory.list(user_id=USER, limit=v), errors.InvalidInput
        )
        assert_refused(
            memory,
            lambda v=value: (
                memory.context("here", user_id=USER, max_tokens=v)
                if v not in (10_001,)
                else memory.context("here", user_id=USER, max_tokens=-5)
            ),
            errors.InvalidInput,
        )
    for value in (-0.1, 1.1, float("nan"), float("inf"), "0.5", True, [0.5], Odd()):
        assert_refused(
            memory, lambda v=value: memory.search("here", user_id=USER, threshold=v),
            errors.InvalidInput,
        )  # fmt: skip


_POLICIES: dict[str, Any] = {
    "text": PRIVATE, "number": 5, "unknown name": {PRIVATE: 1}, "negative": {"recency": -1},
    "above 1": {"vector_weight": 1.5}, "nan": {"trust": float("nan")},
    "half life 0": {"half_life_days": 0}, "half life nan": {"half_life_days": float("nan")},
    "half life inf": {"half_life_days": float("inf")}, "k inf": {"top_k": float("inf")},
    "k 1.5": {"top_k": 1.5}, "k 0": {"top_k": 0}, "k huge": {"top_k": 10**9}, "words": {"trust": "1"},
    "an object's weight": RecallPolicy(recency=9.0), "an object's nan": RecallPolicy(trust=float("nan")),
    "an object's k": RecallPolicy(top_k=-1), "an object's type": RecallPolicy(trust="x"),  # type: ignore[arg-type]
    "an object's half life": RecallPolicy(half_life_days=0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", _POLICIES)
def test_policies(memory: Memory, name: str) -> None:
    assert_refused(
        memory, lambda: memory.search("here", user_id=USER, policy=_POLICIES[name]),
        errors.InvalidInput,
    )  # fmt: skip


_CALLS: dict[str, Callable[[Memory], object]] = {
    "kind": lambda m: m.add("a", user_id=USER, kind=PRIVATE),
    "kind number": lambda m: m.add("a", user_id=USER, kind=5),  # type: ignore[arg-type]
    "visibility": lambda m: m.add("a", user_id=USER, visibility=PRIVATE),
    "visibility list": lambda m: m.add("a", user_id=USER, visibility=["shared"]),  # type: ignore[arg-type]
    "private without agent": lambda m: m.add("a", user_id=USER, visibility="private"),
    "source class": lambda m: m.add("a", user_id=USER, source_class=PRIVATE),
    "zone": lambda m: m.add("a", user_id=USER, time_zone=PRIVATE),
    "zone number": lambda m: m.add("a", user_id=USER, time_zone=5),  # type: ignore[arg-type]
    "zone empty": lambda m: m.add("a", user_id=USER, time_zone=""),
    "zone path": lambda m: m.add("a", user_id=USER, time_zone="../../etc/passwd"),
    "search zone": lambda m: m.search("a", user_id=USER, time_zone=PRIVATE),
    "key number": lambda m: m.add("a", user_id=USER, idempotency_key=5),  # type: ignore[arg-type]
    "key blank": lambda m: m.add("a", user_id=USER, idempotency_key=" "),
    "key long": lambda m: m.add("a", user_id=USER, idempotency_key=PRIVATE * 1_000),
    "query none": lambda m: m.search(None, user_id=USER),  # type: ignore[arg-type]
    "query bytes": lambda m: m.search(PRIVATE.encode(), user_id=USER),  # type: ignore[arg-type]
    "query list": lambda m: m.search([PRIVATE], user_id=USER),  # type: ignore[arg-type]
    "query empty": lambda m: m.search("", user_id=USER),
    "query blank": lambda m: m.search(" \n\u3000", user_id=USER),
    "query 1 MB": lambda m: m.search(PRIVATE * 80_000, user_id=USER),
    "context query": lambda m: m.context(5, user_id=USER),  # type: ignore[arg-type]
    "kinds": lambda m: m.search("a", user_id=USER, kinds=[PRIVATE]),
    "kinds number": lambda m: m.search("a", user_id=USER, kinds=5),  # type: ignore[arg-type]
    "kinds empty": lambda m: m.search("a", user_id=USER, kinds=[]),
    "tiers": lambda m: m.search("a", user_id=USER, tiers=[PRIVATE]),
    "states": lambda m: m.list(user_id=USER, states=[PRIVATE]),
    "since after until": lambda m: m.search("a", user_id=USER, since="2026-02-01", until="2026-01-01"),
    "format": lambda m: m.context("a", user_id=USER, format=PRIVATE),  # type: ignore[arg-type]
    "format number": lambda m: m.context("a", user_id=USER, format=5),  # type: ignore[arg-type]
    "language": lambda m: m.context("a", user_id=USER, language=PRIVATE),
    "counter": lambda m: m.context("here", user_id=USER, count_tokens=5),  # type: ignore[arg-type]
    "counter's count": lambda m: m.context("here", user_id=USER, count_tokens=lambda _: PRIVATE),  # type: ignore[arg-type, return-value]
    "cursor": lambda m: m.list(user_id=USER, cursor=PRIVATE),
    "cursor number": lambda m: m.list(user_id=USER, cursor=5),  # type: ignore[arg-type]
    "cursor huge": lambda m: m.list(user_id=USER, cursor="0." + "9" * 5_000),
    "cursor minus": lambda m: m.list(user_id=USER, cursor="0.-5"),
    "id number": lambda m: m.get(5, user_id=USER),  # type: ignore[arg-type]
    "id empty": lambda m: m.get("", user_id=USER),
    "id none": lambda m: m.get(None, user_id=USER),  # type: ignore[arg-type]
    "update empty": lambda m: m.update(m.list(user_id=USER).items[0].id, " ", user_id=USER),
    "update number": lambda m: m.update(m.list(user_id=USER).items[0].id, 5, user_id=USER),  # type: ignore[arg-type]
    "update long": lambda m: m.update(m.list(user_id=USER).items[0].id, "word " * 5_000, user_id=USER),
    "reason": lambda m: m.update(m.list(user_id=USER).items[0].id, "b", reason=5, user_id=USER),  # type: ignore[arg-type]
    "reason none": lambda m: m.update(m.list(user_id=USER).items[0].id, "b", reason=None, user_id=USER),  # type: ignore[arg-type]
    "reason 1 MB": lambda m: m.update(m.list(user_id=USER).items[0].id, "b", reason="x" * 1_000_000, user_id=USER),
    "forget two": lambda m: m.forget(user_id=USER, session_id="a", memory_id="b"),
    "forget number": lambda m: m.forget(user_id=USER, memory_id=5),  # type: ignore[arg-type]
    "forget blank session": lambda m: m.forget(user_id=USER, session_id=" "),
    "principal": lambda m: m.add("a", user_id=USER, principal=None),  # type: ignore[arg-type]
    "principal text": lambda m: m.search("a", user_id=USER, principal="owner"),  # type: ignore[arg-type]
    "export number": lambda m: m.export(5, user_id=USER),  # type: ignore[arg-type]
    "export nowhere": lambda m: m.export("/no/such/folder/x", user_id=USER),
    "export on a folder": lambda m: m.export("/tmp", user_id=USER),
    "import number": lambda m: m.import_(5, user_id=USER),  # type: ignore[arg-type]
    "import nothing": lambda m: m.import_("/no/such/file", user_id=USER),
    "import a folder": lambda m: m.import_("/tmp", user_id=USER),
    "backup number": lambda m: m.backup(5),  # type: ignore[arg-type]
    "backup on a folder": lambda m: m.backup("/tmp"),
    "restore number": lambda m: m.restore(5),  # type: ignore[arg-type]
    "restore nothing": lambda m: m.restore("/no/such/file"),
    "flush words": lambda m: m.flush("soon"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", _CALLS)
def test_every_parameter(memory: Memory, name: str) -> None:
    assert_refused(memory, lambda: _CALLS[name](memory), errors.InvalidInput)


@pytest.mark.parametrize(
    "unknown", [UNKNOWN, "no id", PRIVATE, "\x00", "\ud800", "x" * 10_000, f"{{{UNKNOWN}}}", "'"],
    ids=["uuid", "words", "private", "nul", "surrogate", "long", "braces", "quote"],
)  # fmt: skip
def test_unknown_ids(memory: Memory, unknown: str) -> None:
    """NotFound, which does not repeat the id at length."""
    for call in (
        lambda: memory.get(unknown, user_id=USER),
        lambda: memory.history(unknown, user_id=USER),
        lambda: memory.update(unknown, "b", user_id=USER),
        lambda: memory.delete(unknown, user_id=USER),
        lambda: memory.forget(memory_id=unknown, user_id=USER),
        lambda: memory.forget(turn_id=unknown, user_id=USER),
    ):
        assert_refused(memory, call, errors.NotFound)


@pytest.mark.parametrize("path", [5, "", "  ", None.__class__, "mysql://user:pw@host/db", Odd()],
                         ids=str)  # fmt: skip
def test_paths(path: Any) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        Memory(path, embedder="none")
    assert "pw" not in str(caught.value)


def test_settings_and_embedders(place: Places) -> None:
    for options in ({"settings": 5}, {"settings": {"tenant": "x"}}, {"embedder": 5},
                    {"embedder": Odd()}, {"clock": 5}):  # fmt: skip
        with pytest.raises((errors.InvalidInput, errors.SettingsError)):
            Memory(place(), **{"embedder": "none", **options}).close()


# -- repairs, which are noted ---------------------------------------------------------------


def test_nul_and_surrogates_are_replaced_and_noted(open_memory: Open) -> None:
    memory = open_memory()
    receipt = memory.add("a\x00b \ud83d lone \ud83c\udf78 pair", user_id=USER)
    notes = " ".join(receipt.notes)
    assert "NUL" in notes
    assert "surrogate" in notes
    record = memory.get(receipt.ids[0], user_id=USER)
    assert record.content == "a\ufffdb \ufffd lone 🍸 pair"
    assert memory.search("lone pair", user_id=USER)[0].id == record.id
    assert memory.search("lone \ud800 pair\x00", user_id=USER)[0].id == record.id
    receipt = memory.add("x", user_id=USER, metadata={"k\ud800": "v\x00"})
    json.dumps(memory.get(receipt.ids[0], user_id=USER).to_dict(), ensure_ascii=False).encode()


def test_blank_messages_among_others_are_skipped_and_named(open_memory: Open) -> None:
    memory = open_memory()
    receipt = memory.add(["one", "", {"role": "user", "content": " \n"}, "two"], user_id=USER)
    assert len(receipt.turn_ids) == 2
    assert [s.what for s in receipt.skipped] == ["message 1", "message 2"]


def test_1_mb_is_kept_to_the_letter(open_memory: Open, tmp_path: Path) -> None:
    """Split into episodes that are all found; the turn comes back whole."""
    memory = open_memory()
    chance = random.Random(4)
    text = " ".join(f"w{chance.randrange(10**9)}" for _ in range(95_000))[:1_000_000]
    receipt = memory.add(text, user_id=USER)
    assert len(receipt.turn_ids) == 1
    assert len(receipt.ids) > 1_000
    memory.export(tmp_path / "e", user_id=USER)
    turn = json.loads((tmp_path / "e").read_text("utf-8").splitlines()[1])
    assert turn["content"] == text
    word = text.split()[50_000]
    assert word in memory.search(word, user_id=USER)[0].content
    memory.add("x" * 1_000_000, user_id="one word")
    memory.add("汉" * 300_000, user_id="one line")
    assert memory.doctor().sound
