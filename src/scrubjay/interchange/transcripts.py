"""Chat transcripts as memories: JSON lines, or one JSON array of messages as chat models have them.

A message is `{"role", "content"}` with, if it likes, `occurred_at` (or `timestamp`), `session_id`,
`user_id` and `metadata`. The file is read and checked whole before anything is added. What
follows one another in a session is added in groups through the public `add`, each group under
an idempotency key made of the file's content and its place there, so that the same import
again, or one taken up after an interruption, writes nothing twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from scrubjay.errors import ImportFailed, InvalidInput, ScopeRequired
from scrubjay.guard.access import make_scope
from scrubjay.model import Receipt
from scrubjay.text import metadata as metadata_json
from scrubjay.text.instants import read_time
from scrubjay.write.clean import read_messages

GROUP = 500
"""The most messages of one `add`."""

_EXPORT = "scrubjay-export"
_FIRST_LINE = 65_536
_OURS = frozenset(("user_id", "session_id"))
_KNOWN = _OURS | frozenset(
    (
        "role",
        "content",
        "occurred_at",
        "timestamp",
        "metadata",
        "tool_calls",
        "tool_call_id",
        "name",
    )
)

Progress = Callable[[int, int, str], None]


class Adds(Protocol):
    """What is asked of a memory here: its public verb `add`."""

    @property
    def add(self) -> Callable[..., Receipt]:
        """Remember some messages."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message of a transcript, checked: whose it is, and what `add` is given of it."""

    where: str
    number: int
    user_id: str | None
    session_id: str | None
    message: Mapping[str, Any]
    blank: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole file. `digest` is of its bytes; `ignored` names fields that nothing reads."""

    lines: tuple[Line, ...]
    digest: str
    ignored: tuple[str, ...] = ()


def is_export(path: Path) -> bool:
    """Whether the file is one that `export` wrote. Raises `ImportFailed` when it cannot be read."""
    try:
        with path.open("rb") as file:
            first = file.readline(_FIRST_LINE)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("format") == _EXPORT


def import_(
    memory: Adds,
    path: Path,
    *,
    user_id: str | None = None,
    device_id: str | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    namespace: str | None = None,
    time_zone: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Add a transcript's messages, checked whole first.

    `user_id` and `session_id` stand in where a line has none; a line of another user than
    `user_id` is an error, so that nothing goes to the wrong person unseen. Returns how many
    `messages` there are, how many memories were `written`, how many statements were known
    already (`repeated`), how many messages a former import had brought (`replayed`), and how
    many were blank (`skipped`). Raises `ImportFailed`, naming the line; then nothing was added.
    """
    transcript = read(path)
    lines = _assigned(transcript.lines, user_id, device_id, session_id)
    make_scope(user_id=user_id or lines[0].user_id, device_id=device_id, agent_id=agent_id,
               namespace=namespace)  # fmt: skip
    said = [line for line in lines if not line.blank]
    counts = {"messages": len(lines), "written": 0, "repeated": 0, "replayed": 0,
              "skipped": len(lines) - len(said)}  # fmt: skip
    place = repr((device_id, agent_id, namespace, time_zone))
    done = 0
    for group in _groups(said):
        first = group[0]
        receipt = memory.add(
            [line.message for line in group],
            user_id=first.user_id,
            device_id=device_id,
            agent_id=agent_id,
            session_id=first.session_id,
            namespace=namespace,
            time_zone=time_zone,
            idempotency_key=_key(transcript.digest, place, first),
        )
        if receipt.status == "replayed":
            counts["replayed"] += len(group)
        else:
            counts["written"] += len(set(receipt.ids) - set(receipt.duplicates))
            counts["repeated"] += len(receipt.duplicates)
        done += len(group)
        if progress is not None:
            progress(done, len(said), "messages")
    return {**counts, "ignored_fields": list(transcript.ignored)}


def read(path: Path) -> Transcript:
    """A transcript's lines, each of them checked. Raises `ImportFailed`."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise ImportFailed(
            f"line {line} is not UTF-8; save the file as UTF-8. Nothing was imported"
        ) from exc
    lines: list[Line] = []
    unknown: dict[str, None] = {}
    for where, item in _items(text):
        lines.append(_checked(item, where, len(lines)))
        unknown |= dict.fromkeys(str(name)[:40] for name in item if name not in _KNOWN)
    if not lines:
        raise ImportFailed(f"{path} holds no message; {_SHAPES}")
    return Transcript(tuple(lines), hashlib.sha256(data).hexdigest(), tuple(unknown)[:20])


_SHAPES = (
    'a transcript is JSON lines or a JSON array of {"role": "user", "content": "…"}, and an '
    "export begins with its header line"
)


def _items(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, the message) of every message, in order."""
    start = text.lstrip()[:1]
    if start == "[":
        yield from _array(_json(text, "the file"))
        return
    # By "\n" alone: JSON text may hold other characters that count as the end of a line.
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if start == "{" and _is_one_document(lines):
        document = _json(text, "the file")
        yield from _array(document.get("messages") if isinstance(document, dict) else document)
        return
    for number, line in lines:
        where = f"line {number}"
        yield where, _object(_json(line, where), where)


def _is_one_document(lines: Sequence[tuple[int, str]]) -> bool:
    """Whether the lines are one JSON object with `messages`, and not one object each."""
    first = lines[0][1].rstrip()
    if len(lines) == 1:
        return (
            '"messages"' in first
            and '"role"' in first
            and first.find('"messages"') < first.find('"role"')
        )
    return first in ("{", '{"messages": [', '{"messages":[')


def _array(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list):
        raise ImportFailed(f"the file holds no list of messages; {_SHAPES}. Nothing was imported")
    for number, item in enumerate(value, 1):
        yield f"message {number}", _object(item, f"message {number}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        at = where if where != "the file" else f"line {exc.lineno}"
        raise ImportFailed(
            f"{at} is no JSON ({exc.msg} at character {exc.colno}); {_SHAPES}. Nothing was imported"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise ImportFailed(
            f"{where} holds a number too long or is nested too deeply; nothing was imported"
        ) from exc


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ImportFailed(f"{where} is no JSON object; {_SHAPES}. Nothing was imported")
    return value


def _checked(item: Mapping[str, Any], where: str, number: int) -> Line:
    """The line, once everything that `add` will look at has been looked at."""
    message = {name: value for name, value in item.items() if name not in _OURS}
    try:
        found, _, _ = read_messages([message, "."])  # the second one: a blank line is no error
        for name in ("occurred_at", "timestamp"):
            if item.get(name) is not None:
                read_time(name, item[name], UTC)
        metadata_json.check(item.get("metadata"))
        scope = make_scope(user_id=item.get("user_id") or "-", session_id=item.get("session_id"))
        if item.get("user_id") == "":
            raise ScopeRequired("user_id is blank; leave it out, or give a real id")
    except InvalidInput as exc:
        reason = str(exc).replace("message 0", "the message")
        raise ImportFailed(f"{where}: {reason}. Nothing was imported") from exc
    user = item.get("user_id")
    return Line(where, number, user, scope.session_id, message, blank=len(found) == 1)


def _assigned(
    lines: Sequence[Line], user_id: str | None, device_id: str | None, session_id: str | None
) -> list[Line]:
    """The lines with the user and session that stand in. Raises `ImportFailed`."""
    assigned = []
    for line in lines:
        if line.user_id is None and user_id is None and device_id is None:
            raise ImportFailed(
                f"{line.where} names no user_id, and none was given for all; give one. "
                "Nothing was imported"
            )
        if line.user_id not in (None, user_id) and (user_id or device_id) is not None:
            raise ImportFailed(
                f"{line.where} is of another user than the one given; give none, so that each "
                "line goes to its own, or take that line out. Nothing was imported"
            )
        assigned.append(
            replace(
                line,
                user_id=line.user_id or user_id,
                session_id=line.session_id or session_id,
            )
        )
    return assigned


def _groups(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """What follows one another in a session, at most `GROUP` at once."""
    for _, run in groupby(lines, key=lambda line: (line.user_id, line.session_id)):
        whole = list(run)
        for start in range(0, len(whole), GROUP):
            yield whole[start : start + GROUP]


def _key(digest: str, place: str, first: Line) -> str:
    """The same for the same file, place in it and scope; another for any other."""
    text = f"{place} {first.user_id!r} {first.session_id!r}"
    scope = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"transcript {digest} {scope[:16]} {first.number}"


def _unreadable(path: Path, exc: OSError) -> ImportFailed:
    why = exc.strerror or type(exc).__name__
    return ImportFailed(f"{path} cannot be read: {why}; name a file that is there")
