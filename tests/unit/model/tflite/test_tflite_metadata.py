"""The standard metadata in a .tflite, read here by the schema's own field numbers."""

import io
import zipfile

import numpy as np
import pytest
from ai_edge_litert.schema_py_generated import BufferT, MetadataT
from flat_read import Read
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tflite import (
    BUFFER_ALIGNMENT,
    Graph,
    float_model,
    int8_model,
    packed,
    packed_with_weights_outside,
    run,
)

from edgeconv.model.tflite.flatbuffer import parse, serialize
from edgeconv.model.tflite.metadata import (
    ImageMetadata,
    ModelMetadata,
    TensorMetadata,
    graph_names,
    metadata_flatbuffer,
    with_metadata,
)
from edgeconv.types.errors import InputRefused

PLAIN = ModelMetadata(
    name="m",
    description="",
    inputs=(TensorMetadata(name="x"),),
    outputs=(TensorMetadata(name="y"),),
)
SIGNED = ("serving_default", ["image"], ["scores"])


def metadata_of(data: bytes) -> bytes:
    """What the entry TFLITE_METADATA names."""
    model = parse(data, where="here")
    (entry,) = [m for m in model.metadata if m.name == b"TFLITE_METADATA"]
    return bytes(model.buffers[entry.buffer].data)


def test_the_flatbuffer_says_all_by_the_fields_of_the_schema():
    image = ImageMetadata(color="rgb", height=7, width=5)
    said = ModelMetadata(
        name="digits",
        description="about it",
        inputs=(
            TensorMetadata(name="a", description="d", image=image, mean=(1.5, 2.0), std=(3.0, 4.0)),
            TensorMetadata(name="b"),
        ),
        outputs=(TensorMetadata(name="c", labels="labels.txt"),),
    )
    data = metadata_flatbuffer(said)
    assert data[4:8] == b"M001"
    model = Read.root(data)
    assert (model.text(0), model.text(1), model.text(7)) == ("digits", "about it", "1.0.0")
    (graph,) = model.many(3)
    first, second = graph.many(2)
    assert (first.text(0), first.text(1)) == ("a", "d")
    assert first.one(3).byte(0) == 2  # ContentProperties.ImageProperties
    shown = first.one(3).one(1)
    assert shown.byte(0) == 1  # ColorSpaceType.RGB
    assert (shown.one(1).uint(0), shown.one(1).uint(1)) == (5, 7)  # width, height
    (unit,) = first.many(4)
    assert unit.byte(0) == 1  # ProcessUnitOptions.NormalizationOptions
    assert (unit.one(1).floats(0), unit.one(1).floats(1)) == ([1.5, 2.0], [3.0, 4.0])
    assert second.one(3).byte(0) == 1  # ContentProperties.FeatureProperties
    assert (second.many(4), second.many(6)) == ([], [])
    (output,) = graph.many(3)
    (labels,) = output.many(6)
    assert (labels.text(0), labels.byte(2)) == ("labels.txt", 2)  # TENSOR_AXIS_LABELS


@settings(max_examples=60)
@given(st.text(), st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5))
def test_any_name_and_any_numbers_come_back(name, numbers):
    tensor = TensorMetadata(name=name, mean=tuple(numbers), std=tuple(numbers))
    said = ModelMetadata(name=name, description=name, inputs=(tensor,), outputs=(tensor,))
    model = Read.root(metadata_flatbuffer(said))
    (read,) = model.many(3)[0].many(2)
    assert (model.text(0), model.text(1), read.text(0)) == (name, name, name)
    assert read.many(4)[0].one(1).floats(1) == numbers


def test_a_lone_surrogate_in_a_name_becomes_a_question_mark():
    said = ModelMetadata(name="a\udc80", description="", inputs=(), outputs=())
    assert Read.root(metadata_flatbuffer(said)).text(0) == "a?"


@pytest.mark.parametrize("make", [packed, packed_with_weights_outside])
def test_the_model_answers_as_before_and_keeps_all_else(make):
    before = make(int8_model())
    after = with_metadata(before, PLAIN, {"labels.txt": b"a\nb\nc\n"})
    given = np.array([[3, -7, 100, -128]], np.int8)
    assert np.array_equal(run(before, given)[0], run(after, given)[0])
    model = parse(after, where="after")
    model.metadata = [m for m in model.metadata if m.name != b"TFLITE_METADATA"] or None
    dropped = model.buffers.pop()
    assert bytes(dropped.data)[4:8] == b"M001"
    original = parse(before, where="before")
    original.metadata = original.metadata or None
    assert serialize(model) == serialize(original)


def test_the_weights_stay_aligned():
    data = with_metadata(packed(float_model()), PLAIN, {"labels.txt": b"x\n"})
    weights = bytes(parse(data, where="here").buffers[1].data)
    assert data.count(weights) == 1
    assert data.index(weights) % BUFFER_ALIGNMENT == 0


def test_files_stand_in_a_zip_after_the_model_uncompressed_and_the_same_every_time():
    content = b"a label\n" * 1000
    data = with_metadata(packed(int8_model()), PLAIN, {"labels.txt": content, "b.txt": b""})
    assert data == with_metadata(packed(int8_model()), PLAIN, {"b.txt": b"", "labels.txt": content})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == ["b.txt", "labels.txt"]
        assert archive.read("labels.txt") == content
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    assert content in data


def test_without_files_there_is_no_zip():
    data = with_metadata(packed(int8_model()), PLAIN, {})
    assert not zipfile.is_zipfile(io.BytesIO(data))
    assert Read.root(metadata_of(data)).text(0) == "m"


def test_metadata_that_is_there_already_is_replaced():
    once = with_metadata(packed(int8_model()), PLAIN, {"labels.txt": b"old\n"})
    other = ModelMetadata(name="new", description="", inputs=PLAIN.inputs, outputs=PLAIN.outputs)
    twice = with_metadata(once, other, {"labels.txt": b"new\n"})
    assert twice == with_metadata(packed(int8_model()), other, {"labels.txt": b"new\n"})
    assert Read.root(metadata_of(twice)).text(0) == "new"


def test_other_metadata_of_the_file_stays():
    model = int8_model()
    model.buffers.append(BufferT(data=np.frombuffer(b"1.14.0", np.uint8)))
    model.metadata = [MetadataT(name="min_runtime_version", buffer=len(model.buffers) - 1)]
    kept = parse(with_metadata(packed(model), PLAIN, {}), where="here")
    assert [m.name for m in kept.metadata] == [b"min_runtime_version", b"TFLITE_METADATA"]
    assert bytes(kept.buffers[kept.metadata[0].buffer].data) == b"1.14.0"


def test_the_names_of_the_ends_are_in_the_order_of_the_graph():
    graph = Graph()
    a, b = graph.tensor("a", (1, 2), "float32"), graph.tensor("b", (1, 2), "float32")
    y = graph.computed("y", (1, 2), "ADD", [a, b])
    model = graph.model([b, a], [y], signature=("s", ["second", "first"], ["sum"]))
    model.subgraphs[0].inputs = [a, b]
    assert graph_names(packed(model)) == (("first", "second"), ("sum",))


def test_the_names_without_a_signature_are_those_of_the_tensors():
    assert graph_names(packed(float_model())) == (("x",), ("y",))
    assert graph_names(packed(float_model(signature=SIGNED))) == (("image",), ("scores",))


@pytest.mark.parametrize("data", [b"", b"not a model at all", packed(int8_model())[:60]])
def test_what_is_no_model_is_refused(data):
    with pytest.raises(InputRefused):
        with_metadata(data, PLAIN, {})
