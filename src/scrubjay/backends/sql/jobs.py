"""The table of background work: claim under a lease, complete, give back.

The jobs of one partition are done one after another: while a worker holds any of them, no
other may claim the rest, so that what a user said first is also derived first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from scrubjay.backends.sql.rows import Rows, micros, micros_or_none
from scrubjay.backends.sql.session import Row, Session
from scrubjay.model import Job, PartitionKey
from scrubjay.storage import JobCounts

_ALWAYS = (1 << 62) - 1


def _job(session: Session, rows: Rows, row: Row) -> Job:
    jid, pid, kind, payload, attempts, last_error = row
    names = session.one("partition_key", pid)
    assert names is not None, "a job belongs to a partition"
    key = PartitionKey(*names)
    opened = rows.open_json(payload, key, "payload")
    return Job(jid, kind, key, opened, attempts, last_error=last_error)


def first_kind(session: Session, now: datetime) -> str | None:
    """The kind a claim would take, None for no job; asked first, since asking takes no lock."""
    row = session.one("claim_first", *[micros(now)] * 3)
    return None if row is None else str(row[0])


def claim(session: Session, rows: Rows, limit: int, lease_s: float, now: datetime) -> list[Job]:
    """See `Store.claim`."""
    present = micros(now)
    kind = first_kind(session, now)
    if kind is None:
        return []
    reserved = session.all("reserve", present, present, kind, limit)
    pids = list({row[0] for row in reserved})
    found: list[Row] = []
    for row in session.all("claim", present, present, kind, pids, present, limit):
        if found and limit < row[6]:
            break
        found.append(row)
        limit -= row[6]
    until = present + int(lease_s * 1_000_000)
    session.change_each("lease", [(until, row[0]) for row in found])
    return [
        replace(_job(session, rows, (*row[:4], row[4] + 1, row[5])), lease=until) for row in found
    ]


def complete(session: Session, jobs: Iterable[Job]) -> None:
    """See `Store.complete`. In one order everywhere, so that no two wait for one another."""
    session.change_each("complete", sorted((job.id, job.lease) for job in jobs))


def fail(
    session: Session,
    rows: Rows,
    job: Job,
    error: str,
    retry_at: datetime | None,
    payload: Mapping[str, Any],
) -> None:
    """See `Store.fail`."""
    told = error[:500].replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
    session.change(
        "fail", "ready" if retry_at else "dead", micros_or_none(retry_at) or 0, told,
        rows.seal_json(payload, job.partition, "payload"), job.id, job.lease,
    )  # fmt: skip


def counts(session: Session, now: datetime, added_by: datetime | None) -> JobCounts:
    """See `Store.job_counts`."""
    tally = dict.fromkeys(("ready", "leased", "waiting", "dead"), 0)
    kinds: dict[str, int] = {}
    until = _ALWAYS if added_by is None else micros(added_by)
    for state, kind, count in session.all("job_counts", micros(now), micros(now), until):
        tally[state] += count
        if state != "dead":
            kinds[kind] = kinds.get(kind, 0) + count
    return JobCounts(**tally, kinds=kinds)


def dead(session: Session, rows: Rows, pids: Sequence[object]) -> list[Job]:
    """See `Store.dead_jobs`."""
    return [_job(session, rows, row) for pid in pids for row in session.all("dead_jobs", pid)]
