"""Contract: turn texts into token windows that fit the model, and windows into batches.

Nothing is cut away: a text longer than the model's limit becomes several windows of nearly equal
length, each with the role's prefix and the special tokens, and each counts by its content tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrubjay.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_ROWS = 64
"""Most windows in one batch."""


@dataclass(frozen=True, slots=True)
class Window:
    """Token ids for one run: a part of text number `text` with `weight` tokens of content."""

    text: int
    ids: list[int]
    weight: int


class Windower:
    """Tokenises texts: one call per text, never the library's thread pool (it breaks on fork)."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        probe = tokenizer.encode("a")
        content = [i for i, flag in enumerate(probe.special_tokens_mask) if not flag]
        if not content:
            raise ModelError("the tokenizer gives no token for the letter 'a'")
        self._before = probe.ids[: content[0]]
        self._after = probe.ids[content[-1] + 1 :]
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens

    def windows(self, texts: Sequence[str], prefix: str) -> list[Window]:
        """Give every window of every text, in order. A text gives one window or more.

        Raises `ModelError` if prefix and special tokens leave no room for content.
        """
        result: list[Window] = []
        for number, text in enumerate(texts):
            whole = (prefix + text).encode("utf-8", "replace").decode()  # no lone surrogates
            encoding = self._tokenizer.encode(whole, add_special_tokens=False)
            ids = encoding.ids
            head = 0
            if prefix and len(ids) + len(self._before) + len(self._after) > self._max_tokens:
                head = sum(1 for _, end in encoding.offsets if end <= len(prefix))
            result += self._split(number, ids[:head], ids[head:])
        return result

    def _split(self, number: int, head: list[int], content: list[int]) -> Iterator[Window]:
        room = self._max_tokens - len(self._before) - len(self._after) - len(head)
        if room < 1:
            raise ModelError(f"a limit of {self._max_tokens} tokens leaves no room for the text")
        count = max(1, -(-len(content) // room))
        for part in range(count):
            start, end = len(content) * part // count, len(content) * (part + 1) // count
            ids = [*self._before, *head, *content[start:end], *self._after]
            yield Window(number, ids or [0], max(1, end - start))


def make_batches(windows: Sequence[Window], max_tokens: int) -> list[list[int]]:
    """Give the windows' numbers in batches of like length, each at most `max_tokens` when padded.

    A window that is longer than that has a batch of its own.

    >>> short, long = Window(0, [1] * 3, 1), Window(1, [1] * 9, 1)
    >>> make_batches([long, short, short], 10)
    [[1, 2], [0]]
    """
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
    batches: list[list[int]] = []
    for i in order:
        longest = len(windows[i].ids)  # sorted: the newest is the longest of its batch
        fits = batches and (len(batches[-1]) + 1) * longest <= max_tokens
        if fits and len(batches[-1]) < MAX_ROWS:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
