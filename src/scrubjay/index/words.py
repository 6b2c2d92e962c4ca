"""A memory's words as bytes: sorted 64-bit hashes with their counts.

The words themselves are not kept: a hash is of one size, compares fast, and two words of one
user fall together about once in 10^11 pairs.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from scrubjay.text.words import is_character, is_identifier, query_words, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_COUNT = 255


@lru_cache(maxsize=262_144)
def term(word: str) -> int:
    """The 64-bit hash that stands for a word.

    >>> term("tea") == term("tea") != term("tee")
    True
    """
    return int.from_bytes(
        blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )


def pack(text: str) -> tuple[bytes, int]:
    """A text's postings, and its length in words.

    Single CJK characters are there for one-character questions and do not count as length. The
    bytes are, little-endian, n sorted uint64 hashes followed by n uint8 counts, which stop
    at 255.

    >>> data, length = pack("tea, tea and cake")
    >>> length >= 3 and len(data) % 9 == 0
    True
    """
    found = words(text)
    counts: dict[int, int] = {}
    for word in found:
        hashed = term(word)
        counts[hashed] = counts.get(hashed, 0) + 1
    terms = sorted(counts)
    tfs = bytes([count if (count := counts[t]) < _MAX_COUNT else _MAX_COUNT for t in terms])
    length = len(found) - sum(map(is_character, found))
    return struct.pack(f"<{len(terms)}Q", *terms) + tfs, length


def unpack(data: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """The hashes (uint64, ascending) and the counts (uint8) of packed postings."""
    import numpy as np

    n = len(data) // 9
    return np.frombuffer(data, "<u8", n), np.frombuffer(data, np.uint8, n, offset=8 * n)


def query_terms(text: str) -> dict[int, bool]:
    """The terms of a question, each with whether it is a whole identifier."""
    return {term(word): is_identifier(word) for word in query_words(text)}
