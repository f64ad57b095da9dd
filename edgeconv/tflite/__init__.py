"""Reading and editing .tflite files without running them."""

from edgeconv.tflite.biases import clipped_biases, sum_units, with_fitting_biases
from edgeconv.tflite.blocks import with_sound_blocks
from edgeconv.tflite.bridges import without_float_bridges
from edgeconv.tflite.compatibility import oldest_runtime
from edgeconv.tflite.contents import (
    activation_bounds,
    inner_ranges,
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
    with_unique_names,
    with_weights_inside,
)
from edgeconv.tflite.halves import with_half_biases
from edgeconv.tflite.layers import FloatLayer, float_layers, multiplications
from edgeconv.tflite.logits import Logits, with_logits
from edgeconv.tflite.recurrent import with_small_lstms
from edgeconv.tflite.softmax import SoftmaxInput, with_softmax_inputs
from edgeconv.tflite.summary import is_quantized, output_steps, steps_by_output, summarize

__all__ = [
    "FloatLayer",
    "Logits",
    "SoftmaxInput",
    "activation_bounds",
    "clipped_biases",
    "update_format",
    "ensure_signature",
    "float_layers",
    "inner_ranges",
    "int8_kernels",
    "is_quantized",
    "largest_scales",
    "most_distinct",
    "multiplications",
    "oldest_runtime",
    "output_steps",
    "steps_by_output",
    "sum_units",
    "summarize",
    "vocabularies",
    "with_fitting_biases",
    "with_input_shapes",
    "with_logits",
    "with_half_biases",
    "with_small_lstms",
    "with_softmax_inputs",
    "with_sound_blocks",
    "with_uint8_io",
    "with_unique_names",
    "with_weights_inside",
    "without_float_bridges",
    "zero_share",
]
