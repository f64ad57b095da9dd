"""What is loaded is what was scanned: the copy that TensorFlow and Keras get, and what it lacks."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from graph_files import (
    asset,
    block,
    call,
    constant,
    function,
    graph,
    main_op,
    meta_graph,
    node,
    runs,
    saver,
    text,
    write,
    write_asset,
)
from keras_attacks import archive, hdf5, sequential
from tiny_saved_model import entry

from edgeconv import scan
from edgeconv.model.source import identify
from edgeconv.model.source.graph_pb2 import GraphDef, MetaGraphDef
from edgeconv.model.source.scanning import loadable
from edgeconv.model.source.wire import messages
from edgeconv.types.errors import InputRefused


def refused(model: Path) -> str:
    found = scan(model)
    assert found.is_refused
    return " ".join(f"{each.what}: {each.why}" for each in found.findings)


def loaded(model: Path, place: Path) -> Path:
    return loadable(identify(model), place)


def graph_of(directory: Path) -> tuple[MetaGraphDef, GraphDef]:
    """The one graph of a SavedModel, its nodes apart."""
    data = (directory / "saved_model.pb").read_bytes()
    ((start, stop),) = messages(data, 0, len(data), 2)
    content = data[start:stop]
    whole = GraphDef()
    for begin, end in messages(content, 0, len(content), 2):
        whole.MergeFromString(content[begin:end])
    return MetaGraphDef.FromString(content), whole


# SavedModels


def test_the_copy_has_one_graph_and_only_what_is_looked_at(tmp_path):
    unknown = block(99, "a field that nobody knows")
    other = entry(4, "anything", block(2, block(1, "bytes")))
    serving = meta_graph(graph(node("x", "NoOp")) + unknown, other, main_op("x"), runs("x:0"))
    model = write(tmp_path / "model", serving, meta_graph(graph(node("y", "NoOp"))))
    (model / "assets.extra").mkdir()
    (model / "assets.extra" / "file").write_text("x")
    copy = loaded(model, tmp_path / "copy")
    rest, whole = graph_of(copy)
    assert set(rest.collection_def) == {"saved_model_main_op"}
    assert set(rest.signature_def) == {"serving_default"}
    assert [each.name for each in whole.node] == ["x"]
    assert b"nobody knows" not in (copy / "saved_model.pb").read_bytes()
    assert [path.name for path in copy.iterdir()] == ["saved_model.pb"]


def test_an_attribute_that_occurs_twice_occurs_once_and_is_what_was_scanned(tmp_path):
    twice = node("v", "VarHandleOp", shared_name=text("first"))
    twice += block(5, block(1, "shared_name") + block(2, text("last")))
    copy = loaded(write(tmp_path / "model", meta_graph(graph(twice))), tmp_path / "copy")
    (held,) = graph_of(copy)[1].node
    assert {key: value.s for key, value in held.attr.items()} == {"shared_name": b"last"}
    assert (copy / "saved_model.pb").read_bytes().count(b"shared_name") == 1
    wrong = node("p", "PrintV2", output_stream=text("stderr"))
    wrong += block(5, block(1, "output_stream") + block(2, text("file:///tmp/x")))
    assert "file:///tmp/x" in refused(write(tmp_path / "2", meta_graph(graph(wrong))))


def test_the_assets_are_those_that_the_loader_takes_and_no_constant_names_a_file(tmp_path):
    """Where both fields declare assets, the older one is not read."""
    packed = block(1, block(1, "other:0")) + block(2, "other.txt")
    older = entry(4, "saved_model_assets", block(5, block(1, block(2, packed))))
    table = node("t", "InitializeTableFromTextFileV2", "table", "c")
    top = graph(constant("c", "/etc/passwd"), node("table", "HashTableV2"), table)
    model = write(tmp_path / "model", meta_graph(top, asset("c:0", "words.txt"), older))
    for name in ("words.txt", "other.txt"):
        write_asset(model, name)
    copy = loaded(model, tmp_path / "copy")
    rest, whole = graph_of(copy)
    assert [each.filename for each in rest.asset_file_def] == ["words.txt"]
    assert not rest.collection_def
    assert [path.name for path in (copy / "assets").iterdir()] == ["words.txt"]
    by_name = {each.name: each for each in whole.node}
    (path,) = by_name["c"].attr["value"].tensor.string_val
    assert path == b"/dev/null/assets"
    hidden = graph(
        constant("c", "x"),
        constant("other", "/etc/passwd"),
        node("table", "HashTableV2"),
        node("t", "InitializeTableFromTextFileV2", "table", "other"),
    )
    model = write(tmp_path / "2", meta_graph(hidden, asset("c:0", "words.txt"), older))
    assert "is not an asset" in refused(model)


@pytest.mark.parametrize("name", ["StringJoin", "Select", "MatMul"])
def test_a_function_that_is_called_like_an_operator_is_refused(name, tmp_path):
    top = graph(call("x", name), functions=(function(name, node("y", "NoOp")),))
    assert "in that operator's place" in refused(write(tmp_path / "model", meta_graph(top)))


def variable(collection: str, *names: str) -> bytes:
    """A VariableDef: its name, initializer, snapshot and initial value."""
    fields = zip((1, 2, 3, 6), names, strict=True)
    packed = b"".join(block(field, name) for field, name in fields)
    return entry(4, collection, block(2, block(1, packed)))


def test_a_function_is_called_for_no_device_but_by_name(tmp_path):
    """TensorFlow calls that for its device in place of another of the same interface."""
    made = function("lstm", node("y", "NoOp"))
    made += entry(5, "api_implements", text("lstm_1")) + entry(
        5, "api_preferred_device", text("CPU")
    )
    model = write(tmp_path / "model", meta_graph(graph(call("x", "lstm"), functions=(made,))))
    (held,) = graph_of(loaded(model, tmp_path / "copy"))[1].library.function
    assert set(held.attr) == {"api_implements"}


RESTORE = "__inference__traced_restore_1"


def with_saver(*rest: bytes, given: str = "saver_filename") -> bytes:
    restore = function(RESTORE, node("r", "RestoreV2", "file_prefix"), arguments=("file_prefix",))
    top = graph(
        node("saver_filename", "Placeholder"),
        constant("piece", "model"),
        node("v", "VarHandleOp"),
        call("restore", RESTORE, given),
        functions=(restore,),
    )
    return meta_graph(top, saver("saver_filename:0", "", "restore"), *rest)


@pytest.mark.parametrize(
    "rest",
    [
        main_op("restore", "table_initializer"),
        variable("local_variables", "v:0", "restore", "v:0", "v:0"),
        variable("variables", "v:0", "v", "v:0", "restore:0"),
        variable("trainable_variables", "v:0", "v", "restore:0", "v:0"),
    ],
    ids=["table initializer", "local variable", "initial value", "snapshot"],
)
def test_a_saver_that_initializers_of_tensorflow_1_run_is_refused(rest, tmp_path):
    assert scan(write(tmp_path / "fine", with_saver())).findings == ()
    assert "a saver that runs with restore" in refused(write(tmp_path / "model", with_saver(rest)))


def test_a_saver_whose_path_is_only_a_piece_is_refused(tmp_path):
    model = write(tmp_path / "model", with_saver(given="piece"))
    assert "without the loader's own part" in refused(model)


def test_a_variable_that_is_no_node_is_refused(tmp_path):
    held = variable("variables", "absent:0", "absent/Assign", "absent:0", "absent:0")
    model = write(tmp_path / "model", meta_graph(graph(node("x", "NoOp")), held))
    assert "names nothing in the graph" in refused(model)


# Keras files


def both_in_one(path: Path) -> Path:
    """A zip archive at the start and at the end, and HDF5 behind a user block."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as held:
        held.writestr("config.json", json.dumps(sequential()))
        held.writestr("metadata.json", "{}")
    with h5py.File(path, "w", userblock_size=4096) as file:
        file.attrs["model_config"] = json.dumps(sequential())
    content = bytearray(path.read_bytes())
    content[: len(packed.getvalue())] = packed.getvalue()
    path.write_bytes(bytes(content) + packed.getvalue())
    return path


@pytest.mark.parametrize("name", ["model.keras", "model.KERAS"])
def test_a_zip_archive_that_is_hdf5_too_is_refused(name, tmp_path):
    assert "a zip archive and an HDF5 file in one" in refused(both_in_one(tmp_path / name))


@pytest.mark.parametrize("at", [512, 1024, 4096])
def test_weights_that_begin_where_hdf5_looks_for_a_file_are_no_second_file(at, tmp_path):
    """One archive in a few hundred is so: its weights are stored as they are."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["kernel"] = np.ones(3, np.float32)
    model = tmp_path / "model.keras"
    config = json.dumps(sequential())
    with zipfile.ZipFile(model, "w") as held:
        held.writestr("metadata.json", "{}")
        # Local headers take 30 bytes and the name.
        used = 30 + 13 + 2 + 30 + 11 + len(config) + 30 + 16
        held.writestr("config.json", config + " " * (at - used))
        held.writestr("model.weights.h5", weights.getvalue())
    assert h5py.is_hdf5(model)
    assert scan(model).findings == ()


def test_an_hdf5_file_that_is_a_zip_archive_too_is_refused(tmp_path):
    model = hdf5(tmp_path / "model.h5", sequential())
    with zipfile.ZipFile(model, "a") as held:
        held.writestr("config.json", "{}")
    assert "a zip archive and an HDF5 file in one" in refused(model)


def configuration(copy: Path) -> Any:
    if zipfile.is_zipfile(copy):
        with zipfile.ZipFile(copy) as held:
            return json.loads(held.read("config.json"))
    with h5py.File(copy) as file:
        return json.loads(file.attrs["model_config"])


@pytest.mark.parametrize("kind", ["keras", "hdf5"])
def test_the_copy_of_a_keras_file_has_its_kind_and_nothing_that_compiles_inside(kind, tmp_path):
    """Keras reads the `compile_config` of an object at any depth."""
    config = sequential()
    hostile = {"class_name": "Popen", "module": "subprocess", "config": {}}
    config["config"]["layers"][0]["config"]["compile_config"] = hostile
    if kind == "keras":
        model = archive(tmp_path / "model.keras", config).rename(tmp_path / "model.KERAS")
    else:
        model = hdf5(tmp_path / "model.h5", config)
    copy = loaded(model, tmp_path / "copy")
    assert copy.suffix == {"keras": ".keras", "hdf5": ".h5"}[kind]
    assert "compile_config" not in json.dumps(configuration(copy))
    assert "subprocess" not in json.dumps(configuration(copy))


def test_the_copy_of_an_hdf5_model_has_its_weights_attributes_and_links(tmp_path):
    model = hdf5(tmp_path / "model.h5", sequential())
    with h5py.File(model, "a") as file:
        file.create_dataset("kept/kernel", data=np.arange(6, dtype=np.float16).reshape(2, 3))
        file["kept"].attrs["weight_names"] = np.array([b"kernel", b"a longer name"])
        file["again"] = file["kept"]
        file["kept/loop"] = file["kept"]
        file.create_group("optimizer_weights")
    copy = loaded(model, tmp_path / "copy")
    with h5py.File(copy) as file:
        kernel = file["again/loop/kernel"]
        assert kernel.dtype == np.float16
        assert kernel[()].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert list(file["kept"].attrs["weight_names"]) == [b"kernel", b"a longer name"]
        assert "optimizer_weights" not in file


def test_a_model_that_is_refused_is_not_written_and_a_trusted_one_is_loaded_as_it_is(tmp_path):
    model = write(tmp_path / "model", meta_graph(graph(node("x", "WriteFile"))))
    with pytest.raises(InputRefused, match="WriteFile"):
        loaded(model, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    identified = identify(model)
    assert loadable(identified, tmp_path / "copy", trusted=[identified.sha256]) == model


def test_damaged_weights_are_a_fault_of_the_file(tmp_path):
    """The scan reads no weights: the copy is the first to do so."""
    model = hdf5(tmp_path / "model.h5", sequential())
    with h5py.File(model, "a") as file:
        made = file.create_dataset("kept", data=np.arange(4000.0), compression="gzip")
        begin, size = made.id.get_chunk_info(0).byte_offset, made.id.get_chunk_info(0).size
    content = bytearray(model.read_bytes())
    content[begin : begin + size] = b"\xff" * size
    model.write_bytes(content)
    with pytest.raises(InputRefused, match="cannot be read as a Keras file"):
        loaded(model, tmp_path / "copy")
