"""The examples of docs/cli.md are what the commands print."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHANGES = [
    # What differs from run to run, or with the model: times of recording, scores, sizes, counts.
    (re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d"), "TIME"),
    (re.compile(r"\d\.\d{3}\b"), "SCORE"),
    (re.compile(r"[\d,]+ bytes"), "BYTES"),
    (re.compile(r"erased: .*"), "ERASED"),
    (re.compile(r"^(model\.state|vectors) .*$", re.MULTILINE), "OF THE MODEL"),
]
NOT_RUN = ("models", "demo", "eval", "bench", "settings", "migrate")
"""Their output depends on the machine, or on files that are not here; migrate takes no --path."""


def examples() -> Iterator[tuple[str, str]]:
    """(the command, what it prints) of each example, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = example.partition("\n")
            yield command, printed


def masked(text: str) -> str:
    for pattern, word in CHANGES:
        text = pattern.sub(word, text)
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.strip().split("\n"))


def test_the_examples_are_real(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = [
        {"role": "user", "content": "Please book the flight DD20260115-7731.",
         "occurred_at": "2026-03-11T09:00:00Z"},
        {"role": "assistant", "content": "已为您预订航班 DD20260115-7731。",
         "occurred_at": "2026-03-11T09:00:20Z"},
    ]  # fmt: skip
    Path("chat.jsonl").write_text("\n".join(map(json.dumps, said)), "utf-8")
    ids: dict[str, str] = {}
    ran = 0
    for command, printed in examples():
        words = shlex.split(ID.sub(lambda found: ids.get(found[0], found[0]), command))
        if any(name in words for name in NOT_RUN):
            continue
        assert words[0] == "scrubjay"
        answer = run(*words[1:])
        assert answer.code == 0, (command, answer)
        if "--explain" not in words:  # which memory comes second is for the model to say
            assert masked(ID.sub("ID", answer.out)) == masked(ID.sub("ID", printed)), command
        ids.update(zip(ID.findall(printed), ID.findall(answer.out), strict=False))
        ran += 1
    assert ran > 15


def test_every_command_has_an_example() -> None:
    from typer.main import get_command

    from scrubjay.surfaces.cli import app

    shown = {word for command, _ in examples() for word in shlex.split(command)}
    assert set(get_command(app).commands) <= shown  # type: ignore[attr-defined]
