"""The commands about Scrubjay itself: settings, the demo, evaluations, the benchmark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scrubjay
from scrubjay.evals import bench

Run = Callable[..., Any]
LIN = ("--user", "lin")


# -- settings ----------------------------------------------------------------------------------


def test_settings_lists_all_with_their_origin(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "my.toml"
    config.write_text('timezone = "Asia/Shanghai"\ncache_mb = 8\n', "utf-8")
    monkeypatch.setenv("SCRUBJAY_CONFIG", str(config))
    monkeypatch.setenv("SCRUBJAY_CACHE_MB", "16")
    monkeypatch.setenv("SCRUBJAY_OPENAI_API_KEY", "sk-secret")
    answer = run("settings", "--json")
    rows = {row["name"]: row for row in answer.json["settings"]}
    assert set(rows) == set(scrubjay.Settings.model_fields)
    assert all(row["meaning"] for row in rows.values())
    assert (rows["cache_mb"]["value"], rows["cache_mb"]["from"]) == (16, "environment")
    assert (rows["timezone"]["value"], rows["timezone"]["from"]) == ("Asia/Shanghai", "file")
    assert rows["write_timeout_s"]["from"] == "default"
    assert rows["path"]["from"] == "command line"
    assert answer.json["file"] == str(config)
    shown = run("settings")
    assert "sk-secret" not in answer.out + shown.out
    assert all(name in shown.out for name in rows)


def test_a_wrong_setting_is_told_with_the_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRUBJAY_CACHE_MB", "many")
    monkeypatch.setenv("SCRUBJAY_OPENAI_API_KEY", "sk-secret")
    shown = run("settings")
    assert shown.code == 2
    assert "many" in shown.out
    assert "cache_mb" in shown.err
    assert "sk-secret" not in shown.out + shown.err


def test_the_time_zone_of_the_settings_is_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRUBJAY_TIMEZONE", "Asia/Shanghai")
    run("add", "早上好", *LIN, "--occurred-at", "2026-03-09 18:00")
    assert "2026-03-09 18:00" in run("list", *LIN).out
    assert "2026-03-09 10:00" in run("list", *LIN, "--time-zone", "UTC").out


# -- trying out --------------------------------------------------------------------------------


def test_eval_runs_a_set(run: Run, tmp_path: Path) -> None:
    data = [
        {
            "id": "t", "kind": "simple", "question": "我同事叫什么?",
            "question_time": "2024年04月02日 周二 08:00", "target_ids": ["n0"],
            "choices": {}, "messages": [
                {"id": "n0", "message": "我同事叫李晓婷。", "time": "2024年04月01日 周一 08:10",
                 "place": "江苏南京"},
                {"id": "n1", "message": "今天下雨。", "time": "2024年04月01日 周一 09:10",
                 "place": "江苏南京"},
            ],
        }
    ]  # fmt: skip
    file = tmp_path / "memdaily.json"
    file.write_text(json.dumps(data), "utf-8")
    report = run("eval", "memdaily", "--data", str(file), "--json").json
    assert report["questions"] == 1
    assert report["recall@5"] == 1.0
    shown = run("eval", "memdaily", "--data", str(file), "--limit", "1", store=False)
    assert shown.code == 0
    assert "recall@5" in shown.out


def test_demo_gives_its_exit_code(run: Run) -> None:
    shown = run("demo")
    assert shown.code in (0, 1)  # by words alone a question may stay unanswered
    assert "of 12 questions answered" in shown.out


def test_bench_passes_its_sizes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(sizes: Any, *, store: Any, model: bool, progress: Any) -> bench.BenchReport:
        asked.append((sizes, store, model))
        progress(0, 1, "1k")
        return bench.BenchReport([bench.Figure("add", "1k", 1.5, "ms", 1.0, 2.0)])

    monkeypatch.setattr(bench, "run", measured)
    answer = run("bench", "--sizes", "1k,10k", "--sizes", "users", "--json", store=False)
    assert answer.json["figures"][0]["ratio"] == 1.5
    shown = run("bench", "--no-model", store=False)
    assert {"1.5 ms", "1 ms", "1.50x"} <= {part.strip() for part in shown.out.split("  ")}
    assert asked == [(["1k", "10k", "users"], None, True), (None, None, False)]


def test_bench_refuses_an_unknown_size(run: Run) -> None:
    refused = run("bench", "--sizes", "huge", store=False)
    assert refused.code == 2
    assert "100k" in refused.err


def test_a_settings_file_that_is_not_there_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A misspelt name must not answer from another store."""
    monkeypatch.setenv("SCRUBJAY_CONFIG", str(tmp_path / "mispelt.toml"))
    refused = run("search", "x", "--user", "ada")
    assert refused.code == 2
    assert "mispelt.toml" in refused.err


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no way to be someone else")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be someone else")
def test_a_settings_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("cache_mb = 64\n")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    file.chmod(0o600)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable,
         "-c", "from scrubjay.surfaces.cli import main; main()", "list", "--user", "ada"],
        capture_output=True, text=True, timeout=60, check=False, cwd="/",
        env={**os.environ, "SCRUBJAY_CONFIG": str(file), "HOME": "/nonexistent"},
    )  # fmt: skip
    assert done.returncode == 2, done
    assert "mine.toml" in done.stderr
    assert "Traceback" not in done.stderr
