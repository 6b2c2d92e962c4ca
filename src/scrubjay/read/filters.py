"""Filters over metadata: parsed once with clear errors, then asked of each memory.

`{"tag": "trip"}` asks for equality, `{"rating": {">=": 4}}` for more. A dotted key means that
very key where there is one, else it reaches into nested dicts. Values are compared as they are,
types included (`True` is not `1`, `"7"` is not `7`), and never pasted into a query. Scope is no
filter: naming a scope field is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from unicodedata import category

from scrubjay.errors import InvalidInput, masked
from scrubjay.text.instants import read_time
from scrubjay.text.normal import clean

_KEY = re.compile(r"^[^\W_](?:[\w\- ]|\.(?=\w))*$")
_SCOPE_FIELDS = frozenset(
    ("tenant", "user_id", "device_id", "agent_id", "session_id", "run_id", "namespace", "scope")
)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison with the value at a path."""

    path: tuple[str, ...]
    operator: str
    value: Any

    def holds(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a memory's metadata meets it."""
        whole = ".".join(self.path)
        found: Any = {whole: metadata[whole]} if whole in metadata else metadata
        for step in (whole,) if whole in metadata else self.path:
            if not isinstance(found, Mapping) or step not in found:
                found = _ABSENT
                break
            found = found[step]
        if self.operator == "exists":
            return (found is not _ABSENT) is self.value
        return found is not _ABSENT and bool(_OPERATORS[self.operator](found, self.value))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    pair = _comparable(a, b)
    return pair is not None and bool(pair[0] == pair[1])


def _comparable(a: Any, b: Any) -> tuple[Any, Any] | None:
    """The pair in a form that Python can compare, or None for different types."""
    if isinstance(a, bool) or isinstance(b, bool):
        return None
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a, b
    if isinstance(a, (datetime, date)):
        return _times(a, b)
    return (a, b) if type(a) is type(b) else None


def _times(a: datetime | date, b: Any) -> tuple[Any, Any] | None:
    """Both as instants; a filter may give a time as text, and a zone may be missing on either."""
    if not isinstance(b, (datetime, date, str)):
        return None
    try:
        return read_time("metadata", a, UTC)[0], read_time("filter", b, UTC)[0]
    except InvalidInput:
        return None


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(a: Any, b: Any) -> bool:
        pair = _comparable(a, b)
        has_order = pair is not None and isinstance(pair[0], (int, float, str, datetime))
        return pair is not None and has_order and compare(*pair)

    return holds


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": _same,
    "!=": lambda a, b: not _same(a, b),
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "in": lambda a, b: any(_same(a, item) for item in b),
    "contains": lambda a, b: (
        any(_same(item, b) for item in a)
        if isinstance(a, (list, tuple))
        else isinstance(a, str) and isinstance(b, str) and b in a
    ),
}
_NAMES = {
    "eq": "=", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "==": "=",
    **{name: name for name in _OPERATORS}, "exists": "exists",
}  # fmt: skip


def parse(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """The conditions of a caller's filters, all of which must hold. Raises `InvalidInput`.

    >>> condition, = parse({"rating": {">=": 4}})
    >>> condition.holds({"rating": 5}), condition.holds({"rating": "5"}), condition.holds({})
    (True, False, False)
    """
    if filters is None:
        return ()
    if not isinstance(filters, Mapping):
        raise InvalidInput(f"filters is a dict of metadata keys, not {type(filters).__name__}")
    found: list[Condition] = []
    for key, wanted in filters.items():
        path = _path(key)
        if isinstance(wanted, Mapping):
            found.extend(_condition(path, key, name, value) for name, value in wanted.items())
            if not wanted:
                raise InvalidInput(f"the filter on {masked(key)} is empty; give an operator")
        else:
            found.append(Condition(path, "=", _value(wanted)))
    return tuple(found)


def _path(key: object) -> tuple[str, ...]:
    key = clean(key)[0] if isinstance(key, str) else key
    letters = "".join(c for c in str(key) if category(c)[0] != "M")
    if not isinstance(key, str) or not _KEY.match(letters):
        raise InvalidInput(
            f"the filter key {masked(key)} is no metadata key; a key begins with a letter or "
            "digit and holds letters, digits, _, -, space, and dots between nested keys"
        )
    if key in _SCOPE_FIELDS:
        raise InvalidInput(
            f"{key} is part of the scope and no filter; pass it as an argument of its own"
        )
    return tuple(key.split("."))


def _condition(path: tuple[str, ...], key: object, name: object, value: Any) -> Condition:
    operator = _NAMES.get(name) if isinstance(name, str) else None
    if operator is None:
        known = " ".join((*_OPERATORS, "exists"))
        raise InvalidInput(
            f"the filter on {masked(key)} has the unknown operator {masked(name)}; "
            f"use one of {known}"
        )
    if operator == "exists" and not isinstance(value, bool):
        raise InvalidInput(f"the filter on {masked(key)}: exists takes true or false")
    if operator == "in" and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise InvalidInput(f"the filter on {masked(key)}: in takes a list")
    return Condition(path, operator, _value(value))


def _value(value: Any) -> Any:
    allowed = (str, bool, int, float, datetime, date, type(None))
    items = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(item, allowed) for item in items):
        raise InvalidInput(f"a filter cannot compare with {type(value).__name__}")
    if isinstance(value, (list, tuple)):
        return [clean(item)[0] if isinstance(item, str) else item for item in value]
    return clean(value)[0] if isinstance(value, str) else value
