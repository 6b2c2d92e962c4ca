"""Runs background jobs: claim under a lease, run, acknowledge.

A job that was claimed by a process that died is ready again when its lease runs out, and each
job may run twice without harm. One thread a process; any number of processes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from scrubjay.errors import ScrubjayError, StoreClosed
from scrubjay.index import compact
from scrubjay.index.embedding import Embedding
from scrubjay.index.large import LargePartitions
from scrubjay.model import Job
from scrubjay.ports import Store
from scrubjay.write.embed import embed_jobs

BATCH = 64
"""Texts embedded at once: enough to fill the model's batches, few enough that a live write
does not wait long behind a bulk import."""
LEASE_S = 20.0
"""How long the jobs of a worker that died wait. A slower batch may run twice, without harm."""
LINGER_S = 0.05
"""How long a worker waits for more of the same after the first, unless someone waits for it:
one batch then does for many single writes."""
IDLE_S = 2.0
"""How often an idle worker looks for jobs that other processes left."""
_MAX_ATTEMPTS = 10

Progress = Callable[[int, int, str], None]


def _now() -> datetime:
    """Leases and retries follow the real clock, whatever clock the memory was given."""
    return datetime.now(UTC)


class Worker:
    """A `ports.Background` in a daemon thread, started when first needed."""

    def __init__(
        self, store: Store, embedding: Embedding, large: LargePartitions | None = None
    ) -> None:
        self._store = store
        self._embedding = embedding
        self._large = large
        self._start()
        atexit.register(_close, weakref.ref(self))

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._woken = False
        self._waited_for = 0

    def wake(self) -> None:
        """There is new work."""
        if os.getpid() != self._process:  # threads do not survive a fork
            self._start()
        with self._changed:
            if self._stopping:
                return
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="scrubjay-worker", daemon=True
                )
                self._thread.start()
            self._woken = True
            self._changed.notify_all()

    def flush(self, timeout_s: float | None = None, progress: Progress | None = None) -> bool:
        """Wait until no job is ready or running; False at the timeout, or if jobs wait or died."""
        began = _now()  # what is added from now on is not waited for, or the wait might never end
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.wake()
        with self._changed:
            self._waited_for += 1
            self._changed.notify_all()
        try:
            return self._wait(began, deadline, progress)
        finally:
            with self._changed:
                self._waited_for -= 1

    def _wait(self, began: datetime, deadline: float | None, progress: Progress | None) -> bool:
        most = 0
        while True:
            counts = self._store.job_counts(_now(), began)
            most = max(most, counts.ready + counts.leased)
            if progress is not None:
                progress(most - counts.ready - counts.leased, most, "jobs")
            if not counts.ready and not counts.leased:
                return not counts.waiting and not counts.dead
            if deadline is not None and time.monotonic() >= deadline:
                return False
            with self._changed:
                self._changed.wait(0.02)

    def close(self) -> None:
        """Stop after the job at hand. What is left waits in the store."""
        if os.getpid() != self._process:
            self._start()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                if self._woken and not self._waited_for:
                    self._changed.wait_for(lambda: self._stopping or self._waited_for, LINGER_S)
                self._woken = False
            try:
                worked = self._work()
            except StoreClosed:
                return
            except ScrubjayError:
                worked = False  # a busy or full disk: the jobs are still there for the next round
            with self._changed:
                self._changed.notify_all()
                if not worked and not self._woken and not self._stopping:
                    self._changed.wait(IDLE_S)

    def _work(self) -> bool:
        """Run one claim of jobs; False when there was none."""
        jobs = self._store.claim(BATCH, LEASE_S, _now())
        if not jobs:
            return False
        try:
            if jobs[0].kind == "embed":
                embed_jobs(self._store, self._embedding, jobs, _now(), self._large)
            elif jobs[0].kind == "index" and self._large is not None:
                self._large.run(jobs)
            else:  # `seal`; or `index` where the setting was taken back, which does no harm
                for job in jobs:
                    compact.seal(self._store, job.partition)
                self._store.complete(jobs)
        except StoreClosed:
            raise
        except Exception as exc:  # noqa: BLE001 - whatever a job does, the worker must outlive it
            for job in jobs:
                retry = None if job.attempts >= _MAX_ATTEMPTS else _now() + _delay(job)
                self._store.fail(job, f"{type(exc).__name__}: {exc}", retry, job.payload)
        return True


def _delay(job: Job) -> timedelta:
    return timedelta(seconds=min(300.0, 2.0**job.attempts))


def _close(reference: weakref.ref[Worker]) -> None:
    worker = reference()
    if worker is not None:
        worker.close()


class NoWorker:
    """A `ports.Background` that leaves the jobs to another process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def wake(self) -> None:
        """Nothing to wake here."""

    def flush(self, timeout_s: float | None = None, progress: Progress | None = None) -> bool:
        """Wait for the other process's worker; False when time runs out."""
        del progress
        began = _now()
        deadline = time.monotonic() + (60.0 if timeout_s is None else timeout_s)
        while time.monotonic() < deadline:
            counts = self._store.job_counts(_now(), began)
            if not counts.ready and not counts.leased:
                return not counts.waiting and not counts.dead
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """Nothing to stop."""
