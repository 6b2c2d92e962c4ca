"""The export format: JSON lines that bring everything of one user back as it was.

The first line is a header, the last one counts the others and has their SHA-256, and between
them each line is a turn or a memory. `docs/export-format.md` describes the fields.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrubjay.errors import ImportFailed, InvalidInput
from scrubjay.guard.access import check_id
from scrubjay.life.upkeep import Progress
from scrubjay.model import (
    Kind,
    MemoryRecord,
    PartitionKey,
    Role,
    Scope,
    Source,
    SourceClass,
    State,
    Tier,
    Turn,
    Visibility,
    partition_of,
    written_partition,
)
from scrubjay.ports import Snapshot, Store
from scrubjay.read.options import fraction, whole_number
from scrubjay.storage import Criteria
from scrubjay.text import metadata as metadata_json
from scrubjay.text.instants import read_time
from scrubjay.text.normal import clean
from scrubjay.write.clean import MAX_CONTENT_CHARS
from scrubjay.write.episode import new_memory

FORMAT = "scrubjay-export"
VERSION = 1
_BATCH = 500
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Escaped, since some readers of lines take them for ends of lines."""


def export(store: Store, keys: Sequence[PartitionKey], path: Path) -> dict[str, int]:
    """Write the partitions of `keys` to `path`; the counts by type.

    The same content gives the same bytes, whenever and from whichever store.
    """
    counts = {"turn": 0, "memory": 0}
    digest = hashlib.sha256()
    if not path.name or path.is_dir():
        raise InvalidInput(f"{path} is no file's name; name one that does not exist yet")
    partial = path.with_name(path.name + ".part")
    try:
        with (
            partial.open("w", encoding="utf-8", newline="\n") as file,
            store.snapshot() as snapshot,
        ):
            header = {"type": "header", "format": FORMAT, "version": VERSION}
            file.write(metadata_json.dumps(header) + "\n")
            for line in lines(snapshot, keys):
                text = metadata_json.dumps(line).translate(_LINE_ENDS) + "\n"
                digest.update(text.encode("utf-8"))
                file.write(text)
                counts[line["type"]] += 1
            footer = {"type": "footer", **counts, "sha256": digest.hexdigest()}
            file.write(metadata_json.dumps(footer) + "\n")
        partial.replace(path)
    except OSError as exc:
        partial.unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written ({exc.strerror}); name another file") from exc
    return counts


def lines(snapshot: Snapshot, keys: Sequence[PartitionKey]) -> Iterator[dict[str, Any]]:
    """Everything of these partitions as an export has it, an object a line."""
    everything = Criteria(now=datetime.now(UTC), states=None)
    for state in snapshot.partitions(keys):
        owner = state.key.owner
        for turn in snapshot.turns(state):
            yield {"type": "turn", "private_to": owner or None, **_kept(turn)}
        seqs, links = snapshot.select(state, everything), snapshot.links(state)
        ids: dict[int, str] = {}
        for start in range(0, len(seqs), _BATCH):
            for record in snapshot.records(state, seqs[start : start + _BATCH]):
                ids[record.seq] = record.id
                line = _kept(record)
                del line["seq"]
                yield {"type": "memory", "follows": ids.get(links.get(record.seq, 0)), **line}


def _kept(value: Turn | MemoryRecord) -> dict[str, Any]:
    """Plain data, with metadata in the form whose types survive."""
    data = replace(value, metadata={}).to_dict()
    data["metadata"] = dict(value.metadata)
    return data


@dataclass(frozen=True, slots=True)
class _Archive:
    """A whole file, read and checked."""

    turns: list[tuple[PartitionKey, Turn]]
    memories: list[MemoryRecord]
    follows: dict[str, str]
    subjects: set[tuple[str, str]]


def import_(
    store: Store, scope: Scope, path: Path, progress: Progress | None, *, embed: bool
) -> dict[str, int]:
    """Read `path` into `scope`'s subject. Checked whole before the first row is written.

    Written in batches, so that other writers need not wait; an interrupted import is taken up
    by the next one, since what is there is skipped.
    """
    archive = _read(path, scope)
    archive = _renamed(store, archive, scope)
    secret = store.secret()
    total = len(archive.turns) + len(archive.memories)
    written = skipped = 0
    for key, turns, memories in _batches(archive):
        new = [
            replace(new_memory(record, secret), follows=archive.follows.get(record.id))
            for record in memories
        ]
        w, s = store.import_rows(key, turns, new, embed=embed)
        written, skipped = written + w, skipped + s
        if progress:
            progress(written + skipped, total, "rows")
    return {"written": written, "skipped": skipped}


def _batches(
    archive: _Archive,
) -> Iterator[tuple[PartitionKey, list[Turn], list[MemoryRecord]]]:
    by_key: dict[PartitionKey, tuple[list[Turn], list[MemoryRecord]]] = {}
    for key, turn in archive.turns:
        by_key.setdefault(key, ([], []))[0].append(turn)
    for record in archive.memories:
        by_key.setdefault(partition_of(record), ([], []))[1].append(record)
    for key, (turns, memories) in by_key.items():
        for start in range(0, len(turns), _BATCH):
            yield key, turns[start : start + _BATCH], []
        for start in range(0, len(memories), _BATCH):
            yield key, [], memories[start : start + _BATCH]


def _renamed(store: Store, archive: _Archive, scope: Scope) -> _Archive:
    """The same rows under new ids, unless they were this subject's own.

    The new ids follow from the old ones and the subject, so that a second import finds them,
    and finds what was forgotten of them.
    """
    ids = [t.id for _, t in archive.turns] + [m.id for m in archive.memories]
    is_own = archive.subjects <= {(scope.tenant, scope.subject)}
    if is_own and not store.are_elsewhere(scope, ids):
        return archive
    space = uuid.uuid5(uuid.NAMESPACE_OID, f"{scope.tenant}/{scope.subject}")
    names: dict[str | None, str] = {i: str(uuid.uuid5(space, i)) for i in ids}
    turns = [(key, replace(turn, id=names[turn.id])) for key, turn in archive.turns]
    memories = [
        replace(
            m,
            id=names[m.id],
            supersedes=names.get(m.supersedes),
            superseded_by=names.get(m.superseded_by),
            sources=tuple(replace(s, turn_id=names.get(s.turn_id, s.turn_id)) for s in m.sources),
        )
        for m in archive.memories
    ]
    follows = {names[i]: names[j] for i, j in archive.follows.items() if j in names}
    return _Archive(turns, memories, follows, archive.subjects)


def _read(path: Path, scope: Scope) -> _Archive:
    archive = _Archive([], [], {}, set())
    digest = hashlib.sha256()
    counts = {"turn": 0, "memory": 0}
    footer: Mapping[str, Any] | None = None
    number = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if footer is not None:
                    raise ImportFailed(f"line {number}: something follows the last line")
                line = _line(raw, number)
                if number == 1:
                    _check_header(line)
                elif line.get("type") == "footer":
                    footer = line
                else:
                    digest.update(raw)
                    _take(line, number, archive, scope, counts)
    except OSError as exc:
        raise ImportFailed(f"{path} cannot be read: {exc.strerror}") from exc
    if footer is None:
        raise ImportFailed(f"line {number + 1}: the file is cut short; nothing was imported")
    if footer.get("sha256") != digest.hexdigest() or any(
        footer.get(name) != count for name, count in counts.items()
    ):
        raise ImportFailed(
            f"line {number}: counts or checksum differ, so the file was changed; nothing was "
            "imported"
        )
    return archive


def _line(raw: bytes, number: int) -> dict[str, Any]:
    try:
        line = metadata_json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise ImportFailed(f"line {number} is no JSON; nothing was imported") from exc
    if not isinstance(line, dict):
        raise ImportFailed(f"line {number} is no JSON object; nothing was imported")
    return line


def _check_header(line: Mapping[str, Any]) -> None:
    if line.get("format") != FORMAT:
        raise ImportFailed("line 1 is not the header of a Scrubjay export; nothing was imported")
    if line.get("version") != VERSION:
        raise ImportFailed(
            f"line 1: the export has version {line.get('version')!r}, and this Scrubjay reads "
            f"{VERSION}; upgrade with `pip install -U scrubjay`"
        )


def _take(
    line: dict[str, Any], number: int, archive: _Archive, scope: Scope, counts: dict[str, int]
) -> None:
    kind = line.pop("type", None)
    if kind not in counts:
        raise ImportFailed(f"line {number} has the unknown type {kind!r}; nothing was imported")
    counts[kind] += 1
    try:
        archive.subjects.add(_subject(line["scope"]))
        if kind == "turn":
            archive.turns.append(_turn(line, scope))
        else:
            follows = line.pop("follows")
            record = _record(line, scope)
            if partition_of(record).subject != scope.subject:
                raise ValueError("common knowledge")
            archive.memories.append(record)
            if follows is not None:
                archive.follows[record.id] = _id(follows)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise ImportFailed(
            f"line {number}: {type(exc).__name__} in a {kind}; nothing was imported"
        ) from exc


def _subject(data: Mapping[str, Any]) -> tuple[str, str]:
    """Whose rows these were."""
    own = Scope(user_id=data["user_id"], device_id=data["device_id"])
    return _string(data["tenant"]), own.subject


def _scope(data: Mapping[str, Any], scope: Scope) -> Scope:
    return Scope(
        user_id=scope.user_id,
        device_id=check_id("device_id", data["device_id"]) if scope.user_id else scope.device_id,
        agent_id=check_id("agent_id", data["agent_id"]),
        session_id=check_id("session_id", data["session_id"]),
        namespace=check_id("namespace", data["namespace"]),
        tenant=scope.tenant,
    )


def _turn(line: dict[str, Any], scope: Scope) -> tuple[PartitionKey, Turn]:
    own = _scope(line["scope"], scope)
    private_to = line["private_to"]
    key = written_partition(own, Visibility.SHARED)
    if private_to is not None:
        key = replace(key, owner=str(check_id("private_to", private_to)))
    return key, Turn(
        id=_id(line["id"]),
        scope=own,
        role=Role(line["role"]),
        content=_string(line["content"]),
        occurred_at=_time(line["occurred_at"]),
        recorded_at=_time(line["recorded_at"]),
        source_class=SourceClass(line["source_class"]),
        metadata=metadata_json.check(line["metadata"]),
    )


_TIMES = frozenset(
    ("occurred_at", "recorded_at", "valid_from", "valid_to", "retired_at", "expires_at")
)
_ENUMS = {"kind": Kind, "tier": Tier, "state": State, "role": Role, "source_class": SourceClass,
          "visibility": Visibility}  # fmt: skip
_OPTIONAL = frozenset(
    ("valid_from", "valid_to", "retired_at", "expires_at", "supersedes", "superseded_by", "reason")
)
_SHARES = frozenset(("trust", "confidence", "importance"))
_MOST_VERSIONS = 2**31


def _record(line: dict[str, Any], scope: Scope) -> MemoryRecord:
    names = {f.name for f in fields(MemoryRecord)} - {"seq"}
    if set(line) != names:
        raise ValueError("unknown or missing fields")
    values = {name: _field(name, value) for name, value in line.items()}
    values["scope"] = _scope(line["scope"], scope)
    values["sources"] = tuple(_source(item) for item in line["sources"])
    values["metadata"] = metadata_json.check(line["metadata"])
    return MemoryRecord(**values)


def _field(name: str, value: Any) -> Any:
    if name in ("scope", "sources", "metadata") or (value is None and name in _OPTIONAL):
        return value
    if name in _TIMES:
        return _time(value)
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name in ("id", "supersedes", "superseded_by"):
        return _id(value)
    if name in _SHARES:
        return fraction(name, value)
    if name == "version":
        return whole_number(name, value, 1, _MOST_VERSIONS)
    return _string(value)


def _id(value: Any) -> str:
    return str(uuid.UUID(_string(value)))


def _source(data: Mapping[str, Any]) -> Source:
    return Source(
        turn_id=_id(data["turn_id"]),
        start=whole_number("start", data["start"], 0, MAX_CONTENT_CHARS),
        end=whole_number("end", data["end"], 0, MAX_CONTENT_CHARS),
        occurred_at=_time(data["occurred_at"]),
        session_id=check_id("session_id", data["session_id"]),
        rule=_string(data["rule"]),
    )


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a string is expected")
    if clean(value)[0] != value or len(value) > MAX_CONTENT_CHARS:
        raise ValueError("a string that no store would have written")
    return value


def _time(value: Any) -> datetime:
    moment = datetime.fromisoformat(_string(value))
    if moment.tzinfo is None:
        raise ValueError("an exported time has a zone")
    return read_time("a time", moment, UTC)[0]
