"""Promise 1 again, for the background: no outage and no odd answer of a model loses a vector."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from promise_helpers import USER, Open, assert_found, contents, flushed, text_of

from places import Places
from scrubjay import errors
from scrubjay.ports import Store
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import Fault, FaultyEmbedder, FaultyStore


def test_an_outage_loses_no_vector(open_memory: Open) -> None:
    """Jobs wait and are seen; reading goes on by words; afterwards all is there."""
    embedder = FaultyEmbedder(HashEmbedder(64))
    memory = open_memory(embedder=embedder)
    memory.add(text_of(0), user_id=USER, wait=True)
    embedder.down.set()
    receipts = [memory.add(text_of(n), user_id=USER) for n in range(1, 20)]
    assert all(r.status == "stored" for r in receipts)
    assert memory.flush(5) is False
    found = memory.search("kq000007z", user_id=USER)
    assert found[0].content == text_of(7)
    assert found.pending == 19
    assert any("words alone" in note for note in found.notes)
    assert memory.stats()["jobs_by_state"]["waiting"] > 0
    embedder.down.clear()
    assert memory.doctor(repair=True).sound
    flushed(memory)
    assert_found(memory, range(20))


@pytest.mark.parametrize("seed", range(4))
def test_a_moody_model_loses_no_vector(open_memory: Open, seed: int) -> None:
    """Outages, partial and wrong answers, strangers' errors, in any order."""
    embedder = FaultyEmbedder(
        HashEmbedder(64), script=[None, None], seed=seed, rate=0.4,
        kinds=("outage", "partial", "wrong", "crash"),
    )  # fmt: skip
    memory = open_memory(embedder=embedder)
    for number in range(40):
        memory.add(text_of(number), user_id=USER)
        if number % 3 == 0:
            memory.flush(1)
    deadline = time.monotonic() + 40
    while memory.stats(user_id=USER)["vectors"] < 40 and time.monotonic() < deadline:
        memory.flush(2)
        memory.doctor(repair=True)
    assert embedder.failures > 0
    assert memory.stats(user_id=USER)["vectors"] == 40
    embedder._rate = 0.0
    flushed(memory)
    assert_found(memory, range(40))


def test_a_refused_text_holds_up_no_other(open_memory: Open) -> None:
    """It stays visible among the dead jobs, and is still found by words."""
    embedder = FaultyEmbedder(HashEmbedder(64), rejects=lambda text: "kq000013z" in text)
    memory = open_memory(embedder=embedder)
    memory.add([text_of(n) for n in range(30)], user_id=USER)
    assert memory.flush(20) is False
    assert memory.stats(user_id=USER)["vectors"] == 29
    assert memory.stats()["jobs_by_state"]["dead"] == 1
    assert not memory.doctor().sound
    assert memory.search("kq000013z", user_id=USER)[0].content == text_of(13)
    assert_found(memory, [12, 14])


def test_a_stubborn_store_kills_no_worker(open_memory: Open, place: Places) -> None:
    """Errors of the store in the background are tried again, and no thread dies of them."""
    memory = open_memory(embedder=HashEmbedder(64))
    faulty: Store = FaultyStore(  # type: ignore[assignment]
        memory._parts.store, seed=3, rate=0.5, methods=("claim", "put_vectors", "complete", "fail"),
    )  # fmt: skip
    memory._parts.background._store = faulty  # type: ignore[attr-defined]
    for number in range(20):
        memory.add(text_of(number), user_id=USER)
    time.sleep(1)
    memory._parts.background._store = memory._parts.store  # type: ignore[attr-defined]
    place.change("UPDATE jobs SET lease_until = 0")
    flushed(memory)
    assert memory.stats(user_id=USER)["vectors"] == 20


def test_a_store_that_fails_while_the_model_loads(open_memory: Open) -> None:
    """A search goes on by words, and no thread dies with an error nobody hears."""
    memory = open_memory(embedder=HashEmbedder(64))
    memory._parts.embedding._store = FaultyStore(  # type: ignore[assignment]
        memory._parts.store,
        faults=[Fault("models", 1, errors.StoreBusy("busy; try again"))],
    )
    memory._parts.store.journal  # noqa: B018 - the store itself is sound
    found = memory.search("anything", user_id=USER)
    assert len(found) == 0
    assert any("words alone" in note for note in found.notes)


def test_the_clock_may_jump(open_memory: Open) -> None:
    """Order follows sequences, whatever the clock says."""
    from scrubjay.testing.faults import SimulatedClock

    clock = SimulatedClock(datetime(2026, 5, 1, tzinfo=UTC))
    memory = open_memory(clock=clock)
    for number, days in enumerate((0, 400, -30_000, 30_000, -1)):
        clock.advance(days=days)
        memory.add(text_of(number), user_id=USER, session_id="s")
    assert contents(memory) == [text_of(n) for n in (4, 3, 2, 1, 0)]
    assert memory.doctor().sound
