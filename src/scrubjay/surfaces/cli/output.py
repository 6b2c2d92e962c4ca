"""What goes to the two outputs: results on standard output, everything else on standard error.

With `--json` a command writes one JSON document, with the names of `to_dict()`, and nothing
else. For people, control characters in what a memory says are shown and not obeyed: a memory
is data, and a terminal would take some of it for commands.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from scrubjay.model import plain

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 120
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPED_BY_NOBODY = re.compile("[\x7f-\x9f]")


def visible(text: str) -> str:
    r"""The text with control characters shown as pictures; new lines and tabs are kept.

    >>> visible("red\x1b[31m\n")
    'red␛[31m\n'
    """
    return _CONTROLS.sub(lambda found: _picture(ord(found[0])), text)


def _picture(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\x{code:02x}"


def emit(value: Any) -> None:
    """Write one JSON document."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(plain(value), ensure_ascii=not unicode, indent=2, allow_nan=False)
    text = _ESCAPED_BY_NOBODY.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Write a line for people to standard output."""
    sys.stdout.write(visible(text) + "\n")


def raw(text: str) -> None:
    """Write a block as it is; to a terminal without what would steer it."""
    shown = visible(text) if sys.stdout.isatty() else text
    sys.stdout.write(shown + "\n")


def alert(label: str, text: str) -> None:
    """Write `label: text` to standard error."""
    colour = {"error": "red", "note": "yellow"}.get(label)
    typer.secho(f"{label}: ", fg=colour, bold=True, nl=False, err=True)
    typer.echo(visible(text), err=True)


def notes(texts: Iterable[str]) -> None:
    """Write each note once, to standard error."""
    for text in dict.fromkeys(texts):
        alert("note", text)


def console() -> Console:
    """Rich's console on standard output; as wide as a page where it is no terminal."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=wide, markup=False, highlight=False, emoji=False)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> counted(1, "memory", "memories"), counted(3, "line")
    ('1 memory', '3 lines')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
