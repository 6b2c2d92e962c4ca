"""The verbs for async programs: the same ones, each run in a thread.

There is one copy of the logic. Every method here is made from the verb of the same name, with
its signature and its documentation, so the two cannot drift apart.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from scrubjay.memory import MemoryCore

P = ParamSpec("P")
R = TypeVar("R")


def _offloaded(
    verb: Callable[Concatenate[MemoryCore, P], R],
) -> Callable[Concatenate[AsyncMemoryCore, P], Coroutine[Any, Any, R]]:
    """The verb as a coroutine that runs it in a thread."""

    @functools.wraps(verb)
    async def run(self: AsyncMemoryCore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(verb, self.sync, *args, **kwargs)

    return run


class AsyncMemoryCore:
    """The verbs of `MemoryCore`, to be awaited. `sync` is the memory behind it."""

    def __init__(self, memory: MemoryCore) -> None:
        self.sync = memory

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    add = _offloaded(MemoryCore.add)
    search = _offloaded(MemoryCore.search)
    context = _offloaded(MemoryCore.context)
    get = _offloaded(MemoryCore.get)
    list = _offloaded(MemoryCore.list)
    update = _offloaded(MemoryCore.update)
    history = _offloaded(MemoryCore.history)
    delete = _offloaded(MemoryCore.delete)
    forget = _offloaded(MemoryCore.forget)
    export = _offloaded(MemoryCore.export)
    import_ = _offloaded(MemoryCore.import_)
    backup = _offloaded(MemoryCore.backup)
    restore = _offloaded(MemoryCore.restore)
    stats = _offloaded(MemoryCore.stats)
    doctor = _offloaded(MemoryCore.doctor)
    reindex = _offloaded(MemoryCore.reindex)
    flush = _offloaded(MemoryCore.flush)
    close = _offloaded(MemoryCore.close)
