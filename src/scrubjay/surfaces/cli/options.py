"""The options that commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

WHOSE = "Which store, and whose memories"
NARROWING = "Which of them"
SHAPE = "How it is shown"

Path = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="DIR",
        help="The store's directory; without it the setting `path` (`scrubjay settings`).",
        show_default=False,
        rich_help_panel=WHOSE,
    ),
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="The user whose memories they are.",
                 show_default=False, rich_help_panel=WHOSE),
]  # fmt: skip
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="ID", help="The device, where no user is known.",
                 show_default=False, rich_help_panel=WHOSE),
]  # fmt: skip
Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="ID", help="The agent, whose private memories count too.",
                 show_default=False, rich_help_panel=WHOSE),
]  # fmt: skip
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="The conversation.",
                 show_default=False, rich_help_panel=WHOSE),
]  # fmt: skip
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="A part of the memories, such as a project.",
                 show_default=False, rich_help_panel=WHOSE),
]  # fmt: skip
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="Where a time without a zone is read and times are shown, as Asia/Shanghai; "
        "without it the setting `timezone`.",
        show_default=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON document instead of text for people.",
                 rich_help_panel=SHAPE),
]  # fmt: skip
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can answer.")
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        "-f",
        metavar="KEY=VALUE",
        help="On metadata, with = != < <= > >=; all given ones must hold. A value that is JSON "
        "(4, true, \"4\") has its type, everything else is text. A dot reaches inside.",
        show_default=False,
        rich_help_panel=NARROWING,
    ),
]
Filters = Annotated[
    str | None,
    typer.Option("--filters", metavar="JSON", show_default=False, rich_help_panel=NARROWING,
                 help='Filters as JSON, as {"tag": {"in": ["a", "b"]}}.'),
]  # fmt: skip
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Said at this time or later.",
                 show_default=False, rich_help_panel=NARROWING),
]  # fmt: skip
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", show_default=False, rich_help_panel=NARROWING,
                 help="Said before this time; a day without a time of day is included whole."),
]  # fmt: skip
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="What was true then.",
                 show_default=False, rich_help_panel=NARROWING),
]  # fmt: skip
KnownAt = Annotated[
    str | None,
    typer.Option("--known-at", metavar="TIME", help="What had been recorded then.",
                 show_default=False, rich_help_panel=NARROWING),
]  # fmt: skip
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="KIND", show_default=False, rich_help_panel=NARROWING,
                 help="episode, fact, preference, decision, commitment, event, insight or "
                 "attribute; may be repeated."),
]  # fmt: skip
Tiers = Annotated[
    list[str] | None,
    typer.Option("--tier", metavar="TIER", show_default=False, rich_help_panel=NARROWING,
                 help="working, episodic, profile or permanent; may be repeated."),
]  # fmt: skip
History = Annotated[
    bool,
    typer.Option("--history", help="Also what newer memories have superseded.",
                 rich_help_panel=NARROWING),
]  # fmt: skip
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", metavar="0..1", help="The least relevance of a hit.",
                 show_default=False, rich_help_panel=NARROWING),
]  # fmt: skip
Now = Annotated[
    str | None,
    typer.Option("--now", metavar="TIME", help="Stands for the present, to replay the past.",
                 show_default=False, rich_help_panel=NARROWING),
]  # fmt: skip
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
