"""The options that commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

WHOSE = "Which store, and whose memories"
NARROWING = "Which of them"
SHAPE = "How it is shown"


def option(*names: str, panel: str | None = None, **given: Any) -> Any:
    """An option whose default is told in its help, where that is worth telling."""
    return typer.Option(*names, rich_help_panel=panel, **{"show_default": False, **given})


def _id(name: str, meaning: str, metavar: str = "ID") -> Any:
    return option(name, metavar=metavar, help=meaning, panel=WHOSE)


def _when(name: str, meaning: str) -> Any:
    return option(name, metavar="TIME", help=meaning, panel=NARROWING)


Path = Annotated[
    str | None,
    _id(
        "--path",
        "The store: a directory, or a postgresql:// URL; else the setting `path` (see `settings`).",
        "DIR|URL",
    ),
]
User = Annotated[str | None, _id("--user", "The user whose memories they are.")]
Device = Annotated[str | None, _id("--device", "The device, where no user is known.")]
Agent = Annotated[str | None, _id("--agent", "The agent, whose private memories count too.")]
Session = Annotated[str | None, _id("--session", "The conversation.")]
Namespace = Annotated[
    str | None, _id("--namespace", "A part of the memories, such as a project.", "NAME")
]
TimeZone = Annotated[
    str | None,
    option(
        "--time-zone",
        metavar="ZONE",
        help="Where times without a zone are read and all times are shown, as Asia/Shanghai; "
        "else the setting `timezone`.",
    ),
]
Json = Annotated[
    bool, option("--json", help="One JSON document instead of text for people.", panel=SHAPE)
]
Yes = Annotated[bool, option("--yes", "-y", help="Do not ask; needed where nobody can answer.")]
Filter = Annotated[
    list[str] | None,
    option(
        "--filter",
        "-f",
        metavar="KEY=VALUE",
        help="On metadata, with = != < <= > >=; may be repeated, and all must hold. A value that "
        'is JSON (4, true, "4") has its type, any other is text. A dot reaches inside.',
        panel=NARROWING,
    ),
]
Filters = Annotated[
    str | None,
    option(
        "--filters",
        metavar="JSON",
        help='Filters as JSON, as {"tag": {"in": ["a", "b"]}}.',
        panel=NARROWING,
    ),
]
Since = Annotated[str | None, _when("--since", "Said at this time or later.")]
Until = Annotated[
    str | None,
    _when("--until", "Said before this time; a day without a time of day is included whole."),
]
AsOf = Annotated[str | None, _when("--as-of", "What was true then.")]
KnownAt = Annotated[str | None, _when("--known-at", "What had been recorded then.")]
Now = Annotated[str | None, _when("--now", "Stands for the present, to replay the past.")]
Kinds = Annotated[
    list[str] | None,
    option(
        "--kind",
        metavar="KIND",
        help="episode, fact, preference, decision, commitment, event, insight or attribute; may "
        "be repeated.",
        panel=NARROWING,
    ),
]
Tiers = Annotated[
    list[str] | None,
    option(
        "--tier",
        metavar="TIER",
        help="working, episodic, profile or permanent; may be repeated.",
        panel=NARROWING,
    ),
]
History = Annotated[
    bool, option("--history", help="Also what newer memories have superseded.", panel=NARROWING)
]
Threshold = Annotated[
    float | None,
    option("--threshold", metavar="0..1", help="The least relevance of a hit.", panel=NARROWING),
]
MemoryId = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")]


class Format(StrEnum):
    """The forms of a context block."""

    MARKDOWN = "markdown"
    XML = "xml"
    JSON = "json"
    TEXT = "text"


class Benchmark(StrEnum):
    """The evaluations there are."""

    LOCOMO = "locomo"
    LONGMEMEVAL = "longmemeval"
    MEMDAILY = "memdaily"
