"""Small networks over images, each for the operators and shapes it brings."""

from pathlib import Path
from typing import Any

from benchmarks.coverage.drawn import COUNT, TINY_COUNT, images, keep, videos
from benchmarks.coverage.settled import library_of, save, settle

CLASSES = 5


def _classifier(
    directory: Path,
    body: Any,
    *,
    library: str = "tf_keras",
    kind: str = "saved_model",
    side: int = 24,
) -> Path:
    """What `body` (keras, x) makes of an image, pooled, under a softmax."""
    keras = library_of(library)
    image = keras.layers.Input((side, side, 3), name="image")
    x = keras.layers.GlobalAveragePooling2D()(body(keras, image))
    model = keras.Model(image, keras.layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, side, side)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, kind)


def small_cnn(directory: Path, *, library: str = "tf_keras", kind: str = "keras") -> Path:
    """Convolutions, batch norm and max pooling."""

    def body(keras: Any, x: Any) -> Any:
        for filters in (8, 16, 32):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.BatchNormalization()(x))
            x = keras.layers.MaxPooling2D()(x)
        return x

    return _classifier(directory, body, library=library, kind=kind)


def separable_and_grouped(
    directory: Path, *, library: str = "keras", kind: str = "saved_model"
) -> Path:
    """Separable and grouped convolutions."""

    def body(keras: Any, x: Any) -> Any:
        x = keras.layers.SeparableConv2D(16, 3, activation="relu")(x)
        x = keras.layers.Conv2D(16, 3, groups=4, activation="relu")(x)
        return keras.layers.SeparableConv2D(24, 3, strides=2, activation="relu")(x)

    return _classifier(directory, body, library=library, kind=kind)


def depthwise_only(directory: Path, *, library: str = "tf_keras", kind: str = "h5") -> Path:
    """Depthwise convolutions alone, with a multiplier, strides and a dilation."""

    def body(keras: Any, x: Any) -> Any:
        x = keras.layers.DepthwiseConv2D(3, depth_multiplier=4, activation="relu")(x)
        x = keras.layers.DepthwiseConv2D(3, strides=2, padding="same", activation="relu")(x)
        return keras.layers.DepthwiseConv2D(3, dilation_rate=2, activation="relu")(x)

    return _classifier(directory, body, library=library, kind=kind)


def squeeze_excite(directory: Path) -> Path:
    """Hard swish, and channels weighted by a hard sigmoid of their mean."""

    def body(keras: Any, x: Any) -> Any:
        layers = keras.layers
        x = _hard_swish(layers, layers.Conv2D(16, 3, padding="same")(x))
        for _ in range(2):
            weight = layers.GlobalAveragePooling2D(keepdims=True)(x)
            weight = layers.Conv2D(16, 1)(layers.Conv2D(4, 1, activation="relu")(weight))
            weight = layers.ReLU(6.0)(weight + 3.0) * (1.0 / 6.0)
            x = _hard_swish(layers, layers.Conv2D(16, 3, padding="same")(x * weight))
        return x

    return _classifier(directory, body)


def _hard_swish(layers: Any, x: Any) -> Any:
    return x * (layers.ReLU(6.0)(x + 3.0) * (1.0 / 6.0))


def parametric_activations(
    directory: Path, *, library: str = "tf_keras", kind: str = "saved_model"
) -> Path:
    """PReLU, ELU, leaky ReLU, SELU, softplus, softsign and swish."""

    def body(keras: Any, x: Any) -> Any:
        layers = keras.layers
        x = layers.PReLU(alpha_initializer="random_uniform", shared_axes=[1, 2])(
            layers.Conv2D(12, 3)(x)
        )
        for activation in ("elu", "selu", "softplus", "softsign", "swish"):
            x = layers.Conv2D(12, 3, activation=activation, padding="same")(x)
        return layers.LeakyReLU()(layers.Conv2D(12, 3)(x))

    return _classifier(directory, body, library=library, kind=kind)


def unet(directory: Path) -> Path:
    """An encoder and a decoder of transposed convolutions, joined at two scales."""
    keras = library_of("keras")
    layers = keras.layers
    image = layers.Input((32, 32, 3), name="image")
    fine = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    mid = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.MaxPooling2D()(fine))
    deep = layers.Conv2D(32, 3, padding="same", activation="relu")(layers.MaxPooling2D()(mid))
    x = layers.Conv2DTranspose(16, 2, strides=2, activation="relu")(deep)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.Concatenate()([x, mid]))
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Concatenate()([x, fine])
    model = keras.Model(image, layers.Conv2D(2, 1, activation="softmax")(x))
    pixels = images(COUNT, 32, 32)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, "keras")


def upsampling(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """Nearest and bilinear upsampling, and a resize to a size that is no multiple."""
    keras = library_of(library)
    layers = keras.layers
    image = layers.Input((16, 16, 3), name="image")
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.UpSampling2D(2, interpolation="nearest")(x)
    x = layers.Conv2D(12, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.Resizing(40, 40)(x)
    model = keras.Model(image, layers.Conv2D(3, 1, activation="tanh")(x))
    pixels = images(COUNT, 16, 16)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, kind)


def autoencoder(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """Fifty steps of training on its own input, through a narrow dense code."""
    keras = library_of(library)
    layers = keras.layers
    image = layers.Input((16, 16, 1), name="image")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(image)
    code = layers.Dense(12, activation="relu", name="code")(layers.Flatten()(x))
    x = layers.Reshape((8, 8, 8))(layers.Dense(512, activation="relu")(code))
    x = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x)
    model = keras.Model(image, x)
    pixels = images(TINY_COUNT, 16, 16, 1)
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.learning_rate = 0.01
    model.fit(pixels, pixels, epochs=50, batch_size=TINY_COUNT, verbose=0)
    keep(directory, image=pixels)
    return save(keras, model, directory, kind)


def siamese(directory: Path) -> Path:
    """One encoder over two images, and the distance of its answers."""
    keras = library_of("keras")
    layers = keras.layers
    left, right = (layers.Input((16, 16, 3), name=name) for name in ("left", "right"))
    encoder = keras.Sequential(
        [
            layers.Conv2D(12, 3, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(16, activation="tanh"),
        ]
    )
    apart = layers.Subtract()([encoder(left), encoder(right)])
    model = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(apart * apart))
    keep(
        directory, left=images(TINY_COUNT, 16, 16, seed=1), right=images(TINY_COUNT, 16, 16, seed=2)
    )
    return save(keras, model, directory, "saved_model")


def multi_output(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """A class, a box and a heat map from one trunk."""
    keras = library_of(library)
    layers = keras.layers
    image = layers.Input((24, 24, 3), name="image")
    x = layers.Conv2D(16, 3, strides=2, activation="relu")(image)
    x = layers.Conv2D(24, 3, activation="relu")(x)
    pooled = layers.Flatten()(layers.MaxPooling2D(3)(x))
    outputs = {
        "box": layers.Dense(4, name="box")(pooled),
        "heat": layers.Conv2D(1, 1, activation="sigmoid", name="heat")(x),
        "kind": layers.Dense(CLASSES, activation="softmax", name="kind")(pooled),
    }
    keep(directory, image=images(TINY_COUNT, 24, 24))
    return save(keras, keras.Model(image, outputs), directory, kind)


def dynamic_size(directory: Path, *, library: str, kind: str) -> Path:
    """Convolutions alone, for images of any height and width."""
    keras = library_of(library)
    layers = keras.layers
    image = layers.Input((None, None, 3), name="image")
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(image, layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, 24, 32)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, kind)


def conv3d(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """Convolution and pooling over time as well."""
    keras = library_of(library)
    layers = keras.layers
    clip = layers.Input((6, 16, 16, 1), name="clip")
    x = layers.Conv3D(8, 3, padding="same", activation="relu")(clip)
    x = layers.Conv3D(12, 3, strides=2, activation="relu")(x)
    model = keras.Model(clip, layers.Dense(CLASSES, activation="softmax")(layers.Flatten()(x)))
    values = videos(COUNT, 6, 16, 16)
    keep(directory, clip=values)
    return save(keras, settle(keras, model, values), directory, kind)


def mixer(directory: Path) -> Path:
    """An MLP mixer: layer norms, and dense layers over patches and channels in turn."""
    keras = library_of("keras")
    layers = keras.layers
    image = layers.Input((24, 24, 3), name="image")
    x = layers.Reshape((36, 24))(layers.Conv2D(24, 4, strides=4)(image))
    for _ in range(2):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(36)(layers.Dense(48, activation="gelu")(y))
        x = layers.Add()([x, layers.Permute((2, 1))(y)])
        y = layers.Dense(48, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(24)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(image, layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, 24, 24)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, "keras")


def vision_transformer(directory: Path) -> Path:
    """Patches with positions under two attention blocks."""
    keras = library_of("keras")
    layers = keras.layers
    image = layers.Input((24, 24, 3), name="image")
    x = layers.Reshape((36, 32))(layers.Conv2D(32, 4, strides=4)(image))
    x = x + layers.Embedding(36, 32)(keras.ops.arange(36))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 8)(y, y)])
        y = layers.Dense(64, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(32)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(image, layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, 24, 24)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, "saved_model")
