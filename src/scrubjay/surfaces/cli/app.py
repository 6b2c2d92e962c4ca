"""The commands, put together; what is common to all of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from scrubjay import __version__
from scrubjay.surfaces.cli import about, erase, failures, recall, remember, tend, trials


class Commands(TyperGroup):
    """The commands, with every error told in one way: see `failures`."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command; a program of its own, so that it ends the process with a code."""
        given = list(sys.argv[1:] if args is None else args)
        run = functools.partial(super().main, given, *rest, **{**extra, "standalone_mode": False})
        if not extra.get("standalone_mode", True):
            return run()
        options = given[: given.index("--")] if "--" in given else given
        sys.exit(failures.guarded(run, as_json="--json" in options))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interruption and a reader who went away end it with their codes."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as exc:
            raise failures.unread() from exc
        except KeyboardInterrupt as exc:
            raise failures.interrupted() from exc
        return result


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"scrubjay {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="scrubjay",
    cls=Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Results go to standard output, notes and progress to standard error. Exit codes: 0 "
    "done, 1 the store, the model or the outcome is not as it should be, 2 what was typed cannot "
    "be used.",
)


@app.callback()
def scrubjay(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """The long-term memory for AI agents: what was said, found again by words and by meaning.

    Everything lives in one directory, or in a PostgreSQL database of yours. A first walk:

    - `scrubjay add "I prefer a window seat." --user ada`

    - `scrubjay search "which seat?" --user ada`

    - `scrubjay context "book a flight" --user ada`

    `scrubjay COMMAND --help` explains each command, with an example.
    """
    del version
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


_GROUPS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Remember and recall": {
        "add": remember.add,
        "search": recall.search,
        "context": recall.context,
        "get": recall.get,
        "list": recall.list_,
        "update": remember.update,
        "history": recall.history,
    },
    "Forget": {"delete": erase.delete, "forget": erase.forget},
    "Files": {
        "export": tend.export,
        "import": remember.import_,
        "backup": tend.backup,
        "restore": erase.restore,
        "migrate": tend.migrate,
    },
    "Look after the store": {
        "stats": tend.stats,
        "doctor": tend.doctor,
        "reindex": tend.reindex,
        "flush": tend.flush,
        "settings": about.settings,
    },
    "Try and measure": {
        "demo": trials.demo,
        "eval": trials.evaluate,
        "bench": trials.bench,
    },
}
for _panel, _commands in _GROUPS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(about.models, name="models", rich_help_panel="Look after the store")
