"""A text cut where its meaning allows: paragraphs, sentences, clauses, words, never a character.

The contract: `split` gives spans (start, end) in order, without overlap, that together hold every
character that is not white space; none is empty, none begins or ends with white space (but for a
text returned whole), and none is longer than 1.5 times the limit. No cut falls inside a grapheme
cluster (UAX #29) unless the cluster alone is longer than the limit. Time is linear in the length.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from unicodedata import category, combining

__all__ = ["is_boundary", "split"]

_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*|\u2029")
# Sentence ends (after UAX #29, SB): the ender and what closes with it; the enders of alphabetic
# scripts need white space after them, which tells them from decimal points and addresses. A new
# line ends one too, unless the next begins in lower case, as in text wrapped by hand.
_SENTENCE = re.compile(
    r"[。！？｡…]+[”’」』）》〉】\"')\]]*"
    r"|(?<![.!?؟۔।॥])[.!?؟۔।॥]++[”’\"')\]»」』]*(?=\s)"
    r"|(?<![!?])[!?]++[”’\"')\]」』]*(?=[\u3400-\u9fff])"
    r"|\n(?=[ \t]*[^a-z\s])"
)
# Not ends: initials, and the abbreviations that most often come before a capital.
_ABBREVIATION = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|e\.g|i\.e|No|Fig|Jr|Sr|approx|cf))\.\Z"
)
_CLAUSE = re.compile(r"[；，、：]+[”’」』）]*|[;,:،؛][”’\"')\]]*(?=\s)|[—–](?=\s)|[\n\r\u2028]")
_SPACE = re.compile(r"\s+")
# Better than the middle of a word, where there is no white space.
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{2}")
_SIGNS = frozenset("/,;&?|)]}>")

# In a word of Thai or of an invented alphabet these follow their letter without being marks.
_FOLLOWING = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f")


def split(text: str, limit: int = 400) -> list[tuple[int, int]]:
    """Spans of about `limit` characters that are each as whole in meaning as they can be.

    A text within the limit is one span, white space alone is none. Longer texts are cut between
    paragraphs, else sentences, clauses, words, and only then anywhere; a fenced block of code
    that fits stays in one piece. Raises `ValueError` if `limit` is not positive.

    >>> split("Short.")
    [(0, 6)]
    >>> text = "猫喜欢鱼。狗喜欢骨头。" * 2
    >>> [text[a:b] for a, b in split(text, limit=12)]
    ['猫喜欢鱼。狗喜欢骨头。', '猫喜欢鱼。狗喜欢骨头。']
    """
    if limit < 1:
        raise ValueError(f"the limit of a segment is 1 character or more, not {limit}")
    if not text or text.isspace():
        return []
    if len(text) <= limit:
        return [(0, len(text))]
    window = _Window(text, limit)
    spans: list[tuple[int, int]] = []
    start, end = 0, len(text.rstrip())
    while True:
        start = _skip_space(text, start)
        if start >= end:
            return spans
        # A tail a little over the limit stays whole: a few words on their own mean little.
        cut = end if end - start <= limit * 6 // 5 else window.cut(start, end)
        spans.append((start, start + len(text[start:cut].rstrip())))
        start = cut


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


class _Window:
    """Finds one cut at a time, looking no further than a segment may reach."""

    def __init__(self, text: str, limit: int) -> None:
        self.text = text
        self.limit = limit
        self.reach = limit * 3 // 2
        spans = [match.span() for match in _FENCE.finditer(text)]
        fences = [(a, b) for a, b in spans if b - a <= self.reach]
        self.fence_starts = [a for a, _ in fences]
        self.fence_ends = [b for _, b in fences]

    def cut(self, start: int, end: int) -> int:
        """The best place to end the segment that begins at `start`."""
        low, mid = start + self.limit * 2 // 5, min(start + self.limit, end)
        high = min(start + self.reach, end)

        def last(places: list[int], a: int, b: int) -> int:
            return max((place for place in places if a < place <= b), default=0)

        def first(places: list[int], a: int, b: int) -> int:
            return min((place for place in places if a < place <= b), default=0)

        paragraphs = self._paragraphs(start, high)
        if cut := last(paragraphs, low, mid):
            return cut
        sentences = paragraphs + self._places(_SENTENCE, start, high, self._ends_sentence)
        if cut := (
            last(sentences, low, mid)
            or first(sentences, mid, high)
            or last(sentences, start + self.limit // 8, low)
        ):
            return cut
        for pattern in (_CLAUSE, _SPACE):
            places = self._places(pattern, start, high)
            if cut := last(places, low, mid) or first(places, mid, high):
                return cut
        if cut := last(places + sentences, start, low):
            return cut
        return self._within_word(start, low, mid, high)

    def _paragraphs(self, start: int, high: int) -> list[int]:
        """Ends of paragraphs, and both sides of a fenced block."""
        a, b = (bisect_left(self.fence_starts, place) for place in (start + 1, high + 1))
        sides = self.fence_starts[a:b] + self.fence_ends[max(a - 1, 0) : b]
        places = self._places(_PARAGRAPH, start, high)
        return places + [place for place in sides if start < place <= high]

    def _places(
        self,
        pattern: re.Pattern[str],
        start: int,
        high: int,
        suits: Callable[[int, int], bool] | None = None,
    ) -> list[int]:
        # One character more than the reach, so that a look ahead can see it.
        matches = pattern.finditer(self.text, start, min(high + 1, len(self.text)))
        return [
            place
            for place in (match.end() for match in matches)
            if start < place <= high
            and (suits is None or suits(start, place))
            and not self._in_fence(place)
            and is_boundary(self.text, place, start)
        ]

    def _ends_sentence(self, start: int, place: int) -> bool:
        return not _ABBREVIATION.search(self.text, max(start, place - 8), place)

    def _in_fence(self, place: int) -> bool:
        i = bisect_left(self.fence_starts, place) - 1
        return i >= 0 and place < self.fence_ends[i]

    def _within_word(self, start: int, low: int, mid: int, high: int) -> int:
        """Where there is no white space: between CJK characters, after a sign, anywhere."""
        text = self.text
        for place in range(mid, low, -1):
            if _CJK.match(text, place - 1) and is_boundary(text, place, start):
                return place
        for place in range(mid, low, -1):
            if text[place - 1] in _SIGNS and is_boundary(text, place, start):
                return place
        for place in chain(range(mid, start, -1), range(mid + 1, high + 1)):
            if is_boundary(text, place, start):
                return place
        return mid


def is_boundary(text: str, place: int, start: int) -> bool:
    r"""Whether a grapheme cluster may end before `place` (UAX #29 GB3 to GB13, in short).

    `start` is a boundary already known, where counting back over flags may stop; `place` lies
    after it. Raises nothing.

    >>> [i for i in range(1, 7) if is_boundary("e\u0301a🇨🇳", i, 0)]
    [2, 3, 5, 6]
    """
    if place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if after < "\u0300":
        return not (before == "\r" and after == "\n")
    if category(after)[0] == "M" or after in _FOLLOWING or before == "\u200d":
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return False  # skin tones; tags of a flag
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    if "\u1160" <= after <= "\u11ff":
        return False  # a Hangul vowel or final consonant
    if combining(before) == 9 and after.isalpha():
        return False  # a virama joins two consonants
    return not _halves_flag(text, place, start)


def _halves_flag(text: str, place: int, start: int) -> bool:
    if not "\U0001f1e6" <= text[place] <= "\U0001f1ff":
        return False
    i = place
    while i > start and "\U0001f1e6" <= text[i - 1] <= "\U0001f1ff":
        i -= 1
    return (place - i) % 2 == 1
