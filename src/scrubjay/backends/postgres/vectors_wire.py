"""Vectors and sequences in PostgreSQL's binary form, made by numpy in one go.

Text would cost a parse of every number: a batch of 256 vectors of 384 dimensions is 100,000 of
them. The forms are those of `halfvec_send` in pgvector (int16 dimension, int16 zero, then the
values, big-endian) and of `array_send` in PostgreSQL.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from scrubjay import errors

_INT8_OID = 20
MAX_DIMENSION = 4_000
"""Most dimensions of a halfvec that pgvector can index."""
MAX_BITMAP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Raw:
    """A value in binary form, whose type the statement tells by a cast."""

    data: bytes


class _RawDumper(Dumper):
    format = Format.BINARY
    oid = 0  # unknown: the server takes the type of the cast

    def dump(self, obj: Raw) -> Buffer | None:
        return obj.data


def speaks_raw(cursor: Cursor[Any]) -> Cursor[Any]:
    """The cursor, which now takes `Raw` values."""
    cursor.adapters.register_dumper(Raw, _RawDumper)
    return cursor


def matrix_of(vectors: Mapping[int, bytes], seqs: Sequence[int]) -> NDArray[np.float16]:
    """The vectors of `seqs` in this order, shape (len(seqs), dimension).

    Raises `InvalidInput` when they differ in length, or hold what is not a finite number.
    """
    size = len(vectors[seqs[0]])
    if any(len(vectors[seq]) != size for seq in seqs):
        raise errors.InvalidInput("the vectors of one model must all have the same dimension")
    if size % 2 or not 0 < size // 2 <= MAX_DIMENSION:
        raise errors.InvalidInput(
            f"a vector has {size} bytes; wanted are float16 values, 1 to {MAX_DIMENSION:,} of them"
        )
    joined = b"".join(vectors[seq] for seq in seqs)
    matrix = np.frombuffer(joined, np.dtype("<f2")).reshape(len(seqs), size // 2)
    if not np.isfinite(matrix).all():
        raise errors.InvalidInput("a vector holds a value that is infinite or no number")
    return matrix


def halfvec(values: NDArray[np.floating[Any]]) -> Raw:
    """One vector, shape (dimension,)."""
    return Raw(struct.pack("!hh", len(values), 0) + values.astype(">f2").tobytes())


def halfvecs(matrix: NDArray[np.float16], oid: int) -> Raw:
    """An array of vectors, shape (n, dimension). `oid` is that of the type halfvec here."""
    count, dimension = matrix.shape
    row = np.dtype(
        [("length", ">i4"), ("dimension", ">i2"), ("zero", ">i2"), ("values", ">f2", (dimension,))]
    )
    rows = np.zeros(count, row)
    rows["length"] = row.itemsize - 4
    rows["dimension"] = dimension
    rows["values"] = matrix
    return _array(count, oid, rows.tobytes())


def int8s(values: NDArray[np.int64] | Sequence[int]) -> Raw:
    """An array of bigint."""
    rows = np.empty(len(values), np.dtype([("length", ">i4"), ("value", ">i8")]))
    rows["length"] = 8
    rows["value"] = values
    return _array(len(rows), _INT8_OID, rows.tobytes())


def _array(count: int, oid: int, elements: bytes) -> Raw:
    dimensions = 1 if count else 0
    head = struct.pack("!iii", dimensions, 0, oid)
    return Raw(head + (struct.pack("!ii", count, 1) if count else b"") + elements)


def bitmap(seqs: NDArray[np.int64]) -> bytes | None:
    """One bit for each sequence from the first of `seqs` (ascending) on, as `get_bit` counts.

    The filter of an approximate search: an array as long would be planned for longer than the
    search takes. None when the bits would take more than `MAX_BITMAP_BYTES`.
    """
    span = int(seqs[-1]) - int(seqs[0]) + 1
    if span > MAX_BITMAP_BYTES * 8:
        return None
    marks = np.zeros(span, np.uint8)
    marks[seqs - seqs[0]] = 1
    return np.packbits(marks, bitorder="little").tobytes()
