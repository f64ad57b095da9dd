"""The runtime `gpu`: LiteRT's GPU delegate, run for real on a GPU or on SwiftShader."""

from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed

from edgeconv import bench, convert
from edgeconv.conversion import session
from edgeconv.types import Measurement, Measuring, Report, RuntimeChoice
from edgeconv.types.errors import UsageError

GPU = Measuring(rounds=1, runtimes=(RuntimeChoice(name="gpu"),))

pytestmark = pytest.mark.usefixtures("gpu_device")


def measured(directory: Path, **options: object) -> tuple[Report, dict[str, Measurement]]:
    report = bench([directory], **{"measuring": GPU, **options})
    return report, {row.name: row for row in report.measurements}


def unary(*names: str) -> bytes:
    """A float model of operators with one input."""
    graph = Graph()
    first = last = graph.tensor("x", (1, 4), "float32")
    for number, name in enumerate(names):
        output = graph.tensor(f"t{number}", (1, 4), "float32")
        graph.operator(name, [last], [output])
        last = output
    return packed(graph.model([first], [last]))


def test_right_files_are_full_and_have_the_answers_of_the_processor(tmp_path, gpu_device):
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=rng.integers(0, 3, 40))
    report, rows = measured(tmp_path, data=str(tmp_path / "data.npz"))
    for name in ("int8", "float"):
        there, here = rows[f"{name} in gpu"], rows[f"{name} in litert"]
        assert there.error == here.error == ""
        assert there.acceleration.state == "full"
        assert there.acceleration.device == gpu_device
        assert there.runtime.endswith(f" on {gpu_device}")
        (kernels,) = there.kernels
        assert kernels.reference == f"{name} in litert"
        assert kernels.flips == 0
        assert here.acceleration is None
        assert here.kernels == ()
        if "SwiftShader" in gpu_device:
            assert there.latency is None
            assert there.peak_memory_bytes is None
    if "SwiftShader" in gpu_device:
        assert any("no times are shown" in note for note in report.notes)


def test_operators_that_stay_on_the_processor_are_named(tmp_path):
    (tmp_path / "part.tflite").write_bytes(unary("RELU", "LOG_SOFTMAX", "TANH"))
    report, rows = measured(tmp_path)
    row = rows["part in gpu"]
    assert row.acceleration.state == "partial"
    assert row.acceleration.on_cpu == ("LOG_SOFTMAX: Operation is not supported.",)
    assert any("on the processor: LOG_SOFTMAX" in note for note in report.notes)


def test_a_file_that_it_refuses_has_the_operator(tmp_path):
    (tmp_path / "no.tflite").write_bytes(unary("RELU", "SignalWindow"))
    _, rows = measured(tmp_path)
    row = rows["no in gpu"]
    assert row.error
    assert row.acceleration.state == "refused"
    assert row.acceleration.on_cpu == ("SignalWindow",)


def test_a_file_that_ends_the_process_is_crashed_and_the_rest_goes_on(tmp_path):
    # A custom operator of the runtime without its options.
    (tmp_path / "bad.tflite").write_bytes(unary("TANH", "TFLite_Detection_PostProcess"))
    (tmp_path / "good.tflite").write_bytes(unary("TANH"))
    _, rows = measured(tmp_path)
    assert "SIGSEGV" in rows["bad in gpu"].error
    assert rows["bad in gpu"].acceleration.state == "crashed"
    assert rows["good in gpu"].acceleration.state == "full"


def test_the_layer_is_named_where_its_kernels_begin_to_be_wrong(tmp_path):
    (tmp_path / "strided.tflite").write_bytes(strided_model())
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(50, 8, 8, 4)).astype(np.float32))
    layers = Measuring(rounds=1, runtimes=GPU.runtimes, layers=True)
    report, rows = measured(tmp_path, data=str(tmp_path / "data.npz"), measuring=layers)
    row = rows["strided in gpu"]
    first, second, *_ = row.layer_errors
    assert row.layers_against == "strided in litert"
    assert first.snr_db > 30
    # LiteRT 2.3.0: a convolution of 1x1 with strides and integer weights ignores its strides.
    assert second.snr_db < 10
    assert row.acceleration.state == "wrong"
    assert row.acceleration.begins_at == second.layer
    assert any(f"begins at {second.layer}" in note for note in report.notes)


def strided_model(*, is_float: bool = False, channels: int = 4) -> bytes:
    """Two convolutions, 3x3, and 1x1 with strides of 2, with weights of 8 bits; then the means."""
    rng = np.random.default_rng(2)
    graph = Graph()
    x = graph.tensor("x", (1, 8, 8, channels), "float32")
    last = x
    for name, size, stride, side in (("three", 3, 1, 8), ("one", 1, 2, 4)):
        levels = rng.integers(-127, 128, (channels, size, size, channels))
        scales = np.full(channels, 0.02 / size / np.sqrt(channels), np.float32)
        weights = {"data": levels.astype(np.int8), "scale": scales}
        if is_float:
            weights = {"data": (levels * scales[0]).astype(np.float32)}
        kind = "float32" if is_float else "int8"
        kernel = graph.tensor(f"{name}_w", levels.shape, kind, **weights)
        bias = graph.tensor(f"{name}_b", (channels,), "float32", data=np.zeros(channels, "f4"))
        output = graph.tensor(name, (1, side, side, channels), "float32")
        graph.convolution([last, kernel, bias], output, stride)
        last = output
    axes = graph.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    y = graph.tensor("y", (1, channels), "float32")
    graph.operator("MEAN", [last, axes], [y])
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


def test_what_is_wrong_there_is_not_published_and_what_is_right_is_proposed(tmp_path, gpu_device):
    (tmp_path / "strided.tflite").write_bytes(strided_model(is_float=True, channels=32))
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "cal.npz", x=rng.normal(size=(60, 8, 8, 32)).astype(np.float32))
    out = tmp_path / "out"
    conversion = convert(
        tmp_path / "strided.tflite",
        out=out,
        to=["float32", "dynamic"],
        calibration=str(tmp_path / "cal.npz"),
        target_runtime="gpu",
    )
    (artifact,) = conversion.artifacts
    assert artifact.recipe.name == "float32"
    assert artifact.target.runtime == f"gpu {gpu_device}"
    (failure,) = conversion.failures
    assert "dynamic does not run right on gpu" in failure.message
    assert "choose float32, which is right on this runtime: 100 %" in failure.hint
    alone = convert(
        tmp_path / "strided.tflite",
        out=out,
        to=["dynamic"],
        calibration=str(tmp_path / "cal.npz"),
        target_runtime="gpu",
    )
    assert "choose float16, which is right on this runtime" in alone.failures[0].hint
    assert [file.name for file in out.glob("*.tflite")] == [artifact.file]


@pytest.mark.slow
def test_the_float32_model_is_not_published_as_dynamic_where_that_is_wrong(tmp_path):
    """TFLiteConverter's dynamic leaves layers of under 1,024 weights in float: right everywhere."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(4)
    small = [layers.Conv2D(16, 3, padding="same"), layers.Conv2D(16, 1, strides=2)]
    keras.Sequential(
        [layers.Input((8, 8, 1)), *small, layers.GlobalAveragePooling2D(), layers.Dense(4)]
    ).save(tmp_path / "small.keras")
    rng = np.random.default_rng(1)
    np.save(tmp_path / "cal.npy", rng.normal(size=(60, 8, 8, 1)).astype(np.float32))
    conversion = convert(
        tmp_path / "small.keras",
        out=tmp_path / "out",
        to=["float16", "dynamic"],
        calibration=str(tmp_path / "cal.npy"),
        target_runtime="gpu",
        batch=1,
    )
    assert [artifact.recipe.name for artifact in conversion.artifacts] == ["float16"]
    (failure,) = conversion.failures
    assert "every layer is too small for TFLiteConverter, which quantized none" in failure.message
    assert "choose float16" in failure.hint


def test_layers_that_overflow_in_16_bits_are_named(tmp_path):
    # LiteRT#9249: the values of a sum are small, and the sum is not.
    graph = Graph()
    x = graph.tensor("x", (1, 32, 32, 4), "float32")
    scaled = graph.tensor("scaled", (1, 32, 32, 4), "float32")
    factor = graph.tensor("factor", (1,), "float32", data=np.array([80], np.float32))
    axes = graph.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    y = graph.tensor("y", (1, 4), "float32")
    graph.operator("MUL", [x, factor], [scaled])
    graph.operator("MEAN", [scaled, axes], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    (tmp_path / "mean.tflite").write_bytes(packed(model))
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "cal.npz", x=rng.uniform(0.9, 1, (40, 32, 32, 4)).astype(np.float32))
    conversion = convert(
        tmp_path / "mean.tflite",
        out=tmp_path / "out",
        to=["float32"],
        calibration=str(tmp_path / "cal.npz"),
        target_runtime="gpu",
    )
    (artifact,) = conversion.artifacts
    (warning,) = [each for each in artifact.verification.warnings if "16-bit" in each]
    assert "65,504" in warning
    assert "(MEAN: values to " in warning
    assert "MUL" not in warning


def test_it_takes_no_accelerator_and_no_python(tmp_path):
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    own = Measuring(rounds=1, runtimes=GPU.runtimes, python="/usr/bin/python3")
    with pytest.raises(UsageError, match="--python /usr/bin/python3"):
        bench([tmp_path], measuring=own)


@pytest.mark.slow
def test_a_graph_that_computes_shapes_is_refused_with_what_fixes_it(tmp_path, zoo):
    """The zoo's network has a Flatten, whose open batch is computed with SHAPE and RESHAPE."""
    convert(zoo / "modern.keras", out=tmp_path / "open", to=["float32"])
    report, (refused,) = in_gpu(tmp_path / "open")
    assert refused.acceleration.state == "refused"
    assert any("the batch is open" in note and "--batch 1" in note for note in report.notes)

    conversion = convert(
        zoo / "modern.keras", out=tmp_path / "out", to=["float32"], target_runtime="gpu"
    )
    assert conversion.artifacts == ()
    assert conversion.failures[0].hint.startswith("add --batch 1: ")
    fixed = convert(
        zoo / "modern.keras", out=tmp_path / "out", to=["float32"], target_runtime="gpu", batch=1
    )
    assert [artifact.recipe.name for artifact in fixed.artifacts] == ["float32"]
    report, (full,) = in_gpu(tmp_path / "out")
    assert full.acceleration.state == "full"
    assert not any("the batch is open" in note for note in report.notes)


def in_gpu(directory: Path) -> tuple[Report, list[Measurement]]:
    """The rows of what was converted without the trained model, which takes long to measure."""
    (file,) = directory.glob("*.tflite")
    alone = directory / "alone"
    alone.mkdir()
    (alone / file.name).write_bytes(file.read_bytes())
    report, rows = measured(alone)
    return report, [row for row in rows.values() if row.acceleration]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "held_back", "calibrating"), [("int8", 42, 200), ("int16x8", 8, 24)]
)
def test_the_samples_that_calibrate_count_for_the_agreement(
    recipe, held_back, calibrating, tmp_path, monkeypatch
):
    """One answer in fifty that is another one does not show in the few samples held back.

    The kernels of int16x8 are slow: of a large network they get some samples.
    """
    monkeypatch.setattr(session, "_MOST_PRODUCTS", 0)
    monkeypatch.setattr(session, "_MOST_PRODUCTS_ON_TARGET", 24 * WEIGHTS.size)
    (tmp_path / "net.tflite").write_bytes(packed(float_model()))
    samples = np.random.default_rng(0).normal(size=(50_000, 4)).astype(np.float32)
    scores = np.sort(samples @ WEIGHTS.T.astype(np.float32) + BIASES, axis=1)
    ties = np.argsort(scores[:, -1] - scores[:, -2])[:24]
    x = np.concatenate([samples[:276], samples[ties]])
    np.savez(tmp_path / "cal.npz", x=x)
    conversion = convert(
        tmp_path / "net.tflite",
        out=tmp_path / "out",
        to=[recipe],
        calibration=str(tmp_path / "cal.npz"),
        target_runtime="gpu",
    )
    (failure,) = conversion.failures
    count = held_back + calibrating
    assert f"of {count} answers on this runtime are those of float32" in failure.message
    assert f"% of {held_back} on the processor" in failure.message
    assert "choose float16, which is right on this runtime" in failure.hint
