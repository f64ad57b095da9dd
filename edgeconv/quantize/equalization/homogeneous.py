"""Operators that a factor for each channel passes through unchanged.

They are positively homogeneous, f(s x) = s f(x) for s > 0, and keep channels apart. Channels
are the last axis, so that an element's channel is its place in memory modulo their number.
Reshapes leave that alone, and a flattening can be followed like any other operator.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import is_constant, operator_name, type_names
from edgeconv.tflite.uses import OperatorUse, shape_of, use_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

_ELEMENTWISE = frozenset({"LEAKY_RELU", "RELU"})
_RESHAPES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_POOLS = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D"})
_RESIZES = frozenset({"RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"})
_PADS = frozenset({"MIRROR_PAD", "PAD"})
_BLOCKS = frozenset({"BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND"})
# A constant that is added to a channel comes out of these as it went in.
_SHIFTING = _RESHAPES | _POOLS | _RESIZES | {"MEAN", "MIRROR_PAD"}


def why_blocked(model: ModelT, graph: SubGraphT, operator: OperatorT, channels: int) -> str:
    """Why factors for `channels` channels do not pass the operator; "" where they do.

    They come in by its first input.
    """
    use = use_of(model, graph, operator)
    if use.name in _ELEMENTWISE | _RESHAPES:
        return ""
    if use.name == "PRELU":
        slopes = use.input(1)
        known = slopes is not None and is_constant(model, slopes)
        return "" if known else "PRELU with computed slopes follows"
    if not _keeps_channels(model, use, channels):
        return f"{use.name} follows"
    return why_bent(operator)


def why_bent(operator: OperatorT) -> str:
    """Why the operator's fused activation is not homogeneous; "" where it is, or has none."""
    name = fused_activation(operator)
    return "" if name in {"NONE", "RELU"} else f"{name} follows"


def fused_activation(operator: OperatorT) -> str:
    """The schema's name of the activation that the operator ends with, "NONE" for none."""
    code = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
    return _activations().get(code, f"activation {code}")


def rectifies(model: ModelT, operator: OperatorT) -> bool:
    """Whether the operator ends with a RELU, or is one."""
    return operator_name(model, operator) == "RELU" or fused_activation(operator) == "RELU"


def shifts(model: ModelT, operator: OperatorT) -> bool:
    """Whether a constant that is taken off a channel is missing from its output as it is.

    For a RELU that is so where no value is smaller than the constant.
    """
    return operator_name(model, operator) in _SHIFTING | {"RELU"}


@cache
def _activations() -> dict[int, str]:
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    named = vars(ActivationFunctionType).items()
    return {code: name for name, code in named if name[0] != "_"}


def _keeps_channels(model: ModelT, use: OperatorUse, channels: int) -> bool:
    """Whether an operator over space leaves the last axis alone, which holds the channels."""
    width = last_dimension(use.input(0))
    if width is None or width % channels:
        return False
    axis = use.rank(0) - 1
    if use.name in _POOLS | _RESIZES:
        return axis == 3
    values = _integers(model, use.input(1))
    if values is None or values.size == 0:
        return False
    if use.name == "MEAN":
        return axis not in values % (axis + 1)
    if use.name in _PADS:
        return values.size == 2 * axis + 2 and not values[-2:].any()
    return use.name in _BLOCKS and values.size < axis


def last_dimension(tensor: TensorT | None) -> int | None:
    """The size of the tensor's last axis; None where there is none or it is dynamic."""
    shape = shape_of(tensor)
    if tensor is None or not shape:
        return None
    signs = tensor.shapeSignature
    dynamic = signs is not None and len(signs) and int(signs[-1]) == -1
    return None if dynamic or shape[-1] < 1 else shape[-1]


def _integers(model: ModelT, tensor: TensorT | None) -> NDArray[np.integer] | None:
    import numpy as np

    if tensor is None or not is_constant(model, tensor):
        return None
    if type_names()[tensor.type] not in {"int32", "int64"}:
        return None
    dtype = np.dtype(type_names()[tensor.type])
    data = bytes(model.buffers[tensor.buffer].data)
    return None if len(data) % dtype.itemsize else np.frombuffer(data, dtype)
