"""Bad files: damaged, foreign and newer stores, forged and broken exports.

Each is an error of ours that says what to do, or is mended; what is not broken is not lost.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from places import Places
from scrubjay import Memory, errors
from scrubjay.testing.fakes import HashEmbedder

Open = Callable[..., Memory]
USER = "ada"
PRIVATE = "Zwiebelkuchen"
"""Stands for what may be private: no error may repeat it."""
ITS_FILES = pytest.mark.embedded_only("what a damaged file does; a server checks its own")
UNKNOWN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    """One with something in it that must still be there afterwards."""
    memory = open_memory()
    memory.add("what was here before", user_id=USER, metadata={"n": 1, "none": None, "l": [1]})
    return memory


def _filled(open_memory: Open) -> None:
    with open_memory(embedder=HashEmbedder(32)) as memory:
        memory.add([f"line {n} of the story " + "and so on " * 8 for n in range(900)],
                   user_id=USER, session_id="s", metadata={"n": 1})  # fmt: skip
        first = memory.add("version one", user_id=USER, expires_at="2999-01-01").ids[0]
        memory.update(first, "version two", user_id=USER)
        assert memory.flush(60)


def _use_everything(path: Path, tmp_path: Path) -> list[errors.ScrubjayError]:
    """Open and call each verb; only Scrubjay's own errors may come. They are returned."""
    caught: list[errors.ScrubjayError] = []
    target = tmp_path / f"out{random.randrange(1 << 60)}"
    calls: list[Callable[[Memory], object]] = [
        lambda m: m.search("line 500 of the story", user_id=USER, top_k=50),
        lambda m: m.search("story", user_id=USER, session_id="s", filters={"n": 1}),
        lambda m: m.list(user_id=USER, limit=1_000, states=None),
        lambda m: m.context("version", user_id=USER),
        lambda m: m.export(target, user_id=USER),
        lambda m: m.stats(),
        lambda m: m.doctor(),
        lambda m: m.add("one more", user_id=USER),
        lambda m: m.forget(user_id=USER, session_id="s"),
        lambda m: m.flush(3),
        lambda m: m.doctor(repair=True),
    ]
    try:
        with Memory(path, embedder=HashEmbedder(32)) as memory:
            for call in calls:
                try:
                    call(memory)
                except errors.ScrubjayError as exc:
                    caught.append(exc)
    except errors.ScrubjayError as exc:
        caught.append(exc)
    for exc in caught:
        assert "of the story" not in str(exc)
    return caught


@ITS_FILES
@pytest.mark.parametrize("damage", ["garbage", "text", "half", "header", "tail cut"])
def test_a_damaged_database(open_memory: Open, tmp_path: Path, damage: str) -> None:
    """StoreDamaged that says what to do; the file is left as it is."""
    _filled(open_memory)
    file = tmp_path / "store" / "scrubjay.db"
    data = file.read_bytes()
    broken = {
        "garbage": random.Random(1).randbytes(len(data)),
        "text": b"this is no database " * 5_000,
        "half": data[: len(data) // 2],
        "header": b"\xff" * 100 + data[100:],
        "tail cut": data[: -len(data) // 3] + b"\x00" * 100,
    }[damage]
    file.write_bytes(broken)
    for name in ("scrubjay.db-wal", "scrubjay.db-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
    caught = _use_everything(tmp_path / "store", tmp_path)
    assert any(isinstance(exc, errors.StoreDamaged) for exc in caught), caught
    for exc in caught:
        if isinstance(exc, errors.StoreDamaged):
            assert "restore" in str(exc) or "reindex" in str(exc)
    if damage in ("garbage", "text", "header"):
        assert file.read_bytes() == broken


@ITS_FILES
@pytest.mark.parametrize("seed", range(8))
def test_flipped_bytes(open_memory: Open, tmp_path: Path, seed: int) -> None:
    """Anywhere in the file: an error of ours, a found problem, or no harm; never another error."""
    _filled(open_memory)
    file = tmp_path / "store" / "scrubjay.db"
    data = file.read_bytes()
    chance = random.Random(seed)
    for number in range(4):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(tmp_path / "store", copy)
        flipped = bytearray(data)
        if seed % 2:  # a few pages in full
            for _ in range(3):
                start = chance.randrange(1, len(data) // 4096) * 4096
                flipped[start : start + 4096] = chance.randbytes(4096)
        else:  # bytes here and there
            for _ in range(200):
                flipped[chance.randrange(100, len(data))] = chance.randrange(256)
        (copy / "scrubjay.db").write_bytes(flipped)
        _use_everything(copy, tmp_path)
        shutil.rmtree(copy)


@ITS_FILES
def test_a_truncated_log_loses_only_what_it_held(open_memory: Open, tmp_path: Path) -> None:
    """The file itself stays sound."""
    memory = open_memory()
    memory.add("in the file", user_id=USER)
    memory._parts.store._db.truncate_wal()  # type: ignore[attr-defined]
    memory.add("in the log", user_id=USER)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    log = tmp_path / "copy" / "scrubjay.db-wal"
    log.write_bytes(log.read_bytes()[:-1_000])
    (tmp_path / "copy" / "scrubjay.db-shm").unlink()
    with open_memory("copy") as copy:
        assert [r.content for r in copy.list(user_id=USER)] == ["in the file"]
        assert copy.doctor().sound


def test_a_damaged_segment_is_built_anew(open_memory: Open, place: Places) -> None:
    """It says so, and `reindex` mends it: the rows are the truth."""
    _filled(open_memory)
    assert place.change("UPDATE segments SET blob = substr(blob, 1, 200) WHERE kind = 'words'")
    with open_memory(embedder=HashEmbedder(32)) as memory:
        with pytest.raises(errors.StoreDamaged, match="reindex"):
            memory.search("line 500", user_id=USER)
        assert not memory.doctor().sound
        memory.reindex()
        assert "line 500 " in memory.search("line 500", user_id=USER)[0].content
        assert memory.doctor().sound


@pytest.mark.parametrize("kind", ["words", "vectors"])
def test_doctor_mends_lost_segments(open_memory: Open, place: Places, kind: str) -> None:
    """It notices that some are missing, and puts them back."""
    _filled(open_memory)
    assert place.change("DELETE FROM segments WHERE kind = ?", (kind,))
    with open_memory(embedder=HashEmbedder(32)) as memory:
        assert not memory.doctor().sound
        assert memory.doctor(repair=True).repaired
        assert memory.flush(60)
        assert memory.doctor().problems == ()
        text = "line 500 of the story " + "and so on " * 8
        hit = memory.search(text, user_id=USER, explain=True, top_k=1)[0]
        assert hit.explanation
        assert min(hit.explanation["words"], hit.explanation["meaning"]) > 0.9


@ITS_FILES
def test_a_newer_schema(open_memory: Open, tmp_path: Path) -> None:
    """SchemaTooNew says to upgrade, and changes nothing."""
    _filled(open_memory)
    file = tmp_path / "store" / "scrubjay.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(errors.SchemaTooNew, match="pip install"):
        open_memory()
    assert file.read_bytes() == before


@ITS_FILES
def test_a_foreign_database(open_memory: Open, tmp_path: Path) -> None:
    """Someone else's SQLite file of that name is refused and not touched."""
    (tmp_path / "store").mkdir()
    file = tmp_path / "store" / "scrubjay.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.execute("INSERT INTO recipes VALUES ('soup')")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(errors.StoreDamaged, match="directory"):
        open_memory()
    assert file.read_bytes() == before


@ITS_FILES
def test_a_file_where_the_directory_should_be(open_memory: Open, tmp_path: Path) -> None:
    """And a directory where the file should be, and a parent that is a file."""
    (tmp_path / "file").write_text("hello")
    with pytest.raises(errors.InvalidInput, match="directory"):
        open_memory(tmp_path / "file")
    with pytest.raises(errors.StoreError):
        open_memory(tmp_path / "file" / "below")
    (tmp_path / "store" / "scrubjay.db").mkdir(parents=True)
    with pytest.raises(errors.StoreError):
        open_memory()
    assert (tmp_path / "file").read_text() == "hello"


# -- imports --------------------------------------------------------------------------------


def _export_lines(memory: Memory, tmp_path: Path) -> list[str]:
    memory.export(tmp_path / "e", user_id=USER)
    return (tmp_path / "e").read_text("utf-8").splitlines()


def _signed(lines: list[str]) -> str:
    """The lines with a footer that fits them, as someone with bad intentions would write it."""
    import hashlib

    header, *rows, footer = lines
    body = "".join(row + "\n" for row in rows)
    end = json.loads(footer)
    end["sha256"] = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    return header + "\n" + body + json.dumps(end) + "\n"


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [
        ("turn", "content", 5), ("turn", "content", "a\ud800b"), ("turn", "role", PRIVATE),
        ("turn", "occurred_at", PRIVATE), ("turn", "occurred_at", 5), ("turn", "id", PRIVATE),
        ("turn", "occurred_at", "0001-01-01T00:00:00+14:00"),
        ("turn", "recorded_at", "9999-12-31T23:59:59-14:00"),
        ("turn", "occurred_at", "2026-01-01T00:00:00"), ("turn", "scope", PRIVATE),
        ("turn", "metadata", PRIVATE), ("turn", "metadata", {"n": {"$datetime": 5}}),
        ("turn", "metadata", {"n": {"$datetime": PRIVATE}}), ("turn", "private_to", 5),
        ("turn", "private_to", ""), ("turn", "private_to", "x" * 9_000),
        ("memory", "id", None), ("memory", "version", 10**30), ("memory", "version", -1),
        ("memory", "trust", float("nan")), ("memory", "trust", 7), ("memory", "trust", "x"),
        ("memory", "kind", PRIVATE), ("memory", "state", None), ("memory", "sources", PRIVATE),
        ("memory", "sources", [{"turn_id": UNKNOWN}]), ("memory", "extra", 1),
        ("memory", "content", None), ("memory", "content", "\ud800"),
        ("memory", "supersedes", PRIVATE), ("memory", "visibility", "private"),
        ("memory", "visibility", "common"), ("memory", "expires_at", "9999-12-31T23:59:59-14:00"),
        ("memory", "reason", 5), ("memory", "language", 5), ("memory", "recorded_at", None),
    ],
)  # fmt: skip
def test_forged_rows(
    memory: Memory, open_memory: Open, tmp_path: Path, where: str, field: str, value: Any
) -> None:
    """ImportFailed, naming the line, and nothing of the file is imported."""
    memory.add("more before", user_id=USER)
    lines = _export_lines(memory, tmp_path)
    number = max(i for i, line in enumerate(lines) if f'"type":"{where}"' in line)
    row = json.loads(lines[number])
    row[field] = value
    lines[number] = json.dumps(row)
    (tmp_path / "f").write_text(_signed(lines), "utf-8")
    with open_memory("fresh") as fresh:
        with pytest.raises(errors.ImportFailed) as caught:
            fresh.import_(tmp_path / "f", user_id=USER)
        assert PRIVATE not in str(caught.value)
        assert fresh.stats(user_id=USER)["turns"] == 0
        assert fresh.list(user_id=USER, states=None).total == 0


@pytest.mark.parametrize(
    "how",
    ["empty", "cut", "no footer", "changed", "not json", "deep", "binary", "another format",
     "newer", "blank line", "after the end", "number", "bom", "two headers"],
)  # fmt: skip
def test_broken_files(memory: Memory, open_memory: Open, tmp_path: Path, how: str) -> None:
    lines = _export_lines(memory, tmp_path)
    whole = "\n".join(lines) + "\n"
    broken: dict[str, str | bytes] = {
        "empty": "", "cut": whole[: len(whole) // 2], "no footer": "\n".join(lines[:-1]) + "\n",
        "changed": whole.replace("what was", "what is"), "not json": whole.replace('{"', "{", 3),
        "deep": lines[0] + "\n" + "[" * 100_000 + "\n", "binary": random.Random(1).randbytes(9_999),
        "another format": '{"format":"other"}\n' + whole,
        "newer": whole.replace('"version":1', '"version":99', 1),
        "blank line": whole.replace("\n", "\n\n", 1), "after the end": whole + "{}\n",
        "number": "5\n" + whole, "bom": "\ufeff" + whole, "two headers": lines[0] + "\n" + whole,
    }  # fmt: skip
    data = broken[how]
    (tmp_path / "f").write_bytes(data if isinstance(data, bytes) else data.encode())
    with open_memory("fresh") as fresh:
        if how == "bom":  # an editor may put one there; it may be read or refused
            try:
                fresh.import_(tmp_path / "f", user_id=USER)
            except errors.ImportFailed:
                assert fresh.stats()["turns"] == 0
            return
        with pytest.raises(errors.ImportFailed, match=r"nothing was imported|line|version"):
            fresh.import_(tmp_path / "f", user_id=USER)
        assert fresh.stats()["turns"] == 0
