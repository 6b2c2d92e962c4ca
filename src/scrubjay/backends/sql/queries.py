"""Loads `queries.sql`: named statements, each with a line that says its purpose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(*packages: str) -> Mapping[str, str]:
    """Every named statement of these packages; a later one says it in its own way.

    >>> "insert_turn" in load("scrubjay.backends.sql")
    True
    """
    found: dict[str, str] = {}
    for package in packages:
        text = resources.files(package).joinpath("queries.sql").read_text("utf-8")
        parts = _NAME.split(text)[1:]
        found |= {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
    return found
