"""What the user has, opened as a flat tf_keras model that quantization can be added to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused
from edgeconv.tf import keras_files
from edgeconv.tf.custom_objects import custom_objects, register
from edgeconv.tf.qat.agreement import computes_in_other_floats, max_error
from edgeconv.tf.qat.flat import flattened
from edgeconv.types import Opening

if TYPE_CHECKING:
    from edgeconv.types import SourceKind

_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_CODE = ("Lambda", "__lambda__")
_MOST_SAMPLES = 256
_METADATA = "keras_metadata.pb"


class QatModel(NamedTuple):
    """A flat functional model of tf_keras, uncompiled, in float32, that agrees with its source.

    `rebuilt`: the source is of Keras 3. `max_abs_error` is how far the two were apart on the
    samples, see `agreement.max_error`. `input_names` and `output_names` are those of the
    signature that a conversion of the source has; see `flat.name_ends`. The same architecture
    is made again, under any strategy's scope, by `tf_keras.Model.from_config(model.get_config())`,
    `set_weights(model.get_weights())` and `name_ends`.
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
    Raises `InputRefused` for what has no Keras model in it, or one that tf_keras cannot build;
    `VerificationFailed` where what was built does not agree with the source.
    """
    from edgeconv.data import read_samples

    # What is made of the model's configuration later needs the same classes.
    register(opening)
    model = _loaded(path, kind, opening)
    arrays = read_samples(Path(samples)).arrays
    return opened(model, {name: array[:_MOST_SAMPLES] for name, array in arrays.items()})


def opened(model: Any, arrays: dict[str, Any]) -> QatModel:
    """The same for a model of Keras 3 or tf_keras in memory, and samples by input."""
    import keras

    flat = flattened(model)
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
        raise _no_keras(path, "is a .tflite, which is no longer a model that can be trained")
    if kind == "saved_model" and not (Path(path) / _METADATA).is_file():
        raise _no_keras(path, "is a SavedModel without its Keras layers")


def _loaded(path: str, kind: SourceKind, opening: Opening) -> Any:
    refuse_without_layers(path, kind)
    if kind == "saved_model":
        return _from_saved_model(Path(path), opening)
    return keras_files.load(path, kind, opening)[0]


def _from_saved_model(path: Path, opening: Opening) -> Any:
    import tensorflow as tf
    import tf_keras

    metadata = path / _METADATA
    _refuse_code(metadata)
    objects = custom_objects(opening, ())
    try:
        return tf_keras.models.load_model(str(path), custom_objects=objects, compile=False)
    except (ValueError, TypeError, AttributeError, KeyError, OSError, tf.errors.OpError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputRefused(
            f"{path} does not load in tf_keras: {lines[0][:300]}",
            hint="save the model as NAME.keras where it was trained, and bring that",
        ) from error


def _refuse_code(metadata: Path) -> None:
    """Refuse a SavedModel with a Lambda layer, whose bytecode tf_keras would run."""
    from google.protobuf.message import DecodeError
    from tf_keras.protobuf import saved_metadata_pb2

    found: list[str] = []

    def look(one: dict[str, Any]) -> dict[str, Any]:
        names = (str(one.get(key)).split(">")[-1] for key in ("class_name", "registered_name"))
        found.extend(name for name in names if name in _CODE)
        return one

    try:
        nodes = saved_metadata_pb2.SavedMetadata.FromString(metadata.read_bytes()).nodes
        for node in nodes:
            json.loads(node.metadata, object_hook=look)
    except (DecodeError, ValueError, OSError, RecursionError) as error:
        raise InputRefused(
            f"{metadata} cannot be read: {error}",
            hint="save the model as NAME.keras where it was trained, and bring that",
        ) from error
    if found:
        raise InputRefused(
            f"{metadata.parent} has a Lambda layer: loading it would run code from the file",
            hint="put a layer of Keras's own in its place, and save the model as NAME.keras",
        )


def _no_keras(path: str, what: str) -> InputRefused:
    beside = _keras_file_beside(Path(path))
    hint = (
        f"bring the Keras model that it was made from: {beside} lies beside it"
        if beside
        else "bring the Keras model that it was made from, saved with model.save('NAME.keras')"
    )
    return InputRefused(
        f"{path} {what}: quantization-aware training works on the layers of a Keras model",
        hint=hint,
    )


def _keras_file_beside(path: Path) -> Path | None:
    """A Keras file of the same name; for version N of a model, N.keras or the model's."""
    stem = path.with_suffix("") if path.suffix == ".tflite" else path
    stems = [stem, stem.parent] if stem.name.isdecimal() else [stem]
    candidates = [Path(f"{one}{suffix}") for one in stems for suffix in _KERAS_SUFFIXES]
    return next((one for one in candidates if one.is_file()), None)
