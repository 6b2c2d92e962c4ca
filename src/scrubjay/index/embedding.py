"""The embedding model of one process: loaded when first needed, asked through a cache.

Until the model is there, questions are answered by words, and `state` says so. A model that
fails to load is tried again after a while.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from scrubjay.errors import ModelError, ModelUnavailable, ScrubjayError, StoreClosed
from scrubjay.forks import ForkLock
from scrubjay.ports import Embedder, Store
from scrubjay.storage import ModelRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RETRY_S = 30.0
_CACHED_TEXTS = 4_096
_UNRELATED = (
    "The recipe needs two eggs and a pinch of salt.",
    "服务器昨晚因为磁盘写满而重启了。",
    "Her train to Vienna leaves at half past six.",
    "他最喜欢的乐器是大提琴。",
    "The quarterly tax form is due in April.",
    "这只猫每天早上都在窗台上晒太阳。",
    "We replaced the brake pads on the old bicycle.",
    "孩子们在公园里放风筝。",
)
"""Sentences with nothing in common. Their mean cosine is the model's floor: multilingual-e5
gives unrelated texts about 0.8, others about 0.1, and relevance must mean the same for all."""

State = Literal["none", "waiting", "loading", "ready", "failed"]


class Embedding:
    """Answers with vectors, or with None and a note. Thread-safe."""

    def __init__(
        self, opener: Callable[[], Embedder] | None, store: Store, *, wait_s: float = 5.0
    ) -> None:
        self._opener = opener
        self._store = store
        self._wait_s = wait_s
        self._cache: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        self._forgettings = 0
        self._closed = False
        self._opening = ForkLock()
        self._start()
        self._embedder: Embedder | None = None
        self._row: ModelRow | None = None
        self._others: tuple[str, ...] = ()
        self._error: str | None = None
        self._failed_at = float("-inf")

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._loading = False

    def _check(self) -> None:
        """A forked child has its parent's model but not its parent's threads and locks."""
        if os.getpid() != self._process:
            self._start()
        if self._closed:
            raise StoreClosed("this memory was closed; open it again to go on")

    @property
    def configured(self) -> bool:
        """Whether there is a model at all."""
        return self._opener is not None

    @property
    def state(self) -> State:
        """Where the model stands."""
        if self._opener is None:
            return "none"
        if self._embedder is not None:
            return "ready"
        if self._loading:
            return "loading"
        return "failed" if self._error else "waiting"

    @property
    def error(self) -> str | None:
        """Why the model could not be used, the last time."""
        return self._error

    @property
    def row(self) -> ModelRow | None:
        """The model's row in the store, once it is loaded."""
        return self._row

    @property
    def others(self) -> tuple[str, ...]:
        """Models that the store still holds vectors of, besides the one in use."""
        return self._others

    def look_again(self) -> None:
        """See which models the store knows now: another process may have dropped this one."""
        known = self._store.models()
        if self._embedder is not None and self._row not in known:
            self._row = self._known(self._embedder) or self._introduce(self._embedder)
            known = self._store.models()
        number = self._row.number if self._row else 0
        self._others = tuple(m.name for m in known if m.number != number)

    def load(self) -> Embedder:
        """The model, loaded by whoever comes first; the others wait. Raises `ModelUnavailable`."""
        self._check()
        with self._changed:
            while self._loading:
                self._changed.wait()
            if self._embedder is not None:
                return self._embedder
            if self._opener is None:
                raise ModelUnavailable("no embedding model is configured")
            if time.monotonic() - self._failed_at < _RETRY_S:
                raise ModelUnavailable(self._error or "the model could not be loaded")
            self._loading = True
        embedder = row = error = None
        try:
            with self._opening:
                embedder = self._opener()
                row = self._known(embedder) or self._introduce(embedder)
        except ScrubjayError as exc:
            error = str(exc)
            raise
        except Exception as exc:
            # The opener may be a stranger's: whatever goes wrong there, reading by words goes on.
            error = f"the embedding model could not be loaded: {type(exc).__name__}"
            raise ModelUnavailable(error) from exc
        finally:
            with self._changed:
                self._loading = False
                if row is not None:
                    self._embedder, self._row, self._error = embedder, row, None
                    self.look_again()
                else:
                    self._error, self._failed_at = error, time.monotonic()
                self._changed.notify_all()
        return embedder

    def _known(self, embedder: Embedder) -> ModelRow | None:
        for row in self._store.models():
            if row.name == embedder.model_id and row.dimension == embedder.dimension:
                return row
        return None

    def _introduce(self, embedder: Embedder) -> ModelRow:
        """Measure a new model's floor and remember it in the store."""
        import numpy as np

        questions = self._ask(embedder, _UNRELATED, "query")
        passages = self._ask(embedder, _UNRELATED, "passage")
        cosines = questions @ passages.T
        others = cosines[~np.eye(len(_UNRELATED), dtype=bool)]
        baseline = float(np.clip(others.mean(), 0.0, 0.95))
        return self._store.add_model(embedder.model_id, embedder.dimension, baseline)

    def query(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """(the vector of a question or None, a note when there is none)."""
        self._check()
        if self._opener is None:
            return None, None
        with self._lock:
            found = self._cached(text, "query")
        if found is not None:
            return found, None
        if not self._is_loaded_in_time():
            return None, self._why_not()
        try:
            vector = self.embed([text], "query")[0]
        except ModelError as exc:
            return None, f"searched by words alone: {exc}"
        return vector, None

    def _is_loaded_in_time(self) -> bool:
        """Load now, or wait for the loading under way as long as a question may wait."""
        if self._embedder is not None:
            return True
        thread = threading.Thread(target=self._load_quietly, name="scrubjay-model", daemon=True)
        if not self._loading:
            thread.start()
        deadline = time.monotonic() + self._wait_s
        with self._changed:
            while self._embedder is None and (self._loading or thread.is_alive()):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 0.05))
        return self._embedder is not None

    def _load_quietly(self) -> None:
        """Load in a thread of its own; the reason of a failure is kept in `error`."""
        try:
            self.load()
        except ScrubjayError:
            return

    def _why_not(self) -> str:
        if self._error:
            return f"searched by words alone: {self._error}"
        return "searched by words alone: the embedding model is still being prepared"

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """Vectors, float32 (n, d), repeated texts from the cache. Raises `ModelError`."""
        import numpy as np

        embedder = self.load()
        with self._lock:
            found = {text: self._cached(text, role) for text in texts}
        known = {text: vector for text, vector in found.items() if vector is not None}
        new = [text for text in found if text not in known]
        forgettings = self._forgettings
        if new:
            vectors = self._ask(embedder, new, role)
            with self._lock:
                for text, vector in zip(new, vectors, strict=True):
                    known[text] = vector
                    if forgettings == self._forgettings:  # else it may be what was forgotten
                        self._remember(text, role, vector)
        return np.stack([known[text] for text in texts])

    def _ask(
        self, embedder: Embedder, texts: Sequence[str], role: Literal["query", "passage"]
    ) -> NDArray[np.float32]:
        import numpy as np

        try:
            vectors = np.asarray(embedder.embed(texts, role), np.float32)
        except ModelError:
            raise
        except Exception as exc:
            # An embedder may be a stranger's; its outage must look like any other.
            raise ModelUnavailable(f"the embedding model failed with {type(exc).__name__}") from exc
        if vectors.shape != (len(texts), embedder.dimension):
            raise ModelUnavailable("the embedding model returned another count of vectors")
        if not np.isfinite(vectors).all():
            raise ModelUnavailable("the embedding model returned a vector that is no number")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
        unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
        return unit

    def works(self) -> bool:
        """Whether the model answers at all, so that one bad text can be told from an outage."""
        try:
            self._ask(self.load(), [_UNRELATED[0]], "passage")
        except ModelError:
            return False
        return True

    def _cached(self, text: str, role: str) -> NDArray[np.float32] | None:
        found = self._cache.get((role, text))
        if found is not None:
            self._cache.move_to_end((role, text))
        return found

    def _remember(self, text: str, role: str, vector: NDArray[np.float32]) -> None:
        if len(text) > 2_000:
            return
        self._cache[(role, text)] = vector
        while len(self._cache) > _CACHED_TEXTS:
            self._cache.popitem(last=False)

    def forget(self) -> None:
        """Empty the cache: after an erasure no text of it may stay in RAM."""
        with self._lock:
            self._forgettings += 1
            self._cache.clear()

    def close(self) -> None:
        """Release the model."""
        if os.getpid() != self._process:
            self._start()
        self._closed = True
        with self._changed:
            while self._loading:
                self._changed.wait()
            if self._embedder is not None:
                self._embedder.close()
                self._embedder = None
