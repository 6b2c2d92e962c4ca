"""From a caller's ids to a checked `Scope`, and whether a principal may act in it."""

from __future__ import annotations

from scrubjay.errors import InvalidInput, NotPermitted, ScopeRequired, masked
from scrubjay.model import Principal, Right, Scope

MAX_ID_LENGTH = 512


def check_id(name: str, value: object, *, required: bool = False) -> str | None:
    """The id as it was given: never trimmed, folded or normalised, so that no two meet.

    Raises `InvalidInput` for what is no string, is blank, too long, or holds a NUL or a lone
    surrogate; `ScopeRequired` when it is required and missing.

    >>> check_id("user_id", "Team 1 ")
    'Team 1 '
    """
    if value is None:
        if required:
            raise ScopeRequired(f"{name} is missing; every call names whose memories it means")
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is a string, not {type(value).__name__}; pass str({name})")
    if not value.strip():
        raise ScopeRequired(f"{name} is blank; pass None to leave it out, or a real id")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(
            f"{name} {masked(value)} is longer than {MAX_ID_LENGTH} characters; use a hash of it"
        )
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidInput(
            f"{name} {masked(value)} holds a NUL or a lone surrogate, which no id may"
        )
    return value


def make_scope(
    *,
    user_id: object = None,
    device_id: object = None,
    agent_id: object = None,
    session_id: object = None,
    namespace: object = None,
    tenant: str = "default",
) -> Scope:
    """A checked scope. Raises `ScopeRequired` without a user or device.

    >>> make_scope(user_id="ada", session_id="s1").subject
    'user:ada'
    """
    scope = Scope(
        user_id=check_id("user_id", user_id),
        device_id=check_id("device_id", device_id),
        agent_id=check_id("agent_id", agent_id),
        session_id=check_id("session_id", session_id),
        namespace=check_id("namespace", namespace),
        tenant=tenant,
    )
    if scope.user_id is None and scope.device_id is None:
        raise ScopeRequired("user_id is missing; every call names whose memories it means")
    return scope


def authorise(principal: Principal, right: Right, scope: Scope) -> None:
    """Let the call pass, or raise `NotPermitted`."""
    if not isinstance(principal, Principal):
        raise InvalidInput(f"principal is a Principal, not {type(principal).__name__}")
    if principal.tenant not in (None, scope.tenant):
        raise NotPermitted(f"{principal.name!r} belongs to another tenant")
    if right not in principal.rights:
        raise NotPermitted(f"{principal.name!r} lacks the right {right.value!r} this call needs")
