"""Float models of one operator, by its name, with samples that LiteRT can run them on."""

from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

KEY = "serving_default"


class Case(NamedTuple):
    """What an operator is fed: shapes of inputs, constants by position, options, range."""

    shapes: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    constants: dict[int, np.ndarray] | None = None
    options: tuple[str, dict] | None = None
    low: float = -2.0
    high: float = 3.0
    kind: str = "float32"


def of(shape, *constants, output=None, options=None, low=-2.0, high=3.0, kind="float32") -> Case:
    """One input, and constants after it."""
    numbered = {index: np.asarray(c) for index, c in enumerate(constants, start=1)}
    return Case((shape,), output or shape, numbered, options, low, high, kind)


F, INT = np.float32, np.int32
ROW, PICTURE = (1, 12), (1, 4, 4, 8)
AXIS = INT([1])
CASES = {
    "ABS": of(ROW),
    "ADD_N": Case((ROW, ROW, ROW), ROW),
    "ARG_MAX": of(ROW, INT(1), output=(1,), options=("ArgMax", {"outputType": 2}), kind="int32"),
    "CEIL": of(ROW, low=-20, high=20),
    "CUMSUM": of(ROW, INT(1), options=("Cumsum", {"exclusive": False, "reverse": False})),
    "DEPTH_TO_SPACE": of(PICTURE, output=(1, 8, 8, 2), options=("DepthToSpace", {"blockSize": 2})),
    "DIV": Case((ROW, ROW), ROW, options=("Div", {}), low=0.5, high=4.0),
    "ELU": of(ROW),
    "EQUAL": of(ROW, F(0), kind="bool"),
    "EXP": of(ROW),
    "EXPAND_DIMS": of(ROW, INT(1), output=(1, 1, 12)),
    "FLOOR": of(ROW, low=-20, high=20),
    "GREATER": of(ROW, F(0.5), kind="bool"),
    "GREATER_EQUAL": of(ROW, F(0.5), kind="bool"),
    "HARD_SWISH": of(ROW),
    "L2_NORMALIZATION": of(ROW, options=("L2Norm", {})),
    "LEAKY_RELU": of(ROW, options=("LeakyRelu", {"alpha": 0.1})),
    "LESS": of(ROW, F(0.5), kind="bool"),
    "LESS_EQUAL": of(ROW, F(0.5), kind="bool"),
    "LOCAL_RESPONSE_NORMALIZATION": of(
        PICTURE,
        options=(
            "LocalResponseNormalization",
            {"radius": 2, "bias": 1.0, "alpha": 0.1, "beta": 0.75},
        ),
    ),
    "LOG": of(ROW, low=0.3, high=4.0),
    "LOG_SOFTMAX": of(ROW),
    "MINIMUM": of(ROW, F(0.5), options=("MaximumMinimum", {})),
    "NEG": of(ROW),
    "NOT_EQUAL": of(ROW, F(0), kind="bool"),
    "POW": of(ROW, F(2)),
    "PRELU": of(ROW, np.linspace(0.1, 0.5, 12, dtype=F).reshape(1, 12)),
    "REDUCE_MAX": of(ROW, AXIS, output=(1, 1), options=("Reducer", {"keepDims": True})),
    "REDUCE_MIN": of(ROW, AXIS, output=(1, 1), options=("Reducer", {"keepDims": True})),
    "REDUCE_PROD": of(
        (1, 3), AXIS, output=(1, 1), options=("Reducer", {"keepDims": True}), low=0.5
    ),
    "RELU6": of(ROW, high=8.0),
    "RELU_N1_TO_1": of(ROW),
    "REVERSE_V2": of(ROW, AXIS),
    "ROUND": of(ROW, low=-20, high=20),
    "SIGN": of(ROW),
    "SPACE_TO_DEPTH": of(PICTURE, output=(1, 2, 2, 32), options=("SpaceToDepth", {"blockSize": 2})),
    "SQUARE": of(ROW),
    "SQUARED_DIFFERENCE": Case((ROW, ROW), ROW),
    "SQUEEZE": of((1, 12, 1), output=ROW, options=("Squeeze", {"squeezeDims": [2]})),
    "TILE": of(ROW, INT([1, 2]), output=(1, 24)),
}


def single(name: str, case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model, and 40 samples of its inputs by name."""
    graph, random = Graph(), np.random.default_rng(3)
    names = [f"x{index}" for index in range(len(case.shapes))]
    inputs = [
        graph.tensor(each, shape, "float32", dynamic=True)
        for each, shape in zip(names, case.shapes, strict=True)
    ]
    read = [
        *inputs,
        *(
            graph.tensor(f"c{index}", values.shape, values.dtype.name, data=values)
            for index, values in (case.constants or {}).items()
        ),
    ]
    output = graph.tensor("y", case.output, case.kind, dynamic=True)
    # The builtin versions below need no more than this.
    kind, values = case.options or ("", {})
    options = getattr(schema, f"{kind}OptionsT")(**values) if kind else None
    graph.operator(name, read, [output], version=1, options=options)
    samples = {
        each: random.uniform(case.low, case.high, (40, *shape[1:])).astype(np.float32)
        for each, shape in zip(names, case.shapes, strict=True)
    }
    return packed(graph.model(inputs, [output], signature=(KEY, names, ["y"]))), samples
