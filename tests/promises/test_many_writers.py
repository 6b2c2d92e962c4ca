"""Promise 1 again, where many write at once: threads, processes, forked children, async tasks."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import textwrap
import threading

import pytest
from promise_helpers import CHILD, USER, Open, assert_found, contents, flushed, reopened, text_of

from places import Places, times
from scrubjay import AsyncMemory
from scrubjay.testing.fakes import HashEmbedder


@pytest.mark.parametrize("with_model", [False, True], ids=["words", "vectors"])
def test_64_threads_add_10_000(open_memory: Open, place: Places, with_model: bool) -> None:
    """None lost, none doubled, each with its own outcome. (On a server it is a fifth of them.)"""
    memory = open_memory(embedder=HashEmbedder(32) if with_model else "none")
    threads, each = 64, times(place, 157, 32)
    ids: list[list[str]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for number in range(mine * each, (mine + 1) * each):
                receipt = memory.add(text_of(number), user_id=USER, session_id=f"s{mine}")
                assert receipt.status == "stored"
                ids[mine] += receipt.ids
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            failures.append(exc)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]
    total = threads * each
    assert total > times(place, 10_000, 2_000)
    assert len({i for mine in ids for i in mine}) == total
    there = contents(memory)
    assert len(there) == total
    assert set(there) == {text_of(n) for n in range(total)}
    flushed(memory)
    stats = memory.stats(user_id=USER)
    assert stats["turns"] == stats["memories"] == stats["sources"] == total
    if with_model:
        assert stats["vectors"] == total
        assert_found(memory, random.Random(1).sample(range(total), 30))
    assert memory.doctor().problems == ()


def test_300_threads_at_the_same_moment(open_memory: Open) -> None:
    """More writers than fit into one group: each gets its own outcome."""
    memory = open_memory()
    outcomes: dict[int, str] = {}
    start = threading.Barrier(300)

    def work(number: int) -> None:
        start.wait()
        outcomes[number] = memory.add(text_of(number), user_id=USER).ids[0]

    workers = [threading.Thread(target=work, args=(n,)) for n in range(300)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(outcomes.values())) == 300
    for number, memory_id in outcomes.items():
        assert memory.get(memory_id, user_id=USER).content == text_of(number)


def test_one_key_from_64_threads(open_memory: Open) -> None:
    """One of them writes, all get its outcome."""
    memory = open_memory()
    outcomes: list[tuple[str, tuple[str, ...]]] = []

    def work() -> None:
        receipt = memory.add("exactly once", user_id=USER, idempotency_key="k")
        outcomes.append((receipt.status, receipt.ids))

    workers = [threading.Thread(target=work) for _ in range(64)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(outcomes) == 64
    assert sum(status == "stored" for status, _ in outcomes) == 1
    assert len({ids for _, ids in outcomes}) == 1
    assert memory.stats(user_id=USER)["turns"] == 1


def test_two_processes_add_for_one_user(place: Places) -> None:
    """Both to the end, none lost, none doubled, all found by meaning."""
    script = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        import child
        child.make_busy()
        with child.open_store(sys.argv[2]) as memory:
            for number in range(int(sys.argv[3]), int(sys.argv[3]) + 300):
                memory.add(child.text_of(number), user_id="ada", session_id="shared")
            memory.flush()
    """)
    command = [sys.executable, "-c", script, str(CHILD.parent), str(place())]
    children = [
        subprocess.Popen([*command, str(first)], stderr=subprocess.PIPE) for first in (0, 300)
    ]
    errors_said = [child.communicate(timeout=120)[1].decode() for child in children]
    assert [child.returncode for child in children] == [0, 0], errors_said
    with reopened(place()) as memory:
        assert sorted(contents(memory)) == sorted(text_of(n) for n in range(600))
        flushed(memory)
        assert_found(memory, random.Random(2).sample(range(600), 40))
        assert memory.stats(user_id=USER)["vectors"] == 600
        assert memory.doctor().problems == ()


def test_two_workers_and_four_writers_race(place: Places) -> None:
    """Processes that write for the same users in opposite orders, and others that embed and seal:
    no call fails, what each writer was told is there in its order, and all of it is embedded."""
    where = str(place())
    reopened(where).close()  # the store is there before they start
    command = [sys.executable, str(CHILD)]
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen([*command, "work", where], stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(2)
    ]
    env = {**os.environ, "SCRUBJAY_BACKGROUND": "false"}
    writers = [
        subprocess.Popen([*command, "race", where, str(n), "40"], stdout=pipe, stderr=pipe, env=env)
        for n in range(4)
    ]
    said = [writer.communicate(timeout=300) for writer in writers]
    told = [worker.communicate(timeout=120)[1].decode() for worker in workers]
    assert [p.returncode for p in writers] == [0] * 4, [err.decode()[-2_000:] for _, err in said]
    assert [p.returncode for p in workers] == [0] * 2, told
    with reopened(where) as memory:
        flushed(memory)
        for writer, (out, _) in enumerate(said):
            lines = [line.split() for line in out.decode().splitlines()]
            assert lines[-1] == ["end"]
            for user in ("ada", "lin", "bo"):
                gone = {line[2] for line in lines if line[:2] == ["gone", user]}
                acked = [i for line in lines if line[:2] == ["ack", user] for i in line[2:]]
                there = memory.list(user_id=user, session_id=f"w{writer}", states=None, limit=1_000)
                first = [r.id for r in reversed(there.items) if r.version == 1]
                assert first == [i for i in acked if i not in gone]
        stats = memory.stats()
        assert stats["vectors"] == stats["memories"] > 1_000
        assert stats["jobs_by_state"]["dead"] == 0
        assert memory.doctor().problems == ()


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_many_open_an_empty_place_at_once(place: Places, how: str) -> None:
    """One of them makes the store, the others wait for it; all of them write."""
    count = 8 if how == "threads" else 4
    where = place.empty()
    if how == "processes":
        command = [sys.executable, str(CHILD), "one", str(where), "3"]
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(count)
        ]
        outcomes = [child.communicate(timeout=120) for child in children]
        assert all(child.returncode == 0 for child in children), outcomes
    else:
        start = threading.Barrier(count)
        failures: list[BaseException] = []

        def work() -> None:
            start.wait()
            try:
                with reopened(where) as memory:
                    for number in range(3):
                        memory.add(text_of(number), user_id=USER)
            except BaseException as exc:  # noqa: BLE001 - handed to the test
                failures.append(exc)

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
    with reopened(place()) as memory:
        assert sorted(contents(memory)) == [text_of(n) for n in range(3)]
        assert memory.stats(user_id=USER)["turns"] == 3 * count
        assert memory.doctor().problems == ()


_FORKS = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import child
from scrubjay.testing.fakes import HashEmbedder

class Slow(HashEmbedder):
    def embed(self, texts, role):
        time.sleep(0.05)
        return super().embed(texts, role)

memory = child.Memory(sys.argv[2], settings=child.load(embedder="none", model_wait_s=2.0),
                      embedder=Slow(64))
stop = threading.Event()
def keep_adding():
    n = 1_000
    while not stop.is_set():
        memory.add(child.text_of(n), user_id="ada")
        memory.search(f"kq{n:06d}z", user_id="ada")
        n += 1
if sys.argv[3] == "busy":  # forked while threads hold locks and the model is being loaded
    threading.Thread(target=keep_adding, daemon=True).start()
children = []
for first in range(0, 40, 10):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for number in range(first, first + 10):
                memory.add(child.text_of(number), user_id="ada")
                found = memory.search(f"kq{number:06d}z", user_id="ada", top_k=1)
                assert found[0].content == child.text_of(number)
            assert memory.flush(30), "the child's flush did not end"
            code = 0
        finally:
            memory.close()
            os._exit(code)
    children.append(pid)
    time.sleep(0.03)
codes = []
for pid in children:
    deadline = time.monotonic() + 45
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            codes.append(os.waitstatus_to_exitcode(status))
            break
        time.sleep(0.02)
    else:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        codes.append("hung")
stop.set()
memory.add("the parent goes on", user_id="ada")
memory.flush(8)
print(codes)
memory.close()
"""


@pytest.mark.parametrize("how", ["quiet", "busy"])
def test_forked_children_write_too(place: Places, how: str) -> None:
    """A memory opened before the fork works in the children and in the parent."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKS, str(CHILD.parent)]
    done = subprocess.run(
        [*command, str(place()), how],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[0, 0, 0, 0]", done.stderr[-2_000:]
    with reopened(place()) as memory:
        there = contents(memory)
        assert {text_of(n) for n in range(40)} | {"the parent goes on"} <= set(there)
        assert len(there) == len(set(there))
        assert memory.doctor().problems == ()


def test_gathered_adds(place: Places) -> None:
    """The async verbs, many at once."""

    async def main() -> None:
        async with AsyncMemory(place(), embedder=HashEmbedder(64)) as memory:
            receipts = await asyncio.gather(
                *(memory.add(text_of(n), user_id=USER) for n in range(200))
            )
            assert len({r.ids for r in receipts}) == 200
            found = await asyncio.gather(
                *(memory.search(f"kq{n:06d}z", user_id=USER, top_k=1) for n in range(0, 200, 10))
            )
            assert [f[0].content for f in found] == [text_of(n) for n in range(0, 200, 10)]

    asyncio.run(main())
