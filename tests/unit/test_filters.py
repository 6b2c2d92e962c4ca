"""Filters on keys that look alike."""

from __future__ import annotations

import pytest

from scrubjay.errors import InvalidInput
from scrubjay.read.filters import parse


@pytest.mark.parametrize(
    ("metadata", "holds"),
    [({"a.b": 1}, True), ({"a": {"b": 1}}, True), ({"a.b": 2, "a": {"b": 1}}, False), ({}, False)],
)
def test_a_dotted_key_is_itself_or_a_path(metadata: dict[str, object], holds: bool) -> None:
    (condition,) = parse({"a.b": 1})
    assert condition.holds(metadata) is holds


def test_operators_meet_only_their_own_types() -> None:
    for value in (None, [1], {"x": 1}, True, "7"):
        (condition,) = parse({"n": {">": 3}})
        assert condition.holds({"n": value}) is False
    with pytest.raises(InvalidInput):
        parse({"n": {"$gt": 3}})
