"""The functions of TensorFlow that a layer of tf_keras may call: those that compute."""

from __future__ import annotations

import re

# A list of this length is read better as text.
# ruff: noqa: SIM905

# Functions of TensorFlow that compute: those of these modules, and these.
_PURE_MODULES = re.compile(
    r"(compat\.v1\.)?(math|nn|linalg|signal|strings|bitwise|random|image|sparse|ragged|"
    r"quantization|__operators__|__internal__\.nn)\.[\w.]+"
)
_IMPURE = re.compile(r".*\.(set_random_seed|set_seed|map_flat_values|map_values)")
_PURE = frozenset(
    "abs acos acosh add add_n argmax argmin argsort asin asinh atan atan2 atanh batch_to_space "
    "bitcast boolean_mask broadcast_to cast ceil clip_by_global_norm clip_by_norm clip_by_value "
    "complex concat constant convert_to_tensor cos cosh cumsum divide dynamic_partition "
    "dynamic_stitch edit_distance einsum ensure_shape equal exp expand_dims eye fill floor "
    "floordiv gather gather_nd greater greater_equal histogram_fixed_width identity identity_n "
    "is_tensor less less_equal linspace log logical_and logical_not logical_or matmul maximum "
    "meshgrid minimum mod multiply negative norm not_equal one_hot ones ones_like pad pow range "
    "rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum repeat reshape reverse reverse_sequence roll round saturate_cast "
    "scalar_mul scatter_nd searchsorted sequence_mask shape shape_n sigmoid sign sin sinh size "
    "slice sort space_to_batch space_to_batch_nd split sqrt square squeeze stack stop_gradient "
    "strided_slice subtract sum tan tanh tensor_scatter_nd_add tensor_scatter_nd_max "
    "tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile "
    "to_bfloat16 to_double to_float to_int32 to_int64 transpose truediv truncatediv truncatemod "
    "unique unique_with_counts unravel_index unsorted_segment_max unsorted_segment_mean "
    "unsorted_segment_min unsorted_segment_sum unstack where where_v2 zeros zeros_like "
    "floor_div depth_to_space space_to_depth squared_difference rsqrt to_complex64 erf lgamma "
    "arg_max arg_min extract_volume_patches".split()
)


def computes_only(name: str) -> bool:
    """Whether a function of TensorFlow, as "math.sin", computes and does nothing else."""
    if name.removeprefix("compat.v1.") in _PURE:
        return True
    return _PURE_MODULES.fullmatch(name) is not None and _IMPURE.fullmatch(name) is None
