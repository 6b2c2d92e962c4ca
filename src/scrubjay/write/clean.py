"""From what a caller passes as messages to clean ones: NFC text, known roles, checked types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scrubjay.errors import InvalidInput, masked
from scrubjay.model import Role, Skipped
from scrubjay.text.normal import clean

MAX_CONTENT_CHARS = 4_000_000
MAX_MESSAGES = 100_000
_ROLES = {role.value: role for role in Role} | {
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "human": Role.USER,
    "ai": Role.ASSISTANT,
}


@dataclass(frozen=True, slots=True)
class Message:
    """One clean message. `occurred_at` and `metadata` are what the message itself brought."""

    role: Role
    content: str
    occurred_at: object = None
    metadata: Mapping[str, Any] | None = None


def read_messages(messages: object) -> tuple[list[Message], list[Skipped], list[str]]:
    """(messages, skipped ones with the reason, notes of repairs).

    `messages` is a string, one message as a dict, or a list of either; a dict has the OpenAI
    shape (`role`, `content` as text or parts, `tool_calls`) and may bring `occurred_at` (or
    `timestamp`) and `metadata`. A blank message in a list is skipped; when nothing is left,
    or anything has a wrong type, `InvalidInput` says which.
    """
    items = [messages] if isinstance(messages, (str, Mapping)) else messages
    if not isinstance(items, Sequence) or isinstance(items, (bytes, bytearray)):
        raise InvalidInput(
            f"messages is a string, a dict or a list of these, not {type(messages).__name__}"
        )
    if len(items) > MAX_MESSAGES:
        raise InvalidInput(f"{len(items)} messages at once; pass at most {MAX_MESSAGES}")
    found: list[Message] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
    for number, item in enumerate(items):
        message = _read(item, number, notes)
        if message.content.strip():
            found.append(message)
        else:
            skipped.append(Skipped(f"message {number}", "blank"))
    if not found:
        raise InvalidInput("there is nothing to remember: every message is empty or blank")
    return found, skipped, notes


def _read(item: object, number: int, notes: list[str]) -> Message:
    where = f"message {number}"
    if isinstance(item, str):
        return Message(Role.USER, _text(item, where, notes))
    if not isinstance(item, Mapping):
        raise InvalidInput(f"{where} is a string or a dict, not {type(item).__name__}")
    role = item.get("role", "user")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        known = ", ".join(r.value for r in Role)
        raise InvalidInput(f"{where} has the unknown role {masked(role)}; use one of {known}")
    content = _content(item, where)
    metadata = item.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInput(f"{where}: metadata is a dict, not {type(metadata).__name__}")
    return Message(
        _ROLES[role.lower()],
        _text(content, where, notes),
        item.get("occurred_at", item.get("timestamp")),
        metadata,
    )


def _content(item: Mapping[str, Any], where: str) -> str:
    content = item.get("content")
    if content is None and not item.get("tool_calls"):
        raise InvalidInput(f"{where} has no content; a message is {{'role': …, 'content': …}}")
    parts = [] if content is None else _parts(content, where)
    calls = item.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or isinstance(calls, (str, bytes)):
        raise InvalidInput(f"{where}: tool_calls is a list, not {type(calls).__name__}")
    parts += [_tool_call(call, where) for call in calls]
    return "\n".join(parts)


def _parts(content: object, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise InvalidInput(
            f"{where}: content is text or a list of parts, not {type(content).__name__}"
        )
    found = []
    for part in content:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif isinstance(part, Mapping) and isinstance(part.get("type"), str):
            found.append(f"[{part['type']}]")  # an image or a file: that it was there is kept
        else:
            raise InvalidInput(f"{where}: a content part is text or a dict with a type")
    return found


def _tool_call(call: object, where: str) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidInput(f"{where}: a tool call is {{'function': {{'name', 'arguments'}}}}")
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as exc:
            raise InvalidInput(f"{where}: a tool call's arguments are text or plain JSON") from exc
    return f"{function['name']}({arguments})"


def _text(content: str, where: str, notes: list[str]) -> str:
    if len(content) > MAX_CONTENT_CHARS:
        raise InvalidInput(
            f"{where} has {len(content)} characters, more than {MAX_CONTENT_CHARS}; split it"
        )
    text, repairs = clean(content)
    notes.extend(repairs)
    return text
