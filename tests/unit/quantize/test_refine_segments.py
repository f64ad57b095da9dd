"""A graph in pieces gives what the whole gives."""

import numpy as np
import pytest
from refine_models import float_network, outputs, quantised_network, samples
from tiny_tflite import Graph, packed
from wording import fails

from edgeconv.model.tflite.flatbuffer import operator_name, parse, text
from edgeconv.model.tflite.segments import GraphSegments, state_outside
from edgeconv.quantize.refine.running import SampleRun, peak_bytes, tensor_bytes
from edgeconv.types.errors import ToolFailed


def through(data: bytes, images, *, threads=1):
    """The input of the last operator after all the pieces before it."""
    model = parse(data, where="it")
    last = len(model.subgraphs[0].operators) - 1
    run = SampleRun(model, last, {"x": images[:, None]}, threads=threads)
    for number in range(last + 1):
        run.advance(number)
    assert run.quantity(10**6) is None
    return run.quantity(model.subgraphs[0].operators[last].inputs[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_operator_by_operator_an_integer_network_ends_where_the_whole_does(threads):
    images, data = samples(5), quantised_network("int8")
    ends = through(data, images, threads=threads)
    np.testing.assert_allclose(ends.real(slice(None))[:, 0], outputs(data, images), atol=1e-6)


def test_what_comes_before_weights_is_kept_for_as_long_as_it_is_read():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (4, 4), "float32", data=np.eye(4, dtype=np.float32) * 2)
    y, z, s = (graph.tensor(name, (1, 4), "float32") for name in ("y", "z", "s"))
    graph.operator("FULLY_CONNECTED", [x, w], [y])
    graph.operator("FULLY_CONNECTED", [y, w], [z])
    graph.operator("ADD", [z, x], [s])
    model = graph.model([x], [s], signature=("serving_default", ["x"], ["s"]))
    pieces = GraphSegments(model, 2)
    assert [sorted(pieces.live(n)) for n in range(3)] == [[x], [x, y], [x, z]]
    assert GraphSegments(model, 1).live(1) == {y}
    images = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    run = SampleRun(model, 2, {"x": images}, threads=1)
    run.advance(2)
    np.testing.assert_array_equal(run.quantity(z).stored, 4 * images)
    np.testing.assert_array_equal(run.quantity(x).stored, images)


def test_weights_behind_a_dequantize_go_with_the_operator_that_reads_them():
    model = parse(quantised_network("weight-only"), where="it")
    graph = model.subgraphs[0]
    names = [operator_name(model, operator) for operator in graph.operators]
    first, depth = names.index("CONV_2D"), names.index("DEPTHWISE_CONV_2D")
    pieces = GraphSegments(model, depth)
    assert [text(graph.tensors[i].name) for i in pieces.live(depth)] == ["first"]
    piece = pieces.cut(first, depth)
    inside = [operator_name(model, operator) for operator in piece.model.subgraphs[0].operators]
    assert inside == ["DEQUANTIZE", "CONV_2D"]
    assert len(piece.data({piece.inputs[0]: (1, 9, 7, 3)})) < len(quantised_network("weight-only"))


def test_a_piece_has_only_the_tensors_and_buffers_that_it_needs():
    """To pack those of the whole graph for each piece took most of the time of a large model."""
    model = parse(float_network(), where="it")
    before = [len(model.subgraphs[0].tensors), len(model.buffers)]
    pieces = GraphSegments(model, 2)
    piece = pieces.cut(0, 1)
    operator = model.subgraphs[0].operators[0]
    read = {*operator.inputs, *operator.outputs} - {-1}
    assert len(piece.model.subgraphs[0].tensors) == len(read)
    assert len(piece.model.buffers) <= len(read) + 1
    assert [len(model.subgraphs[0].tensors), len(model.buffers)] == before


def test_a_constant_without_numbers_is_nothing_that_samples_give():
    """The shape of a scalar, which was a `KeyError` of the methods that run a graph in pieces."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (1, 4), "float32", data=np.ones((1, 4), np.float32))
    shape = graph.tensor("shape", (0,), "int32", data=np.zeros(0, np.int32))
    total, scalar = graph.tensor("total", (1, 1), "float32"), graph.tensor("scalar", (), "float32")
    y, z = graph.tensor("y", (1, 4), "float32"), graph.tensor("z", (1, 4), "float32")
    graph.operator("FULLY_CONNECTED", [x, w], [total])
    graph.operator("RESHAPE", [total, shape], [scalar])
    graph.operator("ADD", [scalar, x], [y])
    graph.operator("ADD", [y, x], [z])
    data = packed(graph.model([x], [z], signature=("serving_default", ["x"], ["z"])))
    images = np.arange(8, dtype=np.float32).reshape(2, 4)
    ends = through(data, images)
    np.testing.assert_array_equal(ends.stored[:, 0], images + images.sum(1, keepdims=True))


def test_batches_other_than_the_files_run():
    data = float_network()
    model = parse(data, where="it")
    images = samples(6).reshape(3, 2, 9, 7, 3)
    run = SampleRun(model, len(model.subgraphs[0].operators) - 1, {"x": images}, threads=1)
    run.advance(len(model.subgraphs[0].operators) - 1)
    index = model.subgraphs[0].operators[-1].inputs[0]
    assert run.quantity(index).stored.shape == (3, 2, 24)


def test_memory_is_reckoned_by_what_is_alive_at_once():
    data = float_network()
    sizes = tensor_bytes(data, {"x": (2, 9, 7, 3)})
    model = parse(data, where="it")
    assert peak_bytes(model, [0], sizes) == 4 * 2 * 9 * 7 * 3
    assert peak_bytes(model, [0, 1], sizes) == 4 * 2 * 5 * 4 * 16


def test_variables_outside_of_tensors_are_named():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    handle = graph.computed("v", (1,), "VAR_HANDLE", [], "resource")
    graph.operator("ASSIGN_VARIABLE", [handle, x], [])
    model = graph.model([x], [x])
    assert state_outside(model) == ("ASSIGN_VARIABLE", "VAR_HANDLE")
    assert state_outside(parse(float_network(), where="it")) == ()


def test_a_piece_that_does_not_run_is_a_typed_error():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 5), "float32", data=np.ones((3, 5), np.float32))
    y, z = graph.tensor("y", (1, 3), "float32"), graph.tensor("z", (1, 3), "float32")
    graph.operator("FULLY_CONNECTED", [x, w], [y])
    graph.operator("ADD", [y, y], [z])
    data = packed(graph.model([x], [z], signature=("serving_default", ["x"], ["z"])))
    run = SampleRun(parse(data, where="it"), 1, {"x": np.ones((2, 1, 4), np.float32)}, threads=1)
    with fails(ToolFailed):
        run.advance(1)
