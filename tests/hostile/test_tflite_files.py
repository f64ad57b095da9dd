"""What the scan finds in .tflite files, beside the cases of the corpus."""

from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from file_attacks import flex_model
from graph_files import node
from tiny_tflite import float_model, packed, packed_with_weights_outside

from edgeconv import scan
from edgeconv.types.errors import InputRefused


def scanned(path: Path, content: bytes):
    (path / "m.tflite").write_bytes(content)
    return scan(path / "m.tflite")


def refusal(path: Path, model: schema.ModelT) -> str:
    found = scanned(path, packed(model))
    assert found.is_refused
    return found.findings[0].what


def test_plain_models_are_allowed(tmp_path):
    assert scanned(tmp_path, packed(float_model())).findings == ()
    assert scanned(tmp_path, packed_with_weights_outside(float_model())).findings == ()


def test_subgraphs_that_share_their_tensors_are_refused(tmp_path):
    """Each names the same list, of the same tensor, which a parser would make 900,000 times."""
    builder = flatbuffers.Builder(1024)
    schema.TensorStart(builder)
    tensors = vector(builder, [schema.TensorEnd(builder)] * 1000)
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    subgraphs = vector(builder, [schema.SubGraphEnd(builder)] * 900)
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, subgraphs)
    builder.Finish(schema.ModelEnd(builder), file_identifier=b"TFL3")
    found = scanned(tmp_path, bytes(builder.Output()))
    assert "900000 tensors" in found.findings[0].what
    assert found.is_refused


def vector(builder: flatbuffers.Builder, tables: list[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    return builder.EndVector()


@pytest.mark.parametrize("shape", [(1,) * 5000, (2**30, 2**30), (-(2**31), 2**30)])
def test_tensors_that_nothing_can_hold_are_refused(shape, tmp_path):
    model = float_model()
    model.subgraphs[0].tensors[0].shape = np.array(shape, np.int32)
    assert "a tensor of" in refusal(tmp_path, model)


def test_weights_that_lie_outside_of_the_file_are_refused(tmp_path):
    model = float_model()
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, 1000, 2**40
    with pytest.raises(InputRefused, match="malformed"):
        scanned(tmp_path, packed(model))
    model = float_model()
    model.subgraphs[0].tensors[1].externalBuffer = 1
    assert "another file" in refusal(tmp_path, model)


def test_one_that_computes_and_a_custom_one_are_told_and_allowed(tmp_path):
    found = scanned(tmp_path, packed(flex_model("FlexAbs", "Abs", node("n", "Abs"))))
    assert [(each.what, each.severity) for each in found.findings] == [
        ("custom operator FlexAbs", "warn")
    ]


def test_every_cut_and_every_flipped_byte_is_read_or_refused(tmp_path):
    content = packed(float_model())
    cut = [is_read(tmp_path, content[:size]) for size in range(8, len(content), 7)]
    rng = np.random.default_rng(7)
    flipped = []
    for place in range(8, len(content), 3):
        changed = bytearray(content)
        changed[place] = int(rng.integers(256))
        flipped.append(is_read(tmp_path, bytes(changed)))
    # Any other error than a refusal has ended the test; damage is found, but not in a name.
    assert not all(cut)
    assert {True, False} == set(flipped)


def is_read(path: Path, content: bytes) -> bool:
    """Whether a file is scanned, and not refused as damaged."""
    try:
        scanned(path, content)
    except InputRefused:
        return False
    return True
