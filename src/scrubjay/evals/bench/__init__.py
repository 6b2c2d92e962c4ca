"""How fast Scrubjay is, each figure beside a baseline of the same run on the same machine.

A machine's own speed and its neighbours' noise are in both, so the ratio is what counts. Work
that is compared is interleaved. `run` builds each store in a temporary folder through the
public verbs; the vectors are made up (see `data`), except where the model itself is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scrubjay.errors import InvalidInput

Progress = Callable[[int, int, str], None]

SIZES = {"1k": (1_000, 1), "10k": (10_000, 1), "100k": (100_000, 1), "users": (100_000, 1_000)}
"""Name -> (memories, users among whom they are spread)."""
SERVER_SIZES = {"1k": (1_000, 1), "10k": (10_000, 1), "200k": (200_000, 2_000)}
"""The same for a PostgreSQL store."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `bar` bounds `ratio` where there is a baseline, else `value`.

    A bar is reached from below when `at_most`, from above otherwise.
    """

    name: str
    size: str
    value: float
    unit: str
    baseline: float | None = None
    bar: float | None = None
    at_most: bool = True

    @property
    def ratio(self) -> float | None:
        """The value over the baseline; None without one."""
        return None if not self.baseline else self.value / self.baseline

    @property
    def reached(self) -> bool | None:
        """Whether the bar is reached; None where there is none."""
        measured = self.value if self.ratio is None else self.ratio
        if self.bar is None:
            return None
        return measured <= self.bar if self.at_most else measured >= self.bar

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, to four digits."""
        ratio = self.ratio
        return {
            "name": self.name,
            "size": self.size,
            "value": round(self.value, 4),
            "unit": self.unit,
            "baseline": None if self.baseline is None else round(self.baseline, 4),
            "ratio": None if ratio is None else round(ratio, 3),
            "bar": self.bar,
            "bar_is": "at most" if self.at_most else "at least",
            "reached": self.reached,
        }


@dataclass(slots=True)
class BenchReport:
    """Everything a run measured."""

    figures: list[Figure] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"figures": [figure.to_dict() for figure in self.figures]}

    def rows(self) -> list[tuple[str, ...]]:
        """For a table: name, size, value, baseline, ratio, bar, and whether it is reached."""
        return [
            (
                f.name,
                f.size,
                f"{f.value:.4g} {f.unit}",
                "" if f.baseline is None else f"{f.baseline:.4g} {f.unit}",
                "" if f.ratio is None else f"{f.ratio:.2f}x",
                "" if f.bar is None else f"{'≤' if f.at_most else '≥'} {f.bar:g}",
                {True: "yes", False: "NO", None: ""}[f.reached],
            )
            for f in self.figures
        ]


def run(
    sizes: Sequence[str] | None = None,
    *,
    store: str | None = None,
    model: bool = True,
    progress: Progress | None = None,
) -> BenchReport:
    """Measure every size of `sizes` and, with `model`, the embedding.

    `store` is the postgresql:// URL of an empty store to measure instead of a temporary
    directory; what it is given is forgotten again. The sizes default to all of `SIZES`, or of
    `SERVER_SIZES`, which take about ten minutes. `progress(done, total, what)` is called between
    parts. Raises `InvalidInput` for an unknown size, or a store that is not empty.
    """
    from scrubjay.evals.bench import measures, server

    known = SIZES if store is None else SERVER_SIZES
    names = list(known) if sizes is None else list(sizes)
    for name in names:
        if name not in known:
            raise InvalidInput(f"no size is called {name!r}; there are {', '.join(known)}")
    parts: list[tuple[str, Callable[[Path], list[Figure]]]] = []
    for name in names:
        count, users = known[name]
        measured = measures.sized if store is None else partial(server.sized, url=store)
        parts.append((name, partial(measured, name=name, count=count, users=users)))
    if model and store is None:
        parts.append(("the model", measures.embedding))
    report = BenchReport()
    for done, (what, part) in enumerate(parts):
        if progress:
            progress(done, len(parts), what)
        with tempfile.TemporaryDirectory(prefix="scrubjay-bench-") as folder:
            report.figures += part(Path(folder))
    if progress:
        progress(len(parts), len(parts), "done")
    return report
