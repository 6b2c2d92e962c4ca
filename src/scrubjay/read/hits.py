"""From candidates to hits: whole records, the bounded terms, the scope checked once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scrubjay.model import Hit, MemoryRecord, PartitionKey, RecallPolicy, Scope, State
from scrubjay.ports import Snapshot
from scrubjay.read.search import Candidate
from scrubjay.storage import Criteria, PartitionState


def hydrate(
    snapshot: Snapshot,
    found: Sequence[Candidate],
    scope: Scope,
    keys: Sequence[PartitionKey],
    criteria: Criteria,
    policy: RecallPolicy,
    *,
    explain: bool,
) -> list[Hit]:
    """The hits of the candidates, ordered by final score; equals by time, then id."""
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
            hits.append(_hit(record, candidate, criteria, policy, explain=explain))
    hits.sort(key=lambda h: (-h.score, -h.occurred_at.timestamp(), h.id))
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
    policy: RecallPolicy,
    *,
    explain: bool,
) -> Hit:
    doubt = policy.confidence * (1 - record.confidence) + policy.trust * (1 - record.trust)
    score = candidate.score * (1 - doubt)
    state = State.ACTIVE if criteria.as_of is not None else record.state
    explanation = None
    if explain:
        explanation = {
            "words": round(candidate.words, 4),
            "meaning": round(candidate.meaning, 4),
            "relevance": round(candidate.relevance, 4),
            "recency": round(candidate.score / candidate.relevance, 4),
            "confidence": record.confidence,
            "trust": record.trust,
        }
    if state is not record.state:
        record = replace(record, state=state)
    return Hit(
        id=record.id,
        content=record.content,
        relevance=min(1.0, candidate.relevance),
        score=score,
        kind=record.kind,
        occurred_at=record.occurred_at,
        confidence=record.confidence,
        state=state,
        memory=record,
        explanation=explanation,
    )
