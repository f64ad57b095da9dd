"""Graphs in which something is zero, or nearly so, for some samples and not for others."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray
from tiny_tflite import Graph, packed

Arrays = dict[str, "NDArray[np.float32]"]
ROWS = 48


class Unseen(NamedTuple):
    """A float model, samples that leave something at zero, and others that do not."""

    model: bytes
    blind: Arrays
    seeing: Arrays


def _dense(graph: Graph, source: int, name: str, shape: tuple[int, int], **options: Any) -> int:
    """FULLY_CONNECTED of [outputs, inputs]; `bias`, `seed`, `factor` of weights, fused `relu`."""
    rng = np.random.default_rng(options.get("seed", 0))
    weights = rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[1]))
    weights *= np.float32(options.get("factor", 1))
    w = graph.tensor(f"{name}/w", shape, "float32", data=weights)
    bias = np.full(shape[:1], options.get("bias", 0.0), np.float32)
    b = graph.tensor(f"{name}/b", shape[:1], "float32", data=bias)
    out = graph.computed(name, (1, shape[0]), "FULLY_CONNECTED", [source, w, b])
    if options.get("relu"):
        kind = schema.ActivationFunctionType.RELU
        graph.operators[-1].builtinOptions.fusedActivationFunction = kind
    return out


def binary(graph: Graph, kind: str, left: int, right: int, name: str, shape: Any) -> int:
    """ADD, SUB or MUL of two tensors."""
    options = getattr(schema, f"{kind.capitalize()}OptionsT")()
    return graph.computed(name, shape, kind, [left, right], options=options)


def named(graph: Graph, inputs: list[int], out: int, names: list[str]) -> bytes:
    """The model, whose output is called y."""
    return packed(graph.model(inputs, [out], signature=("serving_default", names, ["y"])))


def softmax_of_nearly_nothing() -> bytes:
    """A layer of weights near 1e-13, and SOFTMAX of it: probabilities that are equal throughout."""
    graph = Graph()
    x = graph.tensor("x", (1, 6), "float32")
    logits = _dense(graph, x, "logits", (4, 6), factor=1e-13)
    options = schema.SoftmaxOptionsT()
    options.beta = 1.0
    out = graph.computed("probabilities", (1, 4), "SOFTMAX", [logits], options=options)
    return named(graph, [x], out, ["x"])


def _normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def difference() -> Unseen:
    """Two towers with the same weights, subtracted, and a dense layer: a = b in all samples."""
    graph = Graph()
    a, b = (graph.tensor(name, (1, 10), "float32") for name in "ab")
    towers = [_dense(graph, x, f"tower_{n}", (8, 10)) for n, x in (("a", a), ("b", b))]
    gap = binary(graph, "SUB", *towers, "gap", (1, 8))
    out = _dense(graph, gap, "head", (3, 8), seed=1, bias=0.1)
    same = _normal(2, ROWS, 10)
    return Unseen(
        named(graph, [a, b], out, ["a", "b"]),
        {"a": same, "b": same},
        {"a": same, "b": _normal(3, ROWS, 10)},
    )


def gate() -> Unseen:
    """relu(x W) times relu(-v W): with v = x one of them is shut for each channel."""
    graph = Graph()
    x, v = (graph.tensor(name, (1, 10), "float32") for name in "xv")
    value = _dense(graph, x, "value", (8, 10), relu=True)
    opening = _dense(graph, v, "opening", (8, 10), relu=True, factor=-1)
    gated = binary(graph, "MUL", value, opening, "gated", (1, 8))
    out = _dense(graph, gated, "head", (3, 8), seed=1)
    same = _normal(2, ROWS, 10)
    return Unseen(
        named(graph, [x, v], out, ["x", "v"]),
        {"x": same, "v": same},
        {"x": same, "v": _normal(3, ROWS, 10)},
    )


def deviation() -> Unseen:
    """x - mean(x): the values of each sample are equal."""
    graph = Graph()
    x = graph.tensor("x", (1, 16), "float32")
    axes = graph.tensor("axes", (1,), "int32", data=np.array([1], np.int32))
    mean = graph.tensor("mean", (1, 1), "float32")
    graph.operator("MEAN", [x, axes], [mean], options=schema.ReducerOptionsT(keepDims=True))
    centered = binary(graph, "SUB", x, mean, "centered", (1, 16))
    out = _dense(graph, centered, "head", (3, 16), seed=1)
    level = np.random.default_rng(0).uniform(0.1, 1, (ROWS, 1)).astype(np.float32)
    return Unseen(
        named(graph, [x], out, ["x"]),
        {"x": np.repeat(level, 16, axis=1)},
        {"x": np.random.default_rng(1).uniform(0, 1, (ROWS, 16)).astype(np.float32)},
    )


KINDS: dict[str, Callable[[], Unseen]] = {
    "difference": difference,
    "gate": gate,
    "deviation": deviation,
}
