import random

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED
from tiny_tflite import (
    WEIGHTS,
    Graph,
    float_model,
    int8_model,
    packed,
    packed_with_weights_outside,
    run,
)
from wording import fails

from edgeconv.model.tflite import ensure_signature, summarize, with_uint8_io, with_weights_inside
from edgeconv.model.tflite.flatbuffer import has_weights_outside, parse, serialize
from edgeconv.model.tflite.summary import valid_names
from edgeconv.types.errors import InputRefused

X = np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)


def signature_of(data: bytes):
    (signature,) = summarize(data, where="tiny.tflite").signatures
    return signature


def test_a_model_with_a_signature_comes_back_as_the_very_same_bytes():
    data = packed(float_model(signature=("go", ["a"], ["b"])))
    assert ensure_signature(data) is data


def test_a_model_without_a_signature_gets_one_and_computes_the_same():
    data = packed(float_model(names=("serving_default_image data:0", "StatefulPartitionedCall:0")))
    signed = ensure_signature(data)
    signature = signature_of(signed)
    assert signature.key == "serving_default"
    assert [t.name for t in signature.inputs] == ["image_data"]
    assert [t.name for t in signature.outputs] == ["StatefulPartitionedCall"]
    np.testing.assert_array_equal(run(signed, X)[0], run(data, X)[0])


def test_the_new_signature_can_be_called_by_name():
    from ai_edge_litert.interpreter import Interpreter

    data = ensure_signature(packed(float_model()))
    runner = Interpreter(model_content=data).get_signature_runner("serving_default")
    np.testing.assert_array_equal(runner(x=X)["y"], run(data, X)[0])


def test_signature_names_are_valid_and_unique():
    raw = ["a:0", "a:1", "", "", "a b/c", "serving_default_x:0", "größe"]
    assert valid_names(raw, "input") == ["a", "a_2", "input", "input_2", "a_b_c", "x", "gr_e"]


@given(st.lists(st.text(), max_size=8))
def test_any_names_become_as_many_distinct_names(raw):
    names = valid_names(raw, "input")
    assert len(set(names)) == len(raw)
    assert all(name and name.isascii() for name in names)


@pytest.mark.parametrize("pack", [packed, packed_with_weights_outside])
def test_an_edit_keeps_weights_from_inside_and_outside_the_flatbuffer(pack):
    data = pack(float_model())
    signed = ensure_signature(data)
    expected = WEIGHTS.astype(np.float32) @ X[0] + [10, -20, 30]
    np.testing.assert_allclose(run(signed, X)[0][0], expected)
    model = parse(signed, where="signed")
    assert all(buffer.offset == buffer.size == 0 for buffer in model.buffers)
    assert "buffer_location" not in [m.name.decode() for m in model.metadata or []]
    # The signed file stands alone: nothing in it depends on bytes behind the flatbuffer.
    assert bytes(model.buffers[1].data) == WEIGHTS.astype(np.float32).tobytes()


def test_weights_are_moved_inside_and_nothing_else_changes():
    inside, outside = packed(float_model()), packed_with_weights_outside(float_model())
    assert not has_weights_outside(inside)
    assert with_weights_inside(inside) is inside
    assert has_weights_outside(outside)
    moved = with_weights_inside(outside)
    assert not has_weights_outside(moved)
    np.testing.assert_array_equal(run(moved, X)[0], run(outside, X)[0])


def test_custom_options_outside_the_flatbuffer_are_pulled_in():
    model = float_model()
    operator = model.subgraphs[0].operators[0]
    operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 7
    operator.largeCustomOptionsOffset = end = len(packed(model))
    edited = parse(ensure_signature(packed(model) + b"options"), where="edited")
    assert end > 7
    assert bytes(edited.subgraphs[0].operators[0].customOptions) == b"options"


def test_weights_are_written_at_the_alignment_that_kernels_want():
    weights = WEIGHTS.tobytes()
    for padding in range(4):
        model = int8_model()
        model.description = "d" * padding
        data = serialize(parse(packed(model), where="tiny"))
        assert data.index(weights) % 16 == 0


def test_serialising_twice_gives_the_same_bytes():
    data = packed_with_weights_outside(int8_model())
    once = with_uint8_io(data, inputs=True, outputs=True)
    assert with_uint8_io(data, inputs=True, outputs=True) == once
    assert serialize(parse(once, where="once")) == once


@pytest.mark.parametrize("pack", [packed, packed_with_weights_outside])
@pytest.mark.parametrize(("inputs", "outputs"), [(True, True), (True, False), (False, True)])
def test_uint8_ends_give_the_int8_outputs_plus_128(pack, inputs, outputs):
    data = pack(int8_model())
    changed = with_uint8_io(data, inputs=inputs, outputs=outputs)
    x = np.random.default_rng(3).integers(-128, 128, (50, 1, 4)).astype(np.int8)
    for sample in (*x, np.full((1, 4), -128, np.int8), np.full((1, 4), 127, np.int8)):
        (expected,) = run(data, sample)
        given_x = (sample.astype(int) + 128).astype(np.uint8) if inputs else sample
        (actual,) = run(changed, given_x)
        assert actual.dtype == (np.uint8 if outputs else np.int8)
        np.testing.assert_array_equal(actual.astype(int), expected.astype(int) + 128 * outputs)


def test_uint8_ends_keep_names_and_scales_and_move_the_zero_point():
    signature = signature_of(with_uint8_io(packed(int8_model()), inputs=True, outputs=True))
    (x,), (y,) = signature.inputs, signature.outputs
    assert (x.name, x.dtype, x.scale, x.zero_point) == ("x", "uint8", (0.5,), (125,))
    assert (y.name, y.dtype, y.scale, y.zero_point) == ("y", "uint8", (64.0,), (133,))


def test_uint8_ends_without_a_signature_work_too():
    data = with_uint8_io(packed(int8_model(signature=None)), inputs=True, outputs=True)
    assert {t.dtype for t in (*signature_of(data).inputs, *signature_of(data).outputs)} == {"uint8"}


def test_asking_for_neither_side_changes_nothing():
    data = packed(int8_model())
    assert with_uint8_io(data, inputs=False, outputs=False) is data


def test_a_float_side_cannot_be_made_uint8():
    with fails(InputRefused):
        with_uint8_io(packed(float_model()), inputs=True, outputs=False)


def test_a_full_buffer_zero_is_not_taken_for_the_empty_one():
    model = int8_model()
    model.buffers[0].data = np.zeros(4, np.uint8)
    model.subgraphs[0].tensors[0].buffer = model.subgraphs[0].tensors[3].buffer = 3
    model.buffers.append(schema.BufferT())
    edited = parse(with_uint8_io(packed(model), inputs=True, outputs=True), where="edited")
    twins = edited.subgraphs[0].tensors[-2:]
    assert all(edited.buffers[t.buffer].data is None for t in twins)


def test_tensors_of_other_types_are_left_alone():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    tokens = graph.tensor("tokens", (1, 4), "int8")
    y = graph.computed("y", (1, 4), "RELU", [x], "int8", scale=0.5)
    data = with_uint8_io(packed(graph.model([x, tokens], [y])), inputs=True, outputs=False)
    assert [t.dtype for t in signature_of(data).inputs] == ["uint8", "int8"]


def test_edits_of_mutants_raise_only_refusals():
    data, randomness = packed_with_weights_outside(int8_model()), random.Random(11)
    outcomes = set()
    for _ in range(300):
        mutant = bytearray(data)
        for _ in range(randomness.choice([1, 2, 5])):
            mutant[randomness.randrange(8, len(data))] = randomness.choice([0, 1, 127, 255])
        for edit in (ensure_signature, lambda d: with_uint8_io(d, inputs=True, outputs=True)):
            try:
                edit(bytes(mutant))
                outcomes.add("edited")
            except InputRefused:
                outcomes.add("refused")
    assert outcomes == {"edited", "refused"}


def test_every_real_model_survives_reading_and_writing():
    files = sorted(SHARED.glob("**/*.tflite"))
    if not files:
        pytest.skip(f"{SHARED} is not here: it comes with the development data")
    for file in files:
        data = file.read_bytes()
        again = serialize(parse(data, where=file.name))
        assert summarize(again, where=file.name) == summarize(data, where=file.name)
