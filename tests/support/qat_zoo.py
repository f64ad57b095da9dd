"""Small models of every kind of layer, annotated, their ranges found, and converted.

A program: it writes what came of each model to DIRECTORY/results.json, for the tests to look
at. tfmot wants Keras 2 as TensorFlow's own in its whole process.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from edgeconv.types import Qat, Recipe, TreatedLayer
from edgeconv.types.errors import EdgeconvError

SAMPLES = 24


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one model.

    `snr_db` is of the emulation against the float model; `file_steps` how many steps of the
    output the file is away from the emulation at most, over `file_rms_steps` in the mean.
    """

    layers: dict[str, TreatedLayer] = {}
    snr_db: float = 0.0
    file_steps: float = 0.0
    file_rms_steps: float = 0.0
    operators: dict[str, int] = {}
    doubt: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class Case(NamedTuple):
    """A model, how it is quantised, and what its file's batch is fixed to."""

    model: Any
    settings: Qat = Qat()
    batch: int | None = None
    recipe: Recipe = Recipe(name="qat", qat=Qat(), only_integers=True)


def cases(tf: Any, tf_keras: Any) -> dict[str, Any]:
    """The cases, each made by a function of no arguments."""
    layers, model = tf_keras.layers, tf_keras.Model
    allowing = Recipe(name="qat", qat=Qat())

    def case(
        shape: tuple[int | None, ...], *parts: Any, dtype: str = "float32", **options: Any
    ) -> Case:
        x = y = layers.Input(shape, dtype=dtype, name="x")
        for part in parts:
            y = part(y)
        return Case(model(x, y), **options)

    def mobile() -> Case:
        x = y = layers.Input((16, 16, 3), name="image")
        y = layers.Rescaling(1 / 127.5, -1.0, name="rescaling")(y)
        y = layers.Conv2D(8, 3, use_bias=False, name="conv")(y)
        y = layers.ReLU(6.0, name="relu6")(layers.BatchNormalization(name="conv_norm")(y))
        y = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="depthwise")(y)
        y = layers.Activation("relu", name="relu")(layers.BatchNormalization(name="norm")(y))
        z = layers.BatchNormalization(name="side_norm")(layers.Conv2D(8, 1, name="side")(y))
        y = layers.Activation("relu", name="after_add")(layers.Add(name="add")([y, z]))
        y = layers.SeparableConv2D(12, 3, activation="relu", name="separable")(y)
        y = layers.Dropout(0.5, name="dropout")(layers.GlobalAveragePooling2D(name="mean")(y))
        return Case(model(x, layers.Dense(5, activation="softmax", name="probs")(y)))

    def hard_swish() -> Case:
        x = layers.Input((8, 8, 4), name="x")
        y = layers.Conv2D(8, 3, name="conv")(x)
        plain = layers.Multiply(name="product")([y, layers.ReLU(6.0)(y + 3.0) * (1 / 6)])
        z = layers.Conv2D(8, 1, name="next")(plain)
        shifted = layers.ReLU(6.0)(layers.Rescaling(1.0, 3.0, name="shift")(z))
        gate = layers.Rescaling(1 / 6, name="sixth")(shifted)
        both = layers.Multiply(name="both")([z, gate])
        return Case(model(x, layers.GlobalAveragePooling2D()(both)))

    def shared() -> Case:
        a, b = layers.Input((8, 8, 3), name="a"), layers.Input((8, 8, 3), name="b")
        conv = layers.Conv2D(8, 3, activation="relu", padding="same", name="conv")
        left, right = conv(a), conv(b)
        gated = layers.Multiply()([layers.Subtract()([left, right]), tf.sigmoid(left)])
        joined = layers.Maximum()([layers.Concatenate()([gated, right]), 0.5 * conv(b)[..., :1]])
        return Case(model([a, b], layers.Dense(3, name="y")(layers.Flatten()(joined))))

    def tower() -> Case:
        a, b = layers.Input((8, 8, 3), name="a"), layers.Input((8, 8, 3), name="b")
        parts = [
            layers.Conv2D(8, 3, use_bias=False, name="conv"),
            layers.BatchNormalization(name="conv_norm"),
            layers.ReLU(name="relu"),
            layers.DepthwiseConv2D(3, use_bias=False, name="depthwise"),
            layers.BatchNormalization(name="norm"),
            layers.GlobalAveragePooling2D(name="mean"),
            layers.Dense(6, name="dense"),
            layers.BatchNormalization(name="dense_norm"),
        ]

        def passed(tensor: Any) -> Any:
            for part in parts:
                tensor = part(tensor)
            return tensor

        return Case(model([a, b], layers.Concatenate(name="y")([passed(a), passed(b)])))

    def half_shared() -> Case:
        a, b = layers.Input((8, 8, 3), name="a"), layers.Input((8, 8, 3), name="b")
        conv = layers.Conv2D(8, 3, use_bias=False, name="conv")
        left = layers.BatchNormalization(name="left")(conv(a))
        right = layers.BatchNormalization(name="right")(conv(b))
        return Case(model([a, b], layers.Add(name="y")([left, right])))

    def before_norm() -> Case:
        x = layers.Input((12, 12, 4), name="x")
        y = layers.Activation("relu")(layers.BatchNormalization(name="first")(x))
        y = layers.Concatenate()([layers.Conv2D(4, 3, padding="same")(y), x])
        y = layers.BatchNormalization(name="second")(y)
        return Case(model(x, layers.Dense(3)(layers.Flatten()(y))))

    def operations() -> Case:
        x = layers.Input((8, 8, 4), name="x")
        y = layers.Conv2D(8, 3, name="conv")(x)
        low, high = tf.split(tf.abs(tf.where(y > 0.0, y, 0.5 * y)), 2, axis=-1)
        rows = tf.reduce_sum(tf.stack([tf.minimum(low, 0.5), high], axis=3), axis=(1, 3))
        products = tf.matmul(rows, tf.transpose(rows, [0, 2, 1]))
        padded = tf.pad(tf.clip_by_value(products, 1.0, 40.0), [[0, 0], [1, 0], [0, 1]])
        return Case(model(x, layers.Dense(3, name="y")(layers.Flatten()(padded))))

    return {
        "mobile": mobile,
        "operations": operations,
        "hard_swish": hard_swish,
        "shared": shared,
        "tower": tower,
        "half_shared": half_shared,
        "before_norm": before_norm,
        "scaled": lambda: case(
            (32,),
            layers.Dense(64, activation="relu"),
            layers.Rescaling(2.0, 1.0, name="scaled"),
            layers.Dense(4),
        ),
        "unlike_columns": lambda: case(
            (3,),
            layers.Normalization(mean=[0.0, 2000, 5e4], variance=[0.1, 100, 1e6], name="norm"),
            layers.Dense(16, activation="relu"),
            layers.Dense(2),
        ),
        "sequence": lambda: case(
            (40, 3),
            layers.Conv1D(8, 3, padding="causal", dilation_rate=2, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling1D(2),
            layers.Conv1D(8, 5, strides=2, padding="same", activation="relu", groups=2),
            layers.DepthwiseConv1D(3, padding="same"),
            layers.SeparableConv1D(6, 3),
            layers.Dense(6, activation="relu"),
            layers.UpSampling1D(2),
            layers.ZeroPadding1D(1),
            layers.Cropping1D(1),
            layers.AveragePooling1D(2),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4),
        ),
        "any_length": lambda: case(
            (None, 3),
            layers.Conv1D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalMaxPooling1D(),
            layers.Dense(4),
        ),
        "dense": lambda: case(
            (32,),
            layers.Dense(32, use_bias=False, name="first"),
            layers.BatchNormalization(name="folded"),
            layers.ReLU(),
            layers.Dropout(0.5),
            layers.Dense(16, activation="tanh"),
            layers.BatchNormalization(name="apart"),
            layers.Dense(4, activation="sigmoid"),
        ),
        "images_out": lambda: case(
            (8, 8, 3),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.Conv2DTranspose(6, 3, strides=2, padding="same", name="up"),
            layers.BatchNormalization(name="folded"),
            layers.ReLU(),
            layers.UpSampling2D(interpolation="bilinear"),
            layers.Conv2D(2, 1),
        ),
        "sequence_up": lambda: case(
            (16, 3),
            layers.Conv1DTranspose(8, 4, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(3),
        ),
        "dilated": lambda: case(
            (16, 16, 3),
            layers.Conv2D(8, 3, dilation_rate=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3, dilation_rate=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(2),
        ),
        "activations": lambda: case(
            (8, 8, 4),
            layers.Conv2D(8, 3),
            layers.PReLU(shared_axes=[1, 2], alpha_initializer="random_uniform"),
            layers.Conv2D(8, 3, activation="gelu"),
            layers.Conv2D(8, 1, activation="swish"),
            layers.LeakyReLU(0.2),
            layers.Permute((2, 1, 3)),
            layers.Reshape((16, 8)),
            layers.Dense(5, activation="relu6"),
            layers.ReLU(3.0),
            layers.ReLU(negative_slope=0.1),
            layers.Flatten(),
            layers.Dense(4),
        ),
        "embedding": lambda: case(
            (10,),
            layers.Embedding(50, 8),
            layers.Conv1D(8, 3, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(2),
            dtype="int32",
        ),
        "normalization": lambda: case(
            (6,),
            layers.Normalization(mean=[0.0, 1, 2, 3, 4, 5], variance=[1.0, 2, 3, 4, 5, 6]),
            layers.Dense(8, activation="relu"),
            layers.Dense(2),
        ),
        "recurrent": lambda: case(
            (10, 4),
            layers.Dense(8, name="dense"),
            layers.LayerNormalization(name="norm"),
            layers.GRU(6, name="gru"),
            layers.Dense(2, name="out"),
            batch=1,
            recipe=allowing,
        ),
        "elu": lambda: case(
            (6,), layers.Dense(8, activation="elu", name="elu"), layers.Dense(2), recipe=allowing
        ),
        "selected": lambda: case(
            (8, 8, 4),
            layers.Conv2D(8, 3, name="first", activation="relu"),
            layers.Conv2D(8, 3, name="second", activation="relu"),
            layers.Flatten(name="flat"),
            layers.Dense(4, name="head"),
            settings=Qat(layers=("sec*", "head")),
            recipe=allowing,
        ),
    }


def result(tf: Any, case: Case, path: Path) -> Result:
    """Annotate, find the ranges, convert, and compare."""
    from edgeconv.tf.qat.annotate import annotate, refuse_float_layers
    from edgeconv.tf.qat.flat import flatten
    from edgeconv.tf.qat.plain import qat_to_tflite
    from edgeconv.tf.qat.ranges import warm_up

    samples = _samples(case.model)
    _liven(case.model)
    made, treated = annotate(flatten(case.model).model, case.settings)
    refuse_float_layers(treated, case.recipe)
    warm_up(made, [samples])
    qat_to_tflite(made, case.recipe, case.batch, path)
    given = samples[0] if len(samples) == 1 else samples
    emulated = np.asarray(made(given))
    apart = _steps_apart(path, dict(zip(made.input_names, samples, strict=True)), emulated)
    return Result(
        layers={one.name: one for one in treated},
        snr_db=_snr_db(np.asarray(case.model(given)), emulated),
        file_steps=float(np.max(apart)),
        file_rms_steps=float(np.sqrt(np.mean(apart**2))),
        **_graph(path, case.recipe),
    )


def _samples(model: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for one in model.inputs:
        shape = (SAMPLES, *(20 if size is None else size for size in one.shape[1:]))
        if one.dtype.is_floating:
            # As colours, where the model takes it upon itself to scale them.
            wide = "rescaling" in {layer.name for layer in model.layers}
            found.append(rng.uniform(0 if wide else -1, 255 if wide else 1, shape))
            norms = [layer for layer in model.layers if type(layer).__name__ == "Normalization"]
            for norm in norms:
                found[-1] = norm.mean + 2 * found[-1] * np.sqrt(norm.variance)
            found[-1] = np.asarray(found[-1], np.float32)
        else:
            found.append(rng.integers(0, 50, shape, np.int32))
    return found


def _liven(model: Any) -> None:
    """Give batch normalisations numbers as if they were trained."""
    rng = np.random.default_rng(1)
    for layer in model.layers:
        if "BatchNormalization" in type(layer).__name__:
            shape = layer.gamma.shape
            layer.gamma.assign(rng.uniform(-1.5, 1.5, shape))
            layer.beta.assign(rng.normal(0, 0.3, shape))
            layer.moving_mean.assign(rng.normal(0, 0.3, shape))
            layer.moving_variance.assign(rng.uniform(0.5, 2, shape))


def _snr_db(reference: Any, other: Any) -> float:
    return float(10 * np.log10(np.var(reference) / np.mean((other - reference) ** 2)))


def _steps_apart(path: Path, samples: dict[str, Any], emulated: Any) -> Any:
    """How far the file is from the emulation, in steps of its output, sample by sample."""
    from ai_edge_litert.interpreter import Interpreter

    from edgeconv.model.tflite import output_steps

    ((_, step),) = output_steps(path.read_bytes(), "serving_default").items()
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    answers = []
    for index in range(SAMPLES):
        answer = runner(**{name: array[index : index + 1] for name, array in samples.items()})
        answers.append(next(iter(answer.values())))
    return np.abs(np.concatenate(answers) - emulated) / step


def _graph(path: Path, recipe: Recipe) -> dict[str, Any]:
    from edgeconv.conversion.candidate import Candidate
    from edgeconv.conversion.graph_checks import verify_graph

    candidate = Candidate(recipe=recipe, file=path, engine="tflite")
    allowing = msgspec.structs.replace(recipe, only_integers=False)
    found = verify_graph(
        Candidate(recipe=allowing, file=path, engine="tflite"), ["serving_default"]
    )
    try:
        verify_graph(candidate, ["serving_default"])
        doubt = ""
    except EdgeconvError as error:
        doubt = error.message
    (signature,) = found.signatures
    return {
        "operators": {one.name: one.count for one in found.summary.operators},
        "doubt": doubt,
        "inputs": tuple(one.name for one in signature.inputs),
        "outputs": tuple(one.name for one in signature.outputs),
    }


def main(directory: Path) -> None:
    """Write results.json, and NAME.tflite for each case."""
    from edgeconv.tf.environment import use_tf_keras

    use_tf_keras()
    import tensorflow as tf
    import tf_keras

    results = {}
    for name, case in cases(tf, tf_keras).items():
        tf_keras.utils.set_random_seed(0)
        print(name, flush=True)
        results[name] = result(tf, case(), directory / f"{name}.tflite")
    (directory / "results.json").write_bytes(msgspec.json.encode(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
