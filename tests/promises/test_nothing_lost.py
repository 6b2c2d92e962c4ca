"""Promise 1: nothing acknowledged is lost, and nothing is doubled.

Writers are killed with SIGKILL, the power is cut under them (a file layer drops what was not
synced), the disk fills up and turns read-only.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from promise_helpers import (
    CHILD,
    USER,
    Heard,
    Open,
    Repeat,
    assert_found,
    contents,
    flushed,
    reopened,
    run_child,
    text_of,
)

from places import Places
from scrubjay import Memory, errors
from scrubjay.ports import Store
from scrubjay.testing.fakes import HashEmbedder
from scrubjay.testing.faults import Fault, FaultyStore

_ITS_FILES = pytest.mark.embedded_only(
    "a server keeps its files, and says StoreFull in its own test"
)


def test_killed_while_adding(place: Places, repeat: Repeat) -> None:
    """Killed at random moments, reopened each time: every acknowledged turn is there, once."""
    chance = random.Random(20260101)
    heard = Heard()
    first = 0
    for number in range(repeat(20, 8)):
        if number % 25 == 24:  # the soak begins anew now and then, to stay quick
            place.remove()
            heard, first = Heard(), 0
        code, said = run_child("add", place(), first, 3, kill_after_s=chance.uniform(0, 0.5))
        assert code == -signal.SIGKILL
        before = set(heard.acked)
        heard.read(said)
        with reopened(place()) as memory:
            there = contents(memory)
            assert len(there) == len(set(there)), "something is doubled"
            missing = {text_of(n) for n in heard.acked} - set(there)
            assert not missing, f"{len(missing)} acknowledged turns are lost"
            assert set(there) <= {text_of(n) for n in heard.began}
            flushed(memory)
            new = sorted(set(heard.acked) - before)
            older = chance.sample(sorted(before), min(10, len(before)))
            assert_found(memory, [*new[:5], *new[-25:], *older])
            # What was begun and not acknowledged is asked for again, with its key: there once.
            for n in sorted(heard.began - set(heard.acked)):
                receipt = memory.add(
                    text_of(n), user_id=USER, session_id=f"s{n % 3}", idempotency_key=f"k{n}"
                )
                heard.acked[n] = receipt.ids[0]
                assert (receipt.status == "replayed") == (text_of(n) in there)
            assert memory.doctor().problems == ()
            first = max(heard.began, default=-1) + 1
    with reopened(place()) as memory:
        assert sorted(contents(memory)) == sorted(text_of(n) for n in heard.acked)
        for n, memory_id in heard.acked.items():
            assert memory.get(memory_id, user_id=USER).content == text_of(n)


def test_killed_while_changing_and_forgetting(place: Places, repeat: Repeat) -> None:
    """Adds, updates and forgetting, each done or not done, never halfway."""
    chance = random.Random(77)
    first = 0
    alive: dict[str, int] = {}
    gone: set[str] = set()
    words: dict[int, str] = {}
    for number in range(repeat(8, 5)):
        if number % 25 == 24:
            place.remove()
            alive, gone, words, first = {}, set(), {}, 0
        code, said = run_child(
            "mixed", place(), first, number, kill_after_s=chance.uniform(0.1, 0.7)
        )
        assert code == -signal.SIGKILL
        heard = Heard()
        heard.read(said)
        open_step: list[str] = []
        for what, *rest in heard.lines:
            if what == "begin":
                open_step = rest
                first = max(first, int(rest[1]) + 1 if rest[0] != "forget" else first)
            if what != "ack":
                continue
            open_step = []
            if rest[0] == "add":
                alive[rest[2]] = int(rest[1])
            elif rest[0] == "update":
                del alive[rest[2]]
                alive[rest[3]] = int(rest[1])
            else:
                words[alive[rest[1]]] = rest[1]
                del alive[rest[1]]
                gone.add(rest[1])
        with reopened(place()) as memory:
            flushed(memory)
            assert memory.doctor().problems == ()
            there = {r.id: r for r in memory.list(user_id=USER, limit=10_000)}
            for memory_id, n in list(alive.items()):
                if memory_id in there:
                    assert there[memory_id].content == text_of(n)
                    continue
                # Only the step under way may have come to its end unheard.
                assert memory_id in open_step, f"the acknowledged {memory_id} is gone"
                del alive[memory_id]
            assert not gone & set(there), "something forgotten is back"
            assert len(set(there) - set(alive)) <= 1
            alive |= {i: _number_in(r.content) for i, r in there.items() if i not in alive}
            for n in list(words)[-20:]:
                found = memory.search(f"kq{n:06d}z", user_id=USER, include_history=True)
                assert f"kq{n:06d}z" not in " ".join(h.content for h in found)
            for n in list(alive.values())[-20:]:
                assert memory.search(f"kq{n:06d}z", user_id=USER)[0].content == text_of(n)
            found_versions = memory.list(user_id=USER, states=None, limit=10_000)
            assert len({r.id for r in found_versions}) == len(found_versions)


def _number_in(content: str) -> int:
    match = re.search(r"kq(\d+)z", content)
    assert match
    return int(match[1])


def test_killed_while_importing(place: Places, tmp_path: Path, repeat: Repeat) -> None:
    """The next import takes up what the killed one left, and doubles nothing."""
    with Memory(place("other"), embedder="none") as memory:
        memory.add([text_of(n) for n in range(1_400)], user_id=USER, session_id="s")
        memory.export(tmp_path / "export.jsonl", user_id=USER)
        expected = contents(memory)
    chance = random.Random(5)
    for _ in range(repeat(4, 1)):
        for _ in range(2):
            run_child(
                "import", place(), tmp_path / "export.jsonl", kill_after_s=chance.uniform(0.05, 1.2)
            )
        with reopened(place()) as memory:
            assert memory.doctor().problems == ()
            memory.import_(tmp_path / "export.jsonl", user_id=USER)
            assert contents(memory) == expected
            flushed(memory)
            assert_found(memory, chance.sample(range(1_400), 20))
            assert memory.doctor().problems == ()
            stats = memory.stats(user_id=USER)
            assert (stats["turns"], stats["vectors"]) == (1_400, 1_400)
        place.remove()


# -- the disk under the embedded store ------------------------------------------------------


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_wal_is_synced_before_each_acknowledgement(tmp_path: Path) -> None:
    """Seen in the system calls: no acknowledgement follows a write to the WAL without a sync."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "64", "-o", str(trace), "-e",
               "trace=pwrite64,write,fsync,fdatasync,sync_file_range",
               sys.executable, str(CHILD), "one", str(tmp_path / "store"), "40"]  # fmt: skip
    # Without a worker: what that writes is not acknowledged, and so need not be synced.
    env = {**os.environ, "SCRUBJAY_BACKGROUND": "false"}
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env=env)
    if done.returncode != 0 and b"ptrace" in done.stderr.lower():
        pytest.skip("this machine does not allow tracing")
    assert done.returncode == 0, done.stderr.decode()[-500:]
    written = unsynced = 0
    acknowledged = 0
    for line in trace.read_text(errors="replace").splitlines():
        if "scrubjay.db-wal>" in line and "pwrite64(" in line:
            written += 1
            unsynced += 1
        elif "scrubjay.db-wal>" in line and re.search(r"f(data)?sync\(", line):
            unsynced = 0
        elif "write(1" in line and '"ack ' in line:
            acknowledged += 1
            assert written, f"acknowledgement {acknowledged} came without a write"
            assert not unsynced, f"acknowledgement {acknowledged} came before the sync"
            written = 0
    assert acknowledged == 40


@pytest.fixture(scope="session")
def power_cut(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file layer that drops what was not synced, compiled."""
    if shutil.which("gcc") is None or not sys.platform.startswith("linux"):
        pytest.skip("needs gcc on Linux")
    library = tmp_path_factory.mktemp("shim") / "unsynced.so"
    source = CHILD.with_name("unsynced.c")
    built = subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl", "-lpthread"],
        capture_output=True, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"gcc cannot build the file layer: {built.stderr.decode()[-200:]}")
    return str(library)


def _after_power_cut(path: Path, said: str) -> tuple[Heard, list[str]]:
    """(what was heard, what is there) after the power came back."""
    heard = Heard()
    heard.read(said)
    with reopened(path) as memory:
        assert memory.doctor().problems == ()
        return heard, contents(memory)


@pytest.mark.parametrize("lost", ["all", "some"])
def test_the_power_is_cut(tmp_path: Path, power_cut: str, repeat: Repeat, lost: str) -> None:
    """Whatever of the unsynced blocks is lost, what was acknowledged is there."""
    chance = random.Random(f"power {lost}")
    heard_any = 0
    for number in range(repeat(8)):
        store = tmp_path / f"store{number}"
        env = {
            "LD_PRELOAD": power_cut,
            "UNSYNCED_AT": str(chance.randrange(1, 40) if number == 0 else chance.randrange(9_000)),
            "UNSYNCED_SEED": str(0 if lost == "all" else chance.randrange(1, 1 << 30)),
        }
        code, said = run_child("add", store, 0, 2, env=env)
        assert code == -signal.SIGKILL
        heard, there = _after_power_cut(store, said)
        assert {text_of(n) for n in heard.acked} <= set(there)
        assert set(there) <= {text_of(n) for n in heard.began}
        assert len(there) == len(set(there))
        heard_any += len(heard.acked)
        shutil.rmtree(store)
    assert heard_any > 50, "the test cut the power too early to say anything"


def test_the_power_cut_would_show_a_missing_sync(tmp_path: Path, power_cut: str) -> None:
    """The same cut, with the setting that syncs later, loses something: the layer bites."""
    lost = 0
    for at in (900, 1_100, 1_300):
        store = tmp_path / f"store{at}"
        env = {"LD_PRELOAD": power_cut, "UNSYNCED_AT": str(at), "CHILD_SYNCHRONOUS": "NORMAL"}
        _, said = run_child("add", store, 0, 1, env=env)
        heard, there = _after_power_cut(store, said)
        lost += len({text_of(n) for n in heard.acked} - set(there))
        assert len(there) == len(set(there))
    assert lost > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("needs to be root, to mount a small disk")
    yield path
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


@_ITS_FILES
def test_the_disk_is_full(small_disk: Path, open_memory: Open) -> None:
    """StoreFull, with nothing half-written; reading goes on; with space again, all goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 700_000)
    memory = open_memory(small_disk / "store", embedder=HashEmbedder(64))
    acked: list[int] = []
    refused = 0
    for number in range(4_000):
        try:
            memory.add(text_of(number), user_id=USER)
            acked.append(number)
        except errors.StoreFull:
            refused += 1
            if refused == 5:
                break
    assert refused, "two megabytes held everything"
    assert acked
    assert set(contents(memory)) == {text_of(n) for n in acked}
    assert memory.search(f"kq{acked[-1]:06d}z", user_id=USER)[0].content == text_of(acked[-1])
    with pytest.raises(errors.StoreFull, match="space"):
        memory.add(["too", "much " * 100_000], user_id=USER)
    assert len(contents(memory)) == len(acked)
    ballast.unlink()
    memory.add("there is room again", user_id=USER)
    flushed(memory)
    assert_found(memory, acked[-10:])
    assert memory.doctor().problems == ()
    memory.close()
    with reopened(small_disk / "store") as memory:
        assert set(contents(memory)) == {text_of(n) for n in acked} | {"there is room again"}


def test_a_file_may_not_grow(tmp_path: Path) -> None:
    """The same under a limit of the process, where the system says it in another way."""
    script = textwrap.dedent("""
        import resource, signal, sys
        from scrubjay import Memory, errors
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        acked = 0
        with Memory(sys.argv[1], embedder="none") as memory:
            try:
                for number in range(5_000):
                    memory.add(f"thing {number} " + "x" * 300, user_id="ada")
                    acked += 1
            except errors.StoreError as exc:
                print(type(exc).__name__)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            assert memory.list(user_id="ada").total == acked, (memory.list(user_id="ada").total, acked)
            memory.add("goes on", user_id="ada")
            assert memory.doctor().sound
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store")],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.strip() in ("StoreFull", "StoreError")


@_ITS_FILES
def test_a_read_only_directory(tmp_path: Path, open_memory: Open) -> None:
    """StoreReadOnly for who may not write, in words that help; nothing is changed."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root ignores modes, and there is no setpriv")
    with open_memory() as memory:
        memory.add("before", user_id=USER)
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    for file in (tmp_path / "store").iterdir():
        file.chmod(0o444)
    (tmp_path / "store").chmod(0o555)
    (tmp_path / "empty").mkdir(mode=0o555)
    script = textwrap.dedent("""
        import sys
        from scrubjay import Memory, errors
        for path in sys.argv[1:]:
            try:
                with Memory(path, embedder="none") as memory:
                    memory.add("after", user_id="ada")
            except errors.StoreReadOnly as exc:
                print("refused", str(exc).count(path))
    """)
    command = [sys.executable, "-c", script,
               *[str(tmp_path / n) for n in ("store", "empty", "new/store")]]  # fmt: skip
    tmp_path.chmod(0o555)
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    try:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
        # The settings file of the tests stands where the other user may not look.
        environment.pop("SCRUBJAY_CONFIG", None)
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=60
        )
    finally:
        tmp_path.chmod(0o755)
        (tmp_path / "store").chmod(0o755)
    assert "Permission" not in done.stderr, done.stderr[-800:]
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout.splitlines() == ["refused 1"] * 3
    for file in (tmp_path / "store").iterdir():
        file.chmod(0o644)
    with open_memory() as memory:
        assert contents(memory) == ["before"]


def test_an_injected_error_writes_nothing(open_memory: Open) -> None:
    """Whatever the store raises in an add, the next one works and nothing is halfway there."""
    memory = open_memory()
    store: Store = FaultyStore(  # type: ignore[assignment]
        memory._parts.store,
        faults=[Fault("journal", 2, errors.StoreFull("no space; free some"))],
    )
    object.__setattr__(memory._parts, "store", store)
    memory.add("one", user_id=USER)
    with pytest.raises(errors.StoreFull):
        memory.add("two", user_id=USER)
    memory.add("three", user_id=USER)
    assert contents(memory) == ["three", "one"]


def test_a_lost_acknowledgement_is_not_a_lost_write(open_memory: Open) -> None:
    """The caller tries again with the same key and doubles nothing."""
    memory = open_memory()
    store: Store = FaultyStore(  # type: ignore[assignment]
        memory._parts.store,
        faults=[Fault("journal", 1, errors.StoreBusy("cut off; try again"), after=True)],
    )
    object.__setattr__(memory._parts, "store", store)
    with pytest.raises(errors.StoreBusy):
        memory.add("only once", user_id=USER, idempotency_key="k")
    receipt = memory.add("only once", user_id=USER, idempotency_key="k")
    assert receipt.status == "replayed"
    assert memory.stats(user_id=USER)["turns"] == 1
