from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from edgeconv.models import digits_cnn

from edgeconv.errors import OutputRefused, ToolFailed, UsageError, WorkerCrashed
from edgeconv.nouns import TrainingRecord
from edgeconv.store import sha256_tree
from edgeconv.tasks import start_task
from edgeconv.tf.export import export_inference, export_version, versions
from edgeconv.tf.train import TrainJob, record_path, train

EPOCHS = 3


def trained(directory, scratch, on_progress=lambda _: None, **options):
    job = TrainJob(model="digits_cnn", directory=str(directory), **{"epochs": EPOCHS, **options})
    with start_task(train, job, label="training", scratch=scratch) as task:
        return task.result(on_progress)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished training: its directory, its record and what it reported."""
    directory = tmp_path_factory.mktemp("trained")
    lines = []
    record = trained(directory, tmp_path_factory.mktemp("scratch"), lines.append)
    return directory, record, lines


@pytest.fixture(scope="module")
def served(first):
    import tensorflow as tf

    _, record, _ = first
    loaded = tf.saved_model.load(record.saved_model)
    return loaded, loaded.signatures["serving_default"]


def test_the_record_says_what_the_strategy_really_was(first):
    directory, record, _ = first
    assert (record.strategy, record.replicas) == ("MirroredStrategy", 2)
    assert (record.model, record.global_batch, record.epochs) == ("digits_cnn", 32, EPOCHS)
    assert (record.train_samples, record.test_samples) == (1201, 596)
    assert record.saved_model == str(directory / "digits_cnn" / "1")
    assert record.seconds > 0


def test_each_epoch_is_reported_with_its_loss_and_accuracy(first):
    _, record, lines = first
    assert lines[0] == "training digits_cnn: 1201 samples, 2 replicas"
    metrics = record.metrics[1]
    wanted = f"epoch 2/3: loss {metrics['loss']:.4f} accuracy {metrics['accuracy']:.4f}"
    assert lines[2] == wanted
    assert len(lines) == 1 + EPOCHS + 1


def test_the_loss_falls(first):
    losses = [metrics["loss"] for metrics in first[1].metrics]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_the_record_lies_beside_the_version(first):
    directory, record, _ = first
    path = directory / "digits_cnn" / "1.training.json"
    assert path == record_path(Path(record.saved_model))
    assert msgspec.json.decode(path.read_bytes(), type=TrainingRecord) == record


def test_the_saved_model_answers_as_the_trained_model_did(first, served):
    _, record, _ = first
    _, call = served
    data = digits_cnn.data()
    probabilities = call(image=data.x_test["image"])["probabilities"].numpy()
    right = probabilities.argmax(-1) == data.y_test
    loss = -np.log(probabilities[np.arange(len(right)), data.y_test]).mean()
    assert right.mean() == pytest.approx(record.test_metrics["accuracy"], abs=1e-6)
    assert loss == pytest.approx(record.test_metrics["loss"], rel=1e-4)
    assert right.mean() > 0.85


def test_the_saved_model_has_one_signature_with_a_named_input_and_a_dynamic_batch(served):
    loaded, call = served
    assert list(loaded.signatures) == ["serving_default"]
    (spec,) = call.structured_input_signature[1].values()
    assert (spec.name, spec.shape.as_list(), spec.dtype.name) == (
        digits_cnn.INPUT_NAME,
        [None, 8, 8, 1],
        "float32",
    )
    assert list(call.structured_outputs) == [digits_cnn.OUTPUT_NAME]


def test_the_saved_model_is_in_inference_mode(served):
    _, call = served
    images = digits_cnn.data().x_test["image"][:4]
    again = [call(image=images)["probabilities"].numpy() for _ in range(2)]
    np.testing.assert_array_equal(again[0], again[1])


def graph_and_variables(directory):
    """The devices named in a SavedModel's graphs, and the variables in its object graph."""
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    model.ParseFromString((Path(directory) / "saved_model.pb").read_bytes())
    (meta,) = model.meta_graphs
    functions = meta.graph_def.library.function
    nodes = [*meta.graph_def.node, *(node for f in functions for node in f.node_def)]
    variables = [n.variable for n in meta.object_graph_def.nodes if n.HasField("variable")]
    return {node.device for node in nodes}, variables


def test_nothing_of_the_strategy_or_the_optimizer_is_in_the_saved_model(first, tmp_path):
    export_inference(digits_cnn.build(), str(tmp_path / "never-distributed"))
    usual_devices, usual_variables = graph_and_variables(tmp_path / "never-distributed")
    devices, variables = graph_and_variables(first[1].saved_model)
    assert devices == usual_devices
    assert len(variables) == len(usual_variables) == 12
    assert not any(v.device or v.experimental_distributed_variable_components for v in variables)


def test_both_replicas_hold_their_own_copy_and_agree_after_training(tmp_path):
    code = """
import json, sys
from edgeconv.tf import train as training

plain = training._without_strategy

def seen(module, model):
    copies = [v.values for v in model.trainable_variables]
    devices = sorted({c.device for pair in copies for c in pair})
    equal = all((a.numpy() == b.numpy()).all() for a, b in copies)
    print(json.dumps({"devices": devices, "equal": bool(equal)}))
    return plain(module, model)

training._without_strategy = seen
training.train(training.TrainJob(model="digits_cnn", directory=sys.argv[1], epochs=1))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    answer = json.loads(run.stdout.strip().splitlines()[-1])
    assert [name[-5:] for name in answer["devices"]] == ["CPU:0", "CPU:1"]
    assert answer["equal"]


def test_a_killed_training_leaves_no_version_and_the_next_one_cleans_up(first, tmp_path):
    """One test for what comes after another: a kill while saving, then the second version."""
    directory, record, _ = first
    parent = directory / "digits_cnn"
    before = sha256_tree(Path(record.saved_model))

    job = TrainJob(model="digits_cnn", directory=str(directory), epochs=EPOCHS)
    with start_task(train, job, label="training", scratch=tmp_path) as task:

        def kill_when_saving(line):
            if line.startswith(f"epoch {EPOCHS}"):
                task.child.kill()

        with pytest.raises(WorkerCrashed, match="SIGKILL"):
            task.result(kill_when_saving)
    assert versions(parent) == [1]
    assert not (parent / "2.training.json").exists()

    leftover = parent / ".unfinished-killed" / "variables"
    leftover.mkdir(parents=True)
    second = trained(directory, tmp_path)
    assert second.saved_model == str(parent / "2")
    assert versions(parent) == [1, 2]
    assert sha256_tree(Path(record.saved_model)) == before
    assert not leftover.exists()
    same = [Path(r.saved_model, "variables") for r in (record, second)]
    assert sha256_tree(same[0]) == sha256_tree(same[1]), "the same seed gives the same weights"
    assert second.metrics == record.metrics


def test_a_loss_that_is_no_number_ends_the_training_and_exports_nothing(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ToolFailed, match=r"the loss of epoch 1/3 is (nan|inf)"):
        trained(target, tmp_path, learning_rate=1e3)
    assert not target.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "0 devices"),
        ({"epochs": 0}, "0 epochs"),
        ({"learning_rate": 0.0}, "learning rate of 0"),
        ({"devices": 4, "global_batch": 3}, "global batch of 3 cannot be shared by 4"),
        ({"model": "digits"}, "did you mean 'digits_cnn'"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_before_tensorflow_starts(tmp_path, options, message):
    job = {"model": "digits_cnn", "directory": str(tmp_path / "out"), **options}
    with pytest.raises(UsageError, match=message):
        train(TrainJob(**job))
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputRefused, match="cannot write"):
        train(TrainJob(model="digits_cnn", directory=str(tmp_path / "file")))


def small_model():
    from tf_keras import Model, layers

    left, right = layers.Input((3,), name="left"), layers.Input((2,), name="right")
    both = layers.Dropout(0.5)(layers.Concatenate()([left, right]))
    outputs = [layers.Dense(4, name="wide")(both), layers.Dense(1, name="narrow")(both)]
    return Model([left, right], outputs)


def test_an_export_keeps_names_and_answers_of_a_model_with_two_inputs(tmp_path):
    import tensorflow as tf

    model = small_model()
    export_inference(model, str(tmp_path / "exported"))
    feed = {"left": tf.ones((5, 3)), "right": tf.fill((5, 2), -2.0)}
    answer = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"](**feed)
    wide, narrow = model([feed["left"], feed["right"]], training=False)
    np.testing.assert_allclose(answer["wide"], wide, rtol=1e-6)
    np.testing.assert_allclose(answer["narrow"], narrow, rtol=1e-6)


def test_versions_count_up_from_the_highest_and_ignore_other_names(tmp_path):
    parent = tmp_path / "model"
    for name in ("3", "10", "latest", "007x"):
        (parent / name).mkdir(parents=True)
    assert export_version(small_model(), parent) == parent / "11"
    assert versions(parent) == [3, 10, 11]


def test_an_export_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    import tensorflow as tf

    real = tf.saved_model.save

    def save_then_run_out_of_space(module, directory, **options):
        real(module, directory, **options)
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", save_then_run_out_of_space)
    with pytest.raises(OutputRefused, match="No space left"):
        export_version(small_model(), tmp_path / "model")
    assert [p.name for p in (tmp_path / "model").iterdir()] in ([], [".lock"])
