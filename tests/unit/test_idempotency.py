"""One key, one body: what is the same body, and what is another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from places import Places
from scrubjay import Memory
from scrubjay.errors import IdempotencyConflict

SAME: list[tuple[Any, Any]] = [
    ({"role": "user", "content": "z"}, {"content": "z", "role": "user"}),
    ({"content": "z"}, [{"content": "z"}]),
    ("z", {"role": "user", "content": "z"}),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"metadata": {"a": 1}}),
    ({}, {"session_id": "s"}),
    ({}, {"occurred_at": "2026-01-01"}),
    ({"occurred_at": "2026-01-01", "time_zone": "UTC"},
     {"occurred_at": "2026-01-01", "time_zone": "Asia/Shanghai"}),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_same_body_is_replayed(place: Places, first: Any, second: Any) -> None:
    times = iter(datetime(2026, 5, n, tzinfo=UTC) for n in range(1, 30))
    with Memory(place(), embedder="none", clock=lambda: next(times)) as memory:
        one = memory.add(first, user_id="u", idempotency_key="k", metadata={"a": 1, "b": 2})
        two = memory.add(second, user_id="u", idempotency_key="k", metadata={"b": 2, "a": 1})
    assert (two.status, two.ids) == ("replayed", one.ids)


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_another_body_is_a_conflict(
    place: Places, first: dict[str, Any], second: dict[str, Any]
) -> None:
    with Memory(place(), embedder="none") as memory:
        memory.add("z", user_id="u", idempotency_key="k", **first)
        with pytest.raises(IdempotencyConflict):
            memory.add("z", user_id="u", idempotency_key="k", **second)
        assert memory.list(user_id="u").total == 1
