"""Cases from the field about writing: dup, conc, async, emb, len, crash, uni, imp."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from places import Places, times
from scrubjay import AsyncMemory, Memory
from scrubjay.errors import InvalidInput, NotFound
from scrubjay.testing.fakes import HashEmbedder


def active(memory: Memory, user: str) -> list[str]:
    return [m.id for m in memory.list(user_id=user, limit=10_000)]


def test_dup_01_the_same_fact_twice_is_one_memory(place: Places) -> None:
    text = "My greenhouse thermostat is set to 19 degrees."
    with Memory(place(), embedder=HashEmbedder()) as memory:
        first = memory.add(text, user_id="u_lin")
        second = memory.add(text, user_id="u_lin")
        assert second.status == "duplicate"
        assert second.ids == first.ids == tuple(active(memory, "u_lin"))
        found = memory.search("greenhouse thermostat temperature", user_id="u_lin")
        assert "19" in found[0].content
        events = [v.event for v in memory.history(first.ids[0], user_id="u_lin")]
        assert events == ["add", "repeat"]
        assert len(found[0].memory.sources) == 2


def test_dup_03_a_retried_add_writes_nothing_new(place: Places) -> None:
    with Memory(place(), embedder="none") as memory:
        receipts = [
            memory.add("Deploy window is Thursday 21:00.", user_id="u_bo", idempotency_key="k-7")
            for _ in range(5)
        ]
        assert len({r.ids for r in receipts}) == len({r.turn_ids for r in receipts}) == 1
        assert [r.status for r in receipts] == ["stored", *["replayed"] * 4]
        assert memory.stats(user_id="u_bo")["turns"] == len(active(memory, "u_bo")) == 1
        assert len(memory.history(receipts[0].ids[0], user_id="u_bo")) == 1


def _add(path: str, text: str) -> str:
    with Memory(path, embedder="none") as memory:
        return memory.add(text, user_id="u_kai").ids[0]


@pytest.mark.parametrize("way", ["threads", "async", "processes"])
def test_conc_01_parallel_adds_of_one_fact_leave_one_memory(place: Places, way: str) -> None:
    rounds = 2 if way == "processes" else times(place, 20, 8)
    for number in range(rounds):
        text = f"My bike lock code hint is 'river stone {number}'."
        if way == "processes":
            with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
                ids = set(pool.map(_add, [str(place())] * 8, [text] * 8))
        elif way == "threads":
            with Memory(place(), embedder="none") as memory, ThreadPoolExecutor(16) as threads:
                barrier = threading.Barrier(16)

                def add(_: int, text: str = text, m: Memory = memory) -> str:
                    barrier.wait()  # noqa: B023 - one barrier a round, used within it
                    return m.add(text, user_id="u_kai").ids[0]

                ids = set(threads.map(add, range(16)))
        else:

            async def gather(text: str = text) -> set[str]:
                async with AsyncMemory(place(), embedder="none") as memory:
                    adds = [memory.add(text, user_id="u_kai") for _ in range(16)]
                    return {receipt.ids[0] for receipt in await asyncio.gather(*adds)}

            ids = asyncio.run(gather())
        assert len(ids) == 1
    with Memory(place(), embedder="none") as memory:
        assert len(active(memory, "u_kai")) == rounds


def test_conc_03_racing_updates_make_one_line_of_versions(place: Places) -> None:
    teas = ["oolong", "sencha", "rooibos", "mint", "chai", "white", "assam", "hojicha"]
    with Memory(place(), embedder="none") as memory, ThreadPoolExecutor(8) as threads:
        first = memory.add("favourite tea: none yet", user_id="u_mo").ids[0]
        barrier = threading.Barrier(8)

        def update(tea: str) -> None:
            barrier.wait()
            memory.update(first, f"favourite tea: {tea}", user_id="u_mo")

        list(threads.map(update, teas))
        everything = memory.list(user_id="u_mo", states=None).items
        assert sum(m.state == "active" for m in everything) == 1
        chain = [v.memory for v in memory.history(first, user_id="u_mo")]
        assert [m.version for m in chain] == list(range(1, 10))
        assert [m.supersedes for m in chain[1:]] == [m.id for m in chain[:-1]]
        assert [m.superseded_by for m in chain[:-1]] == [m.id for m in chain[1:]]


def test_async_01_a_write_is_read_at_once_and_after_an_exit(place: Places) -> None:
    class Slow(HashEmbedder):
        def embed(self, texts, role):  # type: ignore[no-untyped-def]
            if role == "passage":
                time.sleep(1)
            return super().embed(texts, role)

    with Memory(place("a"), embedder=Slow()) as memory:
        receipt = memory.add("My parking bay is P-17.", user_id="u_as")
        assert receipt.pending == receipt.ids
        assert memory.search("parking bay", user_id="u_as")[0].id == receipt.ids[0]
        assert memory.flush(30)
        assert memory.search("parking bay", user_id="u_as").pending == 0
        memory.update(receipt.ids[0], "My parking bay is P-18.", user_id="u_as")
        memory.update(receipt.ids[0], "My parking bay is P-19.", user_id="u_as")
        assert "P-19" in memory.search("parking bay", user_id="u_as")[0].content

    script = (
        "import sys; from scrubjay import Memory\n"
        "Memory(sys.argv[1], embedder='none').add('My parking bay is P-17.', user_id='u_as')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(place("b"))], check=True, timeout=60)
    with Memory(place("b"), embedder="none") as memory:
        assert "P-17" in memory.search("parking bay", user_id="u_as")[0].content


def test_emb_01_another_model_is_noticed_and_never_mixed(place: Places) -> None:
    with Memory(place(), embedder=HashEmbedder(384, "stub-a")) as memory:
        memory.add("My canoe is called Heron.", user_id="u_dim")
        assert memory.flush(30)
    with Memory(place(), embedder=HashEmbedder(1024, "stub-b")) as memory:
        found = memory.search("canoe", user_id="u_dim")
        assert "Heron" in found[0].content
        assert any("stub-a" in note and "reindex" in note for note in found.notes)
        memory.add("My kayak is called Teal.", user_id="u_dim")
        memory.reindex()
        found = memory.search("canoe", user_id="u_dim", policy={"vector_weight": 1.0})
        assert "Heron" in found[0].content
        assert found.notes == ()
        assert memory.search("kayak", user_id="u_dim").pending == 0
    with Memory(place(), embedder=HashEmbedder(1024, "stub-c")) as memory:
        found = memory.search("canoe", user_id="u_dim", explain=True)
        assert any("stub-b" in note for note in found.notes)
        assert found.pending == 2
        assert all(hit.explanation and hit.explanation["meaning"] == 0 for hit in found)
    with (
        Memory(place(), embedder=HashEmbedder(64, "stub-b")) as memory,
    ):
        found = memory.search("canoe", user_id="u_dim")
        assert any("1024 dimensions" in note for note in found.notes)
        assert "Heron" in found[0].content


def test_emb_02_an_outage_loses_nothing_and_is_repaired(place: Places) -> None:
    class Failing(HashEmbedder):
        mode = "second"
        tried: dict[str, int] = {}  # noqa: RUF012 - one instance

        def embed(self, texts, role):  # type: ignore[no-untyped-def]
            for text in texts:
                if role == "passage":
                    self.tried[text] = self.tried.get(text, 0) + 1
                if self.mode == "down" or (self.mode == "second" and "fern" in text):
                    raise ConnectionError("stub")
            return super().embed(texts, role)

    stub = Failing()
    facts = ["My ferry card ends in 12.", "My hut key is under the fern.", "My rope is 40 m."]
    with Memory(place(), embedder=stub) as memory:
        receipt = memory.add(facts, user_id="u_out", wait=True)
        assert len(receipt.ids) == 3
        assert receipt.pending == (receipt.ids[1],)
        stub.mode = "down"
        assert "fern" in memory.search("fern", user_id="u_out")[0].content
        late = memory.add("My lamp is a Petzl.", user_id="u_out", wait=True)
        assert late.pending == late.ids
        assert memory.doctor().jobs["waiting"] >= 1
        stub.mode = "well"
        memory.doctor(repair=True)
        assert memory.flush(30)
        found = memory.search("hut key", user_id="u_out", policy={"vector_weight": 1.0})
        assert found.pending == 0
        assert "fern" in found[0].content
        assert max(stub.tried[fact] for fact in facts) <= 8


def _long_texts() -> list[tuple[str, str]]:
    chance = random.Random(5)
    log = [f"{i:06d} INFO request {i} served in {i % 97} ms" for i in range(2400)]
    for place, needle in ((0.01, "ALPHA-1"), (0.5, "BETA-2"), (0.99, "GAMMA-3")):
        log[int(place * len(log))] += f" needle {needle}"
    chinese = "今天的会议记录继续讨论预算和日程安排。" * 1800
    at = int(len(chinese) * 0.99)
    chinese = chinese[:at] + "暗号丁香-4。" + chinese[at:]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return [
        ("needle ALPHA-1", "\n".join(log)),
        ("needle BETA-2", "\n".join(log)),
        ("needle GAMMA-3", "\n".join(log)),
        ("暗号丁香-4", chinese),
        ("", "x" * 50_000),
        ("", "哈" * 10_000),
        ("", "".join(chance.choices(alphabet, k=100_000))),
    ]


def test_len_01_nothing_of_a_long_text_is_lost(place: Places) -> None:
    class Limited(HashEmbedder):
        longest = 0

        def embed(self, texts, role):  # type: ignore[no-untyped-def]
            self.longest = max(self.longest, *(len(text) for text in texts))
            return super().embed(texts, role)

    stub = Limited()
    with Memory(place(), embedder=stub) as memory:
        for needle, text in _long_texts():
            began = time.perf_counter()
            receipt = memory.add(text, user_id="u_ln")
            assert time.perf_counter() - began < 20  # a hang, not a speed: the benchmark has that
            assert len(receipt.turn_ids) == 1
            if needle:
                found = memory.search(needle, user_id="u_ln")
                assert needle.split()[-1] in found[0].content
                assert found[0].memory.sources[0].turn_id == receipt.turn_ids[0] or (
                    receipt.status == "duplicate"
                )
        memory.flush(60)
        assert stub.longest <= 600  # characters; the model's limit is 512 tokens
        block = memory.context("needle ALPHA-1", user_id="u_ln", max_tokens=300)
        assert block.tokens <= 300
        assert "ALPHA-1" in block.text
        gone = memory.forget(turn_id=receipt.turn_ids[0], user_id="u_ln")
        assert gone.complete
        assert not set(receipt.ids) & set(active(memory, "u_ln"))


_CRASHING = """
import sys, threading
from scrubjay import Memory
from scrubjay.testing.fakes import HashEmbedder
memory = Memory(sys.argv[1], embedder=HashEmbedder())
start = int(sys.argv[2])
for i in range(start, start + 100_000):
    receipt = memory.add(f"Crate {i} holds item CR-{i}", user_id="u_cr")
    sys.stdout.write(f"{i} {receipt.ids[0]}\\n"); sys.stdout.flush()
    if i % 7 == 3:
        memory.update(receipt.ids[0], f"Crate {i} now holds item CR-{i}", user_id="u_cr")
    if i % 50 == 49:
        memory.forget(user_id="u_gone"); memory.add("a passing guest", user_id="u_gone")
"""


def test_crash_01_every_acknowledged_memory_survives_a_kill(place: Places) -> None:
    chance = random.Random(11)
    acknowledged: dict[int, str] = {}
    for number in range(times(place, 8, 4)):
        child = subprocess.Popen(
            [sys.executable, "-c", _CRASHING, str(place()), str(number * 100_000)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(chance.uniform(0.05, 0.8))
        child.send_signal(signal.SIGKILL)
        for line in [first, *child.stdout.read().splitlines()]:
            if len(line.split()) == 2 and len(line.split()[1]) == 36:
                acknowledged[int(line.split()[0])] = line.split()[1]
        child.stdout.close()
        child.wait()
    assert len(acknowledged) > 20
    with Memory(place(), embedder=HashEmbedder()) as memory:
        assert memory.flush(120)
        stored = {m.id for m in memory.list(user_id="u_cr", states=None, limit=10_000)}
        assert set(acknowledged.values()) <= stored
        assert memory.doctor().problems == ()
        for i in chance.sample(sorted(acknowledged), 20):
            for weight in (0.0, 0.45):
                found = memory.search(f"CR-{i}", user_id="u_cr", policy={"vector_weight": weight})
                assert found[0].content.endswith(f"CR-{i}")


def test_uni_02_lone_surrogates_harm_nothing(place: Places, tmp_path: Path) -> None:
    texts = ["ok \ud83d cut", "\udc8f start", "good \ud83c\udf78 pair", "fine"]
    with Memory(place(), embedder=HashEmbedder()) as memory:
        receipt = memory.add(
            texts, user_id="u_sur", metadata={"tag \udcff": "in \udcff metadata"}, wait=True
        )
        assert len(receipt.memories) == 4
        assert receipt.notes
        contents = [m.content for m in receipt.memories]
        assert contents[2] == "good 🍸 pair"
        for record in receipt.memories:
            json.dumps(record.to_dict(), ensure_ascii=False).encode("utf-8")
        assert len(memory.search("start \ud83d", user_id="u_sur")) > 0
        memory.export(tmp_path / "out.jsonl", user_id="u_sur")
        (tmp_path / "out.jsonl").read_text("utf-8")
        with pytest.raises(ValueError, match="surrogate"):
            memory.add("x", user_id="u\ud83d")
        with pytest.raises(InvalidInput):
            memory.search("x", user_id="\udc8f")
        with pytest.raises(NotFound):
            memory.get("\ud83d", user_id="u_sur")


def test_imp_01_an_old_chat_keeps_its_own_times(place: Places) -> None:
    """The event's own date ("明天") is read by the time rules, which are not part of writing."""
    turns = [
        {
            "role": "user",
            "content": "今天决定用蓝色方案。",
            "timestamp": "2024-07-02T10:00:00+08:00",
        },
        {"role": "user", "content": "打算明天去取快递。", "timestamp": "2024-07-03T23:30:00+08:00"},
    ]
    with Memory(place(), embedder="none") as memory:
        for _ in range(2):
            memory.add(
                turns, user_id="u_imp", idempotency_key="old-chat", time_zone="Asia/Shanghai"
            )
            july = memory.search(
                "决定 打算", user_id="u_imp", since="2024-07-01", until="2024-07-31",
                time_zone="Asia/Shanghai", now="2026-03-10T09:00:00+08:00",
            )  # fmt: skip
            assert len(july) == 2
            assert not memory.search("决定 打算", user_id="u_imp", since="2026-03-01")
            times = {m.content[:2]: m.occurred_at.isoformat() for m in memory.list(user_id="u_imp")}
            assert times == {
                "今天": "2024-07-02T02:00:00+00:00",
                "打算": "2024-07-03T15:30:00+00:00",
            }
        assert all(m.recorded_at.year >= 2026 for m in memory.list(user_id="u_imp"))
