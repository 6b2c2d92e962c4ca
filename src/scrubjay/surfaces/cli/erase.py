"""The commands that take something away, and ask before: `delete`, `forget`, `restore`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scrubjay.errors import InvalidInput, StoreDamaged, without_password
from scrubjay.guard.access import make_scope
from scrubjay.surfaces.cli import opening, options, output

if TYPE_CHECKING:
    from scrubjay import Erasure, Memory

_SHOWN = 80


def delete(
    memory_id: options.MemoryId,
    yes: options.Yes = False,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    as_json: options.Json = False,
) -> None:
    """Erase one memory with all its versions and its words in the journal. Asks before.

    - `scrubjay delete 019b76da-a800-7c3e-9d0a-5f5f2a1b6c4d --user ada`
    """
    with opening.opened(opening.load_settings(path)) as (memory, _):
        found = memory.get(memory_id, user_id=user, device_id=device, agent_id=agent)
        text = " ".join(found.content.split())
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        confirm(f'This erases "{shown}" with all its versions, for good.', yes)
        erasure = memory.delete(memory_id, user_id=user, device_id=device, agent_id=agent)
    _show(erasure, as_json)


_option = options.option

OneMemory = Annotated[
    str | None, _option("--memory", metavar="ID", help="One memory with all its versions.")
]
OneSession = Annotated[str | None, _option("--session", metavar="ID", help="One conversation.")]
OneTurn = Annotated[str | None, _option("--turn", metavar="ID", help="One turn of the journal.")]
Before = Annotated[
    str | None, _option("--before", metavar="TIME", help="What was said before this time.")
]


def forget(
    memory_id: OneMemory = None,
    session: OneSession = None,
    turn: OneTurn = None,
    before: Before = None,
    yes: options.Yes = False,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Erase for good: a memory, a session, a turn, what is older, or ALL of a user. Asks before.

    With `--user` and nothing else, EVERYTHING of that user goes, the private memories of every
    agent included; with `--agent` beside it, what is private to that agent. The result counts
    what went and what a probe then found.

    - `scrubjay forget --user ada --session 2026-03-09`

    - `scrubjay forget --user ada --before 2025-01-01 --yes`

    - `scrubjay forget --user ada`
    """
    settings = opening.load_settings(path, time_zone)
    targets = {"memory": memory_id, "session": session, "turn": turn, "everything before": before}
    given = [f"{name} {value!r}" for name, value in targets.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput("forget one thing at a time: --memory, --session, --turn or --before")
    make_scope(user_id=user, device_id=device)
    with opening.opened(settings) as (memory, _):
        whose = f"user {user!r}" if user is not None else f"device {device!r}"
        if given:
            confirm(f"This erases {given[0]} of {whose}, for good.", yes)
        else:
            confirm(_everything(memory, whose, user, device, agent), yes)
        erasure = memory.forget(
            user_id=user, device_id=device, agent_id=agent, memory_id=memory_id,
            session_id=session, turn_id=turn, before=before,
        )  # fmt: skip
    _show(erasure, as_json)


def _everything(
    memory: Memory, whose: str, user: str | None, device: str | None, agent: str | None
) -> str:
    """What will go, with the count of it."""
    if agent is not None:
        return f"This erases everything of {whose} that is private to agent {agent!r}, for good."
    counts = memory.stats(user_id=user, device_id=device)
    return (
        f"This erases EVERYTHING of {whose}: {output.counted(counts['turns'], 'turn')} and "
        f"{output.counted(counts['memories'], 'memory', 'memories')}, the private ones of every "
        "agent included, for good."
    )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `backup` wrote.")],
    yes: options.Yes = False,
    path: options.Path = None,
    as_json: options.Json = False,
) -> None:
    """Put a backup in the place of everything in the store. Asks before.

    What was forgotten after the backup was made stays forgotten. A file that is no sound backup
    changes nothing.

    - `scrubjay restore jay-2026-03-09.backup --path ./memory`
    """
    settings = opening.load_settings(path)
    if not file.is_file():
        raise InvalidInput(f"there is no file {file}; name one that `scrubjay backup` wrote")
    where = without_password(settings.path)
    confirm(f"This replaces EVERYTHING in the store in {where} by the backup.", yes)
    with contextlib.ExitStack() as stack:
        try:
            memory, _ = stack.enter_context(opening.opened(settings, missing="make"))
        except StoreDamaged as exc:
            raise StoreDamaged(
                f"the store in {where} is too damaged to be opened; move that directory aside and "
                "run the same command again, which makes a new one"
            ) from exc
        left_out = memory.restore(file)
    if as_json:
        output.emit({"left_out": left_out})
    else:
        output.say(f"restored {file}")
    if left_out:
        few = output.counted(left_out, "memory was", "memories were")
        output.alert("note", f"{few} left out, forgotten after the backup was made")


def confirm(what: str, yes: bool) -> None:
    """Ask whether to go on. Raises `InvalidInput` where nobody can answer, and `Exit` for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{what} Add --yes to confirm; nothing was changed")
    typer.echo(output.visible(f"{what} Go on? [y/N] "), err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        output.alert("note", "nothing was changed")
        raise typer.Exit(1)


def _show(erasure: Erasure, as_json: bool) -> None:
    """What went; a failure when the probe found something left."""
    if as_json:
        output.emit(erasure)
    else:
        gone = {name: n for name, n in erasure.counts.items() if n}
        parts = ", ".join(f"{n:,} {name}" for name, n in gone.items())
        output.say(f"erased: {parts or 'nothing was there'}")
        if erasure.complete:
            output.say("a probe found nothing left")
    output.notes(erasure.notes)
    if not erasure.complete:
        output.alert("error", "something is left; run `scrubjay doctor` and report this")
        raise typer.Exit(1)
