r"""Content made storable, and nothing more.

The contract: the text that comes back is NFC and encodes to UTF-8; a lone surrogate and a NUL
become U+FFFD, two halves of a surrogate pair become the character they are, and each of these is
noted. All else comes back as it was: case, spaces, line ends, invisible characters, width.
Cleaning twice changes nothing.
"""

from __future__ import annotations

import re
from unicodedata import normalize

__all__ = ["clean"]

_BAD = re.compile("[\ud800-\udfff\0]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> tuple[str, list[str]]:
    r"""The text as it may be stored, and a note for each sort of thing replaced. Raises nothing.

    NFC (UAX #15) is not noted: the text is canonically the same.

    >>> clean("cafe\u0301")
    ('café', [])
    >>> clean("ok \ud83d cut\0")
    ('ok � cut�', ['replaced 1 lone surrogate', 'replaced 1 NUL'])
    >>> clean("\ud83c\udf78")
    ('🍸', ['joined 1 surrogate pair'])
    """
    notes: list[str] = []
    if _BAD.search(text):
        text, pairs = _PAIR.subn(_join, text)
        text, lone = _LONE.subn("\ufffd", text)
        nuls = text.count("\0")
        text = text.replace("\0", "\ufffd")
        notes += _note("joined", pairs, "surrogate pair")
        notes += _note("replaced", lone, "lone surrogate")
        notes += _note("replaced", nuls, "NUL")
    return normalize("NFC", text), notes


def _join(match: re.Match[str]) -> str:
    return match.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _note(verb: str, count: int, what: str) -> list[str]:
    return [f"{verb} {count} {what}{'s' * (count > 1)}"] if count else []
