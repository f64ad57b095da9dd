"""SavedModels that touch what is not in them; none of them gets past the scan."""

import os
from pathlib import Path

import pytest
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
    objects,
    runs,
    saver,
    takes,
    text,
    varint,
    write,
    write_asset,
)

from edgeconv import scan
from edgeconv.model.source.scanning.nodes import families
from edgeconv.model.source.scanning.refusing import admit_model
from edgeconv.types import Scan
from edgeconv.types.errors import InputRefused

# At least one of each family of operators.txt that is not allowed, and those that look harmless.
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


def _uncalled(op: str) -> bytes:
    return meta_graph(graph(functions=(function("f", node("x", op)),)))


def _loop(op: str) -> bytes:
    body = function("body", node("x", op))
    loop = node("loop", "While", cond=function_name("body"), body=function_name("body"))
    return meta_graph(graph(loop, functions=(body,)))


# The corpus has the others, where TensorFlow runs the operator.
PLACES = {"at the top": _top, "in a function that nothing calls": _uncalled, "in a loop": _loop}


def scanned(path: Path, *meta_graphs: bytes) -> Scan:
    return scan(write(path / "model", *meta_graphs))


def whats(found: Scan) -> list[str]:
    return [each.what for each in found.findings if each.severity == "error"]


def refused(path: Path, *meta_graphs: bytes) -> str:
    found = scanned(path, *meta_graphs)
    assert found.is_refused
    return " ".join(f"{each.what}: {each.why}" for each in found.findings)


def test_the_plain_graph_that_the_others_are_made_of_is_allowed(tmp_path):
    """Else every test here would pass for the wrong reason."""
    for number, place in enumerate(PLACES.values()):
        assert scanned(tmp_path / str(number), place("Identity")).findings == ()


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_that_reaches_outside_is_refused_wherever_it_stands(operator, tmp_path):
    for number, (name, place) in enumerate(PLACES.items()):
        found = scanned(tmp_path / str(number), place(operator))
        assert f"operator {operator}" in whats(found), name
        assert {each.kind for each in found.findings} == {"operator"}


def test_every_family_that_is_not_allowed_is_among_them():
    tried = {families()[name].name for name in OPERATORS if name in families()}
    refused_families = {f.name for f in families().values() if f.reach in ("outside", "never")}
    assert tried == refused_families


def test_a_second_graph_that_is_not_for_serving_is_looked_at_too(tmp_path):
    fine, other = PLACES["at the top"]("Identity"), PLACES["at the top"]("WriteFile")
    assert "operator WriteFile" in refused(tmp_path, fine, other)


@pytest.mark.parametrize(
    ("operator", "attribute", "good", "bad"),
    [
        ("PrintV2", "output_stream", "stderr", "file:///tmp/written"),
        ("DecodeProtoV2", "descriptor_source", "local://", "/etc/passwd"),
        ("EncodeProto", "descriptor_source", "bytes://\n\x02", "descriptors.pb"),
        ("FixedUnigramCandidateSampler", "vocab_file", "", "/etc/passwd"),
    ],
)
def test_an_attribute_that_is_a_path_is_refused(operator, attribute, good, bad, tmp_path):
    fine = meta_graph(graph(node("x", operator, **{attribute: text(good)})))
    assert scanned(tmp_path / "fine", fine).findings == ()
    assert bad in refused(
        tmp_path, meta_graph(graph(node("x", operator, **{attribute: text(bad)})))
    )


@pytest.mark.parametrize("dtype", [20, 21])
def test_a_constant_that_is_a_handle_is_refused(dtype, tmp_path):
    assert "Const" in refused(tmp_path, meta_graph(graph(node("x", "Const", dtype=kind(dtype)))))
    parsed = node("x", "ParseTensor", out_type=kind(dtype))
    assert "ParseTensor" in refused(tmp_path / "2", meta_graph(graph(parsed)))


@pytest.mark.parametrize("device", ["/job:worker/task:1", "/job:localhost/job:ps", "/JOB:x/job:w"])
def test_a_device_of_another_machine_is_refused(device, tmp_path):
    assert device in refused(tmp_path, meta_graph(graph(node("x", "NoOp", device=device))))
    resource, variable = block(10, block(1, device)), block(7, block(7, device))
    for each in (resource, variable):
        assert device in refused(tmp_path / each.hex(), meta_graph(graph(), objects(each)))


def test_a_device_of_this_machine_is_not(tmp_path):
    local = node("x", "NoOp", device="/job:localhost/replica:0/task:0/device:CPU:0")
    assert (
        scanned(tmp_path, meta_graph(graph(local, node("y", "NoOp", device="/GPU:0")))).findings
        == ()
    )


def test_a_list_of_functions_after_a_function_in_one_attribute_is_seen(tmp_path):
    """The last is what TensorFlow takes."""
    both = node("call", "PartitionedCall", f=function_name("inner") + function_names("absent"))
    nodes = graph(constant("y", "x"), both, functions=(function("inner"),))
    assert "function absent" in refused(tmp_path, meta_graph(nodes))


def test_a_function_that_is_not_in_the_graph_is_refused(tmp_path):
    """A function's attribute may name an operator, which then runs."""
    assert "function WriteFile" in refused(tmp_path, meta_graph(graph(call("x", "WriteFile"))))
    nested = block(
        10, block(1, "f") + block(2, block(1, "g") + block(2, function_name("ReadFile")))
    )
    deep = graph(node("x", "MapDefun", f=nested), functions=(function("f"),))
    assert "function ReadFile" in refused(tmp_path / "2", meta_graph(deep))


# The checkpoint: at the place that the loader gives, and nowhere else.

RESTORE = "__inference__traced_restore_1"


def restoring(*nodes: bytes, rest: tuple[bytes, ...] = (), given: str = "saver_filename") -> bytes:
    restore = function(RESTORE, *nodes, arguments=("file_prefix",))
    top = graph(
        node("saver_filename", "Placeholder"),
        constant("elsewhere", "/home/me/model"),
        call("restore", RESTORE, given),
        functions=(restore,),
    )
    return meta_graph(top, saver("saver_filename:0", "", "restore"), *rest)


def test_the_saver_of_an_honest_model_is_allowed(tmp_path):
    restored = node("r", "RestoreV2", "file_prefix")
    assert scanned(tmp_path, restoring(restored)).findings == ()


@pytest.mark.parametrize(
    "nodes",
    [
        (constant("p", "/etc/passwd"), node("r", "RestoreV2", "p:output:0")),
        (
            constant("up", "/../../../etc/x"),
            node("p", "StringJoin", "file_prefix", "up:output:0"),
            node("r", "RestoreV2", "p:output:0"),
        ),
        (node("p", "StringFormat", "file_prefix"), node("r", "RestoreV2", "p:output:0")),
        (node("p", "Const"), node("r", "RestoreV2", "p:output:0")),
        (node("r", "RestoreV2", "nowhere"),),
        (node("w", "SaveV2", "file_prefix"),),
        (node("w", "MergeV2Checkpoints", "file_prefix", "file_prefix"),),
    ],
    ids=["constant", "joined", "computed", "no text", "nothing", "saves", "merges"],
)
def test_a_restore_function_with_a_path_of_its_own_or_that_writes_is_refused(nodes, tmp_path):
    assert "checkpoint" in refused(tmp_path, restoring(*nodes))


def test_a_saver_at_a_constant_path_is_refused(tmp_path):
    restored = node("r", "RestoreV2", "file_prefix")
    assert "checkpoint" in refused(tmp_path, restoring(restored, given="elsewhere"))


@pytest.mark.parametrize(
    "rest",
    [
        runs("restore:0"),
        initializer("restore"),
        main_op("restore"),
        takes("saver_filename:0"),
        objects(functions={RESTORE: ()}),
    ],
    ids=["signature", "initializer", "main op", "input of a signature", "a method"],
)
def test_a_saver_that_anything_but_the_loader_reaches_is_refused(rest, tmp_path):
    restored = node("r", "RestoreV2", "file_prefix")
    assert refused(tmp_path, restoring(restored, rest=(rest,)))


@pytest.mark.parametrize("operator", ["If", "While", "MapDataset", "BatchFunction"])
def test_a_path_through_what_is_not_a_plain_call_is_refused(operator, tmp_path):
    restore = function("f", node("r", "RestoreV2", "p"), arguments=("p",))
    branch = node("x", operator, "saver_filename", then_branch=function_name("f"))
    top = graph(node("saver_filename", "Placeholder"), branch, functions=(restore,))
    assert "cannot be followed" in refused(tmp_path, meta_graph(top))


# Assets: what a table reads is declared, and lies in the model.

TABLE = "InitializeTableFromTextFileV2"


def test_a_table_that_reads_a_declared_asset_is_allowed_in_all_the_forms_of_it(tmp_path):
    direct = graph(constant("c", "x"), node("t", TABLE, "table", "c"), node("table", "HashTableV2"))
    called = graph(
        constant("c", "x"),
        call("init", "f", "c", "table"),
        node("table", "HashTableV2"),
        functions=(function("f", node("t", TABLE, "h", "p"), arguments=("p", "h")),),
    )
    held = graph(
        node("c", "Placeholder"),
        node("v", "VarHandleOp", shared_name=text("v")),
        node("assign", "AssignVariableOp", "v", "c"),
        node("read", "ReadVariableOp", "v", "^assign"),
        node("table", "HashTableV2"),
        node("t", TABLE, "table", "read"),
    )
    known = objects(ASSET_OBJECT, PLAIN_OBJECT, functions={"f": (0, 1)})
    for number, content in enumerate((direct, called, held)):
        write_asset(tmp_path / str(number) / "model", "words.txt")
        rest = (known,) if content is called else ()
        model = meta_graph(content, asset("c:0", "words.txt"), *rest)
        assert scanned(tmp_path / str(number), model).findings == ()


@pytest.mark.parametrize(
    "nodes",
    [
        (constant("c", "/etc/passwd"), node("t", TABLE, "table", "c")),
        (node("c", "Placeholder"), node("t", TABLE, "table", "c")),
        (
            constant("up", "/../../x"),
            node("j", "StringJoin", "a", "up"),
            node("t", TABLE, "table", "j"),
        ),
        (
            constant("c", "/etc/passwd"),
            node("v", "VarHandleOp", shared_name=text("v")),
            node("one", "AssignVariableOp", "v", "a"),
            node("two", "AssignVariableOp", "v", "c"),
            node("read", "ReadVariableOp", "v"),
            node("t", TABLE, "table", "read"),
        ),
        (
            constant("c", "/etc/passwd"),
            node("v", "VarHandleOp", shared_name=text("v")),
            node("twin", "VarHandleOp", shared_name=text("v")),
            node("one", "AssignVariableOp", "v", "a"),
            node("two", "AssignVariableOp", "twin", "c"),
            node("read", "ReadVariableOp", "v"),
            node("t", TABLE, "table", "read"),
        ),
    ],
    ids=["constant", "placeholder", "joined", "variable", "variable's twin"],
)
def test_a_table_that_reads_anything_else_is_refused(nodes, tmp_path):
    top = graph(constant("a", "x"), node("table", "HashTableV2"), *nodes)
    write_asset(tmp_path / "model", "words.txt")
    assert "is not an asset" in refused(tmp_path, meta_graph(top, asset("a:0", "words.txt")))


def test_a_table_whose_function_takes_the_path_from_a_caller_is_refused(tmp_path):
    made = function("f", node("t", TABLE, "h", "p"), arguments=("p", "h"))
    known = objects(PLAIN_OBJECT, functions={"f": (0, 0)})
    assert "one of the model's own" in refused(
        tmp_path, meta_graph(graph(functions=(made,)), known)
    )


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", "", "assets/../../x", "a\\..\\b/", "./a"]
)
def test_an_asset_outside_of_the_model_is_refused(name, tmp_path):
    assert "asset" in refused(tmp_path, meta_graph(graph(), asset("a:0", name)))
    packed = block(1, block(1, "a:0")) + block(2, name)
    held = block(4, block(1, "saved_model_assets") + block(2, block(5, block(1, block(2, packed)))))
    assert "asset" in refused(tmp_path / "2", meta_graph(graph(), held))


# The files.


@pytest.mark.parametrize("place", ["assets/a.txt", "variables", "assets.extra/x", "saved_model.pb"])
def test_a_symbolic_link_out_of_the_model_is_refused(place, tmp_path):
    model = write(tmp_path / "model", meta_graph(graph()))
    outside = write(tmp_path / "outside", meta_graph(graph())) / "saved_model.pb"
    (model / place).parent.mkdir(parents=True, exist_ok=True)
    (model / place).unlink(missing_ok=True)
    (model / place).symlink_to(outside)
    found = scan(model)
    assert found.is_refused
    assert "symbolic link" in whats(found)[0]
    # As in the cache of Hugging Face: to trust it would not help, and is not needed.
    with pytest.raises(InputRefused) as refused:
        admit_model(model)
    assert "cp -rL" in refused.value.hint
    assert "--trust-model" not in refused.value.hint


@pytest.mark.parametrize("target", ["/", "/dev/zero"])
def test_a_link_to_all_that_is_there_is_refused_at_once(target, tmp_path):
    """The content hash comes before the scan, and would read what the link leads to."""
    model = write(tmp_path / "model", meta_graph(graph()))
    (model / "assets").mkdir()
    (model / "assets" / "a").symlink_to(target)
    assert whats(scan(model)) == [f"symbolic link to {target}"]


def test_a_symbolic_link_within_the_model_is_not(tmp_path):
    model = write(tmp_path / "model", meta_graph(graph()))
    write_asset(model, "a.txt")
    (model / "assets" / "b.txt").symlink_to("a.txt")
    assert scan(model).findings == ()


def test_a_second_file_with_a_graph_and_a_pipe_are_refused(tmp_path):
    model = write(tmp_path / "model", meta_graph(graph()))
    (model / "saved_model.cpb").write_bytes(b"")
    os.mkfifo(model / "variables")
    (model / "variables").rename(model / "pipe")
    assert sorted(whats(scan(model))) == ["a device, pipe or socket", "a second graph"]


# Bombs, and bytes that two readers may read differently.


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x13\x14",
        varint(2 << 3 | 2) + varint(1 << 40),
        b"\x12" + b"\xff" * 11,
        block(2, block(2, block(1, b"\xff\xff"))),
        b"\x00\x00",
        block(2, block(2, block(1, node("a", "NoOp")) + block(1, node("a", "WriteFile")))),
        b"",
    ],
    ids=["group", "beyond the file", "endless number", "node", "field 0", "two of a name", "empty"],
)
def test_what_is_not_a_graph_is_refused_as_input(garbage, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "saved_model.pb").write_bytes(garbage)
    with pytest.raises(InputRefused, match="saved_model"):
        scan(model)


def test_functions_nested_in_attributes_without_end_are_refused(tmp_path):
    nested = block(1, "f")
    for _ in range(40):
        nested = block(1, "f") + block(2, block(1, "g") + block(2, block(10, nested)))
    deep = graph(node("x", "MapDefun", f=block(10, nested)), functions=(function("f"),))
    try:
        assert scanned(tmp_path, meta_graph(deep)).is_refused
    except InputRefused as error:
        assert "cannot be read as a SavedModel" in str(error)  # noqa: PT017
