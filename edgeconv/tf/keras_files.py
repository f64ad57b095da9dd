"""Keras files to SavedModels: the loader that fits the file, and an inference-mode export."""

import contextlib
import itertools
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from edgeconv.model.source.keras_signature import built_for
from edgeconv.system.processes.failures import machine_error
from edgeconv.tf.custom_objects import custom_objects, library_of, refuse_other_library
from edgeconv.tf.environment import use_cpu_only
from edgeconv.tf.export import export_keras, inference
from edgeconv.tf.keras_io import (
    infer,
    inputs_of,
    refuse_names,
    refuse_training_layers,
    served_shape,
)
from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.reasons import reason, whole_reason
from edgeconv.tf.shapes import FixedShapes, shape_hint
from edgeconv.types import LadderStep, Opening, SourceKind
from edgeconv.types.errors import Cause, ConversionRefused, EdgeconvError, InputRefused
from edgeconv.types.words import SERVING_DEFAULT

# The messages of Keras 3 and tf_keras about an unknown layer.
_UNKNOWN_CLASS = re.compile(
    r"Could not locate (?:class|function) '([^']+)'|Unknown layer: '([^']+)'"
)
# A layer whose function is stored as bytecode, and such a function alone.
_CODE_CLASSES = frozenset({"Lambda", "__lambda__"})
# All that the loaders raise for a model they cannot build.
_LOAD_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RuntimeError,
    OSError,
    ImportError,
)


def load(
    path: str, kind: SourceKind, opening: Opening = Opening(), *, other: bool = False
) -> tuple[Any, tuple[LadderStep, ...]]:
    """The Keras model in a file, and the loaders tried; the last one loaded it.

    A .keras file names its Keras. An HDF5 file may be of either: many older ones load only in
    tf_keras, which is tried second because its HDF5 loader would also run Lambda code. So a file
    with a Lambda layer is refused first. `other`: load with the Keras that is tried second.
    `opening` has the user's classes. Raises `InputRefused`.
    """
    if opening.custom_objects:
        # Before any code of the user runs.
        refuse_lambda(path)
    names = _names(path) if opening.custom_objects else frozenset[str]()
    objects = custom_objects(opening, names)
    derived = {library_of(objects.get(name)) for name in names}
    if kind == "keras":
        is_legacy = _is_legacy(path) is not other
    else:
        is_legacy = other or "tf_keras" in derived or _computes_differently_in_keras_3(path)
    if is_legacy:
        refuse_lambda(path)
        return _load_legacy(path, objects), (LadderStep(attempt="tf_keras"),)
    if kind == "keras":
        refuse_other_library(path, "keras", objects, names)
    try:
        model = keras.models.load_model(path, custom_objects=objects, compile=False, safe_mode=True)
    except _LOAD_ERRORS as error:
        refuse_lambda(path)
        if kind == "keras":
            raise _refused(path, "Keras 3", error) from error
        failed = LadderStep(attempt="keras", failed=reason(error))
        return _load_legacy(path, objects), (failed, LadderStep(attempt="tf_keras"))
    if kind == "keras" and not inputs_of(model):
        model = _with_inputs(model, built_for(_config(path)))
    return model, (LadderStep(attempt="keras"),)


def _with_inputs(model: Any, built: Any) -> Any:
    """A subclassed model with the inputs that its file says it was built for, if it does.

    `built` is a shape, or shapes in a list or a dict as `call` takes them. Keras notes no dtypes.
    """
    if not built or not model.built:
        return model
    try:
        if isinstance(built, dict):
            inputs = {name: keras.Input(shape[1:], name=name) for name, shape in built.items()}
        else:
            inputs = keras.tree.map_shape_structure(lambda shape: keras.Input(shape[1:]), built)
        return keras.Model(inputs, model(inputs, training=False), name=model.name)
    except _LOAD_ERRORS:
        # Its `call` needs values, or another dtype: the caller says that the inputs are unknown.
        return model


def _names(path: str) -> frozenset[str]:
    """The names of all classes and functions in a Keras file; registered ones as PACKAGE>NAME."""
    names = (
        node.get(key)
        for node in dicts_in(_config(path))
        for key in ("class_name", "registered_name", "config", "activation")
    )
    return frozenset(name for name in names if isinstance(name, str))


def _is_legacy(path: str) -> bool:
    """Whether a .keras file is of Keras 2, which is tf_keras."""
    with zipfile.ZipFile(path) as archive:
        module = json.loads(archive.read("config.json")).get("module")
        version = json.loads(archive.read("metadata.json")).get("keras_version")
    # A Sequential differs only by the version, other models by Keras 2's inner modules.
    return str(version).startswith("2.") or str(module).startswith(("tf_keras", "keras.src.engine"))


def _computes_differently_in_keras_3(path: str) -> bool:
    """Whether an HDF5 file of Keras 2 has a hard sigmoid, once the default of recurrent layers.

    It was clip(0.2 x + 0.5, 0, 1), and is relu6(x + 3) / 6 in Keras 3.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            version = file.attrs.get("keras_version", "2")
    except OSError:
        # The loader refuses it with a reason.
        return False
    version = version.decode() if isinstance(version, bytes) else str(version)
    return version.startswith(("1.", "2")) and "hard_sigmoid" in json.dumps(_config(path))


def _load_legacy(path: str, objects: dict[str, Any]) -> Any:
    refuse_other_library(path, "tf_keras", objects, _names(path) if objects else ())
    try:
        return tf_keras.models.load_model(
            path, custom_objects=objects, compile=False, safe_mode=True
        )
    except _LOAD_ERRORS as error:
        refuse_lambda(path)
        raise _refused(path, "tf_keras", error) from error


def refuse_lambda(path: str) -> None:
    """Raise `InputRefused` if a Keras file has a Lambda layer, whose code would run."""
    if any(map(is_code, dicts_in(_config(path)))):
        raise InputRefused(
            f"{path} has a Lambda layer: loading it would run code from the file",
            hint="export the model as a SavedModel where you trust it, and convert that",
        )


def _config(path: str) -> Any:
    """The configuration in a Keras file, as the loaders read it."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))
    import h5py

    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config", "{}")
    return json.loads(config)


def compiled(path: str) -> dict[str, Any]:
    """What the model in a Keras file was compiled with, as Keras writes it; {} where it was not."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json")).get("compile_config") or {}
    import h5py

    with h5py.File(path, "r") as file:
        config = file.attrs.get("training_config", "{}")
    return json.loads(config) or {}


def dicts_in(config: Any) -> Iterator[dict[str, Any]]:
    """Every dictionary in a configuration, at any depth."""
    waiting = [config]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def has_lstm(path: str) -> bool:
    """Whether a Keras file has an LSTM layer, at any depth."""
    return any(node.get("class_name") == "LSTM" for node in dicts_in(_config(path)))


def is_code(config: dict[str, Any]) -> bool:
    """Whether a configuration has a layer or function stored as bytecode."""
    names = (config.get("class_name"), config.get("registered_name"))
    in_wrapper = any(k.endswith("_fn_type") and v == "lambda" for k, v in config.items())
    return in_wrapper or any(str(name).split(">")[-1] in _CODE_CLASSES for name in names)


def export(
    path: str,
    kind: SourceKind,
    target: str,
    *,
    opening: Opening = Opening(),
    fixed: FixedShapes = FixedShapes(),
    other: bool = False,
    fused: str = "",
) -> tuple[LadderStep, ...]:
    """Write the model of a Keras file to `target` as a SavedModel; returns the loaders tried.

    The SavedModel has one signature, `serving_default`, in inference mode. It is traced with the
    shapes of `fixed`, from which the loops of recurrent layers get their batch. `opening` and
    `other` are as in `load`. `fused`, if given, gets the same model with LSTM layers that the
    converter recognizes, provided that Keras 3 loaded it and the batch is known. Raises
    `InputRefused`.
    """
    model, loaders = load(path, kind, opening, other=other)
    if other:
        refuse_another_function(path, load(path, kind, opening)[0], model)
    if not inputs_of(model):
        raise InputRefused(
            f"{path}: Keras does not know the shape of its inputs: the model was never called, or "
            "is subclassed, or a Sequential with several inputs",
            hint="build it with an Input before saving, or export a SavedModel with a signature",
        )
    refuse_training_layers(path, model)
    if loaders[-1].attempt == "keras":
        _export(model, path, target, fixed)
        if fused and _has_fixed_batch(model, fixed):
            with recognizable_lstm():
                _export(model, path, fused, fixed)
        return loaders
    # The whole model, not only its variables: it may have lookup tables as well.
    tf.saved_model.save(model, target, signatures={SERVING_DEFAULT: inference(model, fixed)})
    return loaders


def _has_fixed_batch(model: Any, fixed: FixedShapes) -> bool:
    return all(
        fixed.of(name, served_shape(model, tensor))[0] is not None
        for name, tensor in inputs_of(model).items()
    )


def _export(model: Any, path: str, target: str, fixed: FixedShapes) -> None:
    try:
        export_keras(model, target, fixed)
    except (ValueError, TypeError) as error:
        refuse_names(path, model)
        shapes = {
            name: fixed.of(name, served_shape(model, tensor))
            for name, tensor in inputs_of(model).items()
        }
        raise ConversionRefused(
            f"{path} cannot be exported by Keras 3: {whole_reason(error)}",
            hint=f"{shape_hint(shapes)}replace the layer that the error names, or let its call "
            "take tensors whose values are not known, as model.export needs it",
            cause=Cause(loader="keras"),
        ) from error


class ExportJob(msgspec.Struct, frozen=True, kw_only=True):
    """The Keras file to read, and the directory to write, which does not exist yet."""

    path: str
    kind: SourceKind
    target: str
    opening: Opening = Opening()


class ExportedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What loaded the file: "keras" or "tf_keras"."""

    loader: str


def export_file(job: ExportJob) -> ExportedModel:
    """Write the SavedModel, whose signature is read without TensorFlow. Runs in a child.

    Raises as `export`.
    """
    use_cpu_only()
    loaders = export(job.path, job.kind, job.target, opening=job.opening)
    return ExportedModel(loader=loaders[-1].attempt)


def _refused(path: str, loaders: str, error: Exception) -> EdgeconvError:
    if refused := machine_error(error, f"loading {path}"):
        return refused
    unknown = _UNKNOWN_CLASS.search(str(error))
    if unknown:
        name = unknown[1] or unknown[2]
        return InputRefused(
            f"{path} has {name!r}, which only the code that made the model knows",
            hint="give the module that has it with --custom-objects MODULE, or export the model as "
            "a SavedModel where that code is, and convert that: it holds what a layer computes",
        )
    return InputRefused(
        f"{path} does not load in {loaders}: {whole_reason(error)}",
        hint="export it as a SavedModel with the version of Keras that saved it",
    )


_TOLERANCE = 1e-4
# For an open dimension: most networks take it, however often they halve it.
_OPEN_SIZE = 64


def refuse_another_function(path: str, first: Any, second: Any) -> None:
    """Raise `ConversionRefused` unless two models compute the same on random inputs.

    Some names mean different functions in the two, such as the hard sigmoid. The models are of
    Keras 3 and of tf_keras, in either order, with numeric inputs.
    """
    random = np.random.default_rng(7)
    inputs = [_random_input(tensor, random) for tensor in first.inputs]
    values = inputs[0] if len(inputs) == 1 else inputs
    try:
        outputs = [
            [output.numpy() for output in tf.nest.flatten(infer(model, values))]
            for model in (first, second)
        ]
    except (ValueError, TypeError, tf.errors.OpError) as error:
        why = f"it does not run on random inputs: {reason(error)}"
        raise _not_the_same(path, why) from error
    for expected, output in zip(*outputs, strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        is_same = expected.shape == output.shape
        if not is_same or not np.allclose(expected, output, atol=_TOLERANCE * scale):
            raise _not_the_same(path, "the outputs differ")


def _random_input(tensor: Any, random: Any) -> Any:
    batch, *sizes = tensor.shape
    shape = [batch or 1, *(_OPEN_SIZE if size is None else size for size in sizes)]
    name = getattr(tensor.dtype, "name", tensor.dtype)
    if name.startswith("float"):
        return random.standard_normal(shape).astype(name)
    return random.integers(0, 2, shape).astype(np.dtype(name))


def _not_the_same(path: str, why: str) -> ConversionRefused:
    return ConversionRefused(
        f"{path} may be a different model in the other Keras: {why}",
        hint="export it as a SavedModel with the version of Keras that saved it",
    )


# LSTM layers of Keras 3, traced so that TensorFlow's converter writes each as one operator.
#
# The converter recognizes a function that says which layer it implements, as tf_keras's functions
# do; Keras 3 traces a loop, which no quantizer looks through. The function computes the layer, with
# zero as the only state; the converter takes its place, inputs and weights, not its nodes:
# tensorflow/compiler/mlir/lite/utils/lstm_utils.cc, ConvertKerasLSTMLayer. It knows the function by
# its name: a common beginning, and an end for each layer.
_IMPLEMENTS = "lstm_edgeconv_{}"


@contextlib.contextmanager
def recognizable_lstm() -> Iterator[None]:
    """Trace the LSTM layers that the converter can fuse as functions that it recognizes.

    It fuses layers with a known batch, no mask, and the usual activations.
    """
    layer, original = keras.layers.LSTM, keras.layers.LSTM.inner_loop
    numbers = itertools.count()

    def inner_loop(
        self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> Any:
        if training or mask is not None or not _can_be_fused(self, sequences):
            return original(self, sequences, initial_state, mask, training)
        cell = self.cell
        kernel, recurrent = (
            tf.convert_to_tensor(weights) for weights in (cell.kernel, cell.recurrent_kernel)
        )
        bias = tf.zeros(kernel.shape[-1]) if cell.bias is None else tf.convert_to_tensor(cell.bias)
        traced = tf.function(
            _computation(self, sequences),
            autograph=False,
            experimental_attributes={
                "api_implements": _IMPLEMENTS.format(next(numbers)),
                "api_preferred_device": "CPU",
                "time_major": False,
                "go_backwards": bool(self.go_backwards),
            },
        )
        last, outputs, h, c, _ = traced(sequences, *initial_state, kernel, recurrent, bias)
        return last, outputs, [h, c]

    layer.inner_loop = inner_loop
    try:
        yield
    finally:
        layer.inner_loop = original


def _can_be_fused(layer: Any, sequences: Any) -> bool:
    return (
        sequences.shape[0] is not None
        and sequences.dtype == tf.float32
        and layer.compute_dtype == "float32"
        and layer.cell.activation is keras.activations.tanh
        and layer.cell.recurrent_activation is keras.activations.sigmoid
        and not (layer.unroll or layer.stateful)
    )


def _computation(layer: Any, sequences: Any) -> Any:
    """What the layer computes, as a function of its inputs, states and weights."""

    def compute(inputs: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        def step(x: Any, states: Any) -> Any:
            h, c = states
            gates = tf.nn.bias_add(tf.matmul(x, kernel) + tf.matmul(h, recurrent), bias)
            enter, forget, update, leave = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(forget) * c + tf.sigmoid(enter) * tf.tanh(update)
            h = tf.sigmoid(leave) * tf.tanh(c)
            return h, [h, c]

        last, outputs, states = keras.src.backend.rnn(
            step,
            inputs,
            [h, c],
            go_backwards=layer.go_backwards,
            input_length=sequences.shape[1],
            return_all_outputs=layer.return_sequences,
        )
        # The fifth is the device, which the converter expects and nobody reads.
        return last, outputs, states[0], states[1], tf.constant(1.0)

    return compute
