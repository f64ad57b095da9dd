import json
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from edgeconv.models import digits_cnn
from forking import output_of
from training_modules import assert_same_weights, weights_of, written

import edgeconv
from edgeconv.system.store import sha256_tree
from edgeconv.tf.export import export_inference, export_version, record_path, versions
from edgeconv.tf.training.strategies import open_strategy
from edgeconv.types import Distribution, Training, TrainingRecord
from edgeconv.types.errors import InputRefused, OutputRefused, ToolFailed, UsageError

DIGITS_EPOCHS = 3


def trained(module, directory, *, on_progress=lambda _: None, places=None, **options):
    """Train with the options of `Training` and of `Distribution`; "none" unless said."""
    own = {name: options.pop(name) for name in Distribution.__struct_fields__ if name in options}
    distribution = Distribution(**{"strategy": "none", **own})
    training = Training(module=str(module), distribution=distribution, **options)
    return edgeconv.train(
        training=training, out=str(directory), on_progress=on_progress, **places or {}
    )


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A finished training by the defaults: its directory, its record and what it reported."""
    directory = tmp_path_factory.mktemp("digits")
    lines = []
    record = trained(
        "digits_cnn",
        directory,
        strategy="mirrored",
        epochs=DIGITS_EPOCHS,
        on_progress=lines.append,
        places={"tensorboard_dir": str(directory / "logs")},
    )
    return directory, record, lines


@pytest.fixture(scope="module")
def served(digits):
    import tensorflow as tf

    _, record, _ = digits
    loaded = tf.saved_model.load(record.saved_model)
    return loaded, loaded.signatures["serving_default"]


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Where this module's model modules are."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def small(modules):
    return written(modules, "small")


@pytest.fixture(scope="module")
def alone(small, tmp_path_factory):
    """The small module, trained by one process without a strategy, in the custom loop."""
    return trained(small, tmp_path_factory.mktemp("alone"), loop="custom")


# The record


def test_the_record_says_what_was_really_done(digits):
    directory, record, _ = digits
    assert (record.strategy, record.replicas, record.workers) == ("MirroredStrategy", 2, 1)
    assert record.devices == ("CPU:0", "CPU:1")
    assert (record.model, record.global_batch, record.loop) == ("digits_cnn", 32, "fit")
    assert (record.train_samples, record.validation_samples, record.test_samples) == (1201, 0, 596)
    assert [epoch.samples for epoch in record.epochs] == [1201] * DIGITS_EPOCHS
    assert (record.steps_per_epoch, record.learning_rate) == (38, digits_cnn.LEARNING_RATE)
    assert (record.best_epoch, record.stopped, record.resumed_at) == (0, "", ())
    assert record.saved_model == str(directory / "digits_cnn" / "1")
    assert record.keras_file == str(directory / "digits_cnn" / "1.keras")
    assert 0 < record.seconds < record.wall_seconds
    assert record.seconds == pytest.approx(sum(epoch.seconds for epoch in record.epochs))
    assert record.tools["tensorflow"]


def test_each_epoch_is_reported_with_its_loss_and_accuracy(digits):
    _, record, lines = digits
    assert lines[0] == "training digits_cnn: 1201 samples, 2 replicas, MirroredStrategy"
    metrics = record.epochs[1].metrics
    wanted = f"epoch 2/3: loss {metrics['loss']:.4f} accuracy {metrics['accuracy']:.4f}, "
    assert lines[2].startswith(wanted)
    assert len(lines) == 1 + DIGITS_EPOCHS + 1


def test_the_record_lies_beside_the_version_and_no_checkpoint_does(digits):
    directory, record, _ = digits
    path = directory / "digits_cnn" / "1.training.json"
    assert path == record_path(Path(record.saved_model))
    assert msgspec.json.decode(path.read_bytes(), type=TrainingRecord) == record
    names = {path.name for path in (directory / "digits_cnn").iterdir()}
    assert names == {"1", "1.keras", "1.training.json", ".lock"}


def scalars(directory):
    """(tag, step, value) of the one event file of a TensorBoard run."""
    import tensorflow as tf

    (file,) = Path(directory).glob("events.out.tfevents.*")
    return [
        (value.tag, event.step, tf.make_ndarray(value.tensor).item(), value.metadata)
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    ]


@pytest.mark.filterwarnings("ignore:.*tf_record_iterator.*")
def test_tensorboard_gets_every_metric_of_every_epoch_once(digits):
    directory, record, _ = digits
    written_there = scalars(directory / "logs" / "train")
    assert {metadata.plugin_data.plugin_name for *_, metadata in written_there} == {"scalars"}
    for name in ("loss", "accuracy"):
        found = [(step, value) for tag, step, value, _ in written_there if tag == name]
        wanted = [(n, epoch.metrics[name]) for n, epoch in enumerate(record.epochs, start=1)]
        assert [step for step, _ in found] == [step for step, _ in wanted]
        np.testing.assert_allclose([v for _, v in found], [v for _, v in wanted], rtol=1e-6)
    assert not (directory / "logs" / "validation").exists()


# What was exported


def measured(call, data):
    probabilities = call(image=data.x_test["image"])["probabilities"].numpy()
    right = probabilities.argmax(-1) == data.y_test
    return right.mean(), -np.log(probabilities[np.arange(len(right)), data.y_test]).mean()


def test_the_saved_model_answers_as_the_trained_model_did(digits, served):
    accuracy, loss = measured(served[1], digits_cnn.data())
    record = digits[1]
    assert accuracy == pytest.approx(record.test_metrics["accuracy"], abs=1e-6)
    assert loss == pytest.approx(record.test_metrics["loss"], rel=1e-4)
    assert accuracy > 0.85


def test_the_keras_file_loads_and_answers_as_the_saved_model(digits, served):
    import tf_keras

    images = digits_cnn.data().x_test["image"][:50]
    model = tf_keras.models.load_model(digits[1].keras_file)
    np.testing.assert_allclose(
        model.predict(images, verbose=0),
        served[1](image=images)["probabilities"].numpy(),
        rtol=1e-5,
        atol=1e-7,
    )


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


def test_nothing_of_the_strategy_or_the_optimizer_is_in_the_saved_model(digits, tmp_path):
    export_inference(digits_cnn.build(), str(tmp_path / "never-distributed"))
    usual_devices, usual_variables = graph_and_variables(tmp_path / "never-distributed")
    devices, variables = graph_and_variables(digits[1].saved_model)
    assert devices == usual_devices
    assert len(variables) == len(usual_variables) == 12
    assert not any(v.device or v.experimental_distributed_variable_components for v in variables)


def test_layers_without_a_name_are_named_as_in_the_module_s_first_model(digits):
    with zipfile.ZipFile(digits[1].keras_file) as archive:
        config = json.loads(archive.read("config.json"))
    names = [layer["config"]["name"] for layer in config["config"]["layers"]]
    assert names[1:4] == ["conv2d", "conv2d_1", "max_pooling2d"]


@pytest.mark.slow
def test_both_replicas_hold_their_own_copy_and_agree_after_training(small, tmp_path):
    code = """
import json, sys
from edgeconv.types import Distribution, Training
from edgeconv.tf.training import member

run_epochs = member.run_epochs

def seen(*arguments):
    trained = run_epochs(*arguments)
    copies = [v.values for v in trained.model.trainable_variables]
    devices = sorted({c.device for pair in copies for c in pair})
    equal = all((a.numpy() == b.numpy()).all() for a, b in copies)
    print(json.dumps({"devices": devices, "equal": bool(equal)}))
    return trained

member.run_epochs = seen
training = Training(module=sys.argv[1], epochs=1, distribution=Distribution(strategy="mirrored"))
member.train_member(member.TrainJob(
    training=training, directory="out", checkpoints="checkpoints", work=sys.argv[2]))
"""
    answer = json.loads(output_of("-c", code, small, tmp_path).strip().splitlines()[-1])
    assert [name[-5:] for name in answer["devices"]] == ["CPU:0", "CPU:1"]
    assert answer["equal"]


# Every strategy and loop trains the same


def assert_same_training(record, alone):
    assert_same_weights(record, alone)
    for own, other in zip(record.epochs, alone.epochs, strict=True):
        assert own.metrics == pytest.approx(other.metrics, rel=1e-4)
        assert own.samples == other.samples == 100
    assert record.test_metrics == pytest.approx(alone.test_metrics, rel=1e-4)


SAME = {"none": ("fit", {}), "two workers": ("custom", {"strategy": "multiworker", "workers": 2})}
SAME_SLOWLY = {
    "mirrored": ("custom", {"strategy": "mirrored"}),
    "mirrored, fit": ("fit", {"strategy": "mirrored"}),
    "mirrored on four": ("custom", {"strategy": "mirrored", "device_count": 4}),
    "central-storage, fit": ("fit", {"strategy": "central-storage"}),
    "central-storage": ("custom", {"strategy": "central-storage"}),
    "two workers, fit": ("fit", {"strategy": "multiworker", "workers": 2}),
    "one worker": ("custom", {"strategy": "multiworker", "workers": 1}),
    "two workers by rings": (
        "custom",
        {"strategy": "multiworker", "workers": 2, "communication": "ring"},
    ),
    "hierarchical-copy": (
        "custom",
        {"strategy": "mirrored", "cross_device_ops": "hierarchical-copy"},
    ),
    "reduction-to-one": ("fit", {"strategy": "mirrored", "cross_device_ops": "reduction-to-one"}),
}


@pytest.mark.parametrize(
    ("loop", "distribution"),
    [
        *(pytest.param(*case, id=name) for name, case in SAME.items()),
        *(pytest.param(*c, id=n, marks=pytest.mark.slow) for n, c in SAME_SLOWLY.items()),
    ],
)
def test_the_weights_are_those_of_one_process(loop, distribution, small, alone, tmp_path):
    record = trained(small, tmp_path, loop=loop, **distribution)
    assert_same_training(record, alone)
    assert record.workers == distribution.get("workers", 1)
    asked = distribution.get("device_count") or (2 if "workers" not in distribution else None)
    replicas = asked or distribution["workers"]
    assert record.replicas == (replicas if "strategy" in distribution else 1)
    assert record.cross_device_ops == distribution.get("cross_device_ops", "auto")


KERAS_3 = ("from tf_keras", "from keras")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "changes"),
    [("custom", ()), ("fit", ()), pytest.param("fit", (KERAS_3,), id="Keras 3")],
)
def test_under_parameter_servers_the_accuracy_is_similar(loop, changes, modules, alone, tmp_path):
    longer = {"epochs": 8, "learning_rate": 3e-2}
    module = written(modules, "served", *changes)
    record = trained(module, tmp_path, loop=loop, strategy="parameter-server", workers=2, **longer)
    assert (record.strategy, record.workers) == ("ParameterServerStrategy", 2)
    assert record.loop == ("custom" if changes else loop)
    assert record.test_metrics["accuracy"] > 0.8
    assert record.epochs[-1].metrics["loss"] < alone.epochs[0].metrics["loss"] / 2


MULTIWORKER = {"strategy": "multiworker", "workers": 2}


def as_sequential(library):
    """What to replace in the small module so that it builds the same layers as a Sequential."""
    return (
        ("from tf_keras import Model", f"from {library} import Sequential"),
        ("    h = layers.Dense(8", "    h = (layers.Dense(8"),
        ('activation="relu")(x)', 'activation="relu"))'),
        ("return Model(x, ", "return Sequential([x, h, "),
        ('name="class")(h))', 'name="class")])'),
    )


@pytest.mark.parametrize(
    ("model", "loop", "distribution"),
    [
        pytest.param("functional", "custom", {}, marks=pytest.mark.slow),
        pytest.param("functional", "fit", {}, marks=pytest.mark.slow),
        pytest.param("functional", "fit", {"strategy": "mirrored"}, marks=pytest.mark.slow),
        pytest.param("functional", "custom", {"strategy": "mirrored"}, marks=pytest.mark.slow),
        pytest.param("functional", "custom", MULTIWORKER, marks=pytest.mark.slow),
        pytest.param("functional", "fit", MULTIWORKER, marks=pytest.mark.slow),
        ("sequential", "custom", {}),
        pytest.param("sequential", "fit", {"strategy": "mirrored"}, marks=pytest.mark.slow),
        pytest.param("sequential", "custom", MULTIWORKER, marks=pytest.mark.slow),
    ],
)
def test_a_keras_3_model_trains_the_same(model, loop, distribution, modules, alone, tmp_path):
    import keras

    changes = as_sequential("keras") if model == "sequential" else (KERAS_3,)
    record = trained(written(modules, "keras_3", *changes), tmp_path, loop=loop, **distribution)
    assert [epoch.metrics["loss"] for epoch in record.epochs] == pytest.approx(
        [epoch.metrics["loss"] for epoch in alone.epochs], rel=1e-4
    )
    assert record.test_metrics == pytest.approx(alone.test_metrics, rel=1e-4)
    model = keras.models.load_model(record.keras_file)
    import tensorflow as tf

    call = tf.saved_model.load(record.saved_model).signatures["serving_default"]
    rows = np.eye(4, dtype="f")
    answers = call(x=rows)
    assert list(answers) == ["class"]
    np.testing.assert_allclose(model.predict(rows, verbose=0), answers["class"].numpy(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_a_sequential_goes_on_from_its_checkpoint(library, loop, modules, tmp_path):
    module = written(modules, f"sequential_{library}", *as_sequential(library))
    kept = {"checkpoint_dir": str(tmp_path / "kept")}
    first = trained(module, tmp_path / "out", loop=loop, epochs=1, places=kept)
    second = trained(module, tmp_path / "out", loop=loop, places=kept)
    assert second.resumed_at == (7,)
    assert second.epochs[0] == first.epochs[0]
    assert second.epochs[1].metrics["loss"] < first.epochs[0].metrics["loss"]


def test_names_that_a_graph_cannot_have_are_refused_before_the_training(modules, tmp_path):
    named = ('name="class"', 'name="die Klasse"')
    with pytest.raises(InputRefused, match="does not accept these names of layers: 'die Klasse'"):
        trained(written(modules, "named", KERAS_3, named), tmp_path)


@pytest.mark.slow
def test_a_module_by_its_dotted_name_finds_what_lies_beside_it(modules, alone, tmp_path):
    package = tmp_path / "my_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "width.py").write_text("WIDTH = 8\n")
    wider = ("layers.Dense(8", "layers.Dense(WIDTH")
    written(package, "mine", wider, added="\n\nfrom my_models.width import WIDTH\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        record = edgeconv.train(
            training=Training(
                module="my_models.mine", loop="custom", distribution=Distribution(strategy="none")
            )
        )
    assert record.saved_model == str(tmp_path / "mine" / "1")
    assert weights_of(record)[0].tobytes() == weights_of(alone)[0].tobytes()


# Validation


SPOILT = """

def optimizer(learning_rate, steps, replicas):
    # Two epochs of 5 steps down, and from then on up.
    from tf_keras import optimizers

    rates = [learning_rate, -3 * learning_rate]
    return optimizers.SGD(optimizers.schedules.PiecewiseConstantDecay([9], rates))
"""


@pytest.fixture(scope="module")
def spoilt(modules, tmp_path_factory):
    """A training that gets worse after its second epoch: its record and directory."""
    directory = tmp_path_factory.mktemp("spoilt")
    record = trained(
        written(modules, "spoilt", added=SPOILT),
        directory,
        loop="custom",
        epochs=9,
        learning_rate=0.3,
        validation_fraction=0.2,
        patience=2,
        places={"tensorboard_dir": str(directory / "logs")},
    )
    return directory, record


def test_the_training_ends_after_so_many_epochs_without_a_better_one(spoilt):
    _, record = spoilt
    assert (record.train_samples, record.validation_samples) == (80, 20)
    assert record.best_epoch == 2
    assert len(record.epochs) == 4
    assert record.stopped == "no better validation result in 2 epochs"
    results = [(e.validation["accuracy"], -e.validation["loss"]) for e in record.epochs]
    assert max(results) == results[1]


def validation_samples(seed=0, fraction=0.2):
    """The samples that the small module's training keeps apart."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((130, 4)).astype("f")
    y = (x @ rng.standard_normal((4, 3))).argmax(1)
    apart = np.random.default_rng(seed).permutation(100)[: round(100 * fraction)]
    return x[:100][apart], y[:100][apart]


def test_the_weights_exported_are_those_of_the_best_epoch(spoilt):
    import tensorflow as tf

    _, record = spoilt
    x, y = validation_samples()
    call = tf.saved_model.load(record.saved_model).signatures["serving_default"]
    probabilities = call(x=x)["class"].numpy()
    loss = -np.log(probabilities[np.arange(len(y)), y]).mean()
    assert loss == pytest.approx(record.epochs[1].validation["loss"], rel=1e-4)
    assert loss != pytest.approx(record.epochs[-1].validation["loss"], rel=1e-2)


@pytest.mark.filterwarnings("ignore:.*tf_record_iterator.*")
def test_tensorboard_gets_the_validation_as_a_run_of_its_own(spoilt):
    directory, record = spoilt
    found = [v for tag, _, v, _ in scalars(directory / "logs" / "validation") if tag == "loss"]
    wanted = [epoch.validation["loss"] for epoch in record.epochs]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "distribution"),
    [
        ("fit", {"strategy": "mirrored"}),
        ("fit", {"strategy": "multiworker", "workers": 2}),
        ("custom", {"strategy": "multiworker", "workers": 2}),
    ],
)
def test_the_best_epoch_is_kept_under_every_strategy(loop, distribution, spoilt, modules, tmp_path):
    _, record = spoilt
    other = trained(
        modules / "spoilt.py",
        tmp_path,
        loop=loop,
        epochs=9,
        learning_rate=0.3,
        validation_fraction=0.2,
        patience=2,
        **distribution,
    )
    assert (other.best_epoch, other.stopped) == (record.best_epoch, record.stopped)
    assert_same_weights(other, record)


# Places


def test_a_model_directory_of_vertex_ai_gets_the_model_itself(small, alone, tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.setenv("AIP_MODEL_DIR", str(tmp_path / "model"))
    monkeypatch.setenv("AIP_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("AIP_TENSORBOARD_LOG_DIR", str(tmp_path / "logs"))
    training = Training(module=small, loop="custom", distribution=Distribution(strategy="none"))
    record = edgeconv.train(training=training)
    assert record.saved_model == str(tmp_path / "model")
    extra = tmp_path / "model" / "assets.extra"
    assert record.keras_file == str(extra / "small.keras")
    assert (
        msgspec.json.decode((extra / "training.json").read_bytes(), type=TrainingRecord) == record
    )
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "assets",
        "assets.extra",
        "fingerprint.pb",
        "saved_model.pb",
        "variables",
    ]
    assert list((tmp_path / "checkpoints").glob("ckpt-*.index"))
    assert list((tmp_path / "logs" / "train").iterdir())
    assert_same_weights(record, alone)
    assert tf.saved_model.load(record.saved_model).signatures["serving_default"]


@pytest.mark.slow
def test_all_can_be_kept_in_a_remote_place(small, tmp_path):
    """In one process: this file system of TensorFlow's is in its memory."""
    code = """
import json, sys
import tensorflow as tf
from edgeconv.types import Distribution, Training
from edgeconv.tf.training.member import TrainJob, train_member

def job(epochs, **places):
    training = Training(
        module=sys.argv[1], epochs=epochs, loop="custom", validation_fraction=0.2,
        distribution=Distribution(strategy="none"))
    return TrainJob(training=training, work=sys.argv[2], **places)

kept = {"checkpoints": "ram://bucket/checkpoints", "tensorboard": "ram://bucket/logs"}
first = train_member(job(1, directory="ram://bucket/out", **kept)).record
names = tf.io.gfile.listdir("ram://bucket/checkpoints")
second = train_member(job(2, directory="ram://bucket/out", **kept)).record
exact = train_member(
    job(2, directory="ram://bucket/exact", exact=True, forget=True,
        checkpoints="ram://bucket/exact/.checkpoints")).record
signature = tf.saved_model.load(second.saved_model).signatures["serving_default"]
print(json.dumps({
    "saved": [one.saved_model for one in (first, second, exact)],
    "keras": second.keras_file,
    "keras bytes": tf.io.gfile.stat(second.keras_file).length,
    "checkpoints": sorted(names),
    "resumed": second.resumed_at,
    "steps": second.steps_per_epoch,
    "epochs": [len(one.epochs) for one in (first, second, exact)],
    "logs": len(tf.io.gfile.glob("ram://bucket/logs/train/events*")),
    "outputs": list(signature.structured_outputs),
    "exact": sorted(tf.io.gfile.listdir("ram://bucket/exact")),
    "record": json.loads(tf.io.gfile.GFile(
        "ram://bucket/exact/assets.extra/training.json").read())["saved_model"],
}))
"""
    answer = json.loads(output_of("-c", code, small, tmp_path).strip().splitlines()[-1])
    assert answer["saved"] == [
        "ram://bucket/out/small/1",
        "ram://bucket/out/small/2",
        "ram://bucket/exact",
    ]
    assert answer["keras"] == "ram://bucket/out/small/2/assets.extra/small.keras"
    assert answer["keras bytes"] > 1000
    assert "checkpoint" in answer["checkpoints"]
    assert answer["epochs"] == [1, 2, 2]
    assert answer["resumed"] == [answer["steps"]], "the second goes on where the first ended"
    assert answer["logs"] == 2
    assert answer["outputs"] == ["class"]
    assert ".checkpoints" not in " ".join(answer["exact"])
    assert answer["record"] == "ram://bucket/exact"
    assert not list(tmp_path.iterdir()), "nothing is made under a remote name here"


def test_a_finished_training_whose_checkpoints_were_kept_is_exported_again_untrained(
    small, alone, tmp_path
):
    kept, lines = {"checkpoint_dir": str(tmp_path / "kept")}, []
    first = trained(small, tmp_path / "out", loop="custom", places=kept)
    second = trained(small, tmp_path / "out", loop="custom", places=kept, on_progress=lines.append)
    assert second.saved_model == str(tmp_path / "out" / "small" / "2")
    assert_same_weights(second, alone)
    assert second.epochs == first.epochs
    assert second.resumed_at == (14,)
    assert not [line for line in lines if line.startswith("epoch")]
    names = {path.name.partition(".")[0] for path in (tmp_path / "kept").iterdir()}
    assert names == {"", "checkpoint", "ckpt-1", "ckpt-2"}


# What does not go well


def test_a_loss_that_is_no_number_ends_the_training_and_exports_nothing(small, tmp_path):
    target = tmp_path / "out"
    with pytest.raises(ToolFailed, match=r"training diverged: .* of epoch 1/2") as failed:
        trained(small, target, learning_rate=1e38)
    assert "`learning_rate`" in failed.value.hint
    assert not target.exists()


@pytest.mark.slow
def test_a_remote_place_that_is_none_of_tensorflow_s_is_refused(small, tmp_path):
    with pytest.raises(OutputRefused, match="foo://bucket"):
        trained(small, "foo://bucket/out", epochs=1)


@pytest.mark.parametrize(
    ("distribution", "error", "message"),
    [
        ({"devices": ("GPU:0",)}, UsageError, "no device GPU:0: TensorFlow sees none here"),
        ({"devices": ("CPU:0", "CPU:0")}, UsageError, "names a device twice"),
        ({"devices": ("cpu0",)}, UsageError, "no device 'cpu0'"),
        ({"devices": ("TPU:0",)}, UsageError, "no device 'TPU:0'"),
        ({"gpu_memory_limit_mib": 100}, UsageError, "--gpu-memory-limit-mib: .* no GPU here"),
        ({"gpu_memory_growth": True}, UsageError, "--gpu-memory-growth: .* no GPU here"),
        ({"cross_device_ops": "nccl"}, UsageError, "--cross-device-ops nccl is for GPUs"),
        (
            {"strategy": "multiworker", "communication": "nccl"},
            UsageError,
            "--communication nccl is for GPUs",
        ),
        ({"strategy": "tpu"}, InputRefused, "no TPU here"),
        ({"strategy": "tpu", "tpu": "no such"}, InputRefused, "no TPU at 'no such'"),
        (
            {"strategy": "tpu", "tpu": "grpc://127.0.0.1:9"},
            InputRefused,
            "no TPU at 'grpc://127.0.0.1:9': .*refused",
        ),
    ],
)
def test_devices_that_are_not_there_are_refused_at_once(distribution, error, message):
    with pytest.raises(error, match=message):
        open_strategy(Distribution(**{"strategy": "mirrored", **distribution}))


# Exporting


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


def named(saved_model):
    return str(saved_model).encode()


def test_versions_count_up_from_the_highest_and_ignore_other_names(tmp_path):
    parent = tmp_path / "model"
    for name in ("3", "10", "latest", "007x"):
        (parent / name).mkdir(parents=True)
    target = export_version(small_model(), parent, named)
    assert target == parent / "11"
    assert record_path(target).read_bytes() == named(target)
    assert versions(parent) == [3, 10, 11]


def test_what_a_killed_export_left_is_removed_and_other_versions_are_not_touched(tmp_path):
    parent = tmp_path / "model"
    first = export_version(small_model(), parent, named)
    before = sha256_tree(first)
    leftover = parent / ".unfinished-killed" / "variables"
    leftover.mkdir(parents=True)
    assert export_version(small_model(), parent, named) == parent / "2"
    assert not leftover.parent.exists()
    assert sha256_tree(first) == before


@pytest.mark.parametrize("what", ["saved_model", "keras_file", "record"])
def test_an_export_that_fails_half_way_leaves_nothing(what, tmp_path, monkeypatch):
    import tensorflow as tf
    import tf_keras

    full = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
    real = tf.saved_model.save

    def save_then_run_out_of_space(module, directory, **options):
        real(module, directory, **options)
        raise full

    def run_out_of_space(*_):
        raise OutputRefused("No space left on device")

    if what == "saved_model":
        monkeypatch.setattr(tf.saved_model, "save", save_then_run_out_of_space)
    elif what == "keras_file":
        disk_full = OSError(28, "No space left on device")
        monkeypatch.setattr(tf_keras.Model, "save", lambda *_: (_ for _ in ()).throw(disk_full))
    record = run_out_of_space if what == "record" else named
    with pytest.raises(OutputRefused, match="No space left"):
        export_version(small_model(), tmp_path / "model", record)
    assert [p.name for p in (tmp_path / "model").iterdir()] in ([], [".lock"])
