"""The commands that read memories: `search`, `context`, `get`, `list`, `history`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scrubjay.surfaces.cli import opening, options, output, show, typed

if TYPE_CHECKING:
    from scrubjay import Memory, Page

_PAGE = 1_000

Query = Annotated[
    str, typer.Argument(metavar="QUERY", help="The question; `-` reads standard input.")
]


TopK = Annotated[
    int | None,
    options.option("--top-k", "-k", metavar="N", help="The most hits; else the recall policy's 5."),
]
Explain = Annotated[
    bool,
    options.option("--explain", help="A table of what each score is made of.", panel=options.SHAPE),
]


def search(
    query: Query,
    top_k: TopK = None,
    filter_: options.Filter = None,
    filters: options.Filters = None,
    since: options.Since = None,
    until: options.Until = None,
    as_of: options.AsOf = None,
    known_at: options.KnownAt = None,
    kind: options.Kinds = None,
    tier: options.Tiers = None,
    history: options.History = False,
    threshold: options.Threshold = None,
    now: options.Now = None,
    explain: Explain = False,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Find the memories that answer a question, best first, by words and by meaning.

    Each hit is shown with its relevance from 0 to 1, when it was said, by whom, its kind and id.

    - `scrubjay search "which seat?" --user ada`

    - `scrubjay search 过敏 --user lin --since 2026-01-01 --filter 'rating>=4' --explain`

    - `scrubjay search "order DD20260115-7731" --user lin --json | jq '.hits[0].content'`
    """
    settings = opening.load_settings(path, time_zone)
    (text,) = typed.texts([query])
    narrowed = typed.filters(filter_, filters)
    with opening.opened(settings, model=True) as (memory, _):
        result = memory.search(
            text, user_id=user, device_id=device, agent_id=agent, session_id=session,
            namespace=namespace, top_k=top_k, filters=narrowed, since=since, until=until,
            as_of=as_of, known_at=known_at, kinds=kind, tiers=tier, include_history=history,
            threshold=threshold, explain=explain, now=now,
        )  # fmt: skip
    if as_json:
        output.emit(result)
    elif explain and result.hits:
        show.explained(result.hits, show.zone_of(settings))
    else:
        show.hits(result.hits, show.zone_of(settings))
    if not result.hits:
        output.alert("note", "nothing was found")
    output.notes(result.notes)
    _note_pending(result.pending)


def _note_pending(count: int) -> None:
    if count:
        few = output.counted(count, "memory is", "memories are")
        output.alert("note", f"{few} found by words alone until `scrubjay flush` has run")


MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", help="The most tokens of the block.")
]
Form = Annotated[
    options.Format,
    typer.Option("--format", help="How the block is written.", rich_help_panel=options.SHAPE),
]
Language = Annotated[
    str | None,
    options.option(
        "--language",
        metavar="en|zh",
        help="The language of the labels; else the question's.",
        panel=options.SHAPE,
    ),
]
Considered = Annotated[
    int, typer.Option("--top-k", "-k", metavar="N", help="The most memories looked at.")
]


def context(
    query: Query,
    max_tokens: MaxTokens = 1200,
    form: Form = options.Format.MARKDOWN,
    language: Language = None,
    top_k: Considered = 40,
    filter_: options.Filter = None,
    filters: options.Filters = None,
    since: options.Since = None,
    until: options.Until = None,
    as_of: options.AsOf = None,
    known_at: options.KnownAt = None,
    kind: options.Kinds = None,
    tier: options.Tiers = None,
    history: options.History = False,
    threshold: options.Threshold = None,
    now: options.Now = None,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Write the block of memories that a prompt can carry, and nothing else, to the output.

    Numbered, dated, oldest first, within the tokens, and fenced as data. Without any memory that
    answers, the output is empty.

    - `scrubjay context "book a flight" --user ada --max-tokens 400 > block.md`

    - `scrubjay context 订机票 --user lin --format xml`
    """
    settings = opening.load_settings(path, time_zone)
    (text,) = typed.texts([query])
    narrowed = typed.filters(filter_, filters)
    with opening.opened(settings, model=True) as (memory, _):
        block = memory.context(
            text, max_tokens=max_tokens, format=form.value, language=language, top_k=top_k,
            user_id=user, device_id=device, agent_id=agent, session_id=session,
            namespace=namespace, filters=narrowed, since=since, until=until, as_of=as_of,
            known_at=known_at, kinds=kind, tiers=tier, include_history=history,
            threshold=threshold, now=now,
        )  # fmt: skip
    if as_json:
        output.emit(block)
    elif block.text:
        output.raw(block.text)
    if not block.hits:
        small = block.omitted > 0
        output.alert("note", "--max-tokens has no room for a memory" if small
                     else "nothing was found")  # fmt: skip
    output.notes(block.notes)
    _note_pending(block.pending)


def get(
    memory_id: options.MemoryId,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Show one memory with everything known about it, and where it came from.

    - `scrubjay get 019b76da-a800-7c3e-9d0a-5f5f2a1b6c4d --user ada`
    """
    settings = opening.load_settings(path, time_zone)
    with opening.opened(settings) as (memory, _):
        found = memory.get(memory_id, user_id=user, device_id=device, agent_id=agent)
    if as_json:
        output.emit(found)
    else:
        show.whole_record(found, show.zone_of(settings))


Limit = Annotated[int, typer.Option("--limit", metavar="N", help="The most memories of a page.")]
Cursor = Annotated[
    str | None,
    options.option(
        "--cursor", metavar="CURSOR", help="Go on where a page ended, by the cursor it gave."
    ),
]
Everything = Annotated[bool, options.option("--all", help="Every page, whatever `--limit` says.")]
States = Annotated[
    list[str] | None,
    options.option(
        "--state",
        metavar="STATE",
        help="active (without this option), superseded, merged, quarantined, stale, forgotten, "
        "or all; may be repeated.",
        panel=options.NARROWING,
    ),
]


def list_(
    limit: Limit = 100,
    cursor: Cursor = None,
    everything: Everything = False,
    state: States = None,
    filter_: options.Filter = None,
    filters: options.Filters = None,
    since: options.Since = None,
    until: options.Until = None,
    kind: options.Kinds = None,
    tier: options.Tiers = None,
    now: options.Now = None,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    session: options.Session = None,
    namespace: options.Namespace = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """List memories, newest first, without a question.

    - `scrubjay list --user ada --limit 20`

    - `scrubjay list --user lin --all --state all --kind preference --json`
    """
    settings = opening.load_settings(path, time_zone)
    asked: dict[str, Any] = {
        "user_id": user, "device_id": device, "agent_id": agent, "session_id": session,
        "namespace": namespace, "filters": typed.filters(filter_, filters), "since": since,
        "until": until, "kinds": kind, "tiers": tier, "now": now,
        "states": None if state and "all" in state else state or ("active",),
    }  # fmt: skip
    with opening.opened(settings) as (memory, _):
        page = memory.list(limit=_PAGE if everything else limit, cursor=cursor, **asked)
        if everything:
            page = _to_the_end(memory, page, asked)
    if as_json:
        output.emit(page)
        return
    for record in page:
        show.record(record, show.zone_of(settings))
    if not page.items:
        output.alert("note", "there are no such memories")
    if page.next_cursor is not None:
        shown = f"{len(page):,} of {output.counted(page.total, 'memory', 'memories')}"
        output.alert("note", f"{shown}; --cursor {page.next_cursor} goes on, --all shows them all")


def _to_the_end(memory: Memory, page: Page, asked: dict[str, Any]) -> Page:
    """The page with those that follow it."""
    items = list(page.items)
    while page.next_cursor is not None:
        page = memory.list(limit=_PAGE, cursor=page.next_cursor, **asked)
        items += page.items
    return replace(page, items=tuple(items))


def history(
    memory_id: options.MemoryId,
    path: options.Path = None,
    user: options.User = None,
    device: options.Device = None,
    agent: options.Agent = None,
    time_zone: options.TimeZone = None,
    as_json: options.Json = False,
) -> None:
    """Show every version of a memory and each time it was said again, oldest first.

    - `scrubjay history 019b76da-a800-7c3e-9d0a-5f5f2a1b6c4d --user ada`
    """
    settings = opening.load_settings(path, time_zone)
    with opening.opened(settings) as (memory, _):
        found = memory.history(memory_id, user_id=user, device_id=device, agent_id=agent)
    if as_json:
        output.emit(found)
    else:
        show.versions(found, show.zone_of(settings))
