"""Every command does what its help says, for people and with `--json`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import scrubjay
from places import Places
from scrubjay import evals
from scrubjay.model import State
from scrubjay.read.pack import FORMATS
from scrubjay.surfaces.cli import app, options

Run = Callable[..., Any]
ADA = ("--user", "ada")
LIN = ("--user", "lin")


def commands() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def stored(run: Run, *texts: str, user: str = "ada", more: tuple[str, ...] = ()) -> list[str]:
    ids: list[str] = run("add", *texts, "--user", user, *more, "--json").json["ids"]
    return ids


# -- what there is -----------------------------------------------------------------------------


def test_every_verb_is_a_command() -> None:
    verbs = {
        name.rstrip("_")
        for name, _ in inspect.getmembers(scrubjay.Memory, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }
    assert verbs <= set(commands())
    assert {"settings", "models", "demo", "eval", "bench"} <= set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_explains_with_an_example(name: str, run: Run) -> None:
    shown = run(name, "--help", store=False)
    assert shown.code == 0
    assert f"scrubjay {name}" in " ".join(shown.out.split()).replace("Usage: scrubjay", "")


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    shown = run(store=False)
    assert shown.code == 0
    assert "search" in shown.out


def test_version(run: Run) -> None:
    assert run("--version", store=False).out == f"scrubjay {scrubjay.__version__}\n"


def test_choices_are_those_of_the_library() -> None:
    assert tuple(options.Format) == FORMATS
    assert tuple(options.Benchmark) == evals.NAMES
    (states,) = (p for p in commands()["list"].params if "--state" in p.opts)
    assert all(state.value in states.help for state in State)


# -- writing and reading -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "text", "question"),
    [
        ("ada", "I prefer a window seat.", "which seat?"),
        ("lin", "订单 DD20260115-7731 已发货 📦", "DD20260115-7731"),
        ("лев", "Это «кавычки» and 'quotes'; $HOME `x`\n第二行", "第二行"),
    ],
)
def test_what_was_added_is_found(run: Run, user: str, text: str, question: str) -> None:
    added = run("add", text, "--user", user)
    assert added.code == 0
    assert added.out.startswith("stored 1 memory\n")
    found = run("search", question, "--user", user, "--json").json
    assert [hit["content"] for hit in found["hits"]] == [text]
    shown = run("search", question, "--user", user)
    assert shown.code == 0
    assert text.split("\n")[0] in shown.out
    assert found["hits"][0]["id"] in shown.out


def test_add_takes_everything_the_library_takes(run: Run) -> None:
    receipt = run(
        "add", "我最喜欢的茶是龙井", *LIN, "--role", "assistant", "--agent", "sommelier",
        "--session", "s 1", "--namespace", "tea", "--device", "phone", "--kind", "preference",
        "--visibility", "private", "--occurred-at", "2026-03-09 18:00", "--time-zone",
        "Asia/Shanghai", "--expires-at", "2999-01-01", "--metadata", '{"rating": 5}',
        "--idempotency-key", "k1", "--json",
    ).json  # fmt: skip
    memory = run("get", receipt["ids"][0], *LIN, "--agent", "sommelier", "--json").json
    assert memory["occurred_at"] == "2026-03-09T10:00:00+00:00"
    assert memory["expires_at"] == "2998-12-31T16:00:00+00:00"
    assert (memory["kind"], memory["role"], memory["visibility"]) == (
        "preference", "assistant", "private",
    )  # fmt: skip
    assert memory["metadata"] == {"rating": 5}
    assert memory["scope"] == {
        "user_id": "lin", "device_id": "phone", "agent_id": "sommelier", "session_id": "s 1",
        "namespace": "tea", "tenant": "default",
    }  # fmt: skip
    assert run("search", "龙井", *LIN, "--json").json["hits"] == []


def test_several_texts_are_several_messages(run: Run) -> None:
    assert len(stored(run, "One thing.", "另一件事。")) == 2


def test_the_same_key_again_writes_nothing(run: Run) -> None:
    first = run("add", "Keep this.", *ADA, "--idempotency-key", "k").out
    again = run("add", "Keep this.", *ADA, "--idempotency-key", "k")
    assert "nothing was written" in again.out
    assert first.split()[-1] in again.out
    assert run("stats", *ADA, "--json").json["turns"] == 1
    other = run("add", "Another.", *ADA, "--idempotency-key", "k")
    assert other.code == 2


def test_the_same_statement_gains_a_source(run: Run) -> None:
    run("add", "Keep this.", *ADA)
    again = run("add", "Keep this.", *ADA)
    assert again.out.startswith("known already: 1 memory gained a source")


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("从管道来\n".encode(), "从管道来"),
        (b"\xef\xbb\xbfwith a mark\r\n", "with a mark"),
        (b"two\nlines\n\n", "two\nlines\n"),
    ],
)
def test_a_dash_reads_standard_input(run: Run, given: bytes, content: str) -> None:
    receipt = run("add", "-", *ADA, "--json", given=given).json
    assert run("get", receipt["ids"][0], *ADA, "--json").json["content"] == content


def test_input_that_is_no_utf8_is_stored_and_noted(run: Run) -> None:
    added = run("add", "-", *ADA, given=b"caf\xe9 au lait")
    assert added.code == 0
    assert "not UTF-8" in added.err
    assert "au lait" in run("list", *ADA).out


def test_search_narrows(run: Run) -> None:
    for n, tag in enumerate(["trip", "trip", "work"]):
        run("add", f"The note about trains number {n}", *ADA, "--occurred-at",
            f"2026-0{n + 1}-10", "--metadata", json.dumps({"tag": tag, "rating": n, "code": str(n)}),
            "--session", f"s{n}", "--kind", "fact" if n else "event")  # fmt: skip

    def numbers(*more: str) -> set[str]:
        found = run("search", "note about trains", *ADA, *more, "--json")
        assert found.code == 0, found.err
        return {hit["content"][-1] for hit in found.json["hits"]}

    assert numbers() == {"0", "1", "2"}
    assert numbers("--filter", "tag=trip") == {"0", "1"}
    assert numbers("-f", "tag=trip", "-f", "rating>=1") == {"1"}
    assert numbers("-f", "rating>0", "-f", "rating < 2") == {"1"}
    assert numbers("-f", "rating!=1") == {"0", "2"}
    assert numbers("-f", "code=1") == set()
    assert numbers("-f", 'code="1"') == {"1"}
    assert numbers("--filters", '{"tag": {"in": ["work", "x"]}}') == {"2"}
    assert numbers("--filters", '{"tag": "trip"}', "-f", "rating=0") == {"0"}
    assert numbers("--since", "2026-02-01") == {"1", "2"}
    assert numbers("--until", "2026-02-10") == {"0", "1"}
    assert numbers("--kind", "event") == {"0"}
    assert numbers("--kind", "event", "--kind", "fact") == {"0", "1", "2"}
    assert numbers("--session", "s2") == {"2"}
    assert numbers("--tier", "permanent") == set()
    assert numbers("--threshold", "1") <= {"0", "1", "2"}
    assert len(numbers("--top-k", "1")) == 1
    assert len(numbers("-k", "2")) == 2


def test_explain_shows_the_parts_of_the_scores(run: Run) -> None:
    run("add", "I prefer a window seat.", *ADA)
    table = run("search", "seat", *ADA, "--explain").out
    assert {"score", "relevance", "words"} <= set(table.split())
    hit = run("search", "seat", *ADA, "--explain", "--json").json["hits"][0]
    assert hit["explanation"]["words"] > 0


def test_nothing_found_is_no_error(run: Run) -> None:
    run("add", "I prefer a window seat.", *ADA)
    found = run("search", "qwertz", *ADA)
    assert (found.code, found.out) == (0, "")
    assert "nothing was found" in found.err


def test_context_is_the_block_and_nothing_else(run: Run) -> None:
    run("add", "用户偏好靠窗座位", *LIN, "--occurred-at", "2026-01-15 14:30")
    block = run("context", "座位", *LIN)
    assert block.code == 0
    assert block.out.startswith("<memories note=")
    assert block.out.endswith("</memories>\n")
    assert "[m1] 2026-01-15 14:30" in block.out
    assert "置信度" in block.out
    assert "confidence" in run("context", "座位", *LIN, "--language", "en").out
    assert "22:30" in run("context", "座位", *LIN, "--time-zone", "Asia/Shanghai").out
    assert json.loads(run("context", "座位", *LIN, "--format", "json").out)["memories"]
    assert run("context", "座位", *LIN, "--format", "xml").out.count("<memory ") == 1
    assert run("context", "座位", *LIN, "--json").json["tokens"] > 0


def test_context_of_nothing_is_empty(run: Run) -> None:
    run("add", "I prefer a window seat.", *ADA)
    block = run("context", "qwertz", *ADA)
    assert (block.code, block.out) == (0, "")
    assert "nothing was found" in block.err
    assert "no room" in run("context", "seat", *ADA, "--max-tokens", "1").err


def test_get_shows_where_it_came_from(run: Run) -> None:
    (memory_id,) = stored(run, "I prefer a window seat.", more=("--metadata", '{"tag": "旅行"}'))
    shown = run("get", memory_id, *ADA).out
    assert "I prefer a window seat." in shown
    assert "characters 0 to 23" in shown
    assert '{"tag": "旅行"}' in shown


def test_update_keeps_the_old_version(run: Run) -> None:
    (old,) = stored(run, "I prefer a window seat.")
    new = run("update", old, "I prefer an aisle seat.", *ADA, "--reason", "改主意了", "--json").json
    assert new["version"] == 2
    assert [h["content"] for h in run("search", "prefer", *ADA, "--json").json["hits"]] == [
        "I prefer an aisle seat."
    ]
    both = run("search", "prefer", *ADA, "--history", "--json").json["hits"]
    assert {h["state"] for h in both} == {"active", "superseded"}
    events = run("history", old, *ADA, "--json").json
    assert [(e["event"], e["memory"]["version"]) for e in events] == [("add", 1), ("update", 2)]
    shown = run("history", new["id"], *ADA).out
    assert "改主意了" in shown
    assert "window" in shown


def test_list_pages_once_through_everything(run: Run) -> None:
    run("add", *[f"note number {n}" for n in range(7)], *ADA)
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        page = run("list", *ADA, "--limit", "3", *cursor, "--json").json
        assert page["total"] == 7
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = ("--cursor", page["next_cursor"])
    assert len(seen) == len(set(seen)) == 7
    everything = run("list", *ADA, "--all", "--limit", "2", "--json").json
    assert [item["id"] for item in everything["items"]] == seen
    assert everything["next_cursor"] is None
    page = run("list", *ADA, "--limit", "3")
    assert "3 of 7 memories; --cursor" in page.err
    assert "number 6" in page.out
    assert "number 0" not in page.out


def test_list_by_state(run: Run) -> None:
    (old,) = stored(run, "I prefer a window seat.")
    run("update", old, "I prefer an aisle seat.", *ADA)
    assert len(run("list", *ADA, "--json").json["items"]) == 1
    assert len(run("list", *ADA, "--state", "superseded", "--json").json["items"]) == 1
    assert len(run("list", *ADA, "--state", "all", "--json").json["items"]) == 2
    assert "superseded" in run("list", *ADA, "--state", "all").out


def test_control_characters_are_shown_and_not_obeyed(run: Run) -> None:
    (memory_id,) = stored(run, "red \x1b[31m alert \x9b0m\x07")
    for shown in (run("list", *ADA), run("get", memory_id, *ADA), run("search", "alert", *ADA)):
        assert "␛[31m" in shown.out
        assert not {"\x1b", "\x9b", "\x07"} & set(shown.out)
    raw = run("get", memory_id, *ADA, "--json")
    assert not {"\x1b", "\x9b", "\x07"} & set(raw.out)
    assert raw.json["content"] == "red \x1b[31m alert \x9b0m\x07"


# -- forgetting --------------------------------------------------------------------------------


def test_delete_and_forget(run: Run) -> None:
    ids = stored(run, "One thing.", "Another thing.", more=("--session", "s1"))
    stored(run, "A third thing.", more=("--session", "s2"))
    erased = run("delete", ids[0], *ADA, "--yes", "--json").json
    assert erased["memory_ids"] == [ids[0]]
    assert not any(erased["probe"].values())
    assert run("get", ids[0], *ADA).code == 2
    assert "probe found nothing" in run("forget", *ADA, "--session", "s1", "--yes").out
    assert [m["content"] for m in run("list", *ADA, "--json").json["items"]] == ["A third thing."]
    stored(run, "别人的", user="lin")
    assert run("forget", *ADA, "--yes").code == 0
    assert run("list", *ADA, "--state", "all", "--json").json["items"] == []
    assert len(run("list", *LIN, "--json").json["items"]) == 1


def test_forget_by_memory_turn_and_time(run: Run) -> None:
    receipt = run("add", "Old.", *ADA, "--occurred-at", "2020-01-01", "--json").json
    (kept,) = stored(run, "New.")
    assert run("forget", *ADA, "--before", "2021-01-01", "--yes").code == 0
    assert run("get", receipt["ids"][0], *ADA).code == 2
    turn = run("add", "By its turn.", *ADA, "--json").json
    assert run("forget", *ADA, "--turn", turn["turn_ids"][0], "--yes").code == 0
    assert run("get", turn["ids"][0], *ADA).code == 2
    assert run("forget", *ADA, "--memory", kept, "--yes").code == 0
    assert run("stats", *ADA, "--json").json["memories"] == 0


@pytest.mark.parametrize("what", [["delete", "ID", *ADA], ["forget", *ADA], ["restore", "FILE"]])
def test_nothing_goes_unasked(run: Run, what: list[str], tmp_path: Path) -> None:
    (memory_id,) = stored(run, "Keep me.")
    backup = str(tmp_path / "backup")
    run("backup", backup)
    words = [{"ID": memory_id, "FILE": backup}.get(word, word) for word in what]
    refused = run(*words)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "nothing was changed" in refused.err
    assert run("get", memory_id, *ADA).code == 0


def test_forgetting_a_user_says_that_everything_goes(run: Run) -> None:
    stored(run, "One.", "Two.")
    refused = run("forget", *ADA)
    assert "EVERYTHING of user 'ada'" in refused.err
    assert "2 memories" in refused.err


# -- files and the store -----------------------------------------------------------------------


def test_export_and_import_bring_everything_back(run: Run, place: Places, tmp_path: Path) -> None:
    (old,) = stored(run, "我喜欢靠窗座位", "The spare key is with Mira. 🔑")[:1]
    run("update", old, "我喜欢靠走道的座位", *ADA)
    file = str(tmp_path / "ada.jsonl")
    assert run("export", file, *ADA).out == f"wrote 3 turns and 3 memories to {file}\n"
    before = run("list", *ADA, "--state", "all", "--json").json["items"]
    run("forget", *ADA, "--yes")
    other = str(place("other"))
    counts = run("import", file, *ADA, "--json", "--path", other, store=False).json
    assert counts["written"] == 6
    again = run("import", file, *ADA, "--json", "--path", other, store=False).json
    assert again["written"] == 0
    after = run("list", *ADA, "--state", "all", "--json", "--path", other, store=False).json
    assert sorted(after["items"], key=str) == sorted(before, key=str)


def test_export_spares_a_file_that_is_there(run: Run, tmp_path: Path) -> None:
    stored(run, "One.")
    file = tmp_path / "ada.jsonl"
    file.write_text("mine", "utf-8")
    assert run("export", str(file), *ADA).code == 2
    assert file.read_text("utf-8") == "mine"
    assert run("export", str(file), *ADA, "--force").code == 0


def test_an_export_brings_its_own_sessions(run: Run, tmp_path: Path) -> None:
    stored(run, "One.")
    file = str(tmp_path / "ada.jsonl")
    run("export", file, *ADA)
    refused = run("import", file, *ADA, "--session", "s1")
    assert refused.code == 2
    assert "leave --session out" in refused.err


def test_backup_and_restore(run: Run, place: Places, tmp_path: Path) -> None:
    stored(run, "Before.")
    file = tmp_path / "backup"
    made = run("backup", str(file), "--json").json
    assert made == {"path": str(file), "bytes": file.stat().st_size}
    assert run("backup", str(file)).code == 2
    stored(run, "After.")
    assert run("restore", str(file), "--yes", "--json").json == {"left_out": 0}
    assert [m["content"] for m in run("list", *ADA, "--json").json["items"]] == ["Before."]
    new = ("--path", str(place("new")))
    assert run("restore", str(file), "--yes", *new, store=False).code == 0
    assert "Before." in run("list", *ADA, *new, store=False).out


def test_stats_doctor_reindex_and_flush(run: Run) -> None:
    stored(run, "One.", "二。")
    assert run("stats", "--json").json["memories"] == 2
    assert run("stats", *ADA, "--json").json["memories"] == 2
    assert "memories" in run("stats").out
    assert run("doctor").out.startswith("sound\n")
    assert run("doctor", "--repair", "--json").json["problems"] == []
    assert run("reindex", "--json").json["words"] == 2
    assert run("flush", "--json").json["done"] is True
    assert run("flush", "--timeout", "1").out == "nothing waits\n"


@pytest.mark.embedded_only("a server's store is made by whoever opens its URL first")
def test_reading_makes_no_store(run: Run, place: Places, tmp_path: Path) -> None:
    for words in (["search", "x", *ADA], ["context", "x", *ADA], ["list", *ADA], ["stats"]):
        answer = run(*words, "--json")
        assert answer.code == 0
        assert isinstance(answer.json, dict)
        assert "no store in" in answer.err
    for words in (["doctor"], ["reindex"], ["flush"], ["backup", str(tmp_path / "b")]):
        refused = run(*words)
        assert refused.code == 2
        assert "no store in" in refused.err
    assert run("get", "x", *ADA).code == 2
    assert place.every_byte() == b""
