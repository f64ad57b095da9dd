"""SavedModels that two readers read differently: what occurs twice, paths that are made, assets.

What a scan reads is harmless in most of them, and what a loader of the same bytes reads is not.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from attacks import Aim, Attempt, save_v2, write_file
from graph_files import asset, block, entry, function_name, kind, main_op, strings, text, write
from running_graphs import (
    BOOL,
    FLOAT,
    STRING,
    Body,
    a_shape,
    computed,
    definition,
    integer,
    meta_graph,
    name_of,
    object_model,
    session_model,
    signature,
    types,
)
from tiny_saved_model import number, varint

Writes = Callable[[Path, Aim], Path]
# Adds an attack to a graph: the node that has to run, and more of the graph's message.
Adds = Callable[[Body, Aim], tuple[str, list[bytes]]]

_UP = "/.." * 30


class Row(NamedTuple):
    """One model, as `Case`."""

    name: str
    attempts: Attempt
    write: Writes
    idle: str = ""
    is_refused: bool = True


def _session(path: Path, aim: Aim, *, adds: Adds) -> Path:
    """A model as of TensorFlow 1, with values of variables that are none, and two assets."""
    body = Body([])
    x = body.node("Placeholder", dtype=kind(FLOAT), shape=a_shape(-1, 4))
    last, rest = adds(body, aim)
    y = computed(body, x, last)
    for name in ("variables.index", "variables.data-00000-of-00001"):
        (path / "variables").mkdir(parents=True, exist_ok=True)
        (path / "variables" / name).write_bytes(b"")
    (path / "assets").mkdir()
    for name in ("words.txt", "other.txt"):
        (path / "assets" / name).write_text("a\nb\n")
    return write(path, meta_graph(body, signature(x, y), *rest))


# Attributes and other fields that occur twice: the last one counts.


def _last(body: Body, key: str, value: bytes) -> None:
    """The attribute of the last node once more."""
    body.nodes[-1] += block(5, block(1, key) + block(2, value))


def _print(body: Body, attribute: bytes) -> str:
    printed = body.node("PrintV2", body.constant("x"), end=text(""))
    body.nodes[-1] += attribute
    return printed


def _print_to(body: Body, aim: Aim, *, way: str) -> str:
    key, plain, file = "output_stream", text("log(info)"), text(f"file://{aim.written}")
    ways = {
        "twice": block(5, block(1, key) + block(2, plain))
        + block(5, block(1, key) + block(2, file)),
        "value twice": block(5, block(1, key) + block(2, plain) + block(2, file)),
        "text twice": block(5, block(1, key) + block(2, plain + file)),
        "key twice": block(5, block(1, "end") + block(1, key) + block(2, file)),
        "key last": block(5, block(2, file) + block(1, key)),
        "a number before": block(5, block(1, key) + block(2, integer(1) + file)),
    }
    return _print(body, ways[way])


def _decode_proto(body: Body, aim: Aim) -> str:
    ends = {"field_names": block(1, block(2, "f")), "output_types": types(3)}
    plain = {"descriptor_source": text("local://"), "message_type": text("m")}
    sizes = body.node("DecodeProtoV2", body.constant(["x"]), gives="sizes", **plain, **ends)
    _last(body, "descriptor_source", text(str(aim.canary)))
    return sizes


def _encode_proto(body: Body, aim: Aim) -> str:
    ends = {"field_names": block(1, block(2, "f")), "Tinput_types": types(3)}
    plain = {"descriptor_source": text("local://"), "message_type": text("m")}
    sizes, value = (body.constant(np.ones((1, 1), np.int32)) for _ in range(2))
    made = body.node("EncodeProto", sizes, value, gives="bytes", **plain, **ends)
    _last(body, "descriptor_source", text(str(aim.canary)))
    return made


def _sampler(body: Body, aim: Aim) -> str:
    numbers = {"num_true": 1, "num_sampled": 1, "range_max": 40, "num_reserved_ids": 0}
    plain = {key: integer(value) for key, value in numbers.items()}
    classes = body.constant(np.zeros((1, 1), np.int64))
    made = body.node(
        "FixedUnigramCandidateSampler", classes, gives="sampled_candidates",
        unique=number(5, 0), vocab_file=text(""), **plain,
    )  # fmt: skip
    _last(body, "vocab_file", text(str(aim.canary)))
    return made


def _operator_twice(body: Body, aim: Aim) -> str:
    place, content = body.constant(str(aim.written)), body.constant("x")
    body.nodes.append(
        block(1, "w") + block(2, "NoOp") + block(2, "WriteFile")
        + block(3, place) + block(3, content)
    )  # fmt: skip
    return "w"


TWICE: dict[str, tuple[Attempt, Callable[[Body, Aim], str]]] = {
    **{
        f"attribute, {way}": ("write", partial(_print_to, way=way))
        for way in (
            *("twice", "value twice", "text twice", "key twice", "key last", "a number before"),
        )
    },
    "DecodeProtoV2's source twice": ("read", _decode_proto),
    "EncodeProto's source twice": ("read", _encode_proto),
    "sampler's file twice": ("read", _sampler),
    "operator twice": ("write", _operator_twice),
}


def _tf1(path: Path, aim: Aim, *, attack: Callable[[Body, Aim], str]) -> Path:
    return session_model(path, lambda body: attack(body, aim), "top")


def _tf2(path: Path, aim: Aim, *, attack: Callable[[Body, Aim], str]) -> Path:
    return object_model(path, lambda body: attack(body, aim), "table-initializer")


# Parts of the graph's message that are merged.


def _parts(path: Path, aim: Aim, *, way: str) -> Path:
    """WriteFile, in a part of the message that a reader may leave out."""
    body, hidden = Body([]), Body([])
    x = body.node("Placeholder", dtype=kind(FLOAT), shape=a_shape(-1, 4))
    place, content = body.constant(str(aim.written)), body.constant("x")
    if way == "function":
        last = body.call(hidden.function(lambda inner: write_file(inner, aim), "hidden"))
    else:
        last = "w"
        hidden.nodes.append(
            block(1, last) + block(2, "WriteFile") + block(3, place) + block(3, content)
        )
    y = computed(body, x, last)
    whole = meta_graph(body, signature(x, y))
    library = b"".join(block(1, each) for each in hidden.library)
    more = {
        "graph": block(2, b"".join(block(1, each) for each in hidden.nodes)),
        "function": block(2, block(2, library)),
        # A tag in more bytes than it needs.
        "long tag": block(2, b"".join(b"\x8a\x80\x00" + block(1, n)[1:] for n in hidden.nodes)),
    }[way]
    honest = meta_graph(Body([]), *())
    return write(path, whole + more, *([honest] if way == "two graphs" else []))


# Paths of savers.


def _saving(path: Callable[[Body, str, Aim], str], body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    """A saver that the loader runs, and that restores from the path that is made of the prefix."""
    prefix = body.node("Placeholder", dtype=kind(STRING), shape=a_shape())
    saved = body.node("Identity", prefix, T=kind(STRING))
    made = path(body, prefix, aim)
    # A function restores by itself.
    restored = made if "partitionedcall" in made else _restored(body, made)
    last = name_of(body.node("NoOp", after=restored))
    return "", [block(3, block(1, prefix) + block(2, saved) + block(3, last) + number(7, 2))]


def _restored(body: Body, path: str) -> str:
    names, slices = body.constant(["x"]), body.constant([""])
    return body.node("RestoreV2", path, names, slices, gives="tensors", dtypes=types(FLOAT))


def _away(aim: Aim) -> str:
    """What leads from any path to the canary; TensorFlow opens no folder on the way."""
    return f"{_UP}{aim.canary}"


def _joined(body: Body, *parts: str, separator: str = "") -> str:
    return body.node("StringJoin", *parts, N=integer(len(parts)), separator=text(separator))


def _separator(body: Body, prefix: str, aim: Aim) -> str:
    away = _away(aim).removesuffix("canary")
    return _joined(body, prefix, body.constant("canary"), separator=away)


def _packed(value: str) -> bytes:
    """An attribute that is a tensor of one string, as bytes."""
    return block(
        8, number(1, STRING) + block(2, b"") + block(4, varint(len(value)) + value.encode())
    )


def _piece_in_bytes(body: Body, prefix: str, aim: Aim) -> str:
    """A constant has a text, and bytes that TensorFlow takes in its place."""
    held = block(4, varint(len(_away(aim))) + _away(aim).encode()) + block(8, "piece")
    value = block(8, number(1, STRING) + block(2, b"") + held)
    return _joined(body, prefix, body.node("Const", dtype=kind(STRING), value=value))


def _piece_twice(body: Body, prefix: str, aim: Aim) -> str:
    piece = body.constant("piece")
    _last(body, "value", block(8, number(1, STRING) + block(2, b"") + block(8, _away(aim))))
    return _joined(body, prefix, piece)


def _function_called(body: Body, prefix: str, aim: Aim, *, name: str) -> str:
    """A function called like an operator that makes paths; it returns another path."""
    takes = {"Identity": 1, "StringJoin": 2, "Select": 3, "SelectV2": 3, "ShardedFilename": 3}[name]
    inner = Body(body.library, in_function=True)
    returns = {"r": (inner.constant(str(aim.canary)), STRING)}
    given = {
        "Select": (BOOL, STRING, STRING), "SelectV2": (BOOL, STRING, STRING),
        "ShardedFilename": (STRING, 3, 3),
    }.get(name, (STRING,) * takes)  # fmt: skip
    arguments = {f"a{n}": dtype for n, dtype in enumerate(given)}
    body.library.append(definition(name, inner.nodes, returns, takes=arguments))
    made = {BOOL: np.array(True), 3: np.array(1, np.int32)}
    inputs = [prefix if d == STRING else body.constant(made[d]) for d in given]
    return body.node(name, *inputs, gives="r")


def _restoring(body: Body, name: str, *takes: str, path: str) -> bytes:
    """The message of a function that restores from its argument `path`."""
    inner = Body(body.library, in_function=True)
    restored = _restored(inner, path)
    kept = inner.node("Identity", inner.constant("done"), after=restored, T=kind(STRING))
    arguments = dict.fromkeys(takes, STRING)
    return definition(name, inner.nodes, {"r": (kept, STRING)}, takes=arguments, runs=restored)


def _list_argument(body: Body, prefix: str, aim: Aim) -> str:
    """A list comes before the path in a function's arguments, so numbers of inputs are others."""
    several = block(2, block(1, "many") + number(3, STRING) + block(5, "N"))
    path = block(2, block(1, "path") + number(3, STRING))
    counted = block(4, block(1, "N") + block(2, "int"))
    made = _restoring(body, "restoring", path="path")
    body.library.append(made + block(1, several + path + counted))
    named = block(10, block(1, "restoring") + entry(2, "N", integer(2)))
    ends = {"Tin": types(STRING, STRING, STRING), "Tout": types(STRING)}
    away = body.constant(str(aim.canary))
    return body.node("StatefulPartitionedCall", prefix, prefix, away, f=named, **ends)


def _replaced(body: Body, prefix: str, aim: Aim) -> str:
    """TensorFlow calls a function for this device in place of the one that the graph names."""
    for name, argument, device in (("fine", "one", "GPU"), ("other", "two", "CPU")):
        made = _restoring(body, name, "one", "two", path=argument)
        made += entry(5, "api_implements", text("same"))
        body.library.append(made + entry(5, "api_preferred_device", text(device)))
    ends = {"Tin": types(STRING, STRING), "Tout": types(STRING)}
    away = body.constant(str(aim.canary))
    called = body.node("StatefulPartitionedCall", prefix, away, f=function_name("fine"), **ends)
    body.nodes[-1] += block(4, "/device:CPU:0")
    return called


SAVERS: dict[str, Callable[[Body, str, Aim], str]] = {
    "separator of a join": _separator,
    "piece that is bytes": _piece_in_bytes,
    "piece twice": _piece_twice,
    **{
        f"function called {name}": partial(_function_called, name=name)
        for name in ("StringJoin", "Identity", "Select", "SelectV2", "ShardedFilename")
    },
    "argument after a list": _list_argument,
    "function for another device": _replaced,
}


def _saver_twice(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    _, (fine,) = _saving(lambda _body, prefix, _aim: prefix, body, aim)
    other = name_of(body.node("NoOp", after=_restored(body, body.constant(str(aim.canary)))))
    return "", [fine, block(3, block(3, other))]


# What TensorFlow 1 runs besides.


def _collection(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    last = name_of(body.node("NoOp", after=save_v2(body, aim)))
    return "", [main_op(last, "table_initializer")]


def _variable(body: Body, aim: Aim, *, collection: str) -> tuple[str, list[bytes]]:
    """A variable whose initial value is made by a saver that writes."""
    handle = body.node("VarHandleOp", dtype=kind(FLOAT), shape=a_shape(), shared_name=text("v"))
    zero = body.constant(np.zeros((), np.float32))
    value = body.node("Identity", zero, after=save_v2(body, aim), T=kind(FLOAT))
    assigned = body.node("AssignVariableOp", handle, value, dtype=kind(FLOAT))
    read = body.node("ReadVariableOp", handle, dtype=kind(FLOAT))
    packed = block(1, handle) + block(2, name_of(assigned)) + block(3, read)
    packed += number(5, 1) + block(6, value) + number(7, 1)
    return "", [entry(4, collection, block(2, block(1, packed)))]


# Assets.


def _table(body: Body, path: str) -> str:
    typed = {"key_dtype": kind(STRING), "value_dtype": kind(9)}
    table = body.node("HashTableV2", gives="table_handle", **typed)
    columns = {"key_index": integer(-2), "value_index": integer(-1)}
    return body.node("InitializeTableFromTextFileV2", table, path, **columns)


def _unfed(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    """The loader feeds the path where it initializes, and nobody where the signature runs."""
    path = body.constant(str(aim.canary))
    return _table(body, path), [asset(path, "words.txt")]


def _unfed_bytes(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    path = body.node("Const", dtype=kind(STRING), value=_packed(str(aim.canary)))
    return _table(body, path), [asset(path, "words.txt")]


def _unfed_both(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    path = body.node("Const", dtype=kind(STRING), value=_packed(str(aim.canary)) + strings("x"))
    return _table(body, path), [asset(path, "words.txt")]


def _unfed_computed(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    """An asset's tensor is the output of an operator."""
    path = body.node(
        "Reshape", body.constant(str(aim.canary)), body.constant(np.zeros(0, np.int32)),
        T=kind(STRING),
    )  # fmt: skip
    return _table(body, path), [asset(path, "words.txt")]


def _unfed_default(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    named = body.constant(str(aim.canary))
    path = body.node("PlaceholderWithDefault", named, dtype=kind(STRING), shape=a_shape())
    return _table(body, path), [asset(path, "words.txt")]


def _older(*pairs: tuple[str, str]) -> bytes:
    """The collection of assets, which is read where there is no field for them."""
    url = block(1, "type.googleapis.com/tensorflow.AssetFileDef")
    held = b"".join(
        block(1, url + block(2, block(1, block(1, tensor)) + block(2, name)))
        for tensor, name in pairs
    )
    return entry(4, "saved_model_assets", block(5, held))


def _initialized(body: Body, path: str) -> bytes:
    return main_op(name_of(body.node("NoOp", after=_table(body, path))))


def _collection_only(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    path = body.constant("x")
    return "", [_older((path, _away(aim).lstrip("/"))), _initialized(body, path)]


def _collection_besides(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
    path, other = body.constant(str(aim.canary)), body.constant("x")
    declared = [_older((path, "words.txt")), asset(other, "other.txt")]
    return "", [*declared, _initialized(body, path)]


def _named(body: Body, aim: Aim, *, way: str) -> tuple[str, list[bytes]]:
    path = body.constant("x")
    name = _away(aim).lstrip("/")
    ways = {
        "twice": [asset(path, "words.txt"), asset(path, name)],
        "name twice": [block(6, block(1, block(1, path)) + block(2, "words.txt") + block(2, name))],
        "through a folder that is none": [asset(path, f"none/{name}")],
        "through itself": [asset(path, f"words.txt/{name}")],
        "through here": [asset(path, f"./{name}")],
    }
    return "", [*ways[way], _initialized(body, path)]


def _aliased(body: Body, aim: Aim, *, way: str) -> tuple[str, list[bytes]]:
    """A variable that holds an asset's path, and is another variable too."""
    path, other = body.constant("x"), body.constant(str(aim.canary))
    plain = {"dtype": kind(STRING), "shape": a_shape()}
    named = {} if way == "no name" else {"shared_name": text("v")}
    one = body.node("VarHandleOp", **plain, **named)
    if way == "function":
        inner = Body(body.library, in_function=True)
        two = inner.node("VarHandleOp", gives="resource", **plain, **named)
        last = inner.node("AssignVariableOp", two, "value", dtype=kind(STRING))
        kept = inner.node("Identity", "value", after=last, T=kind(STRING))
        body.library.append(
            definition(
                "set", inner.nodes, {"r": (kept, STRING)}, takes={"value": STRING}, runs=last
            )
        )
    elif way == "name twice":
        two = body.node("VarHandleOp", **plain, shared_name=text("w"))
        _last(body, "shared_name", text("v"))
    else:
        two = body.node("VarHandleOp", **plain, **named)
    first = body.node("AssignVariableOp", one, path, dtype=kind(STRING))
    if way == "function":
        ends = {"Tin": types(STRING), "Tout": types(STRING)}
        second = body.node(
            "StatefulPartitionedCall", other, after=first, f=function_name("set"), **ends
        )
    else:
        second = body.node("AssignVariableOp", two, other, after=first, dtype=kind(STRING))
    read = body.node("ReadVariableOp", one, after=second, dtype=kind(STRING))
    return _table(body, read), [asset(path, "words.txt")]


ASSETS: dict[str, Adds] = {
    "asset that is not fed": _unfed,
    "asset that is bytes": _unfed_bytes,
    "asset that is bytes and text": _unfed_both,
    "asset that is computed": _unfed_computed,
    "asset that has a default": _unfed_default,
    "asset in the collection only": _collection_only,
    "asset in the collection besides the field": _collection_besides,
    **{
        f"asset, {way}": partial(_named, way=way)
        for way in (
            *("twice", "name twice", "through a folder that is none", "through itself"),
            "through here",
        )
    },
    **{
        f"variable of an asset, {way}": partial(_aliased, way=way)
        for way in ("name twice", "no name", "function")
    },
}


def _linked(path: Path, aim: Aim, *, way: str) -> Path:
    """Files and folders that are links; the table reads an asset."""

    def adds(body: Body, aim: Aim) -> tuple[str, list[bytes]]:
        path = body.constant("x")
        return "", [asset(path, "words.txt"), _initialized(body, path)]

    model = _session(path, aim, adds=adds)
    words = model / "assets" / "words.txt"
    words.unlink()
    if way == "folder":
        (aim.canary.parent / "words.txt").write_text("secret\n")
        (model / "assets" / "other.txt").unlink()
        (model / "assets").rmdir()
        (model / "assets").symlink_to(aim.canary.parent)
    elif way == "chain":
        words.symlink_to("between")
        (model / "assets" / "between").symlink_to("../inside")
        (model / "inside").symlink_to(aim.canary)
    else:
        words.symlink_to(Path("..", *[".."] * len(model.resolve().parts), *aim.canary.parts[1:]))
    return model


def _graphs() -> Iterator[Row]:
    for name, (attempts, attack) in TWICE.items():
        yield Row(f"TF1 {name}", attempts, partial(_tf1, attack=attack))
        yield Row(f"TF2 {name}", attempts, partial(_tf2, attack=attack))
    for way in ("graph", "function", "long tag"):
        yield Row(f"message in two parts, {way}", "write", partial(_parts, way=way))
    for name, path in SAVERS.items():
        write = partial(_session, adds=partial(_saving, path))
        # The copy has no functions for other devices.
        is_refused = path is not _replaced
        yield Row(f"saver, {name}", "read", write, _IDLE.get(name, ""), is_refused=is_refused)
    yield Row("saver twice", "read", partial(_session, adds=_saver_twice))
    yield Row("table_initializer", "write", partial(_session, adds=_collection))
    for collection in ("local_variables", "variables"):
        adds = partial(_variable, collection=collection)
        write, why = partial(_session, adds=adds), _IDLE.get(collection, "")
        yield Row(f"initial value of {collection}", "write", write, why)
    for name, adds in ASSETS.items():
        write, why = partial(_session, adds=adds), _IDLE.get(name, "")
        # The copy has another text there.
        yield Row(name, "read", write, why, is_refused=adds is not _unfed)
    for way in ("folder", "chain", "relative"):
        yield Row(f"asset that is a link, {way}", "read", partial(_linked, way=way))


_IDLE = {
    "function called Identity": "every Identity of the graph calls it, of other types too",
    "argument after a list": "TensorFlow counts the devices of a call otherwise, and fails",
    "variables": "TensorFlow restores these, and runs nothing that initializes them",
    "variable of an asset, no name": "the loader gives each a name",
}


READINGS = tuple(_graphs())
