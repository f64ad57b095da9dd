"""What a hostile model tries, operator by operator: each runs where TensorFlow runs it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from graph_files import block, function_name, kind, text
from numpy.typing import NDArray
from running_graphs import (
    FLOAT,
    INT32,
    INT64,
    STRING,
    Body,
    a_shape,
    boolean,
    definition,
    integer,
    shapes,
    texts,
    types,
)

Attempt = Literal["write", "read", "connect", "start"]


class Aim(NamedTuple):
    """What one attack is after: nothing else in the world has these names.

    `canary` is a file that is there, in the home of whoever runs edgeconv; `written` is none
    yet, in a folder that is; `port` is one that somebody listens at; `program` leaves a mark.
    """

    canary: Path
    written: Path
    port: int
    program: Path


# Adds an attack to a graph, and returns the reference of the node that has to run.
Operator = Callable[[Body, Aim], str]
Value = NDArray[Any] | str | list[str]
# What an operator is given: a constant, or what a function adds to the graph.
Given = Value | Callable[["Body", Aim], str]
_NO_ARGUMENTS = block(1, b"")
_WORDS = {"output_types": types(STRING), "output_shapes": shapes(())}
_ZERO = np.zeros(1, np.float32)
_DUMPED = {"T": kind(FLOAT), "tensor_name": text("x:0")}


def operator(
    op: str,
    *inputs: Given,
    gives: str = "output",
    then: Callable[[Body, str], str] | None = None,
    **attributes: bytes | Callable[[Aim], bytes],
) -> Operator:
    """One operator with these inputs; `then` uses its output, so that it is not left out."""

    def attack(body: Body, aim: Aim) -> str:
        given = [each(body, aim) if callable(each) else body.constant(each) for each in inputs]
        set_ = {key: each(aim) if callable(each) else each for key, each in attributes.items()}
        made = body.node(op, *given, gives=gives, **set_)
        return then(body, made) if then else made

    return attack


def written(body: Body, aim: Aim) -> str:
    return body.constant(str(aim.written))


def canary(body: Body, aim: Aim) -> str:
    return body.constant(str(aim.canary))


def canaries(body: Body, aim: Aim) -> str:
    return body.constant([str(aim.canary)])


def address(body: Body, aim: Aim) -> str:
    return body.constant(f"127.0.0.1:{aim.port}")


def _words(body: Body, aim: Aim) -> str:
    """A data set of one word."""
    plain = {"Toutput_types": types(STRING), "output_shapes": shapes(())}
    return body.node("TensorSliceDataset", body.constant(["x"]), gives="handle", **plain)


def _single(body: Body, dataset: str) -> str:
    """The one element of a data set of words."""
    return body.node("DatasetToSingleElement", dataset, gives="components", **_WORDS)


def _pair(body: Body, dataset: str) -> str:
    """The one element of a data set of two words."""
    return body.node("DatasetToSingleElement", dataset, gives="components", **_PAIRS)


def _shown(body: Body, value: str) -> str:
    """Print a text to the log, so that no optimizer takes it for useless."""
    return body.node("PrintV2", value, output_stream=text("log(info)"), end=text(""))


def _reduced(body: Body, value: str, dtype: int = STRING) -> str:
    """Likewise a vector or a matrix."""
    if dtype != STRING:
        value = body.node("AsString", value, T=kind(dtype))
    flat = body.node("Reshape", value, body.constant(np.full(1, -1, np.int32)), T=kind(STRING))
    joined = body.node("ReduceJoin", flat, body.constant(np.zeros(1, np.int32)))
    return _shown(body, joined)


def _int64(value: int) -> Value:
    return np.array(value, np.int64)


def _canary_text(aim: Aim) -> bytes:
    return text(str(aim.canary))


def _file_urls(aim: Aim) -> bytes:
    return texts(f"file://{aim.written}")


write_file = operator("WriteFile", written, "x")
read_file = operator("ReadFile", canary, gives="contents", then=_shown)
save_v2 = operator("SaveV2", written, ["x"], [""], _ZERO, dtypes=types(FLOAT))


def merge_checkpoints(body: Body, aim: Aim) -> str:
    """It deletes what it merges."""
    saved = save_v2(body, aim)
    parts, merged = body.constant([str(aim.written)]), body.constant(f"{aim.written}-merged")
    return body.node("MergeV2Checkpoints", parts, merged, after=saved)


def save_dataset(body: Body, aim: Aim) -> str:
    inner = Body(body.library, in_function=True)
    shard = inner.constant(np.zeros((), np.int64))
    body.library.append(definition("shard", inner.nodes, {"r": (shard, INT64)}, takes={"e": 7}))
    function = {"shard_func": function_name("shard"), "Tshard_func_args": _NO_ARGUMENTS}
    return body.node("SaveDataset", _words(body, aim), written(body, aim), **function)


def _writer(body: Body, aim: Aim) -> str:
    return body.node("SummaryWriter", gives="writer", shared_name=text("w"))


def summary(body: Body, aim: Aim) -> str:
    writer = _writer(body, aim)
    one = np.array(1, np.int32)
    sizes = (body.constant(one), body.constant(one), body.constant(""))
    made = body.node("CreateSummaryFileWriter", writer, written(body, aim), *sizes)
    return body.node("FlushSummaryWriter", writer, after=made)


def load_dataset(body: Body, aim: Aim) -> str:
    inner = Body(body.library, in_function=True)
    body.library.append(definition("reader", inner.nodes, {"r": ("e", 21)}, takes={"e": 21}))
    folder = body.constant(str(aim.canary.parent))
    function = {"reader_func": function_name("reader"), "Treader_func_args": _NO_ARGUMENTS}
    return _single(body, body.node("LoadDataset", folder, gives="handle", **_WORDS, **function))


def _table(body: Body, aim: Aim) -> str:
    typed = {"key_dtype": kind(STRING), "value_dtype": kind(INT64)}
    return body.node("HashTableV2", gives="table_handle", shared_name=text("h"), **typed)


def reader(op: str) -> Operator:
    """A reader of a queue of file names."""

    def attack(body: Body, aim: Aim) -> str:
        opened = body.node(op, gives="reader_handle", shared_name=text("reader"))
        held = {"component_types": types(STRING), "shared_name": text("q")}
        queue = body.node("FIFOQueueV2", gives="handle", **held)
        put = body.node("QueueEnqueueV2", queue, canary(body, aim), Tcomponents=types(STRING))
        return body.node("ReaderReadV2", opened, queue, gives="key", after=put)

    return attack


def _counter(body: Body, aim: Aim) -> str:
    return body.node("DummyIterationCounter", gives="handle")


def rpc_server(body: Body, aim: Aim) -> str:
    """It listens, and runs what others send."""
    server = body.node("RpcServer", body.constant(f"127.0.0.1:{aim.port + 1}"), gives="server")
    return body.node("RpcServerStart", server)


_PAIRS = {"output_types": types(STRING, STRING), "output_shapes": shapes((), ())}
_RECORDS = {"gives": "handle", "then": _single}
_PROTO = {"descriptor_source": _canary_text, "message_type": text("m"), "field_names": texts("f")}
_ONES = np.ones((1, 1), np.int32)

# By what they do, where TensorFlow runs them.
_ATTACKS: dict[Attempt, dict[str, Operator]] = {
    "write": {
        "WriteFile": write_file,
        "Save": operator("Save", written, ["x"], _ZERO, T=types(FLOAT)),
        "SaveSlices": operator("SaveSlices", written, ["x"], [""], _ZERO, T=types(FLOAT)),
        "SaveV2": save_v2,
        "MergeV2Checkpoints": merge_checkpoints,
        "CacheDataset": operator("CacheDataset", _words, written, **_RECORDS, **_WORDS),
        "SnapshotDataset": operator("SnapshotDataset", _words, written, **_RECORDS, **_WORDS),
        "SaveDataset": save_dataset,
        "DatasetToTFRecord": operator("DatasetToTFRecord", _words, written, ""),
        "PrintV2": operator(
            "PrintV2", "x", output_stream=lambda aim: text(f"file://{aim.written}"), end=text("")
        ),
        "CreateSummaryFileWriter": summary,
        "DebugIdentity": operator(
            "DebugIdentity", _ZERO, debug_urls=_file_urls, device_name=text("CPU:0"), **_DUMPED
        ),
        "DebugIdentityV2": operator(
            "DebugIdentityV2",
            _ZERO,
            T=kind(FLOAT),
            debug_urls=_file_urls,
            op_name=text("o"),
            tfdbg_run_id=text("r"),
            tensor_debug_mode=integer(8),
        ),
        # It opens what it reads for writing, too.
        "SqlDataset": operator(
            "SqlDataset", "sqlite", canary, "SELECT x FROM t", **_RECORDS, **_WORDS
        ),
    },
    "read": {
        "ReadFile": read_file,
        # It lists a folder.
        "MatchingFiles": operator(
            "MatchingFiles",
            lambda body, aim: body.constant(f"{aim.canary.parent}/*"),
            gives="filenames",
            then=_reduced,
        ),
        "MatchingFilesDataset": operator(
            "MatchingFilesDataset",
            lambda body, aim: body.constant([f"{aim.canary.parent}/*"]),
            **_RECORDS,
        ),
        "TextLineDataset": operator("TextLineDataset", canaries, "", _int64(0), **_RECORDS),
        "TFRecordDataset": operator("TFRecordDataset", canaries, "", _int64(0), **_RECORDS),
        "FixedLengthRecordDatasetV2": operator(
            "FixedLengthRecordDatasetV2", canaries, *map(_int64, (0, 1, 0, 0)), "", **_RECORDS
        ),
        "CSVDataset": operator(
            "CSVDataset",
            canaries,
            "",
            _int64(0),
            np.array(False),
            ",",
            np.array(False),
            "",
            np.zeros(0, np.int64),
            [""],
            **_RECORDS,
            **_WORDS,
        ),
        "LMDBDataset": operator("LMDBDataset", canaries, gives="handle", then=_pair, **_PAIRS),
        "LoadDataset": load_dataset,
        "SnapshotDatasetReader": operator(
            "SnapshotDatasetReader",
            canary,
            _int64(0),
            **_RECORDS,
            **_WORDS,
            compression=text(""),
            version=integer(2),
        ),
        "RecordInput": operator("RecordInput", gives="records", file_pattern=_canary_text),
        "ImmutableConst": operator(
            "ImmutableConst",
            gives="tensor",
            then=partial(_reduced, dtype=FLOAT),
            dtype=kind(FLOAT),
            shape=a_shape(1),
            memory_region_name=_canary_text,
        ),
        "LoadAndRemapMatrix": operator(
            "LoadAndRemapMatrix",
            canary,
            "w",
            *[np.zeros(1, np.int64)] * 2,
            np.zeros(0, np.float32),
            gives="output_matrix",
            num_rows=integer(1),
            num_cols=integer(1),
        ),
        "GenerateVocabRemapping": operator(
            "GenerateVocabRemapping",
            canary,
            canary,
            gives="remapping",
            then=partial(_reduced, dtype=INT64),
            num_new_vocab=integer(1),
            new_vocab_offset=integer(0),
        ),
        "Skipgram": operator(
            "Skipgram", gives="vocab_word", filename=_canary_text, batch_size=integer(1)
        ),
        "InitializeTableFromTextFileV2": operator(
            "InitializeTableFromTextFileV2",
            _table,
            canary,
            key_index=integer(-2),
            value_index=integer(-1),
        ),
        # What it opens is beside the prefix.
        "RestoreV2": operator(
            "RestoreV2", canary, ["x"], [""], gives="tensors", dtypes=types(FLOAT)
        ),
        "Restore": operator("Restore", canary, "x", gives="tensor", dt=kind(FLOAT)),
        "RestoreSlice": operator("RestoreSlice", canary, "x", "", gives="tensor", dt=kind(FLOAT)),
        # Beside the event it reads none: it is here for `summary`'s sake, and writes.
        "ImportEvent": operator("ImportEvent", _writer, canary),
        "FixedUnigramCandidateSampler": operator(
            "FixedUnigramCandidateSampler",
            np.zeros((1, 1), np.int64),
            gives="sampled_candidates",
            unique=boolean(False),
            vocab_file=_canary_text,
            num_true=integer(1),
            num_sampled=integer(1),
            range_max=integer(1),
        ),
        "DecodeProtoV2": operator(
            "DecodeProtoV2",
            ["x"],
            gives="sizes",
            then=partial(_reduced, dtype=INT32),
            output_types=types(INT32),
            **_PROTO,
        ),
        "EncodeProto": operator(
            "EncodeProto",
            _ONES,
            _ONES,
            gives="bytes",
            then=_reduced,
            Tinput_types=types(INT32),
            **_PROTO,
        ),
        "WholeFileReaderV2": reader("WholeFileReaderV2"),
        "TextLineReaderV2": reader("TextLineReaderV2"),
    },
    "connect": {
        "DebugIdentity to a server": operator(
            "DebugIdentity",
            _ZERO,
            debug_urls=lambda aim: texts(f"grpc://127.0.0.1:{aim.port}"),
            **_DUMPED,
        ),
        "RegisterDatasetV2": operator(
            "RegisterDatasetV2",
            _words,
            address,
            "grpc",
            gives="dataset_id",
            then=_shown,
            external_state_policy=integer(1),
        ),
        "DataServiceDatasetV2": operator(
            "DataServiceDatasetV2",
            _int64(0),
            "parallel_epochs",
            address,
            "grpc",
            "j",
            _int64(-1),
            _int64(-1),
            _int64(1),
            _counter,
            **_RECORDS,
            **_WORDS,
        ),
        "RpcClient": operator(
            "RpcClient", address, _int64(300), gives="client", list_registered_methods=boolean(True)
        ),
        "RpcServer": rpc_server,
        "ReadFile of gs://": operator("ReadFile", "gs://bucket/x", gives="contents", then=_shown),
    },
}
OPERATORS = {
    name: (attempts, attack)
    for attempts, attacks in _ATTACKS.items()
    for name, attack in attacks.items()
}
