"""What cannot be used is refused: exit 2, one line that says what to do, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
ITS_FILES = pytest.mark.embedded_only("what a damaged file does; a server checks its own")

BAD = [
    # (arguments, what the message says)
    (["search", "x"], "--user is missing"),
    (["search", "x", "--user", " "], "--user is blank"),
    (["search", " ", "--user", "ada"], "blank"),
    (["search", "x" * 20_001, "--user", "ada"], "shorter"),
    (["search", "x", "--user", "ada\x01" * 200], "longer than 512"),
    (["search", "x", "--user", "ada", "--top-k", "0"], "between 1 and 1000"),
    (["search", "x", "--user", "ada", "--top-k", "-3"], "between 1 and 1000"),
    (["search", "x", "--user", "ada", "--top-k", "abc"], "--help"),
    (["search", "x", "--user", "ada", "--threshold", "2"], "from 0 to 1"),
    (["search", "x", "--user", "ada", "--threshold", "nan"], "from 0 to 1"),
    (["search", "x", "--user", "ada", "--kind", "foo"], "episode"),
    (["search", "x", "--user", "ada", "--tier", "foo"], "permanent"),
    (["search", "x", "--user", "ada", "--since", "tomorrow"], "2026-03-09"),
    (["search", "x", "--user", "ada", "--since", "2026-13-40"], "2026-03-09"),
    (["search", "x", "--user", "ada", "--since", "2027", "--until", "2026"], "2026-03-09"),
    (["search", "x", "--user", "ada", "--since", "2027-01-01", "--until", "2026-01-01"], "swap"),
    (["search", "x", "--user", "ada", "--as-of", ""], "--as-of"),
    (["search", "x", "--user", "ada", "--now", "9999-12-31T23:59:59-12:00"], "9999"),
    (["search", "x", "--user", "ada", "--time-zone", "Mars/Base"], "Europe/Paris"),
    (["search", "x", "--user", "ada", "--time-zone", "../../etc/passwd"], "Europe/Paris"),
    (["search", "x", "--user", "ada", "--filter", "foo"], "KEY=VALUE"),
    (["search", "x", "--user", "ada", "--filter", "=3"], "KEY=VALUE"),
    (["search", "x", "--user", "ada", "--filter", "user_id=3"], "argument of its own"),
    (["search", "x", "--user", "ada", "--filter", "a=1", "--filter", "a=2"], "twice"),
    (["search", "x", "--user", "ada", "--filters", "{a"], "single quotes"),
    (["search", "x", "--user", "ada", "--filters", "[1]"], "single quotes"),
    (["search", "x", "--user", "ada", "--filters", '{"a": {"near": 1}}'], "contains"),
    (["search", "x", "--user", "ada", "--filters", "[" * 100_000], "single quotes"),
    (["search", "x", "--user", "ada", "--filters", '{"a": ' + "9" * 5_000 + "}"], "too long"),
    (["context", "x", "--user", "ada", "--max-tokens", "0"], "--max-tokens"),
    (["context", "x", "--user", "ada", "--format", "html"], "markdown"),
    (["context", "x", "--user", "ada", "--language", "fr"], "en or zh"),
    (["add", "", "--user", "ada"], "nothing to remember"),
    (["add", "-", "--user", "ada"], "nothing to remember"),
    (["add", "-", "-", "--user", "ada"], "once"),
    (["add", "x"], "--user is missing"),
    (["add", "x", "--user", "ada", "--role", "king"], "assistant"),
    (["add", "x", "--user", "ada", "--kind", "king"], "episode"),
    (["add", "x", "--user", "ada", "--visibility", "secret"], "private"),
    (["add", "x", "--user", "ada", "--visibility", "private"], "agent"),
    (["add", "x", "--user", "ada", "--occurred-at", "yesterday-ish"], "2026-03-09"),
    (["add", "x", "--user", "ada", "--expires-at", "never"], "2026-03-09"),
    (["add", "x", "--user", "ada", "--metadata", "{'a': 1}"], "single quotes"),
    (["add", "x", "--user", "ada", "--metadata", "7"], "single quotes"),
    (["add", "x", "--user", "ada", "--metadata", '{"a": NaN}'], "None"),
    (["add", "x", "--user", "ada", "--metadata", '{"$a": 1}'], "reserved"),
    (["add", "x", "--user", "ada", "--idempotency-key", ""], "--idempotency-key"),
    (["get", "no-such-id", "--user", "ada"], "list"),
    (["get", "", "--user", "ada"], "receipt"),
    (["update", "no-such-id", "x", "--user", "ada"], "list"),
    (["history", "no-such-id", "--user", "ada"], "list"),
    (["delete", "no-such-id", "--user", "ada", "--yes"], "list"),
    (["forget", "--yes"], "--user is missing"),
    (["forget", "--session", "s", "--yes"], "--user is missing"),
    (["forget", "--user", "ada", "--session", "s", "--before", "2026-01-01"], "one thing"),
    (["forget", "--user", "ada", "--before", "soon", "--yes"], "2026-03-09"),
    (["forget", "--user", "ada"], "--yes"),
    (["list", "--user", "ada", "--limit", "0"], "between 1 and"),
    (["list", "--user", "ada", "--limit", "many"], "--help"),
    (["list", "--user", "ada", "--cursor", "abc"], "begin anew"),
    (["list", "--user", "ada", "--state", "gone"], "superseded"),
    (["export", "no/such/folder/x", "--user", "ada"], "another file"),
    (["export", ".", "--user", "ada"], "directory"),
    (["export", ".", "--user", "ada", "--force"], "directory"),
    (["import", "no-such-file", "--user", "ada"], "cannot be read"),
    (["import", ".", "--user", "ada"], "cannot be read"),
    (["restore", "no-such-file", "--yes"], "backup"),
    (["stats", "--user", ""], "--user is blank"),
    (["flush", "--timeout", "-1"], "--help"),
    (["serch", "x"], "Did you mean"),
    (["search"], "Missing argument"),
    (["search", "two", "words", "--user", "ada"], "--help"),
    (["search", "x", "--users", "ada"], "--help"),
    (["--nonsense"], "--help"),
    (["models"], "--help"),
    (["models", "prepare"], "SCRUBJAY_EMBEDDER"),
    (["eval", "locomo"], "--data"),
    (["eval", "trivia", "--data", "x"], "memdaily"),
    (["eval", "locomo", "--data", "no-such-file"], "JSON file"),
    (["eval", "locomo", "--data", "."], "JSON file"),
]
HAVE_NO_PATH = {"--nonsense", "models", "serch"}


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda v: " ".join(v)[:60] if v else "")
def test_bad_input_is_refused(
    run: Run, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run("add", "I prefer a window seat.", "--user", "ada", "--idempotency-key", "first")
    before = run("stats", "--user", "ada", "--json").json
    refused = run(*words, store=words[0] not in HAVE_NO_PATH, given="")
    assert refused.code == 2, refused
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1, "one line"
    assert says in refused.err
    assert "Traceback" not in refused.err
    assert refused.out == ""
    assert run("stats", "--user", "ada", "--json").json == before, "something was written"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["search", "x"], "scope_required"),
        (["search", "x", "--user", "ada", "--top-k", "0"], "invalid_input"),
        (["search", "x", "--user", "ada", "--top-k", "x"], "usage"),
        (["get", "no-such-id", "--user", "ada"], "not_found"),
        (["import", "no-such-file", "--user", "ada"], "import_failed"),
    ],
)
def test_with_json_the_error_is_a_document(run: Run, words: list[str], code: str) -> None:
    refused = run(*words, "--json")
    assert refused.code == 2
    error = refused.json["error"]
    assert error["code"] == code
    assert refused.err == f"error: {error['message']}\n" or "note:" in refused.err


BAD_PLACES = [
    (["--path", ""], "blank"),
    (["--path", "mysql://x/y"], "directory"),
    (["--path", "a-file"], "is a file"),
    (["--path", "a" * 300], "too long"),
]


@pytest.mark.parametrize(("where", "says"), BAD_PLACES)
@pytest.mark.parametrize("words", [["list", "--user", "ada"], ["add", "x", "--user", "ada"]])
def test_a_bad_place_is_refused(
    run: Run,
    where: list[str],
    says: str,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("x", "utf-8")
    refused = run(*words, *where, store=False)
    assert refused.code == 2, refused
    assert says in refused.err


BAD_SETTINGS = [
    ({"SCRUBJAY_CACHE_MB": "many"}, "cache_mb"),
    ({"SCRUBJAY_TIMEZONE": "Mars/Base"}, "timezone"),
    ({"SCRUBJAY_RECALL": "{a"}, "recall"),
    ({"SCRUBJAY_RECALL": '{"speed": 1}'}, "recall"),
    ({"SCRUBJAY_MODEL_WAIT_S": "-1"}, "model_wait_s"),
]


@pytest.mark.parametrize(("environment", "says"), BAD_SETTINGS)
def test_a_bad_setting_is_named(
    run: Run, environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("add", "x", "--user", "ada")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refused = run("list", "--user", "ada")
    assert refused.code == 2, refused
    assert says in refused.err


@pytest.mark.parametrize(
    "content", [b"path = [", b"colour = 1", b"\xff\xfe", b"cache_mb = 'x'", b"synchronous = 'NOW'"]
)
def test_a_bad_settings_file_is_told(
    run: Run, content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    monkeypatch.setenv("SCRUBJAY_CONFIG", str(file))
    for words in (["list", "--user", "ada"], ["settings"]):
        refused = run(*words, store=False)
        assert refused.code == 2, refused
        assert "scrubjay settings" in refused.err
    assert "embedder" in refused.out, "the list comes all the same"


@ITS_FILES
def test_a_damaged_store_is_told(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "scrubjay.db").write_bytes(b"no database at all " * 1_000)
    for words in (["list", "--user", "ada"], ["add", "x", "--user", "ada"], ["doctor"], ["stats"]):
        refused = run(*words)
        assert refused.code == 2
        assert "damaged" in refused.err
    good = tmp_path / "good"
    run("add", "x", "--user", "ada", "--path", str(good), store=False)
    backup = str(tmp_path / "backup")
    run("backup", backup, "--path", str(good), store=False)
    refused = run("restore", backup, "--yes")
    assert refused.code == 2
    assert "aside" in refused.err
    (tmp_path / "store").rename(tmp_path / "aside")
    assert run("restore", backup, "--yes").code == 0


def test_a_file_that_is_no_backup_changes_nothing(run: Run, tmp_path: Path) -> None:
    run("add", "Keep me.", "--user", "ada")
    file = tmp_path / "letter.txt"
    file.write_text("Dear Mira, " * 1_000, "utf-8")
    refused = run("restore", str(file), "--yes")
    assert refused.code == 2
    assert "Keep me." in run("list", "--user", "ada").out


@ITS_FILES
def test_any_spoilt_byte_of_a_store_is_told(run: Run, tmp_path: Path) -> None:
    """Never a traceback: a store of which any part was overwritten is told, or still answers."""
    run(
        "add", *[f"note number {n} about topic {n % 7} 第{n}条" for n in range(50)], "--user", "ada"
    )
    file = tmp_path / "store" / "scrubjay.db"
    run("backup", str(tmp_path / "whole"))
    whole = (tmp_path / "whole").read_bytes()
    for other in file.parent.iterdir():
        other.unlink()
    for place in range(0, len(whole), len(whole) // 25):
        for words in (["list", "--user", "ada"], ["search", "note", "--user", "ada"], ["doctor"]):
            for other in file.parent.iterdir():
                other.unlink()
            file.write_bytes(whole[:place] + b"\xa5" * 700 + whole[place + 700 :])
            answer = run(*words)
            assert answer.code in (0, 1, 2), (place, words, answer)
            assert (answer.code == 0) or answer.err or answer.out


def test_the_words_are_those_of_the_command_line(run: Run) -> None:
    refused = run("search", "x", "--json")
    assert "user_id" not in json.dumps(refused.json["error"])
