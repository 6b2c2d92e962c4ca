"""From what a caller passes to a search to checked values, or a clear error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any, TypeVar

from scrubjay.errors import InvalidInput, masked
from scrubjay.model import Kind, RecallPolicy, Scope, State, Tier
from scrubjay.storage import Criteria
from scrubjay.text.instants import read_time
from scrubjay.text.normal import clean

MAX_TOP_K = 1_000
MAX_QUERY_CHARS = 20_000
MAX_TEXT_CHARS = 1_000
E = TypeVar("E", bound=StrEnum)

HISTORY = (State.ACTIVE, State.SUPERSEDED, State.MERGED, State.STALE)


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """An int within bounds. Raises `InvalidInput`.

    >>> whole_number("top_k", 5, 1, 10)
    5
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} is a whole number, not {masked(value)}")
    if not low <= value <= high:
        raise InvalidInput(f"{name} is {value}; it lies between {low} and {high}")
    return value


def text(name: str, value: object) -> str:
    """A clean string of up to 1,000 characters. Raises `InvalidInput`."""
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is a string, not {type(value).__name__}")
    if len(value) > MAX_TEXT_CHARS:
        raise InvalidInput(f"{name} has {len(value)} characters, more than {MAX_TEXT_CHARS}")
    return clean(value)[0]


def fraction(name: str, value: object) -> float:
    """A float from 0 to 1. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f"{name} is a number from 0 to 1, not {masked(value)}")
    return float(value)


def one_of(name: str, value: object, kind: type[E]) -> E:
    """A member of an enum, by value. Raises `InvalidInput` with the members.

    >>> one_of("kind", "fact", Kind)
    <Kind.FACT: 'fact'>
    """
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError as exc:
        known = ", ".join(member.value for member in kind)
        raise InvalidInput(f"{name} {masked(value)} is unknown; use one of {known}") from exc


def several(name: str, values: object, kind: type[E]) -> tuple[E, ...] | None:
    """Members of an enum from one value or several; None for None."""
    if values is None:
        return None
    items = [values] if isinstance(values, str) else values
    if not isinstance(items, Iterable):
        raise InvalidInput(f"{name} is a list, not {type(values).__name__}")
    found = tuple(dict.fromkeys(one_of(name, item, kind) for item in items))
    if not found:
        raise InvalidInput(f"{name} is empty; pass None for all of them")
    return found


def until_of(value: object, zone: tzinfo) -> datetime:
    """The end of a range, half-open; a day without a time of day is included whole."""
    moment, _ = read_time("until", value, zone)
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    if isinstance(value, str):
        is_day = len(value.strip()) <= 10 and not value.strip().isdigit()
    if is_day:  # the next midnight in the zone, which need not be 24 hours away
        return (moment.astimezone(zone) + timedelta(days=1)).astimezone(UTC)
    return moment


def make_criteria(
    scope: Scope,
    now: datetime,
    zone: tzinfo,
    *,
    kinds: object,
    tiers: object,
    since: object,
    until: object,
    as_of: object,
    known_at: object,
    include_history: bool,
    states: tuple[State, ...] | None = (State.ACTIVE,),
) -> Criteria:
    """The checked narrowing of a read. Raises `InvalidInput`."""

    def moment(name: str, value: object) -> datetime | None:
        return None if value is None else read_time(name, value, zone)[0]

    low = moment("since", since)
    high = None if until is None else until_of(until, zone)
    if low is not None and high is not None and low >= high:
        raise InvalidInput("since lies after until, so nothing can be between them; swap them")
    looking_back = include_history or as_of is not None or known_at is not None
    return Criteria(
        now=now,
        session_id=scope.session_id,
        namespace=scope.namespace,
        kinds=several("kinds", kinds, Kind),
        tiers=several("tiers", tiers, Tier),
        states=HISTORY if looking_back and states == (State.ACTIVE,) else states,
        since=low,
        until=high,
        as_of=moment("as_of", as_of),
        known_at=moment("known_at", known_at),
    )


def make_policy(base: RecallPolicy, given: object) -> RecallPolicy:
    """The policy of one call: a whole one, or names and numbers to change. All are checked."""
    if given is None:
        return base
    if isinstance(given, RecallPolicy):
        given = {f.name: getattr(given, f.name) for f in fields(RecallPolicy)}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"policy is a RecallPolicy or a dict, not {type(given).__name__}")
    known = {f.name for f in fields(RecallPolicy)}
    numbers: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidInput(f"the policy has no {masked(name)}; it has {names}")
        if name == "top_k":
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            numbers[name] = whole_number(name, whole, 1, MAX_TOP_K)
        elif name == "half_life_days":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (is_number and 0 < value < 1e6):
                raise InvalidInput(f"half_life_days is a number of days, not {masked(value)}")
            numbers[name] = float(value)
        else:
            numbers[name] = fraction(name, value)
    return replace(base, **numbers)
