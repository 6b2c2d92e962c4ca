"""From candidates to hits: whole records, and the scope checked once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scrubjay.model import Hit, MemoryRecord, PartitionKey, Scope, State
from scrubjay.ports import Snapshot
from scrubjay.read.search import Candidate
from scrubjay.storage import Criteria, PartitionState


def hydrate(
    snapshot: Snapshot,
    found: Sequence[Candidate],
    scope: Scope,
    keys: Sequence[PartitionKey],
    criteria: Criteria,
    *,
    explain: bool,
) -> list[Hit]:
    """The hits of the candidates, in their order."""
    by_partition: dict[PartitionState, list[int]] = {}
    for candidate in found:
        by_partition.setdefault(candidate.state, []).append(candidate.seq)
    records = {
        (state.pid, record.seq): record
        for state, seqs in by_partition.items()
        for record in snapshot.records(state, seqs)
    }
    hits = []
    for candidate in found:
        record = records.get((candidate.state.pid, candidate.seq))
        if record is not None and _is_inside(record, candidate.state, scope, keys):
            hits.append(_hit(record, candidate, criteria, explain=explain))
    return hits


def _is_inside(
    record: MemoryRecord, state: PartitionState, scope: Scope, keys: Sequence[PartitionKey]
) -> bool:
    """The second look at the scope, from the record itself and not from the query."""
    if state.key not in keys or record.scope.tenant != scope.tenant:
        return False
    if scope.namespace is not None and record.scope.namespace != scope.namespace:
        return False
    if scope.session_id is None or record.scope.session_id == scope.session_id:
        return True
    return any(source.session_id == scope.session_id for source in record.sources)


def _hit(
    record: MemoryRecord,
    candidate: Candidate,
    criteria: Criteria,
    *,
    explain: bool,
) -> Hit:
    state = State.ACTIVE if criteria.as_of is not None else record.state
    explanation = None
    if explain:
        explanation = {
            "words": round(candidate.words, 4),
            "meaning": round(candidate.meaning, 4),
            "relevance": round(candidate.relevance, 4),
            "recency": round(candidate.recency, 4),
            "confidence": record.confidence,
            "trust": record.trust,
        }
    if state is not record.state:
        record = replace(record, state=state)
    return Hit(
        id=record.id,
        content=record.content,
        relevance=candidate.relevance,
        score=candidate.score,
        kind=record.kind,
        occurred_at=record.occurred_at,
        confidence=record.confidence,
        state=state,
        memory=record,
        explanation=explanation,
    )
