"""Contract: say what is in a model folder, and prove that it is whole.

A folder holds `model.onnx`, `tokenizer.json` and `scrubjay-model.json`, the manifest::

    {"format": 1, "model_id": "multilingual-e5-small-int8", "dimension": 384,
     "pooling": "mean", "prefixes": {"query": "query: ", "passage": "passage: "},
     "max_tokens": 512, "licence": "MIT", "optimised": true,
     "files": {"model.onnx": {"sha256": "...", "size": 76000000}, ...}}

A folder from a model hub has no manifest; `guess_manifest` reads what the hub's own files say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from scrubjay.errors import ModelError, ModelUnavailable

MANIFEST_FILE = "scrubjay-model.json"
FORMAT = 1
Pooling = Literal["mean", "cls"]
_MODEL_PLACES = (
    "model.onnx",
    "onnx/model.onnx",
    "model_quantized.onnx",
    "onnx/model_quantized.onnx",
)
_SAMPLE = 1 << 20
_LIMIT = 1_000_000
_BGE_QUERY = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class FileFact:
    """What a file of the folder must be: its SHA-256 in hex and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """How to use the model of a folder.

    `model_id` names weights and quantisation. `dimension` 0 means: ask the model. `pooling` says
    how token vectors become one. `prefixes` go before the text, by role. `max_tokens` counts
    prefix and special tokens. `optimised` says that the graph is already fused.
    """

    model_id: str
    dimension: int = 0
    pooling: Pooling = "mean"
    prefixes: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int = 512
    licence: str = ""
    optimised: bool = False
    model_file: str = "model.onnx"
    source: str = ""
    files: Mapping[str, FileFact] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Give the manifest as it is written into the folder."""
        document = {"format": FORMAT, **asdict(self)}
        return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()


def read_manifest(folder: Path) -> Manifest | None:
    """Read a folder's manifest; None if it has none. Raises `ModelError` if it makes no sense."""
    path = folder / MANIFEST_FILE
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelError(f"the model manifest {path} cannot be read: {error}") from error
    try:
        return _from_document(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"the model manifest {path} makes no sense: {error!r}") from error


def _from_document(document: dict[str, Any]) -> Manifest:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}, expected {FORMAT}")
    pooling, prefixes = document["pooling"], dict(document.get("prefixes", {}))
    if pooling not in ("mean", "cls"):
        raise ValueError(f"pooling {pooling!r}, expected 'mean' or 'cls'")
    if not all(isinstance(value, str) for value in prefixes.values()):
        raise ValueError("a prefix is not a string")
    manifest = Manifest(
        model_id=str(document["model_id"]),
        dimension=int(document["dimension"]),
        pooling=cast(Pooling, pooling),
        prefixes=prefixes,
        max_tokens=int(document["max_tokens"]),
        licence=str(document.get("licence", "")),
        optimised=bool(document.get("optimised", False)),
        model_file=str(document.get("model_file", "model.onnx")),
        source=str(document.get("source", "")),
        files={
            name: FileFact(str(fact["sha256"]), int(fact["size"]))
            for name, fact in document.get("files", {}).items()
        },
    )
    if not manifest.model_id or manifest.dimension < 0 or manifest.max_tokens < 16:
        raise ValueError("model_id, dimension or max_tokens is out of range")
    return manifest


def hash_file(path: Path) -> FileFact:
    """Give a file's SHA-256 and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileFact(digest.hexdigest(), file.tell())


def find_damage(folder: Path, manifest: Manifest) -> str | None:
    """Compare the folder's files with its manifest; give what is wrong, or None."""
    for name, fact in manifest.files.items():
        path = folder / name
        try:
            if path.stat().st_size != fact.size or hash_file(path) != fact:
                return f"{name} differs from its checksum"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror or error})"
    return None


def guess_manifest(folder: Path) -> Manifest:
    """Say how to use a folder without a manifest, from the files a model hub puts there.

    The rules, each with its default: pooling from `1_Pooling/config.json`, otherwise `cls` for a
    name with "bge" and `mean` for the rest; prefixes "query: " and "passage: " for a name with
    "e5", the English instruction before the query for "bge" with "-en", otherwise none; max_tokens
    from `sentence_bert_config.json`, the tokenizer's truncation or `config.json`, otherwise 512.
    The id is the folder's name and a digest of the model file's size, first and last megabyte.
    Raises `ModelUnavailable` if the folder holds no model.
    """
    places = [place for place in _MODEL_PLACES if (folder / place).is_file()]
    if not places or not (folder / "tokenizer.json").is_file():
        missing = "tokenizer.json" if places else "model.onnx"
        raise ModelUnavailable(
            f"the folder {folder} holds no model: {missing} is missing. "
            "A model folder needs model.onnx and tokenizer.json."
        )
    model = folder / places[0]
    config = _json(folder / "config.json")
    name = f"{folder.resolve().name} {config.get('_name_or_path', '')}".lower()
    prefixes = {}
    if "e5" in name:
        prefixes = {"query": "query: ", "passage": "passage: "}
    elif "bge" in name and "-en" in name.replace("_", "-"):
        prefixes = {"query": _BGE_QUERY, "passage": ""}
    return Manifest(
        model_id=f"{folder.resolve().name}-{_fingerprint(model)}",
        pooling=_guess_pooling(folder, name),
        prefixes=prefixes,
        max_tokens=_guess_max_tokens(folder, config),
        model_file=places[0],
    )


def _guess_pooling(folder: Path, name: str) -> Pooling:
    config = _json(folder / "1_Pooling" / "config.json")
    if config.get("pooling_mode_cls_token") is True:
        return "cls"
    if config.get("pooling_mode_mean_tokens") is True:
        return "mean"
    return "cls" if "bge" in name else "mean"


def _guess_max_tokens(folder: Path, config: dict[str, Any]) -> int:
    candidates = [_json(folder / "sentence_bert_config.json").get("max_seq_length")]
    candidates.append(_json(folder / "tokenizer_config.json").get("model_max_length"))
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int):
        # RoBERTa's positions start behind the padding id, which takes two of them.
        offset = 2 if "roberta" in str(config.get("model_type", "")) else 0
        candidates.append(positions - offset)
    sane = [c for c in candidates if isinstance(c, int) and 16 <= c <= _LIMIT]
    return min(sane, default=512)


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _fingerprint(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:8]
