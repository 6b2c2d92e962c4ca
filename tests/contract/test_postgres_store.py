"""What only the PostgreSQL store has: the wall, its own errors, migrations, one round trip."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import psycopg
import pytest

from places import Databases
from postgres_server import Server
from scrubjay import Memory, errors
from scrubjay.backends.postgres import PostgresStore, session
from scrubjay.backends.postgres import journal as quick
from scrubjay.backends.postgres.migrate import newest, steps
from scrubjay.guard.crypt import PlainCodec
from scrubjay.index.segments import without
from scrubjay.model import PartitionKey
from scrubjay.testing.conformance.build import ADA, BOB, entry, seen, state_of, write


@pytest.fixture
def superuser(
    shared_databases: Databases, postgres_url: str
) -> Iterator[psycopg.Connection[object]]:
    """Whom no wall binds, connected to the test's database."""
    with shared_databases.server.superuser(postgres_url.rsplit("/", 1)[1]) as connection:
        yield connection


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url, PlainCodec(), write_timeout_s=2.0)
    yield store
    store.close()


# -- the wall ----------------------------------------------------------------------------------

TABLES = (
    "partitions", "turns", "memories", "sources", "edges", "words", "vectors", "segments", "jobs",
    "requests", "tombstones",
)  # fmt: skip


def test_the_wall_holds_without_the_scope(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the partition taken out of every statement, nothing of another user is read."""
    write(store, "ada's own", "ada's second", session="s", key=ADA, embed=True)
    write(store, "bob's own", session="s", key=BOB, embed=True)
    for name, statement in list(session.STATEMENTS.items()):
        blind = statement.replace("pid = %s", "%s IS NOT NULL")
        monkeypatch.setitem(session.STATEMENTS, name, blind)
    with store.snapshot() as snapshot:
        ada = state_of(snapshot, ADA)
        assert len(snapshot.tail_words(ada)) == 2
        assert [t.content for t in snapshot.turns(ada)] == ["ada's own", "ada's second"]
        assert [r.content for r in snapshot.records(ada, [1, 2])] == ["ada's own", "ada's second"]
        assert snapshot.metadata(ada) is not None
    assert store.texts(ADA, [1, 2]) == {1: "ada's own", 2: "ada's second"}
    assert store.dead_jobs([ADA]) == []


def test_unset_means_no_rows(store: PostgresStore) -> None:
    """And a partition that is not asked for is not there, whatever the statement says."""
    write(store, "ada's own", session="s", key=ADA, embed=True)
    write(store, "bob's own", session="s", key=BOB, embed=True)
    with store._db.view() as view:
        for table in TABLES:
            assert view.select(f"SELECT count(*) FROM {table}") == [(0,)], table
        view.partitions([ADA])
        for table in ("partitions", "turns", "memories", "words", "jobs"):
            rows = view.select(f"SELECT DISTINCT pid FROM {table}")
            assert rows == [(store.pid_of(ADA),)], table


def test_nothing_is_written_beyond_the_wall(store: PostgresStore) -> None:
    """Neither inserted, nor changed, nor deleted."""
    write(store, "bob's own", key=BOB)
    pid = store.pid_of(BOB)

    def tombstone(s: session.PostgresSession) -> None:
        s.change("insert_tombstone", pid, b"origin", b"", 0)

    with pytest.raises(errors.StoreError):
        store._db.write([store.pid_of(ADA)], tombstone)

    def blot(s: session.PostgresSession) -> tuple[int, int]:
        changed = s.execute("UPDATE memories SET content = ''::bytea")
        return changed, s.execute("DELETE FROM turns")

    assert store._db.write([store.pid_of(ADA)], blot) == (0, 0)
    assert seen(store, BOB) == ["bob's own"]


def test_who_works_owns_nothing(store: PostgresStore) -> None:
    """The role has no login, no ownership, no way around the wall, and not the bare leaves."""
    write(store, "ada's own")
    with store._db.view() as view:
        ((role, is_super, bypasses, logs_in),) = view.select(
            "SELECT rolname, rolsuper, rolbypassrls, rolcanlogin FROM pg_roles"
            " WHERE rolname = current_user"
        )
        owned = view.select(
            "SELECT count(*) FROM pg_class WHERE relowner = ?::regrole", (f'"{role}"',)
        )
        forced = view.select(
            "SELECT relname FROM pg_class WHERE relnamespace = 'scrubjay'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition AND NOT relforcerowsecurity"
            " ORDER BY relname"
        )
    assert (is_super, bypasses, logs_in, owned) == (False, False, False, [(0,)])
    # None of these names a user.
    assert [name for (name,) in forced] == [
        "forgotten_partitions", "meta", "models", "schema_version",
    ]  # fmt: skip
    with pytest.raises(errors.StoreReadOnly), store._db.read(None) as maintenance:
        maintenance.select("SELECT * FROM memories_0")


# -- the quick way -----------------------------------------------------------------------------


def test_a_simple_write_is_one_call(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the shared steps say the same: both ways make the same rows."""
    calls: list[int] = []
    once = store._call

    def counted(values: object, deadline: float) -> int:
        calls.append(once(values, deadline))  # type: ignore[arg-type]
        return calls[-1]

    monkeypatch.setattr(store, "_call", counted)
    write(store, "first", key=ADA)  # a new partition: the shared steps
    assert calls.pop() == quick.NOT_SIMPLE
    told = [entry("one", "two", key=ADA, session="s"), entry("three", key=ADA, session="s")]
    store.journal(ADA, told, embed=True)
    assert calls == [2, 2]  # the guess, and the right sequence
    store.journal(ADA, [entry("four", key=ADA, session="s")], embed=True)
    assert calls == [2, 2, 5]
    monkeypatch.setattr(quick, "is_simple", lambda _: False)
    write(store, "first", key=BOB)
    told = [entry("one", "two", key=BOB, session="s"), entry("three", key=BOB, session="s")]
    store.journal(BOB, told, embed=True)
    store.journal(BOB, [entry("four", key=BOB, session="s")], embed=True)
    assert calls == [2, 2, 5]
    assert _rows(store, ADA) == _rows(store, BOB)
    assert store.check() == []


def _rows(store: PostgresStore, key: PartitionKey) -> object:
    """Everything of a partition that does not differ by chance."""
    with store.snapshot() as snapshot:
        state = state_of(snapshot, key)
        records = snapshot.records(state, range(1, state.next_seq))
        plain = [
            (r.content, r.seq, r.kind, r.state, r.version, r.occurred_at, r.scope.session_id,
             [(s.start, s.end, s.rule) for s in r.sources])
            for r in records
        ]  # fmt: skip
        words = [
            (w.seq, w.length, w.previous, w.occurred_at, w.trust, w.postings)
            for w in snapshot.tail_words(state)
        ]
        turns = [t.content for t in snapshot.turns(state)]
        return plain, words, turns, snapshot.links(state), state.next_seq


# -- opening -----------------------------------------------------------------------------------


def test_an_opened_store_is_opened_again(store: PostgresStore, postgres_url: str) -> None:
    """By another user too, once he may take on the role."""
    write(store, "there")
    again = PostgresStore(postgres_url, PlainCodec())
    assert seen(again) == ["there"]
    again.close()


def test_migrations_give_the_schema(postgres_url: str) -> None:
    """The sum of the steps is what a new store gets."""
    from importlib import resources

    whole = resources.files("scrubjay.backends.postgres").joinpath("schema.sql").read_text("utf-8")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        found = []
        for scripts in ([whole], [script for _, script in sorted(steps().items())]):
            connection.execute("DROP SCHEMA IF EXISTS scrubjay CASCADE; CREATE SCHEMA scrubjay")
            connection.execute("SET search_path = scrubjay, public")
            for script in scripts:
                connection.execute(script.encode())
            found.append(
                connection.execute(
                    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM"
                    " information_schema.columns WHERE table_schema = 'scrubjay' ORDER BY 1, 2"
                ).fetchall()
                + connection.execute(
                    "SELECT tablename, indexname, indexdef FROM pg_indexes"
                    " WHERE schemaname = 'scrubjay' ORDER BY 1, 2"
                ).fetchall()
                + connection.execute(
                    "SELECT proname, prosrc, '' FROM pg_proc"
                    " WHERE pronamespace = 'scrubjay'::regnamespace ORDER BY 1"
                ).fetchall()
            )
    assert found[0] == found[1]
    assert len(found[0]) > 100


def test_a_newer_schema_is_refused(store: PostgresStore, postgres_url: str) -> None:
    """With nothing changed."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE scrubjay.schema_version SET version = 99")
    with pytest.raises(errors.SchemaTooNew, match="99"):
        PostgresStore(postgres_url, PlainCodec())


def test_an_older_schema_is_brought_up(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step once, however many open it, and a step that fails leaves the older one."""
    migrate = import_module("scrubjay.backends.postgres.migrate")
    PostgresStore(postgres_url, PlainCodec()).close()
    known, following = dict(steps()), newest() + 1
    bad = {**known, following: "CREATE TABLE scrubjay.late (a int); SELECT 1 / 0"}
    monkeypatch.setattr(migrate, "steps", lambda: bad)
    with pytest.raises(errors.StoreError):
        PostgresStore(postgres_url, PlainCodec())
    good = {**known, following: "CREATE TABLE scrubjay.late (a int)"}
    monkeypatch.setattr(migrate, "steps", lambda: good)
    for _ in range(2):
        store = PostgresStore(postgres_url, PlainCodec())
        write(store, "there")
        store.close()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT version FROM scrubjay.schema_version").fetchone() == (
            following,
        )


def test_another_schema_of_that_name(postgres_url: str) -> None:
    """Is left alone."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA scrubjay; CREATE TABLE scrubjay.mine (a int)")
    with pytest.raises(errors.StoreDamaged, match="not Scrubjay's"):
        PostgresStore(postgres_url, PlainCodec())


def test_a_missing_extension_is_named(
    postgres_url: str, superuser: psycopg.Connection[object]
) -> None:
    """With who can help."""
    superuser.execute("DROP EXTENSION vector")
    with pytest.raises(errors.StoreError, match="CREATE EXTENSION vector"):
        PostgresStore(postgres_url, PlainCodec())


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", errors.StoreUnavailable),
        ("postgresql://a:b@[broken/x", errors.InvalidInput),
        ("mysql://somewhere/x", errors.InvalidInput),
    ],
)
def test_a_bad_url_is_told(url: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Memory(url, embedder="none")


def test_a_wrong_password_is_not_shown(shared_databases: Databases, postgres_url: str) -> None:
    """Neither the right one nor the one that was tried."""
    wrong = postgres_url.replace(shared_databases.server.password, "pass-that-was-tried")
    with pytest.raises(errors.StoreError) as caught:
        Memory(wrong, embedder="none")
    assert "pass-that-was-tried" not in str(caught.value)
    assert "password" in str(caught.value)


# -- a server that will not --------------------------------------------------------------------


def test_a_database_that_is_read_only(
    store: PostgresStore, postgres_url: str, superuser: psycopg.Connection[object]
) -> None:
    """As on a standby: reading goes on, writing says where to go instead."""
    write(store, "there")
    name = postgres_url.rsplit("/", 1)[1]
    superuser.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
    with Memory(postgres_url, embedder="none") as memory:
        assert memory.search("there", user_id="ada")[0].content == "there"
        with pytest.raises(errors.StoreReadOnly, match="primary"):
            memory.add("new", user_id="ada")
    superuser.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())


def test_a_real_standby(server: Server) -> None:
    """A server in recovery, from the files of one with a store in it."""
    database = server.create_database()
    with Memory(server.url(database), embedder="none") as memory:
        memory.add("said on the primary", user_id="ada")
    signal_file = server._data / "standby.signal"
    server.stop()
    settings = server._data / "postgresql.auto.conf"
    kept = settings.read_text()
    try:
        settings.write_text(kept + "\nwal_level = replica\nhot_standby = on\n")
        server.start()  # so that the files say what a standby needs
        server.stop()
        signal_file.touch()
        os.chown(signal_file, server._uid, server._gid)
        server.start()
        with Memory(server.url(database), embedder="none") as memory:
            found = memory.search("primary", user_id="ada")
            assert [hit.content for hit in found] == ["said on the primary"]
            with pytest.raises(errors.StoreReadOnly):
                memory.add("said on the standby", user_id="ada")
    finally:
        server.stop()
        signal_file.unlink(missing_ok=True)
        settings.write_text(kept)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = Path("/tmp") / f"scrubjay-small-{os.getpid()}"
    path.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=777", "tmpfs", str(path)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        path.rmdir()
        pytest.skip("needs to be root, to mount a small disk")
    yield path
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
    path.rmdir()


def test_the_disk_is_full(server: Server, small_disk: Path) -> None:
    """StoreFull, with nothing half-written; with space again, all goes on."""
    folder = small_disk / "space"
    folder.mkdir(mode=0o700)
    if server._uid:
        os.chown(folder, server._uid, server._gid)
    database = server.create_database()
    with server.superuser() as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        connection.execute(f'ALTER DATABASE "{database}" SET TABLESPACE small')
    try:
        with Memory(server.url(database), embedder="none") as memory:
            with server.superuser(database) as connection:
                connection.execute(
                    "CREATE TABLE ballast AS SELECT repeat('x', 2000) FROM generate_series(1, 1500)"
                )
            acked = _fill(memory)
            assert acked
            assert memory.list(user_id="ada").total == acked
            assert memory.search("thing", user_id="ada")
            with server.superuser(database) as connection:
                connection.execute("DROP TABLE ballast")
            memory.add("there is room again", user_id="ada")
            assert memory.doctor().problems == ()
    finally:
        server.drop_database(database)
        with server.superuser() as connection:
            connection.execute("DROP TABLESPACE small")


def _fill(memory: Memory) -> int:
    """Add until it is refused; the number that was acknowledged."""
    acked = 0
    for number in range(20_000):
        texts = [f"thing {number} {n} " + f"{number}x{n} " * 90 for n in range(20)]
        try:
            acked += len(memory.add(texts, user_id="ada").ids)
        except errors.StoreFull:
            return acked
    pytest.fail("the small disk held everything")


# -- another's backup, a lost answer ------------------------------------------------------------


def test_another_stores_backup_under_an_open_one(
    store: PostgresStore, postgres_url: str, shared_databases: Databases, tmp_path: Path
) -> None:
    """Who has the store open goes on with what was restored, and writes where it is found."""
    other_name = shared_databases.take()
    other = PostgresStore(shared_databases.server.url(other_name), PlainCodec())
    write(other, "from the other", key=ADA)
    other.backup(str(tmp_path / "other.backup"))
    other.close()
    shared_databases.give_back(other_name)
    write(store, "gone with the restoring", key=BOB)
    beside = PostgresStore(postgres_url, PlainCodec())
    assert store.restore(str(tmp_path / "other.backup"), without) == 0
    assert seen(beside, ADA) == ["from the other"]
    assert seen(beside, BOB) == []
    write(beside, "later", key=ADA)
    write(beside, "new", key=BOB)
    assert seen(store, ADA) == ["from the other", "later"]
    assert seen(store, BOB) == ["new"]
    assert store.check() == beside.check() == []
    beside.close()


def test_a_restore_that_fails_changes_nothing(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the rows nor what this process knows of the store."""
    write(store, "there")
    store.backup(str(tmp_path / "a.backup"))
    write(store, "since")
    backup = import_module("scrubjay.backends.postgres.backup")

    def full(*_: object) -> None:
        raise psycopg.errors.DiskFull("no space")

    monkeypatch.setattr(backup, "_move_past", full)
    with pytest.raises(errors.StoreFull):
        store.restore(str(tmp_path / "a.backup"), without)
    assert seen(store) == ["there", "since"]
    write(store, "after")
    assert seen(store) == ["there", "since", "after"]


def test_an_answer_that_is_lost(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is repeated and written once; where the server stays away, that is said."""
    write(store, "first")
    once = store._call

    def written_and_lost(values: object, deadline: float) -> int:
        once(values, deadline)  # type: ignore[arg-type]
        monkeypatch.setattr(store, "_call", once)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(store, "_call", written_and_lost)
    (id_,) = write(store, "second")
    assert seen(store) == ["first", "second"]
    assert store.journal(ADA, []).ids == ()
    assert id_

    def never_back(values: object, deadline: float) -> int:
        once(values, deadline)  # type: ignore[arg-type]
        monkeypatch.setattr(store, "_call", away)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def away(values: object, deadline: float) -> int:
        raise errors.StoreUnavailable("cannot be reached")

    monkeypatch.setattr(store, "_call", never_back)
    with pytest.raises(errors.StoreUnavailable, match="not known"):
        write(store, "third")
    assert seen(store) == ["first", "second", "third"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:secretpw@[::1/db",
        "postgresql://ada:secretpw%zz@h/db",
        "postgresql://ada@h/db?password=secretpw%zz",
        "postgresql://ada:secretpw@127.0.0.1:1/none",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    with pytest.raises(errors.ScrubjayError) as caught:
        Memory(url, embedder="none")
    assert "secretpw" not in str(caught.value)


def test_a_short_timeout_is_one(postgres_url: str) -> None:
    """Zero seconds do not mean for ever."""
    holder = PostgresStore(postgres_url, PlainCodec())
    hasty = PostgresStore(postgres_url, PlainCodec(), write_timeout_s=0)
    write(holder, "first")

    def held(_: session.PostgresSession) -> None:
        with pytest.raises(errors.StoreBusy):
            write(hasty, "meanwhile")

    def hold(s: session.PostgresSession) -> None:
        s.one("lock_partition", ADA.tenant, ADA.subject, ADA.owner)
        held(s)

    holder._db.write([holder.pid_of(ADA)], hold)
    holder.close()
    hasty.close()
