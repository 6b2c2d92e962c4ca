"""A connection inside a transaction, as the shared steps see it.

Statements mark their values with `?`. `IN (?*)` takes a whole list of integers or of bytes as one
value; one of integers may be of any length, one of bytes has up to some hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from scrubjay.model import PartitionKey

Row = tuple[Any, ...]


class Session(Protocol):
    """Runs statements: those of `queries.sql` by name, others as text."""

    def all(self, name: str, *values: object) -> list[Row]:
        """Every row of a named query."""

    def one(self, name: str, *values: object) -> Row | None:
        """The first row of a named query, None where there is none."""

    def change(self, name: str, *values: object) -> int:
        """Run a named statement; how many rows it changed."""

    def change_each(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a named statement once for each of `rows`."""

    def select(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Every row of a query that was put together."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement that was put together; how many rows it changed."""

    def partitions(self, keys: Sequence[PartitionKey]) -> list[Row | None]:
        """(pid, next_seq, generation, epoch) of each partition, which may be read from now on."""

    def new_pid(self, key: PartitionKey) -> object:
        """The number of a partition that is new; None where the engine counts them itself."""


class Transactions(Protocol):
    """Where sessions come from."""

    def read(self, keys: Sequence[PartitionKey] | None) -> AbstractContextManager[Session]:
        """A consistent view of these partitions; None is maintenance over all of them."""
