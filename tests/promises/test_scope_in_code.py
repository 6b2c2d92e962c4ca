"""Promise 3, seen from the code: each method of the ports takes a scope, each SQL statement binds
its partition. What does not is listed here, with the reason.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from scrubjay import Memory, ports
from scrubjay.backends import sql
from scrubjay.backends.sql import queries

_SCOPED = {"Scope", "PartitionKey", "PartitionState"}
_UNSCOPED = {
    # Snapshot
    "Snapshot.models": "numbers of models, no memories",
    # Store
    "Store.snapshot": "opens a view; each of its methods takes a scope",
    "Store.add_model": "a model's name and dimension",
    "Store.models": "names of models",
    "Store.count_missing": "one number for maintenance",
    "Store.drop_model": "maintenance: vectors of a model everywhere, nothing is returned",
    "Store.missing_vectors": "maintenance: sequences by partition, no content",
    "Store.claim": "jobs bring their partition along",
    "Store.complete": "jobs bring their partition along",
    "Store.fail": "jobs bring their partition along",
    "Store.job_counts": "numbers",
    "Store.revive": "numbers",
    "Store.partition_keys": "maintenance alone; no verb of a user reaches it",
    "Store.check": "numbers and names of rules",
    "Store.backup": "the whole store, behind the right `admin`",
    "Store.restore": "the whole store, behind the right `admin`",
    "Store.secret": "no memories",
    "Store.origin": "a secret and keyed hashes",
    "Store.adopt": "a secret and keyed hashes",
    "Store.size": "a number",
    "Store.close": "no memories",
}


def _methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for protocol in (ports.Store, ports.Snapshot, ports.VectorIndex):
        for name, method in vars(protocol).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                yield f"{protocol.__name__}.{name}", method


@pytest.mark.parametrize("name", [name for name, _ in _methods()])
def test_each_method_takes_a_scope(name: str) -> None:
    """A method of the ports that touches memories cannot be called without one."""
    method = dict(_methods())[name]
    parameters = {k: str(v) for k, v in inspect.get_annotations(method).items() if k != "return"}
    takes = any(re.search(rf"\b{kind}\b", v) for v in parameters.values() for kind in _SCOPED)
    if name in _UNSCOPED and name != "Store.missing_vectors":
        assert not takes, "it takes a scope; strike it from the exceptions"
    elif name not in _UNSCOPED:
        assert takes, "it takes no scope; give it one, or name the reason in _UNSCOPED"


def test_no_exception_is_out_of_date() -> None:
    assert set(_UNSCOPED) <= {name for name, _ in _methods()}
    assert get_type_hints(Memory.search)["user_id"] == str | None


_BACKENDS = Path(inspect.getfile(sql)).parent.parent
_TABLES = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(memories|turns|vectors|words|sources|segments)\b"
)
_BOUND = re.compile(
    r"\b(?:\w+\.)?pid = (?:\?|\w+\.pid)"  # a condition
    r"|INTO \w+ \([^)]*\bpid\b[^)]*\)"  # a new row says its own
)
_UNBOUND = {
    # an import looks whether an id is another's, to refuse it: yes or no
    "SELECT id FROM memories WHERE pid <> ?": "which of these ids are elsewhere?",
    "SELECT id FROM turns WHERE pid <> ?": "which of these ids are elsewhere?",
    "SELECT p.tenant, p.subject FROM memories m": "is it elsewhere? compared, and not given away",
    "SELECT p.tenant, p.subject FROM turns t": "is it elsewhere? compared, and not given away",
    # maintenance over the whole store, which returns numbers only
    "SELECT (SELECT count(*) FROM memories) - (SELECT count(*) FROM vectors": "a number",
    "DELETE FROM vectors WHERE model = ?": "dropping a model",
    "DELETE FROM segments WHERE kind = 'vectors' AND model = ?": "dropping a model",
    "UPDATE partitions SET": "counters of each partition from its own rows",
}


def _literals() -> Iterator[tuple[str, str]]:
    """(place, SQL) of each statement in the queries.sql of a store and in the stores' code."""
    for package in ("sql", "postgres"):
        for name, text in queries.load(f"scrubjay.backends.{package}").items():
            yield f"{package}/queries.sql: {name}", re.sub(r"--[^\n]*\n", " ", text + "\n")
    for file in sorted(_BACKENDS.glob("*sql*/*.py")) + sorted(_BACKENDS.glob("postgres/*.py")):
        if file.name in ("checks.py", "backup.py"):  # the whole store, behind the right `admin`
            continue
        tree = ast.parse(file.read_text("utf-8"))
        inner: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                inner |= {id(value) for value in node.values}
                text = "".join(
                    v.value if isinstance(v, ast.Constant) else "{}" for v in node.values
                )
                yield f"{file.name}:{node.lineno}", str(text)
            elif isinstance(node, ast.Constant) and id(node) not in inner:
                yield f"{file.name}:{node.lineno}", str(node.value)


def _statements() -> dict[str, str]:
    found = {}
    for place, text in _literals():
        sql = " ".join(text.split())
        is_sql = re.match(r"(SELECT|INSERT|UPDATE|DELETE|WITH)\b", sql)
        if is_sql and (_TABLES.search(sql) or re.search(r"(FROM|UPDATE|INTO) \{\}", sql)):
            found[f"{place}"] = sql
    return found


def test_each_statement_binds_its_partition() -> None:
    """Each SQL statement on rows of memories names the partition, or is a listed exception."""
    statements = _statements()
    assert len(statements) > 40
    unbound = {
        place: sql
        for place, sql in statements.items()
        if not _BOUND.search(sql) and not any(sql.startswith(known) for known in _UNBOUND)
    }
    # The conditions of `select` are put together from parts, the first of which is this one.
    conditions = (_BACKENDS / "sql" / "snapshot.py").read_text("utf-8")
    assert '["m.pid = ?"]' in conditions
    unbound = {p: s for p, s in unbound.items() if "FROM memories m WHERE {} ORDER BY" not in s}
    assert not unbound, "\n".join(f"{p}: {s[:150]}" for p, s in unbound.items())


def test_the_exceptions_are_in_use() -> None:
    """An exception that no statement needs any more is struck off."""
    statements = list(_statements().values())
    idle = [known for known in _UNBOUND if not any(s.startswith(known) for s in statements)]
    assert not idle
