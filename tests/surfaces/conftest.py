"""Runs the command line: in this process for speed, in its own where the process matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from places import Places
from scrubjay.surfaces.cli import app


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code and its two outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words alone, for speed; a test of meaning sets the model itself."""
    monkeypatch.setenv("SCRUBJAY_EMBEDDER", "none")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def run(place: Places) -> Callable[..., Outcome]:
    """`run("search", "seat", "--user", "ada")` on `place()`, in this process.

    `store=False` leaves the option `--path` out.
    """

    def run_(*args: str, store: bool = True, given: str | bytes | None = None) -> Outcome:
        where = ["--path", str(place())] if store else []
        result = CliRunner().invoke(app, [*args, *where], input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run_


@pytest.fixture
def command() -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-c", "from scrubjay.surfaces.cli import main; main()"]


@pytest.fixture
def process(command: list[str], place: Places, tmp_path: Path) -> Callable[..., Outcome]:
    """`process("list", "--user", "ada")` on `place()`, in a process of its own."""

    def process_(
        *args: str,
        store: bool = True,
        given: bytes = b"",
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Outcome:
        where = ["--path", str(place())] if store else []
        done = subprocess.run(
            [*command, *args, *where],
            input=given,
            capture_output=True,
            env={**os.environ, **(environment or {})},
            cwd=cwd or tmp_path,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return process_
