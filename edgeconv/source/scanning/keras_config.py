"""The configuration of a Keras model held against the classes and functions of Keras.

Both loaders of Keras make objects of names that a file has, and that of tf_keras imports any module
for it and calls any function of TensorFlow. So every object in the configuration, wherever it
stands, must be one that is known here.
"""

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING, Any

from edgeconv.source.keras_names import KERAS_NAMES
from edgeconv.source.scanning.keras_functions import computes_only
from edgeconv.source.unknown import is_installed

if TYPE_CHECKING:
    from edgeconv.source.scanning.findings import Findings

# Lists of this length are read better as text.
# ruff: noqa: SIM905

# Classes of Keras that call what the file says.
_CALLS = {
    "Lambda": "loading it would run code from the file",
    "__lambda__": "loading it would run code from the file",
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
# What stands for a value, and makes nothing else.
_VALUES = frozenset(
    "__tuple__ __numpy__ __tensor__ __bytes__ __ellipsis__ __slice__ __keras_tensor__ __none__ "
    "TensorShape TypeSpec CompositeTensor".split()
)
_SPEC = re.compile(r"tensorflow\.python\.(framework|ops\.ragged)\.\w+\.(Ragged|Sparse)?TensorSpec")
_OPERATIONS = re.compile(r"keras\.src\.ops\.(core|einops|image|linalg|math|nn|numpy)")
_KERAS = re.compile(r"(tf_)?keras(\..*)?")
# What Keras imports by itself: their layers compute, but tokenizers read files.
_FAMILY = re.compile(r"keras_(hub|cv|nlp)(\..*)?")
_READS_FILES = re.compile(r".*(Tokenizer|Preprocessor|Converter)\w*")
# Keys whose value, as text, is a function or class by its name alone.
_NAMED_BY_KEY = re.compile(r".*(activation|initializer|regularizer|constraint)")
# Layers of Keras's applications, which are not among its layers.
_APPLICATIONS = frozenset({"CustomScaleLayer", "LayerScale"})
_NAMES = (KERAS_NAMES | _APPLICATIONS | _POLICIES | _VALUES) - {"keras_export"}
_CLASS = re.compile(r"[A-Z]\w*")
_IMPORTED = "a loader would import the module that the file names, and call what is in it"
# It finds nothing there, so the model does not load; but nothing happens.
_LOOKED_UP = "a loader would look it up among Keras's own"
# No loader of edgeconv reads it: a model is opened without its optimizer, losses and metrics.
_NOT_READ = ("compile_config", "training_config")
_MOST_OBJECTS = 2_000_000


def scan_config(
    config: Any, findings: Findings, known: frozenset[str], *, where: str, is_read: bool = True
) -> None:
    """Look at every object of a configuration.

    `known` are MODULE or MODULE:NAME of the user's. What no loader reads (`is_read`) is only told.
    """
    _ConfigWalk(findings, known).run(config, where, is_read)


class _ConfigWalk:
    def __init__(self, findings: Findings, known: frozenset[str]) -> None:
        self._findings = findings
        self._modules = frozenset(text.partition(":")[0] for text in known)

    def run(self, config: Any, where: str, is_read: bool) -> None:
        # A place, a value, and whether edgeconv's loaders read it.
        waiting: list[tuple[str, Any, bool]] = [(where, config, is_read)]
        count = 0
        while waiting:
            place, node, is_read = waiting.pop()
            count += 1
            if count > _MOST_OBJECTS:
                what = f"more than {_MOST_OBJECTS} values"
                self._findings.add("structure", where, what, "takes all memory or time to read")
                return
            if isinstance(node, list):
                waiting += [
                    (place, each, is_read) for each in node if isinstance(each, list | dict)
                ]
            elif isinstance(node, dict):
                place = _place(place, node)
                self._look(place, node, is_read)
                waiting += [
                    (place, value, is_read and key not in _NOT_READ)
                    for key, value in node.items()
                    if isinstance(value, list | dict)
                ]

    def _look(self, place: str, node: dict[str, Any], is_read: bool) -> None:
        if "class_name" in node:
            self._object(place, node, is_read)
        for key, value in node.items():
            if key == "vocabulary" and isinstance(value, str):
                why = "reads a file that the model names"
                self._findings.add("path", place, f"vocabulary {value!r}", why, is_error=is_read)
            elif isinstance(value, str) and _NAMED_BY_KEY.fullmatch(key) and value not in _NAMES:
                self._unknown(place, value, _LOOKED_UP, is_error=False)

    def _object(self, place: str, node: dict[str, Any], is_read: bool) -> None:
        name, module, settings = (node.get(key) for key in ("class_name", "module", "config"))
        if not isinstance(name, str):
            self._unknown(place, str(name), _IMPORTED, is_error=is_read)
        elif name == "__typespec__":
            path = f"{module}.{node.get('spec_name')}"
            if not _SPEC.fullmatch(path) or node.get("registered_name") is not None:
                self._unknown(place, path, _IMPORTED, is_error=is_read)
        elif name in _CALLS:
            if not _calls_what_computes(name, settings):
                self._findings.add(
                    "function", place, _call_text(name, settings), _CALLS[name], is_error=is_read
                )
        elif name not in _VALUES or module is not None:
            called = settings if name == "function" else name
            registered = node.get("registered_name")
            why = self._refusal(called, module, registered)
            # An optimizer or a loss of Keras's is nothing to be told.
            is_plain = module is None or (isinstance(module, str) and _KERAS.fullmatch(module))
            if why and (is_read or not is_plain):
                is_named = isinstance(registered, str) and ">" in registered
                shown = registered if is_named else called
                self._unknown(place, str(shown), why, is_error=is_read and why != _LOOKED_UP)

    def _unknown(self, place: str, name: str, why: str, *, is_error: bool) -> None:
        what = f"{name!r}, which only the code that made the model knows"
        self._findings.add("class", place, what, why, is_error=is_error)

    def _refusal(self, name: Any, module: Any, registered: Any) -> str:
        """Why an object is refused, "" where it is not."""
        own = (None, "", "function", name, f"keras>{name}", f"Keras>{name}", f"Custom>{name}")
        if not isinstance(name, str):
            return _IMPORTED
        is_keras = name in _NAMES and registered in own
        if module is None or module == "builtins":
            # What Python itself has is found there; all else by its name alone.
            if module == "builtins" and hasattr(builtins, name):
                return _IMPORTED
            return "" if is_keras or self._modules else _LOOKED_UP
        if not isinstance(module, str):
            return _IMPORTED
        package = module.partition(".")[0]
        # The user's objects come first; what is not among them is looked for in the module.
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
    return name in _CALLS_FUNCTION and isinstance(function, str) and computes_only(function)


def _call_text(name: str, settings: Any) -> str:
    function = settings.get("function") if isinstance(settings, dict) else None
    return f"a {name} layer" + (f" of {function}" if name in _CALLS_FUNCTION else "")


def _place(place: str, node: dict[str, Any]) -> str:
    settings = node.get("config")
    name = settings.get("name") if isinstance(settings, dict) else None
    if isinstance(name, str) and len(name) < 100 and len(place) < 200:
        return f"{place}/{name}"
    return place
