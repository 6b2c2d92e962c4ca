"""`python -m scrubjay.demo [--path DIR]`: remember a conversation, ask a dozen questions, show it.

Exits with 0 when every question is answered by a memory in the first five, with 1 when one is
not, and with 2 when the store or the model refuses. The store is temporary unless `--path`
names a directory to keep.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from scrubjay import demo
from scrubjay.errors import ScrubjayError

if TYPE_CHECKING:
    from scrubjay import Memory

_WIDTH = 100
_CONTEXT_QUERY = "What is still to be done for the move to the new flat?"
_CONTEXT_NOW = datetime(2026, 4, 13, 7, 0, tzinfo=UTC)


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m scrubjay.demo", description=demo.__doc__)
    parser.add_argument("--path", help="keep the store in this directory or database")
    options = parser.parse_args(arguments)
    console = console or Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        if options.path is not None:
            return _run(options.path, console)
        with tempfile.TemporaryDirectory(prefix="scrubjay-demo-") as folder:
            return _run(Path(folder) / "store", console)
    except ScrubjayError as error:
        console.print(Text(f"{type(error).__name__}: {error}", style="bold red"))
        return 2


def _run(path: Path | str, console: Console) -> int:
    from scrubjay import Memory

    with Memory(path) as memory:
        _remember(memory, console)
        answers = [demo.ask(memory, question) for question in demo.questions()]
        for number, answer in enumerate(answers, start=1):
            _show(answer, number, console)
        context = memory.context(_CONTEXT_QUERY, user_id="maya", max_tokens=400, now=_CONTEXT_NOW)
        console.print()
        console.print(
            Panel(
                Text(context.text),
                title=Text(f"context({_CONTEXT_QUERY!r})"),
                subtitle=f"{context.tokens} tokens of at most 400",
                box=box.SQUARE,
            )
        )
    return _conclude(answers, console)


def _remember(memory: Memory, console: Console) -> None:
    """Add the conversation and wait for its vectors, with a bar."""
    lines = list(demo.conversation())
    users = {line.user_id for line in lines}
    sessions = {line.session_id for line in lines}
    console.print(
        f"[bold]Scrubjay[/bold] reads {len(lines)} turns of {len(users)} people "
        f"in {len(sessions)} sessions, and is then asked {len(demo.questions())} questions."
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        adding = progress.add_task("remembering", total=len(lines))
        demo.ingest(memory, lines, lambda: progress.advance(adding))
        waiting = progress.add_task("embedding  ", total=None)
        memory.flush(
            progress=lambda done, jobs, _: progress.update(waiting, completed=done, total=jobs)
        )
        progress.update(waiting, total=len(lines), completed=len(lines))


def _show(answer: demo.Answer, number: int, console: Console) -> None:
    """One question and the table of its hits; the expected memory is marked."""
    question = answer.question
    console.print()
    console.print(Text(f"{number}. {question.question}", style="bold"))
    console.print(
        Text(
            f"   {question.user_id}, asked {question.now:%Y-%m-%d %H:%M %z}; "
            f"{answer.total_ms:.1f} ms, {answer.embed_ms:.1f} of them for the query's vector",
            style="dim",
        )
    )
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, expand=True
    )
    table.add_column("", width=1)
    table.add_column("rel.", width=5, justify="right")
    table.add_column("score", width=5, justify="right")
    table.add_column("who", width=9)
    table.add_column("session", width=9)
    table.add_column("time (UTC)", width=16)
    table.add_column("memory", ratio=1, overflow="fold")
    for hit in answer.hits:
        expected = answer.matches(hit)
        table.add_row(
            "*" if expected else "",
            f"{hit.relevance:.3f}",
            f"{hit.score:.3f}",
            str(hit.memory.role),
            Text(hit.memory.scope.session_id or "-"),
            f"{hit.occurred_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            Text(hit.content),
            style="green" if expected else "",
        )
    console.print(table)
    if not answer.found:
        console.print(Text(f"   expected, and not found: {question.expects}", style="bold red"))


def _conclude(answers: Sequence[demo.Answer], console: Console) -> int:
    """How the questions were searched, and how many were answered."""
    embedded = sum(answer.embed_ms > 0 for answer in answers)
    console.print()
    if embedded == len(answers):
        console.print("Searched by words and vectors.")
    elif embedded == 0:
        console.print("Searched by words only: no embedding model was ready.")
    else:
        console.print(
            f"Searched by words; by vectors too in {embedded} of {len(answers)} questions."
        )
    for note in dict.fromkeys(note for answer in answers for note in answer.notes):
        console.print(Text(f"note: {note}", style="yellow"))
    found = sum(answer.found for answer in answers)
    console.print(
        f"{found} of {len(answers)} questions answered by a memory in the first five",
        style="bold green" if found == len(answers) else "bold red",
    )
    return 0 if found == len(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
