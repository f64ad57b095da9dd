"""Reading and editing .tflite files without running them."""

from edgeconv.model.tflite.biases import (
    clipped_biases as clipped_biases,
    sum_units as sum_units,
    with_fitting_biases as with_fitting_biases,
)
from edgeconv.model.tflite.edit import (
    ensure_signature as ensure_signature,
    update_format as update_format,
    with_fixed_sizes as with_fixed_sizes,
    with_input_shapes as with_input_shapes,
    with_open_shapes as with_open_shapes,
    with_sound_blocks as with_sound_blocks,
    with_uint8_io as with_uint8_io,
    with_unique_names as with_unique_names,
    with_weights_inside as with_weights_inside,
)
from edgeconv.model.tflite.compatibility import (
    oldest_runtime as oldest_runtime,
    with_needs_declared as with_needs_declared,
)
from edgeconv.model.tflite.summary import (
    activation_bounds as activation_bounds,
    constant_outputs as constant_outputs,
    inner_ranges as inner_ranges,
    is_quantized as is_quantized,
    largest_scales as largest_scales,
    output_steps as output_steps,
    steps_by_output as steps_by_output,
    summarize as summarize,
    unused_inputs as unused_inputs,
    vocabularies as vocabularies,
)
from edgeconv.model.tflite.stored_once import (
    with_constants_once as with_constants_once,
    with_half_biases as with_half_biases,
    with_rows_of_weights as with_rows_of_weights,
    with_scalars as with_scalars,
    with_small_tables as with_small_tables,
    with_tables_once as with_tables_once,
)
from edgeconv.model.tflite.integers import with_integer_kernels as with_integer_kernels
from edgeconv.model.tflite.layers import (
    FloatLayer as FloatLayer,
    float_layers as float_layers,
    multiplications as multiplications,
    with_asymmetric_inputs as with_asymmetric_inputs,
    with_small_lstms as with_small_lstms,
)
from edgeconv.model.tflite.softmax import (
    Logits as Logits,
    SoftmaxInput as SoftmaxInput,
    sigmoid_outputs as sigmoid_outputs,
    softmax_classes as softmax_classes,
    softmax_outputs as softmax_outputs,
    squashed_tensors as squashed_tensors,
    with_logits as with_logits,
    with_softmax_inputs as with_softmax_inputs,
)
from edgeconv.model.tflite.unread import without_unread_tensors as without_unread_tensors
