"""Metadata and its JSON form, in which every type survives the round trip.

JSON has no times and its readers differ on large integers, so times and dates travel as
one-key objects `{"$datetime": …}`, `{"$date": …}`; a caller's key that begins with `$` is
refused, so that the two cannot be taken for one another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from scrubjay.errors import InvalidInput, masked
from scrubjay.text.normal import clean

MAX_BYTES = 65_536
_MAX_DEPTH = 16
_MAX_BITS = 1024


def check(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A clean copy of a caller's metadata: its text in NFC, its types known.

    Allowed are None, bool, int, float, str, datetime, date, and lists and string-keyed dicts of
    these. Raises `InvalidInput`, naming the key, for anything else, and for more than
    64 KiB.

    >>> check({"rating": 4, "tags": ["tea"]})
    {'rating': 4, 'tags': ['tea']}
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata is a dict, not {type(metadata).__name__}")
    checked = {_key(key): _checked(value, str(key), 1) for key, value in metadata.items()}
    size = len(dumps(checked).encode("utf-8"))
    if size > MAX_BYTES:
        raise InvalidInput(
            f"metadata takes {size} bytes, more than {MAX_BYTES}; put long text in the content"
        )
    return checked


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidInput(
            f"a metadata key is a string with at least one character, not {masked(key)}"
        )
    if key.startswith("$"):
        raise InvalidInput(f"the metadata key {masked(key)} begins with $, which is reserved")
    return clean(key)[0]


def _checked(value: Any, path: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"metadata {masked(path)} is nested deeper than {_MAX_DEPTH}")
    if isinstance(value, str):
        return clean(str(value))[0]
    if value is None or isinstance(value, (bool, datetime, date)):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise InvalidInput(f"metadata {masked(path)} is an integer of over {_MAX_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"metadata {masked(path)} is {value}; use None for no number")
        return float(value)
    if isinstance(value, Mapping):
        return {_key(k): _checked(v, f"{path}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise InvalidInput(
        f"metadata {masked(path)} has the type {type(value).__name__}, which cannot be stored; "
        "use None, bool, int, float, str, datetime, date, list or dict"
    )


def _special(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _revive(pairs: dict[str, Any]) -> Any:
    if len(pairs) == 1:
        if "$datetime" in pairs:
            return datetime.fromisoformat(pairs["$datetime"])
        if "$date" in pairs:
            return date.fromisoformat(pairs["$date"])
    return pairs


def dumps(value: Any) -> str:
    """The JSON text of metadata, keys in the caller's order.

    >>> dumps({"on": date(2026, 1, 2)})
    '{"on":{"$date":"2026-01-02"}}'
    """
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_special, allow_nan=False
    )


def loads(text: str | bytes) -> Any:
    """The value that `dumps` wrote. Raises `ValueError` for what it did not write."""
    try:
        return json.loads(text, object_hook=_revive)
    except (TypeError, OverflowError, RecursionError) as exc:
        raise ValueError("not the JSON form of metadata") from exc
