"""The multiplications of operators, by hand."""

import pytest
from tiny_tflite import Graph

from edgeconv.model.tflite.layers import macs

# The shapes of the inputs and of the output, None for an input that is missing.
CASES = {
    "CONV_2D": ([(1, 8, 8, 3), (16, 3, 3, 3), (16,)], (1, 4, 4, 16), 4 * 4 * 16 * 27),
    "DEPTHWISE_CONV_2D": ([(1, 8, 8, 6), (1, 3, 3, 6), (6,)], (1, 8, 8, 6), 64 * 6 * 9),
    "FULLY_CONNECTED": ([(2, 5), (7, 5), None], (2, 7), 70),
    "TRANSPOSE_CONV": ([(4,), (8, 2, 2, 3), (1, 5, 5, 3)], (1, 10, 10, 8), 25 * 3 * 4 * 8),
    "CONV_3D": ([(1, 4, 4, 4, 2), (3, 3, 3, 2, 5)], (1, 2, 2, 2, 5), 8 * 5 * 54),
    "BATCH_MATMUL": ([(2, 3, 4), (2, 4, 6)], (2, 3, 6), 2 * 3 * 4 * 6),
    "SVDF": ([(1, 10), (8, 10), (8, 5), (4,), (1, 40)], (1, 4), 8 * 10 + 8 * 5),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        [(1, 7, 3), *[(5, 3)] * 4, *[(5, 5)] * 4, *[None] * 3, *[(5,)] * 4, None],
        (1, 7, 5),
        7 * 4 * (15 + 25),
    ),
    "ADD": ([(1, 4), (1, 4)], (1, 4), 0),
    # Malformed: it has no weights.
    "L2_NORMALIZATION": ([(1, 4)], (1, 4), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_multiplications_of_an_operator(name):
    inputs, output, expected = CASES[name]
    graph = Graph()
    indices = [
        -1 if shape is None else graph.tensor(f"i{index}", shape, "int8", scale=[0.5])
        for index, shape in enumerate(inputs)
    ]
    y = graph.computed("y", output, name, indices, "int8", scale=[0.5])
    model = graph.model([indices[0]], [y])
    (only,) = model.subgraphs[0].operators
    assert macs(model, model.subgraphs[0], only) == expected


def test_an_operator_without_its_weights_counts_nothing():
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "int8", scale=[0.5]) for name in "xy")
    graph.operator("FULLY_CONNECTED", [x], [y])
    model = graph.model([x], [y])
    (only,) = model.subgraphs[0].operators
    assert macs(model, model.subgraphs[0], only) == 0
