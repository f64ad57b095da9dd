"""The user's model, opened as a flat tf_keras model that quantization can be added to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf import keras_files
from edgeconv.tf.custom_objects import custom_objects, register
from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.qat.agreement import computes_in_other_floats, max_error
from edgeconv.tf.qat.flat import flatten
from edgeconv.types import Opening
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from edgeconv.types import SourceKind

_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_MOST_SAMPLES = 256
_METADATA = "keras_metadata.pb"
_SAVE_AGAIN = "save the model as NAME.keras where it was trained, and give that"


class QatModel(NamedTuple):
    """A flat functional model of tf_keras, uncompiled, in float32, that agrees with its source.

    `rebuilt`: the source is of Keras 3. `max_abs_error` is the largest difference on the samples,
    see `agreement.max_error`. `input_names` and `output_names` are those of the signature of a
    conversion of the source; see `flat.set_names`.
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
    from edgeconv.data import read_samples

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
    _refuse_code(path / _METADATA)
    objects = custom_objects(opening, ())
    try:
        return tf_keras.models.load_model(str(path), custom_objects=objects, compile=False)
    except (ValueError, TypeError, AttributeError, KeyError, OSError, tf.errors.OpError) as error:
        raise InputRefused(
            f"{path} does not load in tf_keras: {first_line(error)}", hint=_SAVE_AGAIN
        ) from error


def _refuse_code(metadata: Path) -> None:
    """Refuse a SavedModel with a Lambda layer, whose bytecode tf_keras would run."""
    from google.protobuf.message import DecodeError
    from tf_keras.protobuf import saved_metadata_pb2

    try:
        nodes = saved_metadata_pb2.SavedMetadata.FromString(metadata.read_bytes()).nodes
        configs = [json.loads(node.metadata) for node in nodes]
    except (DecodeError, ValueError, OSError, RecursionError) as error:
        raise InputRefused(f"{metadata} cannot be read: {error}", hint=_SAVE_AGAIN) from error
    if any(map(keras_files.is_code, keras_files.dicts_in(configs))):
        raise InputRefused(
            f"{metadata.parent} has a Lambda layer: loading it would run code from the file",
            hint="replace it by a layer of Keras's own, and save the model as NAME.keras",
        )


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
