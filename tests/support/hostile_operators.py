"""Operators that touch what is not in the model, and the places of a SavedModel for one.

At least one of each family of operators.txt that is not allowed, and those that look harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph_files import (
    call,
    constant,
    function,
    function_name,
    function_names,
    graph,
    initializer,
    main_op,
    meta_graph,
    node,
    objects,
    runs,
    saver,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATORS = (
    # Files read.
    *("ReadFile", "MatchingFiles", "WholeFileReaderV2", "TextLineDataset", "TFRecordDatasetV2"),
    *("FixedLengthRecordDatasetV2", "CSVDatasetV2", "SqlDataset", "LMDBDataset", "RecordInput"),
    *("LoadDataset", "ImmutableConst", "LoadAndRemapMatrix", "GenerateVocabRemapping", "Skipgram"),
    *("MatchingFilesDataset", "SnapshotDatasetReader", "ListSnapshotChunksDataset", "Restore"),
    *("IdentityReaderV2", "TFRecordReaderV2", "ReaderReadV2", "ImportEvent", "LMDBReader"),
    # Files written.
    *("WriteFile", "Save", "SaveSlices", "SaveDatasetV2", "SnapshotDatasetV2", "CacheDatasetV2"),
    *("DistributedSave", "DatasetToTFRecord", "CalibrationStatisticsSaver", "CustomAggregator"),
    *("CreateSummaryFileWriter", "CreateSummaryDbWriter", "WriteSummary", "SummaryWriter"),
    *("FileSystemSetConfiguration", "DebugIdentityV3", "DebugNumericSummaryV2", "DumpTensor"),
    # Programs, and graphs that nobody has read.
    *("PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaCallModule", "XlaCustomCallV2", "XlaLaunch"),
    *("MlirPassthroughOp", "Abort", "SleepOp", "SleepDataset", "DatasetFromGraph"),
    *("DatasetToGraphV2", "RewriteDataset", "DeserializeIterator", "SymbolicGradient"),
    # Other machines, and other graphs of the process.
    *("Send", "Recv", "_HostSend", "_HostRecv", "RpcCall", "RpcServer", "RpcClient", "RemoteCall"),
    *("DataServiceDatasetV4", "RegisterDatasetV2", "CollectiveReduceV2", "CollectiveGatherV2"),
    *("NcclAllReduce", "ConfigureDistributedTPU", "TPUExecute", "InfeedEnqueue", "OutfeedDequeue"),
    *("IteratorFromStringHandleV2", "GetSessionTensor", "MultiDeviceIterator", "FIFOQueueV2"),
    *("QueueEnqueueV2", "Barrier", "MapStage", "Stage", "MutexV2", "ThreadPoolHandle"),
    *("AnonymousMemoryCache", "DestroyResourceOp", "StatsAggregatorHandleV2"),
    # Not for models; and nobody's.
    *("TestAttr", "StubResourceHandleOp", "_XlaRun", "_Arg", "_MklConv2D"),
    *("MyWriteFile", "WriteFile ", "writefile", ""),
)


def _top(op: str) -> bytes:
    return meta_graph(graph(node("x", op)))


def _function(op: str) -> bytes:
    return meta_graph(graph(call("y", "f"), functions=(function("f", node("x", op)),)))


def _uncalled(op: str) -> bytes:
    return meta_graph(graph(functions=(function("f", node("x", op)),)))


def _three_deep(op: str) -> bytes:
    inner = function("inner", node("x", op))
    branch = function("middle", node("if", "If", then_branch=function_name("inner")))
    outer = function("outer", node("case", "Case", branches=function_names("middle")))
    return meta_graph(graph(call("y", "outer"), functions=(inner, branch, outer)), runs("y:0"))


def _loop(op: str) -> bytes:
    body = function("body", node("x", op))
    loop = node("loop", "While", cond=function_name("body"), body=function_name("body"))
    return meta_graph(graph(loop, functions=(body,)))


def _initializer(op: str) -> bytes:
    nodes = graph(call("init", "f"), functions=(function("f", node("x", op)),))
    return meta_graph(nodes, initializer("init"))


def _main_op(op: str) -> bytes:
    return meta_graph(graph(node("x", op), node("init", "NoOp", "^x")), main_op("init"))


def _legacy_main_op(op: str) -> bytes:
    return meta_graph(graph(node("x", op)), main_op("x", "legacy_init_op"))


def _restore(op: str) -> bytes:
    restore = function("__inference__traced_restore_1", node("x", op), arguments=("file_prefix",))
    nodes = graph(
        node("saver_filename", "Placeholder"),
        call("restore", "__inference__traced_restore_1", "saver_filename"),
        functions=(restore,),
    )
    return meta_graph(nodes, saver("saver_filename:0", "", "restore"))


def _destroyer(op: str) -> bytes:
    destroy = function("__inference__destroyer_1", node("x", op))
    known = objects(functions={"__inference__destroyer_1": ()})
    return meta_graph(graph(functions=(destroy,)), known)


def _table_initializer(op: str) -> bytes:
    make = function("__inference__initializer_1", node("x", op), constant("c", "a"))
    known = objects(functions={"__inference__initializer_1": ()})
    return meta_graph(graph(functions=(make,)), known)


def _data_set(op: str) -> bytes:
    body = function("f", node("x", op))
    mapped = node("map", "MapDataset", f=function_name("f"))
    return meta_graph(graph(mapped, functions=(body,)))


PLACES: dict[str, Callable[[str], bytes]] = {
    "at the top": _top,
    "in a function": _function,
    "in a function that nothing calls": _uncalled,
    "three deep": _three_deep,
    "in a loop": _loop,
    "in an initializer": _initializer,
    "in a main op": _main_op,
    "in a legacy main op": _legacy_main_op,
    "in the restore function": _restore,
    "in a destroyer": _destroyer,
    "in the initializer of a table": _table_initializer,
    "in a data set": _data_set,
}
