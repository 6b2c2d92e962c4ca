"""Every error Scrubjay raises on purpose, drawn as a tree.

::

    ScrubjayError
    ├── InvalidInput (ValueError)      the caller's mistake: wrong type, range, operator, time
    │   ├── ScopeRequired              no user (or device): no scope, no answer
    │   ├── IdempotencyConflict        the key was used before with another body
    │   └── ImportFailed               a line of an import cannot be read; nothing was imported
    ├── NotFound (LookupError)         no such memory in this scope
    ├── NotPermitted                   the principal lacks the right
    ├── StoreError                     the store cannot do it now, or at all
    │   ├── StoreBusy                  another process held the write lock too long
    │   ├── StoreUnavailable           the database server cannot be reached
    │   ├── StoreFull                  no space left on the disk
    │   ├── StoreReadOnly              the directory or file cannot be written
    │   ├── StoreDamaged               the file is not a database, or fails its checks
    │   ├── SchemaTooNew               written by a newer Scrubjay
    │   └── StoreClosed                the memory was closed
    ├── ModelError                     an embedding model cannot be used
    │   ├── ModelUnavailable           not there (yet), or the endpoint is down: try again
    │   ├── ModelRejected              the endpoint refuses this very input: do not try again
    │   └── ModelMismatch              the store's vectors come from another model
    └── SettingsError (ValueError)     a setting cannot be read

An error's text says what was wrong, which value, and what to do next. The text never holds
the content of a memory; a value that may be private is shown through `masked`.
"""

from __future__ import annotations

import re


class ScrubjayError(Exception):
    """Base of every error raised on purpose. `code` is stable and machine-readable."""

    code = "error"


class InvalidInput(ScrubjayError, ValueError):
    """The caller's input cannot be used; nothing was written."""

    code = "invalid_input"


class ScopeRequired(InvalidInput):
    """A call came without a user or device; there is no query without a scope."""

    code = "scope_required"


class IdempotencyConflict(InvalidInput):
    """An idempotency key came back with a different body."""

    code = "idempotency_conflict"


class ImportFailed(InvalidInput):
    """A file to import holds a line that cannot be read; nothing of it was imported."""

    code = "import_failed"


class NotFound(ScrubjayError, LookupError):
    """No such memory in the caller's scope."""

    code = "not_found"


class NotPermitted(ScrubjayError):
    """The principal lacks the right this verb needs."""

    code = "not_permitted"


class StoreError(ScrubjayError):
    """The store cannot do what was asked."""

    code = "store_error"


class StoreBusy(StoreError):
    """Another process held the write lock longer than the timeout."""

    code = "store_busy"


class StoreUnavailable(StoreError):
    """The database server cannot be reached."""

    code = "store_unavailable"


class StoreFull(StoreError):
    """The disk is full; the write was rolled back as a whole."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store's directory or file cannot be written."""

    code = "store_read_only"


class StoreDamaged(StoreError):
    """The file is not a database, or a check of it failed."""

    code = "store_damaged"


class SchemaTooNew(StoreError):
    """The store was written by a newer Scrubjay."""

    code = "schema_too_new"


class StoreClosed(StoreError):
    """The memory was closed."""

    code = "store_closed"


class ModelError(ScrubjayError):
    """An embedding model cannot be used."""

    code = "model_error"


class ModelUnavailable(ModelError):
    """The model is not there yet, or its endpoint is down; a later try may succeed."""

    code = "model_unavailable"


class ModelRejected(ModelError):
    """The model refuses this very input; trying the same again will not help."""

    code = "model_rejected"


class ModelMismatch(ModelError):
    """The store's vectors were made by another model."""

    code = "model_mismatch"


class SettingsError(ScrubjayError, ValueError):
    """A setting cannot be read or is out of range."""

    code = "settings_error"


def without_password(place: object) -> str:
    """A path or URL as it may be shown.

    >>> without_password("postgresql://ada:secret@db/memories?password=again")
    'postgresql://ada:***@db/memories?password=***'
    """
    shown = re.sub(r"(?<=://)([^/@:]*):[^@]*@", r"\1:***@", str(place))
    return re.sub(r"(?<=password=)[^&\s]*", "***", shown)


def masked(value: object) -> str:
    """Show enough of a value to recognise it in an error, never all of it.

    >>> masked("13800138000")
    "'13…' (11 characters)"
    >>> masked(7)
    '7'
    """
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, (bool, int, float, type(None))):
        return repr(value)
    text = str(value)
    head = text[:2] if len(text) > 4 else ""
    return f"{head + '…'!r} ({len(text)} characters)"
