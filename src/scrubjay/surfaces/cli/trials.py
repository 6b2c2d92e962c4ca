"""The commands that try Scrubjay out and measure it: `demo`, `eval`, `bench`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scrubjay.surfaces.cli import opening, options, output
from scrubjay.surfaces.cli.progress import Bars

if TYPE_CHECKING:
    from scrubjay.evals import Report


def demo(path: options.Path = None) -> None:
    """Remember a sample conversation in English and Chinese, and ask a dozen questions of it.

    The store is temporary unless `--path` names a directory to keep. Exits with 0 when every
    question was answered.

    - `scrubjay demo`
    """
    from scrubjay.demo.__main__ import main

    arguments = [] if path is None else ["--path", opening.checked_path(path)]
    code = main(arguments)
    if code:
        raise typer.Exit(code)


Name = Annotated[options.Benchmark, typer.Argument(help="Which evaluation.")]
Data = Annotated[Path, typer.Option("--data", metavar="FILE", help="The set's own JSON file.")]
Limit = Annotated[
    int | None, options.option("--limit", metavar="N", help="The first so many questions.")
]
Kept = Annotated[
    str | None,
    options.option(
        "--path",
        metavar="DIR",
        help="Keep the store here, and use it again; else it is temporary.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    options.option(
        "--sizes",
        metavar="SIZE",
        help="Which of 1k, 10k, 100k and users, as 1k,10k; may be repeated. Without it all.",
    ),
]
WithModel = Annotated[
    bool, options.option("--model/--no-model", help="Measure the embedding model as well.")
]


def evaluate(
    name: Name,
    data: Data,
    limit: Limit = None,
    path: Kept = None,
    as_json: options.Json = False,
) -> None:
    """Run a public benchmark of memory through the public verbs, and print its scores.

    The sets are not part of Scrubjay.

    - `scrubjay eval locomo --data locomo10.json --json`

    - `scrubjay eval memdaily --data memdaily.json --limit 50`
    """
    from scrubjay import evals

    store = None if path is None else opening.place(opening.checked_path(path))
    settings = opening.load_settings()
    with Bars() as bars:
        report = evals.run(
            name.value, data, store=store, limit=limit, progress=bars, settings=settings
        )
    if as_json:
        output.emit(report.to_dict())
    else:
        _print_report(report)


def _print_report(report: Report) -> None:
    from rich import box
    from rich.table import Table

    rows = list(report.rows())
    metrics = list(rows[0][2]) if rows else []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=report.name)
    table.add_column(report.by)
    for column in ("questions", *metrics):
        table.add_column(column, justify="right")
    for group, count, scores in rows:
        cells = [f"{scores[m]:.3f}" if m in scores else "" for m in metrics]
        table.add_row(group, f"{count:,}", *cells)
    console = output.console()
    console.print(table)
    with_, without = report.with_embedding, report.without_embedding
    console.print(f"\nsearched by {report.channels}")
    console.print(f"a search took {with_.p50:.1f} ms (p95 {with_.p95:.1f}); without the query's "
                  f"embedding {without.p50:.1f} ms (p95 {without.p95:.1f})")  # fmt: skip
    console.print(f"{report.messages:,} messages in {report.seconds_to_ingest:.1f} s")
    if report.tokens_per_query is not None:
        console.print(f"a context block had {report.tokens_per_query:.0f} tokens")
    for reason, count in report.skipped.items():
        console.print(f"skipped: {count:,} {reason}")
    output.notes(f"{note} ({count:,} times)" for note, count in report.notes.items())


def bench(
    sizes: Sizes = None,
    store: Annotated[
        str | None,
        options.option(
            "--store",
            metavar="URL",
            help="Measure an empty PostgreSQL store instead, beside bare queries of its own.",
        ),
    ] = None,
    model: WithModel = True,
    as_json: options.Json = False,
) -> None:
    """Measure writing, searching and embedding on this machine, each beside a bare baseline.

    All sizes together take about ten minutes.

    - `scrubjay bench --sizes 1k --json`

    - `scrubjay bench --store postgresql://user@localhost/empty --sizes 10k`
    """
    from scrubjay.evals.bench import run

    chosen = [part.strip() for text in sizes or () for part in text.split(",") if part.strip()]
    with Bars() as bars:
        report = run(chosen or None, store=store, model=model, progress=bars.steps("measuring"))
    if as_json:
        output.emit(report.to_dict())
    else:
        _print_figures(report.rows())


def _print_figures(rows: Iterable[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("figure", "size"):
        table.add_column(column)
    for column in ("value", "baseline", "ratio", "bar", "reached"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    output.console().print(table)
