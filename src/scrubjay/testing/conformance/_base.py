"""What a backend's author brings, and what all suites share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from scrubjay.ports import Store

T = TypeVar("T")
Reopen = Callable[[], Store]


class StoreSuite:
    """Base of the suites. Override `store`, and `reopen` where the data outlives a handle."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """An empty store, closed afterwards."""
        raise NotImplementedError("override the fixture `store`")

    @pytest.fixture
    def reopen(self) -> Reopen:
        """Opens one more handle on the store's data; the fixture closes it."""
        pytest.skip("this backend brings no `reopen`")

    @pytest.fixture
    def stored_bytes(self) -> Callable[[], bytes]:
        """Every byte the store keeps on disk, to look for what must be gone."""
        pytest.skip("this backend brings no `stored_bytes`")


def together(count: int, work: Callable[[int], T]) -> list[T | BaseException]:
    """Run `work(0..count-1)` in threads that begin at the same moment; results or errors."""
    outcomes: list[T | BaseException] = [RuntimeError("never ran")] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            outcomes[number] = work(number)
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            outcomes[number] = exc

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def done(outcomes: list[T | BaseException]) -> list[T]:
    """The results; the first error is raised."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found
