"""Random operations for the congruence test: the same ones from the same seed.

`Author` makes them up. It keeps in mind which ids and sessions there were, so that most of what it
asks for exists; some of it is wrong on purpose, or no longer there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = [
    "tea", "coffee", "train", "ticket", "window", "seat", "hotel", "Vienna", "Shanghai", "meeting",
    "budget", "invoice", "Monday", "garden", "violin", "recipe", "pepper", "doctor", "allergy",
    "peanuts", "passport", "flight", "delay", "museum", "rain", "prefer", "never", "booked",
    "DD20260115-7731", "E1042", "src/app/main.py", "naïve", "Größe", "don't", "O'Brien", "100%",
]  # fmt: skip
_CHINESE = [
    "我", "喜欢", "不喜欢", "订票", "靠窗", "座位", "上海", "会议", "预算", "花生", "过敏", "护照",
    "航班", "延误", "医生", "明天", "上周", "龙井", "发票", "北京", "，", "。", "的", "和",
]  # fmt: skip
_USERS = ("ada", "lin", "ADA", "林 小姐")
_AGENTS = (None, None, "planner", "coder")
_SESSIONS = (None, "s1", "s2", "会话 3")
_SPACES = (None, None, None, "work", "home")
_TAGS = ("trip", "work", "家", "a'b")
_KINDS = ("episode", "fact", "preference", "event")


@dataclass(frozen=True)
class Operation:
    """A verb of `Memory` (or `work`: run the waiting jobs) with its arguments."""

    verb: str
    arguments: dict[str, Any]
    positional: tuple[Any, ...] = ()

    def __str__(self) -> str:
        said = [*map(repr, self.positional), *(f"{k}={v!r}" for k, v in self.arguments.items())]
        return f"{self.verb}({', '.join(said)})"


@dataclass
class Author:
    """Makes up one operation after another, and hears what became of each."""

    chance: random.Random
    now: datetime = START
    said: list[str] = field(default_factory=list)
    memories: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    turns: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    keyed: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def next(self) -> Operation:
        if self.chance.random() < 0.1:
            self.now += timedelta(hours=self.chance.uniform(0, 40))
        makers, weights = zip(*_WEIGHTS, strict=True)
        maker: Callable[[Author], Operation] = self.chance.choices(makers, weights)[0]
        return maker(self)

    def heard(self, operation: Operation, answer: Any) -> None:
        """Remember the ids that a write gave; the answer is plain data."""
        who = {k: v for k, v in operation.arguments.items() if k in _WHO}
        if operation.verb == "add" and "turn_ids" in answer:
            self.memories += [(i, who) for i in answer["ids"]]
            self.turns += [(i, who) for i in answer["turn_ids"]]
            if "idempotency_key" in operation.arguments:
                self.keyed.append((operation.positional[0], operation.arguments))
        elif operation.verb == "update" and "id" in answer:
            self.memories.append((answer["id"], who))
        for found in (self.said, self.memories, self.turns, self.keyed):
            del found[:-400]

    # -- parts ------------------------------------------------------------------------------

    def who(self) -> dict[str, Any]:
        if self.chance.random() < 0.1:
            return {"device_id": "phone"}
        found: dict[str, Any] = {"user_id": self.chance.choice(_USERS)}
        agent = self.chance.choice(_AGENTS)
        return {**found, "agent_id": agent} if agent else found

    def narrow(self, likely: float) -> dict[str, Any]:
        found = {}
        for name, choices in (("session_id", _SESSIONS), ("namespace", _SPACES)):
            value = self.chance.choice(choices)
            if value is not None and self.chance.random() < likely:
                found[name] = value
        return found

    def text(self) -> str:
        chance = self.chance
        if self.said and chance.random() < 0.12:
            return chance.choice(self.said)
        if chance.random() < 0.35:
            text = "".join(chance.choices(_CHINESE, k=chance.randint(2, 14))) + chance.choice(
                _WORDS
            )
        else:
            text = " ".join(chance.choices(_WORDS, k=chance.randint(2, 18)))
        if chance.random() < 0.03:  # long enough for several episodes
            text = ". ".join(" ".join(chance.choices(_WORDS, k=12)) for _ in range(20)) + "."
        self.said.append(text)
        return text

    def time(self, days: float = 90) -> datetime:
        return self.now - timedelta(days=self.chance.uniform(0, days))

    def metadata(self) -> dict[str, Any]:
        return {
            "tag": self.chance.choice(_TAGS),
            "n": self.chance.randint(0, 5),
            "deep": {"x": self.chance.random() < 0.5, "when": self.time()},
        }

    def known(self) -> tuple[str, dict[str, Any]]:
        """A memory that is or was there, and who may see it; sometimes a stranger."""
        if not self.memories or self.chance.random() < 0.05:
            return "00000000-0000-7000-8000-000000000000", self.who()
        memory_id, who = self.chance.choice(self.memories)
        return memory_id, self.who() if self.chance.random() < 0.1 else who

    # -- verbs ------------------------------------------------------------------------------

    def add(self) -> Operation:
        chance = self.chance
        if self.keyed and chance.random() < 0.05:  # again: the same, or another body
            messages, arguments = chance.choice(self.keyed)
            if chance.random() < 0.3:
                messages = self.text()
            return Operation("add", arguments, (messages,))
        arguments = {**self.who(), **self.narrow(0.7)}
        if chance.random() < 0.3:
            messages: Any = [
                {"role": chance.choice(["user", "assistant", "tool"]), "content": self.text()}
                for _ in range(chance.randint(1, 4))
            ]
        else:
            messages = self.text()
        if chance.random() < 0.3:
            arguments["metadata"] = self.metadata()
        if chance.random() < 0.3:
            arguments["occurred_at"] = self.time(400)
        if chance.random() < 0.1:
            arguments["expires_at"] = self.now + timedelta(days=chance.uniform(-1, 9))
        if chance.random() < 0.1:
            arguments["kind"] = chance.choice(_KINDS)
        if chance.random() < 0.15:
            arguments["idempotency_key"] = f"k{chance.randrange(10**6)}"
        if chance.random() < 0.2:
            arguments["visibility"] = "private"  # an error without an agent
        elif chance.random() < 0.05:
            arguments["visibility"] = "common"
        return Operation("add", arguments, (messages,))

    def update(self) -> Operation:
        memory_id, who = self.known()
        more = {"metadata": self.metadata()} if self.chance.random() < 0.3 else {}
        if self.chance.random() < 0.3:
            more["reason"] = "改主意了"
        return Operation("update", {**who, **more}, (memory_id, self.text()))

    def one(self) -> Operation:
        memory_id, who = self.known()
        return Operation(self.chance.choice(["get", "history"]), who, (memory_id,))

    def forget(self) -> Operation:
        memory_id, who = self.known()
        how = self.chance.choices(
            ["delete", "memory", "turn", "session", "before", "agent", "whole"],
            [30, 10, 10, 5, 5, 2, 2],
        )[0]
        if how == "delete":
            return Operation("delete", who, (memory_id,))
        if how == "memory":
            return Operation("forget", {**who, "memory_id": memory_id})
        if how == "turn" and self.turns:
            turn_id, who = self.chance.choice(self.turns)
            return Operation("forget", {**who, "turn_id": turn_id})
        if how == "session":
            return Operation("forget", {**who, "session_id": self.chance.choice(_SESSIONS[1:])})
        if how == "before":
            return Operation("forget", {**who, "before": self.time(400) - timedelta(days=200)})
        if how == "agent":
            return Operation("forget", {"user_id": self.chance.choice(_USERS), "agent_id": "coder"})
        subject = {k: v for k, v in who.items() if k != "agent_id"}
        return Operation("forget", subject)

    def narrowing(self) -> dict[str, Any]:
        """What search and list have in common."""
        chance, found = self.chance, self.narrow(0.25)
        if chance.random() < 0.25:
            found["filters"] = chance.choice([
                {"tag": chance.choice(_TAGS)}, {"n": {">=": chance.randint(0, 5)}},
                {"deep.x": True}, {"n": {"in": [1, 2]}, "tag": {"!=": "work"}},
                {"deep.when": {"<": self.time()}}, {"user_id": "lin"},
            ])  # fmt: skip
        if chance.random() < 0.15:
            found["since"] = self.time(300)
        if chance.random() < 0.15:
            found["until"] = self.time(200)
        if chance.random() < 0.1:
            found["kinds"] = chance.sample(_KINDS, chance.randint(1, 3))
        return found

    def search(self) -> Operation:
        chance, arguments = self.chance, {**self.who(), **self.narrowing()}
        if self.said and chance.random() < 0.5:
            query = " ".join(chance.choice(self.said).split()[:6])
        else:
            query = self.text()
        if chance.random() < 0.15:
            arguments["as_of"] = self.time(60)
        elif chance.random() < 0.15:
            arguments["known_at"] = self.time(60)
        if chance.random() < 0.2:
            arguments["include_history"] = True
        if chance.random() < 0.2:
            arguments["threshold"] = chance.choice([0.05, 0.2, 0.5])
        if chance.random() < 0.2:
            arguments["policy"] = {"vector_weight": chance.choice([0.0, 0.5, 1.0])}
        if chance.random() < 0.25:
            return Operation("context", {**arguments, "max_tokens": 300}, (query[:200],))
        arguments["top_k"] = chance.choice([1, 3, 5, 20, 1_000])
        return Operation("search", {**arguments, "explain": True}, (query[:200],))

    def list(self) -> Operation:
        arguments = {**self.who(), **self.narrowing(), "limit": self.chance.choice([2, 7, 30, 500])}
        if self.chance.random() < 0.4:
            arguments["states"] = self.chance.choice([None, ["superseded"], ["active", "merged"]])
        return Operation("list", arguments)

    def counts(self) -> Operation:
        who = self.who() if self.chance.random() < 0.8 else {}
        return Operation("stats", who)

    def export(self) -> Operation:
        return Operation("export", self.who(), ("export.jsonl",))

    def import_(self) -> Operation:
        """Brings the last export back, to the same user or to another."""
        who = {k: v for k, v in self.who().items() if k != "agent_id"}
        return Operation("import_", who, ("export.jsonl",))

    def upkeep(self) -> Operation:
        return Operation(self.chance.choices(["work", "doctor", "reindex"], [20, 2, 1])[0], {})


_WHO = ("user_id", "device_id", "agent_id")
_WEIGHTS = (
    (Author.add, 40), (Author.update, 9), (Author.one, 6), (Author.forget, 5),
    (Author.search, 22), (Author.list, 7), (Author.counts, 3), (Author.export, 1),
    (Author.import_, 0.5), (Author.upkeep, 4),
)  # fmt: skip
