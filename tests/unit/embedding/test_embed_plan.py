import msgspec
import numpy as np
import pytest
from embed_models import (
    HOSTILE,
    SIGNED,
    float_tiny,
    hostile_tiny,
    int8_tiny,
    planned,
    published,
    tree,
)
from tiny_tflite import Graph, float_model, packed
from wording import fails

from edgeconv import embed
from edgeconv.embedding.plan import RECORD, embedded_already, read_labels
from edgeconv.plugins import EMBED_TARGETS
from edgeconv.system.store import read_noun
from edgeconv.types import Embedded
from edgeconv.types.errors import InputRefused, UsageError


def request(file, directory, **options):
    return planned(file, "c", directory, **options)


def test_the_symbol_is_the_models_name_as_an_identifier(tmp_path):
    assert request(int8_tiny(tmp_path / "a"), tmp_path).symbol == "tiny"
    assert request(int8_tiny(tmp_path / "b", name="Wake Word-2"), tmp_path).symbol == "wake_word_2"
    assert request(int8_tiny(tmp_path / "c", name="日本"), tmp_path).symbol == "model"
    assert request(int8_tiny(tmp_path / "d", name="class"), tmp_path).symbol == "class_model"
    assert request(int8_tiny(tmp_path / "e", name="a" * 99), tmp_path).symbol == "a" * 48
    assert request(hostile_tiny(tmp_path / "f"), tmp_path).symbol == "in_put_x_y_script_e"


@pytest.mark.parametrize(
    "symbol", ["7up", "a-b", "a b", "é", "_a", "a__b", "a\nb", 'a"b', "A" * 49, " ", "a;b"]
)
def test_a_symbol_that_is_no_identifier_is_refused(tmp_path, symbol):
    with fails(UsageError):
        request(int8_tiny(tmp_path), tmp_path / "out", symbol=symbol)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "symbol",
    [
        *("int", "class", "template", "nullptr", "main"),
        # Their headers would hide those of the system.
        *("string", "Time", "ARDUINO", "features"),
    ],
)
def test_a_symbol_that_is_a_word_of_the_language_is_refused(tmp_path, symbol):
    with fails(UsageError):
        request(int8_tiny(tmp_path), tmp_path / "out", symbol=symbol)


def test_a_model_that_is_called_as_such_a_header_gets_another_symbol(tmp_path):
    assert request(int8_tiny(tmp_path, name="Signal"), tmp_path).symbol == "signal_model"


def test_an_unknown_target_or_option_is_named_with_the_nearest(tmp_path):
    file = int8_tiny(tmp_path)
    with fails(UsageError):
        planned(file, "cmak", tmp_path)
    with fails(UsageError):
        request(file, tmp_path, options={"byte": "text"})


def test_a_manifest_that_is_not_there_is_refused(tmp_path):
    file = int8_tiny(tmp_path)
    file.with_suffix(".json").unlink()
    with fails(InputRefused):
        request(file.with_suffix(".json"), tmp_path)


def test_a_model_edited_after_conversion_is_refused(tmp_path):
    file = int8_tiny(tmp_path)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with fails(InputRefused):
        request(file, tmp_path)


def test_a_renamed_model_a_missing_one_and_a_directory_are_refused(tmp_path):
    file = int8_tiny(tmp_path)
    renamed = tmp_path / "other.tflite"
    renamed.write_bytes(file.read_bytes())
    (tmp_path / "other.json").write_bytes(file.with_suffix(".json").read_bytes())
    with fails(InputRefused):
        request(renamed, tmp_path)
    with fails(InputRefused):
        request(tmp_path / "nothing.tflite", tmp_path)
    with fails(InputRefused):
        request(tmp_path, tmp_path)
    file.unlink()
    with fails(InputRefused):
        request(file.with_suffix(".json"), tmp_path)


def test_the_manifest_and_a_directory_with_one_model_name_it_as_well(tmp_path):
    file = int8_tiny(tmp_path / "models")
    for given in (file, file.with_suffix(".json"), tmp_path / "models"):
        assert request(given, tmp_path).published.model == file


def test_one_of_several_signatures_has_to_be_chosen(tmp_path):
    file = float_tiny(tmp_path)
    artifact = request(file, tmp_path).published.artifact
    other = msgspec.structs.replace(artifact.signature, key="other")
    file = float_tiny(tmp_path, signatures=(artifact.signature, other))
    with fails(UsageError):
        request(file, tmp_path)
    assert request(file, tmp_path, signature="other").signature.key == "other"
    with fails(UsageError):
        request(file, tmp_path, signature="othr")


def test_labels_are_the_lines_of_a_file(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_bytes("cat\r\ndog \u2028 x\n\U0001f600\n".encode())
    assert read_labels(file) == ("cat", "dog \u2028 x", "\U0001f600")


@pytest.mark.parametrize("content", [b"a\n\nb\n", b"\xff\xfe", b"", b"a\n" * 100_001])
def test_labels_that_cannot_be_are_refused(tmp_path, content):
    (tmp_path / "labels.txt").write_bytes(content)
    with fails(InputRefused):
        read_labels(tmp_path / "labels.txt")
    with fails(InputRefused):
        read_labels(tmp_path / "none.txt")


def test_labels_that_fit_no_output_are_refused_with_the_outputs(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\n")
    with fails(InputRefused):
        embed(int8_tiny(tmp_path), "c", tmp_path / "out", labels=labels)
    assert not (tmp_path / "out").exists()


def test_data_that_the_model_cannot_take_is_refused(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((5, 9), np.float32))
    with fails(InputRefused):
        embed(float_tiny(tmp_path), "c", tmp_path / "out", data=str(tmp_path / "data.npz"))


def test_a_model_without_inputs_is_refused(tmp_path):
    graph = Graph()
    constant = graph.tensor("c", (1, 2), "float32", data=np.ones((1, 2), np.float32))
    out = graph.computed("y", (1, 2), "ADD", [constant, constant])
    content = packed(graph.model([], [out], signature=("serving_default", [], ["y"])))
    with fails(InputRefused):
        embed(published(tmp_path, content), "c", tmp_path / "out")


@pytest.mark.parametrize("target", ["c", "arduino", "zephyr", "cmake"])
def test_an_open_dimension_other_than_the_batch_is_refused_in_c(tmp_path, target):
    model = float_model(signature=SIGNED)
    spec = model.subgraphs[0].tensors[0]
    spec.shapeSignature = np.array([1, -1], np.int32)
    file = published(tmp_path, packed(model), recipe="float32")
    np.savez(tmp_path / "data.npz", x=np.ones((2, 4), np.float32))
    with fails(InputRefused):
        embed(file, target, tmp_path / "out", data=str(tmp_path / "data.npz"))


def test_what_is_up_to_date_is_known_and_what_is_not_is_made_again(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    assert embedded_already(request(file, out)) is None
    embedded = embed(file, "c", out)
    assert embedded_already(request(file, out)) == embedded
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert embed(file, "c", out) == embedded
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    for changed in ({"symbol": "z"}, {"vectors": 1}, {"options": {"bytes": "file"}}):
        assert embedded_already(request(file, out, **changed)) is None
    (out / "tiny.h").write_text("edited")
    assert embedded_already(request(file, out)) is None
    assert embed(file, "c", out) == embedded
    assert "TINY_MODEL_SIZE" in (out / "tiny.h").read_text()


def test_another_embedding_into_the_same_directory_takes_its_place(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    embed(file, "c", out)
    embed(file, "python", out, symbol="other")
    assert {path.split("/")[0] for path in tree(out)} == {"other", "pyproject.toml", RECORD}


# The web runs none of these models; its own test has another.
@pytest.mark.parametrize("target", sorted({*EMBED_TARGETS} - {"web"}))
def test_equal_models_anywhere_give_equal_bytes_and_no_path_or_hostile_name(tmp_path, target):
    trees = []
    for place in ("here", "over there"):
        file = hostile_tiny(tmp_path / place / "models")
        embed(file, target, tmp_path / place / "out")
        trees.append(tree(tmp_path / place / "out"))
    assert trees[0] == trees[1]
    for path, content in trees[0].items():
        assert str(tmp_path).encode() not in content, path
        if not path.endswith((".tflite", ".bin", RECORD)):
            assert content.isascii(), path
            assert HOSTILE.encode() not in content, path


def test_the_package_for_python_is_python_3_8(tmp_path):
    import ast

    embed(hostile_tiny(tmp_path / "m"), "python", tmp_path / "out", symbol="net")
    files = sorted((tmp_path / "out" / "net").glob("*.py"))
    assert len(files) == 4
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 8))


def test_the_record_says_what_was_written(tmp_path):
    out = tmp_path / "out"
    embedded = embed(int8_tiny(tmp_path / "m"), "c", out, option={"bytes": "text"})
    assert read_noun(out / RECORD, Embedded, what="record") == embedded
    assert embedded.target == "c"
    assert embedded.symbol == embedded.name == "tiny"
    assert embedded.options == {"bytes": "text"}
    assert {one.path for one in embedded.files} == {*tree(out)} - {RECORD}
    assert "tensor arena" in embedded.notes[0]
