"""Cases from the field about reading: iso, exact, cjk, score, filt, inj, page, meta, tz, exp."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from places import Places
from scrubjay import Memory, Settings
from scrubjay.errors import ImportFailed, InvalidInput, NotFound
from scrubjay.testing.fakes import HashEmbedder


def test_iso_01_no_read_shows_another_users_memory(place: Places, tmp_path: Path) -> None:
    with Memory(place(), embedder=HashEmbedder()) as memory:
        paris = memory.add(
            "My favourite bakery is Rozelle on Mint Street.", user_id="u_paris", wait=True
        )
        york = memory.add("My favourite bakery is Barley & Salt.", user_id="u_york", wait=True)
        for user, expected in (("u_york", 1), ("u_nobody", 0)):
            memory.export(tmp_path / f"{user}.jsonl", user_id=user)
            shown = "\n".join([
                str([h.content for h in memory.search("favourite bakery", user_id=user, top_k=100)]),
                memory.context("favourite bakery", user_id=user).text,
                str([m.content for m in memory.list(user_id=user, states=None)]),
                (tmp_path / f"{user}.jsonl").read_text("utf-8"),
            ])  # fmt: skip
            assert "Rozelle" not in shown
            assert memory.list(user_id=user).total == expected
            assert memory.stats(user_id=user)["memories"] == expected
            with pytest.raises(InvalidInput):
                memory.search("bakery", user_id=user, filters={"user_id": "u_paris"})
            for verb in (memory.get, memory.history, memory.delete):
                with pytest.raises(NotFound):
                    verb(paris.ids[0], user_id=user)
            with pytest.raises(NotFound):
                memory.update(paris.ids[0], "mine now", user_id=user)
        assert memory.get(york.ids[0], user_id="u_york").content.endswith("Salt.")
        assert memory.get(paris.ids[0], user_id="u_paris").state == "active"


def test_iso_02_a_shared_session_id_shares_nothing(place: Places) -> None:
    with Memory(place(), embedder=HashEmbedder()) as memory:
        memory.add("My allergy is to walnuts.", user_id="u_a", session_id="shared-1", wait=True)
        memory.add("My locker is number 88.", user_id="u_b", session_id="shared-1", wait=True)
        found = memory.search("what is my allergy", user_id="u_b", session_id="shared-1")
        assert [h.content for h in found] == ["My locker is number 88."]
        memory.forget(session_id="shared-1", user_id="u_b")
        assert memory.list(user_id="u_b").total == 0
        assert memory.list(user_id="u_a").total == 1


def test_iso_03_like_named_users_never_meet(place: Places) -> None:
    users = ["team_1", "team_11", "team_1 ", "Team_1", "team_1%", "team_1/x", "team_1:x",
             "u'; --", "用户一", "ｔｅａｍ_1"]  # fmt: skip
    with Memory(place(), embedder=HashEmbedder()) as memory:
        for n, user in enumerate(users):
            memory.add(f"secret token of {n} is ZQ-{n}", user_id=user, wait=n == len(users) - 1)
        for n, user in enumerate(users):
            found = memory.search("secret token", user_id=user, top_k=50)
            assert [h.content for h in found] == [f"secret token of {n} is ZQ-{n}"]
        assert memory.forget(user_id="team_1").complete
        assert [memory.list(user_id=u).total for u in users] == [0, *[1] * (len(users) - 1)]


EXACT = [
    "Order SO-2026-00419 is for the oak desk.", "Order SO-2026-00491 is for the elm desk.",
    "Build failed with E4017 in ring_buffer.rs.", "Build failed with E4071 in ring_bufer.rs.",
    "订单号 20260309A17 退款中。", "Env var MY_APP__CACHE_TTL is 30.", "C++ and C# and .NET notes.",
]  # fmt: skip
EXACT_QUERIES = {"SO-2026-00491": 1, "E4071": 3, "ring_buffer.rs": 2, "20260309A17": 4,
                 "MY_APP__CACHE_TTL": 5, "C#": 6, "so-2026-00419": 0}  # fmt: skip


@pytest.mark.parametrize("vectors", [True, False])
def test_exact_01_an_identifier_finds_its_owner(place: Places, vectors: bool) -> None:
    chance = random.Random(3)
    others = {
        *(f"Order SO-2026-{chance.randrange(500, 99999):05d} is for the oak desk." for _ in range(700)),
        *(f"Build failed with E{chance.randrange(5000, 9999)} in ring_{i}.rs." for i in range(650)),
        *(f"订单号 2026{chance.randrange(400, 1231):04d}B{i} 退款中。" for i in range(650)),
    }  # fmt: skip
    with Memory(place(), embedder=HashEmbedder() if vectors else "none") as memory:
        memory.add([*EXACT, *sorted(others)], user_id="u_ex")
        memory.flush(60)
        for query, owner in EXACT_QUERIES.items():
            found = memory.search(query, user_id="u_ex")
            assert found[0].content == EXACT[owner], query


def test_cjk_01_each_script_is_found_by_words_alone(place: Places) -> None:
    rows = ["昨晚确认了灌溉计划", "昨日は折り紙教室に通った", "어제 도자기 수업을 들었다",
            "仓库盘点(stock)含 UPS 与 rk-902b"]  # fmt: skip
    queries = {"灌溉": 0, "灌溉计划": 0, "计划": 0, "折り紙": 1, "도자기": 2, "仓库": 3,
               "rk-902b": 3, "溉": 0, "灌溉計劃": 0, "倉庫": 3, "ｓｔｏｃｋ": 3}  # fmt: skip
    with Memory(place(), embedder="none") as memory:
        memory.add([*rows, "完全无关的一句话", "something else entirely"], user_id="u_cjk")
        for query, row in queries.items():
            assert memory.search(query, user_id="u_cjk")[0].content == rows[row], query


def test_score_01_relevance_means_one_thing(place: Places) -> None:
    chance = random.Random(1)
    words = [
        "cello",
        "tram",
        "paint",
        "fence",
        "nine",
        "Cremona",
        "from",
        "my",
        "the",
        "大提琴",
        "绿色",
    ]
    clock = lambda: datetime(2026, 3, 1, tzinfo=UTC)  # noqa: E731
    with Memory(place(), embedder=HashEmbedder(), clock=clock) as memory:
        for text in (
            "My cello is from Cremona.",
            "The tram stops at nine.",
            "Paint the fence green.",
        ):
            memory.add(text, user_id="u_sc", wait=True)
        queries = ["cello from Cremona"] + [
            " ".join(chance.choices(words, k=chance.randrange(1, 6))) for _ in range(200)
        ]
        before = {
            q: [(h.id, h.relevance) for h in memory.search(q, user_id="u_sc")] for q in queries
        }
        for query in queries:
            relevances = [r for _, r in before[query]]
            assert all(0 <= r <= 1 for r in relevances)
            assert relevances == sorted(relevances, reverse=True)
        last = None
        for threshold in (0.0, 0.3, 0.6, 0.95, 1.0):
            ids = [h.id for h in memory.search("cello from Cremona", user_id="u_sc",
                                               threshold=threshold)]  # fmt: skip
            assert last is None or ids == last[: len(ids)]
            last = ids
        same = memory.search("My cello is from Cremona.", user_id="u_sc")
        assert same[0].content == "My cello is from Cremona."
        assert same[0].relevance > 0.9
        memory.reindex()
        for query in queries:
            after = [(h.id, h.relevance) for h in memory.search(query, user_id="u_sc")]
            assert [i for i, _ in after] == [i for i, _ in before[query]]
            assert [r for _, r in after] == pytest.approx([r for _, r in before[query]], abs=1e-5)


@pytest.mark.parametrize("leg", ["vectors", "words", "both"])
def test_filt_01_filters_come_before_the_best_k(place: Places, leg: str) -> None:
    embedder = "none" if leg == "words" else HashEmbedder(64)
    policy = {"vector_weight": {"vectors": 1.0, "words": 0.0, "both": 0.45}[leg]}
    with Memory(place(), embedder=embedder) as memory:
        for n in range(20):
            memory.add([f"lantern {i} of the others" for i in range(n * 100, n * 100 + 100)],
                       user_id=f"other-{n}")  # fmt: skip
        for n in range(5):
            memory.add(
                f"my lantern number {n}", user_id="u_small",
                occurred_at=f"2024-07-0{n + 1}" if n < 2 else "2025-01-01",
                metadata={"tag": "trip"} if n < 2 else {},
            )  # fmt: skip
        memory.add([f"my lantern spare {n}" for n in range(300)], user_id="u_small", namespace="n")
        memory.flush(120)
        ask = {"user_id": "u_small", "top_k": 5, "policy": policy}
        assert len(memory.search("lantern", **ask)) == 5
        trips = memory.search("lantern", filters={"tag": "trip"}, **ask)
        july = memory.search("lantern", since="2024-07-01", until="2024-07-31", **ask)
        assert {h.content for h in trips} == {h.content for h in july}
        assert {h.content[-1] for h in trips} == {"0", "1"}


def test_inj_01_filters_and_queries_are_values_never_code(place: Places) -> None:
    keys = ["a' OR '1'='1' --", "topic) OR 1=1 --", "$.x", "a.b[0]", "__proto__", "user_id",
            "owner; DROP TABLE memories"]  # fmt: skip
    values = ["' OR 1=1 --", "q'}) DETACH DELETE m //", "%", "_", "*", '" NEAR "', {"$ne": None},
              ["a", "b"]]  # fmt: skip
    queries = ['" OR rowid>0 --', "user_id:other", "NOT x", "a*", "(((", "col:val AND",
               '"unbalanced']  # fmt: skip
    with Memory(place(), embedder=HashEmbedder()) as memory:
        memory.add("the other one's secret is ZQ-777", user_id="other", metadata={"topic": "x"})
        memory.add("mine", user_id="u_inj", metadata={"topic": "y"}, wait=True)
        before = memory.stats()["memories"]
        for key in keys:
            with pytest.raises(InvalidInput):
                memory.search("secret", user_id="u_inj", filters={key: "other"})
            with pytest.raises(InvalidInput):
                memory.list(user_id="u_inj", filters={key: "other"})
        for value in values:
            try:
                found = memory.search("secret", user_id="u_inj", filters={"topic": value})
            except ValueError:
                continue
            assert len(found) == 0
        for query in queries:
            assert "ZQ-777" not in str(memory.search(query, user_id="u_inj").to_dict())
        assert memory.stats()["memories"] == before


@pytest.mark.parametrize("size", [1, 50, 100, 1000])
def test_page_01_paging_visits_each_row_once(place: Places, size: int) -> None:
    count = 1043 if size > 1 else 143
    with Memory(place(), embedder="none") as memory:
        memory.add([f"row {n}" for n in range(count)], user_id="u_pg", occurred_at="2026-01-01")
        seen: list[str] = []
        cursor, turn = None, 0
        start = {m.id for m in memory.list(user_id="u_pg", limit=10_000)}
        doomed = sorted(start)[:5]
        while True:
            page = memory.list(user_id="u_pg", limit=size, cursor=cursor)
            seen += [m.id for m in page]
            turn += 1
            if turn <= 3:
                memory.add(f"a row that came during paging, {turn}", user_id="u_pg")
                memory.delete(doomed[turn], user_id="u_pg")
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen))
        assert start - set(doomed) <= set(seen)
        assert len(memory.list(user_id="u_pg", limit=5000)) == memory.list(user_id="u_pg").total
        for limit in (0, -1, None, "x", 10**9):
            with pytest.raises(InvalidInput):
                memory.list(user_id="u_pg", limit=limit)  # type: ignore[arg-type]


META = {
    "i": 7, "big": 9007199254740993, "f": 0.1, "b": True, "none": None, "s": "true", "num_s": "007",
    "list": ["a", "b"], "empty": [], "nested": {"k": {"z": 1}},
    "dt": datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=8))),
    "date": date(2024, 5, 6), "zh": "标签", "emoji": "🍋",
}  # fmt: skip


def test_meta_01_metadata_keeps_its_types(place: Places, tmp_path: Path) -> None:
    with Memory(place("a"), embedder="none") as memory:
        ours = memory.add("with metadata", user_id="u_md", metadata=META).ids[0]
        memory.add("decoy with metadata", user_id="u_md",
                   metadata={"i": True, "b": 1, "f": "0.1", "list": ["b"], "s": True})  # fmt: skip
        for record in (
            memory.get(ours, user_id="u_md"),
            next(m for m in memory.list(user_id="u_md") if m.id == ours),
            next(h.memory for h in memory.search("metadata", user_id="u_md") if h.id == ours),
        ):
            assert record.metadata == META
            assert {k: type(v) for k, v in record.metadata.items()} == {
                k: type(v) for k, v in META.items()
            }
        for filters in (
            {"b": True}, {"i": 7}, {"list": {"contains": "a"}}, {"f": {">=": 0.1}}, {"zh": "标签"},
            {"dt": {">": "2024-05-05T23:08:08Z", "<": "2024-05-06T07:08:10+08:00"}},
            {"nested.k.z": 1}, {"none": None}, {"big": 9007199254740993}, {"date": date(2024, 5, 6)},
        ):  # fmt: skip
            assert [h.id for h in memory.search("metadata", user_id="u_md", filters=filters)] == [
                ours
            ], filters
        count = memory.stats()["memories"]
        for bad in (float("nan"), float("inf"), {1, 2}, object(), b"bytes"):
            with pytest.raises(InvalidInput):
                memory.add("bad", user_id="u_md", metadata={"x": bad})
        assert memory.stats()["memories"] == count
        memory.export(tmp_path / "md.jsonl", user_id="u_md")
    with Memory(place("b"), embedder="none") as memory:
        memory.import_(tmp_path / "md.jsonl", user_id="u_md")
        assert memory.get(ours, user_id="u_md").metadata == META


def test_tz_01_times_in_every_spelling(place: Places) -> None:
    good = [datetime(2026, 3, 9, 10, 0), "2026-03-09T10:00:00Z", "2026-03-09T18:00:00+08:00",  # noqa: DTZ001
            "2026-03-09", "1773050400", "1773050400000", "2026/3/9 18:00", "20260309T100000Z"]  # fmt: skip
    bad = ["yesterday-ish", "2026-13-40", "", -62135596801, "9999-12-31T23:59:59-12:00"]
    settings = Settings(timezone="Asia/Shanghai")
    with Memory(place(), settings=settings, embedder="none") as memory:
        ids = [
            memory.add(f"time {n}", user_id="u_tz", occurred_at=t).ids[0]
            for n, t in enumerate(good)
        ]
        times = [memory.get(i, user_id="u_tz").occurred_at for i in ids]
        assert len({times[n] for n in (1, 2, 4, 5, 7)}) == 1
        assert times[1].isoformat() == "2026-03-09T10:00:00+00:00" == times[6].isoformat()
        assert times[0].isoformat() == "2026-03-09T02:00:00+00:00"
        assert times[3].isoformat() == "2026-03-08T16:00:00+00:00"
        assert sorted(times)[0] == times[3]
        noted = memory.add("noted", user_id="u_tz", occurred_at="2026-03-09 10:00").notes
        assert any("Asia/Shanghai" in note for note in noted)
        naive = datetime(2026, 3, 9, 18, 0)  # noqa: DTZ001
        assert len(memory.search("time", user_id="u_tz", since=naive, top_k=50)) == 6
        aware = naive.replace(tzinfo=timezone(timedelta(hours=8)))
        assert len(memory.search("time", user_id="u_tz", since=aware, top_k=50)) == 6
        assert all(
            m.to_dict()["occurred_at"].endswith("+00:00") for m in memory.list(user_id="u_tz")
        )
        for value in bad:
            with pytest.raises(InvalidInput):
                memory.add("bad", user_id="u_tz", occurred_at=value)


def _everything(memory: Memory, user: str) -> str:
    rows = [m.to_dict() for m in memory.list(user_id=user, states=None, limit=10_000)]
    for row in rows:
        del row["seq"]
    return json.dumps(sorted(rows, key=lambda r: r["id"]), sort_keys=True, ensure_ascii=False)


def test_exp_01_an_export_brings_everything_back(place: Places, tmp_path: Path) -> None:
    file = tmp_path / "user.jsonl"
    with Memory(place("a"), embedder=HashEmbedder(32, "one")) as memory:
        memory.add("the other user's token is ZQ-999", user_id="other")
        for n in range(46):
            memory.add(f"记忆 {n} 🍋 memory", user_id="u_xp", metadata=META if n % 5 == 0 else {"n": n},
                       session_id=f"s{n % 3}", occurred_at=f"2025-02-{n % 28 + 1:02d}")  # fmt: skip
        first = memory.list(user_id="u_xp").items[0].id
        for n in range(4):
            memory.update(first, f"version {n}", user_id="u_xp", reason="changed")
        memory.add("private", user_id="u_xp", agent_id="a1", visibility="private")
        memory.flush(30)
        before = _everything(memory, "u_xp")
        counts = memory.export(file, user_id="u_xp")
        assert counts["memory"] == 51
        assert "ZQ-999" not in file.read_text("utf-8")
    with Memory(place("b"), embedder=HashEmbedder(64, "two")) as memory:
        assert memory.import_(file, user_id="u_xp")["skipped"] == 0
        assert _everything(memory, "u_xp") == before
        again = memory.import_(file, user_id="u_xp")
        assert again["written"] == 0
        assert _everything(memory, "u_xp") == before
        chain = memory.history(first, user_id="u_xp")
        assert [v.event for v in chain] == ["add", *["update"] * 4]
        renamed = memory.import_(file, user_id="u_new")
        assert renamed["skipped"] == 0
        assert memory.list(user_id="u_new", states=None).total == 50
        assert memory.import_(file, user_id="u_new")["written"] == 0
        assert _everything(memory, "u_xp") == before
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = {
        "cut": b"".join(lines[: int(len(lines) * 0.6)]),
        "half a line": b"".join(lines)[: int(sum(map(len, lines)) * 0.6)],
        "bad line": b"".join([*lines[:10], b'{"type": "memory", "oops\n', *lines[11:]]),
        "bad field": b"".join([*lines[:60], lines[60].replace(b'"role"', b'"rule"'), *lines[61:]]),
        "changed": b"".join(lines).replace("记忆 3 ".encode(), "记忆 4 ".encode()),
    }
    with Memory(place("c"), embedder="none") as memory:
        for name, content in damaged.items():
            bad = tmp_path / "bad.jsonl"
            bad.write_bytes(content)
            with pytest.raises(ImportFailed, match=r"line \d+"):
                memory.import_(bad, user_id="u_xp")
            assert memory.stats()["memories"] == 0, name
