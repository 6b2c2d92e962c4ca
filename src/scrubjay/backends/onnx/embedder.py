"""Contract: `OnnxEmbedder` turns texts into unit vectors; the same text, the same vector.

Safe for threads, and across `fork`: a session's threads do not exist in a child, so that a child
makes a session of its own and never touches the inherited one.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scrubjay.backends.onnx.manifest import (
    Manifest,
    find_damage,
    guess_manifest,
    read_manifest,
)
from scrubjay.backends.onnx.session import Runner
from scrubjay.backends.onnx.windows import Window, Windower, make_batches
from scrubjay.errors import InvalidInput, ModelError, ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TOKENS = 512
"""Tokens in one run of the model, padding included. Larger batches fall out of the CPU's cache:
32 texts of 40 tokens took 14.4 ms each in one run, and 13.4 in runs of 8."""


def default_threads() -> int:
    """Give the number of threads for one run: two, or one where there is but one core."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), 2)
    return min(os.cpu_count() or 1, 2)


class OnnxEmbedder:
    """An embedding model in a folder with `model.onnx` and `tokenizer.json`.

    `folder` may hold a manifest (see `manifest`); `manifest` given here replaces it. `threads` is
    the number of threads for one run (default: at most two). `batch_tokens` bounds a run.
    Raises `ModelUnavailable` if the folder holds no model, `ModelError` if it is damaged.
    """

    def __init__(
        self,
        folder: Path,
        *,
        threads: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        manifest: Manifest | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise InvalidInput(f"threads must be 1 or more, got {threads}")
        if not folder.is_dir():
            raise ModelUnavailable(f"there is no model folder at {folder}")
        self._folder = folder
        self._manifest = manifest or read_manifest(folder) or guess_manifest(folder)
        self._threads = threads or default_threads()
        self._batch_tokens = batch_tokens
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        damage = find_damage(folder, self._manifest)
        if damage:
            raise ModelError(
                f"the model folder {folder} is damaged: {damage}. Fetch or make it again."
            )
        self._windower = Windower(_load_tokenizer(folder), self._manifest.max_tokens)
        self._runner: Runner | None = self._new_runner()
        self._dimension = self._manifest.dimension or self._measure_dimension()
        _living.add(self)

    @property
    def model_id(self) -> str:
        """The name of weights and quantisation; vectors of different ids do not compare."""
        return self._manifest.model_id

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return self._dimension

    @property
    def manifest(self) -> Manifest:
        """How the model is used: pooling, prefixes, limits, licence."""
        return self._manifest

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.model_id!r}, dimension={self._dimension})"

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """Embed texts: (len(texts), dimension) float32, each row of length 1.

        A text longer than the model's limit is embedded in windows, whose unit vectors are
        averaged, weighted by their tokens, and normalised. Raises `InvalidInput` for an unknown
        role, `ModelUnavailable` after `close`, `ModelError` if the model gives no usable vector.
        """
        import numpy as np

        if role not in ("query", "passage"):
            raise InvalidInput(f"role must be 'query' or 'passage', got {role!r}")
        if isinstance(texts, str):
            raise InvalidInput("texts must be a list of strings, got one string")
        if not texts:
            return np.zeros((0, self._dimension), np.float32)
        runner = self._current_runner()
        windows = self._windower.windows(texts, self._manifest.prefixes.get(role, ""))
        vectors = np.empty((len(windows), self._dimension), np.float32)
        for batch in make_batches(windows, self._batch_tokens):
            found = runner.run([windows[i].ids for i in batch])
            if found.shape[1] != self._dimension:
                raise ModelError(
                    f"the model {self.model_id!r} gives {found.shape[1]} dimensions and its "
                    f"manifest says {self._dimension}. Correct the manifest."
                )
            vectors[batch] = _unit(found)
        if len(windows) == len(texts):
            return vectors
        return _average(windows, vectors, len(texts))

    def close(self) -> None:
        """Give the memory back. A later `embed` raises `ModelUnavailable`."""
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                self._runner = None

    def _current_runner(self) -> Runner:
        if self._pid != os.getpid():
            self._enter_child()
        runner = self._runner
        if runner is not None and not self._closed:
            return runner
        with self._lock:
            if self._closed:
                raise ModelUnavailable(f"the model {self.model_id!r} was closed")
            if self._runner is None:
                self._runner = self._new_runner()
            return self._runner

    def _enter_child(self) -> None:
        """Forget what belongs to the parent process. Its lock may be held by nobody alive."""
        if self._pid == os.getpid():
            return
        _keep_for_ever(self._runner)
        self._lock = threading.Lock()
        self._runner = None
        self._pid = os.getpid()

    def _new_runner(self) -> Runner:
        return Runner(self._folder, self._manifest, self._threads)

    def _measure_dimension(self) -> int:
        windows = self._windower.windows(["a"], "")
        return int(self._current_runner().run([windows[0].ids]).shape[1])


_living: weakref.WeakSet[OnnxEmbedder] = weakref.WeakSet()


def _after_fork() -> None:
    for embedder in list(_living):
        embedder._enter_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _keep_for_ever(value: object) -> None:
    # Destroying an inherited session in a child would wait for threads that do not exist there.
    if value is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _load_tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelError(f"the tokenizer {path} cannot be read: {error}") from error


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise ModelError("the model gave a vector without a direction; its files may be damaged")
    result: NDArray[np.float32] = vectors / lengths
    return result


def _average(
    windows: Sequence[Window], vectors: NDArray[np.float32], count: int
) -> NDArray[np.float32]:
    """Average the unit vectors of each text's windows by their weights; (count, dimension)."""
    import numpy as np

    owners = np.fromiter((window.text for window in windows), np.int64, len(windows))
    weights = np.fromiter((window.weight for window in windows), np.float32, len(windows))
    sums = np.zeros((count, vectors.shape[1]), np.float32)
    np.add.at(sums, owners, vectors * weights[:, None])
    return _unit(sums)
