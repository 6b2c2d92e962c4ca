"""The metrics against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from scrubjay.evals import score
from scrubjay.evals.locomo import scores as locomo_scores
from scrubjay.evals.longmemeval import scores as longmemeval_scores
from scrubjay.evals.memdaily import scores as memdaily_scores
from scrubjay.evals.report import Latency, Report

RANKED = [["x"], ["a"], ["y", "b"], ["a"], ["c"]]


@pytest.mark.parametrize(
    ("k", "expected"), [(1, 0.0), (2, 1 / 3), (3, 2 / 3), (4, 2 / 3), (5, 1.0), (50, 1.0)]
)
def test_recall_counts_each_gold_label_once(k: int, expected: float) -> None:
    assert score.recall_at(RANKED, {"a", "b", "c"}, k) == pytest.approx(expected)


def test_recall_of_an_empty_ranking_is_zero() -> None:
    assert score.recall_at([], {"a"}, 10) == 0.0


@pytest.mark.parametrize(
    ("gold", "expected"),
    [({"x"}, 1.0), ({"a"}, 0.5), ({"b"}, 1 / 3), ({"c", "b"}, 1 / 3), ({"nowhere"}, 0.0)],
)
def test_reciprocal_rank_of_the_first_hit_with_evidence(gold: set[str], expected: float) -> None:
    assert score.reciprocal_rank(RANKED, gold) == pytest.approx(expected)


def test_distinct_keeps_first_appearances() -> None:
    assert score.distinct(RANKED) == ["x", "a", "y", "b", "c"]
    assert score.distinct([]) == []


def test_any_and_all_differ_when_one_session_is_missing() -> None:
    ranked = ["s1", "s2", "s3", "s4"]
    assert score.recall_any(ranked, {"s3", "s9"}, 3) == 1.0
    assert score.recall_any(ranked, {"s3", "s9"}, 2) == 0.0
    assert score.recall_all(ranked, {"s3", "s9"}, 4) == 0.0
    assert score.recall_all(ranked, {"s1", "s4"}, 4) == 1.0
    assert score.recall_all(ranked, {"s1", "s4"}, 3) == 0.0


def test_ndcg_weights_are_one_one_then_log2() -> None:
    ranked = ["s1", "s2", "s3", "s4"]
    assert score.ndcg(ranked, {"s1"}, 10) == 1.0
    assert score.ndcg(ranked, {"s2"}, 10) == 1.0
    assert score.ndcg(ranked, {"s3"}, 10) == pytest.approx(1 / math.log2(3))
    assert score.ndcg(ranked, {"s4"}, 10) == pytest.approx(0.5)
    # three gold, found at ranks 1 and 3: (1 + 1/log2 3) / (1 + 1 + 1/log2 3)
    expected = (1 + 0.63092975) / (2 + 0.63092975)
    assert score.ndcg(ranked, {"s1", "s3", "s9"}, 10) == pytest.approx(expected)


def test_ndcg_is_cut_at_k_on_both_sides() -> None:
    assert score.ndcg(["x", "s1"], {"s1"}, 1) == 0.0
    assert score.ndcg(["s1", "x"], {"s1", "s2", "s3"}, 1) == 1.0


def test_no_gold_and_no_k_are_refused() -> None:
    with pytest.raises(ValueError, match="no gold"):
        score.recall_at(RANKED, set(), 5)
    with pytest.raises(ValueError, match="starts at 1"):
        score.recall_any(["a"], {"a"}, 0)
    with pytest.raises(ValueError, match="no gold"):
        score.reciprocal_rank(RANKED, ())


@pytest.mark.parametrize(
    ("q", "expected"), [(0, 10.0), (25, 17.5), (50, 25.0), (95, 38.5), (100, 40.0)]
)
def test_percentiles_are_linear_between_neighbours(q: float, expected: float) -> None:
    assert score.percentile([40.0, 10.0, 30.0, 20.0], q) == pytest.approx(expected)


def test_percentile_edges() -> None:
    assert score.percentile([], 50) == 0.0
    assert score.percentile([7.0], 95) == 7.0
    with pytest.raises(ValueError, match="between 0 and 100"):
        score.percentile([1.0], 101)


def test_mean() -> None:
    assert score.mean([]) == 0.0
    assert score.mean([0.25, 0.75, 1.0]) == pytest.approx(2 / 3)


def test_the_benchmarks_report_the_metrics_they_define() -> None:
    ranked = [[f"n{i}"] for i in range(9)] + [["a"]]
    assert locomo_scores(ranked, {"a"}) == {
        "recall@1": 0.0,
        "recall@5": 0.0,
        "recall@10": 1.0,
        "recall@20": 1.0,
        "mrr": pytest.approx(0.1),
    }
    assert longmemeval_scores([["s1"], ["s1"], ["s2"], ["s3"]], {"s1", "s3"}) == {
        "recall_any@5": 1.0,
        "recall_all@5": 1.0,
        "recall_all@10": 1.0,
        "ndcg@10": pytest.approx((1 + 1 / math.log2(3)) / 2),
    }
    assert memdaily_scores(ranked, {"a", "n0"}) == {"recall@5": 0.5, "recall@10": 1.0}


def report(embedded: int) -> Report:
    return Report(
        name="locomo",
        by="category",
        messages=3,
        questions=2,
        skipped={"no evidence": 1},
        questions_embedded=embedded,
        notes={},
        overall={"recall@1": 1 / 3},
        groups={"1 multi-hop": {"questions": 2, "recall@1": 1 / 3}},
        tokens_per_query=101.25,
        with_embedding=Latency(2.0, 3.00049),
        without_embedding=Latency(1.0, 2.0),
        seconds_to_ingest=0.123,
    )


def test_a_report_is_plain_data() -> None:
    assert report(2).to_dict() == {
        "name": "locomo",
        "messages": 3,
        "questions": 2,
        "skipped": {"no evidence": 1},
        "channels": "words and vectors",
        "notes": {},
        "recall@1": 0.3333,
        "by_category": {"1 multi-hop": {"questions": 2, "recall@1": 0.3333}},
        "latency_ms": {
            "with_embedding": {"p50": 2.0, "p95": 3.0},
            "without_embedding": {"p50": 1.0, "p95": 2.0},
        },
        "seconds_to_ingest": 0.1,
        "tokens_per_query": 101.2,
    }
    assert list(report(2).rows()) == [
        ("overall", 2, {"recall@1": 1 / 3}),
        ("1 multi-hop", 2, {"recall@1": 1 / 3}),
    ]


def test_a_report_says_which_channels_were_there() -> None:
    assert report(0).channels == "words only"
    assert report(1).channels == "words; vectors for 1 of 2 questions"
