"""The memory of tensors that share it, planned by their lives."""

from itertools import pairwise

import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED
from tiny_tflite import Graph, float_model, packed

from edgeconv.model.tflite.arena import Block, arena_bytes, planned_bytes

MODELS = SHARED / "tflm_models"
BLOCKS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(0, 4)).map(
        lambda each: Block(16 * each[0], each[1], each[1] + each[2])
    ),
    max_size=14,
)


@given(BLOCKS)
def test_blocks_that_live_together_never_overlap(blocks):
    total = planned_bytes(blocks)
    for i, one in enumerate(blocks):
        assert one.offset + one.size_bytes <= total
        for other in blocks[:i]:
            apart_in_time = one.last < other.first or other.last < one.first
            apart_in_space = (
                one.offset + one.size_bytes <= other.offset
                or other.offset + other.size_bytes <= one.offset
            )
            assert apart_in_time or apart_in_space


@given(BLOCKS)
def test_the_plan_is_no_smaller_than_the_fullest_step_and_no_larger_than_all(blocks):
    total = planned_bytes(blocks)
    steps = range(20)
    fullest = max(sum(b.size_bytes for b in blocks if b.first <= s <= b.last) for s in steps)
    assert fullest <= total <= sum(block.size_bytes for block in blocks)


def chain(sizes: list[int], *, variable: bool = False, dtype: str = "float32") -> bytes:
    """Tensors of so many numbers, each the RELU of the one before as far as sizes matter."""
    graph = Graph()
    tensors = [graph.tensor(f"t{i}", (1, n), dtype, dynamic=True) for i, n in enumerate(sizes)]
    for before, after in pairwise(tensors):
        graph.operator("RELU", [before], [after])
    if variable:
        state = graph.tensor("state", (1, 5), "float32")
        graph.tensors[state].isVariable = True
    return packed(graph.model([tensors[0]], [tensors[-1]]))


def test_a_tensor_takes_the_place_of_one_that_nobody_reads_any_more():
    # Of four tensors of 400 bytes in a row, two live at any time.
    assert arena_bytes(chain([100, 100, 100, 100])) == 800


def test_sizes_are_aligned_to_16_bytes_and_small_types_are_packed():
    assert arena_bytes(chain([1, 5])) == 16 + 32
    assert arena_bytes(chain([33, 1], dtype="int4")) == 32 + 16


def test_constants_do_not_count_and_variables_always_do():
    assert arena_bytes(packed(float_model())) == 16 + 16
    assert arena_bytes(chain([100, 100, 100], variable=True)) == 800 + 32


def test_an_input_that_is_read_last_keeps_its_place():
    graph = Graph()
    a, b, c, d = (graph.tensor(name, (1, 100), "float32") for name in "abcd")
    graph.operator("RELU", [a], [b])
    graph.operator("RELU", [b], [c])
    graph.operator("ADD", [c, a], [d])
    assert arena_bytes(packed(graph.model([a], [d]))) == 1200


# What tflite-micro 0.dev20261023's interpreter prints for these files: the head of its arena,
# which has the planned tensors and scratch memory, and its "variable buffer data".
@pytest.mark.skipif(not MODELS.is_dir(), reason="needs ../shared/data/tflm_models")
@pytest.mark.parametrize(
    ("file", "head_bytes", "variable_bytes", "scratch_bytes"),
    [
        ("hello_world__models__hello_world_float", 128, 0, 0),
        ("hello_world__models__hello_world_int8", 32, 0, 0),
        ("micro_speech__models__micro_speech_quantized", 5968, 0, 0),
        ("models__person_detect", 55296, 0, 0),
        # Recurrent operators take scratch memory that the file says nothing of.
        ("mnist_lstm__trained_lstm", 5696, 160, 320),
        ("models__keyword_scrambled", 672, 10240, 384),
        ("dtln__dtln_noise_suppression", 1424, 768, 880),
    ],
)
def test_the_plan_is_that_of_tensorflow_lite_for_microcontrollers(
    file, head_bytes, variable_bytes, scratch_bytes
):
    planned = arena_bytes((MODELS / f"{file}.tflite").read_bytes())
    assert planned + scratch_bytes == head_bytes + variable_bytes


def test_the_graphs_that_control_flow_runs_count():
    outer = Graph()
    condition = outer.tensor("condition", (1,), "bool")
    x, y = (outer.tensor(name, (1, 4), "float32") for name in "xy")
    outer.operator("IF", [condition, x], [y])
    outer.operators[0].builtinOptions = schema.IfOptionsT(thenSubgraphIndex=1, elseSubgraphIndex=2)
    outer.operators[0].builtinOptionsType = schema.BuiltinOptions.IfOptions
    model = outer.model([condition, x], [y])
    alone = arena_bytes(packed(model))
    for size in (100, 300):
        inner = Graph()
        a, b = inner.tensor("a", (1, size), "float32"), inner.tensor("b", (1, size), "float32")
        relu = schema.OperatorT(opcodeIndex=1, inputs=[a], outputs=[b])
        model.subgraphs.append(
            schema.SubGraphT(tensors=inner.tensors, operators=[relu], inputs=[a], outputs=[b])
        )
    relu = schema.BuiltinOperator.RELU
    model.operatorCodes.append(
        schema.OperatorCodeT(deprecatedBuiltinCode=relu, builtinCode=relu, version=1)
    )
    # The larger branch, while x and y live; the condition is read last by the IF itself.
    assert arena_bytes(packed(model)) == alone + 2 * 1200
