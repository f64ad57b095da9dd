"""The target `android`: what is written, and what is refused. It runs in tests/integration."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from embed_models import float_tiny, hostile_tiny, int8_tiny, large_tiny, planned, published, tree
from embed_syntax import mistakes
from tiny_tflite import Graph, packed
from wording import fails

from edgeconv import embed
from edgeconv.embedding.c_files import app_values
from edgeconv.embedding.embedding import make_embedding
from edgeconv.embedding.interface import Embedding
from edgeconv.embedding.targets import android
from edgeconv.embedding.targets.android import shipped_model
from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused

KOTLIN = "src/main/kotlin/edgeconv/tiny/Tiny.kt"
PLUGIN = {"plugin": "yes"}
TASKS = "gradle-plugin/src/main/kotlin/edgeconv/gradle/EdgeconvTasks.kt"


def embedding(artifact: Path, **options: Any) -> Embedding:
    return make_embedding(planned(artifact, "android", artifact.parent / "to", **options))


def test_the_module_and_the_test_are_written(tmp_path):
    embed(int8_tiny(tmp_path / "model"), "android", tmp_path / "app")
    assert sorted(tree(tmp_path / "app")) == [
        "build.gradle.kts",
        "edgeconv-embedded.json",
        "src/androidTest/assets/tiny_golden.bin",
        "src/androidTest/kotlin/edgeconv/tiny/TinySelfTest.kt",
        "src/androidTest/kotlin/edgeconv/tiny/TinyTest.kt",
        "src/main/AndroidManifest.xml",
        "src/main/assets/tiny.tflite",
        "src/main/kotlin/edgeconv/tiny/Tiny.kt",
    ]
    ET.parse(tmp_path / "app" / "src/main/AndroidManifest.xml")
    assert 'noCompress += "tflite"' in (tmp_path / "app" / "build.gradle.kts").read_text()


def test_only_what_the_plugin_needs_is_written_for_it(tmp_path):
    options = {"module": "no", "plugin": "no", "package": "com.example.app_1"}
    embed(int8_tiny(tmp_path / "model"), "android", tmp_path / "app", option=options)
    files = set(tree(tmp_path / "app"))
    assert {file.split("/")[0] for file in files} == {"src", "edgeconv-embedded.json"}
    assert "src/main/kotlin/com/example/app_1/Tiny.kt" in files


def test_every_file_of_kotlin_parses(tmp_path):
    options = {"plugin": "yes"}
    embed(
        hostile_tiny(tmp_path / "model"), "android", tmp_path / "app", symbol="when", option=options
    )
    files = [f for f in (tmp_path / "app").rglob("*") if f.suffix in (".kt", ".kts")]
    assert len(files) == 8
    for file in files:
        assert mistakes(file, "tree_sitter_kotlin") == []
    assert (tmp_path / "app/src/main/kotlin/edgeconv/when_/When.kt").is_file()


def test_a_class_never_takes_a_name_that_its_own_code_uses(tmp_path):
    whole = embedding(float_tiny(tmp_path / "model"))
    classes = {
        "list": "List_",
        "byte_buffer": "ByteBuffer_",
        "inputs": "Inputs_",
        "input_x": "InputX_",
        "my_digits": "MyDigits",
        "float_array": "FloatArray_",
    }
    for symbol, name in classes.items():
        written = android.files(dataclasses.replace(whole, symbol=symbol))
        assert f"src/main/kotlin/edgeconv/{symbol}/{name}.kt" in written


@pytest.mark.parametrize("target", ["android", "ios"])
def test_a_type_that_arrays_of_the_language_lack_is_refused(tmp_path, target):
    graph = Graph()
    x, y = graph.tensor("x", (1, 2), "float32"), graph.tensor("y", (1, 2), "float16")
    graph.operator("CAST", [x], [y])
    model = packed(graph.model([x], [y], signature=("s", ["x"], ["y"])))
    with fails(InputRefused):
        embed(published(tmp_path / "m", model, recipe="float32"), target, tmp_path / "app")


def test_a_label_of_two_lines_is_refused(tmp_path):
    whole = embedding(float_tiny(tmp_path / "model"))
    broken = dataclasses.replace(whole, labels=("a", "b\nc", "d"), labeled=0)
    with fails(InputRefused):
        shipped_model(broken)
    with fails(InputRefused):
        app_values(broken, b"", {"float32": "FloatArray"}, (), ())


def test_an_open_dimension_other_than_the_batch_is_refused(tmp_path):
    whole = embedding(float_tiny(tmp_path / "model"))
    port = dataclasses.replace(whole.inputs[0], shape=(-1, -1))
    with fails(InputRefused):
        app_values(dataclasses.replace(whole, inputs=(port,)), b"", {"float32": "F"}, (), ())


def test_many_labels_are_in_literals_that_a_class_file_can_hold(tmp_path):
    artifact = large_tiny(tmp_path / "model", 16 * 20_000)
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"class {i}" for i in range(20_000)))
    embed(artifact, "android", tmp_path / "app", labels=labels)
    code = (tmp_path / "app" / KOTLIN).read_text()
    start = code.index("val labels")
    literals = re.findall(r'"([^"]*)",', code[start : code.index("flatMap", start)])
    assert max(map(len, literals)) < 65535 / 3
    named = [name for literal in literals for name in literal.split("\\u000a")]
    assert named == [f"class {i}" for i in range(20_000)]


def image_metadata(tmp_path: Path, steps: Preprocessing | None) -> tuple[bytes, bytes]:
    """The file that ships for an image model, and the flatbuffer in it."""
    graph = Graph()
    x = graph.tensor("x", (1, 4, 6, 3), "float32")
    y = graph.computed("y", (1, 4, 6, 3), "ADD", [x, x])
    content = packed(graph.model([x], [y], signature=("serving_default", ["photo"], ["y"])))
    changes = {"preprocessing": {"": steps}} if steps else {}
    artifact = published(tmp_path / "model", content, recipe="float32", **changes)
    data = shipped_model(embedding(artifact))
    model = parse(data, where="here")
    return data, bytes(model.buffers[model.metadata[-1].buffer].data)


@pytest.mark.parametrize(
    ("steps", "normalisation"),
    [
        (None, None),
        (Preprocessing(channels="bgr", resize=(4, 6)), None),
        (Preprocessing(resize=(4, 6), scale=0.0), None),
        (Preprocessing(resize=(4, 6)), (0.0, 1.0)),
    ],
)
def test_what_the_metadata_cannot_say_is_not_said(tmp_path, steps, normalisation):
    from flat_read import Read

    _, raw = image_metadata(tmp_path, steps)
    (photo,) = Read.root(raw).many(3)[0].many(2)
    is_image = steps is not None and steps.channels != "bgr"
    assert photo.one(3).byte(0) == (2 if is_image else 1)
    found = [(unit.one(1).floats(0), unit.one(1).floats(1)) for unit in photo.many(4)]
    assert found == ([([normalisation[0]], [normalisation[1]])] if normalisation else [])


def test_each_property_of_a_task_is_declared_to_gradle(tmp_path):
    code = android.files(embedding(int8_tiny(tmp_path / "model"), options=PLUGIN))[TASKS].decode()
    properties = re.findall(r"((?:    @get:\S+\n)+)    \w+ abstract val (\w+)", code)
    assert len(properties) == code.count("abstract val")
    kinds = {name: set(re.findall(r"@get:(\w+)", marks)) for marks, name in properties}
    for name, marks in kinds.items():
        assert len(marks & {"Input", "InputFiles", "InputDirectory", "OutputDirectory"}) <= 1, name
        is_read = marks & {"InputFiles", "InputDirectory"}
        assert ("PathSensitive" in marks) == bool(is_read), name
    assert {name for name, marks in kinds.items() if "Internal" in marks} == {
        "executable",
        "workingDirectory",
    }
    assert re.findall(r"@CacheableTask\npublic abstract class (\w+)", code) == [
        "ConvertTask",
        "EmbedTask",
    ]


def test_the_options_that_the_plugin_gives_are_those_of_the_command_line(tmp_path):
    from edgeconv.cli.ship import embed as embed_command
    from edgeconv.cli.verbs import convert

    code = android.files(embedding(int8_tiny(tmp_path / "model"), options=PLUGIN))[TASKS].decode()
    given = set(re.findall(r'"(--?[a-z-]+)"', code))
    assert given == {"--to", "-o", "--quiet", "--symbol", "--option", "--target"}
    known = {name for c in (convert, embed_command) for p in c.params for name in p.opts}
    assert given <= known
    named = re.findall(r'"--option", "(\w+)=', code)
    assert set(named) <= set(android.OPTIONS)
