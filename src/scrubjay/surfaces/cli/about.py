"""The commands about Scrubjay itself: `settings`, `models prepare`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scrubjay.errors import InvalidInput, SettingsError
from scrubjay.surfaces.cli import opening, options, output
from scrubjay.surfaces.cli.progress import Bars

if TYPE_CHECKING:
    from scrubjay import Settings

models = typer.Typer(help="Embedding models: prepare the one that the settings name.")


def settings(path: options.Path = None, as_json: options.Json = False) -> None:
    """List every setting: its value, where that came from, and what it means.

    A value given on the command line wins over `SCRUBJAY_…` in the environment, that over
    `scrubjay.toml` in the working directory (or the file that `SCRUBJAY_CONFIG` names), that
    over the default. Secrets are masked.

    - `scrubjay settings`

    - `SCRUBJAY_CACHE_MB=64 scrubjay settings --json`
    """
    from scrubjay.settings import Settings

    problem: SettingsError | None = None
    found: Settings | None = None
    try:
        found = opening.load_settings(path)
    except SettingsError as exc:
        problem = exc
    file, written = _read_file()
    rows = []
    for name, field in Settings.model_fields.items():
        variable = f"SCRUBJAY_{name.upper()}"
        origin = _origin(name, variable, written, given={"path": path})
        if found is not None:
            value = _shown(getattr(found, name))
        else:  # a wrong setting must not keep anyone from the list that tells what is right
            value = None if origin != "default" else _shown(field.get_default(
                call_default_factory=True))  # fmt: skip
        rows.append({"name": name, "value": value, "from": origin, "variable": variable,
                     "meaning": field.description})  # fmt: skip
    if as_json and problem is None:
        output.emit({"file": None if file is None else str(file), "settings": rows})
    elif not as_json:
        _print(rows)
    if problem is not None:
        raise problem


def _read_file() -> tuple[Path | None, Mapping[str, Any]]:
    """The settings' file, where there is one, and what it says."""
    path = Path(os.environ.get("SCRUBJAY_CONFIG", "scrubjay.toml"))
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, {}
    except (OSError, ValueError):
        return path, {}  # what is wrong with it has been told by the loading


def _origin(
    name: str, variable: str, written: Mapping[str, Any], given: Mapping[str, object]
) -> str:
    if given.get(name) is not None:
        return "command line"
    if any(key.upper() == variable for key in os.environ):
        return "environment"
    return "file" if name in written else "default"


def _shown(value: Any) -> Any:
    """A value as it may be seen: secrets as stars, paths as text."""
    if value is None or isinstance(value, (bool, int, float, str, dict)):
        return value
    return str(value)


def _print(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=40)
    table.add_column("from", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for row in rows:
        value = "-" if row["value"] in (None, "", {}) else str(row["value"])
        table.add_row(row["name"], Text(output.visible(value)), row["from"], row["meaning"])
    console = output.console()
    console.print(table)
    console.print("\nEach is SCRUBJAY_ and its name in capitals, or a line of scrubjay.toml.")


@models.callback()
def _models() -> None:
    """Embedding models: prepare the one that the settings name."""


@models.command()
def prepare(as_json: options.Json = False) -> None:
    """Prepare the embedding model, so that no later command has to wait for it.

    The default model's weights are installed with Scrubjay; they are converted once, checked,
    and kept in the folder that is printed. Nothing is downloaded.

    - `scrubjay models prepare`
    """
    from scrubjay.wiring import open_model

    chosen = opening.load_settings()
    if chosen.embedder == "none":
        raise InvalidInput("the setting embedder is none; set SCRUBJAY_EMBEDDER to name a model")
    with Bars() as bars:
        model = open_model(chosen, bars.model)
        facts = {"model": model.model_id, "dimension": model.dimension}
        close = getattr(model, "close", None)
        if close is not None:
            close()
    folder = opening.prepared_folder(chosen)
    if as_json:
        output.emit({**facts, "folder": None if folder is None else str(folder)})
    elif folder is not None:
        output.say(str(folder))
    else:
        output.say(f"{facts['model']} needs no preparation")
