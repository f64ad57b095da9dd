"""Quantization-aware training of regressions, several outputs and towers, as users train them."""

import numpy as np
import pytest

import edgeconv
from edgeconv.requests.recipes import make_recipes
from edgeconv.tf.qat.goal import OwnLosses, goal_of, own_losses
from edgeconv.types import Opening, Qat

RNG = np.random.default_rng(0)


ZOO = "keras_zoo:goals"


@pytest.fixture(scope="module")
def made(models, tmp_path_factory):
    """Converts a model of the zoo, by what it is and its Keras, with some of its arrays changed."""

    def make(name, /, library="keras", settings=Qat(epochs=2), **changes):
        place = tmp_path_factory.mktemp(name)
        with np.load(models / f"{name}_{library}.npz") as stored:
            arrays = {key: x for key, x in ({**stored} | changes).items() if x is not None}
        np.savez(place / "train.npz", **arrays)
        return edgeconv.convert(
            models / f"{name}_{library}.keras",
            out=place / "out",
            to=make_recipes(["qat"], qat=settings),
            training=str(place / "train.npz"),
        )

    return make


def artifact(conversion):
    assert not conversion.failures
    (found,) = conversion.artifacts
    return found


@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_regression_is_trained_by_its_own_loss_and_stays_as_good(made, library):
    found = artifact(made("cars", library))
    assert found.qat.losses == {"mpg": "mean_absolute_error"}
    validated = found.qat.validated
    assert validated.metric == "explained_variance"
    assert validated.float_accuracy > 0.9
    assert validated.drop < 0.02
    (error,) = found.verification.outputs
    assert error.snr_db > 20
    # One scale for years and shares would leave the shares nothing.
    assert {x.name for x in found.qat.layers if x.treatment == "float"} == {"norm"}


@pytest.mark.slow
def test_two_outputs_have_their_own_labels_losses_and_weights(made):
    found = artifact(made("boxes"))
    assert found.qat.losses == {"kind": "sparse_categorical_crossentropy", "box": "huber"}
    assert found.qat.validated.metric == "mean_score"
    assert found.qat.validated.float_accuracy > 0.6
    assert found.qat.validated.drop < 0.05
    assert found.float_operators == ()


@pytest.mark.slow
def test_an_output_without_labels_is_trained_to_the_float_models(made):
    found = artifact(made("boxes", kind=None))
    assert found.qat.losses == {"kind": "mean_squared_error", "box": "huber"}
    assert found.qat.validated.metric == "explained_variance"


@pytest.mark.slow
def test_labels_that_fit_no_output_are_refused_with_ways_out(made):
    for changes in (
        {"box": np.zeros((400, 3))},
        {"kind": None, "box": None, "labels": RNG.normal(size=400)},
    ):
        (failure,) = made("boxes", **changes).failures
        assert "box" in failure.message
        assert "?labels=none" in (failure.hint or "")
        assert "--qat-target model" in (failure.hint or "")


@pytest.mark.slow
def test_a_tower_is_trained_and_its_file_has_no_operator_more_than_int8(made):
    found = artifact(made("pairs"))
    assert found.qat.validated.metric == "accuracy"
    assert found.qat.validated.drop < 0.05
    names = {one.name: one.count for one in found.operators}
    assert names["CONV_2D"] == 2
    assert "DEPTHWISE_CONV_2D" not in names


@pytest.mark.slow
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_model_after_a_short_training_learns_with_statistics_of_its_samples(made, library):
    found = artifact(made("short", library, Qat(epochs=3, learning_rate=1e-3)))
    assert any("moving statistics of 12 batch normalizations" in note for note in found.notes)
    losses = [epoch.metrics["loss"] for epoch in found.qat.training.epochs]
    assert losses[-1] < losses[0]
    assert found.qat.validated.accuracy > found.qat.validated.float_accuracy


@pytest.mark.slow
def test_a_divergence_advises_options_that_convert_has(made):
    (failure,) = made("cars", settings=Qat(epochs=1, learning_rate=1e25)).failures
    assert "--qat-learning-rate" in (failure.hint or "")
    assert "--learning-rate" not in (failure.hint or "").replace("--qat-learning-rate", "")


@pytest.mark.parametrize(
    ("library", "suffix"),
    [
        ("keras", ".keras"),
        ("keras", ".h5"),
        ("tf_keras", ".keras"),
        ("tf_keras", ".h5"),
        ("tf_keras", ""),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_losses_and_weights_are_read_from_every_kind_of_file(tmp_path, library, suffix):
    import importlib

    keras = importlib.import_module(library)
    x = keras.Input((4,), name="x")
    model = keras.Model(x, [keras.layers.Dense(3, name=name)(x) for name in ("a", "b", "c")])
    # Keras 3 writes no delta of a Huber loss.
    focal = keras.losses.BinaryFocalCrossentropy(gamma=0.0, from_logits=True)
    losses = ["mae", focal, None]
    model.compile("adam", losses, loss_weights=[1.0, 0.5, 1.0])
    path = tmp_path / f"model{suffix}"
    model.save(path, **({} if suffix else {"save_format": "tf"}))
    kind = {".keras": "keras", ".h5": "hdf5", "": "saved_model"}[suffix]
    found = own_losses(str(path), kind, Opening(), ["a", "b", "c"])
    assert found.unknown == ()
    assert {n: (each.name, each.weight) for n, each in found.by_output.items()} == {
        "a": ("mean_absolute_error", 1.0),
        "b": ("binary_focal_crossentropy", 0.5),
    }
    labels, outputs = np.zeros((2, 3), np.float32), np.full((2, 3), 4.0, np.float32)
    assert found.by_output["a"].function(labels, outputs).numpy().tolist() == [4.0, 4.0]
    entropies = found.by_output["b"].function(labels, outputs).numpy()
    assert entropies == pytest.approx(np.full(2, np.log1p(np.exp(4.0))), rel=1e-4)


OWN = """
import tensorflow as tf

def twice(labels, outputs):
    return tf.reduce_mean(2 * tf.square(labels - outputs), axis=-1)
"""


def test_a_loss_of_the_users_is_used_where_its_module_is_named(tmp_path):
    import keras
    import tf_keras

    (tmp_path / "ours.py").write_text(OWN, encoding="utf-8")

    def twice(labels, outputs):
        return keras.ops.mean(2 * (labels - outputs) ** 2, axis=-1)

    layers = [keras.layers.Dense(2, name="y")]
    model = keras.Sequential([keras.Input((3,), name="x"), *layers])
    model.compile("adam", twice)
    model.save(tmp_path / "model.keras")
    path, rows = str(tmp_path / "model.keras"), np.ones((4, 3), np.float32)
    unknown = own_losses(path, "keras", Opening(), ["y"])
    assert (unknown.by_output, unknown.unknown) == ({}, ("twice",))
    opening = Opening(custom_objects=("ours",), directory=str(tmp_path))
    own = own_losses(path, "keras", opening, ["y"])
    twin = tf_keras.Sequential([tf_keras.Input((3,), name="x"), tf_keras.layers.Dense(2, name="y")])
    twin.output_names = ["y"]
    labels = np.arange(8, dtype=np.float32).reshape(4, 2)
    goal, fallback = (goal_of(twin, {"x": rows}, labels, each) for each in (own, unknown))
    expected = (2 * (twin(rows).numpy() - labels) ** 2).mean(axis=1)
    targets = goal.targets({"x": rows}, labels)
    assert goal.loss(targets, twin(rows)).numpy() == pytest.approx(expected, rel=1e-5)
    assert goal.terms["y"].loss_name == "twice"
    assert fallback.terms["y"].loss_name == "mean_squared_error"
    assert "twice" in fallback.notes[0]


def scores_of(tf_keras, activation, shape=(4, 4)):
    return tf_keras.Sequential(
        [tf_keras.Input(shape, name="x"), tf_keras.layers.Dense(3, activation=activation, name="y")]
    )


@pytest.mark.parametrize("activation", [None, "softmax"])
@pytest.mark.parametrize("form", ["numbers", "one-hot", "a column of floats"])
def test_a_class_at_each_position_has_the_cross_entropy_and_accuracy_of_its_position(
    activation, form
):
    import tf_keras

    model = scores_of(tf_keras, activation)
    x, numbers = RNG.normal(size=(6, 4, 4)).astype(np.float32), RNG.integers(0, 3, (6, 4))
    labels = {
        "numbers": numbers,
        "one-hot": np.eye(3)[numbers],
        "a column of floats": numbers[..., None].astype(np.float32),
    }[form]
    goal = goal_of(model, {"x": x}, labels, OwnLosses({}))
    outputs = model(x)
    scores = outputs.numpy().astype(np.float64)
    shares = scores if activation else np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    chosen = np.take_along_axis(shares, numbers[..., None], -1)[..., 0]
    targets = goal.targets({"x": x}, labels)
    assert goal.metric_name == "accuracy"
    assert goal.loss(targets, outputs).numpy() == pytest.approx(-np.log(chosen).mean(1), rel=1e-4)
    right = (scores.argmax(-1) == numbers).mean(1)
    assert goal.metric(targets, outputs).numpy() == pytest.approx(right)
