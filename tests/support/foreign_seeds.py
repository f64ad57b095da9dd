"""Small models and files of other kinds to begin with, made by the builders of the other tests."""

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers
from graph_files import (
    ASSET_OBJECT,
    PLAIN_OBJECT,
    asset,
    block,
    call,
    constant,
    function,
    function_name,
    function_names,
    graph,
    initializer,
    kind,
    main_op,
    meta_graph,
    node,
    number,
    objects,
    runs,
    saver,
    takes,
    text,
)
from tiny_saved_model import PLAIN
from tiny_saved_model import meta_graph as plain_meta_graph
from tiny_tflite import Graph, float_model, packed


def tflite_files() -> list[bytes]:
    """Files with what the plain models do not have."""
    return [_calling(), _flex(), _strings_and_blocks()]


def _calling() -> bytes:
    model = float_model(signature=("serving_default", ["a"], ["b"]))
    options = schema.WhileOptionsT(condSubgraphIndex=1, bodySubgraphIndex=1)
    second = float_model().subgraphs[0]
    operator = model.subgraphs[0].operators[0]
    operator.builtinOptions, operator.builtinOptionsType = (
        options,
        schema.BuiltinOptions.WhileOptions,
    )
    model.subgraphs.append(second)
    model.metadata = [schema.MetadataT(name="min_runtime_version", buffer=0)]
    return bytes(packed(model))


def _flex() -> bytes:
    graph = Graph()
    x, y = graph.tensor("x", (1,), "float32"), graph.tensor("y", (1,), "float32")
    graph.operator("FlexAbs", [x], [y])
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String("Abs")
        builder.String(node("n", "Abs", T=kind(1)).decode())
    graph.operators[0].customOptions = np.frombuffer(bytes(builder.Finish()), np.uint8)
    return bytes(packed(graph.model([x], [y])))


def _strings_and_blocks() -> bytes:
    """Words as a table has them, sparse weights, int4 weights, and a QUANTIZE and DEQUANTIZE."""
    import struct

    graph = Graph()
    words = struct.pack("<i3i", 2, 16, 18, 21) + b"abcde"
    graph.tensor("words", (2,), "string", data=np.frombuffer(words, np.uint8))
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    w = graph.tensor("w", (3, 4), "int4", data=np.zeros(6, np.uint8), scale=[0.5, 1, 2])
    q = graph.computed("q", (1, 4), "QUANTIZE", [x], "int8", scale=0.5)
    r = graph.computed("r", (1, 3), "FULLY_CONNECTED", [q, w, -1], "int8", scale=0.5, version=10)
    y = graph.computed("y", (1, 3), "DEQUANTIZE", [r])
    dense = schema.DimensionMetadataT(format=0, denseSize=3)
    graph.tensors[w].sparsity = schema.SparsityParametersT(
        traversalOrder=np.array([0, 1], np.int32), dimMetadata=[dense, dense]
    )
    return bytes(packed(graph.model([x], [y], signature=("serving_default", ["a"], ["b"]))))


def saved_models() -> list[bytes]:
    """The saver, tables with assets, functions and control flow of honest models, and others."""
    table = "InitializeTableFromTextFileV2"
    restore = function(
        "restore_1", node("r", "RestoreV2", "file_prefix"), arguments=("file_prefix",)
    )
    top = graph(
        node("saver_filename", "Placeholder", dtype=kind(7)),
        call("restore", "restore_1", "saver_filename"),
        constant("c", "x"),
        node("v", "VarHandleOp", shared_name=text("v")),
        node("assign", "AssignVariableOp", "v", "c"),
        node("read", "ReadVariableOp", "v", "^assign", device="/job:localhost/device:CPU:0"),
        node("table", "HashTableV2"),
        node("t", table, "table", "read"),
        node("w", "While", "read", cond=function_name("f"), branches=function_names("f", "g")),
        functions=(
            restore,
            function("f", node("t", table, "h", "p"), arguments=("p", "h")),
            function("g", call("x", "f", "a", "b"), arguments=("a", "b")),
        ),
    )
    whole = meta_graph(
        top,
        saver("saver_filename:0", "", "restore"),
        asset("c:0", "words.txt"),
        runs("w:0"),
        takes("read:0"),
        initializer("t"),
        main_op("t"),
        objects(ASSET_OBJECT, PLAIN_OBJECT, functions={"f": (0, 1)}),
    )
    plain = plain_meta_graph({"serving_default": PLAIN}, operators=("Relu",))
    tagged = plain_meta_graph(
        {"a": PLAIN, "b": PLAIN}, tags=("serve", "tpu"), function_operators=("Abs",)
    )
    return [
        number(1, 1) + b"".join(block(2, each) for each in graphs)
        for graphs in ((whole,), (plain,), (plain, tagged), (tagged,))
    ]


def keras_configs() -> list[dict[str, Any]]:
    """Models as Keras 3 and tf_keras write them: Sequential, functional, nested, subclassed."""
    dense = {
        "class_name": "Dense",
        "module": "keras.layers",
        "registered_name": None,
        "config": {"name": "d", "units": 3, "activation": "relu", "dtype": "float32"},
        "build_config": {"input_shape": [None, 4]},
    }
    first = {
        "class_name": "InputLayer",
        "config": {"name": "x", "batch_shape": [None, 4], "dtype": "float32"},
    }
    tensor = {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 4], "dtype": "float32", "keras_history": ["x", 0, 0]},
    }
    called = {**dense, "name": "d", "inbound_nodes": [{"args": [tensor], "kwargs": {}}]}
    sequential = {"class_name": "Sequential", "config": {"name": "s", "layers": [first, dense]}}
    functional = {
        "class_name": "Functional",
        "config": {
            "name": "m",
            "layers": [first, called, {**sequential, "name": "s", "inbound_nodes": []}],
            "input_layers": [["x", 0, 0]],
            "output_layers": {"a": ["d", 0, 0], "b": ["s", 0, 0]},
        },
    }
    old = {
        "class_name": "Sequential",
        "config": [
            {"class_name": "Dense", "config": {"batch_input_shape": [None, 2], "units": 3}},
            {"class_name": "BatchNormalization", "config": {"name": "batch_normalization"}},
            {"class_name": "TFOpLambda", "config": {"name": "t", "function": "math.add"}},
            {"class_name": "StringLookup", "config": {"vocabulary": ["a", "b"]}},
        ],
    }
    own = {
        "module": "mine",
        "class_name": "Own",
        "registered_name": "mine>Own",
        "config": {"layer": dense, "kernel_initializer": {"class_name": "Zeros", "config": {}}},
        "build_config": {"input_shape": [None, 4]},
        "compile_config": {"optimizer": "adam", "loss": {"class_name": "X", "config": {}}},
    }
    return [functional, sequential, old, own]
