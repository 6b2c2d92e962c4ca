"""Scrubjay: the long-term memory for AI agents.

>>> import scrubjay
>>> scrubjay.Memory.__name__
'Memory'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrubjay import errors
from scrubjay.model import (
    OWNER,
    Erasure,
    Hit,
    Kind,
    MemoryRecord,
    Page,
    Principal,
    RecallPolicy,
    Receipt,
    Result,
    Right,
    Role,
    Scope,
    Source,
    SourceClass,
    State,
    Tier,
    Turn,
    Version,
    Visibility,
)

if TYPE_CHECKING:
    from scrubjay.life.upkeep import Health
    from scrubjay.read.pack import Context
    from scrubjay.settings import Settings
    from scrubjay.wiring import AsyncMemory, Memory, migrate

__version__ = "0.1.0"

_LATE = {
    "Memory": "scrubjay.wiring",
    "AsyncMemory": "scrubjay.wiring",
    "migrate": "scrubjay.wiring",
    "Settings": "scrubjay.settings",
    "Context": "scrubjay.read.pack",
    "Health": "scrubjay.life.upkeep",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy when it is first asked for, so that `import scrubjay` is quick."""
    if name not in _LATE:
        raise AttributeError(f"module 'scrubjay' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LATE[name]), name)
    globals()[name] = value
    return value


__all__ = [
    "OWNER", "AsyncMemory", "Context", "Erasure", "Health", "Hit", "Kind", "Memory",
    "MemoryRecord", "Page", "Principal", "RecallPolicy", "Receipt", "Result", "Right", "Role",
    "Scope", "Settings", "Source", "SourceClass", "State", "Tier", "Turn", "Version",
    "Visibility", "errors", "migrate",
]  # fmt: skip
