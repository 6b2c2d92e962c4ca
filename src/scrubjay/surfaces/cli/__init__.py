"""The command line: every verb of a memory, from a terminal or a script.

`scrubjay --help` lists the commands, `scrubjay COMMAND --help` explains one with an example. The
commands hold no logic of memory: each checks what was typed, calls one public verb, and shows
what came back, for people or with `--json` for programs.
"""

from __future__ import annotations

import sys

from scrubjay.surfaces.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal's encoding cannot show is written as an escape; no command fails for it.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
