"""SavedModels that TensorFlow loads and runs: each computes y = W x + b, and attacks on the way.

`Body` adds nodes to the graph itself or to a function, in which inputs are written otherwise.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from checkpoints import write_checkpoint
from graph_files import block, entry, function_name, initializer, kind, main_op, node, text, write
from numpy.typing import NDArray
from tiny_saved_model import number
from tiny_tflite import BIASES, WEIGHTS

# Adds the nodes of an attack, and returns the name of the one that has to run.
Attack = Callable[["Body"], str]

FLOAT, INT32, STRING, INT64, BOOL, RESOURCE = 1, 3, 7, 9, 10, 20
_TYPES = {"float32": FLOAT, "int32": INT32, "int64": INT64, "bool": BOOL}
_SERVING = "serving_default"


def integer(value: int) -> bytes:
    return number(3, value)


def boolean(value: bool) -> bytes:
    return number(5, int(value))


def shape(*sizes: int) -> bytes:
    return b"".join(block(2, number(1, size)) for size in sizes)


def a_shape(*sizes: int) -> bytes:
    return block(7, shape(*sizes))


def types(*values: int) -> bytes:
    return block(1, b"".join(number(6, value) for value in values))


def texts(*values: str) -> bytes:
    return block(1, b"".join(block(2, value) for value in values))


def shapes(*values: tuple[int, ...]) -> bytes:
    return block(1, b"".join(block(7, shape(*value)) for value in values))


def a_tensor(value: NDArray[np.generic] | str | list[str]) -> bytes:
    if isinstance(value, str):
        return block(8, number(1, STRING) + block(2, b"") + block(8, value))
    if isinstance(value, list):
        held = b"".join(block(8, each) for each in value)
        return block(8, number(1, STRING) + block(2, shape(len(value))) + held)
    content = np.ascontiguousarray(value).tobytes()
    head = number(1, _TYPES[value.dtype.name]) + block(2, shape(*value.shape))
    return block(8, head + block(4, content))


class Body:
    """The nodes of a graph, or of a function of it; `library` has the functions they call."""

    def __init__(self, library: list[bytes], *, in_function: bool = False) -> None:
        self.nodes: list[bytes] = []
        self.library = library
        self.in_function = in_function

    def node(
        self, op: str, *inputs: str, gives: str = "output", after: str = "", **attributes: bytes
    ) -> str:
        """Add a node; returns the reference to its first output, which is called `gives`."""
        name = f"{op.lower()}_{len(self.nodes)}"
        taken = [*inputs, *([f"^{name_of(after)}"] if after else [])]
        self.nodes.append(node(name, op, *taken, **attributes))
        return f"{name}:{gives}:0" if self.in_function else f"{name}:0"

    def other(self, reference: str, gives: str, index: int) -> str:
        """Another output of the node of a reference."""
        name = name_of(reference)
        return f"{name}:{gives}:0" if self.in_function else f"{name}:{index}"

    def constant(self, value: NDArray[np.generic] | str | list[str]) -> str:
        is_text = isinstance(value, str | list)
        dtype = STRING if is_text else _TYPES[value.dtype.name]
        return self.node("Const", dtype=kind(dtype), value=a_tensor(value))

    def function(self, attack: Attack, name: str = "") -> str:
        """A function that takes nothing, returns a number, and attacks; returns its name."""
        inner = Body(self.library, in_function=True)
        last = attack(inner)
        # The attack may have added functions of its own.
        name = name or f"f_{len(self.library)}"
        result = inner.constant(np.zeros((), np.float32))
        kept = inner.node("Identity", result, after=last, T=kind(FLOAT))
        self.library.append(definition(name, inner.nodes, {"r": (kept, FLOAT)}, runs=last))
        return name

    def call(self, name: str, op: str = "StatefulPartitionedCall") -> str:
        listed = types(FLOAT)
        return self.node(op, f=function_name(name), Tin=block(1, b""), Tout=listed)


def name_of(reference: str) -> str:
    return reference.partition(":")[0]


def definition(
    name: str,
    nodes: list[bytes],
    returns: dict[str, tuple[str, int]],
    *,
    takes: dict[str, int] | None = None,
    runs: str = "",
) -> bytes:
    """A function's message. What `runs` is done even where nothing takes what it returns."""
    given = b"".join(block(2, block(1, k) + number(3, v)) for k, v in (takes or {}).items())
    made = b"".join(block(3, block(1, k) + number(3, v)) for k, (_, v) in returns.items())
    stateful = number(17, 1)
    controls = block(20, "done") if runs else b""
    content = block(1, block(1, name) + given + made + stateful + controls)
    content += b"".join(block(3, each) for each in nodes)
    content += b"".join(entry(4, k, reference.encode()) for k, (reference, _) in returns.items())
    return content + (entry(6, "done", name_of(runs).encode()) if runs else b"")


def computed(body: Body, x: str, after: str = "") -> str:
    """The honest part: y = W x + b; only after another node has run, if one is given."""
    weights = body.constant(WEIGHTS.astype(np.float32).T)
    product = body.node("MatMul", x, weights, gives="product", T=kind(FLOAT))
    biases = body.constant(BIASES.astype(np.float32))
    total = body.node("AddV2", product, biases, gives="z", T=kind(FLOAT))
    return body.node("Identity", total, after=after, T=kind(FLOAT))


def tensor_info(name: str, *sizes: int) -> bytes:
    return block(1, name) + number(2, FLOAT) + block(3, shape(*sizes))


def signature(x: str, y: str) -> bytes:
    ends = entry(1, "x", tensor_info(x, -1, 4)) + entry(2, "y", tensor_info(y, -1, 3))
    return entry(5, _SERVING, ends + block(3, "tensorflow/serving/predict"))


def meta_graph(body: Body, *rest: bytes) -> bytes:
    library = b"".join(block(1, each) for each in body.library)
    versions = block(4, number(1, 2400))
    content = b"".join(block(1, each) for each in body.nodes) + block(2, library) + versions
    info = block(4, "serve") + block(5, "2.21.0")
    return block(1, info) + block(2, content) + b"".join(rest)


def session_model(directory: Path, attack: Attack, place: str) -> Path:
    """A SavedModel as of TensorFlow 1, attacking at one of `PLACES`."""
    body = Body([])
    x = body.node("Placeholder", dtype=kind(FLOAT), shape=a_shape(-1, 4))
    last, rest = PLACES[place](body, attack)
    y = computed(body, x, last)
    if place in _WITH_VARIABLES:
        (directory / "variables").mkdir(parents=True)
        for name in ("variables.index", "variables.data-00000-of-00001"):
            (directory / "variables" / name).write_bytes(b"")
    return write(directory, meta_graph(body, signature(x, y), *rest))


def _top(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    return attack(body), []


def _function(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    return body.call(body.function(attack)), []


def _three_deep(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    """A call, a branch in it, and a call in that."""
    inner = body.function(attack)

    def branching(middle: Body) -> str:
        middle_name = middle.function(lambda deeper: deeper.call(inner))
        yes = middle.constant(np.array(True))
        then = function_name(middle_name)
        taken = {"Tcond": kind(BOOL), "Tin": block(1, b""), "Tout": types(FLOAT)}
        return middle.node("If", yes, then_branch=then, else_branch=then, **taken)

    return body.call(body.function(branching)), []


def _data_set(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    """Run for each element of a data set."""
    inner = Body(body.library, in_function=True)
    last = attack(inner)
    kept = inner.node("Identity", "e", after=last, T=kind(FLOAT))
    body.library.append(definition("mapped", inner.nodes, {"r": (kept, FLOAT)}, takes={"e": FLOAT}))
    ends = {"output_types": types(FLOAT), "output_shapes": shapes(())}
    elements = body.constant(np.zeros(1, np.float32))
    plain = {"Toutput_types": types(FLOAT), "output_shapes": shapes(())}
    made = body.node("TensorSliceDataset", elements, gives="handle", **plain)
    mapped = function_name("mapped")
    each = body.node("MapDataset", made, gives="handle", f=mapped, Targuments=block(1, b""), **ends)
    return body.node("DatasetToSingleElement", each, gives="components", **ends), []


def _initializer(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    name = name_of(body.call(body.function(attack)))
    return "", [initializer(name)]


def _main_op(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    name = name_of(body.node("NoOp", after=attack(body)))
    return "", [main_op(name)]


def _legacy_main_op(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    name = name_of(body.node("NoOp", after=attack(body)))
    return "", [main_op(name, "legacy_init_op")]


def _restore(body: Body, attack: Attack) -> tuple[str, list[bytes]]:
    prefix = body.node("Placeholder", dtype=kind(STRING), shape=a_shape())
    saved = body.node("Identity", prefix, T=kind(STRING))
    last = name_of(body.node("NoOp", after=attack(body)))
    return "", [block(3, block(1, prefix) + block(2, saved) + block(3, last) + number(7, 2))]


PLACES: dict[str, Callable[[Body, Attack], tuple[str, list[bytes]]]] = {
    "top": _top,
    "function": _function,
    "three-deep": _three_deep,
    "data-set": _data_set,
    "initializer": _initializer,
    "main-op": _main_op,
    "legacy-main-op": _legacy_main_op,
    "restore": _restore,
}
_WITH_VARIABLES = ("restore",)


# Models as of TensorFlow 2, whose loader follows a graph of objects.

_USER_OBJECT_VERSION = block(2, number(1, 1) + number(2, 1))


def object_model(directory: Path, attack: Attack, place: str) -> Path:
    """A SavedModel as of TensorFlow 2, attacking in one of `OBJECT_PLACES`."""
    body = Body([])
    x = body.node("Placeholder", dtype=kind(FLOAT), shape=a_shape(-1, 4))
    signed = _signed_function(body)
    ends = {"Tin": types(FLOAT), "Tout": types(FLOAT)}
    y = body.node("StatefulPartitionedCall", x, f=function_name(signed), **ends)
    functions = {
        "_create_resource": _creator(body, attack if place == "creator" else _nothing),
        "_initialize": _initializing(body, attack if place == "table-initializer" else _nothing),
        "_destroy_resource": body.function(attack if place == "destructor" else _nothing),
    }
    savers = ()
    if place in ("save-function", "restore-function"):
        savers = _saver_functions(body, attack, place)
    graph = _objects(signed, functions, savers)
    children = {name: 4 + n for n, name in enumerate(functions)}
    held = [{"signatures": 1, "table": 3}, {_SERVING: 2}, {}, children, *[{} for _ in children]]
    write_checkpoint(directory / "variables", held, restores=3 if savers else 0)
    return write(directory, meta_graph(body, signature(x, y), block(7, graph)))


OBJECT_PLACES = ("creator", "table-initializer", "destructor", "save-function", "restore-function")


def _nothing(body: Body) -> str:
    return body.node("NoOp")


def _signed_function(body: Body) -> str:
    inner = Body(body.library, in_function=True)
    y = computed(inner, "x")
    returns = {"y": (y, FLOAT)}
    body.library.append(definition("signed", inner.nodes, returns, takes={"x": FLOAT}))
    return "signed"


def _creator(body: Body, attack: Attack) -> str:
    inner = Body(body.library, in_function=True)
    last = attack(inner)
    table = {"key_dtype": kind(STRING), "value_dtype": kind(INT64), "shared_name": text("t")}
    made = inner.node("HashTableV2", gives="table_handle", after=last, **table)
    returns = {"r": (made, RESOURCE)}
    body.library.append(definition("creator", inner.nodes, returns, runs=last))
    return "creator"


def _initializing(body: Body, attack: Attack) -> str:
    """It captures the resource, which is created for that."""
    inner = Body(body.library, in_function=True)
    last = attack(inner)
    kept = inner.node("Identity", inner.constant(np.zeros((), np.float32)), T=kind(FLOAT))
    returns = {"r": (kept, FLOAT)}
    made = definition("initialize", inner.nodes, returns, takes={"h": RESOURCE}, runs=last)
    body.library.append(made)
    return "initialize"


def _saver_functions(body: Body, attack: Attack, place: str) -> tuple[str, str]:
    """What says what to save, which the loader asks, and what takes the tensor that was saved."""
    inner = Body(body.library, in_function=True)
    last = attack(inner) if place == "save-function" else _nothing(inner)
    returns = {"name": inner.constant(""), "slice_spec": inner.constant("")}
    typed = {key: (value, STRING) for key, value in {**returns, "tensor": "key"}.items()}
    saved = definition("saved", inner.nodes, typed, takes={"key": STRING}, runs=last)
    inner = Body(body.library, in_function=True)
    last = attack(inner) if place == "restore-function" else _nothing(inner)
    kept = inner.node("Identity", "value", after=last, T=kind(STRING))
    returned = {"r": (kept, STRING)}
    restored = definition("restored", inner.nodes, returned, takes={"value": STRING}, runs=last)
    body.library += [saved, restored]
    return "saved", "restored"


def _objects(signed: str, functions: dict[str, str], savers: tuple[str, ...]) -> bytes:
    """The root, its signatures, one resource, and a function for each of its methods."""
    methods = list(functions.items())
    root = _child(1, "signatures") + _child(3, "table") + _user_object("_generic_user_object")
    signatures = _child(2, _SERVING) + _user_object("signature_map")
    resource = b"".join(_child(4 + n, name) for n, (name, _) in enumerate(methods))
    saves = number(2, 4 + len(methods)) + number(3, 5 + len(methods))
    resource += block(10, b"") + (entry(11, "t", saves) if savers else b"")
    nodes = [root, signatures, _bare(signed, "x"), resource]
    nodes += [_bare(name) for _, name in methods]
    nodes += [_bare(name, "key", positional=1) for name in savers]
    x, y = (_spec(name, FLOAT, -1, size) for name, size in (("x", 4), ("y", 3)))
    concrete = entry(2, signed, _concrete(entry(1, "x", x), block(53, entry(1, "y", y))))
    for method, name in methods:
        dtype = RESOURCE if method == "_create_resource" else FLOAT
        captured = number(2, 3) if method == "_initialize" else b""
        concrete += entry(2, name, captured + _concrete(b"", _spec("r", dtype)))
    if savers:
        key = _spec("key", STRING)
        told = [entry(1, name, _spec(name, STRING)) for name in ("name", "slice_spec", "tensor")]
        listed = block(51, block(1, block(53, b"".join(told))))
        concrete += entry(2, savers[0], _concrete(b"", listed, block(1, key)))
        concrete += entry(2, savers[1], _concrete(b"", key, block(1, key)))
    return b"".join(block(1, each) for each in nodes) + concrete


def _spec(name: str, dtype: int, *sizes: int) -> bytes:
    return block(33, block(1, name) + block(2, shape(*sizes)) + number(3, dtype))


def _concrete(keywords: bytes, result: bytes, positional: bytes = b"") -> bytes:
    arguments = block(52, block(1, block(52, positional)) + block(1, block(53, keywords)))
    return block(3, arguments) + block(4, result)


def _child(node: int, name: str) -> bytes:
    return block(1, number(1, node) + block(2, name))


def _user_object(identifier: str) -> bytes:
    return block(4, block(1, identifier) + _USER_OBJECT_VERSION)


def _bare(name: str, *keywords: str, positional: int = 0) -> bytes:
    listed = b"".join(block(2, each) for each in keywords)
    return block(8, block(1, name) + listed + number(3, positional))
