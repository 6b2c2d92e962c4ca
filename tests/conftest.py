"""What all tests share: each kind of store, nothing may leak, and how hard hypothesis looks.

A test that asks for `place`, or for what is built on it (`open_memory`, `memory`, `run`), runs once
on SQLite and once on PostgreSQL. One that looks into SQLite's files is marked
`embedded_only("the reason")`. The PostgreSQL server is started when the first test needs it.

A thread, an open store file or a connection that outlives its test fails it. With
`SCRUBJAY_SOAK`, set to 1 or to a number of repetitions, the tests marked `soak` repeat what others
do a few times.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from places import Databases, Places, PostgresPlaces, SqlitePlaces, Where
from postgres_server import Server
from scrubjay import Memory
from scrubjay.testing.fakes import HashEmbedder

pytest.register_assert_rewrite("scrubjay.testing.conformance")

_GIVEN = int(os.environ.get("SCRUBJAY_SOAK", "0") or 0)
SOAK = _GIVEN if _GIVEN > 1 else 500
"""How often the soak repeats."""

_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    "print_blob": True,
}
settings.register_profile("quick", max_examples=30, **_COMMON)
settings.register_profile("soak", max_examples=SOAK, **_COMMON)
settings.load_profile("soak" if _GIVEN else "quick")

_GRACE_S = 5.0


def _open_stores() -> list[str]:
    """The store files this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").is_dir() else ():
        try:
            name = os.readlink(entry)
        except OSError:
            continue
        if "scrubjay.db" in name:
            found.append(name)
    return found


def _new_threads(before: set[int | None]) -> list[str]:
    return [t.name for t in threading.enumerate() if t.ident not in before and t.is_alive()]


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Fail a test that leaves a thread running or a store open."""
    threads = {thread.ident for thread in threading.enumerate()}
    stores = len(_open_stores())
    yield
    deadline = time.monotonic() + _GRACE_S
    while _new_threads(threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    left = _new_threads(threads)
    assert not left, f"threads outlived the test: {', '.join(left)}"
    assert len(_open_stores()) <= stores, f"stores were left open: {_open_stores()}"


@pytest.fixture(autouse=True)
def own_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test reads the settings or writes to the store of whoever runs it."""
    for name in list(os.environ):
        if name.startswith("SCRUBJAY_") and name not in ("SCRUBJAY_SOAK", "SCRUBJAY_MODEL_DIR"):
            monkeypatch.delenv(name)
    config = tmp_path_factory.mktemp("config") / "empty.toml"
    config.touch()
    monkeypatch.setenv("SCRUBJAY_CONFIG", str(config))
    monkeypatch.setenv("SCRUBJAY_PATH", str(tmp_path / "default-store"))


# -- where the stores lie ----------------------------------------------------------------------

KINDS = ("sqlite", "postgres")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "embedded_only(reason): looks into what only the embedded store has"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that keeps something runs on each kind of store, unless it says why not."""
    if "place" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("embedded_only")
        assert mark is None or mark.args, "embedded_only wants a reason"
        kinds = KINDS if mark is None else KINDS[:1]
        metafunc.parametrize("place", kinds, indirect=True)


@pytest.fixture(scope="session")
def shared_databases() -> Iterator[Databases]:
    """Those of the PostgreSQL that all tests share."""
    server = Server(synced=False)
    server.start()
    yield Databases(server)
    server.remove()


@pytest.fixture(scope="session")
def _server_to_kill() -> Iterator[Server]:
    server = Server()
    yield server
    if not server.running:  # a server that was killed leaves things to its next start
        server.start()
    server.remove()


@pytest.fixture
def server(_server_to_kill: Server) -> Server:
    """A PostgreSQL to stop and kill, running; it may be left in any state."""
    if not _server_to_kill.running:
        _server_to_kill.start()
    return _server_to_kill


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """`place("store")` is the path or the URL of this test's store of that name."""
    places: Places
    if request.param == "sqlite":
        places = SqlitePlaces(tmp_path)
    else:
        places = PostgresPlaces(request.getfixturevalue("shared_databases"))
    yield places
    places.close()


@pytest.fixture
def postgres_url(shared_databases: Databases) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
    places = PostgresPlaces(shared_databases)
    yield places.empty()
    places.close()


@pytest.fixture
def open_memory(place: Places) -> Iterator[Callable[..., Memory]]:
    """Opens memories at `place("store")`, by words alone unless given a model.

    Its first argument is the name of another place, or a path. All are closed afterwards.
    """
    opened: list[Memory] = []

    def open_(where: Where = "store", **options: Any) -> Memory:
        options.setdefault("embedder", "none")
        found = place(where) if isinstance(where, str) and "://" not in where else where
        opened.append(Memory(found, **options))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """A memory that searches by words and by the meaning of `HashEmbedder`."""
    return open_memory(embedder=HashEmbedder())


@pytest.fixture(params=["quick", pytest.param("soak", marks=pytest.mark.soak)])
def repeat(request: pytest.FixtureRequest) -> Callable[..., int]:
    """`repeat(20)` is 20, and as often as the soak asks in the soak.

    `repeat(20, 8)` is 8 on a server, where things take longer, and a tenth of it in the soak.
    """
    names = request.fixturenames
    on_server = "place" in names and request.getfixturevalue("place").kind != "sqlite"

    def repeat(usual: int, usual_on_server: int | None = None) -> int:
        if on_server and usual_on_server is not None:
            return usual_on_server if request.param == "quick" else max(usual, SOAK // 10)
        return usual if request.param == "quick" else max(usual, SOAK)

    return repeat


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A plain `pytest` leaves the soak alone."""
    if _GIVEN or "soak" in str(config.getoption("-m")):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="run by `make soak` alone"))
