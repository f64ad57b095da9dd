import hashlib
import json
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from tiny_saved_model import (
    PLAIN,
    STRING,
    block,
    entry,
    meta_graph,
    signature,
    tensor,
    write_plain,
    write_saved_model,
)
from tiny_saved_model import number as whole
from tiny_tflite import float_model, int8_model, packed
from wording import fails

from edgeconv.model.source import chosen_signature, identify, inspect_model, load, refuse_quantized
from edgeconv.model.source.keras_files import KerasReadJob, read_archive_here
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

DENSE = {"class_name": "Dense", "config": {"units": 3}}
SEQUENTIAL = {"class_name": "Sequential", "config": {"layers": [DENSE, DENSE]}}


def write_keras(path: Path, config: object = SEQUENTIAL) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
    return path


def write_hdf5(path: Path, config: object = SEQUENTIAL) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.4.0"
    return path


def write_tflite(path: Path, model=None) -> Path:
    path.write_bytes(packed(model or float_model(signature=("go", ["a"], ["b"]))))
    return path


def is_refused(path: Path) -> None:
    with fails(InputRefused):
        load(path)


def keys(path: Path) -> list[str]:
    return [signature.key for signature in load(path).signatures]


def test_a_saved_model_is_known_by_its_signatures_without_tensorflow(tmp_path):
    model = load(write_plain(tmp_path / "net"))
    assert (model.kind, model.name, model.path) == ("saved_model", "net", str(tmp_path / "net"))
    (only,) = model.signatures
    assert only.key == "serving_default"
    assert only.inputs == (TensorSpec(name="x", shape=(-1, 28, 28), dtype="float32"),)
    assert only.outputs == (TensorSpec(name="y", shape=(-1, 10), dtype="float32"),)
    assert model.notes == ("saved by TensorFlow 2.21.0",)


def test_loading_a_saved_model_imports_nothing_heavy(tmp_path):
    write_plain(tmp_path / "net")
    heavy = "{'tensorflow', 'numpy', 'h5py', 'ai_edge_litert'}"
    code = (
        "import sys; from edgeconv.model.source import load; load(sys.argv[1]); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "net")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_tensors_and_signatures_are_sorted_by_name_and_initialisers_left_out(tmp_path):
    many = signature({"b": tensor((2,)), "a": tensor((1,))}, {})
    graph = meta_graph({"z": many, "__saved_model_init_op": PLAIN, "a": PLAIN})
    model = load(write_saved_model(tmp_path / "net", graph))
    assert [s.key for s in model.signatures] == ["a", "z"]
    assert [t.name for t in model.signatures[1].inputs] == ["a", "b"]


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "float32"),
        (2, "float64"),
        (4, "uint8"),
        (7, "string"),
        (9, "int64"),
        (10, "bool"),
        (14, "bfloat16"),
        (19, "float16"),
        (20, "resource"),
        (23, "uint64"),
        (29, "int4"),
        (101, "float32"),
        (99, "unknown type 99"),
    ],
)
def test_data_types_have_numpy_names(tmp_path, number, name):
    graph = meta_graph({"go": signature({"x": tensor((), number)}, {})})
    (only,) = load(write_saved_model(tmp_path, graph)).signatures
    assert only.inputs[0].dtype == name


def test_a_sparse_input_is_not_called_dense(tmp_path):
    graph = meta_graph({"go": signature({"x": block(4, b"")}, {})})
    (only,) = load(write_saved_model(tmp_path, graph)).signatures
    assert only.inputs[0].dtype == "sparse"


def test_an_unknown_rank_is_no_scalar(tmp_path):
    graph = meta_graph({"go": signature({"s": tensor(()), "u": tensor(None)}, {})})
    (only,) = load(write_saved_model(tmp_path, graph)).signatures
    assert [(t.shape, t.rank_known) for t in only.inputs] == [((), True), ((), False)]


def test_the_graph_tagged_only_for_serving_is_the_one_that_counts(tmp_path):
    train = meta_graph({"train": PLAIN}, tags=("train",))
    gpu = meta_graph({"gpu": PLAIN}, tags=("serve", "gpu"))
    plain = meta_graph({"plain": PLAIN})
    assert keys(write_saved_model(tmp_path / "a", train, gpu, plain)) == ["plain"]
    model = load(write_saved_model(tmp_path / "b", train, gpu))
    assert [s.key for s in model.signatures] == ["gpu"]
    assert "tagged serve, gpu" in model.notes


def test_a_saved_model_without_a_serving_graph_says_which_tags_it_has(tmp_path):
    model = load(write_saved_model(tmp_path, meta_graph({"t": PLAIN}, tags=("train",))))
    assert model.signatures == ()
    assert model.notes == ("no graph is tagged 'serve', only: train",)


def test_operators_are_counted_in_the_graph_and_its_functions(tmp_path):
    graph = meta_graph({}, operators=("Const", "Add"), function_operators=("Add", "MatMul"))
    operators = inspect_model(write_saved_model(tmp_path, graph)).operators
    assert [(o.name, o.version, o.count) for o in operators] == [
        ("Add", 0, 2),
        ("Const", 0, 1),
        ("MatMul", 0, 1),
    ]


def test_a_directory_of_versions_stands_for_its_highest(tmp_path):
    for version in ("9", "00000010", "2"):
        write_plain(tmp_path / "net" / version)
    (tmp_path / "net" / "11").mkdir()
    write_plain(tmp_path / "net" / "latest")
    model = load(tmp_path / "net")
    assert model.path == str(tmp_path / "net" / "00000010")
    assert model.name == "net"
    assert "version 10 of 2, 9, 10" in model.notes


def test_a_version_directory_has_its_parents_name(tmp_path):
    assert identify(write_plain(tmp_path / "net" / "1")).name == "net"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a b!c", "a-b-c"),
        ("..x", "x"),
        ("größe", "gr-e"),
        ("???", "model"),
        ("v1.2_x-y", "v1.2_x-y"),
    ],
)
def test_names_keep_only_safe_characters(tmp_path, given, name):
    assert identify(write_plain(tmp_path / given)).name == name


def test_hash_and_size_are_those_of_the_content(tmp_path):
    model = load(write_tflite(tmp_path / "a.tflite"))
    data = Path(model.path).read_bytes()
    assert (model.sha256, model.size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    first = write_plain(tmp_path / "first")
    (first / "variables").mkdir()
    (first / "variables" / "data").write_bytes(b"12345")
    pb_bytes = (first / "saved_model.pb").stat().st_size
    assert identify(first).size_bytes == pb_bytes + 5
    before = identify(first).sha256
    (first / "variables" / "data").write_bytes(b"12346")
    assert identify(first).sha256 != before


def test_requests_to_warm_a_server_up_are_no_part_of_the_model(tmp_path):
    saved = write_plain(tmp_path / "saved")
    (saved / "assets.extra").mkdir()
    before = identify(saved)
    (saved / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"requests")
    assert identify(saved) == before
    (saved / "assets.extra" / "other").write_bytes(b"other")
    assert identify(saved).sha256 != before.sha256


def test_a_relative_path_becomes_absolute(tmp_path, monkeypatch):
    write_plain(tmp_path / "net" / "1")
    monkeypatch.chdir(tmp_path / "net" / "1")
    assert (load(".").path, load(".").name) == (str(tmp_path / "net" / "1"), "net")
    assert load("../1").path == str(tmp_path / "net" / "1")


def test_a_symbolic_link_keeps_the_name_it_was_given(tmp_path):
    write_plain(tmp_path / "net-2026")
    (tmp_path / "net").symlink_to(tmp_path / "net-2026")
    assert load(tmp_path / "net").name == "net"


def test_a_tflite_file_has_its_own_signatures(tmp_path):
    model = load(write_tflite(tmp_path / "a.tflite"))
    assert model.kind == "tflite"
    assert [s.key for s in model.signatures] == ["go"]


def test_only_a_quantised_tflite_is_refused_as_quantised(tmp_path):
    refuse_quantized(load(write_tflite(tmp_path / "float.tflite")))
    refuse_quantized(load(write_plain(tmp_path / "net")))
    with fails(InputRefused):
        refuse_quantized(load(write_tflite(tmp_path / "int8.tflite", int8_model())))


@pytest.mark.parametrize(
    ("name", "write", "kind", "version"),
    [
        ("a.keras", write_keras, "keras", "3.15.1"),
        ("a.h5", write_hdf5, "hdf5", "2.4.0"),
        ("a.HDF5", write_hdf5, "hdf5", "2.4.0"),
    ],
)
def test_keras_files_tell_their_layers_and_version(tmp_path, name, write, kind, version):
    inspection = inspect_model(write(tmp_path / name))
    assert (inspection.model.kind, inspection.model.name) == (kind, "a")
    assert inspection.model.notes[0] == f"saved by Keras {version}"
    assert "it was never called" in inspection.model.notes[1]
    assert [(o.name, o.count) for o in inspection.operators] == [("Dense", 2)]


def test_layers_of_nested_models_wrappers_and_bare_lists_are_counted(tmp_path):
    wrapped = {"class_name": "Bidirectional", "config": {"layer": {"class_name": "LSTM"}}}
    inner = {"class_name": "Sequential", "config": [DENSE, wrapped]}
    outer = {"class_name": "Functional", "config": {"layers": [inner, DENSE]}}
    operators = inspect_model(write_keras(tmp_path / "a.keras", outer)).operators
    assert [(o.name, o.count) for o in operators] == [
        ("Bidirectional", 1),
        ("Dense", 2),
        ("LSTM", 1),
    ]


def test_a_lambda_layer_is_pointed_out(tmp_path):
    config = {"class_name": "Sequential", "config": {"layers": [{"class_name": "Lambda"}]}}
    notes = load(write_hdf5(tmp_path / "a.h5", config)).notes
    assert "has Lambda layers: loading it runs code that is stored in the file" in notes


def cut(file: Path) -> None:
    """Leave a part of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 4])


def archive(path: Path, name: str, content: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)


def hdf5_with(path: Path, **attributes: object) -> None:
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)


def holding(path: Path, name: str) -> None:
    path.mkdir()
    (path / name).write_text("x")


def of(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


# By name: what is written there.
REFUSED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "file/inside": lambda path: path.parent.touch(),
    "broken": lambda path: path.symlink_to("gone"),
    "loop": lambda path: path.symlink_to(path),
    "pipe.h5": os.mkfifo,
    "empty": Path.mkdir,
    "junk": lambda path: holding(path, "readme.txt"),
    "steps": lambda path: holding(path, "checkpoint"),
    "text": lambda path: holding(path, "saved_model.pbtxt"),
    **{f"a{end}": Path.touch for end in (".keras", ".h5", ".hdf5")},
    "a.tflite": Path.touch,
    "hdf5.keras": of(b"\x89HDF\r\n\x1a\n"),
    "zip.h5": of(b"PK\x03\x04rest"),
    "b.tflite": of(b"hello, world"),
    "a.lite": of(b"\x1c\0\0\0TFL3"),
    "a.npz": of(b"PK\x03\x04rest"),
    "a.pb": of(b"\x0a\x01"),
    "a.onnx": of(b"\x08\x07"),
    "a.pt": of(b"PK\x03\x04"),
    "saved_model.pb": of(b"\x08\x01"),
    "a.txt": of(b"text"),
    "cut.keras": lambda path: cut(write_keras(path)),
    "other.keras": lambda path: archive(path, "readme.txt", "x"),
    "list.keras": lambda path: write_keras(path, [1]),
    "deep.keras": lambda path: archive(path, "config.json", '{"a":' * 100_000),
    "cut.h5": lambda path: cut(write_hdf5(path)),
    "weights.h5": lambda path: hdf5_with(path, layer_names=["dense"]),
    "number.h5": lambda path: hdf5_with(path, model_config=7),
    "cut.tflite": lambda path: cut(write_tflite(path)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_model_is_refused_by_its_path_with_the_reason(tmp_path, name):
    REFUSED[name](tmp_path / name)
    is_refused(tmp_path / name)


def test_a_path_that_no_system_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails(InputRefused):
        load("a\0b")


def test_a_model_inside_of_a_directory_is_proposed(tmp_path):
    (tmp_path / "served" / "7").mkdir(parents=True)
    write_tflite(tmp_path / "served" / "7" / "model.tflite")
    is_refused(tmp_path / "served")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path):
    write_keras(tmp_path / "a.keras").chmod(0)
    write_plain(tmp_path / "net").joinpath("saved_model.pb").chmod(0)
    for name in ("a.keras", "net"):
        with pytest.raises(InputRefused, match="Permission denied"):
            load(tmp_path / name)


def test_every_truncated_saved_model_and_garbage_are_refused(tmp_path):
    data = (write_plain(tmp_path) / "saved_model.pb").read_bytes()
    for content in (b"\xff" * 40, b"\x08\x01", *(data[:length] for length in range(len(data)))):
        (tmp_path / "saved_model.pb").write_bytes(content)
        is_refused(tmp_path)


def test_mutants_of_a_keras_archive_raise_only_refusals(tmp_path):
    path, randomness, refused = write_keras(tmp_path / "a.keras"), random.Random(5), 0
    data = path.read_bytes()
    for number in range(300):
        mutant = bytearray(data)
        for _ in range(3):
            mutant[randomness.randrange(4, len(data))] = randomness.randrange(256)
        path.write_bytes(mutant)
        try:
            # The first ones as users load them: in a child each, by the same function.
            load(path) if number < 30 else read_archive_here(KerasReadJob(path=str(path)))
        except InputRefused:
            refused += 1
    assert refused > 100


def test_an_hdf5_file_that_the_library_never_finishes_is_refused(tmp_path, monkeypatch):
    from edgeconv.model.source import keras_files
    from edgeconv.types import Allowance

    monkeypatch.setattr(keras_files, "_ALLOWANCE", Allowance(timeout_s=1e-6))
    is_refused(write_hdf5(tmp_path / "a.h5"))


def test_the_only_signature_is_chosen(tmp_path):
    model = load(write_plain(tmp_path))
    assert chosen_signature(model, None).key == "serving_default"
    assert chosen_signature(model, "serving_default").key == "serving_default"


def test_several_signatures_are_listed_with_their_inputs_rather_than_guessed(tmp_path):
    text = signature({"s": tensor(None, STRING)}, {})
    graph = meta_graph({"image": PLAIN, "text": text})
    model = load(write_saved_model(tmp_path, graph))
    with fails(UsageError):
        chosen_signature(model, None)
    assert chosen_signature(model, "image").key == "image"


def test_an_unknown_signature_is_refused_with_a_suggestion(tmp_path):
    with fails(UsageError):
        chosen_signature(load(write_plain(tmp_path)), "serving_defualt")


def test_the_twin_signatures_of_a_keras_export_count_as_one(tmp_path):
    twins = load(
        write_saved_model(tmp_path / "a", meta_graph({"serve": PLAIN, "serving_default": PLAIN}))
    )
    assert chosen_signature(twins, None).key == "serving_default"
    assert chosen_signature(twins, "serve").key == "serve"
    other = signature({"x": tensor((1,))}, {})
    pair = meta_graph({"serve": other, "serving_default": PLAIN})
    with fails(UsageError):
        chosen_signature(load(write_saved_model(tmp_path / "b", pair)), None)


def test_a_model_without_any_signature_is_refused_with_what_to_do(tmp_path):
    model = load(write_saved_model(tmp_path, meta_graph({})))
    with fails(InputRefused):
        chosen_signature(model, None)


def test_the_functions_of_a_model_without_signatures_are_named(tmp_path):
    spec = block(1, "x") + block(2, block(2, whole(1, -1)) + block(2, whole(1, 8))) + whole(3, 1)
    arguments = block(52, block(1, block(33, spec)))
    traces = entry(2, "__inference_predict_7", block(3, block(52, block(1, arguments))))
    child = block(1, whole(1, 1) + block(2, "inner"))
    function = block(1, whole(1, 2) + block(2, "predict"))
    # The third object has itself among its children.
    predict = block(6, block(1, "__inference_predict_7")) + block(1, whole(1, 2) + block(2, "me"))
    objects = b"".join(block(1, node) for node in (child, function, predict))
    graph = meta_graph({}) + block(7, objects + traces)
    with fails(InputRefused):
        chosen_signature(load(write_saved_model(tmp_path, graph)), None)


def test_an_input_of_unknown_rank_cannot_be_chosen(tmp_path):
    graph = meta_graph({"go": signature({"x": tensor(None)}, {"y": tensor((1,))})})
    with fails(InputRefused):
        chosen_signature(load(write_saved_model(tmp_path, graph)), "go")


def test_a_tflite_without_signatures_answers_to_the_default_key(tmp_path):
    model = load(write_tflite(tmp_path / "a.tflite", float_model()))
    assert chosen_signature(model, "serving_default") == model.signatures[0]
    assert chosen_signature(model, None) == model.signatures[0]
