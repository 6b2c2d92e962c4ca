"""Forgetting, with a probe that looks afterwards for what should be gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from scrubjay.index.cache import IndexCache
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.index.segments import without
from scrubjay.model import Erasure, PartitionKey
from scrubjay.ports import Store
from scrubjay.storage import Target


def forget(
    store: Store,
    cache: IndexCache,
    embedding: Embedding,
    large: LargePartitions | None,
    keys: Sequence[PartitionKey],
    target: Target,
    now: datetime,
) -> Erasure:
    """Erase what `target` names, empty what RAM and a VectorIndex held of it, and probe.

    The probe counts what is still there under the erased ids and, for a whole scope, every row
    of it; in a VectorIndex, vectors that the Store does not know. All zeros means that nothing
    was found.
    """
    erasure = store.erase(keys, target, without, now)
    cache.clear()
    embedding.forget()
    if large is not None:
        large.forget(keys, whole=target.whole)
    probe: dict[str, int] = {}
    if target.whole:
        probe = {name: n for name, n in store.counts(keys).items() if "." not in name}
    else:
        with store.snapshot() as snapshot:
            left = sum(snapshot.locate(keys, i) is not None for i in erasure.memory_ids)
        probe = {"memories": left}
    if large is not None:
        probe["vector_index"] = sum(len(large.strays(key)) for key in keys)
    return replace(erasure, probe=probe)
