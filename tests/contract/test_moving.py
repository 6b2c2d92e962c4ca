"""`migrate`: a whole store into another of any kind, there and back, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from places import Databases, PostgresPlaces
from scrubjay import Memory, errors, migrate
from scrubjay.interchange import moving
from scrubjay.testing.fakes import HashEmbedder

USERS = [f"user-{n}" for n in range(8)]
Where = Path | str


@pytest.fixture
def where(tmp_path: Path, shared_databases: Databases) -> Any:
    """`where("postgres", "a")` is a place for a store of that kind."""
    servers = PostgresPlaces(shared_databases)
    yield lambda kind, name="s": servers(name) if kind == "postgres" else tmp_path / name
    servers.close()


def _filled(place: Where, count: int, seed: int = 7) -> None:
    """Every kind of row that a store can hold, of several users."""
    chance = random.Random(seed)
    words = ["tea", "garden", "上海", "花生", "DD20260115-7731", "Mira", "naïve"]
    with Memory(place, embedder=HashEmbedder()) as memory:
        said = 0
        while said < count:
            part = chance.randrange(1, 40)
            texts = [f"{' '.join(chance.choices(words, k=5))} {said + n}" for n in range(part)]
            memory.add(
                texts, user_id=chance.choice(USERS), session_id=f"s{chance.randrange(4)}",
                agent_id=chance.choice([None, "helper"]), namespace=chance.choice([None, "work"]),
                visibility="shared", metadata={"n": said, "f": 0.5, "键": [1, None]},
                idempotency_key=f"key-{said}",
            )  # fmt: skip
            said += part
        memory.add("private to one", user_id=USERS[0], agent_id="helper", visibility="private")
        for user in USERS:
            found = list(memory.list(user_id=user, limit=30))
            for record in found[:4]:
                memory.update(record.id, "now " + record.content, user_id=user)
            if len(found) > 8:
                memory.update(found[6].id, found[7].content, user_id=user)  # two chains, one text
                memory.add(found[8].content, user_id=user, session_id="again")
            for record in found[10:12]:
                memory.delete(record.id, user_id=user)
            memory.forget(user_id=user, session_id="s3")
        memory.forget(user_id=USERS[5])
        memory.flush()


def _exports(place: Where, folder: Path) -> dict[str, bytes]:
    found = {}
    with Memory(place, embedder="none") as memory:
        for user in USERS:
            file = folder / "export.jsonl"
            memory.export(file, user_id=user)
            found[user] = file.read_bytes()
            file.unlink()
        assert memory.doctor().problems == ()
    return found


@pytest.mark.parametrize(
    "count", [600, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])]
)
def test_there_and_back(where: Any, tmp_path: Path, count: int) -> None:
    """From a directory to a server and back: equal bytes, vectors, keys and what was forgotten."""
    here, there, back = where("sqlite", "here"), where("postgres"), where("sqlite", "back")
    _filled(here, count)
    before = _exports(here, tmp_path)
    first = migrate(here, there)
    assert first.memories >= count // 2
    assert first.vectors == first.memories
    assert _exports(there, tmp_path) == before
    second = migrate(there, back)
    assert second.sha256 == first.sha256
    assert _exports(back, tmp_path) == before
    with Memory(here, embedder=HashEmbedder()) as one, Memory(back, embedder=HashEmbedder()) as two:
        for query in ("tea garden", "上海的花生", "DD20260115-7731"):
            found, wanted = (
                [(h.id, round(h.score, 6)) for h in m.search(query, user_id=USERS[0], top_k=20)]
                for m in (one, two)
            )
            assert found == wanted


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_stopped_move_is_taken_up(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Wherever it stopped, the next one finishes it, and passes over what is there."""
    here, there = where("sqlite", "here"), where(kind, "there")
    _filled(here, 300)
    whole = moving._copy_vectors
    for stop in (2, 4):
        calls = iter(range(100))

        def stopping(*given: Any, at: int = stop, count: Any = calls) -> None:
            if next(count) == at:
                raise KeyboardInterrupt
            whole(*given)

        monkeypatch.setattr(moving, "_copy_vectors", stopping)
        with pytest.raises(KeyboardInterrupt):
            migrate(here, there)
    monkeypatch.setattr(moving, "_copy_vectors", whole)
    moved = migrate(here, there)
    assert moved.already_there >= 2
    assert _exports(there, tmp_path) == _exports(here, tmp_path)
    assert migrate(here, there).already_there == moved.partitions


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_else_a_store_knows(where: Any, tmp_path: Path, kind: str) -> None:
    """A key used before is known there, and what was forgotten does not come back."""
    here, there = where("sqlite", "here"), where(kind, "there")
    with Memory(here, embedder="none") as memory:
        first = memory.add("said once", user_id="ada", idempotency_key="k1")
        gone = memory.add("to be forgotten", user_id="ada")
        memory.add("bob's", user_id="bob")
        memory.export(tmp_path / "ada.jsonl", user_id="ada")
        memory.export(tmp_path / "bob.jsonl", user_id="bob")
        memory.delete(gone.ids[0], user_id="ada")
        memory.forget(user_id="bob")
    migrate(here, there)
    with Memory(there, embedder="none") as memory:
        again = memory.add("said once", user_id="ada", idempotency_key="k1")
        assert (again.status, again.ids) == ("replayed", first.ids)
        with pytest.raises(errors.IdempotencyConflict):
            memory.add("said otherwise", user_id="ada", idempotency_key="k1")
        for user in ("ada", "bob"):
            memory.import_(tmp_path / f"{user}.jsonl", user_id=user)
        assert [r.content for r in memory.list(user_id="ada")] == ["said once"]
        assert memory.list(user_id="bob").total == 0
        assert memory.doctor().problems == ()


def test_what_has_no_vector_yet_gets_one(where: Any) -> None:
    here, there = where("sqlite", "here"), where("postgres")
    _filled(here, 60)
    from scrubjay import Settings

    with Memory(here, settings=Settings(background=False), embedder=HashEmbedder()) as memory:
        memory.add("written while nobody embedded", user_id=USERS[1])
    moved = migrate(here, there)
    assert moved.vectors == moved.memories - 1
    with Memory(there, embedder=HashEmbedder()) as memory:
        assert memory.flush()
        stats = memory.stats(user_id=USERS[1])
        assert stats["vectors"] == stats["memories"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_target_of_its_own_is_refused(where: Any, kind: str) -> None:
    """Nothing is mixed, and nothing is changed."""
    here, there = where("sqlite", "here"), where(kind, "there")
    _filled(here, 30)
    with Memory(there, embedder="none") as memory:
        memory.add("mine", user_id="eve")
    with pytest.raises(errors.InvalidInput, match="memories of its own"):
        migrate(here, there)
    with Memory(there, embedder="none") as memory:
        assert memory.stats()["partitions"] == 1
    with pytest.raises(errors.InvalidInput, match="no store"):
        migrate(where("sqlite", "nowhere"), there)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_forgotten_since_the_last_move(where: Any, kind: str) -> None:
    """Who was forgotten in the source between two moves is forgotten in the target."""
    here, there = where("sqlite", "here"), where(kind, "there")
    with Memory(here, embedder="none") as memory:
        memory.add("ada's", user_id="ada")
        memory.add("bob's", user_id="bob")
    migrate(here, there)
    with Memory(here, embedder="none") as memory:
        memory.forget(user_id="bob")
    migrate(here, there)
    with Memory(there, embedder="none") as memory:
        assert memory.list(user_id="bob").total == 0
        assert memory.list(user_id="ada").total == 1
        memory.add("eve's", user_id="eve")
    with pytest.raises(errors.InvalidInput, match="does not know"):
        migrate(here, there)
    with Memory(there, embedder="none") as memory:
        assert memory.list(user_id="eve").total == 1


def test_a_source_is_only_read(where: Any, postgres_url: str) -> None:
    """Where there is no store none is made."""
    with pytest.raises(errors.InvalidInput, match="no store"):
        migrate(postgres_url, where("sqlite", "there"))
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regnamespace('scrubjay')").fetchone() == (None,)


def test_a_write_meanwhile_is_told(where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds what came in between."""
    here, there = where("sqlite", "here"), where("sqlite", "there")
    _filled(here, 60)
    copied: Callable[..., None] = moving._copy

    def with_a_guest(source: Any, target: Any, key: Any, *rest: Any) -> None:
        copied(source, target, key, *rest)
        target.erase([key], moving_target(), lambda *_: None, rest[-1])

    monkeypatch.setattr(moving, "_copy", with_a_guest)
    with pytest.raises(errors.StoreDamaged, match="meanwhile"):
        migrate(here, there)


def moving_target() -> Any:
    from scrubjay.storage import Target

    return Target(whole=True)
