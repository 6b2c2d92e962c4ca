"""A partition in RAM: its segments, its tail, and columns by sequence.

Every array that speaks of memories is indexed by sequence, so that scores of words, vectors
and neighbours meet without a join. `refresh` brings it to a snapshot: what was only appended
is added, anything else is read again, and decoded segments are kept by their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scrubjay.errors import StoreDamaged
from scrubjay.index import segments as sealed
from scrubjay.index.scan import dots
from scrubjay.index.words import unpack

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray

    from scrubjay.index.large import LargePartitions
    from scrubjay.ports import Snapshot
    from scrubjay.storage import PartitionState, SegmentInfo, TailWords


Run = tuple[int, "NDArray[np.uint32]", "NDArray[np.uint8]"]
"""The postings of one term in one segment: the term's place, sequences, counts."""


class _WordsTail:
    """Words of recent memories as growing lists by term."""

    def __init__(self) -> None:
        self.postings: dict[int, tuple[list[int], list[int]]] = {}
        self.last_seq = 0
        self.count = 0

    def append(self, row: TailWords) -> None:
        terms, counts = unpack(row.postings)
        for term, count in zip(terms.tolist(), counts.tolist(), strict=True):
            seqs, tfs = self.postings.setdefault(term, ([], []))
            seqs.append(row.seq)
            tfs.append(count)
        self.last_seq = row.seq
        self.count += 1


class _VectorsTail:
    """Recent vectors in arrays that double when full."""

    def __init__(self) -> None:
        self.last_row = 0
        self.count = 0
        self._segment: sealed.VectorsSegment | None = None

    def append(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        new = sealed.vectors_from_tail(rows)
        old, n = self._segment, self.count
        if old is None or n + len(rows) > len(old.seqs):
            size = max(64, 2 * (n + len(rows)))
            grown = sealed.VectorsSegment(
                np.zeros(size, np.uint32), np.zeros(size, np.float32),
                np.zeros((size, new.codes.shape[1]), np.int8),
            )  # fmt: skip
            if old is not None:
                grown.seqs[:n], grown.scales[:n], grown.codes[:n] = (
                    old.seqs[:n], old.scales[:n], old.codes[:n],
                )  # fmt: skip
            self._segment = old = grown
        stop = n + len(rows)
        old.seqs[n:stop], old.scales[n:stop], old.codes[n:stop] = new.seqs, new.scales, new.codes
        self.count, self.last_row = stop, rows[-1][0]

    def view(self) -> sealed.VectorsSegment | None:
        if self._segment is None:
            return None
        s, n = self._segment, self.count
        return sealed.VectorsSegment(s.seqs[:n], s.scales[:n], s.codes[:n])


def _strange() -> StoreDamaged:
    return StoreDamaged("an index names memories that never were; `scrubjay reindex`")


_COLUMNS = (
    "_lengths", "_previous", "_next", "_occurred", "_trust", "_confidence", "_live", "_embedded",
)  # fmt: skip


class Partition:
    """One partition's index in RAM. `cache.IndexCache` gives it to one reader at a time."""

    def __init__(self, pid: Hashable, model: int) -> None:
        self.pid = pid
        self.model = model
        self.generation = 0
        self.size = 1
        """One more than the highest sequence: the length of every array by sequence."""
        self.documents = 0
        self.total_length = 0
        self.nbytes = 0
        """About how many bytes of RAM this takes."""
        self.pending = 0
        """How many memories cannot be found by meaning yet."""
        self.all_live = True
        self.all_embedded = True
        self.outside: NDArray[np.uint32] | None = None
        """The sequences whose vectors a VectorIndex holds, ascending; None when RAM holds all."""
        self._epoch = 0
        self._words: dict[int, sealed.WordsSegment] = {}
        self._vectors: dict[int, sealed.VectorsSegment] = {}
        self._whose: dict[int, NDArray[np.uint32]] = {}
        self._words_tail = _WordsTail()
        self._vectors_tail = _VectorsTail()
        self._lengths = np.zeros(1, np.float32)
        self._previous = np.zeros(1, np.intp)
        self._next = np.zeros(1, np.intp)
        self._occurred = np.zeros(1, np.int64)
        self._trust = np.zeros(1, np.uint8)
        self._confidence = np.zeros(1, np.uint8)
        self._live = np.zeros(1, np.bool_)
        self._embedded = np.zeros(1, np.bool_)
        self._expiries: list[tuple[int, int]] = []
        self._metadata: dict[int, Mapping[str, Any]] = {}
        self._metadata_upto = -1

    # -- bringing it up to date -------------------------------------------------------------

    def refresh(
        self, snapshot: Snapshot, state: PartitionState, large: LargePartitions | None = None
    ) -> None:
        """Make this the index of what `snapshot` sees."""
        if state.generation == self.generation:
            return
        changed = state.epoch != self._epoch
        vector_segments = self._reload(snapshot, state) if changed else []
        self._grow(state.next_seq)
        for row in snapshot.tail_words(state, self._words_tail.last_seq):
            self._add_document(row)
            self._words_tail.append(row)
        if changed:
            self._read_vectors(snapshot, state, vector_segments, large)
        vectors = snapshot.tail_vectors(state, self.model, self._vectors_tail.last_row)
        if vectors:
            self._vectors_tail.append(vectors)
            self._embedded[[row[1] for row in vectors]] = True
        if changed:  # after the tail, whose rows may be superseded as well
            self._live[snapshot.hidden(state)] = False
        self._expiries = snapshot.expiries(state)
        self.generation, self._epoch = state.generation, state.epoch
        self._measure()

    def _reload(self, snapshot: Snapshot, state: PartitionState) -> list[SegmentInfo]:
        """Read the words and the columns again; which vector segments there are."""
        words: dict[int, sealed.WordsSegment] = {}
        vectors: list[SegmentInfo] = []
        for info in snapshot.segments(state):
            if info.kind == "words":
                words[info.sid] = self._words.get(info.sid) or sealed.read_words(
                    snapshot.segment_blob(state, info.sid)
                )
            elif info.model == self.model:
                vectors.append(info)
        self._words = words
        self._words_tail, self._vectors_tail = _WordsTail(), _VectorsTail()
        self._metadata, self._metadata_upto = {}, -1
        self._read_columns(state.next_seq)
        return vectors

    def _read_vectors(
        self,
        snapshot: Snapshot,
        state: PartitionState,
        infos: Sequence[SegmentInfo],
        large: LargePartitions | None,
    ) -> None:
        """The sealed vectors; only whose they are, where a VectorIndex holds them."""
        self.outside = None
        whose: dict[int, NDArray[np.uint32]] = {}
        if large is not None and large.wants(state):
            whose = {info.sid: self._members(snapshot, state, info) for info in infos}
            seqs = np.unique(np.concatenate([np.empty(0, np.uint32), *whose.values()]))
            if large.holds(state, self.model, seqs):
                self.outside = seqs
        self._whose = whose
        self._vectors = {
            info.sid: self._vectors.get(info.sid)
            or sealed.read_vectors(snapshot.segment_blob(state, info.sid))
            for info in (infos if self.outside is None else ())
        }
        in_ram = [segment.seqs for segment in self._vectors.values()]
        for seqs in in_ram if self.outside is None else [self.outside]:
            self._check(seqs)
            self._embedded[seqs] = True

    def _members(
        self, snapshot: Snapshot, state: PartitionState, info: SegmentInfo
    ) -> NDArray[np.uint32]:
        """Whose vectors a segment holds: without its blob, if it has all memories of its range."""
        known = self._whose.get(info.sid)
        if known is None:
            range_ = self._live[info.min_seq : info.max_seq + 1]
            known = (np.flatnonzero(range_) + info.min_seq).astype(np.uint32)
            if len(known) != info.count:
                known = sealed.read_vectors(snapshot.segment_blob(state, info.sid)).seqs.copy()
        return known

    def _check(self, seqs: NDArray[np.uint32]) -> None:
        if len(seqs) and int(seqs.max()) >= self.size:
            raise _strange()

    def _read_columns(self, size: int) -> None:
        self.size = size
        for words in self._words.values():
            self._check(words.seqs)
            self._check(words.previous)
        self._lengths = np.zeros(size, np.float32)
        self._previous = np.zeros(size, np.intp)
        self._next = np.zeros(size, np.intp)
        self._occurred = np.zeros(size, np.int64)
        self._trust = np.zeros(size, np.uint8)
        self._confidence = np.zeros(size, np.uint8)
        self._live = np.zeros(size, np.bool_)
        self._embedded = np.zeros(size, np.bool_)
        for segment in self._words.values():
            self._lengths[segment.seqs] = segment.lengths
            self._previous[segment.seqs] = segment.previous
            self._occurred[segment.seqs] = segment.occurred_at
            self._trust[segment.seqs] = segment.trust
            self._confidence[segment.seqs] = segment.confidence
            self._live[segment.seqs] = True
        follows = np.flatnonzero(self._previous)
        self._next[self._previous[follows]] = follows
        self._next[0] = 0
        self.documents = sum(len(s.seqs) for s in self._words.values())
        self.total_length = int(self._lengths.sum())

    def _grow(self, size: int) -> None:
        if size > len(self._live):
            room = max(size, 64, len(self._live) * 3 // 2)
            for name in _COLUMNS:
                old = getattr(self, name)
                grown = np.zeros(room, old.dtype)
                grown[: len(old)] = old
                setattr(self, name, grown)
        self.size = max(size, self.size)

    def _add_document(self, row: TailWords) -> None:
        seq = row.seq
        if not 0 <= row.previous < self.size:
            raise _strange()
        self._lengths[seq] = row.length
        self._previous[seq] = row.previous
        if row.previous:
            self._next[row.previous] = seq
        self._occurred[seq] = row.occurred_at
        self._trust[seq] = row.trust
        self._confidence[seq] = row.confidence
        self._live[seq] = True
        self.documents += 1
        self.total_length += row.length

    # -- columns by sequence ----------------------------------------------------------------

    @property
    def lengths(self) -> NDArray[np.float32]:
        """Words of each memory, float32 (size,); 0 where there is none."""
        return self._lengths[: self.size]

    @property
    def previous(self) -> NDArray[np.intp]:
        """The memory before each one in its session, intp (size,); 0 for none."""
        return self._previous[: self.size]

    @property
    def following(self) -> NDArray[np.intp]:
        """The memory after each one in its session, intp (size,); 0 for none."""
        return self._next[: self.size]

    @property
    def occurred(self) -> NDArray[np.int64]:
        """When each was said, int64 microseconds (size,)."""
        return self._occurred[: self.size]

    @property
    def trust(self) -> NDArray[np.uint8]:
        """How far each source is trusted, uint8 hundredths (size,)."""
        return self._trust[: self.size]

    @property
    def confidence(self) -> NDArray[np.uint8]:
        """How sure each memory is, uint8 hundredths (size,)."""
        return self._confidence[: self.size]

    def live(self, now_micros: int) -> NDArray[np.bool_] | None:
        """Which memories are active and not expired, bool (size,); None when all are."""
        expired = [seq for seq, at in self._expiries if at <= now_micros]
        if not expired:
            return None if self.all_live else self._live[: self.size]
        live = self._live[: self.size].copy()
        live[expired] = False
        return live

    @property
    def embedded(self) -> NDArray[np.bool_]:
        """Which memories have a vector of the model, bool (size,)."""
        return self._embedded[: self.size]

    def metadata(
        self, snapshot: Snapshot, state: PartitionState
    ) -> Mapping[int, Mapping[str, Any]]:
        """The metadata of the memories that have any, read when first asked for and then kept."""
        if self._metadata_upto < self.size - 1:
            for seq, value in snapshot.metadata(state, max(self._metadata_upto, 0)):
                self._metadata[seq] = value
            self._metadata_upto = self.size - 1
        return self._metadata

    # -- what is searched -------------------------------------------------------------------

    def postings(self, terms: NDArray[np.uint64]) -> Iterator[Run]:
        """(index in `terms`, seqs, counts) of each run of postings of the terms."""
        for segment in self._words.values():
            if not len(segment.terms):
                continue
            places = np.searchsorted(segment.terms, terms)
            places[places == len(segment.terms)] = 0
            for i in np.flatnonzero(segment.terms[places] == terms).tolist():
                start, stop = segment.offsets[places[i]], segment.offsets[places[i] + 1]
                yield i, segment.posting_seqs[start:stop], segment.posting_counts[start:stop]
        for i, term in enumerate(terms.tolist()):
            found = self._words_tail.postings.get(term)
            if found:
                yield i, np.array(found[0], np.uint32), np.array(found[1], np.uint8)

    def cosines(
        self, query: NDArray[np.float32], brought: Mapping[int, bytes] | None = None
    ) -> NDArray[np.float32]:
        """The cosine of `query` (d,) with each memory's vector, float32 (size,); 0 without one.

        Of what lies `outside`, only what was `brought` (float16, by sequence) is compared.
        """
        found = np.zeros(self.size, np.float32)
        codes, scales = sealed.quantise(query[None, :])
        segments = [*self._vectors.values()]
        if brought:
            rows = [(0, seq, vector) for seq, vector in brought.items()]
            segments.append(sealed.vectors_from_tail(rows))
        tail = self._vectors_tail.view()
        for segment in (*segments, *([tail] if tail else [])):
            scores = dots(codes[0], segment.codes)
            scores *= segment.scales
            found[segment.places] = scores
        found *= scales[0]
        return found

    def _measure(self) -> None:
        """The figures that stay the same until the next change."""
        live = self._live[: self.size]
        self.all_live = bool(live[1:].all())
        self.pending = int(np.count_nonzero(live & ~self._embedded[: self.size]))
        self.all_embedded = bool(self._embedded[1 : self.size].all())
        columns = 32 * len(self._live)
        tail = 600 * self._words_tail.count + 800 * self._vectors_tail.count
        words = sum(segment.nbytes for segment in self._words.values())
        vectors = sum(segment.nbytes for segment in self._vectors.values())
        vectors += sum(seqs.nbytes for seqs in self._whose.values())
        self.nbytes = columns + tail + words + vectors + 300 * len(self._metadata) + 1024


def micros(value: datetime) -> int:
    """Microseconds since 1970 of an aware time."""
    return int(value.timestamp() * 1_000_000)
