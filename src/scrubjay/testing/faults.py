"""A store, an embedder and a clock that fail on purpose, the same way from the same seed.

Each wraps a real one (or is one), so that what is tested is the code around it. A fault is
scripted, by call, or drawn from a seeded generator; either way a failing run can be repeated.
"""

from __future__ import annotations

import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from scrubjay.errors import (
    ModelRejected,
    ModelUnavailable,
    ScrubjayError,
    StoreBusy,
    StoreError,
    StoreFull,
)
from scrubjay.ports import Embedder, Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EmbedFault = Literal["outage", "partial", "wrong", "rejected", "slow", "crash"]
"""`outage` raises ModelUnavailable, `partial` returns a row too few, `wrong` rows of another
length, `rejected` raises ModelRejected, `slow` answers late, `crash` raises a bare error."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the nth call (from 1) of a method: a delay, then the error, if any.

    With `after` the call is done first and the error hides its outcome, as when a connection
    breaks after the commit.
    """

    method: str
    call: int
    error: ScrubjayError | None = None
    delay_s: float = 0.0
    after: bool = False


class FaultyStore:
    """Passes for the `Store` it wraps, and fails as told.

    `faults` are scripted. Besides, each call of one of `methods` (None: all but `close`) fails
    with the chance `rate`, with one of `errors`, drawn from `seed`. `calls` counts by method.

    >>> from scrubjay.errors import StoreFull
    >>> class Fine:
    ...     def size(self) -> int: return 7
    >>> store = FaultyStore(Fine(), faults=[Fault("size", 2, StoreFull("no space left"))])
    >>> store.size()
    7
    >>> store.size()
    Traceback (most recent call last):
    scrubjay.errors.StoreFull: no space left
    >>> store.size(), store.calls["size"]
    (7, 3)
    """

    def __init__(
        self,
        store: Store,
        *,
        faults: Iterable[Fault] = (),
        seed: int = 0,
        rate: float = 0.0,
        methods: Sequence[str] | None = None,
        errors: Sequence[type[StoreError]] = (StoreBusy, StoreFull),
    ) -> None:
        self.wrapped = store
        self.calls: Counter[str] = Counter()
        self._scripted = {(fault.method, fault.call): fault for fault in faults}
        self._random = random.Random(seed)
        self._rate = rate
        self._methods = methods
        self._errors = errors
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.wrapped, name)
        if name.startswith("_") or not callable(found):
            return found

        @functools.wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            fault = self._next(name)
            if fault is None:
                return found(*args, **kwargs)
            if fault.delay_s:
                time.sleep(fault.delay_s)
            result = found(*args, **kwargs) if fault.after or fault.error is None else None
            if fault.error is not None:
                raise fault.error
            return result

        return call

    def _next(self, name: str) -> Fault | None:
        with self._lock:
            self.calls[name] += 1
            number = self.calls[name]
            scripted = self._scripted.get((name, number))
            if scripted is not None:
                return scripted
            chosen = name != "close" if self._methods is None else name in self._methods
            if not chosen or not self._rate or self._random.random() >= self._rate:
                return None
            error = self._random.choice(self._errors)
            return Fault(name, number, error(f"injected at call {number} of {name}; try again"))


class FaultyEmbedder:
    """An embedder that fails at the calls a script names, by chance, or at texts it rejects.

    `script` gives one fault (or None) for each call in turn; when it is used up, each call fails
    with the chance `rate`, with one of `kinds`. A batch that holds a text for which `rejects` is
    true is refused as a whole, as endpoints do. `down` makes every call an outage while it is
    set.

    >>> from scrubjay.testing.fakes import HashEmbedder
    >>> embedder = FaultyEmbedder(HashEmbedder(8), script=["outage", None])
    >>> embedder.embed(["tea"], "query")
    Traceback (most recent call last):
    scrubjay.errors.ModelUnavailable: injected outage; try again later
    >>> embedder.embed(["tea"], "query").shape
    (1, 8)
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        script: Iterable[EmbedFault | None] = (),
        seed: int = 0,
        rate: float = 0.0,
        kinds: Sequence[EmbedFault] = ("outage",),
        rejects: Callable[[str], bool] | None = None,
        slow_s: float = 0.2,
    ) -> None:
        self.wrapped = embedder
        self.down = threading.Event()
        self.calls = 0
        self.failures = 0
        self._script = iter(list(script))
        self._random = random.Random(seed)
        self._rate = rate
        self._kinds = kinds
        self._rejects = rejects
        self._slow_s = slow_s
        self._lock = threading.Lock()

    @property
    def model_id(self) -> str:
        """See `Embedder.model_id`."""
        return self.wrapped.model_id

    @property
    def dimension(self) -> int:
        """See `Embedder.dimension`."""
        return self.wrapped.dimension

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """See `Embedder.embed`, and the faults."""
        fault = self._next()
        if self.down.is_set() or fault == "outage":
            raise ModelUnavailable("injected outage; try again later")
        if fault == "rejected" or (self._rejects and any(map(self._rejects, texts))):
            raise ModelRejected("injected refusal of this input")
        if fault == "crash":
            raise RuntimeError("injected error of a stranger's library")
        if fault == "slow":
            time.sleep(self._slow_s)
        vectors = self.wrapped.embed(texts, role)
        if fault == "partial":
            return vectors[:-1]
        return vectors[:, :-1] if fault == "wrong" else vectors

    def _next(self) -> EmbedFault | None:
        with self._lock:
            self.calls += 1
            for fault in self._script:
                self.failures += fault is not None
                return fault
            if self._rate and self._random.random() < self._rate:
                self.failures += 1
                return self._random.choice(self._kinds)
            return None

    def close(self) -> None:
        """See `Embedder.close`."""
        self.wrapped.close()


class SimulatedClock:
    """A clock that stands still until told; it may be set back, as real ones are.

    >>> clock = SimulatedClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(days=1)
    >>> clock().isoformat()
    '2026-01-02T00:00:00+00:00'
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = _aware(start)

    def __call__(self) -> datetime:
        """The time it was told."""
        with self._lock:
            return self._now

    def set(self, now: datetime) -> None:
        """Make it this time, earlier or later."""
        with self._lock:
            self._now = _aware(now)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move on by so much; back when it is negative."""
        with self._lock:
            self._now += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a clock gives aware times; pass tzinfo=UTC")
    return value.astimezone(UTC)
