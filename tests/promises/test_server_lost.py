"""Promise 1 where the store is a server: it is killed, stopped, gone, and ends connections.

The same open `Memory` goes on when the server is back, without being opened again. What was
acknowledged is there, once; a call whose outcome nobody knows says so, and may be repeated with
its key.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from promise_helpers import USER, Repeat, assert_found, contents, flushed, text_of

from places import Databases, PostgresPlaces
from postgres_server import Server
from scrubjay import Memory, errors
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder

Open = Callable[..., Memory]


@pytest.fixture
def places(server: Server) -> Iterator[PostgresPlaces]:
    """Databases on the server that may be killed."""
    places = PostgresPlaces(Databases(server))
    yield places
    if not server.running:
        server.start()
    places.close()


@pytest.fixture
def open_there(places: PostgresPlaces) -> Iterator[Open]:
    """Opens memories on that server, which wait for it as long as told."""
    opened: list[Memory] = []

    def open_(*, write_timeout_s: float = 20.0, model: bool = True) -> Memory:
        settings = load(embedder="none", write_timeout_s=write_timeout_s)
        embedder = HashEmbedder(64) if model else None
        opened.append(Memory(places(), settings=settings, embedder=embedder))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.close()


@dataclass
class Load:
    """Threads that add until told to stop, as a caller would: what failed is done again."""

    memory: Memory
    threads: int = 3
    keyed: bool = True
    acked: dict[int, str] = field(default_factory=dict)
    unsure: list[int] = field(default_factory=list)
    """Adds without a key that raised: written or not."""
    waits: list[float] = field(default_factory=list)
    unavailable: int = 0
    crashes: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._stop = threading.Event()
        self._running = [threading.Thread(target=self._run, args=(n,)) for n in range(self.threads)]
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._running:
            thread.join()
        if self.crashes:
            raise self.crashes[0]

    def _run(self, me: int) -> None:
        try:
            number = me
            while not self._stop.is_set():
                if self._add(number):
                    number += self.threads
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            self.crashes.append(exc)

    def _add(self, number: int) -> bool:
        """Whether to go on with the next number."""
        began = time.monotonic()
        key = f"k{number}" if self.keyed else None
        try:
            receipt = self.memory.add(
                text_of(number), user_id=USER, session_id=f"s{number % 3}", idempotency_key=key
            )
        except errors.StoreUnavailable:
            self.unavailable += 1
            if not self.keyed:
                self.unsure.append(number)
            return not self.keyed
        self.acked[number] = receipt.ids[0]
        self.waits.append(time.monotonic() - began)
        return True

    def wait_for(self, more: int) -> None:
        """Until so many more were acknowledged."""
        goal = len(self.acked) + more
        deadline = time.monotonic() + 60
        while len(self.acked) < goal and not self.crashes:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.005)


def assert_all_there(memory: Memory, load: Load) -> None:
    """What was acknowledged is there, once; what was not asked for is not."""
    there = contents(memory)
    assert len(there) == len(set(there)), "something is doubled"
    missing = {text_of(n) for n in load.acked} - set(there)
    assert not missing, f"{len(missing)} acknowledged turns are lost"
    assert set(there) <= {text_of(n) for n in [*load.acked, *load.unsure]}
    flushed(memory)
    stats = memory.stats(user_id=USER)
    assert stats["turns"] == stats["sources"] == stats["memories"] == len(there), (
        "a turn is doubled"
    )
    assert stats["vectors"] == len(there)
    for n in list(load.acked)[-20:]:
        assert memory.get(load.acked[n], user_id=USER).content == text_of(n)
    assert_found(memory, list(load.acked)[-10:])
    assert memory.doctor().problems == ()


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
def test_killed_in_mid_write(server: Server, open_there: Open, repeat: Repeat, keyed: bool) -> None:
    """SIGKILL to all of the server's processes, at random moments; nothing is lost or doubled."""
    chance = random.Random(404)
    memory = open_there()
    kills = min(repeat(4), 40)
    with Load(memory, keyed=keyed) as work:
        for _ in range(kills):
            work.wait_for(20)
            time.sleep(chance.uniform(0, 0.3))
            server.kill()
            time.sleep(chance.uniform(0, 0.3))
            server.start()
        work.wait_for(20)
    assert len(work.acked) >= 20 * (kills + 1)
    assert work.unavailable <= 3 * kills, "a call gave up although the server came back in time"
    assert_all_there(memory, work)


def test_killed_while_reading(server: Server, open_there: Open) -> None:
    """Reads begun while it is away wait; after it is back every read is whole."""
    memory = open_there()
    memory.add([text_of(n) for n in range(60)], user_id=USER, wait=True)
    for _ in range(3):
        server.kill()
        back = threading.Event()
        answers: list[object] = []

        def look(answers: list[object] = answers, back: threading.Event = back) -> None:
            try:
                answers.append(
                    [h.content for h in memory.search("kq000007z", user_id=USER, top_k=1)]
                )
                answers.append(memory.list(user_id=USER).total)
                answers.append(back.is_set())
            except errors.ScrubjayError as exc:
                answers.append(exc)

        thread = threading.Thread(target=look)
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive(), "a read answered without a server"
        back.set()
        server.start()
        thread.join(30)
        assert answers == [[text_of(7)], 60, True]


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
def test_stopped_for_three_seconds(server: Server, open_there: Open, keyed: bool) -> None:
    """A server that is restarted in order makes callers wait, and no call fail."""
    memory = open_there()
    failures: list[errors.ScrubjayError] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                memory.search("topic3", user_id=USER)
                memory.list(user_id=USER)
            except errors.ScrubjayError as exc:
                failures.append(exc)

    reader = threading.Thread(target=read)
    with Load(memory, keyed=keyed) as work:
        reader.start()
        try:
            work.wait_for(50)
            server.stop()
            time.sleep(3)
            server.start()
            work.wait_for(50)
        finally:
            stop.set()
            reader.join()
    assert work.unavailable == 0
    assert max(work.waits) > 2.5, "nobody had to wait, so nothing was shown"
    assert len(failures) <= 1, "a read begun while it was away failed"
    assert_all_there(memory, work)


def test_gone_for_good(server: Server, open_there: Open, places: PostgresPlaces) -> None:
    """StoreUnavailable from every verb, about when the time is over, and never the password."""
    memory = open_there(write_timeout_s=1.0)
    receipt = memory.add(text_of(1), user_id=USER, wait=True)
    url = places()
    server.stop()
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: memory.add(text_of(2), user_id=USER),
        "update": lambda: memory.update(receipt.ids[0], text_of(3), user_id=USER),
        "search": lambda: memory.search("topic1", user_id=USER),
        "list": lambda: memory.list(user_id=USER),
        "forget": lambda: memory.forget(user_id=USER),
        "open": lambda: Memory(url, settings=load(embedder="none", write_timeout_s=1.0)).close(),
    }
    for name, call in calls.items():
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable, match=r"try again|not known") as caught:
            call()
        took = time.monotonic() - began
        assert took < 4, f"{name} took {took:.1f} s, with a timeout of one"
        assert server.password not in str(caught.value), name
    assert isinstance(caught.value, errors.StoreError)
    server.start()
    assert contents(memory) == [text_of(1)]
    memory.add(text_of(2), user_id=USER)
    flushed(memory)
    assert_found(memory, [1, 2])


def test_ended_connections_are_replaced(
    server: Server, open_there: Open, places: PostgresPlaces
) -> None:
    """An administrator, a firewall or a proxy ends idle connections: the next call works."""
    memory = open_there()
    memory_id = memory.add(text_of(0), user_id=USER).ids[0]
    verbs: list[Callable[[int], object]] = [
        lambda n: memory.add(text_of(n), user_id=USER, idempotency_key=f"k{n}"),
        lambda n: memory.add(text_of(100 + n), user_id=USER),
        lambda _: memory.search("topic1", user_id=USER),
        lambda _: memory.list(user_id=USER, limit=1),
        lambda n: memory.update(memory_id, text_of(200 + n), user_id=USER),
        lambda n: memory.forget(user_id=USER, session_id=f"none {n}"),
        lambda _: memory.flush(20),
        lambda _: memory.doctor(),
        lambda _: memory.stats(),
    ]
    ended = 0
    for number, verb in enumerate(verbs * 2, 1):
        ended += server.terminate_connections(places.database())
        verb(number)
    assert ended >= len(verbs)
    flushed(memory)
    assert memory.doctor().problems == ()
    assert memory.stats(user_id=USER)["turns"] == 1 + 2 * 2 + 2


def test_ended_in_mid_write(server: Server, open_there: Open, places: PostgresPlaces) -> None:
    """Connections that are ended while they work: the same promise as for a killed server."""
    chance = random.Random(7)
    memory = open_there()
    ended = 0
    with Load(memory, keyed=False) as work:
        for _ in range(15):
            work.wait_for(10)
            time.sleep(chance.uniform(0, 0.02))
            ended += server.terminate_connections(places.database())
        work.wait_for(10)
    assert ended > 15
    assert_all_there(memory, work)


def test_nobody_answers() -> None:
    """A URL nobody answers at is told within the time, with what to do."""
    settings = load(embedder="none", write_timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(errors.StoreUnavailable) as caught:
        Memory("postgresql://ada:Zwiebelkuchen@127.0.0.1:1/memories", settings=settings)
    assert time.monotonic() - began < 5
    assert "Zwiebelkuchen" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
