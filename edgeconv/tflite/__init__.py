"""Reading and editing .tflite files without running them."""

from edgeconv.tflite.blocks import with_sound_blocks
from edgeconv.tflite.bounds import activation_bounds, largest_scales
from edgeconv.tflite.bridges import without_shape_bridges
from edgeconv.tflite.compatibility import oldest_runtime
from edgeconv.tflite.edit import (
    ensure_signature,
    update_format,
    with_input_shapes,
    with_uint8_io,
)
from edgeconv.tflite.kernels import int8_kernels, most_distinct, zero_share
from edgeconv.tflite.layers import FloatLayer, float_layers
from edgeconv.tflite.softmax import SoftmaxInput, with_softmax_inputs
from edgeconv.tflite.summary import is_quantized, output_steps, summarize
from edgeconv.tflite.vocabularies import vocabularies

__all__ = [
    "FloatLayer",
    "SoftmaxInput",
    "activation_bounds",
    "update_format",
    "ensure_signature",
    "float_layers",
    "int8_kernels",
    "is_quantized",
    "largest_scales",
    "most_distinct",
    "oldest_runtime",
    "output_steps",
    "summarize",
    "vocabularies",
    "with_input_shapes",
    "with_softmax_inputs",
    "with_sound_blocks",
    "with_uint8_io",
    "without_shape_bridges",
    "zero_share",
]
