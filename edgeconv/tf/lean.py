"""TensorFlow's MLIR converter without the rest of TensorFlow.

`import tensorflow` runs the whole public API, Keras included, and `TFLiteConverter` loads the
SavedModel twice in Python before the C++ converter reads it again. With a package object that has
TensorFlow's path but not its `__init__`, the shared library and a few protocol buffers load alone,
in a quarter of the time and half the memory. tests/integration/test_convert.py compares the bytes
with the public converter's.
"""

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from edgeconv.system.processes.failures import is_called_back
from edgeconv.tf.known import LISTS
from edgeconv.tf.saved_objects import open_shapes
from edgeconv.tf.shapes import shape_hint
from edgeconv.types.errors import (
    Cause,
    ConversionRefused,
    InputRefused,
    ToolFailed,
    UnsupportedFloats,
    UnsupportedOperators,
)
from edgeconv.types.words import first_line

_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f64": "float64"}
_OF_TEXTS = (
    "split texts into words in the application and give the model their numbers, with a model that "
    "begins behind its TextVectorization; else "
)
# By a part of the names of operators.
_ALTERNATIVES = {
    **dict.fromkeys(("StringLower", "StringSplit", "RegexReplace"), _OF_TEXTS),
    "CombinedNonMaxSuppression": "call tf.image.non_max_suppression_padded for each image and "
    "class, which TFLite has an operator for, or give out boxes and scores and suppress in the "
    "application; else ",
    "DenseBincount": "encode ids with tf.one_hot, and take its sum over them (CategoryEncoding's "
    "count) or its largest (multi_hot); else ",
    "HashBucket": "compute the bucket in the application and give the model its number, or use a "
    "StringLookup with a vocabulary; else ",
    "Pool3D": "pool height and width with TimeDistributed(MaxPooling2D()), or AveragePooling2D, "
    "and depth with the largest, or the mean, of its slices; else ",
    "Table": "TFLite has tables from strings to int64 and back only: look up the int64 index of "
    "a string, and gather other values by it; else ",
}
_GROUPS_OF_CHANNELS = (
    "split the channels, and concatenate a Conv3D of each part: TFLite has none with groups; else "
)
# An input and weights of different numbers of channels.
_GROUPED = re.compile(r"tf\.Conv3D\(tensor<[^>]*x(\d+)xf32>, tensor<[^>]*x(?!\1x)\d+x\d+xf32>\)")
# Names of the converter that differ from the schema's by more than versions and underscores.
_OTHER_NAMES = {
    "avgpool": "averagepool2d",
    "avgpool3d": "averagepool2d",
    "biasadd": "add",
    "concat": "concatenation",
    "conv2dbackpropinput": "transposeconv",
    "conv3dbackpropinput": "conv3dtranspose",
    "depthwiseconv2dnative": "depthwiseconv2d",
    "einsum": "batchmatmul",
    "fusedbatchnorm": "mul",
    "inv": "div",
    "lrn": "localresponsenormalization",
    "matmul": "fullyconnected",
    "maxpool": "maxpool2d",
    "maxpool3d": "maxpool2d",
    "partitionedcall": "call",
    "prod": "reduceprod",
    "max": "reducemax",
    "min": "reducemin",
    "all": "reduceall",
    "any": "reduceany",
    "realdiv": "div",
    "reciprocal": "div",
    "sigmoid": "logistic",
    "statefulpartitionedcall": "call",
}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
# TensorFlow's errors for a checkpoint with something missing.
_DAMAGED = re.compile(
    r"[^\n]*(?:Read less bytes than requested|not an sstable|Checksum does not match|"
    r"variables\.(?:data|index)\S*; No such file|is not a valid checkpoint)[^\n]*"
)

_NEWER = re.compile(r"GraphDef min consumer version \d+ above current version \d+")


def import_converter_only() -> None:
    """Make `import tensorflow.…` find TensorFlow's modules without its `__init__`.

    Call it before the first import, in a process that needs nothing more of TensorFlow.
    """
    os.environ.update(_QUIET)
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise ToolFailed("tensorflow is not installed", hint="pip install tensorflow")
    package = ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["tensorflow"] = package


def import_the_rest() -> None:
    """Undo `import_converter_only`, where more of TensorFlow turns out to be needed."""
    sys.modules.pop("tensorflow", None)
    importlib.import_module("tensorflow")


def convert_saved_model(
    directory: str, *, signatures: tuple[str, ...], tags: tuple[str, ...], select_ops: bool = False
) -> bytes:
    """The float32 .tflite of some signatures of a SavedModel, as bytes.

    With `select_ops`, operators that only TensorFlow has stay as they are. Raises
    `UnsupportedOperators` for operators that TFLite does not have, `InputRefused` for a SavedModel
    that does not load or convert.
    """
    # The shared library comes first: the converter's module is a thin layer over it.
    from tensorflow.python import pywrap_tensorflow  # noqa: F401, I001
    from tensorflow.compiler.mlir.lite.python import _pywrap_converter_api
    from tensorflow.compiler.mlir.quantization.tensorflow.python import pywrap_function_lib

    flags = _flags(directory, signatures, tags, select_ops=select_ops)
    library = pywrap_function_lib.PyFunctionLibrary()
    with ConverterErrors(lambda: shape_hint(open_shapes(directory, signatures))):
        converted: bytes = _pywrap_converter_api.Convert(*flags, None, False, None, library)
    return converted


class ConverterErrors:
    """A context that turns the converter's errors into refusals.

    It raises `Exception` itself from C++, and its Python layer a subclass of that. `fixing` gives
    the hint on how to fix the model's open dimensions.
    """

    def __init__(self, fixing: Callable[[], str] = str) -> None:
        self._fixing = fixing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if kind is None or error is None or is_called_back(error):
            return
        if kind in (Exception, RuntimeError, ValueError) or kind.__name__ == "ConverterError":
            raise refusal(str(error), self._fixing()) from error


def _flags(
    directory: str, signatures: tuple[str, ...], tags: tuple[str, ...], *, select_ops: bool
) -> tuple[bytes, bytes]:
    """The flags of the model, and those that the public converter sets for a float32 model."""
    from tensorflow.compiler.mlir.lite import converter_flags_pb2, model_flags_pb2, types_pb2

    model: Any = model_flags_pb2.ModelFlags(
        saved_model_dir=directory,
        saved_model_version=1,
        saved_model_tags=tags,
        saved_model_exported_names=signatures,
    )
    converter: Any = converter_flags_pb2.ConverterFlags(
        input_format=converter_flags_pb2.TENSORFLOW_GRAPHDEF,
        output_format=converter_flags_pb2.TFLITE,
        inference_type=types_pb2.FLOAT,
        inference_input_type=types_pb2.FLOAT,
        drop_control_dependency=True,
        enable_select_tf_ops=select_ops,
        enable_tflite_resource_variables=True,
        lower_tensor_list_ops=True,
        enable_composite_direct_lowering=True,
        canonicalizing_inf_as_min_max_float=True,
    )
    return model.SerializeToString(), converter.SerializeToString()


def refusal(message: str, fixing: str = "") -> InputRefused:
    """The refusal that follows from the converter's message.

    `fixing` begins the hint where the model has open dimensions that may be the cause.
    """
    damaged = damaged_variables(message) or _of_newer(message)
    if damaged:
        return damaged
    unsupported = re.search(r"(?:TF Select|Custom) ops: ([^\n]+)", message)
    if unsupported is None:
        return _refused(message, fixing)
    operators = tuple(name.strip() for name in unsupported[1].split(","))
    cause = Cause(operators=operators)
    floats = re.search(r"tensor<[^>]*\b(?:\?x|\d+x)*(f16|bf16|f64)>", message)
    if floats:
        return UnsupportedFloats(
            f"the model computes in {_FLOATS[floats[1]]}, which TFLite does not: "
            f"{', '.join(operators)}{_location(message)}",
            cause=cause,
        )
    unknown = tuple(name for name in operators if not has_builtin(name))
    parts = (hint for part, hint in _ALTERNATIVES.items() if part in unsupported[1])
    alternative = next(parts, "")
    if not unknown:
        alternative = alternative or (_GROUPS_OF_CHANNELS if _GROUPED.search(message) else fixing)
        often = ", often because a dimension is left open" if alternative == fixing != "" else ""
        return UnsupportedOperators(
            f"the model has operators in a form that TFLite does not have{often}: "
            f"{', '.join(operators)}{_location(message)}",
            hint=f"{alternative}replace the layer",
            cause=cause,
        )
    hint = "replace them in the model: no TFLite runtime has them"
    if "TF Select" in unsupported[0]:
        hint = (
            f"{alternative}replace them in the model, or convert with --allow-select-ops, and link "
            "the Select-TF (Flex) delegate on the device"
        )
    return UnsupportedOperators(
        f"the model needs operators that TFLite does not have: {', '.join(unknown)}"
        f"{_location(message)}",
        hint=hint,
        cause=cause,
    )


def _refused(message: str, fixing: str) -> ConversionRefused:
    # The first error names the operator; the location before it is a page long.
    match = re.search(r"error: (?:loc\(.*\): )?([^\n]+)", message)
    reason = first_line(match[1] if match else message, 400) or "it gave no reason"
    return ConversionRefused(
        f"TensorFlow's converter does not take this model: {reason}{_location(message)}",
        hint=f"{fixing}replace that operator or layer in the model",
        cause=Cause(operators=tuple(dict.fromkeys(re.findall(r"'tf\.(\w+)' op", message)))),
    )


def damaged_variables(message: str) -> InputRefused | None:
    """The refusal of a SavedModel whose variables cannot be read, if the message is about that."""
    match = _DAMAGED.search(message)
    if match is None:
        return None
    return InputRefused(
        f"the variables of the SavedModel cannot be read: {first_line(match[0], 400)}",
        hint="copy or export the model again; a file in its folder variables is missing or "
        "truncated",
    )


def _of_newer(message: str) -> InputRefused | None:
    match = _NEWER.search(message)
    if match is None:
        return None
    return InputRefused(
        f"the SavedModel is of a newer TensorFlow: {match[0]}",
        hint="install a TensorFlow that is as new, or export it with the TensorFlow that is "
        "installed here",
    )


def _location(message: str) -> str:
    """Where in the model the first error is, as far as the message names it."""
    # Written as the operator's type and its name in the graph of the model.
    match = re.search(r'error: .*?\["([A-Za-z0-9_]+):", "([^"@]+)(?:@[^"]*)?"\]', message)
    if match is None:
        return ""
    layers = [part for part in match[2].split("/") if "PartitionedCall" not in part]
    return f" ({match[1]} at {'/'.join(layers)})" if layers else f" ({match[1]})"


def has_builtin(operator: str) -> bool:
    """Whether TFLite has an operator of TensorFlow, such as "Conv2D", for some shapes and types."""
    bare = re.sub(r"V\d+$", "", operator.removeprefix("Stateless")).replace("_", "").lower()
    return operator in LISTS or _OTHER_NAMES.get(bare, bare) in _schema_names()


@functools.cache
def _schema_names() -> frozenset[str]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    names = (name for name in vars(BuiltinOperator) if name.isupper() or "_" in name)
    return frozenset(name.replace("_", "").lower() for name in names)
