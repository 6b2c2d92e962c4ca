"""What an evaluation found, ready to print or to keep as JSON.

Scores lie between 0 and 1 and are means over questions; latencies are milliseconds of one
`search`; tokens are those of one `context` block. `to_dict` has the metric names of the papers
at its top level (`"recall@10"`), the same by group below `"by_<group>"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scrubjay.evals import score


@dataclass(frozen=True, slots=True)
class Latency:
    """Half of the searches took at most `p50` ms, 95 in a hundred at most `p95` ms."""

    p50: float
    p95: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Latency:
        """Both percentiles of some durations in milliseconds.

        >>> Latency.of([1.0, 2.0, 3.0])
        Latency(p50=2.0, p95=2.9)
        """
        kept = list(values)
        return cls(p50=score.percentile(kept, 50), p95=score.percentile(kept, 95))

    def to_dict(self) -> dict[str, float]:
        """`{"p50": ms, "p95": ms}`, to a thousandth."""
        return {"p50": round(self.p50, 3), "p95": round(self.p95, 3)}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one evaluation.

    `messages` were added for it, `questions` were asked and scored, `skipped` were not (by
    reason). `questions_embedded` of them were searched by vectors as well as by words; `notes`
    are those that searches brought, each with how many questions it came with.
    `tokens_per_query` is None where the benchmark does not measure it.
    """

    name: str
    by: str
    messages: int
    questions: int
    skipped: Mapping[str, int]
    questions_embedded: int
    notes: Mapping[str, int]
    overall: Mapping[str, float]
    groups: Mapping[str, Mapping[str, float]]
    tokens_per_query: float | None
    with_embedding: Latency
    without_embedding: Latency
    seconds_to_ingest: float

    @property
    def channels(self) -> str:
        """How the questions were searched: by words only, or by vectors too."""
        if self.questions_embedded == 0:
            return "words only"
        if self.questions_embedded == self.questions:
            return "words and vectors"
        return f"words; vectors for {self.questions_embedded} of {self.questions} questions"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; scores to four digits, milliseconds to three."""
        report: dict[str, Any] = {
            "name": self.name,
            "messages": self.messages,
            "questions": self.questions,
            "skipped": dict(self.skipped),
            "channels": self.channels,
            "notes": dict(self.notes),
            **_rounded(self.overall),
            f"by_{self.by}": {group: _rounded(row) for group, row in self.groups.items()},
            "latency_ms": {
                "with_embedding": self.with_embedding.to_dict(),
                "without_embedding": self.without_embedding.to_dict(),
            },
            "seconds_to_ingest": round(self.seconds_to_ingest, 1),
        }
        if self.tokens_per_query is not None:
            report["tokens_per_query"] = round(self.tokens_per_query, 1)
        return report

    def rows(self) -> Iterator[tuple[str, int, Mapping[str, float]]]:
        """For a table: the overall row, then each group: its name, questions, and scores."""
        yield "overall", self.questions, self.overall
        for group, row in self.groups.items():
            scores = {name: value for name, value in row.items() if name != "questions"}
            yield group, int(row["questions"]), scores


def _rounded(row: Mapping[str, float]) -> dict[str, float]:
    return {
        name: value if isinstance(value, int) else round(value, 4) for name, value in row.items()
    }
