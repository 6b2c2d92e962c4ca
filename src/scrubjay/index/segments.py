"""Sealed segments as bytes: written once, read without copying, merged, thinned.

A words segment holds, for m memories in order of sequence, their columns and their postings
sorted by term (compressed sparse rows). A vectors segment holds int8 codes, each row with its
own scale. All numbers are little-endian; arrays are aligned to 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scrubjay.errors import StoreDamaged
from scrubjay.storage import Rest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from scrubjay.storage import SegmentKind, TailWords

_WORDS_MAGIC = b"JAYW0002"
_VECTORS_MAGIC = b"JAYV0001"


@dataclass(frozen=True, slots=True)
class WordsSegment:
    """The words of m memories.

    `seqs`, `lengths`, `previous` (uint32, 0 for none), `occurred_at` (int64 microseconds), `trust`
    and `confidence` (uint8, hundredths) have the shape (m,). `terms` (uint64, ascending) has t
    entries; the postings of term i are `posting_seqs` (uint32) and `posting_counts` (uint8) from
    `offsets[i]` to `offsets[i + 1]`.
    """

    seqs: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    previous: NDArray[np.uint32]
    occurred_at: NDArray[np.int64]
    trust: NDArray[np.uint8]
    confidence: NDArray[np.uint8]
    terms: NDArray[np.uint64]
    offsets: NDArray[np.uint32]
    posting_seqs: NDArray[np.uint32]
    posting_counts: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""
        return sum(array.nbytes for array in self._arrays())

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return (
            self.seqs, self.lengths, self.previous, self.occurred_at, self.trust, self.confidence,
            self.terms, self.offsets, self.posting_seqs, self.posting_counts,
        )  # fmt: skip

    def to_bytes(self) -> bytes:
        """The blob that `read_words` reads."""
        sizes = (len(self.seqs), len(self.terms), len(self.posting_seqs))
        return _join(_WORDS_MAGIC, sizes, self._arrays())


@dataclass(frozen=True)
class VectorsSegment:
    """The vectors of m memories: `codes` (int8, (m, d)) times `scales` (float32, (m,))."""

    seqs: NDArray[np.uint32]
    scales: NDArray[np.float32]
    codes: NDArray[np.int8]

    @property
    def places(self) -> NDArray[np.uint32] | slice:
        """Where the rows stand by sequence; a slice, which is faster, when they follow on."""
        first, count = int(self.seqs[0]), len(self.seqs)
        follows_on = int(self.seqs[-1]) - first == count - 1 and self.is_ascending
        return slice(first, first + count) if follows_on else self.seqs

    @cached_property
    def is_ascending(self) -> bool:
        """Whether each sequence is above the one before it."""
        return bool((self.seqs[1:] > self.seqs[:-1]).all())

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""
        return self.seqs.nbytes + self.scales.nbytes + self.codes.nbytes

    def to_bytes(self) -> bytes:
        """The blob that `read_vectors` reads."""
        return _join(_VECTORS_MAGIC, self.codes.shape, (self.seqs, self.scales, self.codes))


def _join(magic: bytes, sizes: Sequence[int], arrays: Sequence[NDArray[Any]]) -> bytes:
    parts = [magic, struct.pack(f"<{len(sizes)}Q", *sizes)]
    for array in arrays:
        data = array.tobytes()
        parts += [data, bytes(-len(data) % 8)]
    return b"".join(parts)


class _Reader:
    """Takes arrays off a blob, one after another, without copying."""

    def __init__(self, blob: bytes, magic: bytes, sizes: int) -> None:
        header = len(magic) + 8 * sizes
        if blob[: len(magic)] != magic or len(blob) < header:
            raise StoreDamaged("a segment is unreadable; `scrubjay reindex` builds it anew")
        self._blob = blob
        self._at = header
        self.sizes = struct.unpack_from(f"<{sizes}Q", blob, len(magic))

    def take(self, dtype: str, count: int) -> NDArray[Any]:
        import numpy as np

        try:
            array = np.frombuffer(self._blob, dtype, count, self._at)
        except ValueError as exc:
            raise StoreDamaged("a segment is cut short; `scrubjay reindex` builds it anew") from exc
        self._at += array.nbytes + (-array.nbytes % 8)
        return array


def read_words(blob: bytes) -> WordsSegment:
    """The words segment of a blob. Raises `StoreDamaged`."""
    reader = _Reader(blob, _WORDS_MAGIC, 3)
    m, t, p = reader.sizes
    take = reader.take
    segment = WordsSegment(
        take("<u4", m), take("<u4", m), take("<u4", m), take("<i8", m), take("u1", m),
        take("u1", m),
        take("<u8", t), take("<u4", t + 1), take("<u4", p), take("u1", p),
    )  # fmt: skip
    whole = int(segment.offsets[0]) == 0 and int(segment.offsets[-1]) == p
    stray = p > 0 and segment.posting_seqs.max() > segment.seqs.max()
    if not whole or stray or (_sizes(segment) < 0).any():
        raise StoreDamaged("a segment is inconsistent; `scrubjay reindex` builds it anew")
    return segment


def read_vectors(blob: bytes) -> VectorsSegment:
    """The vectors segment of a blob. Raises `StoreDamaged`."""
    reader = _Reader(blob, _VECTORS_MAGIC, 2)
    m, d = reader.sizes
    seqs, scales = reader.take("<u4", m), reader.take("<f4", m)
    return VectorsSegment(seqs, scales, _aligned(reader.take("i1", m * d)).reshape(m, d))


def _aligned(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """A copy that begins at a cache line, from where the kernel is a third faster."""
    import numpy as np

    room = np.empty(codes.nbytes + 64, np.int8)
    start = -room.ctypes.data % 64
    copy = room[start : start + codes.nbytes]
    copy[:] = codes
    return copy


def words_from_tail(rows: Sequence[TailWords]) -> WordsSegment:
    """A segment of tail rows, which ascend by sequence."""
    import numpy as np

    from scrubjay.index.words import unpack

    unpacked = [unpack(row.postings) for row in rows]
    seqs = np.array([row.seq for row in rows], "<u4")
    terms = np.concatenate([t for t, _ in unpacked]) if rows else np.empty(0, "<u8")
    counts = np.concatenate([c for _, c in unpacked]) if rows else np.empty(0, "u1")
    owners = np.repeat(seqs, [len(t) for t, _ in unpacked])
    order = np.argsort(terms, kind="stable")
    distinct, first = np.unique(terms[order], return_index=True)
    return WordsSegment(
        seqs,
        np.array([row.length for row in rows], "<u4"),
        np.array([row.previous for row in rows], "<u4"),
        np.array([row.occurred_at for row in rows], "<i8"),
        np.array([row.trust for row in rows], "u1"),
        np.array([row.confidence for row in rows], "u1"),
        distinct.astype("<u8"),
        np.append(first, len(terms)).astype("<u4"),
        owners[order],
        counts[order],
    )


def _sizes(segment: WordsSegment) -> NDArray[np.int64]:
    """How many postings each term has."""
    import numpy as np

    offsets = segment.offsets.astype(np.int64)
    return offsets[1:] - offsets[:-1]


def merge_words(segments: Sequence[WordsSegment]) -> WordsSegment:
    """One segment of several, in the order given.

    Linear in the postings: each term's place is counted first, then every posting is moved to
    it, so that within a term the first segment's postings stay before the next's.
    """
    import numpy as np

    terms = np.unique(np.concatenate([s.terms for s in segments]))
    sizes = np.zeros(len(terms) + 1, np.int64)
    places = [np.searchsorted(terms, s.terms) for s in segments]
    for s, place in zip(segments, places, strict=True):
        sizes[place + 1] += _sizes(s)
    offsets = np.cumsum(sizes)
    total = int(offsets[-1])
    seqs, counts = np.empty(total, "<u4"), np.empty(total, "u1")
    cursor = offsets[:-1].copy()
    for s, place in zip(segments, places, strict=True):
        lengths = _sizes(s)
        shift = np.repeat(cursor[place] - s.offsets[:-1].astype(np.int64), lengths)
        target = shift + np.arange(len(s.posting_seqs))
        seqs[target], counts[target] = s.posting_seqs, s.posting_counts
        cursor[place] += lengths
    return WordsSegment(
        np.concatenate([s.seqs for s in segments]),
        np.concatenate([s.lengths for s in segments]),
        np.concatenate([s.previous for s in segments]),
        np.concatenate([s.occurred_at for s in segments]),
        np.concatenate([s.trust for s in segments]),
        np.concatenate([s.confidence for s in segments]),
        terms,
        offsets.astype("<u4"),
        seqs,
        counts,
    )


def quantise(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8 codes (n, d) and scales (n,) of float rows: each row's largest entry becomes 127."""
    import numpy as np

    peaks = np.abs(vectors).max(axis=1, initial=1e-12)
    scales = (peaks / 127.0).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def vectors_from_tail(rows: Sequence[tuple[int, int, bytes]]) -> VectorsSegment:
    """A segment of tail vectors (row id, seq, float16 bytes)."""
    import numpy as np

    floats = np.frombuffer(b"".join(row[2] for row in rows), np.float16).astype(np.float32)
    codes, scales = quantise(floats.reshape(len(rows), -1))
    return VectorsSegment(np.array([row[1] for row in rows], "<u4"), scales, codes)


def merge_vectors(segments: Sequence[VectorsSegment]) -> VectorsSegment:
    """One segment of several."""
    import numpy as np

    return VectorsSegment(
        np.concatenate([s.seqs for s in segments]),
        np.concatenate([s.scales for s in segments]),
        np.concatenate([s.codes for s in segments]),
    )


def without(kind: SegmentKind, blob: bytes, gone: frozenset[int]) -> Rest | None:
    """What is left without the forgotten sequences. A `ports.RewriteSegment`."""
    import numpy as np

    lost = np.fromiter(gone, np.uint32, len(gone))
    segment = read_vectors(blob) if kind == "vectors" else read_words(blob)
    keep = ~np.isin(segment.seqs, lost)
    if not keep.any():
        return None
    if keep.all():
        rest = blob
    elif isinstance(segment, VectorsSegment):
        rest = VectorsSegment(
            segment.seqs[keep], segment.scales[keep], segment.codes[keep]
        ).to_bytes()
    else:
        rest = _thinned(segment, keep, ~np.isin(segment.posting_seqs, lost))
    seqs = segment.seqs[keep]
    return Rest(rest, len(seqs), int(seqs.min()), int(seqs.max()))


def _thinned(words: WordsSegment, keep: NDArray[np.bool_], posts: NDArray[np.bool_]) -> bytes:
    import numpy as np

    owners = np.repeat(np.arange(len(words.terms)), _sizes(words))
    sizes = np.bincount(owners[posts], minlength=len(words.terms))
    alive = sizes > 0
    return WordsSegment(
        words.seqs[keep], words.lengths[keep], words.previous[keep], words.occurred_at[keep],
        words.trust[keep], words.confidence[keep],
        words.terms[alive], np.append(0, np.cumsum(sizes[alive])).astype("<u4"),
        words.posting_seqs[posts], words.posting_counts[posts],
    ).to_bytes()  # fmt: skip
