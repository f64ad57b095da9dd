"""Models whose files are the attack: where names lead, what is packed, how large they say."""

import copy
import io
import json
import pickle
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import keras_attacks as keras
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from attacks import Aim, Attempt
from flatbuffers import flexbuffers
from graph_files import asset, block, graph, node, write
from graph_files import meta_graph as meta_graph_of
from running_graphs import (
    Body,
    a_shape,
    computed,
    integer,
    kind,
    meta_graph,
    object_model,
    session_model,
    signature,
)
from tiny_tflite import Graph, float_model, packed

Writes = Callable[[Path, Aim], Path]

_FLOAT = 1


# SavedModel directories.


def _with_asset(path: Path, aim: Aim, name: str) -> Path:
    """A table whose file is an asset that lies elsewhere; the loader gives it that path."""
    body = Body([])
    x = body.node("Placeholder", dtype=kind(_FLOAT), shape=a_shape(-1, 4))
    named = body.constant("asset")
    typed = {"key_dtype": kind(7), "value_dtype": kind(9)}
    table = body.node("HashTableV2", gives="table_handle", **typed)
    columns = {"key_index": integer(-2), "value_index": integer(-1)}
    loaded = body.node("InitializeTableFromTextFileV2", table, named, **columns)
    y = computed(body, x, loaded)
    (path / "assets").mkdir(parents=True)
    return write(path, meta_graph(body, signature(x, y), asset(named, name)))


def asset_above(path: Path, aim: Aim) -> Path:
    up = "../" * (len(path.resolve().parts) + 1)
    return _with_asset(path, aim, up + str(aim.canary).lstrip("/"))


def asset_absolute(path: Path, aim: Aim) -> Path:
    return _with_asset(path, aim, str(aim.canary))


def asset_link(path: Path, aim: Aim) -> Path:
    """The asset has a plain name, and is a symbolic link."""
    model = _with_asset(path, aim, "words.txt")
    (model / "assets" / "words.txt").symlink_to(aim.canary)
    return model


def variables_link(path: Path, aim: Aim) -> Path:
    model = object_model(path, lambda body: body.node("NoOp"), "creator")
    index = model / "variables" / "variables.index"
    index.unlink()
    index.symlink_to(aim.canary)
    return model


def graph_link(path: Path, aim: Aim) -> Path:
    path.mkdir()
    (path / "saved_model.pb").symlink_to(aim.canary)
    return path


def second_graph(path: Path, aim: Aim) -> Path:
    """TensorFlow reads it in place of the one that is looked at."""
    model = session_model(path, lambda body: body.node("NoOp"), "top")
    (model / "saved_model.cpb").write_bytes(b"x")
    return model


def other_machine(path: Path, aim: Aim) -> Path:
    far = node("x", "NoOp", device="/job:worker/task:1")
    return write(path, meta_graph_of(graph(far)))


_NOT_READ = "the loader fails before it reads it"
SAVED_MODELS: dict[str, tuple[Attempt, Writes, str]] = {
    "asset above the model": ("read", asset_above, ""),
    "asset at an absolute path": ("read", asset_absolute, ""),
    "asset that is a link": ("read", asset_link, ""),
    "variables that are a link": ("read", variables_link, ""),
    "graph that is a link": (
        "read",
        graph_link,
        "edgeconv reads the graph first, and not that one",
    ),
    "second graph": ("read", second_graph, _NOT_READ),
    "device of another machine": ("connect", other_machine, _NOT_READ),
}


# Archives of Keras.


def _member(name: str) -> Writes:
    def write_archive(path: Path, aim: Aim) -> Path:
        climbing = name.format(written=aim.written, up="../" * 20 + str(aim.written).lstrip("/"))
        file = path.with_name(path.name + ".keras")
        return keras.archive(file, keras.sequential(), members={climbing: b"x"})

    return write_archive


def link_member(path: Path, aim: Aim) -> Path:
    file = keras.archive(path.with_name(path.name + ".keras"), keras.sequential())
    entry = zipfile.ZipInfo("assets")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(file, "a") as packed_file:
        packed_file.writestr(entry, str(aim.canary.parent))
    return file


def pickled_weights(path: Path, aim: Aim) -> Path:
    class Opens:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(aim.written), "w")

    content = io.BytesIO()
    np.savez(content, weights=np.array([pickle.dumps(Opens())], dtype=object))
    members = {"model.weights.npz": content.getvalue()}
    return keras.archive(path.with_name(path.name + ".keras"), keras.sequential(), members=members)


def shards_elsewhere(path: Path, aim: Aim) -> Path:
    mapped = {"weight_map": {"layers/dense/vars": str(aim.canary)}}
    members = {"model.weights.json": json.dumps(mapped).encode()}
    return keras.archive(path.with_name(path.name + ".keras"), keras.sequential(), members=members)


_NOT_UNPACKED = "Keras reads entries by their names, and unpacks no other"
ARCHIVES: dict[str, tuple[Attempt, Writes, str]] = {
    "entry that climbs": ("write", _member("assets/{up}"), _NOT_UNPACKED),
    "entry at an absolute path": ("write", _member("{written}"), _NOT_UNPACKED),
    "entry with backslashes": ("write", _member("assets\\..\\..\\x"), _NOT_UNPACKED),
    "entry that is a link": ("read", link_member, _NOT_UNPACKED),
    "pickled weights": ("write", pickled_weights, _NOT_UNPACKED),
    "shards elsewhere": ("read", shards_elsewhere, _NOT_UNPACKED),
}


# .tflite files with operators of TensorFlow.


def flex_model(name: str, operator: str, message: bytes) -> schema.ModelT:
    """A .tflite with one custom operator, which the Flex delegate would run."""
    made = Graph()
    x, y = made.tensor("x", (1,), "float32"), made.tensor("y", (1,), "float32")
    made.operator(name, [x], [y])
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(operator)
        builder.String(message.decode())
    made.operators[0].customOptions = np.frombuffer(bytes(builder.Finish()), np.uint8)
    return made.model([x], [y])


def _flex(name: str, operator: str, run: str) -> Writes:
    def write_file(path: Path, aim: Aim) -> Path:
        file = path.with_name(path.name + ".tflite")
        file.write_bytes(packed(flex_model(name, operator, node("n", run))))
        return file

    return write_file


TFLITE: dict[str, tuple[Attempt, Writes]] = {
    "FlexWriteFile": ("write", _flex("FlexWriteFile", "WriteFile", "WriteFile")),
    "FlexReadFile": ("read", _flex("FlexReadFile", "ReadFile", "ReadFile")),
    "FlexPyFunc": ("start", _flex("FlexPyFunc", "PyFunc", "PyFunc")),
    "FlexAbs that writes": ("write", _flex("FlexAbs", "Abs", "WriteFile")),
    "FlexAbs with another name": ("write", _flex("FlexAbs", "WriteFile", "Abs")),
}


# Small files that stand for huge ones.


def many_nodes(path: Path, aim: Aim) -> Path:
    many = b"".join(block(1, block(1, str(n)) + block(2, "NoOp")) for n in range(510_000))
    return write(path, meta_graph_of(many))


def many_subgraphs(path: Path, aim: Aim) -> Path:
    model = float_model()
    model.subgraphs = [copy.copy(model.subgraphs[0]) for _ in range(20_000)]
    return _tflite(path, model)


def many_dimensions(path: Path, aim: Aim) -> Path:
    model = float_model()
    model.subgraphs[0].tensors[0].shape = np.ones(5000, np.int32)
    return _tflite(path, model)


def huge_tensor(path: Path, aim: Aim) -> Path:
    model = float_model()
    model.subgraphs[0].tensors[0].shape = np.array((2**30, 2**30), np.int32)
    return _tflite(path, model)


def endless_calls(path: Path, aim: Aim) -> Path:
    model = float_model()
    operator = model.subgraphs[0].operators[0]
    operator.builtinOptions = schema.WhileOptionsT(condSubgraphIndex=0, bodySubgraphIndex=0)
    operator.builtinOptionsType = schema.BuiltinOptions.WhileOptions
    return _tflite(path, model)


def _tflite(path: Path, model: schema.ModelT) -> Path:
    file = path.with_name(path.name + ".tflite")
    file.write_bytes(packed(model))
    return file


def packed_zeros(path: Path, aim: Aim) -> Path:
    members = {"assets/zeros": bytes(2**29)}
    return keras.archive(path.with_name(path.name + ".keras"), keras.sequential(), members=members)


def unwritten_weights(path: Path, aim: Aim) -> Path:
    """An HDF5 data set of 4 TiB, of which nothing is there."""

    def change(group: h5py.Group) -> None:
        del group["kernel:0"]
        group.create_dataset("kernel:0", (2**20, 2**20), np.float32, chunks=(1024, 1024))

    return keras.hdf5(path.with_name(path.name + ".h5"), keras.functional(), change)


def deep_configuration(path: Path, aim: Aim) -> Path:
    """A call within 200 layers."""
    inner = keras.calling("os", "system", str(aim.program))
    for _ in range(200):
        inner = keras.layer("TimeDistributed", {"layer": inner}, [["x", 0, 0, {}]])
    return keras.hdf5(path.with_name(path.name + ".h5"), keras.functional(inner))


BOMBS: dict[str, Writes] = {
    "half a million nodes": many_nodes,
    "20,000 subgraphs": many_subgraphs,
    "rank 5,000": many_dimensions,
    "tensor of 4 EiB": huge_tensor,
    "subgraph that calls itself": endless_calls,
    "512 MiB of zeros": packed_zeros,
    "weights of 4 TiB": unwritten_weights,
    "200 wrappers": deep_configuration,
}
