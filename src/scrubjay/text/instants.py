"""Reads the times callers pass: many spellings in, aware UTC out.

Understood are datetimes and dates, ISO 8601 in its extended and basic forms, `2026/3/9 18:00`,
and seconds or milliseconds since 1970 as a number or digits. What has no zone is read in the
given one, and that is noted.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scrubjay.errors import InvalidInput, masked

_SLASHED = re.compile(r"^(\d{4})/(\d{1,2})/(\d{1,2})(.*)$")
_EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
_LATEST = datetime(9999, 12, 29, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS = "2026-03-09T10:00:00Z, 2026-03-09, 2026/3/9 18:00, 1773050400 or a datetime"


def zone(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises `InvalidInput`.

    >>> zone("Asia/Shanghai").utcoffset(datetime(2026, 1, 1)).total_seconds()
    28800.0
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, AttributeError) as exc:
        raise InvalidInput(f"no time zone {masked(name)}; use a name like Europe/Paris") from exc


def read_time(name: str, value: object, default_zone: tzinfo) -> tuple[datetime, str | None]:
    """(aware UTC, a note when the zone was assumed). Raises `InvalidInput`, naming `name`.

    >>> read_time("occurred_at", "2026-03-09T18:00:00+08:00", UTC)[0].isoformat()
    '2026-03-09T10:00:00+00:00'
    >>> read_time("occurred_at", 1773050400000, UTC)[0].isoformat()
    '2026-03-09T10:00:00+00:00'
    """
    try:
        found = _parse(value)
    except (ValueError, OverflowError, TypeError) as exc:
        raise InvalidInput(f"{name} {masked(value)} is not a time; write {_FORMS}") from exc
    note = None
    if found.tzinfo is None:
        note = f"{name} had no zone and was read in {default_zone}"
        found = found.replace(tzinfo=default_zone)
    try:
        found = found.astimezone(UTC)
    except OverflowError:
        found = _LATEST
    if not _EARLIEST <= found < _LATEST:
        raise InvalidInput(f"{name} {masked(value)} lies outside the years 1 to 9999")
    return found, note


def _parse(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the zone comes later
    if isinstance(value, bool):
        raise TypeError("a bool is no time")
    if isinstance(value, (int, float)):
        return _from_number(value)
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no time")
    text = value.strip()
    if re.fullmatch(r"-?\d{9,}(\.\d+)?", text):
        return _from_number(float(text) if "." in text else int(text))
    slashed = _SLASHED.match(text)
    if slashed:
        year, month, day, rest = slashed.groups()
        text = f"{year}-{int(month):02d}-{int(day):02d}{rest}"
    return datetime.fromisoformat(text)


def _from_number(value: float) -> datetime:
    """Seconds, or milliseconds from 10^11 on, which as seconds would be the year 5138."""
    if abs(value) >= 1e11:
        return _EPOCH + timedelta(milliseconds=value)
    return _EPOCH + timedelta(seconds=value)
