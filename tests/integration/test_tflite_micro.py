"""The runtime `tflite-micro`: the kernels of a microcontroller, run for real."""

from pathlib import Path

import numpy as np
import pytest
from edge_models import invoked
from tiny_tflite import (
    BIASES,
    WEIGHTS,
    Graph,
    float_model,
    int8_model,
    packed,
    packed_with_weights_outside,
)
from unseen_models import KINDS, softmax_of_nearly_nothing

from edgeconv import bench, convert, tune
from edgeconv.data import Samples, write_samples
from edgeconv.model.tflite.flatbuffer import has_weights_outside
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.statistics.outputs import output_errors
from edgeconv.types import Measurement, Measuring, Tuning
from edgeconv.types.errors import InputRefused, UsageError

RECIPES = ["int8", "int16x8"]
BOTH = Measuring(rounds=1, runtimes=("tflite-micro", "litert"))


@pytest.fixture(autouse=True)
def _environments(micro_cache, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(micro_cache))


def rows(directory: Path, **options: object) -> dict[str, Measurement]:
    report = bench([directory], measuring=BOTH, **options)
    return {row.name: row for row in report.measurements}


def test_it_has_outputs_and_the_arena_and_no_times(tmp_path):
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    data = tmp_path / "data.npz"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    np.savez(data, x=x, labels=rng.integers(0, 3, 40))
    found = rows(tmp_path, data=str(data))
    for name in ("int8", "float"):
        there, here = found[f"{name} in tflite-micro"], found[f"{name} in litert"]
        assert there.error == here.error == ""
        assert there.runtime.startswith("tflite_micro 0.dev")
        assert there.latency is None
        assert there.peak_memory_bytes is None
        assert here.latency is not None
        # What it keeps for each tensor and operator comes on top of the tensors.
        assert there.arena_bytes > 500 > here.arena_bytes
    same = [
        np.equal(found[f"{name} in tflite-micro"].accuracy.predicted, here.accuracy.predicted)
        for name, here in (("int8", found["int8 in litert"]), ("float", found["float in litert"]))
    ]
    # A sum between two levels is rounded another way.
    assert 0.9 <= same[0].mean() <= 1
    assert same[1].all()


def test_an_operator_without_a_kernel_is_named(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    y = graph.tensor("y", (1, 4), "float32")
    graph.operator("GELU", [x], [y])
    (tmp_path / "gelu.tflite").write_bytes(packed(graph.model([x], [y])))
    found = rows(tmp_path)
    assert "no kernel for GELU" in found["gelu in tflite-micro"].error


def test_weights_that_it_would_not_see_are_refused(tmp_path):
    (tmp_path / "out.tflite").write_bytes(packed_with_weights_outside(float_model()))
    found = rows(tmp_path)
    assert "outside of the flatbuffer" in found["out in tflite-micro"].error
    assert found["out in litert"].error == ""


def test_it_takes_no_python_of_the_user(tmp_path):
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    own = Measuring(rounds=1, runtimes=("tflite-micro",), python="/usr/bin/python3")
    with pytest.raises(UsageError, match="--python /usr/bin/python3"):
        bench([tmp_path], measuring=own)


@pytest.fixture(scope="module")
def dense(tmp_path_factory) -> Path:
    """Two dense layers, of which the first has over 256 KiB of weights in 8 bits, and samples."""
    place = tmp_path_factory.mktemp("dense")
    rng = np.random.default_rng(3)
    graph = Graph()

    def weights(name: str, *shape: int) -> int:
        data = rng.standard_normal(shape) / np.sqrt(shape[-1])
        # Every channel has a scale of its own.
        data *= np.geomspace(0.8, 1.25, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        return graph.tensor(name, shape, "float32", data=data.astype(np.float32))

    x = graph.tensor("x", (1, 600), "float32")
    inner = graph.tensor("inner", (1, 512), "float32")
    y = graph.tensor("y", (1, 10), "float32")
    graph.operator("FULLY_CONNECTED", [x, weights("w", 512, 600), weights("b", 512)], [inner])
    graph.operator("FULLY_CONNECTED", [inner, weights("v", 10, 512), weights("c", 10)], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    (place / "dense.tflite").write_bytes(packed(model))
    np.savez(place / "cal.npz", x=rng.uniform(-1, 1, (32, 600)).astype(np.float32))
    return place


def test_what_is_published_for_it_runs_right_there(dense, tmp_path):
    made = convert(
        dense / "dense.tflite",
        out=tmp_path,
        to=["float32", "int8", "int16x8"],
        calibration=str(dense / "cal.npz"),
        target_runtime="tflite-micro",
    )
    assert made.failures == ()
    for artifact in made.artifacts:
        (there,) = artifact.target.outputs
        assert there.snr_db > 30
        # litert-quantizer writes them outside, where a microcontroller does not see them.
        assert artifact.engine == "litert"
        assert not has_weights_outside((tmp_path / artifact.file).read_bytes())


def test_a_ratio_of_tensors_is_right_in_litert_and_there(tmp_path):
    """LiteRT's int8 DIV of two tensors gives the end of its range where the first is nearly 0."""
    import tensorflow as tf
    from saved_functions import save

    r = np.random.default_rng(0)
    above, below = (tf.Variable(r.normal(size=(12, 64)).astype(np.float32) * 0.5) for _ in "ab")
    ratio = save(
        tmp_path / "m", lambda x: {"y": (x @ above) / (tf.nn.relu(x @ below) + 0.5)}, x=[1, 12]
    )
    x = r.normal(size=(300, 12)).astype(np.float32)
    np.savez(tmp_path / "c.npz", x=x)
    made = convert(
        ratio,
        out=tmp_path / "out",
        to=["int8"],
        calibration=str(tmp_path / "c.npz"),
        target_runtime="tflite-micro",
    )
    assert made.failures == ()
    (artifact,) = made.artifacts
    (there,), (here,) = artifact.target.outputs, artifact.verification.outputs
    assert there.snr_db > 20
    assert here.snr_db > 20
    # Every sample, and no value at the end of the range: 9 dB and an error of half the span before.
    first, second = above.numpy(), below.numpy()
    right = (x @ first) / (np.maximum(x @ second, 0) + 0.5)
    off = invoked(tmp_path / "out" / artifact.file, x) - right
    assert np.abs(off).max() < np.ptp(right) / 8
    assert 10 * np.log10(np.var(right) / np.mean(off**2)) > 20


def test_what_its_kernels_compute_wrong_is_not_published(dense, tmp_path):
    made = convert(
        dense / "dense.tflite",
        out=tmp_path,
        to=["weight-only-int8", "dynamic"],
        calibration=str(dense / "cal.npz"),
        target_runtime="tflite-micro",
    )
    # The first scale of all channels, which its kernel takes for every one.
    (artifact,) = made.artifacts
    assert artifact.recipe.name == "weight-only-int8"
    assert "dense layers have one weight scale each" in artifact.target.cost
    (step,) = [step for step in artifact.ladder if step.attempt.startswith("on tflite-micro")]
    assert "dB in LiteRT: this runtime's kernels compute different results" in step.failed
    (failure,) = made.failures
    assert "dynamic does not run right on tflite-micro" in failure.message
    assert [file.name for file in tmp_path.glob("*.tflite")] == [artifact.file]


def test_answers_that_only_its_kernels_get_wrong_are_called_so(dense, tmp_path):
    samples = str(dense / "cal.npz")
    convert(
        dense / "dense.tflite",
        out=tmp_path,
        to=["float32", "weight-only-int8"],
        calibration=samples,
    )
    report = bench(
        [tmp_path], data=samples, measuring=Measuring(rounds=1, runtimes=("tflite-micro",))
    )
    rows = {row.name: row for row in report.measurements}
    wrong, right = (rows[f"{name} in tflite-micro"] for name in ("weight-only-int8", "float32"))
    (there,) = wrong.kernels
    assert there.reference == "weight-only-int8 in litert"
    assert there.flips > there.samples // 4
    assert right.kernels[0].flips == 0
    (note,) = [note for note in report.notes if "different results" in note]
    assert note.startswith(
        "weight-only-int8 in tflite-micro: its kernels compute different results: "
    )
    assert note.endswith("dB on the processor")


def test_a_search_keeps_the_accuracy_of_its_kernels(tmp_path):
    """A recipe without kernels there loses all of it; times are for another runtime."""
    (tmp_path / "net.tflite").write_bytes(packed(float_model()))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    labels = (x @ WEIGHTS.T.astype(np.float32) + BIASES).argmax(axis=1)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    wish = {
        "data": f"{tmp_path / 'data.npz'}?labels=labels",
        "max_drop": 0.05,
        "to": ("dynamic", "int8"),
        "runtime": "tflite-micro",
    }
    tuning = tune(tmp_path / "net.tflite", out=tmp_path / "out", **wish)
    assert tuning.ok
    assert tuning.recommended.startswith("int8")
    assert all(trial.error for trial in tuning.trials if trial.recipe.name == "dynamic")
    with pytest.raises(InputRefused, match="has no times, and --objective latency compares"):
        tune(tmp_path / "net.tflite", out=tmp_path / "no", objective="latency", **wish)


@pytest.mark.slow
def test_a_search_compares_with_the_trained_model_and_not_with_wrong_kernels(tmp_path):
    """A dilated convolution with an open batch: the kernel takes the stored batch of 1."""
    import tf_keras
    from tf_keras import layers

    tf_keras.utils.set_random_seed(2)
    wide = layers.Conv1D(8, 3, dilation_rate=2, padding="causal", activation="relu")
    model = tf_keras.Sequential(
        [layers.Input((16, 3), name="x"), wide, layers.GlobalMaxPooling1D(), layers.Dense(4)]
    )
    model.save(tmp_path / "wide.keras")
    x = np.random.default_rng(0).normal(size=(200, 16, 3)).astype(np.float32)
    labels = model.predict(x, verbose=0).argmax(axis=1)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)

    def search(out: str, batch: int | None) -> Tuning:
        return tune(
            tmp_path / "wide.keras",
            out=tmp_path / out,
            data=f"{tmp_path / 'data.npz'}?labels=labels",
            max_drop=0.1,
            to=("int8",),
            runtime="tflite-micro",
            batch=batch,
            trials=1,
        )

    wrong = search("open", None)
    assert [loss.value for loss in wrong.float_loss] == [1.0, 1.0]
    assert not wrong.ok
    assert not list((tmp_path / "open").glob("*.tflite"))
    assert "the float32 model itself loses" in wrong.advice[0]
    assert "--batch 1" in wrong.advice[0]
    assert search("fixed", 1).ok


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_zero_in_calibration_runs_and_is_right_where_it_is_not(kind, tmp_path):
    """With the scale of float noise, a sum aborts this runtime."""
    unseen = KINDS[kind]()
    (tmp_path / "net.tflite").write_bytes(unseen.model)
    np.savez(tmp_path / "blind.npz", **unseen.blind)
    write_samples(Samples(unseen.seeing, None, "made here"), tmp_path / "seeing")
    calibration = str(tmp_path / "blind.npz")
    made = convert(
        tmp_path / "net.tflite", out=tmp_path / "out", to=RECIPES, calibration=calibration
    )
    assert made.failures == ()
    for artifact in made.artifacts:
        assert any(note.startswith("ranges were widened") for note in artifact.details)
        outputs = []
        for target in (RuntimePython(), isolated_target(parse_target_runtime("tflite-micro"))):
            with start_run(
                tmp_path / "out" / artifact.file,
                tmp_path / "seeing",
                scratch=tmp_path,
                signature="serving_default",
                target=target,
            ) as running:
                outputs.append(running.result().outputs)
        assert all(error.snr_db > 25 for error in output_errors(*outputs, {}))


def test_a_softmax_of_nearly_nothing_runs_there(tmp_path):
    """As of a deep network with random weights: its kernel aborts where a step is too small."""
    (tmp_path / "net.tflite").write_bytes(softmax_of_nearly_nothing())
    np.savez(tmp_path / "c.npz", x=np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32))
    calibration = str(tmp_path / "c.npz")
    convert(tmp_path / "net.tflite", out=tmp_path / "out", to=RECIPES, calibration=calibration)
    found = rows(tmp_path / "out", data=calibration)
    for recipe in RECIPES:
        assert found[f"{recipe} in tflite-micro"].error == found[f"{recipe} in litert"].error == ""
