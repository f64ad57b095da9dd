"""One small model trained with quantisation under several strategies.

A program: it writes .tflite files and results.json to DIRECTORY, for the tests to look at.
Strategies need two logical devices, which a process makes before TensorFlow does anything.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeconv.types import IoType, Qat, Recipe
from edgeconv.types.errors import EdgeconvError, InputRefused

BATCH = 64
RECIPE = Recipe(name="qat", qat=Qat())


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """What a warm-up changed."""

    batches: int
    others_same: bool
    ranges: dict[str, tuple[float, float]]
    refused: str


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """What training with frozen batch normalisation changed."""

    layers: int
    statistics_before: bool
    statistics_after: bool
    scales_after: bool


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What came of everything."""

    warm_up: WarmUp
    frozen: Frozen
    accuracies: dict[str, float]
    untrained_ranges: dict[str, dict[str, tuple[float, float]]]
    ranges: dict[str, dict[str, tuple[float, float]]]
    plain_error: float
    dead_channel_error: float
    softmax_range: tuple[float, float]
    refused: str


def digits() -> tuple[Any, Any]:
    """scikit-learn's digits, (n, 8, 8, 1) in [0, 1], and their labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images / 16.0).astype(np.float32)[..., None]
    return images[:1280], found.target[:1280].astype(np.int64)


class Bench:
    """The float model, the samples, and what is done with both."""

    def __init__(self, tf: Any, tf_keras: Any) -> None:
        self.tf, self.keras = tf, tf_keras
        self.images, self.labels = digits()
        tf_keras.utils.set_random_seed(0)
        self.model = self._build()
        self.train(self.model, tf.distribute.get_strategy(), epochs=5, rate=5e-3)

    def _build(self) -> Any:
        layers = self.keras.layers
        x = y = layers.Input((8, 8, 1), name="image")
        y = layers.Conv2D(12, 3, use_bias=False, name="first")(y)
        y = layers.ReLU()(layers.BatchNormalization(name="norm")(y))
        y = layers.Conv2D(16, 3, activation="relu", name="second")(y)
        y = layers.Dropout(0.2, name="dropout")(layers.Flatten()(y))
        return self.keras.Model(x, layers.Dense(10, activation="softmax", name="probs")(y))

    def strategies(self) -> dict[str, Any]:
        distribute, devices = self.tf.distribute, ["CPU:0", "CPU:1"]
        return {
            "none": distribute.get_strategy(),
            "mirrored": distribute.MirroredStrategy(devices),
            "central": distribute.experimental.CentralStorageStrategy(devices, "CPU:0"),
        }

    def batches(self, count: int = 8) -> list[list[Any]]:
        return [[self.images[i * BATCH : (i + 1) * BATCH]] for i in range(count)]

    def annotate(self, model: Any, strategy: Any, settings: Qat = Qat()) -> Any:
        from edgeconv.tf.qat.annotate import annotate
        from edgeconv.tf.qat.ranges import warm_up

        with strategy.scope():
            made, _ = annotate(model, settings)
        warm_up(made, self.batches())
        return made

    def train(
        self,
        model: Any,
        strategy: Any,
        *,
        epochs: int = 1,
        rate: float = 1e-3,
        at_epoch: Any = lambda *_: None,
    ) -> None:
        """Custom steps under the strategy, on the same global batches whatever it is."""
        tf = self.tf
        with strategy.scope():
            optimizer = self.keras.optimizers.Adam(rate)
            optimizer.build(model.trainable_variables)

        def step(images: Any, labels: Any) -> None:
            with tf.GradientTape() as tape:
                losses = self.keras.losses.sparse_categorical_crossentropy(
                    labels, model(images, training=True)
                )
                loss = tf.reduce_sum(losses) / BATCH
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        samples = tf.data.Dataset.from_tensor_slices((self.images, self.labels)).batch(BATCH)
        run = tf.function(lambda images, labels: strategy.run(step, args=(images, labels)))
        for epoch in range(epochs):
            at_epoch(epoch, model)
            for images, labels in strategy.experimental_distribute_dataset(samples):
                run(images, labels)

    def accuracy(self, model: Any) -> float:
        return float(np.mean(np.argmax(model(self.images), axis=1) == self.labels))

    def converted(self, model: Any, path: Path, batch: int | None = None, **io: IoType) -> None:
        from edgeconv.tf.qat.plain import qat_to_tflite

        qat_to_tflite(model, msgspec.structs.replace(RECIPE, **io), batch, path)


def ranges(model: Any) -> dict[str, tuple[float, float]]:
    """The ends of the ranges of the numbers between layers."""
    from edgeconv.tf.qat.configs import classes

    found = {}
    for layer in model.layers:
        if isinstance(layer, classes().range_layer):
            ends = (layer.quantizer_vars[end].numpy() for end in ("min_var", "max_var"))
            found[layer.name] = tuple(map(float, ends))
    return found


def _is_of_a_range(variable: Any) -> bool:
    return variable.name.endswith(("_min:0", "_max:0"))


def _others(model: Any) -> list[Any]:
    return [one.numpy() for one in model.weights if not _is_of_a_range(one)]


def _same(some: list[Any], others: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(some, others, strict=True))


def warmed_up(bench: Bench, strategy: Any) -> WarmUp:
    from edgeconv.tf.qat.annotate import annotate
    from edgeconv.tf.qat.ranges import warm_up

    with strategy.scope():
        made, _ = annotate(bench.model, Qat())
    assert set(ranges(made).values()) == {(-6.0, 6.0)}
    before = _others(made)
    count = warm_up(made, bench.batches())
    found, after = ranges(made), _others(made)
    refused = ""
    try:
        warm_up(made, [[np.full((2, 8, 8, 1), np.nan, np.float32)]])
    except InputRefused as error:
        refused = str(error)
    return WarmUp(batches=count, others_same=_same(before, after), ranges=found, refused=refused)


def frozen(bench: Bench, strategy: Any) -> Frozen:
    from edgeconv.tf.qat.ranges import freeze_batch_norm

    made = bench.annotate(bench.model, strategy)
    norm = next(one for one in made.layers if one.name == "quant_norm")

    def statistics() -> list[Any]:
        return [one.numpy() for one in (norm.moving_mean, norm.moving_variance)]

    first = statistics()
    bench.train(made, strategy)
    second, scale = statistics(), norm.gamma.numpy()
    layers = freeze_batch_norm(made)
    bench.train(made, strategy)
    return Frozen(
        layers=layers,
        statistics_before=_same(first, second),
        statistics_after=_same(second, statistics()),
        scales_after=_same([scale], [norm.gamma.numpy()]),
    )


def dead_channel(bench: Bench, directory: Path) -> float:
    """How far the file is from the emulation where a channel is all zeros, in output steps."""
    from ai_edge_litert.interpreter import Interpreter

    copy = bench.keras.models.clone_model(bench.model)
    copy.set_weights(bench.model.get_weights())
    second = copy.get_layer("second")
    kernel, bias = second.get_weights()
    kernel[..., 3], bias[3] = 0, 0
    second.set_weights([kernel, bias])
    # And nothing at all comes out of the other layer.
    copy.get_layer("norm").gamma.assign(np.zeros(12))
    copy.get_layer("norm").beta.assign(np.full(12, -1.0))
    made = bench.annotate(copy, bench.tf.distribute.get_strategy())
    bench.converted(made, directory / "dead.tflite")
    runner = Interpreter(str(directory / "dead.tflite")).get_signature_runner()
    answer = runner(image=bench.images[:1])["probs"]
    return float(np.max(np.abs(answer - np.asarray(made(bench.images[:1]))))) * 256


def sure_model(bench: Bench) -> tuple[float, float]:
    """The range of a softmax's input where one sample would stretch it far down."""
    layers = bench.keras.layers
    x = layers.Input((8, 8, 1), name="image")
    head = layers.Dense(10, activation="softmax", name="probs")
    model = bench.keras.Model(x, head(layers.Flatten()(x)))
    head.kernel.assign(head.kernel * 300)
    made = bench.annotate(model, bench.tf.distribute.get_strategy())
    bench.train(made, bench.tf.distribute.get_strategy(), rate=1e-6)
    return ranges(made)["quant_probs_range"]


def refused(bench: Bench, directory: Path) -> str:
    """What is said of a model with an operator that TFLite does not have."""
    layers, tf = bench.keras.layers, bench.tf
    x = layers.Input((4, 4), name="x")
    made = layers.Dense(3)(layers.Dense(4)(x))
    made = made * layers.Lambda(lambda y: tf.linalg.det(y)[:, None, None], name="det")(x)
    model = bench.keras.Model(x, made)
    from edgeconv.tf.qat.annotate import annotate

    quantized, _ = annotate(model, Qat())
    try:
        bench.converted(quantized, directory / "refused.tflite")
    except EdgeconvError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(directory: Path) -> None:
    """Write everything."""
    from edgeconv.tf.environment import use_tf_keras

    use_tf_keras()
    import tensorflow as tf
    import tf_keras

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.experimental.enable_op_determinism()
    tf_keras.utils.set_random_seed(0)
    from edgeconv.tf.qat.plain import plain_copy

    bench = Bench(tf, tf_keras)
    strategies = bench.strategies()
    accuracies, trained = {"float": bench.accuracy(bench.model)}, None
    untrained: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name, strategy in strategies.items():
        print(name, flush=True)
        made = bench.annotate(bench.model, strategy)
        untrained[name] = ranges(made)
        bench.train(made, strategy)
        found[name], accuracies[name] = ranges(made), bench.accuracy(made)
        if trained is None:
            trained = made
            bench.converted(made, directory / "none.tflite")
        else:
            # The same numbers in the variables of another strategy.
            made.set_weights(trained.get_weights())
            bench.converted(made, directory / f"{name}_same.tflite")
    bench.converted(trained, directory / "io.tflite", 1, input_type="uint8", output_type="int8")
    results = Results(
        warm_up=warmed_up(bench, strategies["mirrored"]),
        frozen=frozen(bench, strategies["mirrored"]),
        accuracies=accuracies,
        untrained_ranges=untrained,
        ranges=found,
        plain_error=float(
            np.max(np.abs(plain_copy(trained)(bench.images) - trained(bench.images)))
        ),
        dead_channel_error=dead_channel(bench, directory),
        softmax_range=sure_model(bench),
        refused=refused(bench, directory),
    )
    (directory / "results.json").write_bytes(msgspec.json.encode(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
