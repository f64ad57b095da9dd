"""An open batch is one that was run: a file and its model with 1, 2 and 7 samples at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edge_models import Made
from open_batch import open_batch_model
from tiny_tflite import packed

from edgeconv import convert
from edgeconv.types.errors import InputRefused


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("open_batch")
    rng = np.random.default_rng(0)
    np.savez(place / "x.npz", x=rng.normal(size=(40, 6)).astype(np.float32))
    return place


def saved(place: Path, name: str, function: Callable[[Any, Any], Any]) -> Path:
    import tensorflow as tf
    from saved_functions import save

    weights = tf.Variable(np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32))
    return save(place / name, lambda x: {"y": function(tf, x @ weights)}, x=[None, 6])


@pytest.mark.slow
def test_a_batch_that_is_fixed_inside_is_fixed_and_the_samples_are_not_blamed(place):
    model = saved(place, "baked", lambda tf, y: tf.reshape(tf.reshape(y, [1, 2, 2]), [1, 4]))
    made = Made(
        convert(model, out=place / "a", to=["float32", "int8"], calibration=str(place / "x.npz"))
    )
    for recipe in ("float32", "int8"):
        artifact = made[recipe]
        assert artifact.signatures[0].inputs[0].shape == (1, 6)
        assert artifact.ladder[0].failed.startswith("the model takes one sample at a time")
        assert "changed before conversion: batch fixed to 1" in artifact.notes


def test_a_model_that_depends_on_the_other_rows_gets_a_batch_of_1(place):
    model = saved(place, "norm", lambda tf, y: y / (1 + tf.norm(y)))
    made = Made(convert(model, out=place / "b", to=["float32"], calibration=str(place / "x.npz")))
    assert made["float32"].signatures[0].inputs[0].shape == (1, 6)
    assert "depend on each other" in made["float32"].ladder[0].failed


def test_a_model_that_gives_single_samples_nothing_is_refused(place):
    model = saved(place, "centered", lambda tf, y: y - tf.reduce_mean(y, 0))
    with pytest.raises(InputRefused, match="samples depend on each other: 'y' of each sample"):
        convert(model, out=place / "c", to=["float32", "int8"], calibration=str(place / "x.npz"))
    assert not (place / "c").exists()


def test_an_open_batch_that_works_stays(place):
    model = saved(place, "rows", lambda tf, y: tf.nn.relu(y))
    made = Made(
        convert(model, out=place / "d", to=["float32", "int8"], calibration=str(place / "x.npz"))
    )
    for recipe in ("float32", "int8"):
        (signature,) = made[recipe].signatures
        assert [each.shape for each in (*signature.inputs, *signature.outputs)] == [
            (-1, 6),
            (-1, 4),
        ]
        assert not any("batch" in step.attempt for step in made[recipe].ladder)


def test_a_tflite_that_takes_one_sample_only_has_its_batch_fixed(place):
    model = schema.ModelT.InitFromPackedBuf(open_batch_model(), 0)
    graph = model.subgraphs[0]
    # Its shape is not computed any more: always [1, 4].
    reshape = graph.operators[-2]
    model.buffers.append(schema.BufferT(data=np.array([1, 4], "<i4").view(np.uint8)))
    graph.tensors[reshape.inputs[1]].buffer = len(model.buffers) - 1
    graph.operators = graph.operators[-2:]
    (place / "one.tflite").write_bytes(packed(model))
    rng = np.random.default_rng(2)
    np.savez(place / "t.npz", x=rng.normal(size=(30, 2, 2)).astype(np.float32))
    made = convert(
        place / "one.tflite", out=place / "e", to=["float32"], calibration=str(place / "t.npz")
    )
    (artifact,) = made.artifacts
    assert artifact.signatures[0].inputs[0].shape == (1, 2, 2)


def test_an_output_that_is_the_same_for_all_samples_is_not_verified_in_silence(place):
    model = saved(place, "dead", lambda tf, y: tf.nn.relu(y - 1e3))
    made = Made(convert(model, out=place / "f", to=["float32"], calibration=str(place / "x.npz")))
    warnings = made["float32"].verification.warnings
    assert any("'y' is the same for all 5 samples" in each for each in warnings)
