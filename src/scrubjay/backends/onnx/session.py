"""Contract: run one ONNX text encoder on the CPU, token ids in, one pooled vector per row out."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scrubjay.backends.onnx.manifest import Manifest
from scrubjay.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Runner:
    """One onnxruntime session: token ids in, one vector per row out."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        self._session = _open_session(folder / manifest.model_file, manifest.optimised, threads)
        self._pooling = manifest.pooling
        self._inputs = {value.name for value in self._session.get_inputs()}
        unknown = self._inputs - {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
        if unknown or "input_ids" not in self._inputs:
            raise ModelError(
                f"the model {folder} takes inputs {sorted(self._inputs)}; "
                "only text encoders with input_ids can be used"
            )
        self._output: str = _choose_output(self._session)

    def run(self, rows: Sequence[list[int]]) -> NDArray[np.float32]:
        """Run rows of token ids: (len(rows), dimension) float32, pooled, not normalised."""
        import numpy as np

        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        longest = int(lengths.max())
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        ids = np.ones((len(rows), longest), np.int64)  # any id will do where the mask is 0
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        feed = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = np.zeros_like(ids)
        if "position_ids" in self._inputs:
            feed["position_ids"] = np.broadcast_to(np.arange(longest), ids.shape).copy()
        feed = {name: value for name, value in feed.items() if name in self._inputs}
        try:
            (hidden,) = self._session.run([self._output], feed)
        except _session_errors() as error:
            raise ModelError(f"the model cannot run: {error}") from error
        hidden = np.asarray(hidden, np.float32)
        if hidden.ndim == 2:
            return hidden
        if self._pooling == "cls":
            return np.ascontiguousarray(hidden[:, 0])
        weights = mask.astype(np.float32)
        pooled: NDArray[np.float32] = np.matmul(weights[:, None, :], hidden)[:, 0]
        pooled /= lengths[:, None].astype(np.float32)
        return pooled


def load_onnxruntime() -> ModuleType:
    """Import onnxruntime with its telemetry off. The only way Scrubjay may import it.

    From 1.29 on its Linux and macOS builds send session and model facts to their maker, keep a
    device id in the user's cache, and start threads at import which make a forked child hang when
    it exits. The variable must be set before the import; a user's own setting of it stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    onnxruntime = importlib.import_module("onnxruntime")
    if os.environ["ORT_DISABLE_TELEMETRY"] == "1":
        # For the case that the application had imported it already, and for Windows.
        onnxruntime.disable_telemetry_events()
    return onnxruntime


def _open_session(path: Path, optimised: bool, threads: int) -> Any:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads gain little alone and cost much beside other work: with two busy cores a
    # query took 34 ms with it and 18 without.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if optimised:
        # Higher levels would put back fusions that are slower than what the graph was built of.
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.graph_optimization_level = level
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _session_errors() as error:
        raise ModelError(f"the model {path} cannot be opened: {error}") from error


def _session_errors() -> tuple[type[Exception], ...]:
    """Give what onnxruntime raises; its exceptions have no common base but `Exception`."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
    )


def _choose_output(session: Any) -> str:
    """Prefer token vectors, which the manifest's pooling fits; otherwise a pooled vector."""
    outputs: dict[str, int] = {
        value.name: len(value.shape or ()) for value in session.get_outputs()
    }
    for name in ("last_hidden_state", "token_embeddings", "sentence_embedding"):
        if name in outputs:
            return name
    for rank in (3, 2):
        for name, size in outputs.items():
            if size == rank:
                return name
    raise ModelError(f"the model has no output of vectors, only {sorted(outputs)}")
