"""Forgetting is complete: no verb finds it, no byte of the directory holds it.

`test_forgetting_stays.py` has what must not bring it back.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from promise_helpers import (
    HOWS,
    KEY,
    NAME,
    USER,
    Open,
    assert_gone,
    forget,
    plant,
    traces,
)

from places import Places, times
from scrubjay import errors
from scrubjay.index import compact
from scrubjay.index.segments import read_vectors, read_words
from scrubjay.index.words import query_terms
from scrubjay.testing.fakes import HashEmbedder


@pytest.mark.parametrize("layout", ["tail", "sealed", "merged"])
@pytest.mark.parametrize("how", HOWS)
def test_it_is_gone(
    open_memory: Open,
    place: Places,
    tmp_path: Path,
    how: str,
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From every verb, from every byte on disk, and from RAM."""
    monkeypatch.setattr(compact, "SMALLEST", 4)
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    assert memory.flush(30)
    if layout != "tail":
        compact.seal(memory._parts.store, KEY, everything=layout == "merged")
    assert memory.search(NAME, user_id=USER)[0].id == receipt.ids[0]
    assert traces(place.every_byte())
    erasure = forget(memory, how, receipt)
    assert erasure.complete
    assert receipt.ids[0] in erasure.memory_ids
    # A server keeps old row versions on its disk for a while, and the receipt says so.
    assert ("VACUUM" in " ".join(erasure.notes)) == (place.kind == "postgres"), erasure.notes
    assert len(erasure.notes) == (place.kind == "postgres")
    assert traces(place.every_byte()) == []
    assert_gone(memory, receipt, tmp_path)
    left = 0 if how == "user" else 60
    assert memory.list(user_id=USER).total == left
    assert len(memory.search("tea", user_id=USER, top_k=100)) == left
    assert memory.doctor().problems == ()
    memory.close()
    with open_memory(embedder=HashEmbedder(64)) as again:
        assert_gone(again, receipt, tmp_path)
    assert traces(place.every_byte()) == []


@pytest.mark.parametrize("how", HOWS)
def test_segments_are_rewritten(open_memory: Open, how: str) -> None:
    """The sealed words and vectors no longer hold the memory; the others are still there."""
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    memory.flush(30)
    store = memory._parts.store
    compact.seal(store, KEY, everything=True)
    seq = memory.get(receipt.ids[0], user_id=USER).seq
    (term,) = query_terms(NAME)

    def held() -> tuple[set[int], set[int], set[int]]:
        words: set[int] = set()
        vectors: set[int] = set()
        terms: set[int] = set()
        with store.snapshot() as snapshot:
            for state in snapshot.partitions([KEY]):
                for info in snapshot.segments(state):
                    blob = snapshot.segment_blob(state, info.sid)
                    if info.kind == "words":
                        words |= set(read_words(blob).seqs.tolist())
                        terms |= set(read_words(blob).terms.tolist())
                    else:
                        vectors |= set(read_vectors(blob).seqs.tolist())
        return words, vectors, terms

    words, vectors, terms = held()
    assert seq in words
    assert seq in vectors
    assert term in terms
    forget(memory, how, receipt)
    words, vectors, terms = held()
    assert seq not in words
    assert seq not in vectors
    assert term not in terms
    assert len(words) == len(vectors) == (0 if how == "user" else 60)


def test_the_cache_of_texts_forgets_too(open_memory: Open) -> None:
    """No text of it stays in RAM."""
    memory = open_memory(embedder=HashEmbedder(64))
    receipt = plant(memory)
    memory.flush(30)
    memory.search(f"my landlord is called {NAME}", user_id=USER)
    memory.forget(memory_id=receipt.ids[0], user_id=USER)
    assert NAME not in str(list(memory._parts.embedding._cache))
    assert memory._parts.cache.nbytes == 0


@pytest.mark.parametrize("how", HOWS)
def test_the_key_can_be_used_again(open_memory: Open, how: str) -> None:
    """The record of the request is gone: the same call writes again, and is found."""
    memory = open_memory()
    receipt = plant(memory)
    forget(memory, how, receipt)
    again = memory.add(
        f"my landlord is called {NAME}", user_id=USER, session_id="gone", idempotency_key="planted"
    )
    assert again.status == "stored"
    assert again.ids != receipt.ids
    assert memory.search(NAME, user_id=USER)[0].id == again.ids[0]


def test_every_version_goes(open_memory: Open, place: Places) -> None:
    """Named by any of them; also those that said it before an update took it out."""
    memory = open_memory()
    for named in range(3):
        first = memory.add(f"version 1 is {NAME} {named}", user_id=USER)
        second = memory.update(first.ids[0], f"version 2 is {NAME} {named}", user_id=USER)
        third = memory.update(second.id, f"version 3 is clean {named}", user_id=USER)
        ids = (first.ids[0], second.id, third.id)
        erasure = memory.delete(ids[named], user_id=USER)
        assert set(erasure.memory_ids) == set(ids)
        for memory_id in ids:
            with pytest.raises(errors.NotFound):
                memory.get(memory_id, user_id=USER)
    assert memory.stats(user_id=USER)["turns"] == 0
    assert traces(place.every_byte()) == []
    assert memory.doctor().problems == ()


def test_the_rest_of_a_turn_stays(open_memory: Open, place: Places, tmp_path: Path) -> None:
    """One segment of a long turn goes, also from the raw turn; the others stay to the letter."""
    memory = open_memory()
    parts = [f"Paragraph {n} is about {'tea ' * 80}." for n in range(8)]
    parts[4] = f"Paragraph 4 is about {NAME} " + "secret " * 60 + "."
    receipt = memory.add("\n\n".join(parts), user_id=USER, metadata={"n": 1})
    assert len(receipt.ids) >= 8
    (target,) = [
        i for i in receipt.ids if NAME in memory.get(i, user_id=USER).content
    ]  # fmt: skip
    kept = {i: memory.get(i, user_id=USER).content for i in receipt.ids if i != target}
    memory.delete(target, user_id=USER)
    assert {i: memory.get(i, user_id=USER).content for i in kept} == kept
    assert traces(place.every_byte()) == []
    memory.export(tmp_path / "e.jsonl", user_id=USER)
    text = (tmp_path / "e.jsonl").read_text("utf-8")
    assert NAME not in text
    assert "Paragraph 5 is about" in text
    # An import of that export elsewhere works, with what is left.
    with open_memory("fresh") as fresh:
        fresh.import_(tmp_path / "e.jsonl", user_id=USER)
        assert fresh.list(user_id=USER).total == len(kept)


def test_a_repetition_elsewhere_is_not_taken_along(open_memory: Open) -> None:
    """What was also said in another session stays, with no trace of the forgotten one."""
    memory = open_memory()
    memory.add(["hello there", f"called {NAME}"], user_id=USER, session_id="gone")
    memory.add("hello there", user_id=USER, session_id="kept")
    memory.forget(user_id=USER, session_id="gone")
    (record,) = memory.list(user_id=USER, states=None)
    assert record.content == "hello there"
    assert record.scope.session_id == "kept"
    assert [s.session_id for s in record.sources] == ["kept"]
    assert memory.list(user_id=USER, session_id="gone").total == 0
    assert len(memory.search("hello", user_id=USER, session_id="gone")) == 0
    assert len(memory.search("hello", user_id=USER, session_id="kept")) == 1
    assert memory.doctor().problems == ()


def test_all_agents_of_a_user_go(open_memory: Open, place: Places) -> None:
    """With the user alone, what is private to any agent goes along; with an agent, only its own."""
    memory = open_memory()
    for agent in ("a", "b"):
        memory.add(f"{agent} knows {NAME}", user_id=USER, agent_id=agent, visibility="private")
    memory.add(f"shared {NAME}", user_id=USER)
    memory.add("common word", user_id="boss", visibility="common")
    memory.forget(user_id=USER, agent_id="a")
    assert memory.list(user_id=USER, agent_id="a").total == 2
    assert memory.list(user_id=USER, agent_id="b").total == 3
    erasure = memory.forget(user_id=USER)
    assert erasure.complete
    assert memory.list(user_id=USER, agent_id="b").total == 1
    assert traces(place.every_byte()) == []
    assert b"user:ada" not in place.every_byte()


def test_names_of_sessions_go_too(open_memory: Open, place: Places) -> None:
    """Ids may say who someone is; those of what is forgotten whole are gone from the disk."""
    memory = open_memory()
    memory.add("a note", user_id="Wolpertinger@example.org", session_id=f"s-{NAME}",
               agent_id=f"a-{NAME}", namespace=f"n-{NAME}", metadata={NAME: NAME})  # fmt: skip
    memory.add("a note", user_id="other")
    memory.forget(user_id="Wolpertinger@example.org")
    assert traces(place.every_byte()) == []


def test_bytes_under_churn(open_memory: Open, place: Places) -> None:
    """Pages that were split, merged and moved leave no copies behind."""
    memory = open_memory(embedder=HashEmbedder(32))
    chance = random.Random(11)
    planted: list[str] = []
    for round_ in range(times(place, 12, 4)):
        batch = []
        for _ in range(40):
            size = chance.choice((1, 5, 40, 200, 900))
            is_planted = chance.random() < 0.4
            word = NAME if is_planted else "harmless"
            batch.append((is_planted, f"{word} {chance.random()} " + f"{word}x " * size))
        for is_planted, text in batch:
            receipt = memory.add(text, user_id=USER, session_id=f"s{round_}")
            if is_planted:  # long texts repeat themselves: their segments are one memory
                planted += [i for i in dict.fromkeys(receipt.ids) if i not in planted]
        chance.shuffle(planted)
        for memory_id in planted[: len(planted) // 2]:
            memory.delete(memory_id, user_id=USER)
        planted = planted[len(planted) // 2 :]
    for memory_id in planted:
        memory.delete(memory_id, user_id=USER)
    assert traces(place.every_byte()) == []
    memory.flush(30)
    assert traces(place.every_byte()) == []
    assert memory.doctor().problems == ()


@pytest.mark.embedded_only("on a server no reader keeps the rows of others")
def test_a_reader_in_the_way_is_named(open_memory: Open, place: Places) -> None:
    """While someone still reads the old state, the receipt says that the log holds old pages."""
    from scrubjay.settings import load

    memory = open_memory(settings=load(embedder="none", write_timeout_s=0.2))
    other = open_memory()
    receipt = plant(memory)
    with other._parts.store.snapshot() as snapshot:
        snapshot.partitions([KEY])
        erasure = memory.forget(memory_id=receipt.ids[0], user_id=USER)
        assert erasure.notes
    memory.add("the next write", user_id=USER)
    deadline = time.monotonic() + 10
    while traces(place.every_byte()) and time.monotonic() < deadline:
        memory.flush(1)
        time.sleep(0.2)
    assert traces(place.every_byte()) == [], "the old pages stay in the log"


def test_forgetting_nothing(open_memory: Open) -> None:
    """A session that never was, a user who never came: nothing happens, and it says so."""
    memory = open_memory()
    memory.add("one", user_id=USER)
    assert memory.forget(user_id=USER, session_id="never").memory_ids == ()
    assert memory.forget(user_id=USER, before="1990-01-01").memory_ids == ()
    assert memory.forget(user_id="nobody").complete
    for target in ({"memory_id": "no id"}, {"turn_id": "00000000-0000-7000-8000-000000000000"}):
        with pytest.raises(errors.NotFound):
            memory.forget(user_id=USER, **target)
    with pytest.raises(errors.InvalidInput):
        memory.forget(user_id=USER, session_id="a", before="2026-01-01")
    assert memory.list(user_id=USER).total == 1
