"""The configuration of a Keras model, checked against the classes and functions of Keras.

Both loaders of Keras create objects from names in a file. That of tf_keras imports any module for
them and calls any function of TensorFlow. So every object in the configuration must be known here.
"""

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING, Any

from edgeconv.model.source.keras_names import KERAS_NAMES, is_installed

if TYPE_CHECKING:
    from edgeconv.model.source.scanning.nodes import Findings

# ruff: noqa: SIM905

RUNS_CODE = "loading it would run code from the file"
UNREADABLE_LAYERS = "layers that cannot be read"
# Classes of Keras that call what the file names.
_CALLS = {
    "Lambda": RUNS_CODE,
    "__lambda__": RUNS_CODE,
    "TFOpLambda": "calls the function of TensorFlow that the file names",
    "SlicingOpLambda": "calls the function of TensorFlow that the file names",
    "TensorFlowOpLayer": "runs an operator that is in the file",
    "ClassMethod": "calls a method that the file names",
    "InstanceMethod": "calls a method that the file names",
    "InstanceProperty": "reads an attribute that the file names",
}
_CALLS_FUNCTION = ("TFOpLambda", "SlicingOpLambda")
_POLICIES = frozenset(
    "Policy PolicyV1 DTypePolicy DTypePolicyMap FloatDTypePolicy QuantizedDTypePolicy "
    "QuantizedFloat8DTypePolicy GPTQDTypePolicy AWQDTypePolicy LossScaleOptimizer".split()
)
# They stand for a value.
_VALUES = frozenset(
    "__tuple__ __numpy__ __tensor__ __bytes__ __ellipsis__ __slice__ __keras_tensor__ __none__ "
    "TensorShape TypeSpec CompositeTensor".split()
)
_SPEC = re.compile(r"tensorflow\.python\.(framework|ops\.ragged)\.\w+\.(Ragged|Sparse)?TensorSpec")
_OPERATIONS = re.compile(r"keras\.src\.ops\.(core|einops|image|linalg|math|nn|numpy)")
_KERAS = re.compile(r"(tf_)?keras(\..*)?")
# Keras imports these packages: their layers compute, but tokenizers read files.
_FAMILY = re.compile(r"keras_(hub|cv|nlp)(\..*)?")
_READS_FILES = re.compile(r".*(Tokenizer|Preprocessor|Converter)\w*")
# Keys whose text is the name of a function or class.
_NAMED_BY_KEY = re.compile(r".*(activation|initializer|regularizer|constraint)")
# Of the wrappers of cells, which make a function of bytecode where this says "lambda".
_TYPE_OF_FUNCTION = "_fn_type"
# Layers of Keras's applications, which are not among its layers.
_APPLICATIONS = frozenset({"CustomScaleLayer", "LayerScale"})
_NAMES = (KERAS_NAMES | _APPLICATIONS | _POLICIES | _VALUES) - {"keras_export"}
_CLASS = re.compile(r"[A-Z]\w*")
_IMPORTED = "a loader would import the module that the file names, and call what is in it"
_LOOKED_UP = "Keras has nothing of this name, and a loader would take what it finds"
# Keys whose text is the name of a file, of layers and of columns of features.
_FILES = ("vocabulary", "vocabulary_file", "ckpt_to_load_from")
# Not read: a model is opened without its optimizer, losses and metrics.
_NOT_READ = ("compile_config", "training_config")
_MOST_OBJECTS = 2_000_000
# Functions of TensorFlow that compute: those of these modules, and these.
_PURE_MODULES = re.compile(
    r"(compat\.v1\.)?(math|nn|linalg|signal|strings|bitwise|random|image|sparse|ragged|"
    r"quantization|__operators__|__internal__\.nn)\.[\w.]+"
)
_IMPURE = re.compile(r".*\.(set_random_seed|set_seed|map_flat_values|map_values)")
_PURE = frozenset(
    "abs acos acosh add add_n argmax argmin argsort asin asinh atan atan2 atanh batch_to_space "
    "bitcast boolean_mask broadcast_to cast ceil clip_by_global_norm clip_by_norm clip_by_value "
    "complex concat constant convert_to_tensor cos cosh cumsum divide dynamic_partition "
    "dynamic_stitch edit_distance einsum ensure_shape equal exp expand_dims eye fill floor "
    "floordiv gather gather_nd greater greater_equal histogram_fixed_width identity identity_n "
    "is_tensor less less_equal linspace log logical_and logical_not logical_or matmul maximum "
    "meshgrid minimum mod multiply negative norm not_equal one_hot ones ones_like pad pow range "
    "rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum repeat reshape reverse reverse_sequence roll round saturate_cast "
    "scalar_mul scatter_nd searchsorted sequence_mask shape shape_n sigmoid sign sin sinh size "
    "slice sort space_to_batch space_to_batch_nd split sqrt square squeeze stack stop_gradient "
    "strided_slice subtract sum tan tanh tensor_scatter_nd_add tensor_scatter_nd_max "
    "tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile "
    "to_bfloat16 to_double to_float to_int32 to_int64 transpose truediv truncatediv truncatemod "
    "unique unique_with_counts unravel_index unsorted_segment_max unsorted_segment_mean "
    "unsorted_segment_min unsorted_segment_sum unstack where where_v2 zeros zeros_like "
    "floor_div depth_to_space space_to_depth squared_difference rsqrt to_complex64 erf lgamma "
    "arg_max arg_min extract_volume_patches".split()
)


def scan_config(
    config: Any,
    findings: Findings,
    known: frozenset[str],
    *,
    where: str,
    is_read: bool = True,
    has_graph: bool = False,
) -> None:
    """Scan every object of a configuration.

    `known` are the user's MODULE or MODULE:NAME. Without `is_read`, no loader reads it: findings
    are warnings. `has_graph`: a loader takes the graph for a name that Keras does not have.
    """
    _ConfigWalk(findings, known, has_graph).run(config, where, is_read)


class _ConfigWalk:
    def __init__(self, findings: Findings, known: frozenset[str], has_graph: bool) -> None:
        self._findings = findings
        self._has_graph = has_graph
        self._modules = frozenset(text.partition(":")[0] for text in known)

    def run(self, config: Any, where: str, is_read: bool) -> None:
        # A path, a value, and whether a loader reads it.
        waiting: list[tuple[str, Any, bool]] = [(where, config, is_read)]
        count = 0
        while waiting:
            path, node, is_read = waiting.pop()
            count += 1
            if count > _MOST_OBJECTS:
                what = f"more than {_MOST_OBJECTS} values"
                self._findings.add("structure", where, what, "takes all memory or time to read")
                return
            if isinstance(node, list):
                waiting += [(path, each, is_read) for each in node if isinstance(each, list | dict)]
            elif isinstance(node, dict):
                path = _path_of(path, node)
                self._look(path, node, is_read)
                waiting += [
                    (path, value, is_read and key not in _NOT_READ)
                    for key, value in node.items()
                    if isinstance(value, list | dict)
                ]

    def _look(self, path: str, node: dict[str, Any], is_read: bool) -> None:
        if "class_name" in node:
            self._object(path, node, is_read)
        for key, value in node.items():
            if key in _FILES and isinstance(value, str):
                why = "reads a file that the model names"
                self._findings.add("path", path, f"{key} {value!r}", why, is_error=is_read)
            elif key.endswith(_TYPE_OF_FUNCTION) and value == "lambda":
                what = f"{key} {value!r}"
                self._findings.add("function", path, what, RUNS_CODE, is_error=is_read)
            elif (
                isinstance(value, str)
                and _NAMED_BY_KEY.fullmatch(key)
                and value not in _NAMES
                and not self._modules
            ):
                self._unknown(path, value, _LOOKED_UP, is_error=is_read and not self._has_graph)

    def _object(self, path: str, node: dict[str, Any], is_read: bool) -> None:
        name, module, settings = (node.get(key) for key in ("class_name", "module", "config"))
        if not isinstance(name, str):
            self._unknown(path, str(name), _IMPORTED, is_error=is_read)
        elif name == "__typespec__":
            spec = f"{module}.{node.get('spec_name')}"
            if not _SPEC.fullmatch(spec) or node.get("registered_name") is not None:
                self._unknown(path, spec, _IMPORTED, is_error=is_read)
        elif name in _CALLS:
            if not _calls_what_computes(name, settings):
                self._findings.add(
                    "function", path, _call_text(name, settings), _CALLS[name], is_error=is_read
                )
        elif name not in _VALUES or module is not None:
            called = settings if name == "function" else name
            registered = node.get("registered_name")
            why = self._refusal(called, module, registered)
            # An optimizer or a loss of Keras itself is not a finding.
            is_plain = module is None or (isinstance(module, str) and _KERAS.fullmatch(module))
            if why and (is_read or not is_plain):
                is_named = isinstance(registered, str) and ">" in registered
                shown = registered if is_named else called
                is_taken = why != _LOOKED_UP or not self._has_graph
                self._unknown(path, str(shown), why, is_error=is_read and is_taken)

    def _unknown(self, path: str, name: str, why: str, *, is_error: bool) -> None:
        what = f"{name!r}, which only the code that made the model knows"
        self._findings.add("class", path, what, why, is_error=is_error)

    def _refusal(self, name: Any, module: Any, registered: Any) -> str:
        """Why an object is refused, or ""."""
        own = (None, "", "function", name, f"keras>{name}", f"Keras>{name}", f"Custom>{name}")
        if not isinstance(name, str):
            return _IMPORTED
        is_keras = name in _NAMES and registered in own
        if module is None or module == "builtins":
            # Python's own builtins would be found; others are looked up by name.
            if module == "builtins" and hasattr(builtins, name):
                return _IMPORTED
            return "" if is_keras or self._modules else _LOOKED_UP
        if not isinstance(module, str):
            return _IMPORTED
        package = module.partition(".")[0]
        # The user's objects come first, then the module.
        if self._modules and (module in self._modules or not is_installed(package)):
            return ""
        if _KERAS.fullmatch(module) and is_keras:
            return ""
        if _OPERATIONS.fullmatch(module) and registered in own and _CLASS.fullmatch(name):
            return ""
        if _FAMILY.fullmatch(module) and not _READS_FILES.fullmatch(name):
            return ""
        return _IMPORTED


def _calls_what_computes(name: str, settings: Any) -> bool:
    function = settings.get("function") if isinstance(settings, dict) else None
    return name in _CALLS_FUNCTION and isinstance(function, str) and _computes_only(function)


def _call_text(name: str, settings: Any) -> str:
    function = settings.get("function") if isinstance(settings, dict) else None
    return f"a {name} layer" + (f" of {function}" if name in _CALLS_FUNCTION else "")


def _path_of(path: str, node: dict[str, Any]) -> str:
    settings = node.get("config")
    name = settings.get("name") if isinstance(settings, dict) else None
    if isinstance(name, str) and len(name) < 100 and len(path) < 200:
        return f"{path}/{name}"
    return path


def _computes_only(name: str) -> bool:
    """Whether a function of TensorFlow, as "math.sin", computes and does nothing else."""
    if name.removeprefix("compat.v1.") in _PURE:
        return True
    return _PURE_MODULES.fullmatch(name) is not None and _IMPURE.fullmatch(name) is None
