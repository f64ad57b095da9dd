"""Detection heads with crafted weights: boxes in pixels of 0 to 320, and scores of 0 to 1."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

KEY = "serving_default"
INPUTS, FEATURES, ANCHORS, CLASSES = 16, 24, 8, 2
RELU = 1


def samples(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, INPUTS)).astype(np.float32)


class Head(Graph):
    """Layers with the names that a converter gives those of Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.x = self.tensor("x", (1, INPUTS), "float32", dynamic=True)
        self.features = self.dense("features", self.x, (INPUTS, FEATURES), 0.3, activation=RELU)

    def dense(self, name, source, shape, scale, *, bias=0.0, activation=0):
        inputs, outputs = shape
        weights = (self.rng.normal(size=(outputs, inputs)) * scale).astype(np.float32)
        w = self.tensor(f"{name}/kernel", weights.shape, "float32", data=weights)
        biases = np.broadcast_to(np.asarray(bias, np.float32), (outputs,))
        b = self.tensor(f"{name}/bias", (outputs,), "float32", data=biases)
        y = self.output(f"net/{name}/MatMul;net/{name}/BiasAdd", (1, outputs))
        self.operator("FULLY_CONNECTED", [source, w, b], [y])
        self.operators[-1].builtinOptions.fusedActivationFunction = activation
        return y

    def reshape(self, name, source, shape):
        lengths = np.array([-1, *shape[1:]], np.int32)
        to = self.tensor(f"{name}/shape", (len(shape),), "int32", data=lengths)
        y = self.output(f"net/{name}/Reshape", shape)
        self.operator("RESHAPE", [source, to], [y])
        return y

    def join(self, name, sources, shape, axis):
        y = self.output(name, shape)
        options = schema.ConcatenationOptionsT(axis=axis)
        self.operator("CONCATENATION", sources, [y], options=options)
        return y

    def output(self, name, shape):
        return self.tensor(name, shape, "float32", dynamic=True)

    def packed(self, *outputs: int, names=("detections",)) -> bytes:
        return packed(self.model([self.x], list(outputs), signature=(KEY, ["x"], list(names))))


def _boxes_and_scores(head: Head, suffix: str = "", width: float = 20.0) -> tuple[int, int]:
    boxes = head.dense(
        f"boxes{suffix}", head.features, (FEATURES, 4 * ANCHORS), width, bias=8 * width
    )
    classes = head.dense(
        f"classes{suffix}", head.features, (FEATURES, CLASSES * ANCHORS), 0.8, bias=-1.0
    )
    boxes = head.reshape(f"boxes{suffix}_flat", boxes, (1, ANCHORS, 4))
    logits = head.reshape(f"classes{suffix}_flat", classes, (1, ANCHORS, CLASSES))
    scores = head.output(f"net/scores{suffix}/Sigmoid", (1, ANCHORS, CLASSES))
    head.operator("LOGISTIC", [logits], [scores])
    return boxes, scores


def joined_head(*, width: float = 20.0) -> bytes:
    """Boxes and scores joined at the end."""
    head = Head()
    parts = _boxes_and_scores(head, width=width)
    return head.packed(head.join("net/detections/concat", parts, (1, ANCHORS, 4 + CLASSES), 2))


def two_levels() -> bytes:
    """Boxes of two levels joined, scores of two levels joined, both joined, and flattened."""
    head = Head()
    levels = [_boxes_and_scores(head, suffix) for suffix in ("_1", "_2")]
    boxes, scores = (
        head.join(f"net/all_{name}/concat", list(parts), (1, 2 * ANCHORS, last), 1)
        for name, parts, last in zip(
            ("boxes", "scores"), zip(*levels, strict=True), (4, CLASSES), strict=True
        )
    )
    both = head.join("net/detections/concat", [boxes, scores], (1, 2 * ANCHORS, 4 + CLASSES), 2)
    flat = head.reshape("flat", both, (1, 2 * ANCHORS * (4 + CLASSES)))
    return head.packed(flat)


def one_layer(sizes: tuple[float, ...] = (25.0,) * 4 + (0.25,) * 2) -> bytes:
    """One dense layer, whose channels have values of these sizes."""
    head = Head()
    scale = np.array(sizes)[:, None]
    return head.packed(head.dense("out", head.features, (FEATURES, len(sizes)), scale))


def separate_outputs() -> bytes:
    """Boxes and scores as two outputs."""
    head = Head()
    return head.packed(*_boxes_and_scores(head), names=("boxes", "scores"))
