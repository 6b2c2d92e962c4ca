"""Loads `queries.sql`: named statements, each with a line that says its purpose."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def queries() -> dict[str, str]:
    """Every named statement.

    >>> "insert_turn" in queries()
    True
    """
    text = resources.files(__package__).joinpath("queries.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def query(name: str) -> str:
    """The statement of that name."""
    return queries()[name]
