"""When to search approximately, with which settings, and which index a partition should have.

Pure functions. Costs are counted in rows of an exact scan, which is the unit that was measured
(PostgreSQL 18, pgvector 0.8.6, 384 dimensions, clustered vectors, two cores):

- an exact scan takes about 0.6 µs a row: 15 ms for 20,000, 60 ms for 100,000;
- HNSW takes about 45 µs for each of its `ef_search` candidates, as much as 75 such rows;
- IVFFlat takes as much for a row of the lists that it probes as an exact scan, half more to sort.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Method = Literal["hnsw", "ivfflat", "exact"]
Step = Literal["keep", "create", "drop", "replace"]

EXACT_BELOW = 20_000
"""Vectors of a partition from which on it gets an index of its own. Below, the exact scan takes
at most about 15 ms, finds all, and a put costs 0.1 ms a row, not 5."""

M = 16
"""Neighbours of a node, pgvector's default."""
EF_CONSTRUCTION = 128
"""Twice pgvector's default: 40 percent more time to build; of the best 200 among 100,000 the search
finds 94 percent, not 90."""

_ROWS_A_CANDIDATE = 75
_CANDIDATES_A_RESULT = 4
_LEAST_EF = 100
_MOST_EF = 1_000  # the most that hnsw.ef_search takes
_ROWS_A_VISIT = 10  # of an iterative scan, beyond the first candidates
_LEAST_SCAN = 1_000
_PROBES_FACTOR = 3
_MOST_LISTS = 32_768


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The index of one partition, as the catalogue describes it. `lists` is 0 unless IVFFlat."""

    method: str
    rows: int
    lists: int
    valid: bool


def lists_for(rows: int) -> int:
    """Lists of an IVFFlat index (pgvector README): rows / 1000, above a million sqrt(rows)."""
    lists = rows / 1_000 if rows <= 1_000_000 else math.sqrt(rows)
    return min(max(round(lists), 1), _MOST_LISTS)


def probes_for(lists: int) -> int:
    """Lists to search. pgvector's README starts from sqrt(lists); here it is three times that.

    Measured on 100 lists: 10 probes found 0.36 of the best 50, 32 found 0.77.
    """
    return min(max(round(_PROBES_FACTOR * math.sqrt(lists)), 1), lists)


def build_memory_kb(method: Method, rows: int, dimension: int) -> int:
    """maintenance_work_mem, in kB, with which an index is built without going to disk.

    HNSW holds a node of about 200 bytes, the vector, and 2 m neighbours of 16 bytes (hnsw.h).
    IVFFlat samples 50 vectors a list, at least 10,000, and keeps for k-means a bound of 4 bytes
    from each sample to each list (ivfkmeans.c); it refuses to work with less.
    """
    if method == "hnsw":
        need = rows * (200 + 2 * dimension + 34 * M)
    else:
        lists = lists_for(rows)
        samples = max(10_000, 50 * lists)
        need = samples * (2 * dimension + 16) + 4 * lists * (samples + lists + 2 * dimension)
    return need * 5 // 4 // 1024 + 1024


def surely_exact(k: int, allowed: int | None, method: Method) -> bool:
    """Whether so few may be answered that no index, however large, would be quicker."""
    if method == "exact":
        return True
    least = max(_CANDIDATES_A_RESULT * k, _LEAST_EF) * _ROWS_A_CANDIDATE
    return method == "hnsw" and allowed is not None and allowed <= least


def approximate(
    index: IndexFacts, k: int, allowed: int | None, *, iterative: bool
) -> dict[str, str] | None:
    """The settings of an approximate search for `k`; None where the exact one costs less.

    `allowed` is how many sequences the filter lets through (None: no filter), `iterative`
    whether pgvector goes on by itself when the filter leaves too few (from 0.8 on).
    """
    rows = max(index.rows, 1)
    answerable = rows if allowed is None else min(allowed, rows)
    wanted = math.ceil(_CANDIDATES_A_RESULT * k * rows / max(answerable, 1))
    if index.method == "hnsw":
        candidates = max(wanted, _LEAST_EF)
        if candidates * _ROWS_A_CANDIDATE >= answerable or (wanted > _MOST_EF and not iterative):
            return None
        settings = {"hnsw.ef_search": str(min(candidates, _MOST_EF))}
        if iterative:
            # Relaxed and sorted afterwards: in strict order, what is found late but is nearer
            # than the last answer is thrown away (recall 0.75 against 0.82 at a fifth allowed).
            settings["hnsw.iterative_scan"] = "relaxed_order"
            # Beyond this, going on costs more than the exact scan does.
            most = max(answerable // _ROWS_A_VISIT, _LEAST_SCAN)
            settings["hnsw.max_scan_tuples"] = str(most)
        return settings
    probes = probes_for(index.lists)
    probed = rows * probes // index.lists
    if probed < wanted or probed * 3 // 2 >= answerable:
        return None
    settings = {"ivfflat.probes": str(probes)}
    if iterative:
        settings["ivfflat.iterative_scan"] = "relaxed_order"
        settings["ivfflat.max_probes"] = str(index.lists)
    return settings


def step(index: IndexFacts | None, rows: int, method: Method, exact_below: int) -> Step:
    """What to do about the index of a partition with so many vectors.

    One is dropped only below half of `exact_below`, lest it come and go with every few rows.
    """
    enough = method != "exact" and rows >= exact_below
    if index is None:
        return "create" if enough else "keep"
    if method == "exact" or rows < exact_below // 2:
        return "drop"
    outgrown = method == "ivfflat" and not 0.5 <= lists_for(rows) / max(index.lists, 1) <= 2
    if not index.valid or index.method != method or outgrown:
        return "replace" if enough else "drop"
    return "keep"
