"""Whether a flat model computes what the original does, and the first layer that differs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.errors import InputRefused, VerificationFailed
from edgeconv.tf.keras_io import graph_of, pack_inputs
from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.graph import LayerUse, walk
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.tf.qat.flat import Flat, LayerStep

TOLERANCE = 1e-5
_BATCH = 32
_FLOATS = ("float16", "bfloat16", "float64")


def max_error(original: Any, flat: Flat, arrays: dict[str, Any]) -> float:
    """The largest difference between the outputs of two models on samples.

    For an output it is the largest absolute difference, divided by the largest magnitude of the
    original's output where that is above 1. `arrays` are by input, (n, *sample_shape). A model
    that computes in other floats is compared in float32. Raises `VerificationFailed` with the
    first layer that differs, where the difference is above 1e-5.
    """
    reference = as_float32(original)
    worst = 0.0
    for batch in _batches(flat, arrays):
        pairs = zip(_outputs(reference, batch), _outputs(flat.model, batch), strict=True)
        error = max(_difference(original, output) for original, output in pairs)
        if not error <= TOLERANCE:
            raise _differing(reference, flat, batch, error)
        worst = max(worst, error)
    return worst


def as_float32(model: Any) -> Any:
    """The model computing in float32, with the same weights; itself where it does."""
    config = model.get_config()
    changed = _floats_replaced(config)
    if changed == config:
        return model
    widened = type(model).from_config(changed)
    weights = model.get_weights()
    widened.set_weights([w.astype("float32") if w.dtype.kind in "fV" else w for w in weights])
    return widened


def computes_in_other_floats(model: Any) -> bool:
    """Whether a model computes in floats other than float32."""
    config = model.get_config()
    return bool(_floats_replaced(config) != config)


def _floats_replaced(config: Any) -> Any:
    # A constant in the graph has a dtype, too, which stays.
    if isinstance(config, dict) and config.get("class_name") != "__numpy__":
        return {key: _replaced(key, value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_floats_replaced, config))
    return config


def _replaced(key: str, value: Any) -> Any:
    is_policy = isinstance(value, dict) and "Policy" in str(value.get("class_name"))
    if key == "dtype" and is_policy and _is_other(value["config"].get("name")):
        return "float32"
    if key == "dtype" and _is_other(value):
        return "float32"
    return _floats_replaced(value)


def _is_other(name: Any) -> bool:
    return isinstance(name, str) and name.removeprefix("mixed_") in _FLOATS


def _batches(flat: Flat, arrays: dict[str, Any]) -> Iterator[list[Any]]:
    """The samples by batch, in the order and of the types of the model's inputs."""
    if set(arrays) != set(flat.input_names):
        raise InputRefused(
            f"the samples are for {quoted(arrays)}, the model takes {quoted(flat.input_names)}",
            hint="name each array after its input",
        )
    inputs = flat.model.inputs
    size = next((tensor.shape[0] for tensor in inputs if tensor.shape[0] is not None), _BATCH)
    count = len(next(iter(arrays.values())))
    for start in range(0, count - count % size or count, size):
        yield [
            np.asarray(arrays[name][start : start + size]).astype(tensor.dtype.name)
            for name, tensor in zip(flat.input_names, inputs, strict=True)
        ]


def _outputs(model: Any, batch: list[Any]) -> list[Any]:
    outputs = model(pack_inputs(model, batch), training=False)
    return [output.numpy() for output in tf.nest.flatten(outputs)]


def _difference(original: Any, other: Any) -> float:
    """See `max_error`; infinite for another shape, or where not the same values are finite."""
    if original.shape != other.shape:
        return float("inf")
    original, other = original.astype("float64"), other.astype("float64")
    finite = np.isfinite(original)
    same_finite = (finite == np.isfinite(other)).all()
    if not same_finite or not np.array_equal(original[~finite], other[~finite], equal_nan=True):
        return float("inf")
    apart = np.abs(original[finite] - other[finite]).max(initial=0.0)
    return float(apart / max(1.0, np.abs(original[finite]).max(initial=0.0)))


def _differing(reference: Any, flat: Flat, batch: list[Any], error: float) -> VerificationFailed:
    step = _first_differing(reference, flat, batch)
    where = f"; the first layer that differs is {step.name} ({step.kind})" if step else ""
    return VerificationFailed(
        "the model built in tf_keras does not compute what the original does: its outputs differ "
        f"by {error:.2g}, above the allowed {TOLERANCE:g}{where}",
        hint="replace that layer, or convert the model without quantization-aware training",
    )


def _first_differing(reference: Any, flat: Flat, batch: list[Any]) -> LayerStep | None:
    """The first step, in order, whose results differ; None where only the outputs do."""
    measured: list[list[Any]] = []

    def run(use: LayerUse) -> Any:
        takes = inspect.signature(use.operation.call).parameters
        training = {"training": False} if "training" in takes else {}
        results = tf.nest.flatten(use.operation(*use.args, **use.kwargs, **training))
        measured.append(results)
        return results

    walk(graph_of(reference), batch, run)
    tensors = [tensor for step in flat.steps for tensor in step.outputs if hasattr(tensor, "shape")]
    model = tf_keras.Model(flat.model.inputs, tensors)
    values = iter(_outputs(model, batch))
    for step, results in zip(flat.steps, measured, strict=True):
        for tensor, result in zip(step.outputs, results, strict=True):
            has_value = hasattr(tensor, "shape")
            if has_value and not _difference(result.numpy(), next(values)) <= TOLERANCE:
                return step
    return None
