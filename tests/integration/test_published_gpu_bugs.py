"""Bugs of LiteRT's GPU delegate that were published, each in its smallest model, run here.

`LiteRT#N` is https://github.com/google-ai-edge/LiteRT/issues/N. docs/gpu.md has what each gave.
A test that fails with another version of LiteRT is news for that page.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

from edgeconv.runtimes.choice import open_runtime, parse_choice
from edgeconv.runtimes.interface import Delegated, Model, RuntimeSettings
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types.errors import ToolFailed

RNG = np.random.default_rng(0)
# Of the largest value: dynamic int8 on the processor rounds activations, which is far less.
RIGHT, WRONG = 0.02, 0.3


@pytest.fixture(scope="module")
def run(gpu_device, tmp_path_factory) -> Iterator[Callable[[bytes], tuple[float, Delegated]]]:
    """Run a model on random samples: its error there as a share of the largest value, and facts."""
    scratch = tmp_path_factory.mktemp(gpu_device.split(" ", 1)[0])
    settings = RuntimeSettings(scratch=scratch)
    with (
        open_runtime(parse_choice("gpu"), settings) as gpu,
        open_runtime(parse_choice("litert"), settings) as cpu,
    ):
        yield lambda content: compared(content, scratch / "model.tflite", gpu, cpu)


def compared(
    content: bytes, file: Path, gpu: LocalRuntime, cpu: LocalRuntime
) -> tuple[float, Delegated]:
    file.write_bytes(content)
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    tensors = [graph.tensors[index] for index in graph.inputs]
    inputs = {t.name.decode(): RNG.normal(size=t.shape).astype(np.float32) for t in tensors}
    sessions = [runtime.start(Model(file=file)) for runtime in (gpu, cpu)]
    there, here = (session.run(inputs)["y"] for session in sessions)
    for session in sessions:
        session.close()
    return float(np.abs(there - here).max() / np.abs(here).max()), sessions[0].gpu


class Single(Graph):
    """A graph with the input `x` and operators with options."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.inputs = [self.floats("x", *shape)]

    def floats(self, name: str, *shape: int, data: Any = None) -> int:
        values = None if data is None else np.asarray(data, np.float32)
        return self.tensor(name, shape, "float32", data=values)

    def integers(self, name: str, values: Any) -> int:
        array = np.asarray(values, np.int32)
        return self.tensor(name, array.shape, "int32", data=array)

    def levels(self, name: str, *shape: int, scales: int) -> int:
        data = RNG.integers(-127, 128, shape).astype(np.int8)
        return self.tensor(name, shape, "int8", data=data, scale=np.full(scales, 0.01))

    def then(
        self, name: str, inputs: list[int], output: int, version: int = 1, /, **options: Any
    ) -> int:
        self.operator(name, inputs, [output], version=version)
        if options:
            kind = options.pop("kind")
            values = getattr(schema, f"{kind}T")()
            for key, value in options.items():
                setattr(values, key, value)
            self.operators[-1].builtinOptions = values
            self.operators[-1].builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        return output

    def reshaped(self, tensor: int, name: str, *shape: int) -> int:
        target = self.integers(f"{name}_shape", shape)
        output = self.floats(name, *shape)
        return self.then(
            "RESHAPE", [tensor, target], output, kind="ReshapeOptions", newShape=list(shape)
        )

    def packed(self, output: int) -> bytes:
        return packed(self.model(self.inputs, [output]))


def convolution(size: int, stride: int, bits: int) -> bytes:
    graph, side = Single(1, 8, 8, 8), -(-8 // stride)
    if bits == 8:
        weights = graph.levels("w", 8, size, size, 8, scales=8)
    else:
        weights = graph.floats("w", 8, size, size, 8, data=RNG.normal(size=(8, size, size, 8)))
    output = graph.floats("y", 1, side, side, 8)
    bias = graph.floats("b", 8, data=np.zeros(8))
    graph.convolution([*graph.inputs, weights, bias], output, stride)
    return graph.packed(output)


def padded(rank: int) -> bytes:
    graph = Single(1, 4 * 6 * 8)
    shape = (1, 4, 6, 8)[-rank:]
    inner = graph.reshaped(graph.inputs[0], "inner", *shape)
    pads = [[0, 0]] * (rank - 3) + [[1, 0], [0, 0], [0, 0]]
    more = graph.floats("more", *(np.array(shape) + np.sum(pads, axis=1)))
    graph.then("PAD", [inner, graph.integers("pads", pads)], more, kind="PadOptions")
    return graph.packed(graph.reshaped(more, "y", 1, 5 * 6 * 8))


def product(*, adj_x: bool = False, adj_y: bool = False) -> bytes:
    graph = Single(1, 2, 8, 8)
    graph.inputs.append(graph.floats("other", 1, 2, 8, 8))
    output = graph.floats("y", 1, 2, 8, 8)
    options = {"kind": "BatchMatMulOptions", "adjX": adj_x, "adjY": adj_y}
    graph.then("BATCH_MATMUL", graph.inputs, output, **options)
    return graph.packed(output)


def masked_product() -> bytes:
    graph = Single(1, 4, 8, 16)
    graph.inputs += [graph.floats("keys", 1, 4, 16, 8), graph.floats("mask", 1, 1, 8, 8)]
    scores = graph.floats("scores", 1, 4, 8, 8)
    graph.then("BATCH_MATMUL", graph.inputs[:2], scores, kind="BatchMatMulOptions")
    output = graph.floats("y", 1, 4, 8, 8)
    graph.then("ADD", [scores, graph.inputs[2]], output, kind="AddOptions")
    return graph.packed(output)


def mixed_ranks(name: str) -> bytes:
    graph = Single(1, 20, 16, 16)
    graph.inputs.append(graph.floats("mask", 1, 1, 16, 16))
    scores = graph.reshaped(graph.inputs[0], "scores", 20, 16, 16)
    output = graph.floats("y", 1, 20, 16, 16)
    graph.then(name, [scores, graph.inputs[1]], output, kind=f"{name.title()}Options")
    return graph.packed(output)


def broadcast_product() -> bytes:
    graph = Single(1, 10, 1)
    graph.inputs.append(graph.floats("other", 1, 10, 3))
    output = graph.floats("y", 1, 10, 3)
    graph.then("MUL", graph.inputs, output, kind="MulOptions")
    return graph.packed(output)


def dense(*, dequantized: bool = False, residual: bool = False) -> bytes:
    graph = Single(1, 16, 64)
    weights = graph.levels("w", 64, 64, scales=64)
    if dequantized:
        wide = graph.floats("wide", 64, 64)
        weights = graph.then("DEQUANTIZE", [weights], wide, 2)
    inner = graph.floats("inner" if residual else "y", 1, 16, 64)
    options = {"kind": "FullyConnectedOptions", "keepNumDims": True}
    graph.then("FULLY_CONNECTED", [*graph.inputs, weights, -1], inner, 9, **options)
    if not residual:
        return graph.packed(inner)
    output = graph.floats("y", 1, 16, 64)
    graph.then("ADD", [*graph.inputs, inner], output, kind="AddOptions")
    return graph.packed(output)


def clamped() -> bytes:
    graph = Single(1, 4)
    inner, output = graph.floats("inner", 1, 4), graph.floats("y", 1, 4)
    graph.then("TANH", graph.inputs, inner)
    return graph.packed(graph.then("RELU_0_TO_1", [inner], output))


def broadcast() -> bytes:
    graph = Single(1, 1, 8, 1)
    inner, output = graph.floats("inner", 1, 1, 8, 1), graph.floats("y", 1, 1, 8, 16)
    graph.then("TANH", graph.inputs, inner)
    shape = graph.integers("shape", [1, 1, 8, 16])
    return graph.packed(graph.then("BROADCAST_TO", [inner, shape], output, 2))


WRONG_HERE = {
    # Seen here first, on ResNet-8: weights of 8 bits, 1x1, strides.
    "strides of a 1x1 convolution": lambda: convolution(1, 2, 8),
    "LiteRT#9272, padding at rank 3": lambda: padded(3),
}
RIGHT_HERE = {
    "a 1x1 convolution in float": lambda: convolution(1, 2, 32),
    "strides of a 3x3 convolution": lambda: convolution(3, 2, 8),
    "LiteRT#9272 at rank 4": lambda: padded(4),
    "LiteRT#8913, adj_x": lambda: product(adj_x=True),
    "LiteRT#8913, adj_y": lambda: product(adj_y=True),
    "LiteRT#8593, said to be fixed in 2.1.6": masked_product,
    "LiteRT#8980, ADD": lambda: mixed_ranks("ADD"),
    "LiteRT#8980, MUL": lambda: mixed_ranks("MUL"),
    "LiteRT#141, tensorflow#60043": broadcast_product,
    "LiteRT#9277, seen on Mali": lambda: dense(residual=True),
}
LEFT_HERE = {
    "LiteRT#8598, accepted by 2.1.3": (clamped, "RELU_0_TO_1"),
    "LiteRT#9191": (broadcast, "BROADCAST_TO"),
}


@pytest.mark.parametrize("bug", WRONG_HERE)
def test_it_is_wrong_here_and_called_fully_accelerated(run, bug):
    error, taken = run(WRONG_HERE[bug]())
    assert taken.is_full
    assert error > WRONG


@pytest.mark.parametrize("bug", RIGHT_HERE)
def test_it_cannot_be_reproduced_here(run, bug):
    error, taken = run(RIGHT_HERE[bug]())
    assert taken.is_full
    assert error < RIGHT


@pytest.mark.parametrize("bug", LEFT_HERE)
def test_the_operator_is_left_to_the_processor(run, bug):
    make, operator = LEFT_HERE[bug]
    error, taken = run(make())
    assert not taken.is_full
    assert taken.left[0].startswith(f"{operator}: ")
    assert error < RIGHT


def test_a_dense_layer_with_widened_weights_is_refused(run):
    # LiteRT#9523.
    with pytest.raises(ToolFailed, match="Shape mismatch"):
        run(dense(dequantized=True))
