"""Small files that would take the user's own process much time or memory to read."""

import copy
import json
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graph_files import block, call, function, graph, main_op, meta_graph, node, saver, text, write
from processor_time import at_most
from tiny_saved_model import number
from tiny_tflite import Graph, float_model, packed

from edgeconv import scan
from edgeconv.data import synthetic_samples
from edgeconv.data.location import parse_source
from edgeconv.data.preprocessing import parse_preprocessing
from edgeconv.model.source import inspect_model
from edgeconv.model.source.keras_signature import declared_signature
from edgeconv.model.tflite.structure import structure
from edgeconv.model.tflite.summary import output_steps, tensor_specs, valid_names
from edgeconv.tf.training.checkpoints import refuse_elsewhere
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

# Of processor time. The code before took minutes or hours.
SECONDS = 5.0
# A child is started and filled, which takes over 3 s here alone, and more on a busy machine.
SECONDS_OF = {"test_a_configuration_that_fills_the_memory_does_so_in_a_child": 10.0}
# Of a scan that looks at each of tens of thousands of nodes once, which takes a third of that.
LINEAR_SECONDS = 3.0
LINEAR_KIB = 100_000


@pytest.fixture(autouse=True)
def _in_bounded_time(request) -> Iterator[None]:
    with at_most(SECONDS_OF.get(request.node.name, SECONDS)):
        yield


# SavedModels


def assert_scanned_in_linear_time(model: Path) -> None:
    """Nothing is wrong with it, and that is known after one look at each node."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with at_most(LINEAR_SECONDS):
        assert scan(model).findings == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < LINEAR_KIB


def wide(count: int) -> bytes:
    """Empty nodes: two bytes each in the file, and hundreds in memory."""
    return block(1, b"") * count


def test_inspect_makes_no_object_for_each_node_of_a_saved_model(tmp_path):
    directory = write(tmp_path / "m", meta_graph(wide(300_000)))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (found,) = inspect_model(directory).operators
    assert (found.name, found.count) == ("", 300_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 30_000


def test_a_constant_of_many_megabytes_is_not_read_by_inspect(tmp_path):
    weights = node("c", "Const", value=block(8, block(4, bytes(200_000_000))))
    directory = write(tmp_path / "m", meta_graph(graph(weights)))
    del weights
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert inspect_model(directory).operators[0].name == "Const"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 30_000


def test_signatures_and_objects_that_fill_the_memory_are_refused(tmp_path):
    signatures = block(5, block(1, "k") + block(2, block(1, b"") * 9_000_000))
    directory = write(tmp_path / "a", meta_graph(graph(), signatures))
    with pytest.raises(InputRefused, match="signatures of more than"):
        inspect_model(directory)
    directory = write(tmp_path / "b", meta_graph(graph(), block(7, block(1, b"") * 17_000_000)))
    assert "bytes outside of the graph" in scan(directory).findings[0].what


def test_a_path_through_a_long_chain_is_followed_once_for_all_that_take_it(tmp_path):
    count = 10_000
    chain = [node("i0", "Placeholder")]
    chain += [node(f"i{n}", "Identity", f"i{n - 1}") for n in range(1, count)]
    users = [node(f"r{n}", "RestoreV2", f"i{count - 1}") for n in range(count)]
    assert_scanned_in_linear_time(write(tmp_path / "m", meta_graph(graph(*chain, *users))))


def test_variables_of_assets_are_looked_up_and_not_searched_for(tmp_path):
    count = 10_000
    table = "InitializeTableFromTextFileV2"
    nodes = [node("v", "VarHandleOp", shared_name=text("v"))]
    for index in range(count):
        nodes.append(node(f"r{index}", "ReadVariableOp", "v"))
        nodes.append(node(f"t{index}", table, "", f"r{index}"))
    assert_scanned_in_linear_time(write(tmp_path / "m", meta_graph(graph(*nodes))))


def test_a_saver_that_ten_thousand_outputs_reach_is_refused_at_once(tmp_path):
    count = 10_000
    chain = [node("p", "Placeholder"), node("i0", "RestoreV2", "p")]
    chain += [node(f"i{n}", "Identity", f"i{n - 1}") for n in range(1, count)]
    rest = [main_op(f"i{n}") for n in range(1, count)]
    found = scan(write(tmp_path / "m", meta_graph(graph(*chain), *rest)))
    assert "a saver that runs with" in " ".join(each.what for each in found.findings)


def test_arguments_of_a_function_are_looked_up_and_not_searched_for(tmp_path):
    names = tuple(f"a{n}" for n in range(20_000))
    users = (node(f"r{n}", "RestoreV2", f"a{n}") for n in range(20_000))
    called = call("c", "f", *("p" for _ in range(20_000)))
    inner = function("f", *users, arguments=names)
    top = graph(node("p", "Placeholder"), called, functions=(inner,))
    assert_scanned_in_linear_time(write(tmp_path / "m", meta_graph(top, saver("p:0", "", ""))))


# What a call says of the session that it runs in.

# As TensorFlow 2.21 writes them, pluggable_device_options among them.
PLAIN = bytes.fromhex("920100820100380132024a000a070a0343505510010a070a034750551000")
OUTSIDE = {
    "machines of a cluster": block(14, block(1, block(1, "worker"))),
    "filters of devices": block(4, "/job:worker"),
    "a service of a cluster": block(16, block(23, block(2, "1.2.3.4:5"))),
    "a leader": block(16, block(1, "/job:worker/task:0")),
    "another executor": block(16, block(3, "REMOTE")),
    "a port": block(16, number(28, 80)),
    "a directory that is written to": block(16, block(35, "/home/me")),
    "no message": b"\xff",
}


@pytest.mark.parametrize("operator", ["PartitionedCall", "StatefulPartitionedCall"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_settings_of_a_call_that_lead_out_of_the_process_are_refused(operator, name, tmp_path):
    found = scan(write(tmp_path / "m", settings(operator, PLAIN + OUTSIDE[name])))
    assert found.is_refused
    assert "config_proto" in found.findings[0].what


def test_those_that_exporters_write_are_not(tmp_path):
    assert scan(write(tmp_path / "m", settings("PartitionedCall", PLAIN))).findings == ()


def settings(operator: str, packed_settings: bytes) -> bytes:
    called = node("c", operator, f=block(10, block(1, "f")), config_proto=text(packed_settings))
    return meta_graph(graph(called, functions=(function("f", node("n", "NoOp")),)))


# .tflite: what a file names many times.


def shared_text(fill: Callable[[flatbuffers.Builder, int], int]) -> bytes:
    """A file in which 3,000 tables have one text of a megabyte."""
    builder = flatbuffers.Builder(2**21)
    shared = builder.CreateString("x" * 2**20)
    builder.Finish(fill(builder, shared), file_identifier=b"TFL3")
    return bytes(builder.Output())


def vector_of(builder: flatbuffers.Builder, make: Callable[[], int]) -> int:
    tables = [make() for _ in range(3000)]
    builder.StartVector(4, len(tables), 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def codes(builder: flatbuffers.Builder, shared: int) -> int:
    def code() -> int:
        schema.OperatorCodeStart(builder)
        schema.OperatorCodeAddCustomCode(builder, shared)
        return int(schema.OperatorCodeEnd(builder))

    found = vector_of(builder, code)
    schema.ModelStart(builder)
    schema.ModelAddOperatorCodes(builder, found)
    return int(schema.ModelEnd(builder))


def metadata(builder: flatbuffers.Builder, shared: int) -> int:
    def entry() -> int:
        schema.MetadataStart(builder)
        schema.MetadataAddName(builder, shared)
        return int(schema.MetadataEnd(builder))

    found = vector_of(builder, entry)
    schema.ModelStart(builder)
    schema.ModelAddMetadata(builder, found)
    return int(schema.ModelEnd(builder))


def maps(builder: flatbuffers.Builder, shared: int) -> int:
    def each() -> int:
        schema.TensorMapStart(builder)
        schema.TensorMapAddName(builder, shared)
        return int(schema.TensorMapEnd(builder))

    inputs = vector_of(builder, each)
    schema.SignatureDefStart(builder)
    schema.SignatureDefAddInputs(builder, inputs)
    signature = schema.SignatureDefEnd(builder)
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(signature)
    found = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSignatureDefs(builder, found)
    return int(schema.ModelEnd(builder))


@pytest.mark.parametrize("fill", [codes, metadata, maps])
def test_a_text_that_is_named_thousands_of_times_is_refused(fill):
    assert "lists of" in structure(shared_text(fill)).problems[0].what


def test_options_of_one_place_that_many_operators_name_are_refused():
    made = Graph()
    x, y = made.tensor("x", (1,), "float32"), made.tensor("y", (1,), "float32")
    for _ in range(50):
        made.operator("Own", [x], [y])
        made.operators[-1].largeCustomOptionsOffset = 16
        made.operators[-1].largeCustomOptionsSize = 4000
    assert "lists of" in structure(packed(made.model([x], [y]))).problems[0].what


def test_tables_of_sparse_tensors_that_are_shared_are_refused():
    builder = flatbuffers.Builder(1024)
    schema.DimensionMetadataStart(builder)
    dimension = schema.DimensionMetadataEnd(builder)
    builder.StartVector(4, 3000, 4)
    for _ in range(3000):
        builder.PrependUOffsetTRelative(dimension)
    dimensions = builder.EndVector()
    schema.SparsityParametersStart(builder)
    schema.SparsityParametersAddDimMetadata(builder, dimensions)
    sparsity = schema.SparsityParametersEnd(builder)

    def tensor() -> int:
        schema.TensorStart(builder)
        schema.TensorAddSparsity(builder, sparsity)
        return int(schema.TensorEnd(builder))

    tensors = vector_of(builder, tensor)
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    content = with_one_graph(builder, schema.SubGraphEnd(builder))
    assert "9003000 tensors" in structure(content).problems[0].what


def test_branches_that_many_operators_share_are_refused():
    builder = flatbuffers.Builder(1024)
    branches = builder.CreateNumpyVector(np.zeros(5000, np.int32))
    schema.StablehloCaseOptionsStart(builder)
    schema.StablehloCaseOptionsAddBranchSubgraphIndices(builder, branches)
    options = schema.StablehloCaseOptionsEnd(builder)

    def operator() -> int:
        schema.OperatorStart(builder)
        schema.OperatorAddBuiltinOptions2Type(builder, 23)
        schema.OperatorAddBuiltinOptions2(builder, options)
        return int(schema.OperatorEnd(builder))

    operators = vector_of(builder, operator)
    schema.SubGraphStart(builder)
    schema.SubGraphAddOperators(builder, operators)
    content = with_one_graph(builder, schema.SubGraphEnd(builder))
    assert "lists of" in structure(content).problems[0].what


def with_one_graph(builder: flatbuffers.Builder, subgraph: int) -> bytes:
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(subgraph)
    subgraphs = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, subgraphs)
    builder.Finish(schema.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_a_thousand_subgraphs_that_call_all_after_them_are_looked_at_once():
    model = float_model()
    first, operator = model.subgraphs[0], model.subgraphs[0].operators[0]
    model.subgraphs = [copy.copy(first) for _ in range(1000)]
    for number_, graph_ in enumerate(model.subgraphs):
        after = np.arange(number_ + 1, 1000, dtype=np.int32)
        graph_.operators = [copy.copy(operator)]
        graph_.operators[0].builtinOptions2Type = 23
        options = schema.StablehloCaseOptionsT(branchSubgraphIndices=after)
        graph_.operators[0].builtinOptions2 = options
    assert "1000 deep" in structure(packed(model)).problems[0].what


def test_thousands_of_tensors_of_one_name_are_told_apart_in_linear_time():
    made = Graph()
    ends = [made.tensor("x", (1,), "float32") for _ in range(20_000)]
    content = packed(made.model(ends[:1], ends[:1]))
    names = list(tensor_specs(content, where="m"))
    assert names[:3] == ["x", "x (2)", "x (3)"]
    assert len(names) == 20_000
    assert valid_names(["x"] * 20_000, "y")[-1] == "x_20000"


def test_steps_of_many_outputs_do_not_search_all_operators_each():
    made = Graph()
    count = 4000
    q = [made.tensor(f"q{n}", (1,), "int8", scale=0.5) for n in range(count)]
    y = [made.tensor(f"y{n}", (1,), "float32") for n in range(count)]
    for index in range(count):
        made.operator("DEQUANTIZE", [q[index]], [y[index]])
    names = [f"y{n}" for n in range(count)]
    content = packed(made.model(y[:1], y, signature=("s", ["y0"], names)))
    assert output_steps(content, "s") == dict.fromkeys(names, 0.5)


# Keras


def test_models_in_models_are_each_looked_at_once():
    config: dict[str, Any] = {"class_name": "Dense", "config": {"name": "m", "units": 3}}
    for _ in range(18):
        layers = [{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, 4]}}]
        inside = {**config, "config": {**config["config"], "name": "m"}}
        config = {
            "class_name": "Functional",
            "config": {
                "layers": [*layers, inside],
                "input_layers": [["x", 0, 0]],
                "output_layers": [["m", 0, 0]] * 3,
            },
        }
    found = declared_signature(config)
    assert len(found.outputs) == 3


@pytest.mark.parametrize("place", [["d", 0, -9], ["d", -9, 0]])
def test_an_output_that_is_not_there_is_of_no_known_shape(place):
    layer = {"class_name": "Dense", "config": {"name": "d"}, "inbound_nodes": [[]]}
    first = {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, 4]}}
    settings_ = {"layers": [first, layer], "input_layers": [["x", 0, 0]], "output_layers": [place]}
    found = declared_signature({"class_name": "Functional", "config": settings_})
    assert not found.outputs[0].rank_known


def test_a_configuration_that_fills_the_memory_does_so_in_a_child(tmp_path):
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", '{"a":[' + "[]," * 8_000_000 + "0]}")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert inspect_model(path).operators == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


# Other kinds, texts and samples


def test_a_text_that_begins_like_xml_is_read_in_linear_time(tmp_path):
    path = tmp_path / "m.xml"
    path.write_bytes(b"<net " * 20_000)
    with pytest.raises(InputRefused, match="not a kind of model"):
        scan(path)


def test_a_zip_archive_of_a_million_members_is_not_listed(tmp_path):
    path = tmp_path / "m.zip"
    member = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", *(0,) * 4, *(0,) * 14)[:46]
    members = member.ljust(46, b"\0") * 300_000
    local = b"PK\x03\x04" + bytes(26)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(members), len(local), 0)
    path.write_bytes(local + members + end)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputRefused):
        scan(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 30_000


def test_a_document_of_many_lists_is_not_read(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"class_name": "M", "config": {}}) + " " * 5_000_000)
    with pytest.raises(InputRefused):
        scan(path)


def test_samples_for_an_input_of_2_to_the_47_bytes_are_not_made_up():
    spec = TensorSpec(name="x", shape=(1, 2**45), dtype="float32")
    with pytest.raises(InputRefused, match="would be"):
        synthetic_samples((spec,), 4, 0)


def test_a_source_with_a_nul_is_a_usage_error():
    with pytest.raises(UsageError, match="NUL"):
        parse_source("images:a\0b")


def test_a_checkpoint_that_the_directory_names_must_be_in_it():
    refuse_elsewhere("gs://b/checkpoints/ckpt-3", "gs://b/checkpoints/")
    for place in ("/etc/ckpt-3", "/home/me/checkpoints/../x/ckpt-3", "/home/me/checkpoints/a/ckpt"):
        with pytest.raises(InputRefused, match="not in it"):
            refuse_elsewhere(place, "/home/me/checkpoints")


def test_keys_of_half_a_million_parts_are_refused_in_a_lock_and_in_steps(tmp_path):
    from edgeconv.requests.config import lock

    (tmp_path / "edgeconv.lock").write_text("format = 1\n" + "a." * 500_000 + "a = 1\n")
    with pytest.raises(InputRefused, match="line 2"):
        lock.read(tmp_path / "edgeconv.lock")
    (tmp_path / "steps.toml").write_text("a." * 500_000 + "a = 1\n")
    with pytest.raises(InputRefused, match="not a preprocessing file"):
        parse_preprocessing(str(tmp_path / "steps.toml"))


def test_a_report_larger_than_any_is_not_read(tmp_path):
    from edgeconv.reporting.files import read_report

    with (tmp_path / "report.json").open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(InputRefused, match="more than 256 MiB"):
        read_report(tmp_path / "report.json")
