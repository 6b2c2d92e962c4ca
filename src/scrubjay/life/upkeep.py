"""Keeping a store sound: what it holds, what is wrong, and building its indexes anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from scrubjay.errors import ModelError, StoreDamaged
from scrubjay.index import compact, segments
from scrubjay.index.cache import IndexCache
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.index.words import pack
from scrubjay.model import PartitionKey, Value
from scrubjay.ports import Snapshot, Store

_EMBED_BATCH = 64

Progress = Callable[[int, int, str], None]
"""(done, total, what): called now and then by long work."""


@dataclass(frozen=True, slots=True)
class Health(Value):
    """What `doctor` found. `problems` is empty when the store is sound."""

    problems: tuple[str, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    jobs: Mapping[str, Any] = field(default_factory=dict)
    repaired: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def model_state(embedding: Embedding) -> dict[str, Any]:
    """The model in use and the models whose vectors the store still holds."""
    row = embedding.row
    return {
        "state": embedding.state,
        "name": row.name if row else None,
        "dimension": row.dimension if row else None,
        "error": embedding.error,
        "others": list(embedding.others),
    }


def mismatch_note(embedding: Embedding) -> str | None:
    """A note when some vectors come from another model than the one in use."""
    if not embedding.others:
        return None
    return (
        f"some memories have vectors of another model ({', '.join(embedding.others)}) and are "
        "found by words alone until `scrubjay reindex` has run"
    )


def pending_note(pending: int) -> str:
    """A note when some memories cannot be found by meaning yet."""
    return f"{pending} memories are found by words alone until their vectors are written"


def store_stats(store: Store, cache: IndexCache, embedding: Embedding) -> dict[str, Any]:
    """Counts of the whole store, its size, its jobs and the model."""
    keys = store.partition_keys()
    return {
        **store.counts(keys),
        "partitions": len(keys),
        "bytes_on_disk": store.size(),
        "bytes_cached": cache.nbytes,
        "jobs_by_state": _job_counts(store),
        "model": model_state(embedding),
    }


def _job_counts(store: Store) -> dict[str, Any]:
    counts = store.job_counts(datetime.now(UTC))
    return {
        "ready": counts.ready, "leased": counts.leased, "waiting": counts.waiting,
        "dead": counts.dead, "kinds": dict(counts.kinds),
    }  # fmt: skip


def doctor(
    store: Store,
    cache: IndexCache,
    embedding: Embedding,
    large: LargePartitions | None,
    *,
    repair: bool,
) -> Health:
    """Look for damage in the file and between rows and indexes; with `repair`, mend it."""
    problems = store.check()
    repaired: list[str] = []
    if not problems:
        problems = _check_indexes(store)
        if problems and repair:
            for key in store.partition_keys():
                if _index_problem(store, key) is not None:
                    store.rebuild_words(key, pack)
                    store.unseal_vectors(key)
                    repaired.append("the index of one partition was built anew")
            problems = _check_indexes(store)
    if large is not None and not problems:
        if repair:
            repaired += _mend_large(large)
        problems = [p for key in large.every() if (p := _lag(large, key)) is not None]
    if repair:
        revived = store.revive()
        if revived:
            repaired.append(f"{revived} jobs will be tried again")
        cache.clear()
    jobs = _job_counts(store)
    if jobs["dead"]:
        problems.append(
            f"{jobs['dead']} jobs failed too often and wait; `scrubjay doctor --repair` tries again"
        )
    return Health(tuple(problems), model_state(embedding), jobs, tuple(repaired))


def _lag(large: LargePartitions, key: PartitionKey) -> str | None:
    """What is wrong between a partition's vectors and their copies in the VectorIndex."""
    lacking, strays = large.lacking(key), len(large.strays(key))
    if not lacking and not strays:
        return None
    return (
        f"the vector index lacks {lacking} vectors of a large partition and has {strays} that are "
        "gone; `scrubjay doctor --repair` brings it in line"
    )


def _mend_large(large: LargePartitions) -> list[str]:
    large.tidy()
    lagging = [key for key in large.every() if _lag(large, key) is not None]
    for key in lagging:
        large.mend(key)
    return ["the vector index of one partition was brought in line"] * len(lagging)


def _check_indexes(store: Store) -> list[str]:
    found = (_index_problem(store, key) for key in store.partition_keys())
    return [problem for problem in found if problem is not None]


def _index_problem(store: Store, key: PartitionKey) -> str | None:
    """What is wrong between a partition's rows and its index; None when sound."""
    try:
        return _check_words(store, key) or _check_vectors(store, key)
    except StoreDamaged as exc:
        return str(exc)


def _check_words(store: Store, key: PartitionKey) -> str | None:
    """Whether each memory of a partition has its words in the tail or in one segment."""
    with store.snapshot() as snapshot:
        states = snapshot.partitions([key])
        if not states:
            return None
        indexed = [row.seq for row in snapshot.tail_words(states[0])]
        for info in snapshot.segments(states[0]):
            if info.kind == "words":
                blob = snapshot.segment_blob(states[0], info.sid)
                indexed += segments.read_words(blob).seqs.tolist()
        rows = _all_seqs(snapshot, key)
    if len(indexed) != len(set(indexed)):
        return "some memories have their words twice in the index; `scrubjay doctor --repair`"
    missing, foreign = len(rows - set(indexed)), len(set(indexed) - rows)
    if missing or foreign:
        return (
            f"the word index lacks {missing} memories and has {foreign} that are gone; "
            "`scrubjay doctor --repair` builds it anew"
        )
    return None


def _check_vectors(store: Store, key: PartitionKey) -> str | None:
    """Whether the vectors marked as sealed are in a segment."""
    held: dict[int, set[int]] = {}
    with store.snapshot() as snapshot:
        states = snapshot.partitions([key])
        for info in snapshot.segments(states[0]) if states else ():
            if info.kind == "vectors":
                blob = snapshot.segment_blob(states[0], info.sid)
                seqs = segments.read_vectors(blob).seqs.tolist()
                held.setdefault(info.model, set()).update(seqs)
    for row in store.models():
        lost = set(store.sealed_vectors(key, row.number)) - held.get(row.number, set())
        if lost:
            return (
                f"the vectors of {len(lost)} memories are in no segment; `scrubjay doctor "
                "--repair` builds them anew"
            )
    return None


def _all_seqs(snapshot: Snapshot, key: PartitionKey) -> set[int]:
    from scrubjay.storage import Criteria

    (state,) = snapshot.partitions([key])
    return set(snapshot.select(state, Criteria(now=datetime.now(UTC), states=None)))


def reindex(
    store: Store,
    cache: IndexCache,
    embedding: Embedding,
    large: LargePartitions | None,
    progress: Progress | None,
) -> dict[str, int]:
    """Build the words anew, and give every memory a vector of the present model.

    Reading goes on meanwhile, of large partitions by words alone while their copies in the
    VectorIndex are made anew. Stopped halfway, it goes on with what is missing when called
    again; vectors of other models go when none is missing.
    """
    keys = store.partition_keys()
    counts = {"partitions": len(keys), "words": 0, "vectors": 0, "vectors_dropped": 0}
    for done, key in enumerate(keys):
        counts["words"] += store.rebuild_words(key, pack)
        compact.seal(store, key)
        if progress:
            progress(done + 1, len(keys), "words")
    if embedding.configured:
        counts["vectors"] = _embed_missing(store, embedding, progress)
        for row in store.models():
            if embedding.row is not None and row.number != embedding.row.number:
                counts["vectors_dropped"] += store.drop_model(row.number)
        embedding.look_again()
        for key in keys:
            compact.seal(store, key)
    if large is not None:
        large.rebuild()
    cache.clear()
    return counts


def _embed_missing(store: Store, embedding: Embedding, progress: Progress | None) -> int:
    import numpy as np

    embedding.load()
    row = embedding.row
    if row is None:
        raise ModelError("the model was closed")
    written = 0
    total = store.count_missing(row.number)
    for key in store.partition_keys():
        after = 0
        while seqs := store.missing_vectors(key, row.number, after, _EMBED_BATCH):
            texts = store.texts(key, seqs)  # some may have been forgotten since
            if texts:
                vectors = embedding.embed(list(texts.values()), "passage").astype(np.float16)
                rows = {seq: v.tobytes() for seq, v in zip(texts, vectors, strict=True)}
                written += store.put_vectors(key, row.number, rows)
            after = seqs[-1]
            if progress:
                progress(written, max(total, written), "vectors")
    return written
