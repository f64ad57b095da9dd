"""The metadata of what `embed --target android` wrote, read by the PyPI package tflite-support.

Its last wheels are for CPython 3.11; its reader is asked in a process of its own, from a directory
that only this test has, because its dependencies are not those of edgeconv.
"""

import json
import sys
from pathlib import Path

import pytest
from commands import captured
from embed_models import HOSTILE, float_tiny, hostile_tiny, published
from tiny_tflite import Graph, packed

from edgeconv import embed
from edgeconv.types import Preprocessing

READER = """
import base64, json, sys
sys.modules["tensorflow"] = None  # Only for reading remote files.
from tensorflow_lite_support.metadata.cc.python import _pywrap_metadata_version as version
from tensorflow_lite_support.metadata.python.metadata import MetadataDisplayer, MetadataPopulator
content = open(sys.argv[1], "rb").read()
read = MetadataDisplayer.with_model_buffer(content)
raw = read.get_metadata_buffer()
MetadataPopulator.with_model_buffer(content).load_metadata_buffer(bytearray(raw))
files = read.get_packed_associated_file_list()
print(json.dumps({
    "said": json.loads(read.get_metadata_json()),
    "oldest": version.GetMinimumMetadataParserVersion(bytes(raw)),
    "files": {name: read.get_associated_file_buffer(name).decode() for name in files},
}))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    if sys.version_info >= (3, 12):
        pytest.skip("tflite-support has no wheel for this Python")
    directory = tmp_path_factory.mktemp("tflite_support")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    command = [*pip, "--target", str(directory), "tflite-support==0.4.4"]
    done = captured(command)
    if done.returncode:
        pytest.skip(f"tflite-support cannot be installed here: {done.stderr[-200:]}")
    return directory


def read(packages: Path, directory: Path) -> dict:
    (model,) = directory.glob("src/main/assets/*.tflite")
    # Its generated code has escapes that a newer Python warns of.
    command = [sys.executable, "-W", "ignore", "-c", READER, str(model)]
    done = captured(command, env={"PYTHONPATH": str(packages)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_published_reader_finds_labels_and_normalisation(packages, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text('a "b"\n$x\né\n', encoding="utf-8")
    steps = Preprocessing(scale=2.0, mean=(1.0,), std=(0.5, 1.0, 2.0, 4.0))
    artifact = float_tiny(tmp_path / "model", preprocessing={"x": steps})
    embed(artifact, "android", tmp_path / "app", labels=labels)
    found = read(packages, tmp_path / "app")
    assert found["files"] == {"labels.txt": 'a "b"\n$x\né\n'}
    assert found["said"]["min_parser_version"] == found["oldest"] == "1.0.0"
    (graph,) = found["said"]["subgraph_metadata"]
    (given,), (output,) = graph["input_tensor_metadata"], graph["output_tensor_metadata"]
    # (2 x - 1) / s is (x - 1/2) / (s/2).
    assert given["process_units"] == [
        {
            "options_type": "NormalizationOptions",
            "options": {"mean": [0.5] * 4, "std": [0.25, 0.5, 1.0, 2.0]},
        }
    ]
    assert output["associated_files"] == [{"name": "labels.txt", "type": "TENSOR_AXIS_LABELS"}]


def test_the_published_reader_takes_the_worst_of_names(packages, tmp_path):
    embed(hostile_tiny(tmp_path / "model"), "android", tmp_path / "app", symbol="hostile")
    said = read(packages, tmp_path / "app")["said"]
    assert said["name"] == HOSTILE
    (graph,) = said["subgraph_metadata"]
    assert [one["name"] for one in graph["input_tensor_metadata"]] == [HOSTILE, "class"]
    assert [one["name"] for one in graph["output_tensor_metadata"]] == ["a-b", "a b"]


def test_the_published_reader_sees_an_image(packages, tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4, 6, 3), "float32")
    y = graph.tensor("y", (1, 4, 6, 3), "float32")
    graph.operator("ADD", [x, x], [y])
    content = packed(graph.model([x], [y], signature=("serving_default", ["photo"], ["y"])))
    steps = Preprocessing(resize=(4, 6), scale=1 / 127.5, mean=(1.0,))
    artifact = published(tmp_path / "model", content, preprocessing={"": steps})
    embed(artifact, "android", tmp_path / "app", symbol="photos")
    (graph,) = read(packages, tmp_path / "app")["said"]["subgraph_metadata"]
    (photo,) = graph["input_tensor_metadata"]
    assert photo["content"] == {
        "content_properties_type": "ImageProperties",
        "content_properties": {"color_space": "RGB", "default_size": {"width": 6, "height": 4}},
    }
    assert photo["process_units"][0]["options"] == {"mean": [127.5], "std": [127.5]}
