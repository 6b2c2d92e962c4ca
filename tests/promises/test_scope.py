"""Promise 3: no scope, no answer, and no answer from outside the scope.

Random worlds of tenants, users, devices, agents, sessions and namespaces with odd names, against
the truth table of `ports.py`, through every verb and filter.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from places import Places, times
from scrubjay import Memory, Principal, Right, errors
from scrubjay.settings import load
from scrubjay.testing.fakes import HashEmbedder

Open = Callable[..., Memory]

_ODD = (
    "ada", "Ada", "ADA", "ada ", " ada", "ada\n", "ada/bob", "../ada", "ada%", "ad_", "a*", "?",
    "'", '"', "' OR 1=1 --", '"; DROP TABLE memories; --', "common:", "user:ada", "device:ada",
    "user:user:ada", "default", "ａｄａ", "ad\u0061\u0301", "ad\u00e1", "\u0430\u0434\u0430", "👩‍👩‍👧", "🇨🇳",
    "null", "None", "0", "00", "1e1", "10", "1", "true", "\u200b", "ada\u200b", "ﬁ", "fi", "ß", "SS",
    "İ", "i\u0307", "x" * 511, "x" * 512, "é" * 500, "\\", "\\x00", "[m1]", "{}", "$", "a\tb", "a b",
)  # fmt: skip

_names = st.one_of(
    st.sampled_from(_ODD),
    st.text(
        st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"),
        min_size=1, max_size=60,
    ).filter(lambda s: s.strip()),
)  # fmt: skip
_maybe = st.one_of(st.none(), _names)


@dataclass(frozen=True)
class Said:
    """One memory of a world, and where it lies."""

    number: int
    tenant: str
    user: str | None
    device: str | None
    agent: str | None
    session: str | None
    namespace: str | None
    visibility: str

    @property
    def text(self) -> str:
        return f"pebble number mk{self.number}q"

    @property
    def subject(self) -> tuple[str, str | None]:
        return ("user", self.user) if self.user else ("device", self.device)


def _ids(said: Said) -> dict[str, str | None]:
    return {"user_id": said.user, "device_id": said.device, "agent_id": said.agent}


def _sees(reader: Said, said: Said) -> bool:
    """The truth table of `ports.py`."""
    if reader.tenant != said.tenant:
        return False
    if said.visibility == "common":
        return True
    if reader.subject != said.subject:
        return False
    return said.visibility == "shared" or (reader.agent is not None and reader.agent == said.agent)


@st.composite
def _worlds(draw: st.DrawFn) -> list[Said]:
    tenants = ["default", draw(_names.filter(lambda t: t != "default"))]
    people = draw(st.lists(_names, min_size=2, max_size=4, unique=True))
    agents = [None, *draw(st.lists(_names, min_size=1, max_size=2, unique=True))]
    sessions = [None, *draw(st.lists(_names, min_size=1, max_size=2, unique=True))]
    spaces = [None, *draw(st.lists(_names, min_size=1, max_size=2, unique=True))]
    world = []
    for number in range(draw(st.integers(4, 14))):
        person = draw(st.sampled_from(people))
        is_device = draw(st.integers(0, 3)) == 0
        agent = draw(st.sampled_from(agents))
        choices = ["shared", "shared", "common", *(["private"] * 3 if agent else [])]
        world.append(
            Said(
                number,
                draw(st.sampled_from(tenants)),
                None if is_device else person,
                person if is_device else None,
                agent,
                draw(st.sampled_from(sessions)),
                draw(st.sampled_from(spaces)),
                draw(st.sampled_from(choices)),
            )
        )
    return world


def _live_through(place: Places, world: list[Said], model: str) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        where = stack.enter_context(place.fresh())
        embedder = HashEmbedder(64) if model == "hash" else "none"
        memories = {
            tenant: stack.enter_context(
                Memory(
                    where,
                    settings=load(tenant=tenant, embedder="none"),
                    embedder=embedder,
                )
            )
            for tenant in sorted({said.tenant for said in world})
        }
        ids: dict[int, str] = {}
        for said in world:
            receipt = memories[said.tenant].add(
                said.text, **_ids(said), session_id=said.session, namespace=said.namespace,
                visibility=said.visibility, metadata={"n": said.number},
            )  # fmt: skip
            assert receipt.status == "stored"
            (ids[said.number],) = receipt.ids
        for memory in memories.values():
            memory.flush(30)
        for reader in world:
            _look(memories[reader.tenant], reader, world, ids)
        for reader in world:
            _try_to_change(memories[reader.tenant], reader, world, ids)
        _export_holds_no_stranger(memories, world, directory)


def _look(memory: Memory, reader: Said, world: list[Said], ids: dict[int, str]) -> None:
    seen = {said.text for said in world if _sees(reader, said)}
    who = _ids(reader)
    assert {r.content for r in memory.list(**who, limit=1_000)} == seen
    assert {r.content for r in memory.list(**who, limit=1_000, states=None)} == seen
    hits = memory.search("pebble number", **who, top_k=1_000, include_history=True)
    assert {h.content for h in hits} == seen
    for said in world:
        found = {h.content for h in memory.search(f"mk{said.number}q", **who, top_k=1_000)}
        assert (said.text in found) == _sees(reader, said)
        assert found <= seen
        filtered = memory.search("pebble", **who, filters={"n": said.number}, top_k=9)
        assert {h.content for h in filtered} == ({said.text} & seen)
        context = memory.context("pebble number", **who, filters={"n": {"=": said.number}})
        assert (f"mk{said.number}q" in context.text) == (said.text in seen)
        if _sees(reader, said):
            record = memory.get(ids[said.number], **who)
            assert record.scope.tenant == said.tenant
            assert record.scope.user_id == said.user or said.visibility == "common"
            assert (record.scope.session_id, record.scope.namespace, record.scope.agent_id) == (
                said.session, said.namespace, said.agent,
            )  # fmt: skip
            assert len(memory.history(ids[said.number], **who)) == 1
        else:
            for verb in (memory.get, memory.history):
                with pytest.raises(errors.NotFound):
                    verb(ids[said.number], **who)
    for session in {said.session for said in world}:
        for space in {said.namespace for said in world}:
            narrowed = {
                said.text
                for said in world
                if _sees(reader, said)
                and session in (None, said.session)
                and space in (None, said.namespace)
            }
            narrow = {"session_id": session, "namespace": space}
            assert {r.content for r in memory.list(**who, **narrow, limit=1_000)} == narrowed
            hits = memory.search("pebble number", **who, **narrow, top_k=1_000)
            assert {h.content for h in hits} == narrowed
            assert all(f"mk{s.number}q" not in memory.context("pebble", **who, **narrow).text
                       for s in world if s.text not in narrowed)  # fmt: skip


def _try_to_change(memory: Memory, reader: Said, world: list[Said], ids: dict[int, str]) -> None:
    """What is not seen cannot be changed or erased, by id, session, time or turn."""
    who = _ids(reader)
    for said in world:
        if _sees(reader, said):
            continue
        # Without an agent the user may erase what is private to any agent; not change it.
        mine = reader.tenant == said.tenant and reader.subject == said.subject
        with pytest.raises(errors.NotFound):
            memory.update(ids[said.number], "stolen", **who)
        if not (mine and reader.agent is None):
            with pytest.raises(errors.NotFound):
                memory.delete(ids[said.number], **who)


def _export_holds_no_stranger(
    memories: dict[str, Memory], world: list[Said], directory: Path
) -> None:
    for number, reader in enumerate(world):
        memory, who = memories[reader.tenant], _ids(reader)
        file = directory / f"e{number}"
        memory.export(file, **who)
        held = {
            row["content"]
            for row in map(json.loads, file.read_text("utf-8").splitlines())
            if row["type"] in ("turn", "memory")
        }
        allowed = {
            said.text
            for said in world
            if said.tenant == reader.tenant
            and said.subject == reader.subject
            and said.visibility != "common"
            and (reader.agent is None or said.visibility == "shared" or said.agent == reader.agent)
        }
        assert held == allowed
        assert memory.stats(**who)["memories"] == len(allowed)
    # All of one subject is forgotten: everyone else has what they had.
    gone = world[0]
    subject = {"user_id": gone.user, "device_id": gone.device}
    memories[gone.tenant].forget(**subject)
    left = [
        said
        for said in world
        if said.visibility == "common"
        or (said.tenant, *said.subject) != (gone.tenant, *gone.subject)
    ]
    for reader in world:
        seen = {said.text for said in left if _sees(reader, said)}
        found = memories[reader.tenant].list(**_ids(reader), limit=1_000)
        assert {r.content for r in found} == seen


def _live_in_worlds(place: Places, count: int) -> None:
    @settings(max_examples=count)
    @given(_worlds(), st.sampled_from(["none", "hash"]))
    def live(world: list[Said], model: str) -> None:
        _live_through(place, world, model)

    live()


def test_strangers_never_meet(place: Places) -> None:
    """Whatever they are called."""
    _live_in_worlds(place, times(place, 30, 10))


@pytest.mark.soak
def test_strangers_never_meet_for_long(place: Places) -> None:
    """The same, many times."""
    _live_in_worlds(place, times(place, 1_000, 200))


def test_all_odd_names_are_different_people(open_memory: Open) -> None:
    """Each beside all the others, as user and as device."""
    memory = open_memory()
    people = [{kind: name} for name in _ODD for kind in ("user_id", "device_id")]
    for number, who in enumerate(people):
        assert memory.add(f"pebble of mk{number}q", **who).status == "stored"
    for number, who in enumerate(people):
        assert [r.content for r in memory.list(**who)] == [f"pebble of mk{number}q"]
        assert len(memory.search("pebble", **who, top_k=100)) == 1
    for number, who in enumerate(people[::2]):
        memory.forget(**who)
        assert memory.list(**who).total == 0
        assert memory.list(**people[2 * number + 1]).total == 1
    assert memory.doctor().sound


_VERBS: dict[str, Callable[[Memory, dict[str, Any]], object]] = {
    "add": lambda m, who: m.add("text", **who),
    "search": lambda m, who: m.search("text", **who),
    "context": lambda m, who: m.context("text", **who),
    "get": lambda m, who: m.get("00000000-0000-7000-8000-000000000000", **who),
    "list": lambda m, who: m.list(**who),
    "update": lambda m, who: m.update("00000000-0000-7000-8000-000000000000", "text", **who),
    "history": lambda m, who: m.history("00000000-0000-7000-8000-000000000000", **who),
    "delete": lambda m, who: m.delete("00000000-0000-7000-8000-000000000000", **who),
    "forget": lambda m, who: m.forget(**who),
    "export": lambda m, who: m.export("/nonexistent/x", **who),
    "import_": lambda m, who: m.import_("/nonexistent/x", **who),
}


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(
    "who",
    [
        {}, {"user_id": None}, {"user_id": ""}, {"user_id": "  "}, {"user_id": "\t\n"},
        {"user_id": "\u3000"}, {"device_id": ""}, {"agent_id": "a"}, {"user_id": 7},
        {"user_id": b"ada"}, {"user_id": ["ada"]}, {"user_id": True}, {"user_id": "x" * 10_240},
        {"user_id": "a\x00b"}, {"user_id": "a\ud800"}, {"user_id": "ada", "agent_id": ""},
        {"user_id": "ada", "agent_id": 5},
    ],
    ids=lambda who: re.sub(r"[^\w{}:' ]", "?", str(who))[:40],
)  # fmt: skip
def test_no_scope_no_answer(open_memory: Open, verb: str, who: dict[str, Any]) -> None:
    """A missing, blank, wrong or absurd id is a clear error in every verb."""
    if verb == "import_" and "agent_id" in who:
        pytest.skip("import_ takes no agent")
    memory = open_memory()
    memory.add("text of someone", user_id="someone")
    with pytest.raises((errors.ScopeRequired, errors.InvalidInput)) as caught:
        _VERBS[verb](memory, who)
    assert not isinstance(caught.value, errors.ImportFailed)
    assert "x" * 100 not in str(caught.value)
    assert memory.stats()["memories"] == 1


def test_metadata_overwrites_no_scope_field(open_memory: Open) -> None:
    """Whatever it is called, it stays metadata; and a scope field is no filter."""
    memory = open_memory()
    posing = {"user_id": "bob", "tenant": "other", "agent_id": "x", "session_id": "y",
              "namespace": "z", "visibility": "common", "scope": {"user_id": "bob"},
              "kind": "fact", "state": "forgotten", "pid": 1, "id": "1", "seq": 0}  # fmt: skip
    memory.add("my own note", user_id="ada", metadata=posing)
    message = {"role": "user", "content": "another note", "user_id": "bob", "agent_id": "x",
               "session_id": "y", "tenant": "other", "visibility": "common"}  # fmt: skip
    memory.add([message], user_id="ada")
    assert memory.list(user_id="bob").total == 0
    assert memory.list(user_id="ada", session_id="y").total == 0
    for record in memory.list(user_id="ada"):
        assert record.scope.user_id == "ada"
        assert record.scope.tenant == "default"
        assert record.scope.agent_id is record.scope.session_id is record.scope.namespace is None
        assert record.visibility == "shared"
    hits = memory.search("note", user_id="ada")
    assert {h.memory.metadata.get("user_id") for h in hits} == {"bob", None}
    for name in ("user_id", "tenant", "agent_id", "session_id", "run_id", "namespace", "device_id"):
        for filters in ({name: "bob"}, {name: {"!=": "ada"}}, {name: {"in": ["bob"]}}):
            with pytest.raises(errors.InvalidInput, match="scope"):
                memory.search("note", user_id="ada", filters=filters)
            with pytest.raises(errors.InvalidInput, match="scope"):
                memory.list(user_id="ada", filters=filters)


def test_no_filter_widens(open_memory: Open) -> None:
    """Any operator, any value: only what the scope sees."""
    memory = open_memory()
    memory.add("ada's note", user_id="ada", metadata={"n": 1})
    memory.add("bob's note", user_id="bob", metadata={"n": 1})
    for wanted in (1, {"!=": 2}, {">": -9}, {"in": [1, 2]}, {"exists": True}):
        assert [h.content for h in memory.search("note", user_id="ada", filters={"n": wanted})] == [
            "ada's note"
        ]
    assert [h.content for h in memory.search("note", user_id="ada", filters={"x": {"exists": False}})
            ] == ["ada's note"]  # fmt: skip


def test_a_session_never_widens(open_memory: Open) -> None:
    """The same session name with another user or agent opens nothing."""
    memory = open_memory()
    memory.add("ada's note", user_id="ada", session_id="s")
    memory.add("secret note", user_id="ada", session_id="s", agent_id="a", visibility="private")
    memory.add("bob's note", user_id="bob", session_id="s")
    found = memory.search("note", user_id="ada", session_id="s")
    assert [h.content for h in found] == ["ada's note"]
    found = memory.search("note", user_id="ada", session_id="s", agent_id="b")
    assert [h.content for h in found] == ["ada's note"]
    memory.forget(user_id="ada", session_id="s", agent_id="b")
    found = memory.search("note", user_id="ada", agent_id="a")
    assert [h.content for h in found] == ["secret note"]
    assert memory.list(user_id="bob").total == 1


@pytest.mark.parametrize("how", ["memory_id", "session_id", "turn_id", "before"])
def test_an_agent_erases_no_other_agents_memory(open_memory: Open, how: str) -> None:
    """What agent B cannot see, it cannot erase."""
    memory = open_memory()
    receipt = memory.add(
        "private to a", user_id="ada", agent_id="a", session_id="s", visibility="private"
    )
    target = {"memory_id": receipt.ids[0], "session_id": "s", "turn_id": receipt.turn_ids[0],
              "before": "2999-01-01"}[how]  # fmt: skip
    try:
        memory.forget(user_id="ada", agent_id="b", **{how: target})
    except errors.NotFound:
        assert how in ("memory_id", "turn_id")
    assert memory.get(receipt.ids[0], user_id="ada", agent_id="a").content == "private to a"


def test_common_knowledge_needs_its_right(open_memory: Open) -> None:
    """To write, to change and to erase it; everybody of the tenant reads it."""
    memory = open_memory()
    guest = Principal("guest", frozenset({Right.READ, Right.WRITE}))
    receipt = memory.add("the office opens at nine", user_id="boss", visibility="common")
    who: dict[str, Any] = {"user_id": "ada", "principal": guest}
    assert memory.get(receipt.ids[0], **who).content == "the office opens at nine"
    for attempt in (
        lambda: memory.add("the office is closed", visibility="common", **who),
        lambda: memory.update(receipt.ids[0], "the office is closed", **who),
        lambda: memory.delete(receipt.ids[0], **who),
        lambda: memory.forget(memory_id=receipt.ids[0], **who),
    ):
        with pytest.raises(errors.NotPermitted):
            attempt()
    memory.forget(**who)
    memory.forget(before="2999-01-01", **who)
    with pytest.raises(errors.NotFound):
        memory.forget(turn_id=receipt.turn_ids[0], **who)
    assert memory.get(receipt.ids[0], user_id="ada").content == "the office opens at nine"


@pytest.mark.parametrize("verb", _VERBS)
def test_rights(open_memory: Open, verb: str) -> None:
    """Without any right no verb does anything; with another tenant's neither."""
    memory = open_memory()
    for principal in (
        Principal("nobody", frozenset()),
        Principal("stranger", frozenset(Right), tenant="another"),
    ):
        with pytest.raises(errors.NotPermitted):
            _VERBS[verb](memory, {"user_id": "ada", "principal": principal})


def test_an_import_of_anothers_export(open_memory: Open, tmp_path: Path) -> None:
    """It gives copies to the one who imports; the other's stay the other's."""
    memory = open_memory()
    receipt = memory.add("bob's note", user_id="bob", session_id="s")
    memory.add("bob's private note", user_id="bob", agent_id="x", visibility="private")
    memory.export(tmp_path / "e", user_id="bob")
    memory.import_(tmp_path / "e", user_id="ada")
    memory.import_(tmp_path / "e", user_id="ada")
    mine = memory.list(user_id="ada", agent_id="x")
    assert sorted(r.content for r in mine) == ["bob's note", "bob's private note"]
    assert memory.list(user_id="ada").total == 1
    assert {r.scope.user_id for r in mine} == {"ada"}
    assert receipt.ids[0] not in {r.id for r in mine}
    memory.forget(user_id="ada")
    assert memory.get(receipt.ids[0], user_id="bob").content == "bob's note"
    assert memory.doctor().sound


def _forged(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """An export with its rows changed and its checksum made to fit."""
    import hashlib

    header, *rows, footer = source.read_text("utf-8").splitlines()
    body = ""
    for line in rows:
        row = json.loads(line)
        change(row)
        body += json.dumps(row, ensure_ascii=False) + "\n"
    end = json.loads(footer)
    end["sha256"] = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    target.write_text(header + "\n" + body + json.dumps(end) + "\n", "utf-8")


@pytest.mark.parametrize(
    ("field", "value"),
    [("visibility", "common"), ("visibility", "private"), ("tenant", "other"),
     ("user_id", "victim"), ("agent_id", "x" * 9_000), ("session_id", 5), ("namespace", [])],
)  # fmt: skip
def test_a_forged_export_reaches_no_one_else(
    open_memory: Open, tmp_path: Path, field: str, value: Any
) -> None:
    """Whatever its rows claim, they go to the importing user or nowhere."""
    memory = open_memory()
    memory.add("poisoned note", user_id="mallory")
    memory.export(tmp_path / "e", user_id="mallory")
    memory.forget(user_id="mallory")

    def change(row: dict[str, Any]) -> None:
        (row if field == "visibility" and row["type"] == "memory" else row["scope"])[field] = value

    _forged(tmp_path / "e", tmp_path / "f", change)
    try:
        memory.import_(tmp_path / "f", user_id="eve")
    except errors.InvalidInput:
        assert memory.list(user_id="eve", states=None).total == 0
    for victim in ("victim", "ada", "mallory"):
        assert len(memory.search("poisoned note", user_id=victim)) == 0
    with open_memory(settings=load(tenant="other", embedder="none")) as other:
        assert len(other.search("poisoned note", user_id="eve")) == 0
