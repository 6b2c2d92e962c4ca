"""The table of background work: claim under a lease, complete, give back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from scrubjay.backends.sqlite.queries import query
from scrubjay.backends.sqlite.rows import Rows, micros, micros_or_none
from scrubjay.model import Job, PartitionKey
from scrubjay.storage import JobCounts


def key_of(connection: sqlite3.Connection, pid: int) -> PartitionKey:
    """The key of a partition's number."""
    return PartitionKey(*connection.execute(query("partition_key"), (pid,)).fetchone())


def _job(connection: sqlite3.Connection, rows: Rows, row: Sequence[Any]) -> Job:
    jid, pid, kind, payload, attempts, last_error = row
    key = key_of(connection, pid)
    return Job(
        jid, kind, key, rows.open_json(payload, key, "payload"), attempts, last_error=last_error
    )


def has_ready(connection: sqlite3.Connection, now: datetime) -> bool:
    """Whether a claim would find anything; asked first, since asking takes no lock."""
    return connection.execute(query("claim_first"), (micros(now),)).fetchone() is not None


def claim(
    connection: sqlite3.Connection, rows: Rows, limit: int, lease_s: float, now: datetime
) -> list[Job]:
    """See `Store.claim`."""
    present = micros(now)
    first = connection.execute(query("claim_first"), (present,)).fetchone()
    if first is None:
        return []
    found: list[tuple[Any, ...]] = []
    for row in connection.execute(query("claim"), (present, first[0], limit)).fetchall():
        if found and limit < row[6]:
            break
        found.append(row)
        limit -= row[6]
    until = present + int(lease_s * 1_000_000)
    connection.executemany(query("lease"), [(until, row[0]) for row in found])
    return [
        replace(_job(connection, rows, (*row[:4], row[4] + 1, row[5])), lease=until)
        for row in found
    ]


def complete(connection: sqlite3.Connection, jobs: Iterable[Job]) -> None:
    """See `Store.complete`."""
    connection.executemany(query("complete"), [(job.id, job.lease) for job in jobs])


def fail(
    connection: sqlite3.Connection,
    rows: Rows,
    job: Job,
    error: str,
    retry_at: datetime | None,
    payload: Any,
) -> None:
    """See `Store.fail`."""
    connection.execute(
        query("fail"),
        ("ready" if retry_at else "dead", micros_or_none(retry_at) or 0, error[:500],
         rows.seal_json(payload, job.partition, "payload"), job.id, job.lease),
    )  # fmt: skip


def counts(connection: sqlite3.Connection, now: datetime, added_by: datetime | None) -> JobCounts:
    """See `Store.job_counts`."""
    tally = dict.fromkeys(("ready", "leased", "waiting", "dead"), 0)
    kinds: dict[str, int] = {}
    for state, kind, count in connection.execute(
        query("job_counts"), (micros(now), micros_or_none(added_by))
    ):
        tally[state] += count
        if state != "dead":
            kinds[kind] = kinds.get(kind, 0) + count
    return JobCounts(**tally, kinds=kinds)


def dead(connection: sqlite3.Connection, rows: Rows, pids: Sequence[int]) -> list[Job]:
    """See `Store.dead_jobs`."""
    return [
        _job(connection, rows, row)
        for pid in pids
        for row in connection.execute(query("dead_jobs"), (pid,)).fetchall()
    ]
