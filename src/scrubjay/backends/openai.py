"""Contract: turn texts into unit vectors through any OpenAI-compatible `/embeddings` endpoint.

What may pass (an outage, a limit, a server's fault) is tried again a bounded number of times and
then raised as `ModelUnavailable`; what the endpoint refuses for what it is, as `ModelRejected`.
Neither the texts nor the key ever stand in an error or a repr, nor does a reply's free text,
which may quote the input.
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, urlsplit

from scrubjay.errors import InvalidInput, ModelError, ModelRejected, ModelUnavailable

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

LONGEST_WAIT_S = 30.0
"""A `Retry-After` beyond this is not waited for: the caller hears of it at once."""
_REJECTED = {400, 413, 422}
_TRANSIENT = {408, 409, 425, 429}
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of text number `text`."""

    text: int
    content: str


class _Transient(Exception):
    """A failure that may pass; `wait_s` is what the endpoint asked for, if it did."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class OpenAIEmbedder:
    """An embedding model behind `base_url` + `/embeddings`.

    `api_key` may be empty for a local server. `dimension` is what the vectors must have; None asks
    the endpoint on first use. `request_dimension` also sends it, for models that can shorten their
    vectors. `timeout_s` (seconds) is for one request, `retries` how often a failed one is repeated,
    `backoff_s` the first pause between two. At most `batch_size` texts go into one request. A text
    of more than `max_chars` characters is embedded in parts. `prefixes` by role go before a text.

    Safe for threads and across `fork`. Raises `InvalidInput` for arguments that cannot be used.

    >>> OpenAIEmbedder("http://localhost:11434/v1", "secret", "bge-m3", dimension=1024)
    OpenAIEmbedder('bge-m3', base_url='http://localhost:11434/v1')
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        dimension: int | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 3,
        batch_size: int = 64,
        max_chars: int = 8000,
        prefixes: Mapping[str, str] | None = None,
        request_dimension: bool = False,
        backoff_s: float = 0.5,
    ) -> None:
        url = _check_url(base_url)
        if not all("!" <= character <= "~" for character in api_key):
            raise InvalidInput("api_key may hold only visible ASCII characters, no spaces")
        if not model:
            raise InvalidInput("model must be a name")
        if dimension is not None and dimension < 1:
            raise InvalidInput(f"dimension must be 1 or more, got {dimension}")
        if timeout_s <= 0 or retries < 0 or batch_size < 1 or max_chars < 1 or backoff_s < 0:
            raise InvalidInput("timeout_s, batch_size and max_chars must be positive, retries >= 0")
        if request_dimension and dimension is None:
            raise InvalidInput("request_dimension needs a dimension")
        self._endpoint = url._replace(path=url.path.rstrip("/") + "/embeddings").geturl()
        self._shown_url = url._replace(
            netloc=url.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()
        self._api_key = api_key
        self._model = model
        self._dimension = dimension
        self._request_dimension = request_dimension
        self._timeout_s = timeout_s
        self._retries = retries
        self._batch_size = batch_size
        self._max_chars = max_chars
        self._prefixes = dict(prefixes or {})
        self._backoff_s = backoff_s
        self._lock = threading.Lock()
        self._client: tuple[int, httpx.Client] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._model!r}, base_url={self._shown_url!r})"

    @property
    def model_id(self) -> str:
        """The model's name, behind `openai:`; with `@dimension` where that was requested."""
        suffix = f"@{self._dimension}" if self._request_dimension else ""
        return f"openai:{self._model}{suffix}"

    @property
    def dimension(self) -> int:
        """The length of a vector; asks the endpoint once if it was not given."""
        if self._dimension is None:
            self._request(["dimension"])
        if self._dimension is None:
            raise ModelError(f"{self!r} gave no vector to measure")
        return self._dimension

    def embed(self, texts: Sequence[str], role: Literal["query", "passage"]) -> NDArray[np.float32]:
        """Embed texts: (len(texts), dimension) float32, each row of length 1.

        A text longer than `max_chars` is embedded in parts, whose unit vectors are averaged,
        weighted by their characters, and normalised. Raises `InvalidInput` for an unknown role,
        `ModelUnavailable` if the endpoint cannot answer now, `ModelRejected` if it refuses a text,
        `ModelError` if its vectors cannot be used.
        """
        import numpy as np

        if role not in ("query", "passage"):
            raise InvalidInput(f"role must be 'query' or 'passage', got {role!r}")
        if isinstance(texts, str):
            raise InvalidInput("texts must be a list of strings, got one string")
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        prefix = self._prefixes.get(role, "")
        pieces = list(_split(texts, self._max_chars))
        parts = []
        for start in range(0, len(pieces), self._batch_size):
            batch = pieces[start : start + self._batch_size]
            parts.append(self._embed_batch(batch, prefix))
        vectors = np.concatenate(parts)
        if len(pieces) == len(texts):
            return vectors
        sums = np.zeros((len(texts), vectors.shape[1]), np.float32)
        weights = np.array([max(1, len(piece.content)) for piece in pieces], np.float32)
        np.add.at(sums, [piece.text for piece in pieces], vectors * weights[:, None])
        return self._unit(sums)

    def close(self) -> None:
        """Close the connections. A later `embed` raises `ModelUnavailable`."""
        with self._lock:
            self._closed = True
            if self._client is not None and self._client[0] == os.getpid():
                self._client[1].close()
            self._client = None

    def _embed_batch(self, batch: Sequence[_Piece], prefix: str) -> NDArray[np.float32]:
        """Embed one batch. A refused batch is halved, to find the text that is refused."""
        import numpy as np

        try:
            # An empty input is refused by many endpoints; a space means as little.
            return self._request([prefix + piece.content or " " for piece in batch])
        except ModelRejected as error:
            if len(batch) == 1:
                raise ModelRejected(f"{error} (text number {batch[0].text} of the call)") from None
        middle = len(batch) // 2
        halves = [self._embed_batch(part, prefix) for part in (batch[:middle], batch[middle:])]
        return np.concatenate(halves)

    def _request(self, inputs: list[str]) -> NDArray[np.float32]:
        """Send one request, again if need be: unit vectors, (len(inputs), dimension)."""
        body: dict[str, Any] = {"model": self._model, "input": inputs, "encoding_format": "float"}
        if self._request_dimension:
            body["dimensions"] = self._dimension
        reason = ""
        for attempt in range(self._retries + 1):
            try:
                return self._read(self._post(body), len(inputs))
            except _Transient as failure:
                reason = str(failure)
                wait_s = failure.wait_s
            if wait_s is not None and wait_s > LONGEST_WAIT_S:
                raise ModelUnavailable(
                    f"{self!r} asks to wait {wait_s:.0f} s: {reason}. Try again after that."
                )
            if attempt < self._retries:
                time.sleep(self._pause(attempt) if wait_s is None else wait_s)
        tries = "try" if self._retries == 0 else "tries"
        raise ModelUnavailable(
            f"{self!r} did not answer in {self._retries + 1} {tries}: {reason}. Try again later."
        )

    def _pause(self, attempt: int) -> float:
        # Jitter, so that many clients of one endpoint do not come back all at once.
        return float(min(self._backoff_s * 2**attempt, LONGEST_WAIT_S) * random.uniform(0.5, 1.0))

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """Send; give a successful response. Raises `_Transient` for what may pass."""
        client = self._open_client()
        import httpx

        try:
            response = client.post(self._endpoint, json=body)
        except httpx.RequestError as error:
            raise _Transient(type(error).__name__) from error
        status = response.status_code
        if response.is_success:
            return response
        reason = f"HTTP {status}{_error_code(response)}"
        if status in _REJECTED:
            raise ModelRejected(f"{self!r} refuses the input: {reason}")
        if status in _TRANSIENT or status >= 500:
            raise _Transient(reason, _retry_after(response.headers.get("retry-after")))
        hint = "check the address and the model's name"
        if status in (401, 403):
            hint = "check the key and its rights"
        raise ModelUnavailable(f"{self!r} does not serve this request: {reason}; {hint}.")

    def _open_client(self) -> httpx.Client:
        try:
            import httpx
        except ImportError as error:
            raise ModelUnavailable(
                "an embedding endpoint needs the package httpx: pip install 'scrubjay[llm]'"
            ) from error
        pid = os.getpid()
        if self._client is not None and self._client[0] != pid:
            # A child of fork: the sockets are the parent's, and the lock may be held by nobody.
            self._lock, self._client = threading.Lock(), None
        with self._lock:
            if self._closed:
                raise ModelUnavailable(f"{self!r} was closed")
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
                self._client = (pid, httpx.Client(timeout=self._timeout_s, headers=headers))
            return self._client[1]

    def _read(self, response: httpx.Response, count: int) -> NDArray[np.float32]:
        """Read `count` vectors in the order of the inputs, of length 1."""
        import numpy as np

        try:
            items = response.json()["data"]
            rows = [(item.get("index"), _vector(item["embedding"])) for item in items]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            kind = type(error).__name__  # its text may quote the reply
            raise _Transient(f"a reply that is no list of embeddings ({kind})") from None
        if len(rows) != count:
            raise _Transient(f"{len(rows)} vectors for {count} texts")
        if any(index is not None for index, _ in rows):
            order = sorted(index if isinstance(index, int) else -1 for index, _ in rows)
            if order != list(range(count)):
                raise _Transient(f"the indexes of {count} vectors are not 0 to {count - 1}")
            rows.sort(key=lambda row: row[0])
        lengths = {len(vector) for _, vector in rows}
        expected = self._dimension or max(lengths)
        if lengths != {expected}:
            raise ModelError(
                f"{self!r} gave vectors of dimension {sorted(lengths)}, expected {expected}. "
                "Set the dimension to what the model gives, or choose the model it belongs to."
            )
        vectors = self._unit(np.stack([vector for _, vector in rows]))
        self._dimension = expected
        return vectors

    def _unit(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        import numpy as np

        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise ModelError(f"{self!r} gave a vector without a direction (zeros or no numbers)")
        result: NDArray[np.float32] = vectors / lengths
        return result


def _check_url(base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise InvalidInput("base_url must be an http or https address, such as https://host/v1")
    return url


def _split(texts: Sequence[str], max_chars: int) -> Iterator[_Piece]:
    """Give each text whole, or in parts of nearly equal length.

    >>> [piece.content for piece in _split(["abcdefg", ""], 3)]
    ['ab', 'cd', 'efg', '']
    """
    for number, text in enumerate(texts):
        whole = text.encode("utf-8", "replace").decode()  # no lone surrogates: JSON refuses them
        count = max(1, -(-len(whole) // max_chars))
        for part in range(count):
            start, end = len(whole) * part // count, len(whole) * (part + 1) // count
            yield _Piece(number, whole[start:end])


def _vector(value: Any) -> NDArray[np.float32]:
    """Read one embedding: a list of numbers, or base64 of little-endian float32."""
    import numpy as np

    if isinstance(value, str):
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        except binascii.Error as error:
            raise ValueError("base64") from error
    with np.errstate(over="ignore"):  # too large becomes infinite, which is refused later
        vector = np.asarray(value, np.float32)
    if vector.ndim != 1 or not vector.size:
        raise ValueError("shape")
    return vector


def _retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Read the header in either of its forms, seconds or a date; give seconds from now.

    >>> _retry_after("7")
    7.0
    >>> _retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=lambda: 0.0)
    60.0
    >>> _retry_after("soon")
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None  # not a number is no answer


def _error_code(response: httpx.Response) -> str:
    """Give the error's code or type from the reply if it is a plain word, else nothing."""
    try:
        error = response.json()["error"]
        word = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f" ({word})" if isinstance(word, str) and _CODE.fullmatch(word) else ""
