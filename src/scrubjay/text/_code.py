"""Chunks of letters, digits and joining punctuation: plain words, identifiers and their parts.

The contract: `tokens(chunk)` gives the whole of an identifier (marked, never stemmed), whatever
identifiers lie inside it, and the plain words it is made of, each once; the number of tokens is
bounded by the chunk's length.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from scrubjay.text._scripts import IDENTIFIER, fold, forms

_TOKEN = 64
_LONG = 128

# From the loosest joint to the tightest; what a joint holds is split there first.
_LOOSE = re.compile(r"://|:\\|->|::|[:?&#=]")
_PATH = re.compile(r"[/\\@%]")
_ENDS = re.compile(r"::|[:/\\]")
_TIGHT = (".", "-", "+")
_JOINTS = re.compile(r"[^\w\u0300-\u0dff]+|[>]")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z]+")
_RUNS = re.compile(r"[0-9]+|[^0-9]+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_QUANTITY = re.compile(r"[0-9]{1,4}-?[A-Za-z]+|[A-Za-z][0-9]")
_DIGIT = re.compile("[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_SIGN = re.compile(r"[_@\\.]|://|::")
_CLITICS = frozenset({"s", "ll", "re", "ve", "d", "m"})


def tokens(chunk: str) -> list[str]:
    """The tokens of one chunk, without repetition.

    >>> tokens("Memories"), tokens("C++"), tokens("don't")
    (['memori'], ['=c++'], ['dont'])
    >>> tokens("src/app/main.py")
    ['=src/app/main.py', '=app/main.py', 'src', 'app', '=main.py', 'main', 'py']
    """
    if chunk.isascii() and chunk.isalpha() and len(chunk) <= _TOKEN and _is_plain(chunk):
        return forms(chunk)
    if chunk[-1] in "+#" or chunk[0] == ".":
        return [IDENTIFIER + chunk.lower()]
    out: dict[str, None] = {}
    if len(chunk) > _LONG:
        _long(chunk, out)
    else:
        _piece(chunk, out)
    return list(out)


def _is_plain(word: str) -> bool:
    """No capitals inside: `word`, `Word`, `WORD`, `PDFs`."""
    tail = word[1:]
    return tail.islower() or not tail or word.isupper() or (word[:-1].isupper() and word[-1] == "s")


def _mark(text: str) -> str:
    text = fold(text)
    if len(text) < _TOKEN:
        return IDENTIFIER + text
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{IDENTIFIER}{text[:40]}~{digest}"


def _long(chunk: str, out: dict[str, None]) -> None:
    """Encoded data, or a very long address: the whole as a hash, the parts flat."""
    out[_mark(chunk)] = None
    for part in _JOINTS.split(chunk):
        if part:
            _atom(part, out)


def _piece(text: str, out: dict[str, None]) -> None:
    """A chunk or a part of one that may still have joints."""
    if "'" in text:
        _apostrophes(text, out)
        return
    if "," in text:
        # A separator of thousands, by the chunk's own rule: 1,234 is 1234.
        text = text.replace(",", "")
    for joint in (_LOOSE, _PATH):
        if joint.search(text):
            _whole(text, out)
            _suffixes(text, out)
            for part in joint.split(text):
                if part:
                    _piece(part, out)
            return
    kinds = [kind for kind in _TIGHT if kind in text]
    if not kinds:
        _atom(text, out)
    elif _INITIALS.fullmatch(text):
        out.update(dict.fromkeys(forms(text.replace(".", ""))))
    else:
        _whole(text, out)
        for kind in kinds:
            _tight(text.split(kind), kind, out)


def _tight(parts: list[str], kind: str, out: dict[str, None]) -> None:
    if kind == "." and len(parts) > 2 and parts[-1].istitle():
        # "see ring_buffer.rs.Then": a sentence began without its space.
        out[_mark(kind.join(parts[:-1]))] = None
    if kind == "." and parts[-1] == "NET":
        out[IDENTIFIER + ".net"] = None
    if kind == "-" and len(parts) == 2 and len(parts[0]) < 4 and "".join(parts).isalpha():
        out.update(dict.fromkeys(forms("".join(parts))))
    for part in parts:
        if part:
            _piece(part, out)


def _suffixes(text: str, out: dict[str, None]) -> None:
    """`app/main.py` of `src/app/main.py`, `host:80` of `see:host:80`: the last few ends."""
    if _LOOSE.search(text) and ("://" in text or "=" in text):
        return  # an address is split at its joints, and its path comes back here
    for match in list(_ENDS.finditer(text))[-4:-1]:
        _whole(text[match.end() :], out)


def _apostrophes(text: str, out: dict[str, None]) -> None:
    """`user's` is user, `we'll` is we, `don't` is dont, `O'Brien` is obrien and brien."""
    parts = [part for part in text.split("'") if part]
    while len(parts) > 1 and parts[-1].lower() in _CLITICS:
        parts.pop()
    if len(parts) == 1:
        _piece(parts[0], out)
        return
    joined = "".join(parts)
    if joined.isalpha():
        out.update(dict.fromkeys(forms(joined)))
        parts = [part for part in parts if len(part) > 2 and parts[-1] not in ("t", "T")]
    for part in parts:
        _piece(part, out)


def _whole(text: str, out: dict[str, None]) -> None:
    """The whole of something with joints, marked where it reads as an identifier."""
    if _is_code(text):
        out[_mark(text)] = None
    elif len(text) <= _TOKEN and (text[0].isdigit() or not _LOOSE.search(text)):
        out[fold(text)] = None


def _is_code(text: str) -> bool:
    if _DIGIT.search(text):
        if _LETTER.search(text):
            return not _QUANTITY.fullmatch(text)
        joints = len(_JOINTS.findall(text))
        return joints > 1 or len(text) - joints > 4
    return bool(_SIGN.search(text)) or text.count("/") > 1


def _atom(text: str, out: dict[str, None]) -> None:
    """Letters, digits and underscores without a joint."""
    bare = text.strip("_")
    if not bare:
        return
    if bare != text:
        out[_mark(text)] = None
    if len(bare) > _TOKEN:
        # A whole paste finds it by the hash, the beginning of it by the blocks.
        out[_mark(bare)] = None
        for i in range(0, len(bare), _TOKEN - 1):
            out[IDENTIFIER + fold(bare[i : i + _TOKEN - 1])[: _TOKEN - 1]] = None
    elif "_" in bare:
        out[_mark(bare)] = None
        for part in bare.split("_"):
            if part:
                _atom(part, out)
    elif bare.isdigit():
        out[IDENTIFIER + bare if len(bare) > 4 else bare] = None
    elif _DIGIT.search(bare):
        _mixed(bare, out)
    else:
        _letters(bare, out)


def _mixed(text: str, out: dict[str, None]) -> None:
    """Letters and digits: `E1042`, `20260309A17`, `5kg`."""
    out[fold(text) if _QUANTITY.fullmatch(text) else _mark(text)] = None
    parts = _RUNS.findall(text)
    if len(parts) > 4:
        return  # a hash or encoded data: its parts are noise
    for part in parts:
        if len(part) > 1 or part.isdigit():
            _atom(part, out)


def _letters(text: str, out: dict[str, None]) -> None:
    """Letters alone; `camelCase` as a whole, as a plain word, and in parts."""
    if not text.isascii() or _is_plain(text):
        out.update(dict.fromkeys(forms(text)))
        return
    parts = _CAMEL.findall(text)
    if len(parts) > 6 or (len(parts) > 2 and len(text) < 3 * len(parts)):
        out[_mark(text)] = None
        return  # encoded data: its parts are noise
    if len(parts) > 2 or (len(parts[0]) > 1 and parts[0].islower() and parts[1][1:].islower()):
        out[_mark(text)] = None  # `getName`, `MyClassName`; not GitHub, iPhone, macOS
    out.update(dict.fromkeys(forms(text)))
    for part in parts:
        if len(part) > 1:
            out.update(dict.fromkeys(forms(part)))
