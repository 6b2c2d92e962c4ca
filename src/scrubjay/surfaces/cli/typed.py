"""From what is typed to the library's values: filters, JSON, the text on standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from scrubjay.errors import InvalidInput
from scrubjay.surfaces.cli import output

_FILTER = re.compile(r"\s*([^=<>!]*[^=<>!\s])\s*(==|!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_FORMS = "write KEY=VALUE, with one of = != < <= > >="


def json_object(option: str, text: str | None) -> dict[str, Any] | None:
    """The JSON object that an option holds; None when it was not given.

    >>> json_object("--metadata", '{"tag": "trip"}')
    {'tag': 'trip'}
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{option} is not JSON ({_reason(exc)}); {_quoting(option)}") from exc
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{option} is a JSON object, not {_json_type(value)}; {_quoting(option)}"
        )
    return value


def filters(conditions: Sequence[str] | None, given: str | None) -> dict[str, Any] | None:
    """The filters of `--filter` and `--filters` together, for the library.

    >>> filters(["rating>=3", "tag=trip"], None)
    {'rating': {'>=': 3}, 'tag': {'=': 'trip'}}
    """
    found: dict[str, dict[str, Any]] = {}
    for key, wanted in (json_object("--filters", given) or {}).items():
        found[key] = dict(wanted) if isinstance(wanted, Mapping) else {"=": wanted}
    for condition in conditions or ():
        match = _FILTER.fullmatch(condition)
        if match is None:
            raise InvalidInput(f"the filter {condition[:60]!r} cannot be read; {_FORMS}")
        key, operator, value = match[1], match[2].replace("==", "="), match[3].strip()
        if operator in found.setdefault(key, {}):
            raise InvalidInput(
                f"the filter on {key[:60]!r} has {operator} twice, and both cannot hold at once; "
                'for one of several write --filters \'{"KEY": {"in": [...]}}\''
            )
        found[key][operator] = _value(value)
    return found or None


def _value(text: str) -> Any:
    """A number, bool, null or quoted string as JSON has it; else the text itself.

    >>> _value("4"), _value('"4"'), _value("trip"), _value("NaN")
    (4, '4', 'trip', 'NaN')
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict) else value


def _refuse(name: str) -> Any:
    raise ValueError(name)


def texts(arguments: Sequence[str]) -> list[str]:
    """The texts, with `-` replaced by what stands on standard input."""
    if arguments.count("-") > 1:
        raise InvalidInput("standard input can be read once; give `-` once")
    return [_standard_input() if text == "-" else text for text in arguments]


def _standard_input() -> str:
    if sys.stdin.isatty():
        output.alert("note", "type the text; Ctrl-D at the start of a line ends it")
    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", errors="replace")
        output.alert("note", "standard input is not UTF-8; what could not be read became \ufffd")
    return text.removesuffix("\n").removesuffix("\r")


def _reason(exc: Exception) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at character {exc.pos + 1}"
    return "nested too deeply" if isinstance(exc, RecursionError) else "a number is too long"


def _quoting(option: str) -> str:
    return f'write {option} \'{{"tag": "trip"}}\', in single quotes'


def _json_type(value: object) -> str:
    names = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
