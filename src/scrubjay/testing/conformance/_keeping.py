"""Import, backup and restore, and what keeps a store sound."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest

from scrubjay.errors import ScrubjayError, StoreClosed, StoreDamaged
from scrubjay.index.segments import without
from scrubjay.model import State, Turn
from scrubjay.ports import Store
from scrubjay.storage import NewMemory, Target
from scrubjay.testing.conformance._base import Reopen, StoreSuite
from scrubjay.testing.conformance.build import (
    ADA,
    BOB,
    T0,
    at,
    entry,
    everything,
    new_memory,
    record_of,
    seal_words,
    seen,
    state_of,
    write,
)

Rows = tuple[list[Turn], list[NewMemory]]


def _exported(store: Store) -> Rows:
    """What an export of ADA would hold."""
    with store.snapshot() as snapshot:
        state = state_of(snapshot)
        turns = list(snapshot.turns(state))
        records = snapshot.records(state, snapshot.select(state, everything()))
    return turns, [new_memory(record) for record in records]


class StoreImport(StoreSuite):
    """`import_rows` writes an export's rows as they are."""

    @pytest.fixture
    def rows(self, store: Store) -> Rows:
        """An export of a partition with versions, repetitions and a quarantined memory."""
        (first,) = write(store, "v1", session="s")
        store.supersede([ADA], first, entry("v2", session="s", when=at(1)), "why", embed=False)
        write(store, "other", session="s", metadata={"n": 1}, when=at(2))
        write(store, "other", session="t", metadata={"n": 1}, when=at(3))
        write(store, "held", state=State.QUARANTINED, when=at(4))
        return _exported(store)

    def test_again_is_nothing(self, store: Store, rows: Rows) -> None:
        """What is here is skipped."""
        before = store.counts([ADA])
        assert store.import_rows(ADA, *rows, embed=False) == (0, len(rows[0]) + len(rows[1]))
        assert store.counts([ADA]) == before

    def test_ids_times_states_and_versions(self, store: Store, rows: Rows) -> None:
        """All as they were, with their sources, after the data moved to another partition."""
        turns, memories = rows
        with store.snapshot() as snapshot:
            state = state_of(snapshot)
            before = snapshot.records(state, snapshot.select(state, everything()))
        written, skipped = self._into_new(store, turns, memories)
        assert (written, skipped) == (len(turns) + len(memories), 0)
        with store.snapshot() as snapshot:
            state = state_of(snapshot, BOB)
            after = snapshot.records(state, snapshot.select(state, everything()))
        assert [(r.content, r.state, r.version, r.reason) for r in after] == [
            (r.content, r.state, r.version, r.reason) for r in before
        ]
        assert [r.recorded_at for r in after] == [r.recorded_at for r in before]
        assert [len(r.sources) for r in after] == [len(r.sources) for r in before]
        assert [dict(r.metadata) for r in after] == [dict(r.metadata) for r in before]
        assert store.check() == []

    def _into_new(
        self, store: Store, turns: list[Turn], memories: list[NewMemory]
    ) -> tuple[int, int]:
        """Import into BOB under new ids, as `import_` does where the old ones are taken."""

        def new(old: str | None) -> str | None:
            return None if old is None else str(uuid5(NAMESPACE_OID, old))

        moved = [
            new_memory(
                replace(
                    m.record,
                    id=str(new(m.record.id)),
                    supersedes=new(m.record.supersedes),
                    superseded_by=new(m.record.superseded_by),
                    sources=tuple(
                        replace(s, turn_id=str(new(s.turn_id))) for s in m.record.sources
                    ),
                )
            )
            for m in memories
        ]
        return store.import_rows(
            BOB, [replace(t, id=str(new(t.id))) for t in turns], moved, embed=False
        )

    def test_embed_asks_for_vectors(self, store: Store, rows: Rows) -> None:
        """Imported memories get theirs in the background."""
        self._into_new(store, *rows)
        assert store.job_counts(at(9)).kinds == {}
        store.import_rows(ADA, [], [entry("new").episodes[0]], embed=True)
        assert store.job_counts(at(9)).kinds == {"embed": 1}

    def test_readers_notice(self, store: Store) -> None:
        """The generation grows."""
        write(store, "one")
        with store.snapshot() as snapshot:
            before = state_of(snapshot).generation
        said = entry("two", when=at(1))
        store.import_rows(ADA, [said.turn], list(said.episodes), embed=False)
        with store.snapshot() as snapshot:
            assert state_of(snapshot).generation > before
        assert seen(store) == ["one", "two"]

    @pytest.mark.parametrize("what", ["memory", "turn", "session", "whole"])
    def test_what_was_forgotten_stays_so(self, store: Store, what: str) -> None:
        """Turns and memories with a tombstone are skipped, however they were forgotten."""
        said = entry("to be forgotten", session="s")
        store.journal(ADA, [said], embed=False)
        turns, memories = _exported(store)
        targets = {
            "memory": Target(memory_id=said.episodes[0].record.id),
            "turn": Target(turn_id=said.turn.id),
            "session": Target(session_id="s"),
            "whole": Target(whole=True),
        }
        store.erase([ADA], targets[what], without, T0)
        assert store.import_rows(ADA, turns, memories, embed=False) == (0, 2)
        assert seen(store) == []
        assert store.counts([ADA])["turns"] == 0

    def test_said_anew_after_forgetting(self, store: Store) -> None:
        """A tombstone is for what was forgotten, not for the words."""
        (memory_id,) = write(store, "the words")
        store.erase([ADA], Target(memory_id=memory_id), without, T0)
        write(store, "the words", when=at(1))
        assert seen(store) == ["the words"]


class StoreBackup(StoreSuite):
    """A consistent copy while in use, and putting one back."""

    def test_there_and_back(self, store: Store, tmp_path: Path) -> None:
        """What was there when it was made is there again; what came later is not."""
        write(store, "one", "two")
        seal_words(store)
        secret = store.secret()
        store.backup(str(tmp_path / "b"))
        write(store, "three")
        write(store, "bob's", key=BOB)
        assert store.restore(str(tmp_path / "b"), without) == 0
        assert seen(store) == ["one", "two"]
        assert seen(store, BOB) == []
        assert store.secret() == secret
        assert store.check() == []
        write(store, "goes on")
        assert seen(store) == ["one", "two", "goes on"]

    def test_while_others_write(self, store: Store, tmp_path: Path) -> None:
        """The copy is of one moment: a prefix of what was written."""
        stop = threading.Event()

        def keep_writing() -> None:
            number = 0
            while not stop.is_set() and number < 3_000:
                write(store, f"thing {number}")
                number += 1

        thread = threading.Thread(target=keep_writing)
        thread.start()
        try:
            store.backup(str(tmp_path / "b"))
        finally:
            stop.set()
            thread.join()
        store.restore(str(tmp_path / "b"), without)
        found = seen(store)
        assert found == [f"thing {n}" for n in range(len(found))]
        assert store.check() == []

    def test_what_was_forgotten_stays_so(self, store: Store, tmp_path: Path) -> None:
        """And is counted."""
        ids = write(store, "kept", "forgotten", session="s")
        write(store, "bob's", key=BOB)
        store.backup(str(tmp_path / "b"))
        store.erase([ADA], Target(memory_id=ids[1]), without, T0)
        store.erase([BOB], Target(whole=True), without, T0)
        assert store.restore(str(tmp_path / "b"), without) == 2
        assert seen(store) == ["kept"]
        assert seen(store, BOB) == []
        with store.snapshot() as snapshot:
            assert [t.content for t in snapshot.turns(state_of(snapshot))] == ["kept"]
        # And a second time, from the same file.
        store.restore(str(tmp_path / "b"), without)
        assert seen(store) == ["kept"]
        assert store.check() == []

    def test_a_forgotten_session_with_a_survivor(self, store: Store, tmp_path: Path) -> None:
        """A memory that was also said elsewhere loses only that source, again."""
        write(store, "only in a", "in both", session="a")
        write(store, "in both", session="b")
        store.backup(str(tmp_path / "b"))
        store.erase([ADA], Target(session_id="a"), without, T0)
        store.restore(str(tmp_path / "b"), without)
        assert seen(store) == ["in both"]
        assert seen(store, criteria=everything(session_id="a")) == []
        assert store.check() == []

    def test_readers_notice(self, store: Store, tmp_path: Path, reopen: Reopen) -> None:
        """No generation means two things, in any handle."""
        write(store, "one")
        store.backup(str(tmp_path / "b"))
        write(store, "two")
        other = reopen()
        with other.snapshot() as snapshot:
            before = state_of(snapshot)
        store.restore(str(tmp_path / "b"), without)
        with other.snapshot() as snapshot:
            after = state_of(snapshot)
        assert after.generation > before.generation
        assert after.epoch > before.epoch
        assert seen(other) == ["one"]

    def test_numbers_are_never_given_again(self, store: Store, tmp_path: Path) -> None:
        """A sequence given after the backup does not come back with another memory."""
        write(store, "one")
        store.backup(str(tmp_path / "b"))
        (later,) = write(store, "two")
        highest = record_of(store, later).seq
        store.restore(str(tmp_path / "b"), without)
        (anew,) = write(store, "three")
        assert record_of(store, anew).seq > highest

    @pytest.mark.parametrize("damage", ["garbage", "empty", "short", "missing"])
    def test_no_sound_backup(self, store: Store, tmp_path: Path, damage: str) -> None:
        """StoreDamaged, with nothing changed."""
        write(store, *[f"thing {n} " + "x" * 300 for n in range(200)])
        path = tmp_path / "b"
        store.backup(str(path))
        data = path.read_bytes()
        broken = {"garbage": b"not a store" * 99, "empty": b"", "short": data[: len(data) // 2]}
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(broken[damage])
        before = seen(store)
        with pytest.raises(ScrubjayError) as caught:
            store.restore(str(path), without)
        assert damage == "missing" or isinstance(caught.value, StoreDamaged)
        assert seen(store) == before
        write(store, "goes on")
        assert store.check() == []

    def test_progress(self, store: Store, tmp_path: Path) -> None:
        """It ends with all done."""
        write(store, *[f"thing {n} " + "x" * 300 for n in range(200)])
        heard: list[tuple[int, int]] = []
        store.backup(str(tmp_path / "b"), lambda done, total: heard.append((done, total)))
        assert heard[-1][0] == heard[-1][1] > 0
        assert heard == sorted(heard)


class StoreUpkeep(StoreSuite):
    """The secret, the size, the check and the end."""

    def test_the_secret(self, store: Store, reopen: Reopen) -> None:
        """32 bytes, the same for every handle."""
        assert len(store.secret()) == 32
        assert reopen().secret() == store.secret()

    def test_the_size_grows(self, store: Store) -> None:
        """Bytes on disk."""
        before = store.size()
        write(store, *[f"thing {n} " + "x" * 2_000 for n in range(300)])
        assert store.size() > before > 0

    def test_sound_from_the_beginning(self, store: Store) -> None:
        """[] when sound, empty or not."""
        assert store.check() == []
        write(store, "one")
        assert store.check() == []

    def test_counts_are_of_these_keys(self, store: Store) -> None:
        """Rows by table and by state, within these partitions."""
        write(store, "one", "two")
        write(store, "three", key=BOB)
        assert store.counts([ADA])["memories"] == 2
        assert store.counts([ADA, BOB])["memories"] == 3

    def test_the_end(self, store: Store) -> None:
        """A second close does nothing; afterwards every call says that it is closed."""
        write(store, "one")
        store.close()
        store.close()
        with pytest.raises(StoreClosed):
            write(store, "two")
        with pytest.raises(StoreClosed), store.snapshot():
            pass
        with pytest.raises(StoreClosed):
            store.job_counts(at(0))

    def test_closed_under_a_reader(self, store: Store, reopen: Reopen) -> None:
        """Other handles go on."""
        other = reopen()
        write(store, "one")
        store.close()
        write(other, "two")
        assert seen(other) == ["one", "two"]
