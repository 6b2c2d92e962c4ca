"""The measurements themselves, by part."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrubjay import Memory
from scrubjay.evals.bench import Figure, data
from scrubjay.evals.bench.baselines import BareInsert, BareVectors, BareWords, timed_ms
from scrubjay.evals.score import percentile
from scrubjay.settings import load as load_settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_QUESTIONS = 200
ADDS = 300
_BATCH = 1_000


@dataclass(slots=True)
class Load:
    """The texts, questions and vectors of one size."""

    name: str
    texts: list[str]
    rows: NDArray[np.float32]
    questions: list[str]
    asked: NDArray[np.float32]
    users: int
    prefix: str = "user"

    def user(self, number: int) -> str:
        """The id of a user."""
        return f"{self.prefix}-{number}"

    @property
    def embedder(self) -> data.ReadyVectors:
        """Gives every text its vector at once."""
        import numpy as np

        return data.ReadyVectors(
            [*self.texts, *self.questions], np.concatenate([self.rows, self.asked])
        )

    def of_user(self, user: int) -> list[int]:
        """The places of a user's texts."""
        return list(range(user, len(self.texts), self.users))


def make_load(name: str, count: int, users: int, prefix: str = "user") -> Load:
    """The texts, questions and vectors of a size."""
    return Load(
        name, data.texts(count), data.vectors(count), data.questions(_QUESTIONS),
        data.vectors(_QUESTIONS, seed=7), users, prefix,
    )  # fmt: skip


def sized(folder: Path, name: str, count: int, users: int) -> list[Figure]:
    """Everything that depends on the size of the store."""
    load = make_load(name, count, users)
    figures = built(folder / "store", load)
    figures += _recall(folder / "store", load)
    figures += _searching(folder / "store", load)
    figures += _reopened(folder / "store", load)
    figures += _adding(folder, load)
    figures += _while_ingesting(folder / "store", load)
    figures += _memory_of_a_process(folder / "store", load)
    return figures


def built(store: Path | str, load: Load) -> list[Figure]:
    """Bulk ingest; then the background work, with vectors ready; and what it takes on disk."""
    count = len(load.texts)
    embedder = load.embedder
    with Memory(store, settings=load_settings(background=False), embedder=embedder) as memory:
        began = time.perf_counter()
        for user in range(load.users):
            places = load.of_user(user)
            for start in range(0, len(places), _BATCH):
                part = [load.texts[i] for i in places[start : start + _BATCH]]
                memory.add(part, user_id=load.user(user), session_id=f"s{start}")
        ingest_s = time.perf_counter() - began
    with Memory(store, embedder=embedder) as memory:
        began = time.perf_counter()
        memory.flush()
        work_s = time.perf_counter() - began
        size = memory.stats()["bytes_on_disk"]
    return [
        Figure("bulk ingest without embedding", load.name, count / ingest_s, "memories/s",
               bar=3_000, at_most=False),
        Figure("vectors and compaction", load.name, work_s / count * 1e6, "µs/memory"),
        Figure("on disk", load.name, size / count, "bytes/memory"),
    ]  # fmt: skip


def row_of(text: str) -> bytes:
    """As many bytes as a memory writes: its turn, its content, its words."""
    return text.encode() * 2 + bytes(9 * len(set(text.split())))


def _adding(folder: Path, load: Load) -> list[Figure]:
    """One acknowledged `add` against one bare insert of as many bytes, by turns."""
    new = data.texts(ADDS, seed=99)
    bare = BareInsert(folder / "bare", "FULL")
    ours_ms, bare_ms = [], []
    with Memory(folder / "store", embedder=load.embedder) as memory:
        for n, text in enumerate(new):
            bare_ms.append(timed_ms(partial(bare.insert, row_of(text))))
            ours_ms.append(timed_ms(partial(memory.add, text, user_id=load.user(0))))
            if n % 50 == 49:
                memory.flush()
    bare.close()
    return [
        Figure("add acknowledged, p50", load.name, statistics.median(ours_ms), "ms",
               statistics.median(bare_ms), bar=2.0),
        Figure("add acknowledged, p95", load.name, percentile(ours_ms, 95), "ms",
               percentile(bare_ms, 95)),
    ]  # fmt: skip


def ask(memory: Memory, question: str, user: str) -> float:
    """Milliseconds of a search without its question's embedding."""
    return float(memory.search(question, user_id=user).timings["search"])


def _searching(store: Path, load: Load) -> list[Figure]:
    """Warm searches against one bare FTS5 query plus one bare int8 scan, by turns."""
    places = load.of_user(0)
    bare_words = BareWords([load.texts[i] for i in places])
    bare_vectors = BareVectors(load.rows[places])
    ours_ms, bare_ms = [], []
    with Memory(store, embedder=load.embedder) as memory:
        for question in load.questions[:30]:
            ask(memory, question, load.user(0))
        for question, vector in zip(load.questions, load.asked, strict=True):
            ours_ms.append(ask(memory, question, load.user(0)))
            words_ms = timed_ms(partial(bare_words.search, question))
            bare_ms.append(words_ms + timed_ms(partial(bare_vectors.search, vector)))
    bare_words.close()
    bar = {"10k": 1.5, "100k": 1.0}.get(load.name)
    return [
        Figure("search, warm, p50", load.name, statistics.median(ours_ms), "ms",
               statistics.median(bare_ms), bar=bar),
        Figure("search, warm, p95", load.name, percentile(ours_ms, 95), "ms",
               percentile(bare_ms, 95)),
    ]  # fmt: skip


def _reopened(store: Path, load: Load) -> list[Figure]:
    """The first answer after opening, and how much of it was the cold partition."""
    opened_ms, cold_ms = [], []
    embedder = load.embedder
    for question in load.questions[:10]:
        began = time.perf_counter()
        with Memory(store, embedder=embedder) as memory:
            cold_ms.append(ask(memory, question, load.user(0)))
            opened_ms.append((time.perf_counter() - began) * 1e3)
    bar = 200.0 if load.name == "100k" else None
    return [
        Figure("open to the first answer", load.name, statistics.median(opened_ms), "ms", bar=bar),
        Figure("search, cold partition", load.name, statistics.median(cold_ms), "ms"),
    ]


def _recall(store: Path, load: Load) -> list[Figure]:
    """How many of the ten truly nearest, by exact float cosine, a search by vectors returns."""
    import numpy as np

    places = load.of_user(0)
    known = {load.texts[i] for i in places}
    by_vectors = {"vector_weight": 1.0, "before_weight": 0.0, "after_weight": 0.0, "recency": 0.0}
    shares = []
    with Memory(store, embedder=load.embedder) as memory:
        for question, vector in zip(load.questions[:100], load.asked, strict=False):
            exact = np.argsort(-(load.rows[places] @ vector))[:10]
            wanted = {load.texts[places[i]] for i in exact.tolist()}
            hits = memory.search(question, user_id=load.user(0), top_k=20, policy=by_vectors)
            found = [hit.content for hit in hits if hit.content in known][:10]
            shares.append(len(wanted & set(found)) / len(wanted))
    return [
        Figure("recall of the exact ten", load.name, statistics.mean(shares), "", bar=0.98,
               at_most=False),
    ]  # fmt: skip


def _while_ingesting(store: Path, load: Load) -> list[Figure]:
    """The p95 of searches while another thread adds without a pause, against a quiet p95."""
    stop = threading.Event()
    new = data.texts(5_000, seed=123)
    with Memory(store, embedder=load.embedder) as memory:
        for question in load.questions[:30]:
            ask(memory, question, load.user(0))
        quiet_ms = [ask(memory, question, load.user(0)) for question in load.questions]

        def ingest() -> None:
            for text in new:
                if stop.is_set():
                    return
                memory.add(text, user_id=load.user(0), session_id="ingest")

        thread = threading.Thread(target=ingest)
        thread.start()
        busy_ms = [ask(memory, question, load.user(0)) for question in load.questions]
        stop.set()
        thread.join()
        memory.flush()
    return [
        Figure("search while ingesting, p95", load.name, percentile(busy_ms, 95), "ms",
               percentile(quiet_ms, 95), bar=3.0),
    ]  # fmt: skip


_CHILD = """
import json, resource, sys
from pathlib import Path
from scrubjay import Memory
from scrubjay.evals.bench import data
with Memory(sys.argv[1], embedder=data.ReadyVectors([], data.vectors(1))) as memory:
    for question in data.questions(20):
        memory.search(question, user_id="user-0")
    cached = memory.stats()["bytes_cached"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = Path("/proc/self/status")
if status.exists():  # on Linux ru_maxrss is at least the parent's
    peak = int(status.read_text().split("VmHWM:")[1].split()[0])
print(json.dumps({"peak": peak, "cached": cached}))
"""


def _memory_of_a_process(store: Path, load: Load) -> list[Figure]:
    """What a process that searches takes at its peak, and the index of the user's part of it."""
    out = subprocess.run(
        [sys.executable, "-c", _CHILD, str(store)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(out.stdout)
    return [
        Figure("peak memory of a searching process", load.name, found["peak"] / 1024, "MB"),
        Figure("index in memory", load.name, found["cached"] / len(load.of_user(0)),
               "bytes/memory"),
    ]  # fmt: skip


def embedding(folder: Path) -> list[Figure]:
    """The real model: throughput against its bare session, and the lag of single writes."""
    from scrubjay.wiring import open_model

    model = open_model(load_settings())
    texts = [_spoken(text) for text in data.texts(600, seed=5)]
    feeds: list[Any] = []
    ratios, ours_s, bare_s = [], [], []
    with Memory(folder / "store", embedder=model) as memory:
        memory.search("warm up", user_id="u")
        for part in range(3):
            batch = texts[part * 200 : part * 200 + 200]
            with _Recorded(model, feeds) as replay:
                began = time.perf_counter()
                memory.add(batch, user_id="u")
                memory.flush()
                ours_s.append(time.perf_counter() - began)
            bare_s.append(replay())
            ratios.append(bare_s[-1] / ours_s[-1])
        lags_ms = _lags(memory)
    return [
        Figure("embedding throughput, ours over the bare session", "model",
               statistics.median(ratios), "", bar=0.85, at_most=False),
        Figure("embedding throughput", "model", 200 / statistics.median(ours_s), "texts/s"),
        Figure("from acknowledgement to vector, p95", "model", percentile(lags_ms, 95), "ms"),
    ]  # fmt: skip


def _spoken(text: str) -> str:
    """A text of about the length of a spoken sentence or two, some 40 tokens."""
    return " ".join(text.split()[:14])


def _lags(memory: Memory) -> list[float]:
    """Milliseconds from the acknowledgement of one add until nothing waits for a vector."""
    lags = []
    for text in data.texts(40, seed=6):
        memory.add(_spoken(text), user_id="lag")
        began = time.perf_counter()
        memory.flush()
        lags.append((time.perf_counter() - began) * 1e3)
    return lags


class _Recorded:
    """Keeps what the model's session is fed, and runs it again without anything around it."""

    def __init__(self, model: Any, feeds: list[Any]) -> None:
        self._runner = model._current_runner()
        self._session = self._runner._session
        self._feeds = feeds

    def __enter__(self) -> Any:
        self._feeds.clear()
        self._runner._session = self
        return self._replay

    def __exit__(self, *_: object) -> None:
        self._runner._session = self._session

    def run(self, outputs: Sequence[str], feed: Any) -> Any:
        """As the session's own."""
        self._feeds.append((outputs, feed))
        return self._session.run(outputs, feed)

    def _replay(self) -> float:
        began = time.perf_counter()
        for outputs, feed in self._feeds:
            self._session.run(outputs, feed)
        return time.perf_counter() - began
