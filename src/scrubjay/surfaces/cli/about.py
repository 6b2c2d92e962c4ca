"""The commands about Scrubjay itself: `settings`, `models prepare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from scrubjay.errors import InvalidInput, SettingsError, without_password
from scrubjay.surfaces.cli import opening, options, output
from scrubjay.surfaces.cli.progress import Bars

if TYPE_CHECKING:
    from scrubjay import Settings

models = typer.Typer()


def settings(path: options.Path = None, as_json: options.Json = False) -> None:
    """List every setting: its value, where that came from, and what it means.

    A value given on the command line wins over `SCRUBJAY_…` in the environment, that over
    `scrubjay.toml` in the working directory (or the file that `SCRUBJAY_CONFIG` names), that
    over the default. Secrets are masked.

    - `scrubjay settings`

    - `SCRUBJAY_CACHE_MB=64 scrubjay settings --json`
    """
    from scrubjay.surfaces.cli.origins import Origins

    problem: SettingsError | None = None
    found: Settings | None = None
    try:
        found = opening.load_settings(path)
    except SettingsError as exc:  # told after the list, which says what would be right
        problem = exc
    origins = Origins()
    rows = []
    for name, field in type(origins).fields().items():
        origin, value = origins.of(name)
        if found is not None:
            value = getattr(found, name)
        if name == "path" and path is not None:
            origin, value = "command line", path
        rows.append(
            {"name": name, "value": _shown(value), "from": origin, "meaning": field.description,
             "variable": f"SCRUBJAY_{name.upper()}"}
        )  # fmt: skip
    if as_json and problem is None:
        file = str(origins.file) if origins.file.is_file() else None
        output.emit({"file": file, "settings": rows})
    elif not as_json:
        _print(rows)
    if problem is not None:
        raise problem


def _shown(value: Any) -> Any:
    """A value as it may be seen: secrets and the password in a URL as stars, paths as text."""
    if isinstance(value, str):
        return without_password(value)
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
    """Embedding models: prepare the one that the settings name.

    - `scrubjay models prepare`
    """


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
        model = open_model(chosen, bars.steps(opening.PREPARING))
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
