"""What a hostile model tries, operator by operator: each runs where TensorFlow runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from graph_files import block, function_name, kind, text
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

if TYPE_CHECKING:
    from collections.abc import Callable


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


_NO_ARGUMENTS = block(1, b"")
_WORDS = {"output_types": types(STRING), "output_shapes": shapes(())}


def _single(body: Body, dataset: str) -> str:
    """The one element of a data set of words."""
    return body.node("DatasetToSingleElement", dataset, gives="components", **_WORDS)


def _words(body: Body, *values: str) -> str:
    plain = {"Toutput_types": types(STRING), "output_shapes": shapes(())}
    held = body.constant(list(values))
    return body.node("TensorSliceDataset", held, gives="handle", **plain)


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


# Files written.


def write_file(body: Body, aim: Aim) -> str:
    return body.node("WriteFile", body.constant(str(aim.written)), body.constant("x"))


def save(body: Body, aim: Aim) -> str:
    names = body.constant(["x"])
    value = body.constant(np.zeros(1, np.float32))
    return body.node("Save", body.constant(str(aim.written)), names, value, T=types(FLOAT))


def save_slices(body: Body, aim: Aim) -> str:
    place, names, slices = (body.constant(v) for v in (str(aim.written), ["x"], [""]))
    value = body.constant(np.zeros(1, np.float32))
    return body.node("SaveSlices", place, names, slices, value, T=types(FLOAT))


def save_v2(body: Body, aim: Aim) -> str:
    place, names, slices = (body.constant(v) for v in (str(aim.written), ["x"], [""]))
    value = body.constant(np.zeros(1, np.float32))
    return body.node("SaveV2", place, names, slices, value, dtypes=types(FLOAT))


def merge_checkpoints(body: Body, aim: Aim) -> str:
    """It deletes what it merges."""
    saved = save_v2(body, aim)
    parts = body.constant([str(aim.written)])
    merged = body.constant(f"{aim.written}-merged")
    return body.node("MergeV2Checkpoints", parts, merged, after=saved)


def cache_dataset(body: Body, aim: Aim) -> str:
    place = body.constant(str(aim.written))
    return _single(
        body, body.node("CacheDataset", _words(body, "x"), place, gives="handle", **_WORDS)
    )


def snapshot_dataset(body: Body, aim: Aim) -> str:
    place = body.constant(str(aim.written))
    return _single(
        body, body.node("SnapshotDataset", _words(body, "x"), place, gives="handle", **_WORDS)
    )


def save_dataset(body: Body, aim: Aim) -> str:
    inner = Body(body.library, in_function=True)
    shard = inner.constant(np.zeros((), np.int64))
    body.library.append(definition("shard", inner.nodes, {"r": (shard, INT64)}, takes={"e": 7}))
    place = body.constant(str(aim.written))
    function = {"shard_func": function_name("shard"), "Tshard_func_args": _NO_ARGUMENTS}
    return body.node("SaveDataset", _words(body, "x"), place, **function)


def dataset_to_records(body: Body, aim: Aim) -> str:
    place, plain = body.constant(str(aim.written)), body.constant("")
    return body.node("DatasetToTFRecord", _words(body, "x"), place, plain)


def printed(body: Body, aim: Aim) -> str:
    return body.node(
        "PrintV2", body.constant("x"), output_stream=text(f"file://{aim.written}"), end=text("")
    )


def summary(body: Body, aim: Aim) -> str:
    writer = body.node("SummaryWriter", gives="writer", shared_name=text("w"))
    numbers = [body.constant(np.array(n, np.int32)) for n in (1, 1)]
    made = body.node(
        "CreateSummaryFileWriter", writer, body.constant(str(aim.written)), *numbers,
        body.constant(""),
    )  # fmt: skip
    return body.node("FlushSummaryWriter", writer, after=made)


def debug_identity(body: Body, aim: Aim) -> str:
    urls = texts(f"file://{aim.written}")
    value = body.constant(np.zeros(1, np.float32))
    named = {"tensor_name": text("x:0"), "device_name": text("CPU:0")}
    return body.node("DebugIdentity", value, T=kind(FLOAT), debug_urls=urls, **named)


def debug_identity_v2(body: Body, aim: Aim) -> str:
    urls = texts(f"file://{aim.written}")
    value = body.constant(np.zeros(1, np.float32))
    rest = {"tfdbg_run_id": text("r"), "op_name": text("o"), "tensor_debug_mode": integer(8)}
    return body.node("DebugIdentityV2", value, T=kind(FLOAT), debug_urls=urls, **rest)


# Files read.


def read_file(body: Body, aim: Aim) -> str:
    return _shown(body, body.node("ReadFile", body.constant(str(aim.canary)), gives="contents"))


def matching_files(body: Body, aim: Aim) -> str:
    """It lists a folder."""
    pattern = body.constant(f"{aim.canary.parent}/*")
    return _reduced(body, body.node("MatchingFiles", pattern, gives="filenames"))


def matching_files_dataset(body: Body, aim: Aim) -> str:
    pattern = body.constant([str(aim.canary.parent / "*")])
    return _single(body, body.node("MatchingFilesDataset", pattern, gives="handle"))


def text_line_dataset(body: Body, aim: Aim) -> str:
    read = (body.constant([str(aim.canary)]), body.constant(""))
    size = body.constant(np.zeros((), np.int64))
    return _single(body, body.node("TextLineDataset", *read, size, gives="handle"))


def record_dataset(body: Body, aim: Aim) -> str:
    read = (body.constant([str(aim.canary)]), body.constant(""))
    size = body.constant(np.zeros((), np.int64))
    return _single(body, body.node("TFRecordDataset", *read, size, gives="handle"))


def fixed_length_dataset(body: Body, aim: Aim) -> str:
    sizes = [body.constant(np.array(n, np.int64)) for n in (0, 1, 0, 0)]
    made = body.node(
        "FixedLengthRecordDatasetV2", body.constant([str(aim.canary)]), *sizes,
        body.constant(""), gives="handle",
    )  # fmt: skip
    return _single(body, made)


def csv_dataset(body: Body, aim: Aim) -> str:
    number = body.constant(np.zeros((), np.int64))
    flag, mark = body.constant(np.array(False)), body.constant(",")
    made = body.node(
        "CSVDataset", body.constant([str(aim.canary)]), body.constant(""), number, flag, mark,
        flag, body.constant(""), body.constant(np.zeros(0, np.int64)), body.constant([""]),
        gives="handle", **_WORDS,
    )  # fmt: skip
    return _single(body, made)


def sql_dataset(body: Body, aim: Aim) -> str:
    """It opens what it reads for writing, too."""
    texts_ = (body.constant(v) for v in ("sqlite", str(aim.canary), "SELECT x FROM t"))
    return _single(body, body.node("SqlDataset", *texts_, gives="handle", **_WORDS))


def lmdb_dataset(body: Body, aim: Aim) -> str:
    pairs = {"output_types": types(STRING, STRING), "output_shapes": shapes((), ())}
    made = body.node("LMDBDataset", body.constant([str(aim.canary)]), gives="handle", **pairs)
    return body.node("DatasetToSingleElement", made, gives="components", **pairs)


def load_dataset(body: Body, aim: Aim) -> str:
    inner = Body(body.library, in_function=True)
    body.library.append(definition("reader", inner.nodes, {"r": ("e", 21)}, takes={"e": 21}))
    place = body.constant(str(aim.canary.parent))
    function = {"reader_func": function_name("reader"), "Treader_func_args": _NO_ARGUMENTS}
    return _single(body, body.node("LoadDataset", place, gives="handle", **_WORDS, **function))


def snapshot_reader(body: Body, aim: Aim) -> str:
    place, start = body.constant(str(aim.canary)), body.constant(np.zeros((), np.int64))
    versioned = {"compression": text(""), "version": integer(2)}
    made = body.node("SnapshotDatasetReader", place, start, gives="handle", **_WORDS, **versioned)
    return _single(body, made)


def record_input(body: Body, aim: Aim) -> str:
    return body.node("RecordInput", gives="records", file_pattern=text(str(aim.canary)))


def immutable_const(body: Body, aim: Aim) -> str:
    place = text(str(aim.canary))
    held = body.node(
        "ImmutableConst", gives="tensor", dtype=kind(FLOAT), shape=a_shape(1),
        memory_region_name=place,
    )  # fmt: skip
    return _reduced(body, held, FLOAT)


def remap_matrix(body: Body, aim: Aim) -> str:
    rows = [body.constant(np.zeros(1, np.int64)) for _ in range(2)]
    place, name = body.constant(str(aim.canary)), body.constant("w")
    ends = {"num_rows": integer(1), "num_cols": integer(1)}
    values = body.constant(np.zeros(0, np.float32))
    return body.node(
        "LoadAndRemapMatrix", place, name, *rows, values, gives="output_matrix", **ends
    )


def vocabulary_remapping(body: Body, aim: Aim) -> str:
    place = body.constant(str(aim.canary))
    counted = {"num_new_vocab": integer(1), "new_vocab_offset": integer(0)}
    mapped = body.node("GenerateVocabRemapping", place, place, gives="remapping", **counted)
    return _reduced(body, mapped, INT64)


def skipgram(body: Body, aim: Aim) -> str:
    return body.node(
        "Skipgram", gives="vocab_word", filename=text(str(aim.canary)), batch_size=integer(1)
    )


def table_from_file(body: Body, aim: Aim) -> str:
    typed = {"key_dtype": kind(STRING), "value_dtype": kind(INT64)}
    made = body.node("HashTableV2", gives="table_handle", shared_name=text("h"), **typed)
    columns = {"key_index": integer(-2), "value_index": integer(-1)}
    return body.node(
        "InitializeTableFromTextFileV2", made, body.constant(str(aim.canary)), **columns
    )


def restore_v2(body: Body, aim: Aim) -> str:
    """What it opens is beside the prefix."""
    named = (body.constant(v) for v in (str(aim.canary), ["x"], [""]))
    return body.node("RestoreV2", *named, gives="tensors", dtypes=types(FLOAT))


def restore(body: Body, aim: Aim) -> str:
    place, name = body.constant(str(aim.canary)), body.constant("x")
    return body.node("Restore", place, name, gives="tensor", dt=kind(FLOAT))


def restore_slice(body: Body, aim: Aim) -> str:
    named = (body.constant(v) for v in (str(aim.canary), "x", ""))
    return body.node("RestoreSlice", *named, gives="tensor", dt=kind(FLOAT))


def import_event(body: Body, aim: Aim) -> str:
    """Beside the event it reads none: it is here for `summary`'s sake, and writes."""
    writer = body.node("SummaryWriter", gives="writer", shared_name=text("w"))
    return body.node("ImportEvent", writer, body.constant(str(aim.canary)))


def candidate_sampler(body: Body, aim: Aim) -> str:
    classes = body.constant(np.zeros((1, 1), np.int64))
    sizes = {"num_true": integer(1), "num_sampled": integer(1), "range_max": integer(1)}
    return body.node(
        "FixedUnigramCandidateSampler", classes, gives="sampled_candidates",
        unique=boolean(False), vocab_file=text(str(aim.canary)), **sizes,
    )  # fmt: skip


def decode_proto(body: Body, aim: Aim) -> str:
    source = {"descriptor_source": text(str(aim.canary)), "message_type": text("m")}
    ends = {"field_names": texts("f"), "output_types": types(INT32)}
    sizes = body.node("DecodeProtoV2", body.constant(["x"]), gives="sizes", **source, **ends)
    return _reduced(body, sizes, INT32)


def encode_proto(body: Body, aim: Aim) -> str:
    source = {"descriptor_source": text(str(aim.canary)), "message_type": text("m")}
    ends = {"field_names": texts("f"), "Tinput_types": types(INT32)}
    sizes, value = (body.constant(np.ones((1, 1), np.int32)) for _ in range(2))
    return _reduced(body, body.node("EncodeProto", sizes, value, gives="bytes", **source, **ends))


def whole_file_reader(body: Body, aim: Aim) -> str:
    return _with_queue(body, aim, "WholeFileReaderV2")


def text_line_reader(body: Body, aim: Aim) -> str:
    return _with_queue(body, aim, "TextLineReaderV2")


def _with_queue(body: Body, aim: Aim, reader: str) -> str:
    opened = body.node(reader, gives="reader_handle", shared_name=text("reader"))
    queue = body.node(
        "FIFOQueueV2", gives="handle", component_types=types(STRING), shared_name=text("q")
    )
    put = body.node(
        "QueueEnqueueV2", queue, body.constant(str(aim.canary)), Tcomponents=types(STRING)
    )
    return body.node("ReaderReadV2", opened, queue, gives="key", after=put)


# Other machines.


def debug_to_server(body: Body, aim: Aim) -> str:
    urls = texts(f"grpc://127.0.0.1:{aim.port}")
    value = body.constant(np.zeros(1, np.float32))
    return body.node(
        "DebugIdentity", value, T=kind(FLOAT), debug_urls=urls, tensor_name=text("x:0")
    )


def register_dataset(body: Body, aim: Aim) -> str:
    place, protocol = body.constant(f"127.0.0.1:{aim.port}"), body.constant("grpc")
    given = body.node(
        "RegisterDatasetV2", _words(body, "x"), place, protocol, gives="dataset_id",
        external_state_policy=integer(1),
    )  # fmt: skip
    return _shown(body, given)


def data_service(body: Body, aim: Aim) -> str:
    name, mode, place, protocol, job = (
        body.constant(v) for v in ("d", "parallel_epochs", f"127.0.0.1:{aim.port}", "grpc", "j")
    )
    most = body.constant(np.ones((), np.int64))
    counter = body.node("DummyIterationCounter", gives="handle")
    made = body.node(
        "DataServiceDatasetV2", body.constant(np.zeros((), np.int64)), mode, place, protocol, job,
        body.constant(np.full((), -1, np.int64)), body.constant(np.full((), -1, np.int64)), most,
        counter, gives="handle", **_WORDS,
    )  # fmt: skip
    del name
    return _single(body, made)


def rpc_client(body: Body, aim: Aim) -> str:
    place, timeout = (
        body.constant(f"127.0.0.1:{aim.port}"), body.constant(np.full((), 300, np.int64))
    )  # fmt: skip
    return body.node(
        "RpcClient", place, timeout, gives="client", list_registered_methods=boolean(True)
    )


def rpc_server(body: Body, aim: Aim) -> str:
    """It listens, and runs what others send."""
    server = body.node("RpcServer", body.constant(f"127.0.0.1:{aim.port + 1}"), gives="server")
    return body.node("RpcServerStart", server)


def cloud_storage(body: Body, aim: Aim) -> str:
    return _shown(body, body.node("ReadFile", body.constant("gs://bucket/x"), gives="contents"))


OPERATORS: dict[str, tuple[Attempt, Callable[[Body, Aim], str]]] = {
    "WriteFile": ("write", write_file),
    "Save": ("write", save),
    "SaveSlices": ("write", save_slices),
    "SaveV2": ("write", save_v2),
    "MergeV2Checkpoints": ("write", merge_checkpoints),
    "CacheDataset": ("write", cache_dataset),
    "SnapshotDataset": ("write", snapshot_dataset),
    "SaveDataset": ("write", save_dataset),
    "DatasetToTFRecord": ("write", dataset_to_records),
    "PrintV2": ("write", printed),
    "CreateSummaryFileWriter": ("write", summary),
    "DebugIdentity": ("write", debug_identity),
    "DebugIdentityV2": ("write", debug_identity_v2),
    "ReadFile": ("read", read_file),
    "MatchingFiles": ("read", matching_files),
    "MatchingFilesDataset": ("read", matching_files_dataset),
    "TextLineDataset": ("read", text_line_dataset),
    "TFRecordDataset": ("read", record_dataset),
    "FixedLengthRecordDatasetV2": ("read", fixed_length_dataset),
    "CSVDataset": ("read", csv_dataset),
    "SqlDataset": ("write", sql_dataset),
    "LMDBDataset": ("read", lmdb_dataset),
    "LoadDataset": ("read", load_dataset),
    "SnapshotDatasetReader": ("read", snapshot_reader),
    "RecordInput": ("read", record_input),
    "ImmutableConst": ("read", immutable_const),
    "LoadAndRemapMatrix": ("read", remap_matrix),
    "GenerateVocabRemapping": ("read", vocabulary_remapping),
    "Skipgram": ("read", skipgram),
    "InitializeTableFromTextFileV2": ("read", table_from_file),
    "RestoreV2": ("read", restore_v2),
    "Restore": ("read", restore),
    "RestoreSlice": ("read", restore_slice),
    "ImportEvent": ("read", import_event),
    "FixedUnigramCandidateSampler": ("read", candidate_sampler),
    "DecodeProtoV2": ("read", decode_proto),
    "EncodeProto": ("read", encode_proto),
    "WholeFileReaderV2": ("read", whole_file_reader),
    "TextLineReaderV2": ("read", text_line_reader),
    "DebugIdentity to a server": ("connect", debug_to_server),
    "RegisterDatasetV2": ("connect", register_dataset),
    "DataServiceDatasetV2": ("connect", data_service),
    "RpcClient": ("connect", rpc_client),
    "RpcServer": ("connect", rpc_server),
    "ReadFile of gs://": ("connect", cloud_storage),
}
