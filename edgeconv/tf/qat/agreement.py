"""Whether a flat model gives what the original gives, and where they part if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused, VerificationFailed
from edgeconv.tf.keras_io import graph_of, structured
from edgeconv.tf.qat.graph import LayerUse, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.tf.qat.flat import Flat, LayerStep

TOLERANCE = 1e-5
_BATCH = 32
_FLOATS = ("float16", "bfloat16", "float64")


def max_error(original: Any, flat: Flat, arrays: dict[str, Any]) -> float:
    """The largest difference between the outputs of two models on samples.

    Of an output, that is the largest absolute difference, divided by the largest magnitude of
    the original's where that is above 1. `arrays` are by input, (n, *sample_shape). A model that
    computes in other floats than float32 is compared as float32. Raises `VerificationFailed`,
    naming the first layer at which they part, where it is above 1e-5.
    """
    reference = as_float32(original)
    worst = 0.0
    for batch in _batches(flat, arrays):
        pairs = zip(_outputs(reference, batch), _outputs(flat.model, batch), strict=True)
        error = max(_difference(one, other) for one, other in pairs)
        if not error <= TOLERANCE:
            raise _parted(reference, flat, batch, error)
        worst = max(worst, error)
    return worst


def as_float32(model: Any) -> Any:
    """The model computing in float32, with the same weights; itself if it does so already."""
    config = model.get_config()
    changed = _floats_replaced(config)
    if changed == config:
        return model
    widened = type(model).from_config(changed)
    widened.set_weights(
        [one.astype("float32") if one.dtype.kind in "fV" else one for one in model.get_weights()]
    )
    return widened


def computes_in_other_floats(model: Any) -> bool:
    """Whether a model computes in floats other than float32."""
    config = model.get_config()
    return bool(_floats_replaced(config) != config)


def _floats_replaced(config: Any) -> Any:
    # A constant in the graph says of what type it is, too.
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
    import numpy as np

    if set(arrays) != set(flat.input_names):
        raise InputRefused(
            f"the samples are for {_quoted(arrays)}, the model takes {_quoted(flat.input_names)}",
            hint="name each array after the input it is for",
        )
    inputs = flat.model.inputs
    size = next((one.shape[0] for one in inputs if one.shape[0] is not None), _BATCH)
    count = len(next(iter(arrays.values())))
    for start in range(0, count - count % size or count, size):
        yield [
            np.asarray(arrays[name][start : start + size]).astype(one.dtype.name)
            for name, one in zip(flat.input_names, inputs, strict=True)
        ]


def _outputs(model: Any, batch: list[Any]) -> list[Any]:
    import tensorflow as tf

    return [one.numpy() for one in tf.nest.flatten(model(structured(model, batch), training=False))]


def _difference(original: Any, other: Any) -> float:
    """See `max_error`; infinite for another shape, or where only one is finite."""
    import numpy as np

    if original.shape != other.shape:
        return float("inf")
    one, two = original.astype("float64"), other.astype("float64")
    finite = np.isfinite(one)
    if not (finite == np.isfinite(two)).all() or not np.array_equal(
        one[~finite], two[~finite], equal_nan=True
    ):
        return float("inf")
    apart = np.abs(one[finite] - two[finite]).max(initial=0.0)
    return float(apart / max(1.0, np.abs(one[finite]).max(initial=0.0)))


def _parted(reference: Any, flat: Flat, batch: list[Any], error: float) -> VerificationFailed:
    where = (
        ""
        if (step := _first_apart(reference, flat, batch)) is None
        else (f"; they part at {step.name} ({step.kind})")
    )
    return VerificationFailed(
        f"the model built in tf_keras does not compute what the original does: its outputs are "
        f"{error:.2g} apart, {TOLERANCE:g} is allowed{where}",
        hint="put another layer in that place, or convert it without quantization-aware training",
    )


def _first_apart(reference: Any, flat: Flat, batch: list[Any]) -> LayerStep | None:
    """The first step, in order, whose results differ; None where only the last ones do."""
    import tf_keras

    measured: list[list[Any]] = []

    def run(use: LayerUse) -> Any:
        import tensorflow as tf

        results = tf.nest.flatten(_run(use))
        measured.append(results)
        return results

    graph = graph_of(reference)
    walk(graph, batch, run)
    tensors = [one for step in flat.steps for one in step.outputs if hasattr(one, "shape")]
    model = tf_keras.Model(flat.model.inputs, tensors)
    values = iter(_outputs(model, batch))
    for step, results in zip(flat.steps, measured, strict=True):
        for tensor, result in zip(step.outputs, results, strict=True):
            if not hasattr(tensor, "shape"):
                continue
            if not _difference(result.numpy(), next(values)) <= TOLERANCE:
                return step
    return None


def _run(use: LayerUse) -> Any:
    import inspect

    takes = inspect.signature(use.operation.call).parameters
    training = {"training": False} if "training" in takes else {}
    return use.operation(*use.args, **use.kwargs, **training)


def _quoted(names: Any) -> str:
    return ", ".join(map(repr, names))
