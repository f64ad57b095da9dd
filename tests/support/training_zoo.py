"""Writes models that act differently in training, and what `predict` of each answers.

x.npz has the samples; NAME.npy is what `predict` gives for its first 16, of each model that has
the same answer twice.
"""

import sys
from pathlib import Path
from typing import Any

_OWN = """\
import keras


class Doubled(keras.layers.Layer):
    def call(self, x, training=True):
        return x * 2 if training else x


class Noisy(keras.layers.Layer):
    def __init__(self, **rest):
        super().__init__(**rest)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


class Sampled(keras.layers.Layer):
    def __init__(self, **rest):
        super().__init__(**rest)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, inputs, training=None):
        mean, log_variance = inputs
        if not training:
            return mean
        noise = keras.random.normal(keras.ops.shape(mean), seed=self.seed)
        return mean + keras.ops.exp(0.5 * log_variance) * noise


class StochasticDepth(keras.layers.Layer):
    def __init__(self, rate=0.5, **rest):
        super().__init__(**rest)
        self.rate = rate
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x, training=True):
        if not training:
            return x
        shape = (keras.ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        kept = keras.ops.floor(1 - self.rate + keras.random.uniform(shape, seed=self.seed))
        return x / (1 - self.rate) * kept


class Untold(keras.Model):
    def call(self, inputs):
        return super().call(inputs)
"""
_SHAPE = (24, 24, 3)


def _augmentation(k: Any) -> Any:
    layers = k.layers
    return k.Sequential(
        [
            k.Input(_SHAPE),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.RandomZoom(0.1),
            layers.RandomContrast(0.1),
            layers.RandomBrightness(0.1),
            layers.RandomTranslation(0.1, 0.1),
        ],
        name="data_augmentation",
    )


def _classifier(k: Any, *, augmentation: Any = None, normal: Any = None, drop: Any = None) -> Any:
    """A small image classifier; `normal` and `drop` are `training` of these layers."""
    layers = k.layers
    x = image = k.Input(_SHAPE, name="image")
    x = augmentation(x) if augmentation else x
    x = layers.Rescaling(1 / 255)(x)
    x = layers.Conv2D(6, 3, name="conv")(x)
    x = layers.BatchNormalization(name="bnorm")(x, training=normal)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(x))
    x = layers.Dropout(0.3, name="drop")(layers.Dense(8, name="dense")(x), training=drop)
    return k.Model(image, layers.Dense(3, name="head")(x))


def _autoencoder_head(k: Any, own: Any) -> Any:
    layers = k.layers
    image = k.Input(_SHAPE, name="image")
    x = layers.Flatten()(layers.Rescaling(1 / 255)(image))
    mean, log_variance = layers.Dense(4, name="mean")(x), layers.Dense(4, name="spread")(x)
    return k.Model(image, layers.Dense(2)(own.Sampled(name="sampled")([mean, log_variance])))


def _untold(keras: Any, own: Any, augmentation: Any = None) -> Any:
    """A model whose `call` has no argument `training`, so that `predict` says nothing of it."""
    layers = keras.layers
    x = image = keras.Input(_SHAPE, name="image")
    x = augmentation(x) if augmentation else x
    x = layers.BatchNormalization()(layers.Conv2D(4, 3)(layers.Rescaling(1 / 255)(x)))
    x = layers.Dense(3)(layers.Dropout(0.5)(layers.Flatten()(x)))
    return own.Untold(image, own.Doubled()(x))


def _answering(keras: Any, own: Any, k2: Any) -> dict[str, Any]:
    """The models whose `predict` answers the same twice."""
    layers = keras.layers
    pipeline = keras.Sequential(
        [keras.Input(_SHAPE), layers.RandAugment((0, 255)), layers.AugMix((0, 255))], name="mixed"
    )
    depth = keras.Sequential(
        [
            keras.Input(_SHAPE, name="image"),
            layers.Conv2D(3, 3),
            own.StochasticDepth(),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    doubled = keras.Sequential(
        [keras.Input(_SHAPE, name="image"), own.Doubled(), layers.Flatten(), layers.Dense(2)]
    )
    nested_image = keras.Input(_SHAPE, name="image")
    nested = keras.Model(
        nested_image,
        layers.Dense(2)(_classifier(keras, augmentation=_augmentation(keras))(nested_image)),
    )
    return {
        "tutorial": _classifier(keras, augmentation=_augmentation(keras)),
        "mixed": _classifier(keras, augmentation=pipeline),
        "depth": depth,
        "doubled": doubled,
        "nested": nested,
        "sampled": _autoencoder_head(keras, own),
        "untold": _untold(keras, own),
        "two_tutorial": _classifier(k2, augmentation=_augmentation(k2)),
    }


def write(root: Path) -> None:
    """Write everything into `root`."""
    import keras
    import numpy as np
    import tensorflow as tf
    import tf_keras
    from saved_functions import save

    (root / "own_layers.py").write_text(_OWN)
    sys.path.insert(0, str(root))
    import own_layers as own

    keras.utils.set_random_seed(5)
    rng = np.random.default_rng(1)
    x = np.cumsum(np.cumsum(rng.normal(size=(40, *_SHAPE)), 1), 2).astype(np.float32)
    x = (x - x.min()) / np.ptp(x) * 255
    np.savez(root / "x.npz", image=x)

    def settle(model: Any) -> None:
        """Moving averages of these samples, as a trained model has them."""
        for _ in range(40):
            model(x[:16], training=True)

    for name, model in _answering(keras, own, tf_keras).items():
        settle(model)
        model.save(root / f"{name}.keras")
        np.save(root / f"{name}.npy", model.predict(x[:16], verbose=0))
        if name == "two_tutorial":
            model.save(root / "two_tutorial")
            model.save(root / "two_tutorial.h5")

    augmented = _untold(keras, own, keras.layers.RandomFlip())
    augmented.save(root / "untold_augmented.keras")

    for k, prefix in ((keras, "three"), (tf_keras, "two")):
        _classifier(k, normal=True).save(root / f"{prefix}_normal.keras")
        _classifier(k, drop=True).save(root / f"{prefix}_drop.keras")
    noisy = keras.Sequential(
        [keras.Input(_SHAPE, name="image"), keras.layers.Flatten(), own.Noisy(name="noisy")]
    )
    noisy.save(root / "noisy.keras")
    tutorial = _classifier(keras, augmentation=_augmentation(keras))
    tutorial.export(str(root / "three_exported"), verbose=False)
    for name, options in (("normal", {"normal": True}), ("drop", {"drop": True})):
        _classifier(tf_keras, **options).save(root / f"two_{name}")
    model = _classifier(tf_keras)
    save(
        root / "two_training",
        lambda image: {"y": model(image, training=True)},
        image=[None, *_SHAPE],
    )
    weight = tf.Variable(rng.normal(size=(4, 3)).astype(np.float32))
    save(
        root / "fixed_seed",
        lambda x: {"y": x @ weight + tf.random.stateless_normal([3], seed=[1, 2])},
        x=[None, 4],
    )
    sample = tf_keras.Input((5, 6), batch_size=1)
    tf_keras.Model(sample, tf_keras.layers.LayerNormalization()(sample)).save(
        root / "two_layer_normal"
    )
