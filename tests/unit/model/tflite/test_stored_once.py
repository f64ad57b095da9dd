"""Constants are stored once, and as one number where that gives the same."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed, run

from edgeconv.model.tflite import (
    with_constants_once,
    with_rows_of_weights,
    with_scalars,
    with_small_tables,
    with_tables_once,
)
from edgeconv.model.tflite.flatbuffer import operator_name, parse, read, serialize, text

TABLE = np.random.default_rng(3).normal(size=(200, 16)).astype(np.float32)
SCALES = np.abs(TABLE).max(1) / 127
SMALL = np.rint(TABLE / SCALES[:, None]).astype(np.int8)
IDS = np.array([[7]], np.int32)


def tied(*, unpacks: bool, table: np.ndarray = TABLE) -> bytes:
    """A row of a table, and its products with all rows of the table, which are int8.

    `unpacks`: these are unpacked after the row was read, as weight-only recipes have it.
    """
    graph = Graph()
    ids = graph.tensor("ids", (1, 1), "int32")
    floats = graph.tensor("table", table.shape, "float32", data=table)
    small = graph.tensor("small", SMALL.shape, "int8", data=SMALL, scale=SCALES)
    y = graph.tensor("y", (1, 200), "float32")
    shape = graph.tensor("shape", (2,), "int32", data=np.array([1, 16], np.int32))
    rows = graph.computed("rows", (1, 1, 16), "GATHER", [floats, ids])
    row = graph.computed("row", (1, 16), "RESHAPE", [rows, shape])
    weights = small
    if unpacks:
        weights = graph.computed("unpacked", SMALL.shape, "DEQUANTIZE", [small], version=2)
    graph.operator("FULLY_CONNECTED", [row, weights, -1], [y], version=1 if unpacks else 3)
    return packed(graph.model([ids], [y, row], signature=("serve", ["ids"], ["y", "row"])))


def names(data: bytes) -> list[str]:
    model = read(data, where="the test's")
    return [operator_name(model, operator) for operator in model.subgraphs[0].operators]


@pytest.mark.parametrize("unpacks", [False, True])
def test_a_table_is_stored_once_and_unpacked_for_who_reads_floats(unpacks):
    data = tied(unpacks=unpacks)
    once = with_tables_once(data)
    assert len(data) - len(once) > 0.9 * TABLE.nbytes
    assert names(once).count("DEQUANTIZE") == 1
    row = run(once, IDS)[1]
    np.testing.assert_allclose(row[0], SMALL[7] * SCALES[7], rtol=1e-6)
    exact = run(data, IDS)[0]
    assert np.abs(run(once, IDS)[0] - exact).max() < 0.02 * np.abs(exact).max()
    assert with_tables_once(once) == once


def test_another_table_and_one_that_a_rule_keeps_stay():
    data = tied(unpacks=False)
    assert with_tables_once(data, {"rows"}) == data
    other = tied(unpacks=False, table=TABLE[::-1].copy())
    assert with_tables_once(other) == other


@pytest.mark.parametrize("off", [0.02, 0.08])
def test_a_table_that_is_only_similar_stays(off):
    """As that of a model which was trained a little further for one of its uses."""
    noise = np.random.default_rng(4).normal(size=TABLE.shape).astype(np.float32)
    similar = tied(unpacks=False, table=TABLE * (1 + off * noise))
    assert with_tables_once(similar) == similar


def added(
    constant: np.ndarray, *, operator: str = "MUL", shape: tuple[int, ...] = (1, 64, 32)
) -> bytes:
    graph = Graph()
    x = graph.tensor("x", shape, "float32", dynamic=True)
    c = graph.tensor("c", constant.shape, "float32", data=constant)
    y = graph.tensor("y", np.broadcast_shapes(shape, constant.shape), "float32", dynamic=True)
    graph.operator(operator, [x, c], [y])
    return packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))


@pytest.mark.parametrize("operator", ["ADD", "MUL", "MAXIMUM"])
@pytest.mark.parametrize("dimensions", [(64, 32), (1, 64, 32)])
def test_equal_numbers_become_one(operator, dimensions):
    data = added(np.full(dimensions, 3, np.float32), operator=operator)
    one = with_scalars(data)
    assert len(data) - len(one) > 0.95 * 64 * 32 * 4
    x = np.random.default_rng(1).normal(size=(1, 64, 32)).astype(np.float32)
    np.testing.assert_array_equal(run(one, x)[0], run(data, x)[0])


def test_a_large_constant_that_gives_the_result_its_size_is_filled_when_the_model_runs():
    data = added(np.full((256, 128), 3, np.float32), shape=(1, 1, 128), operator="ADD")
    filled = with_scalars(data)
    assert names(filled) == ["FILL", "ADD"]
    assert len(data) - len(filled) > 0.95 * 256 * 128 * 4
    x = np.random.default_rng(1).normal(size=(1, 1, 128)).astype(np.float32)
    np.testing.assert_array_equal(run(filled, x)[0], run(data, x)[0])


@pytest.mark.parametrize(
    ("constant", "shape"),
    [
        # The result gets its size, or its batch, from the constant.
        (np.full((64, 32), 3, np.float32), (1, 1, 32)),
        (np.full((2, 64, 32), 3, np.float32), (1, 64, 32)),
        (np.arange(64 * 32, dtype=np.float32).reshape(64, 32), (1, 64, 32)),
        (np.full((1, 4), 3, np.float32), (1, 4)),
    ],
)
def test_other_constants_stay(constant, shape):
    data = added(constant, shape=shape)
    assert with_scalars(data) == data


def looked_up(table: np.ndarray, *, also_multiplies: bool = False) -> bytes:
    """The rows of a table by their ids, as an embedding alone."""
    graph = Graph()
    ids = graph.tensor("ids", (1, 3), "int32")
    floats = graph.tensor("table", table.shape, "float32", data=table)
    rows = graph.computed("rows", (1, 3, 16), "GATHER", [floats, ids])
    outputs = [rows]
    if also_multiplies:
        y = graph.computed("y", (1, 3, len(table)), "FULLY_CONNECTED", [rows, floats, -1])
        outputs.append(y)
    keys = ["rows", "y"][: len(outputs)]
    return packed(graph.model([ids], outputs, signature=("serve", ["ids"], keys)))


@pytest.mark.parametrize(
    ("kind", "ratio", "operators", "error"),
    [
        ("int8", 0.25, ["GATHER", "DEQUANTIZE"], np.abs(TABLE).max() / 254),
        ("float16", 0.5, ["DEQUANTIZE", "GATHER"], 2e-3),
    ],
)
def test_a_table_that_is_only_looked_up_becomes_small(kind, ratio, operators, error):
    data = looked_up(TABLE)
    small = with_small_tables(data, kind)
    assert len(data) - len(small) == pytest.approx((1 - ratio) * TABLE.nbytes, abs=600)
    assert names(small) == operators
    three = np.array([[0, 7, 199]], np.int32)
    np.testing.assert_allclose(run(small, three)[0][0], TABLE[three[0]], atol=1.01 * error)
    assert with_small_tables(small, kind) == small


def test_the_matrices_that_a_product_of_several_has_get_16_bits():
    rng, graph = np.random.default_rng(3), Graph()
    matrices = rng.normal(size=(4, 32, 16)).astype(np.float32)
    x, stored = (
        graph.tensor("x", (4, 3, 32), "float32"),
        graph.tensor("m", (4, 32, 16), "float32", data=matrices),
    )
    y = graph.computed("y", (4, 3, 16), "BATCH_MATMUL", [x, stored])
    data = packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))
    small = with_small_tables(data, "float16")
    assert len(data) - len(small) == pytest.approx(matrices.nbytes / 2, abs=600)
    values = rng.normal(size=(4, 3, 32)).astype(np.float32)
    np.testing.assert_allclose(run(small, values)[0], values @ matrices, atol=0.02)
    assert with_small_tables(data, "int8") == with_small_tables(data, "float16", {"y"}) == data


def test_a_small_table_and_one_with_another_reader_or_a_rule_stay():
    data = looked_up(TABLE)
    assert with_small_tables(data, "int8", {"rows"}) == data
    few = looked_up(TABLE[:20])
    assert with_small_tables(few, "int8") == few
    tied_floats = looked_up(TABLE, also_multiplies=True)
    assert with_small_tables(tied_floats, "int8") == tied_floats


def tied_integers(table: np.ndarray = TABLE, *, lookups: int = 1) -> bytes:
    """Rows of a table, which a layer has as int8 weights with finer scales, all in int8."""
    graph = Graph()
    scale = np.abs(TABLE).max() / 127
    numbers = np.rint(table / scale).clip(-128, 127).astype(np.int8)
    coarse = graph.tensor("table", table.shape, "int8", data=numbers, scale=scale)
    fine = graph.tensor("small", SMALL.shape, "int8", data=SMALL, scale=SCALES)
    inputs = [graph.tensor(f"ids{i}", (1, 3), "int32", dynamic=True) for i in range(lookups)]
    rows = [
        graph.computed(f"rows{i}", (1, 3, 16), "GATHER", [coarse, ids], "int8", scale=scale)
        for i, ids in enumerate(inputs)
    ]
    options = schema.FullyConnectedOptionsT()
    options.keepNumDims = True
    y = graph.computed(
        *("y", (1, 3, 200), "FULLY_CONNECTED", [rows[0], fine, -1], "int8"),
        version=5,
        options=options,
        scale=0.3,
    )
    return packed(
        graph.model(
            inputs,
            [*rows, y],
            signature=(
                "serve",
                [f"ids{i}" for i in range(lookups)],
                [*(f"rows{i}" for i in range(lookups)), "y"],
            ),
        )
    )


@pytest.mark.parametrize("lookups", [1, 2])
def test_rows_of_int8_are_read_from_the_weights_of_a_layer(lookups):
    data = tied_integers(lookups=lookups)
    once = with_rows_of_weights(data)
    less = with_constants_once(once)
    # The scales of the rows are a byte each.
    assert len(data) - len(once) > TABLE.size - len(TABLE) - 900 * lookups
    assert names(once) == ["GATHER", "GATHER", "MUL"] * lookups + ["FULLY_CONNECTED"]
    assert less == once
    three = np.array([[0, 7, 199]], np.int32)
    before, after = run(data, *[three] * lookups), run(once, *[three] * lookups)
    for rows, old in zip(after[:-1], before[:-1], strict=True):
        # One rounding more than the table had, to a step.
        assert np.abs(rows.astype(int) - old).max() <= 1
    assert np.abs(after[-1].astype(int) - before[-1]).max() <= 1
    assert with_rows_of_weights(once) == once


def test_another_table_of_int8_stays():
    other = tied_integers(TABLE[::-1].copy())
    assert with_rows_of_weights(other) == other
    assert with_rows_of_weights(tied(unpacks=False)) == tied(unpacks=False)


def test_a_row_of_zeros_costs_the_other_rows_nothing():
    """Its scale is any number, as 1, beside which those of the others would be nothing."""
    model = parse(tied_integers(), where="the test's")
    graph = model.subgraphs[0]
    for number in (0, 1):
        values = np.array(model.buffers[graph.tensors[number].buffer].data).reshape(200, 16)
        values[3] = 0
        model.buffers[graph.tensors[number].buffer].data = values.reshape(-1)
    quantization = graph.tensors[1].quantization
    quantization.scale = np.where(np.arange(200) == 3, np.float32(1), quantization.scale)
    data = serialize(model)
    once = with_rows_of_weights(data)
    assert len(once) < len(data)
    rows = run(once, np.array([[3, 7, 8]], np.int32))[0]
    assert np.abs(rows.astype(int) - run(data, np.array([[3, 7, 8]], np.int32))[0]).max() <= 1
    assert not rows[0, 0].any()


def layers(second: np.ndarray, *, scale: float = 0.1) -> bytes:
    """Two layers without activation, each with weights and a bias of its own."""
    graph = Graph()
    x = graph.tensor("x", (1, 64), "int8", scale=0.1)
    bias = np.arange(64, dtype=np.int32)
    for number, (weights, step) in enumerate(((SQUARE, 0.1), (second, scale))):
        w = graph.tensor(f"w{number}", (64, 64), "int8", data=weights, scale=step)
        b = graph.tensor(f"b{number}", (64,), "int32", data=bias, scale=0.1 * step)
        x = graph.computed(
            f"y{number}", (1, 64), "FULLY_CONNECTED", [x, w, b], "int8", version=4, scale=9.0
        )
    return packed(graph.model([0], [x], signature=("serve", ["x"], ["y"])))


SQUARE = np.random.default_rng(5).integers(-127, 128, (64, 64)).astype(np.int8)


def test_equal_weights_are_one_buffer_and_biases_stay():
    data = layers(SQUARE.copy())
    once = with_constants_once(data)
    assert len(data) - len(once) == pytest.approx(SQUARE.size, abs=64)
    tensors = {text(t.name): t.buffer for t in read(once, where="it").subgraphs[0].tensors}
    assert tensors["w0"] == tensors["w1"]
    assert tensors["b0"] != tensors["b1"]
    x = np.random.default_rng(6).integers(-128, 128, (1, 64)).astype(np.int8)
    np.testing.assert_array_equal(run(once, x)[0], run(data, x)[0])
    assert with_constants_once(once) == once


@pytest.mark.parametrize("other", [layers(SQUARE[::-1].copy()), layers(SQUARE.copy(), scale=0.2)])
def test_weights_of_other_numbers_or_scales_stay(other):
    assert with_constants_once(other) == other
