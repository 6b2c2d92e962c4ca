"""Public benchmarks of memory, run through the public verbs: what a user gets is what is scored.

`run("locomo", Path("locomo10.json"))` adds the set's messages to a fresh store (or to the one
named, where a second run adds nothing again), asks its questions and returns a `Report`. The
sets are not part of Scrubjay; `--data` names the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from scrubjay.errors import InvalidInput
from scrubjay.evals import locomo, longmemeval, memdaily
from scrubjay.evals.harness import Benchmark, Progress, measure
from scrubjay.evals.report import Latency, Report

__all__ = ["NAMES", "Benchmark", "Latency", "Progress", "Report", "load", "measure", "run"]

_LOADERS = {"locomo": locomo.load, "longmemeval": longmemeval.load, "memdaily": memdaily.load}

NAMES = tuple(_LOADERS)
"""The evaluations that can be run."""


def load(name: str, data: Path, limit: int | None = None) -> Benchmark:
    """The messages and questions of a set's file; nothing is added or asked yet.

    Raises `InvalidInput` for an unknown name, a missing file or a file of another shape.
    """
    loader = _LOADERS.get(name)
    if loader is None:
        raise InvalidInput(f"no evaluation is called {name!r}; there are {', '.join(NAMES)}")
    return loader(Path(data), limit)


def run(
    name: str,
    data: Path,
    *,
    store: Path | str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
    settings: Any = None,
) -> Report:
    """Run an evaluation and return what it found.

    `data` is the set's JSON file. `store` names a directory to keep, or a postgresql:// URL;
    without it the store is temporary and gone afterwards. A named store that was evaluated
    before on the same file is used as it is: each message carries an idempotency key, and
    another file's users are others. `limit` keeps the first so many questions.
    `progress(done, total, stage)` is called for each message ("add"), around the wait for
    vectors ("embed") and for each question ("ask").

    Raises `InvalidInput` for an unknown name, a wrong file or limit; errors of the store pass
    through.
    """
    benchmark = load(name, data, limit)
    if store is not None:
        return _measured(benchmark, store, progress, settings)
    with tempfile.TemporaryDirectory(prefix="scrubjay-eval-") as folder:
        return _measured(benchmark, Path(folder) / "store", progress, settings)


def _measured(
    benchmark: Benchmark, store: Path | str, progress: Progress | None, settings: Any
) -> Report:
    from scrubjay import Memory

    with Memory(store, settings=settings) as memory:
        return measure(memory, benchmark, progress)
