"""Choosing the signature of a model to convert or run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.tflite.structure import MOST_DIMENSIONS
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from edgeconv.types import Signature, SourceModel, TensorSpec

# Keras exports a model's one endpoint under two keys.
_KERAS_KEYS = frozenset({"serve", SERVING_DEFAULT})
# The ranges of the integers to which inputs and outputs are quantized.
_LIMITS = {
    "int8": range(-(2**7), 2**7),
    "uint8": range(2**8),
    "int16": range(-(2**15), 2**15),
}
_EXPORT_AGAIN = "export the model again; no converter writes such a file"


def chosen_signature(model: SourceModel, key: str | None) -> Signature:
    """The signature `key` of a SavedModel or .tflite; for None, the only one.

    The twins "serve" and "serving_default" that Keras exports, with equal inputs and outputs,
    count as one. Raises `UsageError` for an unknown key, or None with several signatures, and
    `InputRefused` without any, for inputs of unknown rank, or as `refuse_unusable`.
    """
    signature = _by_key(model, key)
    refuse_unusable(model.path, signature)
    for tensor in signature.inputs:
        if tensor.rank_known and not tensor.shape:
            raise InputRefused(
                f"{model.path}: input {tensor.name!r} of signature {signature.key!r} is a single "
                "number, which has no dimension for the samples",
                hint="export a signature in which it is fixed, or has one value for each sample",
            )
        if not tensor.rank_known:
            raise InputRefused(
                f"{model.path}: input {tensor.name!r} of signature {signature.key!r} "
                "leaves its number of dimensions open",
                hint="export the model with an input_signature that gives its shape",
            )
    return signature


def refuse_unusable(where: str, signature: Signature) -> None:
    """Raise `InputRefused` for a signature that cannot be run on samples."""
    name = f"signature {signature.key!r}" if signature.key else "its first graph"
    names = [tensor.name for tensor in signature.inputs]
    if len(set(names)) < len(names):
        raise InputRefused(f"{where}: two inputs of {name} have the same name", hint=_EXPORT_AGAIN)
    for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        if not tensors:
            raise InputRefused(
                f"{where}: {name} has no {side}s", hint="export a signature that has both"
            )
        for tensor in tensors:
            if problem := _problem(tensor, is_input=side == "input"):
                raise InputRefused(
                    f"{where}: {side} {tensor.name!r} of {name} {problem}", hint=_EXPORT_AGAIN
                )


def _problem(tensor: TensorSpec, *, is_input: bool) -> str:
    """What is wrong with a tensor alone, or ""."""
    if len(tensor.shape) > MOST_DIMENSIONS:
        return f"has {len(tensor.shape)} dimensions, which is more than any kernel takes"
    if any(size < -1 or (is_input and size == 0) for size in tensor.shape):
        return f"has the shape {list(tensor.shape)}, which no sample has"
    points = tensor.zero_point
    if len(tensor.scale) != len(points):
        return f"has {len(tensor.scale)} scales and {len(points)} zero points"
    if len(tensor.scale) > 1:
        return f"has {len(tensor.scale)} scales, where only one is possible"
    if tensor.dtype in _LIMITS and any(point not in _LIMITS[tensor.dtype] for point in points):
        return f"has the zero point {points[0]}, which {tensor.dtype} does not hold"
    if not all(math.isfinite(scale) and scale > 0 for scale in tensor.scale):
        return "has a scale that is not a positive number"
    return ""


def distinct_signatures(model: SourceModel) -> tuple[Signature, ...]:
    """All signatures to convert, only one of Keras's twins. Raises `InputRefused` without any."""
    signatures = {signature.key: signature for signature in model.signatures}
    if _are_keras_twins(signatures):
        return (signatures[SERVING_DEFAULT],)
    if not signatures:
        _by_key(model, None)
    return model.signatures


def _by_key(model: SourceModel, key: str | None) -> Signature:
    signatures = {signature.key: signature for signature in model.signatures}
    if not signatures:
        raise InputRefused(
            f"{model.path} has no signature to convert",
            hint="export it with one: model.export('DIR') in Keras, or tf.saved_model.save(..., "
            "signatures=...)",
        )
    if key in signatures:
        return signatures[key]
    if len(signatures) == 1 and (key is None or (key == SERVING_DEFAULT and "" in signatures)):
        return model.signatures[0]
    if key is None and _are_keras_twins(signatures):
        return signatures[SERVING_DEFAULT]
    if key is not None:
        raise unknown_name("signature", key, signatures)
    listed = "".join(f"\n  {_described(signature)}" for signature in model.signatures)
    raise UsageError(
        f"{model.path} has {len(signatures)} signatures:{listed}",
        hint="choose one with --signature KEY",
    )


def _are_keras_twins(signatures: dict[str, Signature]) -> bool:
    ends = [(signature.inputs, signature.outputs) for signature in signatures.values()]
    return signatures.keys() == _KERAS_KEYS and ends[0] == ends[1]


def _described(signature: Signature) -> str:
    inputs = (f"{t.name}: {t.dtype} {t.shape_text}" for t in signature.inputs)
    return f"{signature.key}({', '.join(inputs)})"
