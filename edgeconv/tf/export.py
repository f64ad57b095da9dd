"""Trained Keras models to numbered SavedModels, each of which appears complete or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edgeconv.system.store import locked, scratch_directory
from edgeconv.tf.keras_io import (
    arrange_inputs,
    infer,
    inputs_of,
    keras_of,
    output_names,
    pack_inputs,
    served_shape,
)
from edgeconv.tf.lazy import keras, tf
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types.errors import OutputRefused
from edgeconv.types.words import SERVING_DEFAULT

_UNFINISHED = ".unfinished-"
_SAVED_MODEL, _KERAS_FILE, _RECORD = "saved_model", "model.keras", "training.json"


def versions(parent: Path) -> list[int]:
    """The version numbers in a versioned parent directory, in ascending order."""
    if not parent.is_dir():
        return []
    return sorted(int(p.name) for p in parent.iterdir() if p.name.isdecimal())


def is_remote(path: str) -> bool:
    """Whether only TensorFlow's file systems reach a path, such as gs://bucket/name."""
    return "://" in path


def record_path(saved_model: Path) -> Path:
    """The training record of a version directory N: N.training.json next to it."""
    return saved_model.with_name(f"{saved_model.name}.training.json")


def keras_path(saved_model: Path) -> Path:
    """The Keras file of a version directory N: N.keras next to it."""
    return saved_model.with_name(f"{saved_model.name}.keras")


def export_version(model: Any, parent: Path, record: Callable[[Path], bytes]) -> Path:
    """Export `model` to `parent`/N, N one above the highest there; returns that directory.

    N.keras and N.training.json, with what `record` returns for the directory, go next to it.
    Writers take turns, and leftovers of a killed one are removed. Raises `OutputRefused`.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with locked(parent / ".lock"):
            for leftover in parent.glob(_UNFINISHED + "*"):
                shutil.rmtree(leftover)
            return _publish(model, parent, record)
    except OSError as error:
        raise OutputRefused(f"cannot write {parent}: {error.strerror or error}") from error


def _publish(model: Any, parent: Path, record: Callable[[Path], bytes]) -> Path:
    target = parent / str(max(versions(parent), default=0) + 1)
    temporary = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent))
    try:
        _save(model, temporary)
        (temporary / _RECORD).write_bytes(record(target))
        for path in (temporary, *temporary.rglob("*")):
            _sync(path)
        # The directory is what makes the version, and goes last: without it the next version has
        # the same number, and replaces the other files.
        (temporary / _KERAS_FILE).rename(keras_path(target))
        (temporary / _RECORD).rename(record_path(target))
        (temporary / _SAVED_MODEL).rename(target)
        _sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def export_to(model: Any, directory: str, name: str, record: bytes) -> None:
    """Export `model` into `directory` itself, which may be remote.

    `name`.keras and, last, training.json go into its assets.extra. An object store cannot rename
    directories: one is complete once it has the record. Raises `OutputRefused`.
    """
    extra = f"{directory}/assets.extra"
    with scratch_directory() as scratch:
        try:
            _save(model, scratch)
            _copy_tree(Path(scratch, _SAVED_MODEL), directory)
            tf.io.gfile.makedirs(extra)
            keras_file = str(Path(scratch, _KERAS_FILE))
            tf.io.gfile.copy(keras_file, f"{extra}/{name}.keras", overwrite=True)
            with tf.io.gfile.GFile(f"{extra}/training.json", "wb") as file:
                file.write(record)
        except tf.errors.OpError as error:
            raise OutputRefused(f"cannot write {directory}: {error.message}") from error
        except OSError as error:
            raise OutputRefused(f"cannot write {scratch}: {error.strerror or error}") from error


def next_remote_version(parent: str) -> str:
    """The directory after the highest number in a remote `parent`. Raises `OutputRefused`."""
    try:
        tf.io.gfile.makedirs(parent)
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(parent)]
    except tf.errors.OpError as error:
        raise OutputRefused(f"cannot write {parent}: {error.message}") from error
    return f"{parent}/{max((int(n) for n in names if n.isdecimal()), default=0) + 1}"


def _copy_tree(source: Path, target: str) -> None:
    for path in sorted(source.rglob("*")):
        copy = f"{target}/{path.relative_to(source).as_posix()}"
        if path.is_dir():
            tf.io.gfile.makedirs(copy)
        else:
            tf.io.gfile.makedirs(copy.rpartition("/")[0])
            tf.io.gfile.copy(str(path), copy, overwrite=True)


def _save(model: Any, directory: Path) -> None:
    """Write the SavedModel and the Keras file of a model into a directory."""
    saved_model = str(directory / _SAVED_MODEL)
    try:
        with _outside_of_the_cluster():
            if keras_of(model).__name__ == "tf_keras":
                export_inference(model, saved_model)
            else:
                export_keras(model, saved_model)
        model.save(str(directory / _KERAS_FILE))
    except tf.errors.OpError as error:
        # TensorFlow writes the variables, and raises its own errors.
        raise OutputRefused(f"cannot write {directory.parent}: {error.message}") from error


@contextlib.contextmanager
def _outside_of_the_cluster() -> Iterator[None]:
    """Trace functions without the settings of the cluster that this process is a member of.

    TensorFlow writes the members' names into each call of a function (config_proto), and the scan
    refuses a model that names other machines.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    current = context.context()
    before = current.function_call_options
    settings = config_pb2.ConfigProto.FromString(before.config_proto_serialized)
    # The experimental ones name the leader and the service that coordinates the members.
    for field in ("device_filters", "cluster_def", "rpc_options", "experimental"):
        settings.ClearField(field)
    current.function_call_options = context.FunctionCallOptions(config_proto=settings)
    try:
        yield
    finally:
        current.function_call_options = before


def export_keras(model: Any, directory: str, fixed: FixedShapes = FixedShapes()) -> None:
    """Write a Keras 3 model as a SavedModel that serves as its own `export` does.

    The outputs have the names of `output_names`, where Keras numbers them, and the shapes are
    `fixed`'s. Raises `InputRefused` where these do not fit the model, and ValueError or
    TypeError for what Keras cannot export.
    """

    def spec(name: str, tensor: Any) -> Any:
        shape = tuple(fixed.of(name, served_shape(model, tensor)))
        return tf.TensorSpec(shape, tensor.dtype, name=name)

    names = output_names(model)

    def serve(inputs: Any) -> Any:
        outputs = infer(model, inputs)
        if not names:
            return outputs
        return dict(zip(names, keras.tree.flatten(outputs), strict=True))

    specs = [spec(name, tensor) for name, tensor in inputs_of(model).items()]
    served = tf.function(serve, [pack_inputs(model, specs)], autograph=False)
    concrete = served.get_concrete_function()
    archive = tf.__internal__.tracking.AutoTrackable()
    archive.serve = served
    # Under the names by which Keras's TFSMLayer finds them.
    for kind in ("variables", "trainable_variables", "non_trainable_variables"):
        setattr(archive, kind, [variable.value for variable in getattr(model, kind)])
    archive.used = list(concrete.variables)
    # Saving the whole model takes twice as long: TensorFlow looks at each layer several times.
    known = {id(variable.handle) for variable in archive.used}
    if not known.issuperset(id(each) for each in concrete.captured_inputs):
        archive.model = model
    signatures = {"serve": concrete, SERVING_DEFAULT: concrete}
    tf.saved_model.save(archive, directory, signatures=signatures)


def export_inference(model: Any, directory: str, fixed: FixedShapes = FixedShapes()) -> None:
    """Write a tf_keras model as a SavedModel with one signature, `serving_default`.

    It is in inference mode, without training functions or optimizer. Inputs and outputs have the
    names of the model's, and the shapes of `fixed`, otherwise an open batch.
    """
    module = tf.Module()
    module.variables_of_model = model.variables
    tf.saved_model.save(module, directory, signatures={SERVING_DEFAULT: inference(model, fixed)})


def inference(model: Any, fixed: FixedShapes = FixedShapes()) -> Any:
    """The concrete function of a tf_keras model at inference, with its inputs by name.

    Raises `InputRefused` if the shapes of `fixed` do not fit the model.
    """

    def spec(name: str, tensor: Any) -> Any:
        shape = fixed.of(name, served_shape(model, tensor))
        return tf.TensorSpec(shape, tensor.dtype, name=name)

    specs = {name: spec(name, tensor) for name, tensor in inputs_of(model).items()}

    def serve(**inputs: Any) -> dict[str, Any]:
        outputs = infer(model, arrange_inputs(model, inputs))
        return dict(zip(output_names(model), tf.nest.flatten(outputs), strict=True))

    return tf.function(serve).get_concrete_function(**specs)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
