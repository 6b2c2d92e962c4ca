"""The metrics of retrieval, as pure functions: same input, same number, nothing read or written.

A *ranking* is what came back, best first. Where a hit may stand for several labels (a memory
made of two turns has two dialogue ids), the ranking is a list of collections of labels; where
only distinct labels count (sessions), `distinct` makes it a list of labels first. *Gold* is the
set of labels that answer the question; it is never empty (a question without evidence is
skipped by its loader, because no recall is defined for it). Every score lies between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence


def recall_at(ranked: Sequence[Collection[str]], gold: Collection[str], k: int) -> float:
    """Share of the gold labels found among the first `k` hits (LoCoMo, Maharana et al. 2024).

    A hit counts for each of its labels; a label found twice counts once.
    Raises `ValueError` when `gold` is empty or `k` is below 1.

    >>> recall_at([{"D1:3"}, {"D2:1", "D2:2"}, {"D9:9"}], {"D1:3", "D2:2", "D4:4"}, 2)
    0.6666666666666666
    """
    wanted = _checked(gold, k)
    found = {label for labels in ranked[:k] for label in labels if label in wanted}
    return len(found) / len(wanted)


def reciprocal_rank(ranked: Sequence[Collection[str]], gold: Collection[str]) -> float:
    """1 / rank of the first hit that carries a gold label, 0 when none does (Voorhees 1999).

    The mean of it over questions is the MRR, cut at as many hits as were asked for.
    Raises `ValueError` when `gold` is empty.

    >>> reciprocal_rank([{"a"}, {"b", "c"}], {"c"})
    0.5
    """
    wanted = _checked(gold, 1)
    for rank, labels in enumerate(ranked, start=1):
        if any(label in wanted for label in labels):
            return 1.0 / rank
    return 0.0


def distinct(ranked: Iterable[Collection[str]]) -> list[str]:
    """Labels in the order in which they first appear: hits become a ranking of sessions.

    >>> distinct([["s2"], ["s1"], ["s2", "s3"]])
    ['s2', 's1', 's3']
    """
    return list(dict.fromkeys(label for labels in ranked for label in labels))


def recall_any(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1.0 when any gold label is among the first `k`, else 0.0 (LongMemEval, Wu et al. 2025).

    Raises `ValueError` when `gold` is empty or `k` is below 1.

    >>> recall_any(["s1", "s2", "s3"], {"s2", "s9"}, 2)
    1.0
    """
    return float(not _checked(gold, k).isdisjoint(ranked[:k]))


def recall_all(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """1.0 when every gold label is among the first `k`, else 0.0 (LongMemEval, Wu et al. 2025).

    Raises `ValueError` when `gold` is empty or `k` is below 1.

    >>> recall_all(["s1", "s2", "s3"], {"s2", "s9"}, 3)
    0.0
    """
    return float(_checked(gold, k).issubset(ranked[:k]))


def ndcg(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain at `k`, binary, as LongMemEval computes it.

    The weights of the ranks are 1, 1, 1/log2(3), 1/log2(4) … (the older form of Järvelin and
    Kekäläinen 2002, in which the second rank is not discounted). The ideal ranking holds
    min(k, number of gold labels) hits at its head.
    Raises `ValueError` when `gold` is empty or `k` is below 1.

    >>> round(ndcg(["s9", "s1", "s8", "s2"], {"s1", "s2"}, 10), 4)
    0.75
    """
    wanted = _checked(gold, k)
    gain = sum(_weight(i) for i, label in enumerate(ranked[:k]) if label in wanted)
    ideal = sum(_weight(i) for i in range(min(k, len(wanted))))
    return gain / ideal


def _weight(position: int) -> float:
    """Weight of a 0-based position: 1, 1, 1/log2(3), 1/log2(4) …"""
    return 1.0 if position == 0 else 1.0 / math.log2(position + 1)


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean, summed exactly; 0.0 of nothing (a group without questions).

    >>> mean([1.0, 0.0, 0.5])
    0.5
    """
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def percentile(values: Iterable[float], q: float) -> float:
    """The `q`-th percentile (0 to 100), linear between neighbours, in the unit of `values`.

    Hyndman and Fan's type 7 (1996), which numpy uses too; 0.0 of nothing.
    Raises `ValueError` when `q` lies outside 0 to 100.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50)
    2.5
    """
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {q!r}")
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * q / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _checked(gold: Collection[str], k: int) -> frozenset[str]:
    if not gold:
        raise ValueError("no gold labels: skip the question, its recall is not defined")
    if k < 1:
        raise ValueError(f"k counts hits and starts at 1, not {k!r}")
    return frozenset(gold)
