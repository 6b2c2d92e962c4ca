"""Bars for long work, on standard error and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WORDS = {
    "add": "adding",
    "ask": "asking",
    "embed": "embedding",
    "jobs": "embedding",
    "messages": "importing",
    "pages": "copying",
    "rows": "importing",
    "vectors": "embedding",
    "words": "indexing words",
}


def remaining(elapsed_s: float, done: int, total: int) -> str:
    """The time left, if what is to come takes as long as what is done; "" while unknown.

    >>> remaining(30.0, 100, 400)
    'about 0:01:30 left'
    """
    if not 0 < done < total:
        return ""
    left = timedelta(seconds=round(elapsed_s / done * (total - done)))
    return f"about {left} left"


class Bars:
    """Called as `bars(done, total, what)`: one bar for each `what`, drawn from its first call.

    May be called from any thread. The bars vanish at the end, so that the result stands alone.
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report that `done` of `total` are done."""
        self._update(what, _WORDS.get(what, what), done, total)

    def steps(self, label: str) -> Callable[[int, int, str], None]:
        """One bar for different steps, as `label: what`."""
        return lambda done, total, what: self._update(label, f"{label}: {what}", done, total)

    def _update(self, key: str, words: str, done: int, total: int) -> None:
        if not self._shown or total <= 0:
            return
        progress = self._start()
        # Of a single step nothing is known until it is over: the bar then only shows life.
        length = None if total == 1 and done == 0 else total
        if key not in self._tasks:
            self._tasks[key] = progress.add_task(words, total=length, left="")
            self._began[key] = time.monotonic()
        progress.update(
            self._tasks[key], description=words, completed=done, total=length,
            left=remaining(time.monotonic() - self._began[key], done, total),
        )  # fmt: skip

    def _start(self) -> Progress:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self._progress
