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
from scrubjay.backends.sqlite import journal, segments
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
    journal.SEAL_AT = segments.SEAL_AT = 8
    compact.SMALLEST = 8
    scrubjay.worker.LEASE_S = 0.5


def open_store(path: str) -> Memory:
    synchronous = os.environ.get("CHILD_SYNCHRONOUS", "FULL")
    settings = load(embedder="none", synchronous=synchronous)
    return Memory(path, settings=settings, embedder=HashEmbedder(64))


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


def main() -> None:
    what, path, *rest = sys.argv[1:]
    make_busy()
    memory = open_store(path)
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
    elif what == "import":
        bring_in(memory, rest[0])
    else:
        raise SystemExit(f"nothing is called {what}; {Path(__file__).name} knows add and others")


if __name__ == "__main__":
    main()
