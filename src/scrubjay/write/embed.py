"""Gives memories their vectors: the `embed` job.

Those of a large partition are copied to the VectorIndex before the job is completed, so that a
crash between the two makes the job run again.

A batch that fails is tried again text by text at once, so that one bad text does not hold up
the others. After two failures in a row the model itself is asked: when it is down, everything
waits and nothing counts as tried; when it answers, the failures are the texts' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from scrubjay.errors import ModelError, ModelRejected
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.model import Job, PartitionKey
from scrubjay.ports import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ATTEMPTS = 6
_FIRST_RETRY_S = 2.0
_LAST_RETRY_S = 300.0


@dataclass(slots=True)
class _Outcome:
    """What became of the texts of a batch, by position."""

    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    is_outage: bool = False


def embed_jobs(
    store: Store,
    embedding: Embedding,
    jobs: Sequence[Job],
    now: datetime,
    large: LargePartitions | None = None,
) -> int:
    """Run claimed `embed` jobs; each is completed or given back. Returns the vectors written."""
    owners = [(job, int(seq)) for job in jobs for seq in job.payload["seqs"]]
    texts = _texts(store, owners)
    present = [(job, seq, texts[job.partition, seq]) for job, seq in owners
               if (job.partition, seq) in texts]  # fmt: skip
    try:
        embedding.load()
        embedding.look_again()
    except ModelError as exc:
        for job in jobs:
            _give_back(store, job, list(job.payload["seqs"]), str(exc), now, counted=False)
        return 0
    outcome = _embed([text for _, _, text in present], embedding)
    written = _write(store, embedding, present, outcome, large)
    _settle(store, jobs, present, outcome, now)
    return written


def _texts(store: Store, owners: Sequence[tuple[Job, int]]) -> dict[tuple[PartitionKey, int], str]:
    by_partition: dict[PartitionKey, list[int]] = {}
    for job, seq in owners:
        by_partition.setdefault(job.partition, []).append(seq)
    return {
        (key, seq): text
        for key, seqs in by_partition.items()
        for seq, text in store.texts(key, seqs).items()
    }


def _embed(texts: Sequence[str], embedding: Embedding) -> _Outcome:
    outcome = _Outcome()
    if not texts:
        return outcome
    try:
        outcome.vectors = dict(enumerate(embedding.embed(texts, "passage")))
    except ModelError:
        _embed_singly(texts, embedding, outcome)
    return outcome


def _embed_singly(texts: Sequence[str], embedding: Embedding, outcome: _Outcome) -> None:
    failures_in_a_row = 0
    for i, text in enumerate(texts):
        if outcome.is_outage:
            outcome.failed[i] = "the model is down"
            continue
        try:
            outcome.vectors[i] = embedding.embed([text], "passage")[0]
            failures_in_a_row = 0
        except ModelRejected as exc:
            outcome.rejected[i] = str(exc)
        except ModelError as exc:
            outcome.failed[i] = str(exc)
            failures_in_a_row += 1
            if failures_in_a_row == 2 or len(texts) == 1:
                outcome.is_outage = not embedding.works()


def _write(
    store: Store,
    embedding: Embedding,
    present: Sequence[tuple[Job, int, str]],
    outcome: _Outcome,
    large: LargePartitions | None,
) -> int:
    row = embedding.row
    if row is None:
        return 0
    import numpy as np

    by_partition: dict[PartitionKey, dict[int, bytes]] = {}
    for i, vector in outcome.vectors.items():
        job, seq, _ = present[i]
        by_partition.setdefault(job.partition, {})[seq] = vector.astype(np.float16).tobytes()
    written = sum(store.put_vectors(key, row.number, v) for key, v in by_partition.items())
    if large is not None:
        for key, vectors in by_partition.items():
            large.put(key, row.number, list(vectors))
    return written


def _settle(
    store: Store,
    jobs: Sequence[Job],
    present: Sequence[tuple[Job, int, str]],
    outcome: _Outcome,
    now: datetime,
) -> None:
    """Complete what is done; what failed comes back later, what never will stays visible."""
    done: list[Job] = []
    for job in jobs:
        mine = {i: seq for i, (owner, seq, _) in enumerate(present) if owner is job}
        bad = {i: seq for i, seq in mine.items() if i in outcome.rejected}
        again = {i: seq for i, seq in mine.items() if i in outcome.failed}
        if bad:
            if again:
                store.enqueue(job.partition, "embed", {"seqs": list(again.values())}, priority=1)
            reason = next(outcome.rejected[i] for i in bad)
            store.fail(job, reason, None, {"seqs": list(bad.values())})
        elif again:
            reason = next(outcome.failed[i] for i in again)
            counted = not outcome.is_outage
            _give_back(store, job, list(again.values()), reason, now, counted=counted)
        else:
            done.append(job)
    store.complete(done)


def _give_back(
    store: Store, job: Job, seqs: Sequence[int], error: str, now: datetime, *, counted: bool
) -> None:
    """Try again later; a text that failed too often while the model worked is given up."""
    tried = int(job.payload.get("tried", 0)) + counted
    rounds = int(job.payload.get("rounds", 0)) + 1
    payload = {"seqs": list(seqs), "tried": tried, "rounds": rounds}
    if tried >= MAX_ATTEMPTS:
        store.fail(job, error, None, payload)
        return
    wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(rounds - 1, 20))
    store.fail(job, error, now + timedelta(seconds=wait_s), payload)
