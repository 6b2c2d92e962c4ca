"""From the common options to an open memory.

The model is loaded only by the commands that need it; the others leave the background's work
to the next one that does. A command that only reads makes no store where there is none.
"""

from __future__ import annotations

import contextlib
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scrubjay.errors import InvalidInput, SettingsError
from scrubjay.surfaces.cli import output
from scrubjay.surfaces.cli.progress import Bars

if TYPE_CHECKING:
    from scrubjay import Memory, Settings

PREPARING = "preparing the model"

Missing = Literal["make", "empty", "refuse"]
"""Where there is no store: make one, answer as an empty one would, or refuse."""


def load_settings(path: str | None = None, time_zone: str | None = None) -> Settings:
    """The settings, with what the command was given on top. Raises `SettingsError`."""
    from scrubjay import settings
    from scrubjay.text.instants import zone

    try:
        found = settings.load()
    except SettingsError:
        raise
    except (ValueError, OSError) as exc:  # a file that is no TOML, a variable that is no JSON
        reason = " ".join(str(exc).split())
        where: object = "the settings"
        if isinstance(exc, tomllib.TOMLDecodeError):
            from scrubjay.surfaces.cli.origins import Origins

            where = Origins().file
        raise SettingsError(
            f"{where} cannot be read: {reason}. `scrubjay settings` lists every setting"
        ) from exc
    given: dict[str, Any] = {}
    if path is not None:
        given["path"] = place(checked_path(path))
    if time_zone is not None:
        zone(time_zone)
        given["timezone"] = time_zone
    return found.model_copy(update=given)


def checked_path(path: str) -> str:
    """A directory's path. Raises `InvalidInput` for what cannot be one."""
    if not path.strip():
        raise InvalidInput("--path is blank; name the directory of the store, or leave it out")
    return path


def place(path: str) -> Path | str:
    """A directory, or the URL of a database as it was given."""
    return path if "://" in path else Path(path).expanduser()


@contextlib.contextmanager
def opened(
    settings: Settings, *, model: bool = False, missing: Missing = "empty"
) -> Iterator[tuple[Memory, Bars]]:
    """The memory that the settings name, closed afterwards, and the bars for its long work."""
    from scrubjay import Memory

    chosen = settings if model else settings.model_copy(update={"background": False})
    with contextlib.ExitStack() as stack:
        if missing != "make" and not _is_there(settings.path):
            if missing == "refuse":
                raise InvalidInput(f"there is no store in {settings.path}; {_HOW_TO_GET_ONE}")
            output.alert("note", f"there is no store in {settings.path} yet; {_HOW_TO_GET_ONE}")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="scrubjay-empty-"))
            chosen = chosen.model_copy(update={"path": Path(folder)})
        bars = stack.enter_context(Bars())
        memory = stack.enter_context(Memory(settings=chosen, progress=bars.steps(PREPARING)))
        yield memory, bars


_HOW_TO_GET_ONE = "`scrubjay add` makes one, and --path names another directory"


def _is_there(path: Path | str) -> bool:
    """Whether something is there to be opened, or to be complained of by the store itself."""
    if isinstance(path, str):  # a database, which says itself what it lacks
        return True
    if not path.exists():
        return False
    return not path.is_dir() or any(path.iterdir())


def is_model_ready(settings: Settings) -> bool:
    """Whether the model can be loaded at once, without a preparation that takes long."""
    default = type(settings).model_fields["embedder"].default
    return settings.embedder != default or prepared_folder(settings) is not None


def prepared_folder(settings: Settings) -> Path | None:
    """The folder of the prepared model that the settings name, where it is known."""
    given = Path(settings.embedder).expanduser()
    if given.is_dir():
        return given
    for manifest in sorted(settings.model_dir.expanduser().glob("*/scrubjay-model.json")):
        if manifest.parent.name.startswith(settings.embedder):
            return manifest.parent
    return None
