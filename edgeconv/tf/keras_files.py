"""Keras files to SavedModels: the right loader for the file, and an inference-mode export."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.nouns import LadderStep
from edgeconv.tf.export import inference
from edgeconv.tf.shapes import FixedShapes

if TYPE_CHECKING:
    from edgeconv.nouns import SourceKind

# All that the loaders raise for a model they cannot build.
_LOAD_ERRORS = (ValueError, TypeError, AttributeError, KeyError, OSError, ImportError)


def load(path: str, kind: SourceKind) -> tuple[Any, tuple[LadderStep, ...]]:
    """The Keras model in a file, and the loaders that were tried; the last one took it.

    A .keras file says which Keras it is of. An HDF5 file may be of either: many older ones
    load only in tf_keras, which goes second because its HDF5 loader would also run Lambda
    code, so a file with a Lambda layer is refused first. Raises `InputRefused`.
    """
    if kind == "keras" and _is_legacy(path):
        return _load_legacy(path), (LadderStep(attempt="tf_keras"),)
    import keras

    try:
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    except _LOAD_ERRORS as error:
        if kind == "keras":
            raise _refused(path, "Keras 3", error) from error
        refuse_lambda(path)
        failed = LadderStep(attempt="keras", failed=_reason(error))
        return _load_legacy(path), (failed, LadderStep(attempt="tf_keras"))
    return model, (LadderStep(attempt="keras"),)


def _is_legacy(path: str) -> bool:
    with zipfile.ZipFile(path) as archive:
        module = json.loads(archive.read("config.json")).get("module")
    # Keras 2 wrote its own inner modules, which tf_keras still knows and Keras 3 does not.
    return str(module).startswith(("tf_keras", "keras.src.engine"))


def _load_legacy(path: str) -> Any:
    import tf_keras

    try:
        return tf_keras.models.load_model(path, compile=False, safe_mode=True)
    except _LOAD_ERRORS as error:
        raise _refused(path, "tf_keras", error) from error


def refuse_lambda(path: str) -> None:
    """Raise `InputRefused` if an HDF5 model has a Lambda layer, whose code would run."""
    import h5py

    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config", "")
    text = config.decode("utf-8", "replace") if isinstance(config, bytes) else str(config)
    if '"class_name": "Lambda"' in text or '"class_name":"Lambda"' in text:
        raise InputRefused(
            f"{path} has a Lambda layer: loading it would run code from the file",
            hint="export the model as a SavedModel where you trust it, and convert that",
        )


def export(
    path: str, kind: SourceKind, target: str, *, fixed: FixedShapes = FixedShapes()
) -> tuple[LadderStep, ...]:
    """Write the model of a Keras file to `target` as a SavedModel; returns the loaders tried.

    The SavedModel has one signature, `serving_default`, in inference mode. It is traced
    with the shapes of `fixed`: only so do the loops of recurrent layers get to know the
    batch. Raises `InputRefused`.
    """
    model, loaders = load(path, kind)
    if not getattr(model, "inputs", None):
        raise InputRefused(
            f"{path}: the model has never been called, so its input shape is not known",
            hint="call it on a batch before saving, or export a SavedModel with a signature",
        )
    if loaders[-1].attempt == "keras":
        signature = [_input_specs(model, fixed)] if fixed.fixes else None
        model.export(target, format="tf_saved_model", verbose=False, input_signature=signature)
    else:
        _export_legacy(model, target, fixed)
    return loaders


def _input_specs(model: Any, fixed: FixedShapes) -> Any:
    """The specs of a Keras 3 model's inputs, in the structure that it is called with."""
    import keras

    def spec(tensor: Any) -> Any:
        shape = tuple(fixed.of(tensor.name, tensor.shape))
        return keras.InputSpec(dtype=tensor.dtype, shape=shape, name=tensor.name)

    return keras.tree.map_structure(spec, model.input)


def _export_legacy(model: Any, target: str, fixed: FixedShapes) -> None:
    import tensorflow as tf

    # The whole model, not its variables alone: it may have lookup tables as well.
    tf.saved_model.save(model, target, signatures={"serving_default": inference(model, fixed)})


def _refused(path: str, loaders: str, error: Exception) -> InputRefused:
    return InputRefused(
        f"{path} does not load in {loaders}: {_reason(error)}",
        hint="export it as a SavedModel with the version of Keras that saved it",
    )


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else type(error).__name__
