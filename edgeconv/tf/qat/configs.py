"""How tfmot's wrappers are to quantize: 8 bits, as its default scheme does, with what it lacks.

tfmot's own configs quantize the kernel of a depthwise convolution with one scale for all
channels, and its quantizers of kept zeros and kept clusters know two kinds of layers; the
cluster-keeping one also gives each channel of a convolution a scale of its own, with which
16 different floats become up to 16 different integers a channel. The quantizers here are
tfmot's with that mended.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal, NamedTuple

from edgeconv.tf.environment import model_optimization

# Where the channels of a kernel are that have a scale each: the last dimension, the last two of
# a depthwise kernel, or nowhere, one scale for the whole tensor.
Scales = Literal["last", "depthwise", "tensor"]
# What the training has to keep of the kernel it starts from.
Kept = Literal["nothing", "zeros", "clusters", "zeros and clusters"]

# What tfmot starts all ranges with.
UNKNOWN_RANGE = 6.0
# The attribute that holds the kernel, and its scales, by the class of the layer.
KERNELS: dict[str, tuple[str, Scales]] = {
    "Conv2D": ("kernel", "last"),
    "DepthwiseConv2D": ("depthwise_kernel", "depthwise"),
    # The converter does not follow a scale a channel through this one's transposed kernel.
    "Conv2DTranspose": ("kernel", "tensor"),
    # Its kernels with a scale a channel do not load in older runtimes.
    "Dense": ("kernel", "tensor"),
    "Embedding": ("embeddings", "tensor"),
}


class Classes(NamedTuple):
    """Classes on top of tfmot's and tf_keras', which exist once those are imported."""

    kernel_quantizer: Any
    kernel_config: Any
    range_layer: Any
    range_quantizer: Any
    wrapper: Any
    batch_norm: Any


@cache
def classes() -> Classes:
    """The classes. Raises `ToolFailed` where tfmot is not installed."""
    tfmot = model_optimization()
    import tf_keras
    from tensorflow_model_optimization.python.core.quantization.keras import (
        quantize_layer,
        quantize_wrapper,
    )

    quantization = tfmot.quantization.keras
    kernel_quantizer = _kernel_quantizer(quantization.quantizers.LastValueQuantizer)
    return Classes(
        kernel_quantizer=kernel_quantizer,
        kernel_config=_kernel_config(quantization.QuantizeConfig, kernel_quantizer),
        range_layer=quantize_layer.QuantizeLayer,
        range_quantizer=_range_quantizer(quantization.quantizers.MovingAverageQuantizer),
        wrapper=quantize_wrapper.QuantizeWrapperV2,
        batch_norm=_batch_norm(tf_keras.layers.BatchNormalization),
    )


def _range_quantizer(moving_average: Any) -> Any:
    import tensorflow as tf

    class RangeQuantizer(moving_average):  # type: ignore[misc]
        """Fake quantization of what a layer gives, its range followed by a moving average.

        `before_softmax`: what lies so far below the largest value of every row that no step of
        the softmax's output tells of it is cut off, as `edgeconv.quantize.ranges.softmax` does it.
        """

        def __init__(self, before_softmax: bool = False) -> None:
            super().__init__(num_bits=8, per_axis=False, symmetric=False, narrow_range=False)
            self.before_softmax = before_softmax

        def seen(self, values: Any) -> Any:
            """The values without those that are not to count for the range."""
            if not self.before_softmax:
                return values
            lowest_peak = tf.reduce_min(tf.reduce_max(values, axis=-1))
            return tf.maximum(values, lowest_peak - math.log(2 * 256 * values.shape[-1]))

        def __call__(self, inputs: Any, training: Any, weights: Any, **kwargs: Any) -> Any:
            values = self.seen(inputs) if training else inputs
            return super().__call__(values, training, weights, **kwargs)

        def get_config(self) -> Any:
            return {"before_softmax": self.before_softmax}

    return RangeQuantizer


def _kernel_quantizer(last_value: Any) -> Any:
    import tensorflow as tf

    class KernelQuantizer(last_value):  # type: ignore[misc]
        """Fake quantization of a kernel: symmetric, -127 to 127, the range that of its values.

        `kept` is read off the kernel when the wrapper is built, which has its values by then.
        Clusters are kept by giving each of its weights their mean: so all get the same
        gradient, and nothing has to be assigned while replicas run.
        """

        def __init__(self, scales: Scales, kept: Kept) -> None:
            super().__init__(
                num_bits=8, per_axis=scales != "tensor", symmetric=True, narrow_range=True
            )
            self.scales = scales
            self.kept = kept

        def build(self, tensor_shape: Any, name: str, layer: Any) -> Any:
            kernel = getattr(layer.layer, name)
            shape = _channels_last_shape(tuple(tensor_shape), self.scales)
            channels = [] if self.scales == "tensor" else [shape[-1]]
            ends = {end: _range_weight(layer, name, end, channels) for end in ("min", "max")}
            variables = {f"{end}_var": variable for end, variable in ends.items()}
            return {**variables, **_structure(kernel.numpy(), self.kept)}

        def structured(self, kernel: Any, weights: Any) -> Any:
            """The kernel with what is to be kept of it put back."""
            if "assignment" in weights:
                flat = tf.reshape(kernel, [-1])
                count = weights["count"]
                means = tf.math.unsorted_segment_mean(flat, weights["assignment"], count)
                kernel = tf.reshape(tf.gather(means, weights["assignment"]), kernel.shape)
            return kernel * weights["mask"] if "mask" in weights else kernel

        def __call__(self, inputs: Any, training: Any, weights: Any, **kwargs: Any) -> Any:
            kernel = self.structured(tf.convert_to_tensor(inputs), weights)
            shape = _channels_last_shape(tuple(kernel.shape), self.scales)
            channels_last = tf.reshape(kernel, shape)
            made = super().__call__(channels_last, training, weights, **kwargs)
            return tf.reshape(made, kernel.shape)

        def get_config(self) -> Any:
            return {"scales": self.scales, "kept": self.kept}

    return KernelQuantizer


def _range_weight(layer: Any, name: str, end: str, shape: list[int]) -> Any:
    import tensorflow as tf

    return layer.add_weight(
        f"{name}_{end}",
        shape=shape,
        initializer=tf.constant_initializer(UNKNOWN_RANGE if end == "max" else -UNKNOWN_RANGE),
        trainable=False,
        # The kernel is the same on every replica, and so is its range; without this some
        # strategies refuse its assignment, and others do not keep the replicas alike.
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _channels_last_shape(shape: tuple[int, ...], scales: Scales) -> tuple[int, ...]:
    if scales != "depthwise":
        return shape
    height, width, channels, multiplier = shape
    # The shape that the converter gives a depthwise kernel itself; it follows no other.
    return (1, height, width, channels * multiplier)


def _structure(kernel: Any, kept: Kept) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    found: dict[str, Any] = {}
    if "clusters" in kept:
        values, assignment = np.unique(kernel, return_inverse=True)
        found["assignment"] = tf.constant(assignment.reshape(-1).astype(np.int32))
        found["count"] = len(values)
    if "zeros" in kept and not kernel.all():
        found["mask"] = tf.constant((kernel != 0).astype(kernel.dtype))
    return found


def _kernel_config(quantize_config: Any, kernel_quantizer: Any) -> Any:
    class KernelConfig(quantize_config):  # type: ignore[misc]
        """Quantize the kernel of a layer, and nothing else of it."""

        def __init__(self, attribute: str, scales: Scales, kept: Kept = "nothing") -> None:
            self.attribute = attribute
            self.quantizer = kernel_quantizer(scales, kept)

        def get_weights_and_quantizers(self, layer: Any) -> Any:
            return [(getattr(layer, self.attribute), self.quantizer)]

        def set_quantize_weights(self, layer: Any, quantize_weights: Any) -> None:
            setattr(layer, self.attribute, quantize_weights[0])

        def get_activations_and_quantizers(self, layer: Any) -> Any:  # noqa: ARG002
            return []

        def set_quantize_activations(self, layer: Any, quantize_activations: Any) -> None:
            del layer, quantize_activations

        def get_output_quantizers(self, layer: Any) -> Any:  # noqa: ARG002
            return []

        def get_config(self) -> Any:
            return {"attribute": self.attribute, **self.quantizer.get_config()}

    return KernelConfig


def _batch_norm(batch_normalization: Any) -> Any:
    class FreezableBatchNormalization(batch_normalization):  # type: ignore[misc]
        """Batch normalization whose scale and offset are trained even if it is not trainable.

        What `trainable=False` does besides, as in Keras: it uses its moving statistics, and
        leaves them as they are. In an integer model its offsets are the only biases there are.
        """

        @property
        def trainable_weights(self) -> Any:
            return [one for one in (self.gamma, self.beta) if one is not None]

        @property
        def non_trainable_weights(self) -> Any:
            return [self.moving_mean, self.moving_variance]

    return FreezableBatchNormalization
