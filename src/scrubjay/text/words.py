"""Text in, tokens out: one tokeniser for the index and for the query.

The contract: both functions are pure and deterministic and never raise on any `str`; what
`query_words` gives for a piece of a text is found among what `words` gives for the text, where
the piece stands between white space, punctuation or CJK. Three sorts of token come out:

========== ============================================================ ==================
sort       what it is                                                   how to tell it
========== ============================================================ ==================
word       a folded, stemmed word; a CJK dictionary word or bigram      neither mark below
identifier the whole of a code, path, address, version; never stemmed   `is_identifier`
character  one CJK character, once per text however often it occurs     `is_character`
========== ============================================================ ==================

An identifier is given whole *and* in its parts, the parts as plain words. CJK text gives every
bigram and every dictionary word of three characters or more; both depend on the characters alone
and not on where a segmenter cuts, so a part of a run is always found (bigrams do as well as
words for Chinese retrieval, and the two together do best: Nie, Gao, Zhang and Zhou, "On the use
of words and n-grams for Chinese information retrieval", IRAL 2000). Characters are for queries of
one character only. Matching is by NFKC and case folding (UAX #15, Unicode 3.13), without
diacritics, traditional Chinese as simplified.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from operator import add
from unicodedata import normalize

from scrubjay.text import _code, _scripts
from scrubjay.text._scripts import CHARACTER, IDENTIFIER

__all__ = ["CHARACTER", "IDENTIFIER", "is_character", "is_identifier", "query_words", "words"]

# What NFKC leaves apart though people type one for the other: hyphens, apostrophes, invisible
# joiners, the sharp sign, and the decimal digits of other scripts (UAX #44, Nd).
_ODD = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\u02b9\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u2060\ufeff\ufe0e\ufe0f"), None),
    0x266F: "#",
    **{
        zero + i: str(i)
        for zero in (0x660, 0x6F0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50)
        for i in range(10)
    },
}
_ODD_RE = re.compile("[" + "".join(map(re.escape, map(chr, _ODD))) + "]")


# Punctuation of prose that never joins, whereas what NFKC makes of it may stand in an address.
_FULL_WIDTH = re.compile("[？，…‥]|：(?![0-9０-９])")


def _chunks(letters: str) -> re.Pattern[str]:
    """The one pass that finds everything, in a narrow form for ASCII and a full one."""
    word = f"[{letters}]"
    special = r"(?:[A-Za-z]\+\+(?![+A-Za-z_])|[CcFfJjQq]#(?![A-Za-z_]))"
    joint = r"(?:://|:\\|::|->|[-./:@'\\+=?&#%]|(?<=[0-9]),(?=[0-9]{3}(?![0-9])))"
    patterns = [
        rf"{word}++(?=[,.;:!?)]?[ \n])",  # a word and then white space: the common case, first
        rf"(?<!{word}){special}",  # C++ C#
        rf"(?<![{letters}.])\.[Nn][Ee][Tt](?![A-Za-z_])",  # .NET
        rf"{word}++(?:{joint}(?!{special}){word}++)*",  # what may be an identifier, joints and all
    ]
    if letters != _ASCII:
        patterns += [f"[{_scripts.CJK}]++", f"[{_scripts.UNSPACED}]++", f"[{_scripts.EMOJI}]"]
    return re.compile("|".join(patterns))


_ASCII = "0-9A-Za-z_"
_ASCII_CHUNK = _chunks(_ASCII)
_CHUNK = _chunks(_ASCII + _scripts.LETTERS)
_CJK_RUN = re.compile(f"[{_scripts.CJK}]+")
_UNSPACED_START = re.compile(f"[{_scripts.UNSPACED}]")
_HAN_3 = re.compile(f"[{_scripts.HAN}]{{3}}")
_NOT_HAN = re.compile(f"[^{_scripts.HAN}]")
_NOT_HIRAGANA = re.compile("[^\u3041-\u309f\u30fc]")


class _Known(dict[str, tuple[str, ...]]):
    """What chunks gave before, so that a common word costs one look-up. Bounded.

    A pure function's results: threads may fill it at the same time. (A stemmer object is not
    re-entrant; it is called with the interpreter's lock held.)
    """

    size = 1 << 16
    longest = 40  # longer chunks seldom come back

    def __missing__(self, chunk: str) -> tuple[str, ...]:
        tokens = _analyse(chunk)
        if len(chunk) <= self.longest:
            if len(self) >= self.size:
                self.clear()
            self[chunk] = tokens
        return tokens


_known = _Known()


def words(text: str) -> list[str]:
    """The tokens of a text with their repetitions, as they are indexed. Raises nothing.

    >>> words("The user's cafés")
    ['the', 'user', 'cafe']
    >>> words("order DD20260115-7731")
    ['order', '=dd20260115-7731', '=dd20260115', 'dd', '=20260115', '7731']
    >>> words("灌溉計劃")
    ['灌溉', '溉计', '计划', '~灌', '~溉', '~计', '~划']
    """
    text, pattern = _prepare(text)
    out = list(chain.from_iterable(map(_known.__getitem__, pattern.findall(text))))
    if pattern is _CHUNK and _CJK_RUN.search(text):
        out += [CHARACTER + c for c in dict.fromkeys("".join(_CJK_RUN.findall(text)))]
    return out


def query_words(text: str) -> list[str]:
    """The tokens to look for. Raises nothing.

    They are the tokens of `words`, without stop words where other words remain, and with a CJK
    character on its own only where no bigram can stand for it.

    >>> query_words("What is the cache TTL?")
    ['cach', 'ttl']
    >>> query_words("我的猫呢？"), query_words("灌溉的计划")
    (['~猫'], ['灌溉', '计划'])
    >>> query_words("who is it")
    ['who', 'is', 'it']
    """
    text, pattern = _prepare(text)
    shouted = text.isupper()
    stop = _scripts.stop_words()
    every: list[str] = []
    telling: list[str] = []
    for chunk in pattern.findall(text):
        if _CJK_RUN.match(chunk):
            every += _bigrams(chunk) or [CHARACTER + chunk]
            telling += _telling(chunk)
            continue
        tokens: Sequence[str] = _known[chunk]
        if len(chunk) > 2 and _UNSPACED_START.match(chunk):
            tokens = [token for token in tokens if len(token) > 2]
        every += tokens
        if len(chunk) > 1 and chunk.isupper() and not shouted:
            telling += tokens  # IT, US: a name, and not the pronoun
        else:
            telling += [token for token in tokens if token not in stop]
    return telling or every


def is_identifier(token: str) -> bool:
    """Whether a token is the whole of an identifier, an exact hit on which should weigh more.

    >>> [is_identifier(token) for token in words("ring_buffer.rs")]
    [True, True, False, False, False]
    """
    return token[:1] == IDENTIFIER


def is_character(token: str) -> bool:
    """Whether a token is a single CJK character; leave these out of a text's length.

    >>> [token for token in words("猫と犬") if is_character(token)]
    ['~猫', '~と', '~犬']
    """
    return token[:1] == CHARACTER


def _prepare(text: str) -> tuple[str, re.Pattern[str]]:
    if text.isascii():
        return text, _ASCII_CHUNK
    text = normalize("NFKC", _FULL_WIDTH.sub(" ", text))
    if _ODD_RE.search(text):
        # NFKC again: what stood around a joiner taken out may now compose.
        text = normalize("NFKC", text.translate(_ODD))
    if _CJK_RUN.search(text):
        text = text.translate(_scripts.simplified())
    return text, _CHUNK


def _analyse(chunk: str) -> tuple[str, ...]:
    if chunk.isascii():
        return tuple(_code.tokens(chunk))
    if _CJK_RUN.match(chunk):
        return tuple(_bigrams(chunk))
    if _UNSPACED_START.match(chunk):
        return tuple(_ngrams(chunk))
    return tuple(_code.tokens(chunk))


def _bigrams(run: str) -> list[str]:
    """Every two neighbours, and the dictionary's longer words; nothing for one character."""
    tokens = list(map(add, run, run[1:]))
    if _HAN_3.search(run):
        tokens += [word for word in _scripts.dictionary_words(run) if 2 < len(word) <= 64]
    return tokens


def _ngrams(run: str) -> list[str]:
    """Thai, Lao, Khmer, Burmese: two and three characters. Queries use three where they can."""
    if len(run) < 3:
        return [run]
    pairs = list(map(add, run, run[1:]))
    return pairs + list(map(add, pairs, run[2:]))


def _telling(run: str) -> list[str]:
    """A query's CJK run without 的, 了, 什么 and the bigrams across them."""
    if len(run) == 1:
        return [] if run in _scripts.PARTICLES else [CHARACTER + run]
    if len(run) == 2:
        return [] if run in _scripts.stop_words() else [run]
    if _NOT_HAN.search(run):
        # Japanese and Korean: no dictionary here. Grammar is in hiragana, meaning mostly not.
        return [token for token in _bigrams(run) if _NOT_HIRAGANA.search(token)]
    out: list[str] = []
    piece = ""
    for word in [*_scripts.segmented(run), ""]:
        if word and word not in _scripts.stop_words() and word not in _scripts.PARTICLES:
            piece += word
            continue
        out += _bigrams(piece) if len(piece) > 1 else [CHARACTER + piece] if piece else []
        piece = ""
    return out
