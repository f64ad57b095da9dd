"""Reading and editing .tflite files without running them."""

from edgeconv.tflite.blocks import with_sound_blocks
from edgeconv.tflite.compatibility import oldest_runtime
from edgeconv.tflite.contents import (
    activation_bounds,
    int8_kernels,
    largest_scales,
    most_distinct,
    vocabularies,
    zero_share,
)
from edgeconv.tflite.edit import (
    ensure_signature,
    update_format,
    with_input_shapes,
    with_uint8_io,
    without_shape_bridges,
)
from edgeconv.tflite.layers import FloatLayer, float_layers
from edgeconv.tflite.softmax import SoftmaxInput, with_softmax_inputs
from edgeconv.tflite.summary import is_quantized, output_steps, summarize

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
