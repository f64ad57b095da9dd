"""Inputs and outputs that have no batch dimension, from the conversion to the golden vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_models import Lite
from embed_models import planned

from edgeconv import bench, convert
from edgeconv.embedding.embedding import make_embedding

ANCHORS = np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A detector's head, a network on graphs, and samples of both."""
    import tensorflow as tf
    from saved_functions import save

    place = tmp_path_factory.mktemp("unbatched")
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return tf.Variable(rng.normal(size=shape).astype(np.float32))

    head, first, second = weights(6, 4), weights(8, 8), weights(8, 3)

    def detect(x: Any) -> dict[str, Any]:
        y = x @ head
        return {
            "y": y,
            "anchors": tf.constant(ANCHORS),
            "temperature": tf.constant(2.5),
            "mean": tf.reduce_mean(y, 0),
            "total": tf.reduce_sum(y),
            "labels": tf.constant([3, 1, 2]),
        }

    save(place / "head", detect, x=[None, 6])
    np.savez(place / "x.npz", x=rng.normal(size=(64, 6)).astype(np.float32))

    def graph(nodes: Any, edges: Any) -> dict[str, Any]:
        h = tf.nn.relu(nodes @ first)
        return {"scores": (tf.gather(h, edges[:, 0]) - tf.gather(h, edges[:, 1])) @ second}

    save(place / "graph", graph, nodes=[20, 8], edges=([60, 2], tf.int32))
    np.savez(
        place / "graphs.npz",
        nodes=rng.normal(size=(48, 20, 8)).astype(np.float32),
        edges=rng.integers(0, 20, (48, 60, 2)).astype(np.int32),
    )
    return place


def test_outputs_without_a_batch_dimension_become_int8(place):
    made = convert(
        place / "head", out=place / "out", to=["float32", "int8"], calibration=str(place / "x.npz")
    )
    assert not made.failures
    for artifact in made.artifacts:
        assert artifact.verification.samples == 9
        assert {error.samples for error in artifact.verification.outputs} == {9}
        # A constant of the model says nothing about the samples.
        assert not [each for each in artifact.verification.warnings if "anchors" in each]
    artifact = next(each for each in made.artifacts if each.recipe.name == "int8")
    assert artifact.post_training.trials
    assert artifact.post_training.held_back >= 55
    lite = Lite(place / "out" / artifact.file)
    answer = lite.runner(x=np.load(place / "x.npz")["x"][:1])
    np.testing.assert_allclose(answer["anchors"], ANCHORS, atol=0.1)
    report = bench(place / "out" / artifact.file, data=str(place / "x.npz"))
    assert not report.measurements[-1].error

    plan = planned(place / "out" / artifact.file, "python", place / "app", vectors=2)
    ports = {port.name: port for port in make_embedding(plan).outputs}
    assert ports["anchors"].fixed == (4, 4)
    assert ports["anchors"].bytes == 64
    assert ports["temperature"].fixed == ()


def test_inputs_without_a_batch_dimension_become_int8(place):
    made = convert(
        place / "graph", out=place / "out", to=["int8"], calibration=str(place / "graphs.npz")
    )
    (artifact,) = made.artifacts
    assert artifact.verification.samples == 6
    assert artifact.verification.outputs[0].snr_db > 25
    assert artifact.calibration[0].samples == 42
    report = bench(
        place / "out" / artifact.file, data=str(place / "graphs.npz"), baseline=str(place / "graph")
    )
    (agreement,) = report.measurements[-1].agreement
    assert agreement.samples == 48
    assert agreement.snr_db > 25
    plan = planned(place / "out" / artifact.file, "python", place / "app2", vectors=2)
    assert {port.name: port.fixed for port in make_embedding(plan).inputs} == {
        "edges": (60, 2),
        "nodes": (20, 8),
    }
