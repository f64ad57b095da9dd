"""Copies of a model that are fixed in shape, end early, or show what is inside."""

import numpy as np
import pytest
from tiny_tflite import (
    BIASES,
    WEIGHTS,
    Graph,
    float_model,
    packed,
    packed_with_weights_outside,
    run,
)
from wording import fails

from edgeconv.model.tflite.cut import decided_outputs, prefixes, with_fixed_shapes, with_outputs
from edgeconv.model.tflite.summary import summarize
from edgeconv.types.errors import InputRefused

SIGNATURE = ("serving_default", ["x"], ["y"])
X = np.array([[1, 2, 3, 4]], np.float32)


def branched() -> bytes:
    """y = relu(Wx + b) + (Wx + b), and z = relu(Wx + b)."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    w = graph.tensor("w", (3, 4), "float32", data=WEIGHTS.astype(np.float32))
    b = graph.tensor("b", (3,), "float32", data=BIASES.astype(np.float32))
    dense, z, y = (graph.tensor(name, (1, 3), "float32") for name in ("dense", "z", "y"))
    graph.operator("FULLY_CONNECTED", [x, w, b], [dense])
    graph.operator("RELU", [dense], [z])
    graph.operator("ADD", [dense, z], [y])
    return packed(graph.model([x], [y, z], signature=("main", ["x"], ["y", "z"])))


DENSE = X @ WEIGHTS.T + BIASES


def test_a_fixed_model_leaves_no_dimension_open_and_computes_the_same():
    fixed = with_fixed_shapes(packed(float_model(signature=SIGNATURE)), None, {"x": (2, 4)})
    assert summarize(fixed, where="it").signatures[0].inputs[0].shape == (2, 4)
    two = np.concatenate([X, 2 * X])
    np.testing.assert_allclose(run(fixed, two)[0], two @ WEIGHTS.T + BIASES)


def test_a_model_without_signatures_gets_one_with_its_tensors_names():
    data = packed(float_model(names=("in:0", "out:0")))
    signature = summarize(with_fixed_shapes(data, None, {"in:0": (1, 4)}), where="it").signatures[0]
    assert [signature.inputs[0].name, signature.outputs[0].name] == ["in:0", "out:0"]


def test_weights_that_lie_outside_the_flatbuffer_are_kept():
    data = packed_with_weights_outside(float_model(signature=SIGNATURE))
    fixed = with_fixed_shapes(data, "serving_default", {"x": (1, 4)})
    np.testing.assert_allclose(run(fixed, X)[0], DENSE)


def test_a_signature_or_an_input_that_is_not_there_is_refused():
    data = packed(float_model(signature=SIGNATURE))
    with fails(InputRefused):
        with_fixed_shapes(data, "other", {"x": (1, 4)})
    with fails(InputRefused):
        with_fixed_shapes(data, None, {"y": (1, 4)})


def test_each_prefix_gives_all_that_the_rest_would_read():
    found = list(prefixes(branched()))
    assert [len(run(data, X)) for data in found] == [1, 1, 1]
    np.testing.assert_allclose(run(found[0], X)[0], DENSE)
    np.testing.assert_allclose(run(found[1], X)[0], np.maximum(DENSE, 0))
    np.testing.assert_allclose(run(found[2], X)[0], DENSE + np.maximum(DENSE, 0))


def test_a_prefix_has_no_weights_of_the_operators_that_are_gone():
    graph = Graph()
    x, y, z = (graph.tensor(name, (1, 1000), "float32") for name in "xyz")
    addend = graph.tensor("addend", (1, 1000), "float32", data=np.ones((1, 1000), np.float32))
    graph.operator("RELU", [x], [y])
    graph.operator("ADD", [y, addend], [z])
    short, whole = prefixes(packed(graph.model([x], [z], signature=("main", ["x"], ["z"]))))
    assert len(whole) - len(short) > 4000


def test_tensors_between_operators_can_be_made_outputs():
    data = with_outputs(branched(), [3, 4])
    outputs = summarize(data, where="it").signatures[0].outputs
    assert [spec.name for spec in outputs] == ["3", "4"]
    dense, z = run(data, X)
    np.testing.assert_allclose(dense, DENSE)
    np.testing.assert_allclose(z, np.maximum(DENSE, 0))


def test_decisions_are_outputs_of_comparisons_and_what_only_passes_them_on():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    limit = graph.tensor("limit", (4,), "float32", data=np.ones(4, np.float32))
    ends = [graph.tensor(f"end{n}", (), "float32", data=np.float32(n)) for n in (0, 1)]
    names = ("more", "flag", "either", "clipped", "alarm")
    made = {n: graph.tensor(n, (1, 4), "bool" if n in names[:1] else "float32") for n in names}
    graph.operator("GREATER", [x, limit], [made["more"]])
    graph.operator("CAST", [made["more"]], [made["flag"]])
    graph.operator("SELECT_V2", [made["more"], *ends], [made["either"]])
    graph.operator("SELECT_V2", [made["more"], ends[0], x], [made["clipped"]])
    graph.operator("ADD", [made["flag"], x], [made["alarm"]])
    outputs = [made[name] for name in names]
    data = packed(graph.model([x], outputs, signature=("serving_default", ["x"], list(names))))
    assert decided_outputs(data, "serving_default") == {"more", "flag", "either"}
    assert decided_outputs(data, "other") == frozenset()
    with pytest.raises(InputRefused):
        decided_outputs(b"no model", "serving_default")
