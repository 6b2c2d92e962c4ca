"""The commands that look after a store: `export backup stats doctor reindex flush`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scrubjay.errors import InvalidInput
from scrubjay.surfaces.cli import opening, options, output, show
from scrubjay.surfaces.cli.progress import Bars


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    as_json: options.Json = False,
) -> None:
    """Write everything of one user to a JSON-lines file: turns, memories, all versions.

    `scrubjay import` brings it back, here or elsewhere. With `--agent`, what that agent may see.

    - `scrubjay export ada.jsonl --user ada`
    """
    settings = opening.load_settings(path)
    if file.is_dir():
        raise InvalidInput(f"{file} is a directory; name a file in it")
    if file.exists() and not force:
        raise InvalidInput(f"{file} exists; name a new file, or write over it with --force")
    with opening.opened(settings) as (memory, _):
        counts = memory.export(file, user_id=user, device_id=device, agent_id=agent)
    if as_json:
        output.emit(counts)
    else:
        turns = output.counted(counts["turn"], "turn")
        memories = output.counted(counts["memory"], "memory", "memories")
        output.say(f"wrote {turns} and {memories} to {file}")


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    path: options.Path = None,
    as_json: options.Json = False,
) -> None:
    """Write a consistent copy of the whole store to one file, while it is in use.

    - `scrubjay backup jay-2026-03-09.backup`
    """
    with opening.opened(opening.load_settings(path), missing="refuse") as (memory, bars):
        target = memory.backup(file, progress=bars)
    size = target.stat().st_size
    if as_json:
        output.emit({"path": str(target), "bytes": size})
    else:
        output.say(f"wrote {output.counted(size, 'byte')} to {target}")


def migrate(
    source: Annotated[
        str, options.option("--from", metavar="STORE", help="The store to copy: DIR or URL.")
    ],
    target: Annotated[
        str, options.option("--to", metavar="STORE", help="An empty store: DIR or URL.")
    ],
    as_json: options.Json = False,
) -> None:
    """Copy a whole store into another: from a directory to PostgreSQL, back, or anywhere.

    Memories, journal, vectors, idempotency keys and what was forgotten. The source is only read.
    A migration that was stopped goes on when called again; at the end every user's rows and
    vectors are compared by their checksums.

    - `scrubjay migrate --from ./memories --to postgresql://user@db.example/memories`
    """
    from scrubjay import migrate as move

    settings = opening.load_settings()
    here, there = (opening.place(opening.checked_path(p)) for p in (source, target))
    with Bars() as bars:
        moved = move(here, there, settings=settings, progress=bars)
    if as_json:
        output.emit(moved.to_dict())
    else:
        memories = output.counted(moved.memories, "memory", "memories")
        turns, users = output.counted(moved.turns, "turn"), output.counted(moved.partitions, "part")
        output.say(
            f"{memories}, {turns} and {output.counted(moved.vectors, 'vector')} of {users} are "
            f"the same on both sides ({moved.already_there} were there already); sha256 "
            f"{moved.sha256}"
        )


def stats(
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    as_json: options.Json = False,
) -> None:
    """Count the rows of one user, or of the whole store with its jobs, model and size.

    - `scrubjay stats`

    - `scrubjay stats --user ada --json`
    """
    with opening.opened(opening.load_settings(path)) as (memory, _):
        counts = memory.stats(user_id=user, device_id=device, agent_id=agent)
    if as_json:
        output.emit(counts)
    else:
        show.counts(counts)


def doctor(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what can be: build indexes anew, try jobs again."),
    ] = False,
    path: options.Path = None,
    as_json: options.Json = False,
) -> None:
    """Look for damage between file, rows, indexes and jobs. Exits with 1 when there is some.

    - `scrubjay doctor`

    - `scrubjay doctor --repair`
    """
    with opening.opened(opening.load_settings(path), missing="refuse") as (memory, _):
        health = memory.doctor(repair=repair)
    if as_json:
        output.emit(health)
    else:
        for repaired in health.repaired:
            output.say(f"repaired: {repaired}")
        for problem in health.problems:
            output.say(f"problem: {problem}")
        if health.sound:
            output.say("sound")
        show.counts(health.jobs, "jobs.")
        show.counts(health.model, "model.")
    if not health.sound:
        raise typer.Exit(1)


def reindex(path: options.Path = None, as_json: options.Json = False) -> None:
    """Index all words anew and give every memory a vector of the present model.

    For a change of the model, or a doubt about the index. Reading goes on meanwhile; what was
    interrupted is taken up where it was by the next run.

    - `SCRUBJAY_EMBEDDER=bge-small-en-v1.5 scrubjay reindex`
    """
    settings = opening.load_settings(path)
    with opening.opened(settings, model=True, missing="refuse") as (memory, bars):
        counts = memory.reindex(progress=bars)
    if as_json:
        output.emit(counts)
    else:
        show.counts(counts)


Timeout = Annotated[
    float | None,
    options.option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="Wait no longer than this; else until everything is done.",
    ),
]


def flush(
    timeout: Timeout = None,
    path: options.Path = None,
    as_json: options.Json = False,
) -> None:
    """Do the work that waits, such as vectors for what was added. Exits with 1 when some is left.

    - `scrubjay flush`
    """
    settings = opening.load_settings(path).model_copy(update={"background": True})
    with opening.opened(settings, model=True, missing="refuse") as (memory, bars):
        done = memory.flush(timeout, progress=bars)
        now = memory.stats()
    jobs, model = now["jobs_by_state"], now["model"]
    if as_json:
        output.emit({"done": done, "jobs_by_state": jobs, "model": model})
    elif done:
        output.say("nothing waits")
    else:
        output.say("some work is left:")
        show.counts(jobs, "jobs.")
    if model["error"]:
        output.alert("note", model["error"])
    if not done:
        raise typer.Exit(1)
