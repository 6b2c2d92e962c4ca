"""The store's conformance suite, on each kind of store.

`tests/conftest.py` says which there are. What one of them has of its own is tested beside this
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from places import Places, Where
from scrubjay.guard.crypt import PlainCodec
from scrubjay.ports import Store
from scrubjay.testing.conformance import store as suite


def _sqlite(where: Where) -> Store:
    from scrubjay.backends.sqlite import SqliteStore

    return SqliteStore(Path(where), PlainCodec(), write_timeout_s=4.0)


def _postgres(where: Where) -> Store:
    from scrubjay.backends.postgres import PostgresStore

    return PostgresStore(str(where), PlainCodec(), write_timeout_s=4.0)


MAKERS: dict[str, Callable[[Where], Store]] = {"sqlite": _sqlite, "postgres": _postgres}


class Brings:
    """The fixtures of the suites."""

    @pytest.fixture
    def make(self, place: Places) -> Iterator[Callable[[], Store]]:
        opened: list[Store] = []

        def make() -> Store:
            opened.append(MAKERS[place.kind](place()))
            return opened[-1]

        yield make
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, make: Callable[[], Store]) -> Store:
        return make()

    @pytest.fixture
    def reopen(self, store: Store, make: Callable[[], Store]) -> Callable[[], Store]:
        del store
        return make

    @pytest.fixture
    def stored_bytes(self, place: Places) -> Callable[[], bytes]:
        return place.every_byte


class TestJournal(Brings, suite.StoreJournal): ...


class TestDedup(Brings, suite.StoreDedup): ...


class TestRequests(Brings, suite.StoreRequests): ...


class TestVersions(Brings, suite.StoreVersions): ...


class TestScope(Brings, suite.StoreScope): ...


class TestSnapshot(Brings, suite.StoreSnapshot): ...


class TestCriteria(Brings, suite.StoreCriteria): ...


class TestErase(Brings, suite.StoreErase): ...


class TestJobs(Brings, suite.StoreJobs): ...


class TestSegments(Brings, suite.StoreSegments): ...


class TestModels(Brings, suite.StoreModels): ...


class TestImport(Brings, suite.StoreImport): ...


class TestBackup(Brings, suite.StoreBackup): ...


class TestUpkeep(Brings, suite.StoreUpkeep): ...


def test_every_suite_is_run() -> None:
    """A suite that is added to the package is run here too."""
    named = {name for name in suite.__all__ if name != "StoreSuite"}
    run = {
        base.__name__
        for value in globals().values()
        if isinstance(value, type)
        for base in value.__mro__
    }
    assert named <= run
