from pathlib import Path

import numpy as np
import pytest
from places import SHARED
from saved_functions import save

from edgeconv.data import Samples
from edgeconv.data.handover import put_part, waiting_parts
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.tf.baseline import BaselineJob, batch_sizes, fitting, open_model, run_baseline
from edgeconv.tf.export import export_inference
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

LEGACY = SHARED / "legacy_keras_h5"
RNG = np.random.default_rng(7)
TEN = {
    "left": RNG.normal(size=(10, 3)).astype(np.float32),
    "right": RNG.normal(size=(10, 2)).astype(np.float32),
}


def two_input_model():
    from tf_keras import Model, layers

    left, right = layers.Input((3,), name="left"), layers.Input((2,), name="right")
    both = layers.Dense(8, activation="relu")(layers.Concatenate()([left, right]))
    return Model(
        [left, right], [layers.Dense(4, name="wide")(both), layers.Dense(1, name="top")(both)]
    )


def handed_over(directory, arrays):
    """All the samples in two parts, the first of eight."""
    directory.mkdir(exist_ok=True)
    for number, rows in enumerate((slice(0, 8), slice(8, None))):
        part = {name: array[rows] for name, array in arrays.items()}
        if len(next(iter(part.values()))):
            put_part(Samples(part, None, "a test"), directory, number)
    return str(directory)


def job_for(path, tmp_path, arrays=TEN, **options):
    return BaselineJob(
        **{
            "path": str(path),
            "kind": "saved_model",
            "signature": "serving_default",
            "inputs": handed_over(tmp_path / "inputs", arrays),
            "outputs": str(tmp_path / "outputs"),
            "samples": len(next(iter(arrays.values()))),
            "batch": 4,
            "warmup": 2,
            "repeats": 5,
            **options,
        }
    )


def ran(job, scratch):
    with start_task(
        run_baseline,
        job,
        label="baseline",
        scratch=scratch,
        access=Access(reads=(Path(job.path),), writes=(scratch,)),
    ) as task:
        run = task.result()
    outputs = {n: np.load(Path(job.outputs) / f"{i}.npy") for i, n in enumerate(run.names)}
    return run, outputs


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """A SavedModel with two inputs and two outputs, and the model it is of."""
    directory = tmp_path_factory.mktemp("model") / "1"
    model = two_input_model()
    export_inference(model, str(directory))
    return directory, model


def test_a_saved_model_answers_all_samples_as_tensorflow_does(saved_model, tmp_path):
    directory, model = saved_model
    run, outputs = ran(job_for(directory, tmp_path, threads=2), tmp_path)
    wide, top = model([TEN["left"], TEN["right"]], training=False)
    assert set(run.names) == {"wide", "top"}
    np.testing.assert_allclose(outputs["wide"], wide, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["top"], top, rtol=1e-5, atol=1e-6)
    assert outputs["wide"].shape == (10, 4)
    assert (run.loader, run.samples, run.threads) == ("tf.saved_model", 10, 2)
    assert (run.latency_batch, run.evaluation_batch) == (1, 4)
    assert len(run.samples_us) == 5
    assert len(run.batch_samples_us) == 5
    assert waiting_parts(tmp_path / "inputs") == 0
    assert min(*run.samples_us, *run.batch_samples_us) > 0
    assert run.load_us > run.first_us > max(run.samples_us)


def test_a_fixed_batch_is_kept_for_latency_and_evaluation(tmp_path):
    path = save(tmp_path / "model", lambda x: {"y": 2 * x, "n": x[:, 0] > 0}, x=((4, 2), "float32"))
    values = RNG.normal(size=(8, 2)).astype(np.float32)
    run, outputs = ran(job_for(path, tmp_path, {"x": values}, batch=3), tmp_path)
    np.testing.assert_array_equal(outputs["y"], 2 * values)
    np.testing.assert_array_equal(outputs["n"], values[:, 0] > 0)
    assert (run.latency_batch, run.evaluation_batch, len(run.batch_samples_us)) == (4, 4, 5)


@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
)
def test_a_keras_file_has_the_names_of_its_export(tmp_path):
    import keras

    image = keras.Input((6,), name="feature")
    model = keras.Model(image, keras.layers.Dense(2, name="score")(image))
    model.save(tmp_path / "model.keras")
    values = RNG.normal(size=(3, 6)).astype(np.float32)
    options = {"kind": "keras", "signature": None}
    job = job_for(tmp_path / "model.keras", tmp_path, {"feature": values}, **options)
    run, outputs = ran(job, tmp_path)
    assert (run.loader, run.names, run.evaluation_batch) == ("keras", ("score",), 3)
    np.testing.assert_allclose(outputs["score"], model(values), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning")
def test_an_hdf5_file_that_keras_3_refuses_is_loaded_by_tf_keras(tmp_path):
    from tf_keras import Sequential, layers

    # tf_keras writes an argument of this layer that Keras 3 does not know.
    depthwise = layers.DepthwiseConv2D(3, input_shape=(5, 5, 2), name="depthwise")
    model = Sequential([depthwise, layers.Flatten(name="flat")])
    model.save(tmp_path / "model.h5")
    values = RNG.normal(size=(4, 5, 5, 2)).astype(np.float32)
    options = {"kind": "hdf5", "signature": None}
    job = job_for(tmp_path / "model.h5", tmp_path, {"depthwise_input": values}, **options)
    run, outputs = ran(job, tmp_path)
    assert (run.loader, run.names) == ("tf_keras", ("flat",))
    np.testing.assert_allclose(outputs["flat"], model(values), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not LEGACY.is_dir(), reason="the shared test data are not here")
def test_a_real_hdf5_file_of_2017_runs(tmp_path):
    path = sorted(LEGACY.glob("*.hdf5"))[0]
    values = RNG.uniform(-1, 1, size=(2, 64, 64, 1)).astype(np.float32)
    options = {"kind": "hdf5", "signature": None, "batch": 2}
    run, outputs = ran(job_for(path, tmp_path, {"input_1": values}, **options), tmp_path)
    assert run.loader in ("keras", "tf_keras")
    (probabilities,) = outputs.values()
    np.testing.assert_allclose(probabilities.sum(-1), [1, 1], rtol=1e-5)


def test_what_is_refused_in_the_child_is_raised_in_the_parent(saved_model, tmp_path):
    with pytest.raises(InputRefused, match="a test has arrays for 'left', the model takes"):
        ran(job_for(saved_model[0], tmp_path, {"left": TEN["left"]}), tmp_path)
    assert not (tmp_path / "outputs").exists()


def test_a_model_that_fails_when_it_runs_is_refused_with_the_reason(tmp_path):
    import tensorflow as tf

    def picky(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="only positive")]):
            return {"y": tf.sqrt(x)}

    path = save(tmp_path / "model", picky, x=((None, 1), "float32"))
    arrays = {"x": np.float32([[1], [-1]])}
    with pytest.raises(InputRefused, match="fails in TensorFlow"):
        ran(job_for(path, tmp_path, arrays), tmp_path)


def test_an_unknown_signature_is_refused_with_those_there_are(saved_model, tmp_path):
    job = job_for(saved_model[0], tmp_path, signature="serving_defualt")
    with pytest.raises(UsageError, match="did you mean 'serving_default'"):
        open_model(job)


def test_a_directory_that_is_no_saved_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputRefused, match="empty does not load in TensorFlow"):
        open_model(job_for(tmp_path / "empty", tmp_path))


def test_a_saved_model_that_was_cut_off_is_refused(saved_model, tmp_path):
    whole = (saved_model[0] / "saved_model.pb").read_bytes()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "saved_model.pb").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputRefused, match="cut does not load in TensorFlow"):
        open_model(job_for(cut, tmp_path))


def test_a_saved_model_without_signatures_is_refused(tmp_path):
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    with pytest.raises(InputRefused, match="has no signature"):
        open_model(job_for(tmp_path / "bare", tmp_path))


def test_a_tflite_file_is_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="not a trained baseline"):
        open_model(job_for("model.tflite", tmp_path, kind="tflite"))


def test_an_output_of_complex_numbers_is_refused(tmp_path):
    import tensorflow as tf

    path = save(tmp_path / "m", lambda x: {"z": tf.cast(x, tf.complex64)}, x=((None,), "float32"))
    with pytest.raises(InputRefused, match="output 'z' is complex64"):
        open_model(job_for(path, tmp_path))


def test_an_input_without_a_batch_dimension_is_refused(tmp_path):
    path = save(tmp_path / "m", lambda x: {"y": 2 * x}, x=((), "float32"))
    with pytest.raises(InputRefused, match="input 'x' has no batch dimension"):
        open_model(job_for(path, tmp_path))


def test_samples_that_depend_on_each_other_are_run_one_at_a_time(tmp_path):
    import tensorflow as tf

    path = save(
        tmp_path / "m",
        lambda x: {"mean": tf.reduce_mean(x, axis=0), "apart": x - tf.reduce_mean(x, axis=0)},
        x=((None, 3), "float32"),
    )
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    run, outputs = ran(job_for(path, tmp_path, arrays), tmp_path)
    assert run.evaluation_batch == 1
    np.testing.assert_array_equal(outputs["mean"], arrays["x"])
    assert not outputs["apart"].any()


def test_inputs_without_a_batch_dimension_get_a_sample_at_a_time(tmp_path):
    path = save(
        tmp_path / "m", lambda a, b: {"y": b @ a}, a=((4, 3), "float32"), b=((2, 4), "float32")
    )
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((5, 4, 3), np.float32),
        "b": rng.standard_normal((5, 2, 4), np.float32),
    }
    _, outputs = ran(job_for(path, tmp_path, arrays), tmp_path)
    np.testing.assert_allclose(outputs["y"], arrays["b"] @ arrays["a"], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype(np.float64), "is float64, the model takes float32"),
        (lambda x: x[:, :1], r"has shape \(10, 1\), the model takes \(n, 2\)"),
    ],
)
def test_samples_that_the_model_does_not_take_are_refused(saved_model, tmp_path, change, message):
    opened = open_model(job_for(saved_model[0], tmp_path))
    wrong = {"left": TEN["left"], "right": change(TEN["right"])}
    with pytest.raises(InputRefused, match=message):
        fitting(opened, Samples(wrong, None, "a test"))


@pytest.mark.parametrize(
    ("leading", "asked", "count", "sizes"),
    [(-1, 64, 10, (1, 10)), (-1, 4, 10, (1, 4)), (1, 64, 10, (1, 1)), (5, 64, 10, (5, 5))],
)
def test_batches_are_as_asked_unless_the_model_fixes_them(leading, asked, count, sizes):
    spec = TensorSpec(name="x", shape=(leading, 3), dtype="float32")
    assert batch_sizes((spec,), asked, count) == sizes


def test_samples_that_do_not_fill_a_fixed_batch_are_refused():
    spec = TensorSpec(name="x", shape=(4, 3), dtype="float32")
    with pytest.raises(
        InputRefused, match="takes 4 samples at once, and 10 is not a multiple"
    ) as info:
        batch_sizes((spec,), 64, 10)
    assert info.value.hint == "give 8 samples"
