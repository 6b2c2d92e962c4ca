"""A process of its own for the crash tests: it works until it is killed, and says what it did.

Each line it prints is one step: `begin`, an outcome `ack`, and what it concerns. A line is
written with one system call after the call that it reports has returned, so that whoever reads
it knows what was acknowledged. Background sealing is set to come often and leases to be short,
so that kills fall into both.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from pathlib import Path

from scrubjay import Memory
from scrubjay.backends.sql import journal
from scrubjay.index import compact
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder

import scrubjay.worker  # isort: skip

USER = "ada"


def say(*parts: object) -> None:
    os.write(1, (" ".join(map(str, parts)) + "\n").encode())


def text_of(number: int) -> str:
    """A statement with a word of its own, and words it shares with its neighbours."""
    return (
        f"note kq{number:06d}z about topic{number % 7} and colour{number % 5} of day{number // 9}"
    )


def make_busy() -> None:
    """Seal after eight rows, let leases run out after half a second."""
    journal.SEAL_AT = 8
    compact.SMALLEST = 8
    scrubjay.worker.LEASE_S = 0.5


def open_store(where: str) -> Memory:
    """A directory's or a URL's."""
    synchronous = os.environ.get("CHILD_SYNCHRONOUS", "FULL")
    settings = load(embedder="none", synchronous=synchronous)
    return Memory(where, settings=settings, embedder=HashEmbedder(64))


def add(memory: Memory, first: int, threads: int) -> None:
    """Add one statement after another from several threads, without end."""
    numbers = itertools.count(first)

    def run() -> None:
        while True:
            number = next(numbers)
            say("begin", "add", number)
            receipt = memory.add(
                text_of(number), user_id=USER, session_id=f"s{number % 3}",
                idempotency_key=f"k{number}",
            )  # fmt: skip
            say("ack", "add", number, receipt.ids[0])

    for _ in range(threads - 1):
        threading.Thread(target=run, daemon=True).start()
    run()


def mixed(memory: Memory, first: int, seed: int) -> None:
    """Add, update and forget by turns."""
    chance = random.Random(seed)
    alive: list[str] = []
    for number in itertools.count(first):
        what = chance.random()
        if what < 0.55 or len(alive) < 3:
            say("begin", "add", number)
            alive.append(memory.add(text_of(number), user_id=USER).ids[0])
            say("ack", "add", number, alive[-1])
        elif what < 0.8:
            place = chance.randrange(len(alive))
            say("begin", "update", number, alive[place])
            new = memory.update(alive[place], text_of(number), user_id=USER).id
            say("ack", "update", number, alive[place], new)
            alive[place] = new
        else:
            gone = alive.pop(chance.randrange(len(alive)))
            say("begin", "forget", gone)
            memory.forget(memory_id=gone, user_id=USER)
            say("ack", "forget", gone)


def bring_in(memory: Memory, file: str) -> None:
    say("begin", "import")
    memory.import_(file, user_id=USER)
    say("ack", "import")
    memory.flush()
    say("end")


def race(memory: Memory, me: str, count: int) -> None:
    """Write for the same users as others do, in the others' order and against it."""
    chance = random.Random(me)
    for number in range(count):
        users = ["ada", "lin", "bo"] if int(me) % 2 else ["bo", "lin", "ada"]
        for user in users:
            texts = [
                f"writer {me} says w{me}n{number}p{part}z" for part in range(chance.randint(1, 3))
            ]
            ids = memory.add(texts, user_id=user, session_id=f"w{me}").ids
            say("ack", user, *ids)
            if number % 10 == 9:
                memory.update(ids[0], f"writer {me} says u{me}n{number}z instead", user_id=user)
            if number % 10 == 4:
                memory.delete(ids[-1], user_id=user)
                say("gone", user, ids[-1])
        memory.add(f"writer {me} tells all w{me}n{number}z", user_id=me, visibility="common")
        if number % 10 == 7:
            memory.forget(user_id="guest")
            memory.add([f"guest {me} {number}"] * 2, user_id="guest")
    say("end")


def work(memory: Memory) -> None:
    """Do everyone's background work until the other end of the pipe closes."""
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        memory.flush(1)
        stop.wait(0.02)
    memory.close()


def main() -> None:
    what, where, *rest = sys.argv[1:]
    make_busy()
    memory = open_store(where)
    say("ready")
    if what == "add":
        add(memory, int(rest[0]), int(rest[1]))
    elif what == "one":  # a fixed number, one thread, no background work: to be traced
        for number in range(int(rest[0])):
            memory.add(text_of(number), user_id=USER)
            say("ack", "add", number)
        memory.close()
    elif what == "mixed":
        mixed(memory, int(rest[0]), int(rest[1]))
    elif what == "race":
        race(memory, rest[0], int(rest[1]))
        memory.close()
    elif what == "work":
        work(memory)
    elif what == "import":
        bring_in(memory, rest[0])
    else:
        raise SystemExit(f"nothing is called {what}; {Path(__file__).name} knows add and others")


if __name__ == "__main__":
    main()
