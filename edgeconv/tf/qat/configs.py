"""How tfmot's wrappers quantize: to 8 bits, as its default scheme does, with corrections.

tfmot quantizes the kernel of a depthwise convolution with one scale for all channels. The
quantizers here are tfmot's with that corrected.
"""

import math
from functools import cache
from typing import Any, Literal, NamedTuple

from edgeconv.tf.environment import model_optimization
from edgeconv.tf.lazy import tf, tf_keras

# The dimension of a kernel with a scale per channel: the last, the last two of a depthwise kernel,
# or none, with one scale for the whole tensor.
Scales = Literal["last", "depthwise", "tensor"]

# With which tfmot initializes all ranges.
UNKNOWN_RANGE = 6.0
# The attribute that holds the kernel, and its scales, by the class of the layer.
KERNELS: dict[str, tuple[str, Scales]] = {
    "Conv2D": ("kernel", "last"),
    "DepthwiseConv2D": ("depthwise_kernel", "depthwise"),
    # The converter does not follow a scale per channel through the transposed kernel.
    "Conv2DTranspose": ("kernel", "tensor"),
    # With a scale per channel, it does not load in older runtimes.
    "Dense": ("kernel", "tensor"),
    "Embedding": ("embeddings", "tensor"),
}


class Classes(NamedTuple):
    """Classes derived from tfmot's and tf_keras's, once these are imported."""

    kernel_config: Any
    range_layer: Any
    range_quantizer: Any
    wrapper: Any
    batch_norm: Any


@cache
def classes() -> Classes:
    """The classes. Raises `ToolFailed` where tfmot is not installed."""
    tfmot = model_optimization()
    from tensorflow_model_optimization.python.core.quantization.keras import (
        quantize_layer,
        quantize_wrapper,
    )

    quantization = tfmot.quantization.keras
    kernel_quantizer = _kernel_quantizer(quantization.quantizers.LastValueQuantizer)
    return Classes(
        kernel_config=_kernel_config(quantization.QuantizeConfig, kernel_quantizer),
        range_layer=quantize_layer.QuantizeLayer,
        range_quantizer=_range_quantizer(quantization.quantizers.MovingAverageQuantizer),
        wrapper=quantize_wrapper.QuantizeWrapperV2,
        batch_norm=_batch_norm(tf_keras.layers.BatchNormalization),
    )


def _range_quantizer(moving_average: Any) -> Any:
    class RangeQuantizer(moving_average):  # type: ignore[misc]
        """Fake quantization of a layer's output, its range a moving average.

        `before_softmax`: values too far below the largest of every row to change the softmax's
        output by a step are clipped, as in `edgeconv.quantize.ranges.softmax`.
        """

        def __init__(self, before_softmax: bool = False) -> None:
            super().__init__(num_bits=8, per_axis=False, symmetric=False, narrow_range=False)
            self.before_softmax = before_softmax

        def counted(self, values: Any) -> Any:
            """The values that count for the range, (..., channels)."""
            if not self.before_softmax:
                return values
            lowest_peak = tf.reduce_min(tf.reduce_max(values, axis=-1))
            return tf.maximum(values, lowest_peak - math.log(2 * 256 * values.shape[-1]))

        def __call__(self, inputs: Any, training: Any, weights: Any, **kwargs: Any) -> Any:
            values = self.counted(inputs) if training else inputs
            return super().__call__(values, training, weights, **kwargs)

        def get_config(self) -> Any:
            return {"before_softmax": self.before_softmax}

    return RangeQuantizer


def _kernel_quantizer(last_value: Any) -> Any:
    class KernelQuantizer(last_value):  # type: ignore[misc]
        """Fake quantization of a kernel: symmetric, -127 to 127, over the range of its values."""

        def __init__(self, scales: Scales) -> None:
            super().__init__(
                num_bits=8, per_axis=scales != "tensor", symmetric=True, narrow_range=True
            )
            self.scales = scales

        def build(self, tensor_shape: Any, name: str, layer: Any) -> Any:
            shape = _channels_last_shape(tuple(tensor_shape), self.scales)
            channels = [] if self.scales == "tensor" else [shape[-1]]
            return {
                f"{end}_var": _range_weight(layer, name, end, channels) for end in ("min", "max")
            }

        def __call__(self, inputs: Any, training: Any, weights: Any, **kwargs: Any) -> Any:
            kernel = tf.convert_to_tensor(inputs)
            shape = _channels_last_shape(tuple(kernel.shape), self.scales)
            channels_last = tf.reshape(kernel, shape)
            quantized = super().__call__(channels_last, training, weights, **kwargs)
            return tf.reshape(quantized, kernel.shape)

        def get_config(self) -> Any:
            return {"scales": self.scales}

    return KernelQuantizer


def _range_weight(layer: Any, name: str, end: str, shape: list[int]) -> Any:
    return layer.add_weight(
        f"{name}_{end}",
        shape=shape,
        initializer=tf.constant_initializer(UNKNOWN_RANGE if end == "max" else -UNKNOWN_RANGE),
        trainable=False,
        # The kernel and its range are the same on every replica; without this some strategies
        # refuse the assignment, and others let the replicas differ.
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def _channels_last_shape(shape: tuple[int, ...], scales: Scales) -> tuple[int, ...]:
    if scales != "depthwise":
        return shape
    height, width, channels, multiplier = shape
    # The converter's own shape of a depthwise kernel, the only one that it follows.
    return (1, height, width, channels * multiplier)


def _kernel_config(quantize_config: Any, kernel_quantizer: Any) -> Any:
    class KernelConfig(quantize_config):  # type: ignore[misc]
        """Quantizes the kernel of a layer, and nothing else."""

        def __init__(self, attribute: str, scales: Scales) -> None:
            self.attribute = attribute
            self.quantizer = kernel_quantizer(scales)

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

        With `trainable=False` it uses its moving statistics and does not change them, as in Keras.
        In an integer model its offsets are the only biases.
        """

        @property
        def trainable_weights(self) -> Any:
            return [weight for weight in (self.gamma, self.beta) if weight is not None]

        @property
        def non_trainable_weights(self) -> Any:
            return [self.moving_mean, self.moving_variance]

    return FreezableBatchNormalization
