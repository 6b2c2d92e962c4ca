"""`AsyncMemory` has the verbs of `Memory`, with their signatures, and they work."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from places import Places
from scrubjay import AsyncMemory, Memory, errors
from scrubjay.testing.fakes import HashEmbedder


def _verbs(kind: type) -> dict[str, object]:
    return {
        name: value
        for name, value in inspect.getmembers(kind)
        if callable(value) and not name.startswith("_")
    }


def test_the_same_verbs() -> None:
    """None more, none fewer."""
    assert set(_verbs(Memory)) == set(_verbs(AsyncMemory))


@pytest.mark.parametrize("name", [*sorted(_verbs(Memory)), "__init__"])
def test_the_same_signature(name: str) -> None:
    """Names, kinds, defaults, annotations and documentation."""
    one, other = getattr(Memory, name), getattr(AsyncMemory, name)
    assert inspect.signature(one) == inspect.signature(other)
    if name != "__init__":
        assert inspect.getdoc(one) == inspect.getdoc(other)
        assert inspect.iscoroutinefunction(other)
        assert not inspect.iscoroutinefunction(one)


def test_a_whole_life(place: Places, tmp_path: Path) -> None:
    """Every verb, once, as an async program would use it."""

    async def main() -> None:
        async with AsyncMemory(place(), embedder=HashEmbedder()) as memory:
            receipt = await memory.add("Mira has the spare key", user_id="ada", wait=True)
            assert receipt.memories[0].content == "Mira has the spare key"
            found = await memory.search("spare key", user_id="ada")
            assert found[0].id == receipt.ids[0]
            assert "Mira" in str(await memory.context("spare key", user_id="ada"))
            new = await memory.update(receipt.ids[0], "Otto has the spare key", user_id="ada")
            assert (await memory.get(new.id, user_id="ada")).version == 2
            assert len(await memory.list(user_id="ada")) == 1
            assert len(await memory.history(new.id, user_id="ada")) == 2
            assert (await memory.export(tmp_path / "e", user_id="ada"))["memory"] == 2
            await memory.backup(tmp_path / "b")
            assert (await memory.delete(new.id, user_id="ada")).complete
            assert (await memory.import_(tmp_path / "e", user_id="ada"))["written"] == 0
            assert await memory.restore(tmp_path / "b") == 2
            assert (await memory.forget(user_id="ada")).complete
            assert (await memory.stats(user_id="ada"))["memories"] == 0
            assert (await memory.reindex())["words"] == 0
            assert await memory.flush(10)
            assert (await memory.doctor()).sound
            with pytest.raises(errors.ScopeRequired):
                await memory.search("spare key")
        with pytest.raises(errors.StoreClosed):
            await memory.search("spare key", user_id="ada")

    asyncio.run(main())


def test_the_loop_is_not_held_up(place: Places) -> None:
    """While a verb works, other tasks go on."""

    class Slow(HashEmbedder):
        def embed(self, texts, role):  # type: ignore[no-untyped-def]
            import time

            time.sleep(0.1)
            return super().embed(texts, role)

    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async with AsyncMemory(place(), embedder=Slow()) as memory:
            ticking = asyncio.create_task(tick())
            await memory.add("one", user_id="ada", wait=True)
            await asyncio.gather(*(memory.search(f"q{n}", user_id="ada") for n in range(4)))
            ticking.cancel()
        return ticks

    assert asyncio.run(main()) > 20


def test_a_cancelled_call_harms_nothing(place: Places) -> None:
    """It may or may not have been done; the memory works on."""

    async def main() -> None:
        async with AsyncMemory(place(), embedder="none") as memory:
            for number in range(20):
                task = asyncio.create_task(memory.add(f"thing {number}", user_id="ada"))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await memory.add("the last", user_id="ada")
            contents = [r.content for r in await memory.list(user_id="ada")]
            assert "the last" in contents
            assert len(contents) == len(set(contents))
            assert (await memory.doctor()).sound

    asyncio.run(main())
