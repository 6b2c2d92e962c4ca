"""The command line: every verb of a memory, from a terminal or a script.

`scrubjay --help` lists the commands, `scrubjay COMMAND --help` explains one with an example. The
commands hold no logic of memory: each checks what was typed, calls one public verb, and shows
what came back, for people or with `--json` for programs.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO, cast

from scrubjay.surfaces.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nothing("w"))
        elif hasattr(stream, "reconfigure"):
            # What the encoding cannot show is written as an escape; no command fails for it.
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        sys.stdin = _nothing("r")
    app()


def _nothing(mode: str) -> TextIO:
    """Stands for a stream that the caller closed."""
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))
