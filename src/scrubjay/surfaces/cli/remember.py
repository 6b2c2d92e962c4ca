"""The commands that write memories: `add`, `update`, `import`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scrubjay.model import Role, Visibility
from scrubjay.surfaces.cli import opening, options, output, show, typed

if TYPE_CHECKING:
    from scrubjay import Receipt, Settings

_WAIT_S = 5.0
_LATER = (
    "found by words now, and by meaning once `scrubjay flush`, or the next `scrubjay add`, has "
    "embedded it; nothing is lost"
)


Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT...",
        help="What was said, one message each; `-` reads one from standard input.",
    ),
]
Occurred = Annotated[
    str | None,
    options.option(
        "--occurred-at",
        metavar="TIME",
        help="When it was said, as 2026-03-09T10:00+08:00; else now.",
    ),
]
Metadata = Annotated[
    str | None,
    options.option(
        "--metadata",
        metavar="JSON",
        help='What `--filter` can ask for later, as {"tag": "trip"}.',
    ),
]
KindOf = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="episode, or what you know it to be: fact, preference, decision, commitment, event, "
        "insight, attribute.",
    ),
]
Seen = Annotated[
    Visibility,
    typer.Option(
        "--visibility",
        help="shared by all agents of the user, private to `--agent`, or common to all users.",
    ),
]
Expires = Annotated[
    str | None,
    options.option("--expires-at", metavar="TIME", help="When it is no longer found."),
]
Key = Annotated[
    str | None,
    options.option(
        "--idempotency-key",
        metavar="KEY",
        help="The same key again writes nothing and gives the first receipt.",
    ),
]
Wait = Annotated[
    bool | None,
    options.option(
        "--wait/--no-wait",
        help="Wait up to a minute for the vectors, or not at all; without either a few seconds, "
        "where the model is prepared.",
    ),
]


def add(
    texts: Texts,
    role: Annotated[Role, typer.Option("--role", help="Who said it.")] = Role.USER,
    occurred_at: Occurred = None,
    metadata: Metadata = None,
    kind: KindOf = "episode",
    visibility: Seen = Visibility.SHARED,
    expires_at: Expires = None,
    idempotency_key: Key = None,
    wait: Wait = None,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Remember what was said; on disk, and findable by words, when this returns.

    A statement that is known already gains a source and keeps its id.

    - `scrubjay add "I prefer a window seat." --user ada`

    - `scrubjay add "订单 DD20260115-7731 已发货" --user lin --role assistant --session s1`

    - `git log -1 | scrubjay add - --user ada --metadata '{"project": "jay"}'`
    """
    settings = opening.load_settings(path, time_zone)
    given: dict[str, Any] = {
        "user_id": user, "device_id": device, "agent_id": agent, "session_id": session,
        "namespace": namespace, "occurred_at": occurred_at,
        "metadata": typed.json_object("--metadata", metadata), "kind": kind,
        "visibility": visibility, "expires_at": expires_at, "idempotency_key": idempotency_key,
    }  # fmt: skip
    messages = [{"role": role.value, "content": text} for text in typed.texts(texts)]
    receipt = _added(settings, messages, given, wait)
    if as_json:
        output.emit(receipt)
    else:
        _show_receipt(receipt)
    output.notes(receipt.notes)
    output.notes(f"{skipped.what} was skipped: {skipped.reason}" for skipped in receipt.skipped)
    if receipt.pending:
        output.alert("note", _LATER)


def _added(
    settings: Settings, messages: list[dict[str, str]], given: dict[str, Any], wait: bool | None
) -> Receipt:
    """The receipt, after a wait for the vectors that is as long as was asked for."""
    waits = opening.is_model_ready(settings) if wait is None else wait
    with opening.opened(settings, model=waits, missing="make") as (memory, _):
        receipt = memory.add(messages, wait=bool(wait), **given)
        if wait is None and waits and receipt.pending and memory.flush(_WAIT_S):
            receipt = replace(receipt, pending=())
    return receipt


def _show_receipt(receipt: Receipt) -> None:
    distinct = list(dict.fromkeys(receipt.ids))
    what = output.counted(len(distinct), "memory", "memories")
    words = {
        "stored": f"stored {what}",
        "duplicate": f"known already: {what} gained a source",
        "replayed": f"this idempotency key was used before, for {what}; nothing was written",
    }
    output.say(words[receipt.status])
    for memory_id in distinct:
        known = "  (known already)" if memory_id in receipt.duplicates else ""
        output.say(f"   {memory_id}{known}")


Content = Annotated[
    str, typer.Argument(metavar="TEXT", help="The new content; `-` reads standard input.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, kept with the old version.")
]


def update(
    memory_id: options.MemoryId,
    content: Content,
    reason: Reason = "updated",
    occurred_at: Occurred = None,
    metadata: Metadata = None,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Give a memory a new version; the old one is kept as superseded, with the reason.

    Without `--metadata` the old ones are kept.

    - `scrubjay update 019b76da-… "I prefer an aisle seat." --user ada --reason "said so today"`
    """
    settings = opening.load_settings(path, time_zone)
    (text,) = typed.texts([content])
    given = typed.json_object("--metadata", metadata)
    with opening.opened(settings) as (memory, _):
        new = memory.update(
            memory_id, text, reason=reason, user_id=user, device_id=device, agent_id=agent,
            occurred_at=occurred_at, metadata=given,
        )  # fmt: skip
    if as_json:
        output.emit(new)
    else:
        output.say(f"version {new.version}:")
        show.record(new, show.zone_of(settings))
    if settings.embedder != "none":
        output.alert("note", _LATER)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until everything is findable by meaning."),
    ] = True,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Read a file that `export` wrote, or a chat transcript; the same file again adds nothing.

    A transcript is JSON lines or one JSON array of messages as chat models have them:
    `{"role": "user", "content": "…"}`, each with `occurred_at` (or `timestamp`), `session_id`,
    `user_id` and `metadata` if you like. `--user` and `--session` stand in where a line has none.
    The file is checked whole first; an error names the line, and nothing is imported. An export
    brings its sessions, agents and namespaces along.

    - `scrubjay import chat.jsonl --user ada --session 2026-03-09`

    - `scrubjay import ada.jsonl --user ada`
    """
    settings = opening.load_settings(path, time_zone)
    from scrubjay.interchange import transcripts

    is_export = transcripts.is_export(file)
    if is_export:
        _refuse_for_export(agent=agent, session=session, namespace=namespace)
    with opening.opened(settings, model=wait, missing="make") as (memory, bars):
        if is_export:
            counts = memory.import_(file, user_id=user, device_id=device, progress=bars)
        else:
            counts = transcripts.import_(
                memory, file, user_id=user, device_id=device, agent_id=agent, session_id=session,
                namespace=namespace, time_zone=settings.timezone, progress=bars,
            )  # fmt: skip
        embedded = wait and memory.flush(progress=bars)
    if as_json:
        output.emit(counts)
    else:
        show.counts(counts)
    if not embedded and settings.embedder != "none":
        output.alert("note", _LATER)


def _refuse_for_export(**given: str | None) -> None:
    from scrubjay.errors import InvalidInput

    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"--{name} is for transcripts; an export brings its own, so leave --{name} out"
            )
