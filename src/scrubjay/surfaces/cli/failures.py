"""From an error to one clear line and an exit code.

Exit codes: 0 done; 1 the store, the model or the outcome is not as it should be for now; 2 what
was typed, or the store it names, cannot be used; 130 interrupted; 141 the output's reader left.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from typing import Any, cast

import typer

from scrubjay.errors import (
    ImportFailed,
    InvalidInput,
    NotFound,
    NotPermitted,
    SchemaTooNew,
    ScrubjayError,
    SettingsError,
    StoreDamaged,
    StoreReadOnly,
)
from scrubjay.surfaces.cli import output

MISTAKE = 2
TROUBLE = 1
INTERRUPTED = 130
UNREAD = 141

# Typer brings its own click since 0.26; a bad option is the same class in either.
UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])

_WRONG_PATHS = (errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_CALLERS = (
    InvalidInput,
    SettingsError,
    NotFound,
    NotPermitted,
    SchemaTooNew,
    StoreDamaged,
    StoreReadOnly,
)
_OPTIONS = {
    "user_id": "--user",
    "device_id": "--device",
    "agent_id": "--agent",
    "session_id": "--session",
    "memory_id": "--memory",
    "turn_id": "--turn",
    "occurred_at": "--occurred-at",
    "expires_at": "--expires-at",
    "idempotency_key": "--idempotency-key",
    "top_k": "--top-k",
    "max_tokens": "--max-tokens",
    "as_of": "--as-of",
    "known_at": "--known-at",
}
_NAMES = re.compile(rf"(?<![\w/.'\-])({'|'.join(_OPTIONS)})(?![\w/.\-])")


def in_words_of_the_command_line(text: str) -> str:
    """A message of the library with the options' names in place of the parameters'.

    >>> in_words_of_the_command_line("user_id is blank; pass None to leave it out")
    '--user is blank; leave it out'
    """
    text = text.replace("pass None to leave it out", "leave it out")
    return _NAMES.sub(lambda found: _OPTIONS[found[1]], text)


def guarded(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run `command`; its exit code, with its error told on standard error.

    An error that nobody's input explains passes through: its traceback is what a report needs.
    """
    try:
        code = command()
    except ScrubjayError as exc:
        text = str(exc)
        if not isinstance(exc, (SettingsError, ImportFailed)):  # these name settings, fields
            text = in_words_of_the_command_line(text)
        tell(text, exc.code, as_json=as_json)
        return MISTAKE if isinstance(exc, _CALLERS) else TROUBLE
    except UsageError as exc:
        tell(_usage(exc), "usage", as_json=as_json)
        return MISTAKE
    except typer.Abort:
        return TROUBLE
    except OSError as exc:
        where = "" if exc.filename is None else f"{str(exc.filename)[:200]}: "
        why = exc.strerror or type(exc).__name__
        tell(f"{where}{why}; check the path and its owner", "os_error", as_json=as_json)
        return MISTAKE if exc.errno in _WRONG_PATHS else TROUBLE
    return code if isinstance(code, int) else 0


def tell(message: str, code: str, *, as_json: bool) -> None:
    """The error for people on standard error; with `--json` also for programs on the output."""
    output.alert("error", message)
    if as_json:
        output.emit({"error": {"code": code, "message": message}})


def interrupted() -> typer.Exit:
    """What ends a command that Ctrl-C stopped; what was acknowledged is kept."""
    output.alert("interrupted", "what was done before is kept")
    return typer.Exit(INTERRUPTED)


def unread() -> typer.Exit:
    """What ends a command whose output nobody reads any more; silently, as other tools do."""
    # Python flushes the output once more when it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(UNREAD)


def _usage(exc: Exception) -> str:
    """What is wrong with an option or argument, and where to look."""
    shown: Callable[[], str] = getattr(exc, "format_message", exc.__str__)
    message = shown().replace("Value error, ", "").rstrip(" .")
    end = "" if message.endswith("?") else "."
    path = getattr(getattr(exc, "ctx", None), "command_path", "scrubjay")
    return f"{message}{end} `{path} --help` shows what there is"
