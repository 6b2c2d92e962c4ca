"""Contract: turn texts into unit vectors with an ONNX model on the local CPU.

`open_embedder` finds a model by name or folder and gives an `OnnxEmbedder`. Importing this
package is cheap: numpy, onnx, onnxruntime and tokenizers are loaded when a model is opened.
"""

from __future__ import annotations

from scrubjay.backends.onnx.embedder import OnnxEmbedder
from scrubjay.backends.onnx.registry import DEFAULT_MODEL, open_embedder

__all__ = ["DEFAULT_MODEL", "OnnxEmbedder", "open_embedder"]
