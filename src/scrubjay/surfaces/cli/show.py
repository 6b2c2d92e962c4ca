"""Memories, hits and counts as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from scrubjay.surfaces.cli import output

if TYPE_CHECKING:
    from scrubjay import Hit, MemoryRecord, Settings, Version

_INDENT = "   "


def zone_of(settings: Settings) -> tzinfo:
    """The zone in which times are shown."""
    from scrubjay.text.instants import zone

    return zone(settings.timezone)


def moment(at: datetime, zone: tzinfo) -> str:
    """A time as people read it."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def indented(text: str) -> str:
    """Every line of a memory's content moved in."""
    return "\n".join(_INDENT + line for line in text.split("\n"))


def record(memory: MemoryRecord, zone: tzinfo) -> None:
    """One memory on two lines or more."""
    state = [] if memory.state.value == "active" else [memory.state.value]
    head = [moment(memory.occurred_at, zone), memory.role.value, memory.kind.value, *state,
            memory.id]  # fmt: skip
    output.say("  ".join(head))
    output.say(indented(memory.content))


def whole_record(memory: MemoryRecord, zone: tzinfo) -> None:
    """One memory with everything known about it that is not a default."""
    record(memory, zone)
    scope = {k: v for k, v in memory.scope.to_dict().items() if v is not None and k != "tenant"}
    facts: dict[str, Any] = {
        "scope": "  ".join(f"{k.removesuffix('_id')} {v}" for k, v in scope.items()),
        "visibility": memory.visibility.value,
        "tier": memory.tier.value,
        "language": memory.language,
        "version": memory.version,
        "confidence": f"{memory.confidence:.2f}",
        "trust": f"{memory.trust:.2f}, said by {memory.source_class.value}",
        "expires": None if memory.expires_at is None else moment(memory.expires_at, zone),
        "retired": None if memory.retired_at is None else moment(memory.retired_at, zone),
        "reason": memory.reason,
        "supersedes": memory.supersedes,
        "superseded by": memory.superseded_by,
        "metadata": json.dumps(memory.to_dict()["metadata"], ensure_ascii=False)
        if memory.metadata
        else None,
    }
    for name, value in facts.items():
        if value is not None:
            output.say(f"{_INDENT}{name:14}{value}")
    for source in memory.sources:
        output.say(
            f"{_INDENT}{'source':14}turn {source.turn_id}, characters {source.start} to "
            f"{source.end}, said {moment(source.occurred_at, zone)}"
        )


def hits(found: Sequence[Hit], zone: tzinfo) -> None:
    """Hits, best first, each with its relevance."""
    for number, hit in enumerate(found, 1):
        state = [] if hit.state.value == "active" else [hit.state.value]
        head = [f"{number}.", f"{hit.relevance:.3f}", moment(hit.occurred_at, zone),
                hit.memory.role.value, hit.kind.value, *state, hit.id]  # fmt: skip
        output.say("  ".join(head))
        output.say(indented(hit.content))


def explained(found: Sequence[Hit], zone: tzinfo) -> None:
    """Hits as a table with the parts of their scores."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    parts = list(dict.fromkeys(name for hit in found for name in hit.explanation or ()))
    parts = [name for name in parts if name != "relevance"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", justify="right")
    for name in ("score", "relevance", *parts):
        table.add_column(name, justify="right")
    table.add_column("said")
    table.add_column("memory", overflow="fold", ratio=1)
    for number, hit in enumerate(found, 1):
        explanation = hit.explanation or {}
        table.add_row(
            str(number),
            f"{hit.score:.3f}",
            f"{hit.relevance:.3f}",
            *(_cell(explanation.get(name)) for name in parts),
            moment(hit.occurred_at, zone),
            Text(output.visible(hit.content)),
        )
    output.console().print(table)


def _cell(value: Any) -> Any:
    from rich.text import Text

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Text(output.visible(text))


def versions(found: Iterable[Version], zone: tzinfo) -> None:
    """A memory's history, oldest first."""
    for version in found:
        reason = "" if version.reason is None else f"  ({version.reason})"
        head = f"{moment(version.at, zone)}  {version.event}  version {version.memory.version}"
        output.say(f"{head}  {version.memory.id}{reason}")
        if version.event in ("add", "update"):
            output.say(indented(version.memory.content))


def counts(values: Mapping[str, Any], prefix: str = "") -> None:
    """Names with their values, nested ones with a dotted name; what is empty is left out."""
    flat = list(_flat(values, prefix))
    width = max((len(name) for name, _ in flat), default=0) + 2
    for name, value in flat:
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        output.say(f"{name:{width}}{shown}")


def _flat(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            if value:
                yield prefix + name, ", ".join(map(str, value))
        elif value is not None:
            yield prefix + name, value
