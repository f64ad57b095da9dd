"""The user's model, opened as a flat tf_keras model that quantization can be added to."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgeconv.data import read_samples
from edgeconv.tf import keras_files
from edgeconv.tf.custom_objects import custom_objects, register
from edgeconv.tf.keras_io import graph_of, infer, pack_inputs
from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.qat.flat import Flat, LayerStep, flatten
from edgeconv.tf.qat.graph import LayerUse, walk
from edgeconv.types import Opening, SourceKind
from edgeconv.types.errors import InputRefused, VerificationFailed
from edgeconv.types.words import first_line, quoted

_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_MOST_SAMPLES = 256
_METADATA = "keras_metadata.pb"
_SAVE_AGAIN = "save the model as NAME.keras where it was trained, and give that"


class QatModel(NamedTuple):
    """A flat functional model of tf_keras, uncompiled, in float32, that agrees with its source.

    `rebuilt`: the source is of Keras 3. `max_abs_error` is the largest difference on the samples,
    see `max_error`. A conversion of the source has the same `input_names` and `output_names` in its
    signature; see `flat.set_names`.
    """

    model: Any
    rebuilt: bool
    max_abs_error: float
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    notes: tuple[str, ...]


def open_for_qat(
    path: str, kind: SourceKind, samples: str, opening: Opening = Opening()
) -> QatModel:
    """Open a model file; runs in a child, since loading may run code.

    `samples` is a directory that `edgeconv.data.write_samples` wrote; the first 256 are used.
    Raises `InputRefused` for a file without a Keras model, or with one that tf_keras cannot build;
    `VerificationFailed` where the built model does not agree with the source.
    """
    # Copies from the model's configuration need the same classes.
    register(opening)
    refuse_without_layers(path, kind)
    if kind == "saved_model":
        model = _from_saved_model(Path(path), opening)
    else:
        model, _ = keras_files.load(path, kind, opening)
    arrays = read_samples(Path(samples)).arrays
    return open_in_memory(model, {name: array[:_MOST_SAMPLES] for name, array in arrays.items()})


def open_in_memory(model: Any, arrays: dict[str, Any]) -> QatModel:
    """The same for a model in memory and samples by input, (n, *sample_shape)."""
    flat = flatten(model)
    error = max_error(model, flat, arrays)
    notes = flat.notes
    if computes_in_other_floats(model):
        notes = (*notes, "computes in float32, and not in the model's own floats")
    return QatModel(
        model=flat.model,
        rebuilt=isinstance(model, keras.Model),
        max_abs_error=error,
        input_names=flat.input_names,
        output_names=flat.output_names,
        notes=notes,
    )


def refuse_without_layers(path: str, kind: SourceKind) -> None:
    """Raise `InputRefused` for a model that has lost its Keras layers, without loading it."""
    if kind == "tflite":
        raise _no_keras(path, "is a .tflite file, which cannot be trained")
    if kind == "saved_model" and not (Path(path) / _METADATA).is_file():
        raise _no_keras(path, "is a SavedModel without its Keras layers")


def _from_saved_model(path: Path, opening: Opening) -> Any:
    # tf_keras would run the bytecode of a Lambda layer.
    if any(map(keras_files.is_code, keras_files.dicts_in(saved_configs(path)))):
        raise InputRefused(
            f"{path} has a Lambda layer: loading it would run code from the file",
            hint="replace it by a layer of Keras's own, and save the model as NAME.keras",
        )
    objects = custom_objects(opening, ())
    try:
        return tf_keras.models.load_model(str(path), custom_objects=objects, compile=False)
    except (ValueError, TypeError, AttributeError, KeyError, OSError, tf.errors.OpError) as error:
        raise InputRefused(
            f"{path} does not load in tf_keras: {first_line(error)}", hint=_SAVE_AGAIN
        ) from error


def saved_configs(path: Path) -> list[Any]:
    """The configurations of the model and its layers in a SavedModel that tf_keras wrote."""
    from google.protobuf.message import DecodeError
    from tf_keras.protobuf import saved_metadata_pb2

    metadata = path / _METADATA
    try:
        nodes = saved_metadata_pb2.SavedMetadata.FromString(metadata.read_bytes()).nodes
        return [json.loads(node.metadata) for node in nodes]
    except (DecodeError, ValueError, OSError, RecursionError) as error:
        raise InputRefused(f"{metadata} cannot be read: {error}", hint=_SAVE_AGAIN) from error


def _no_keras(path: str, what: str) -> InputRefused:
    hint = "give the Keras model that it was made from"
    near = _keras_file_near(Path(path))
    return InputRefused(
        f"{path} {what}: quantization-aware training works on the layers of a Keras model",
        hint=f"{hint}: {near}" if near else f"{hint}, saved with model.save('NAME.keras')",
    )


def _keras_file_near(path: Path) -> Path | None:
    """A Keras file of the same name; for version N of a model, N.keras or the model's."""
    stem = path.with_suffix("") if path.suffix == ".tflite" else path
    stems = [stem, stem.parent] if stem.name.isdecimal() else [stem]
    candidates = (Path(f"{name}{suffix}") for name in stems for suffix in _KERAS_SUFFIXES)
    return next(filter(Path.is_file, candidates), None)


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
            f"the samples are for {quoted(arrays)}, the model takes {quoted(flat.input_names)}"
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
    outputs = infer(model, pack_inputs(model, batch))
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
    tensors = [tensor for step in flat.steps for tensor in step.outputs]
    model = tf_keras.Model(flat.model.inputs, tensors)
    values = iter(_outputs(model, batch))
    for step, results in zip(flat.steps, measured, strict=True):
        for _, result in zip(step.outputs, results, strict=True):
            if not _difference(result.numpy(), next(values)) <= TOLERANCE:
                return step
    return None
