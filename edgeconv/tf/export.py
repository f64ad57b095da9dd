"""Trained tf_keras models to numbered SavedModels, each of which appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from edgeconv.errors import OutputRefused
from edgeconv.store import locked
from edgeconv.tf.shapes import FixedShapes

_UNFINISHED = ".unfinished-"


def versions(parent: Path) -> list[int]:
    """The version numbers in a versioned parent directory, in ascending order."""
    if not parent.is_dir():
        return []
    return sorted(int(p.name) for p in parent.iterdir() if p.name.isdecimal())


def export_version(model: Any, parent: Path) -> Path:
    """Export `model` to `parent`/N, N one above the highest there; returns that directory.

    Writers take turns, and what one that was killed left unfinished is removed. Raises
    `OutputRefused` where it cannot be written.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with locked(parent / ".lock"):
            for leftover in parent.glob(_UNFINISHED + "*"):
                shutil.rmtree(leftover)
            return _publish(model, parent)
    except OSError as error:
        raise OutputRefused(f"cannot write {parent}: {error.strerror or error}") from error


def _publish(model: Any, parent: Path) -> Path:
    target = parent / str(max(versions(parent), default=0) + 1)
    temporary = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent))
    try:
        _save(model, temporary)
        _sync_tree(temporary)
        temporary.chmod(0o755)
        temporary.rename(target)
        _sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _save(model: Any, directory: Path) -> None:
    import tensorflow as tf

    try:
        export_inference(model, str(directory))
    except tf.errors.OpError as error:
        # TensorFlow writes the variables by itself, and says so by its own errors.
        raise OutputRefused(f"cannot write {directory.parent}: {error.message}") from error


def export_inference(model: Any, directory: str) -> None:
    """Write a tf_keras model as a SavedModel with one signature, `serving_default`.

    In inference mode, without training functions or optimizer; inputs and outputs have
    the names and (dynamic) batch dimension of the model's own.
    """
    import tensorflow as tf

    module = tf.Module()
    module.variables_of_model = model.variables
    tf.saved_model.save(module, directory, signatures={"serving_default": inference(model)})


def inference(model: Any, fixed: FixedShapes = FixedShapes()) -> Any:
    """The concrete function of a tf_keras model at inference, with its inputs by name.

    Raises `InputRefused` where the model does not take the shapes of `fixed`.
    """
    import tensorflow as tf

    def spec(name: str, tensor: Any) -> Any:
        shape = fixed.of(name, tensor.shape)
        return tf.TensorSpec(shape, tensor.dtype, name=name)

    names = list(model.input_names)
    specs = {name: spec(name, one) for name, one in zip(names, model.inputs, strict=True)}

    def serve(**inputs: Any) -> dict[str, Any]:
        values = [inputs[name] for name in names]
        outputs = model(values[0] if len(values) == 1 else values, training=False)
        return dict(zip(model.output_names, tf.nest.flatten(outputs), strict=True))

    return tf.function(serve).get_concrete_function(**specs)


def _sync_tree(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
