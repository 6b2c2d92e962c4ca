"""The endpoint embedder against a real HTTP server that can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from scrubjay.backends.openai import OpenAIEmbedder
from scrubjay.errors import InvalidInput, ModelError, ModelRejected, ModelUnavailable

KEY = "sk-very-secret"
SECRET_TEXT = "my password is hunter2"
DIMENSION = 8
Reply = tuple[int, dict[str, str], bytes]


def vector_of(text: str) -> list[float]:
    """Give a fixed direction for a text."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return [float(x) for x in np.random.default_rng(seed).normal(size=DIMENSION) * 3]


def unit_of(text: str) -> np.ndarray:
    vector = np.array(vector_of(text))
    return vector / np.linalg.norm(vector)


def good(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"object": "embedding", "index": i, "embedding": vector_of(text)}
        for i, text in enumerate(body["input"])
    ]


class Server:
    """Answers /v1/embeddings. `faults` are used up one per request, then it behaves."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Callable[[dict[str, Any]], Reply | None]] = []
        self.shape: Callable[[dict[str, Any]], Any] = lambda body: {"data": good(body)}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append({"path": self.path, **body})
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                if outer.faults:
                    reply = outer.faults.pop(0)(body)
                else:
                    reply = (200, {}, json.dumps(outer.shape(body)).encode())
                if reply is None:  # hang up in the middle
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                status, headers, content = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def fault(status: int, body: bytes = b"{}", **headers: str) -> Callable[[dict[str, Any]], Reply]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: (status, named, body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def make(server: Server) -> Iterator[Callable[..., OpenAIEmbedder]]:
    made: list[OpenAIEmbedder] = []

    def make(**changes: Any) -> OpenAIEmbedder:
        settings = {"dimension": DIMENSION, "retries": 2, "backoff_s": 0.01, "timeout_s": 5.0}
        embedder = OpenAIEmbedder(server.url, KEY, "test-model", **{**settings, **changes})
        made.append(embedder)
        return embedder

    yield make
    for embedder in made:
        embedder.close()


def assert_discreet(error: BaseException) -> None:
    """Neither key nor text in the error or anything it is chained to."""
    while error is not None:
        assert KEY not in repr(error)
        assert "hunter2" not in repr(error)
        if error.__suppress_context__:
            break
        error = error.__cause__ or error.__context__  # type: ignore[assignment]


# -- what goes right ------------------------------------------------------------------------


def test_vectors_are_unit_rows_in_order(server: Server, make: Any) -> None:
    embedder = make(batch_size=3)
    texts = [f"text {i} 文本" for i in range(8)]
    vectors = embedder.embed(texts, "passage")
    assert vectors.shape == (8, DIMENSION)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [unit_of(text) for text in texts], atol=1e-6)
    assert [len(request["input"]) for request in server.requests] == [3, 3, 2]
    assert server.requests[0]["path"] == "/v1/embeddings"
    assert server.requests[0]["model"] == "test-model"
    assert "dimensions" not in server.requests[0]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert embedder.model_id == "openai:test-model"


def test_a_misordered_reply_is_put_in_order(server: Server, make: Any) -> None:
    server.shape = lambda body: {"data": good(body)[::-1]}
    vectors = make().embed(["a", "b", "c"], "query")
    assert np.allclose(vectors, [unit_of(text) for text in "abc"], atol=1e-6)


def test_a_reply_without_indexes_is_taken_in_order(server: Server, make: Any) -> None:
    server.shape = lambda body: {"data": [{"embedding": vector_of(t)} for t in body["input"]]}
    assert np.allclose(make().embed(["a", "b"], "query"), [unit_of("a"), unit_of("b")], atol=1e-6)


def test_base64_vectors_are_read(server: Server, make: Any) -> None:
    def shape(body: dict[str, Any]) -> Any:
        packed = [np.array(vector_of(text), "<f4").tobytes() for text in body["input"]]
        return {
            "data": [
                {"index": i, "embedding": base64.b64encode(data).decode()}
                for i, data in enumerate(packed)
            ]
        }

    server.shape = shape
    assert np.allclose(make().embed(["a"], "query")[0], unit_of("a"), atol=1e-6)


def test_the_dimension_is_asked_once(server: Server, make: Any) -> None:
    embedder = make(dimension=None)
    assert embedder.dimension == DIMENSION
    assert embedder.dimension == DIMENSION
    assert embedder.embed([], "query").shape == (0, DIMENSION)
    assert len(server.requests) == 1


def test_a_shorter_dimension_can_be_requested(server: Server, make: Any) -> None:
    embedder = make(request_dimension=True)
    embedder.embed(["a"], "query")
    assert server.requests[0]["dimensions"] == DIMENSION
    assert embedder.model_id == f"openai:test-model@{DIMENSION}"


def test_prefixes_go_by_role(server: Server, make: Any) -> None:
    embedder = make(prefixes={"query": "query: "})
    embedder.embed(["a", ""], "query")
    embedder.embed(["a", ""], "passage")
    assert [request["input"] for request in server.requests] == [
        ["query: a", "query: "],
        ["a", " "],
    ]


def test_a_long_text_is_split_and_averaged(server: Server, make: Any) -> None:
    (vector, other) = make(max_chars=4).embed(["abcdefghi", "xy"], "passage")
    assert server.requests[0]["input"] == ["abc", "def", "ghi", "xy"]
    mean = sum(unit_of(part) * 3 for part in ("abc", "def", "ghi"))
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert np.allclose(other, unit_of("xy"), atol=1e-6)


def test_lone_surrogates_are_sent_as_text(server: Server, make: Any) -> None:
    make().embed(["a\ud800b"], "query")
    assert server.requests[0]["input"] == ["a?b"]


def test_no_key_sends_no_header(server: Server) -> None:
    for ending in ("/", "?version=1"):
        embedder = OpenAIEmbedder(server.url + ending, "", "test-model")
        embedder.embed(["a"], "query")
        embedder.close()
    assert "authorization" not in server.headers[0]
    paths = [request["path"] for request in server.requests]
    assert paths == ["/v1/embeddings", "/v1/embeddings?version=1"]


def test_threads_share_one_embedder(make: Any) -> None:
    embedder = make()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: embedder.embed([f"t{i}"], "query")[0], range(32)))
    assert all(np.allclose(row, unit_of(f"t{i}"), atol=1e-6) for i, row in enumerate(results))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_connections_of_its_own(make: Any) -> None:
    embedder = make()
    embedder.embed(["a"], "query")
    pid = os.fork()
    if pid == 0:
        try:
            right = np.allclose(embedder.embed(["b"], "query")[0], unit_of("b"), atol=1e-6)
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert np.allclose(embedder.embed(["c"], "query")[0], unit_of("c"), atol=1e-6)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- what passes ----------------------------------------------------------------------------

PASSING = {
    "limit": fault(429, retry_after="0"),
    "limit until a date": fault(429, retry_after=formatdate(usegmt=True)),
    "server error": fault(500),
    "gateway": fault(502, b"<html>bad gateway</html>"),
    "hang-up": lambda _: None,
    "web page": fault(200, b"<html>sign in</html>"),
    "no data": fault(200, b'{"object": "list"}'),
    "partial": lambda body: (200, {}, json.dumps({"data": good(body)[:-1]}).encode()),
    "doubled": lambda body: (200, {}, json.dumps({"data": good(body)[:1] * 2}).encode()),
    "ragged": fault(200, b'{"data": [{"embedding": ["x"]}, {"embedding": [[1]]}]}'),
    "bad base64": fault(200, b'{"data": [{"embedding": "*"}, {"embedding": "*"}]}'),
    "nothing": fault(200, b""),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_is_tried_again(server: Server, make: Any, name: str) -> None:
    server.faults = [PASSING[name]] * 2
    vectors = make().embed(["a", SECRET_TEXT], "query")
    assert np.allclose(vectors[0], unit_of("a"), atol=1e-6)
    assert len(server.requests) == 3


@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_stays_is_unavailable(server: Server, make: Any, name: str) -> None:
    server.faults = [PASSING[name]] * 9
    with pytest.raises(ModelUnavailable, match="did not answer in 3 tries") as caught:
        make().embed(["a", SECRET_TEXT], "query")
    assert len(server.requests) == 3
    assert_discreet(caught.value)


def test_retry_after_is_waited_for(server: Server, make: Any) -> None:
    server.faults = [fault(503, retry_after="0.4")]
    began = time.monotonic()
    make().embed(["a"], "query")
    assert 0.4 <= time.monotonic() - began < 3


def test_a_long_retry_after_is_told_at_once(server: Server, make: Any) -> None:
    server.faults = [fault(429, retry_after="3600")]
    began = time.monotonic()
    with pytest.raises(ModelUnavailable, match="wait 3600 s"):
        make().embed(["a"], "query")
    assert time.monotonic() - began < 3
    assert len(server.requests) == 1


def test_a_slow_endpoint_times_out(server: Server, make: Any) -> None:
    release = threading.Event()

    def slow(_: dict[str, Any]) -> None:
        release.wait(5)

    server.faults = [slow]
    try:
        with pytest.raises(ModelUnavailable, match="ReadTimeout"):
            make(timeout_s=0.2, retries=0).embed([SECRET_TEXT], "query")
    finally:
        release.set()


def test_a_closed_port_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    embedder = OpenAIEmbedder(f"http://127.0.0.1:{port}/v1", KEY, "m", 3, retries=1, backoff_s=0.01)
    with pytest.raises(ModelUnavailable, match="ConnectError") as caught:
        embedder.embed([SECRET_TEXT], "query")
    embedder.close()
    assert_discreet(caught.value)


# -- what stays -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_text_is_rejected_by_its_number(server: Server, make: Any, status: int) -> None:
    detail = json.dumps({"error": {"message": f"cannot read {SECRET_TEXT}", "code": "too_long"}})

    def refuse(body: dict[str, Any]) -> Reply:
        if SECRET_TEXT in body["input"]:
            return status, {}, detail.encode()
        return 200, {}, json.dumps({"data": good(body)}).encode()

    server.faults = [refuse] * 50
    with pytest.raises(ModelRejected, match=r"too_long.*text number 5 ") as caught:
        make().embed(["a", "b", "c", "d", "e", SECRET_TEXT, "g"], "passage")
    assert str(status) in str(caught.value)
    assert_discreet(caught.value)


def test_a_batch_that_is_too_large_is_halved(server: Server, make: Any) -> None:
    def refuse(body: dict[str, Any]) -> Reply:
        if len(body["input"]) > 2:
            return 413, {}, b""
        return 200, {}, json.dumps({"data": good(body)}).encode()

    server.faults = [refuse] * 50
    texts = [f"t{i}" for i in range(7)]
    vectors = make().embed(texts, "passage")
    assert np.allclose(vectors, [unit_of(text) for text in texts], atol=1e-6)


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "key"), (403, "key"), (404, "address"), (301, "address")]
)
def test_a_wrong_setting_is_not_tried_again(
    server: Server, make: Any, status: int, hint: str
) -> None:
    server.faults = [fault(status, location="http://127.0.0.1:9/elsewhere")]
    with pytest.raises(ModelUnavailable, match=hint) as caught:
        make().embed([SECRET_TEXT], "query")
    assert len(server.requests) == 1
    assert_discreet(caught.value)


def test_a_wrong_dimension_is_an_error(server: Server, make: Any) -> None:
    with pytest.raises(ModelError, match=r"dimension \[8\], expected 5"):
        make(dimension=5).embed(["a"], "query")
    assert len(server.requests) == 1
    server.shape = lambda body: {"data": [{"embedding": [1, 2]}, {"embedding": [1, 2, 3]}]}
    with pytest.raises(ModelError, match=r"\[2, 3\]"):
        make(dimension=None).embed(["a", "b"], "query")


@pytest.mark.parametrize(
    "values", ["[0,0,0,0,0,0,0,0]", "[NaN,1,1,1,1,1,1,1]", "[1e300,1,1,1,1,1,1,1]"]
)
def test_a_useless_vector_is_an_error(server: Server, make: Any, values: str) -> None:
    server.faults = [fault(200, f'{{"data": [{{"embedding": {values}}}]}}'.encode())]
    with pytest.raises(ModelError, match="without a direction"):
        make().embed(["a"], "query")


def test_wrong_arguments_are_refused(make: Any) -> None:
    for url in ("", "ftp://host/v1", "host/v1", "http://", "http://host:port/v1"):
        with pytest.raises(InvalidInput, match="base_url"):
            OpenAIEmbedder(url, "", "m")
    wrong: list[dict[str, Any]] = [
        {"dimension": 0},
        {"timeout_s": 0},
        {"retries": -1},
        {"batch_size": 0},
        {"max_chars": 0},
        {"dimension": None, "request_dimension": True},
    ]
    for change in wrong:
        with pytest.raises(InvalidInput):
            make(**change)
    with pytest.raises(InvalidInput, match="api_key") as caught:
        OpenAIEmbedder("http://host/v1", KEY + "\n", "m")
    assert_discreet(caught.value)
    with pytest.raises(InvalidInput, match="model"):
        OpenAIEmbedder("http://host/v1", KEY, "")
    with pytest.raises(InvalidInput, match="role"):
        make().embed(["a"], "document")
    with pytest.raises(InvalidInput, match="list"):
        make().embed("a", "query")


def test_neither_key_nor_password_is_shown() -> None:
    shown = repr(OpenAIEmbedder("https://user:pass@host:8443/v1?token=t", KEY, "m"))
    assert shown == "OpenAIEmbedder('m', base_url='https://host:8443/v1')"


def test_a_closed_embedder_says_so(make: Any) -> None:
    embedder = make()
    embedder.embed(["a"], "query")
    embedder.close()
    embedder.close()
    with pytest.raises(ModelUnavailable, match="closed"):
        embedder.embed(["a"], "query")


def test_without_httpx_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["httpx"] = None  # as if it were not installed
from scrubjay.backends.openai import OpenAIEmbedder
from scrubjay.errors import ModelUnavailable
try:
    OpenAIEmbedder("http://localhost/v1", "", "m", 3).embed(["a"], "query")
except ModelUnavailable as error:
    sys.exit(0 if "pip install 'scrubjay[llm]'" in str(error) else str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
