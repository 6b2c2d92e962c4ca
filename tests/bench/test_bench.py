"""The benchmark runs and measures what it says. How fast is its own business, not a test's."""

from __future__ import annotations

import pytest

from scrubjay.errors import InvalidInput
from scrubjay.evals import bench
from scrubjay.evals.bench import data

NAMES = {
    "bulk ingest without embedding", "vectors and compaction", "on disk", "add acknowledged, p50",
    "add acknowledged, p95", "search, warm, p50", "search, warm, p95", "open to the first answer",
    "search, cold partition", "recall of the exact ten", "search while ingesting, p95",
    "peak memory of a searching process", "index in memory",
}  # fmt: skip


def test_a_small_run_measures_everything() -> None:
    heard: list[str] = []
    report = bench.run(["1k"], model=False, progress=lambda _done, _all, what: heard.append(what))
    figures = {figure["name"]: figure for figure in report.to_dict()["figures"]}
    assert set(figures) == NAMES
    assert heard == ["1k", "done"]
    for figure in figures.values():
        assert figure["value"] > 0, figure
        if figure["baseline"] is not None:
            assert figure["ratio"] == pytest.approx(figure["value"] / figure["baseline"], rel=0.02)
    assert figures["recall of the exact ten"]["reached"] is True
    assert len(report.rows()) == len(figures)


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(InvalidInput, match="100k"):
        bench.run(["1m"])


def test_bars_look_at_ratios_where_there_is_a_baseline() -> None:
    assert bench.Figure("f", "s", 3.0, "ms", 2.0, bar=1.5).reached is True
    assert bench.Figure("f", "s", 3.1, "ms", 2.0, bar=1.5).reached is False
    assert bench.Figure("f", "s", 3.0, "ms", bar=3.5, at_most=False).reached is False
    assert bench.Figure("f", "s", 3.0, "ms").reached is None


def test_made_up_data_is_the_same_at_every_run() -> None:
    assert data.texts(5) == data.texts(5)
    assert (data.vectors(5) == data.vectors(5)).all()
    ready = data.ReadyVectors(["a", "b"], data.vectors(2))
    assert (ready.embed(["b"], "query")[0] == data.vectors(2)[1]).all()
