"""What all tests share: nothing may leak, and how hard hypothesis looks.

A thread or an open store file that outlives its test fails it. With `SCRUBJAY_SOAK`, set to 1
or to a number of repetitions, the tests marked `soak` repeat what others do a few times.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    """Opens memories on `tmp_path/"store"` (or `path=`), by words alone unless given a model.

    All are closed afterwards.
    """
    opened: list[Memory] = []

    def open_(path: Path | None = None, **options: Any) -> Memory:
        options.setdefault("embedder", "none")
        opened.append(Memory(path or tmp_path / "store", **options))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """A memory that searches by words and by the meaning of `HashEmbedder`."""
    return open_memory(embedder=HashEmbedder())


@pytest.fixture(params=["quick", pytest.param("soak", marks=pytest.mark.soak)])
def repeat(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """`repeat(20)` is 20, and as often as the soak asks in the soak."""
    return (lambda usual: usual) if request.param == "quick" else (lambda usual: max(usual, SOAK))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A plain `pytest` leaves the soak alone."""
    if _GIVEN or "soak" in str(config.getoption("-m")):
        return
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.skip(reason="run by `make soak` alone"))
