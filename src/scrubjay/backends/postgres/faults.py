"""PostgreSQL's errors as Scrubjay's, and which of them are worth another try."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from scrubjay import errors

_BUSY = {"55P03", "57014", "53300"}  # lock_not_available, query_canceled, too_many_connections
_FULL = {"53100", "53200", "53400"}  # disk_full, out_of_memory, configuration_limit_exceeded
_AGAIN = {"40001", "40P01"}  # serialization_failure, deadlock_detected
_LOST = {"57P01", "57P02", "57P03", "57P05"}  # shutting down, crashed, starting, idle too long
_MISSING = {"42P01", "42703", "42883", "3F000"}  # table, column, function, schema


def is_lost(exc: BaseException, connection: psycopg.Connection[object] | None = None) -> bool:
    """Whether the server went away, rather than refused."""
    if not isinstance(exc, psycopg.OperationalError):
        return False
    state = exc.sqlstate
    if state in _LOST or (state or "").startswith("08"):
        return True
    return state is None and (connection is None or connection.broken)


def is_worth_repeating(exc: BaseException) -> bool:
    """Whether two transactions met, and one of them had to give way."""
    return isinstance(exc, psycopg.Error) and exc.sqlstate in _AGAIN


def error_for(exc: psycopg.Error, where: str) -> errors.StoreError:
    """What to raise for an error of the server's. `where` names it without its password."""
    state = exc.sqlstate or ""
    said = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
    if is_lost(exc):
        return unavailable(where, said)
    if state in _BUSY:
        return errors.StoreBusy(
            f"{where} did not come to it in time ({said}); nothing of this call was written. "
            "Try again, or raise SCRUBJAY_WRITE_TIMEOUT_S or SCRUBJAY_STATEMENT_TIMEOUT_S"
        )
    if state in _FULL:
        return errors.StoreFull(
            f"{where} has no space or memory left ({said}); nothing of this call was written. "
            "Free some and try again"
        )
    if state == "25006":
        return errors.StoreReadOnly(
            f"{where} is read-only (a standby, or default_transaction_read_only); write to the "
            "primary"
        )
    if state == "42501":
        return errors.StoreReadOnly(f"{where} does not permit it ({said}); see docs/postgres.md")
    if state in _MISSING or state.startswith("XX"):
        return errors.StoreDamaged(
            f"{where} is damaged, or changed by others ({said}); restore a backup with `scrubjay "
            "restore`"
        )
    return errors.StoreError(f"{where} refused what was asked, and nothing was written: {said}")


def unavailable(where: str, said: str) -> errors.StoreUnavailable:
    """The error of a server that cannot be reached."""
    return errors.StoreUnavailable(
        f"{where} cannot be reached ({said}); see that it runs and that the URL is right, then try "
        "again"
    )


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise PostgreSQL's errors as Scrubjay's."""
    try:
        yield
    except psycopg.Error as exc:
        raise error_for(exc, where) from exc
