"""Chat transcripts come in whole or not at all, and once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scrubjay.errors import ImportFailed
from scrubjay.interchange import transcripts

Run = Callable[..., Any]
ADA = ("--user", "ada")


def lines(*items: Mapping[str, Any]) -> str:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


HELLO = {"role": "user", "content": "Hello, I am Ada."}
REPLY = {"role": "assistant", "content": "你好！", "occurred_at": "2026-03-09T10:00:00+08:00"}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], str]:
    def write_(content: str | bytes) -> str:
        file = tmp_path / "chat"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    return write_


SHAPES = {
    "lines": lines(HELLO, REPLY),
    "lines with a mark, blank lines and CR": "\ufeff" + "\r\n\r\n".join(
        json.dumps(item) for item in (HELLO, REPLY)
    ),
    "array": json.dumps([HELLO, REPLY]),
    "array, indented": json.dumps([HELLO, REPLY], indent=2),
    "request": json.dumps({"model": "x", "messages": [HELLO, REPLY]}),
    "messages first": json.dumps({"messages": [HELLO, REPLY]}),
    "request, indented": json.dumps({"messages": [HELLO, REPLY]}, indent=1),
}  # fmt: skip


@pytest.mark.parametrize("content", SHAPES.values(), ids=SHAPES)
def test_shapes(run: Run, write: Callable[..., str], content: str) -> None:
    counts = run("import", write(content), *ADA, "--session", "s1", "--json")
    assert counts.code == 0, counts.err
    assert counts.json["written"] == 2
    items = run("list", *ADA, "--json").json["items"]
    assert [(m["role"], m["content"]) for m in items] == [
        ("assistant", "你好！"), ("user", "Hello, I am Ada."),
    ]  # fmt: skip
    assert items[0]["occurred_at"] == "2026-03-09T02:00:00+00:00"
    assert {m["scope"]["session_id"] for m in items} == {"s1"}


def test_a_second_import_does_nothing(run: Run, write: Callable[..., str]) -> None:
    file = write(lines(HELLO, REPLY))
    run("import", file, *ADA)
    before = run("list", *ADA, "--json").json
    again = run("import", file, *ADA, "--json").json
    assert (again["written"], again["replayed"]) == (0, 2)
    assert run("list", *ADA, "--json").json == before
    assert run("stats", *ADA, "--json").json["turns"] == 2


def test_another_session_is_another_import(run: Run, write: Callable[..., str]) -> None:
    file = write(lines(HELLO))
    run("import", file, *ADA, "--session", "s1")
    assert run("import", file, *ADA, "--session", "s2").code == 0
    assert run("import", file, "--user", "eve", "--json").json["written"] == 1


def test_what_was_forgotten_can_be_imported_anew(run: Run, write: Callable[..., str]) -> None:
    file = write(lines(HELLO))
    run("import", file, *ADA)
    run("forget", *ADA, "--yes")
    assert run("import", file, *ADA, "--json").json["written"] == 1


def test_lines_have_their_own_users_and_sessions(run: Run, write: Callable[..., str]) -> None:
    file = write(
        lines(
            {**HELLO, "user_id": "ada", "session_id": "a"},
            {**REPLY, "user_id": "ada", "session_id": "a"},
            {"content": "我是林", "user_id": "lin", "metadata": {"tag": "旅行"}},
        )
    )
    assert run("import", file, "--session", "rest").code == 0
    ada = run("list", *ADA, "--json").json["items"]
    assert {m["scope"]["session_id"] for m in ada} == {"a"}
    (lin,) = run("list", "--user", "lin", "--json").json["items"]
    assert lin["scope"]["session_id"] == "rest"
    assert lin["metadata"] == {"tag": "旅行"}


def test_tool_calls_and_parts_are_kept(run: Run, write: Callable[..., str]) -> None:
    call = {"function": {"name": "search_flights", "arguments": '{"to": "上海"}'}}
    file = write(
        json.dumps(
            [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "3 flights found"},
                {"role": "user", "content": [{"type": "text", "text": "第一个"}]},
            ]
        )
    )
    assert run("import", file, *ADA, "--json").json["written"] == 3
    contents = [m["content"] for m in run("list", *ADA, "--json").json["items"]]
    assert contents == ["第一个", "3 flights found", 'search_flights({"to": "上海"})']


def test_blank_messages_are_counted_and_unknown_fields_named(
    run: Run, write: Callable[..., str]
) -> None:
    file = write(lines(HELLO, {"role": "user", "content": " "}, {**REPLY, "sesion_id": "s"}))
    counts = run("import", file, *ADA, "--json").json
    assert (counts["messages"], counts["written"], counts["skipped"]) == (3, 2, 1)
    assert counts["ignored_fields"] == ["sesion_id"]


BAD = [
    ("", "no message"),
    ("\n \n", "no message"),
    ("[]", "no message"),
    ("hello\n", "line 1 is no JSON"),
    ('{"role": "user", "content": "x"}\n{"role": "user", "con', "line 2 is no JSON"),
    ('[\n{"role": "user", "content": "x"},\n{"role": "user",\n', "line 4 is no JSON"),
    (lines(HELLO) + "[1]\n", "line 2 is no JSON object"),
    (json.dumps([HELLO, "hi"]), "message 2 is no JSON object"),
    (json.dumps({"messages": {"role": 1}}), "no list of messages"),
    (lines(HELLO, {"role": "user"}), "line 2: the message has no content"),
    (lines(HELLO, {"role": "king", "content": "x"}), "line 2: the message has the unknown role"),
    (lines(HELLO, {**HELLO, "content": 7}), "line 2: the message: content"),
    (lines(HELLO, {**HELLO, "occurred_at": "soon"}), "line 2: occurred_at"),
    (lines(HELLO, {**HELLO, "timestamp": True}), "line 2: timestamp"),
    (lines(HELLO, {**HELLO, "metadata": []}), "line 2: the message: metadata"),
    (lines(HELLO, {**HELLO, "metadata": {"$x": 1}}), "line 2: the metadata key"),
    (lines(HELLO) + '{"content": "x", "metadata": {"a": NaN}}\n', "line 2: metadata"),
    (lines(HELLO, {**HELLO, "session_id": 7}), "line 2: session_id is a string"),
    (lines(HELLO, {**HELLO, "session_id": ""}), "line 2: session_id is blank"),
    (lines(HELLO, {**HELLO, "user_id": 7}), "line 2: user_id is a string"),
    (lines(HELLO, {**HELLO, "user_id": ""}), "line 2: user_id is blank"),
    (lines(HELLO, {**HELLO, "user_id": "eve"}), "line 2 is of another user"),
    (lines(HELLO) + "[" * 100_000 + "\n", "line 2 holds a number too long or is nested"),
    (lines(HELLO) + '{"content": "x", "n": ' + "9" * 5_000 + "}\n", "line 2 holds a number"),
    (lines(HELLO).encode() + b'{"content": "caf\xe9"}\n', "line 2 is not UTF-8"),
    (lines(HELLO).encode("utf-16"), "line 1 is not UTF-8"),
    (b"\x00\x01\x02\xff", "line 1 is not UTF-8"),
]


@pytest.mark.parametrize(("content", "says"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named_and_nothing_imported(
    run: Run, write: Callable[..., str], content: str | bytes, says: str
) -> None:
    refused = run("import", write(content), *ADA)
    assert refused.code == 2, refused
    assert says in refused.err
    assert run("stats", "--json").json["turns"] == 0


def test_without_a_user_nobody_gets_it(run: Run, write: Callable[..., str]) -> None:
    refused = run("import", write(lines({**HELLO, "user_id": "ada"}, HELLO)))
    assert refused.code == 2
    assert "line 2 names no user_id" in refused.err
    assert run("stats", "--json").json["turns"] == 0


def test_a_device_can_have_a_transcript(run: Run, write: Callable[..., str]) -> None:
    assert run("import", write(lines(HELLO)), "--device", "phone").code == 0
    assert len(run("list", "--device", "phone", "--json").json["items"]) == 1


def test_a_name_that_looks_like_a_line_end_is_none(run: Run, write: Callable[..., str]) -> None:
    file = write(json.dumps({**HELLO, "content": "a\u2028b\u0085c"}, ensure_ascii=False) + "\n")
    assert run("import", file, *ADA, "--json").json["written"] == 1


class Remembers:
    """Notes the calls of `add`, and breaks off at the one it is told to."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.calls: list[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]] = []
        self._breaks_at = breaks_at

    def add(self, messages: Sequence[Mapping[str, Any]], **given: Any) -> Any:
        from scrubjay import Receipt

        if len(self.calls) == self._breaks_at:
            raise OSError("the disk is gone")
        self.calls.append((messages, given))
        ids = tuple(f"{len(self.calls)}-{n}" for n in range(len(messages)))
        return Receipt(ids=ids)


def test_groups_follow_sessions_and_stay_below_500(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    spans = [("a", 700), ("b", 1), ("a", 2)]
    file.write_text(
        lines(*({**HELLO, "session_id": s, "content": f"{s} {n}"} for s, c in spans
                for n in range(c))), "utf-8",
    )  # fmt: skip
    memory = Remembers()
    seen: list[tuple[int, int, str]] = []
    counts = transcripts.import_(
        memory, file, user_id="ada", progress=lambda *told: seen.append(told)
    )
    assert [(len(m), g["session_id"]) for m, g in memory.calls] == [
        (500, "a"), (200, "a"), (1, "b"), (2, "a"),
    ]  # fmt: skip
    keys = [given["idempotency_key"] for _, given in memory.calls]
    assert len(set(keys)) == 4
    assert counts["written"] == 703
    assert seen[-1] == (703, 703, "messages")
    broken = Remembers(breaks_at=2)
    with pytest.raises(OSError, match="disk"):
        transcripts.import_(broken, file, user_id="ada")
    assert [given["idempotency_key"] for _, given in broken.calls] == keys[:2]


def test_reading_checks_without_adding(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(lines(HELLO, REPLY), "utf-8")
    transcript = transcripts.read(file)
    assert [line.where for line in transcript.lines] == ["line 1", "line 2"]
    with pytest.raises(ImportFailed, match="cannot be read"):
        transcripts.read(tmp_path)
