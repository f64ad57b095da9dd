"""The lines on a file's grade, and on what computes in float."""

from typing import Any

import pytest
import report_example as example
from msgspec.structs import replace

from edgeconv.reporting.closeness import floats_line, grade_line
from edgeconv.reporting.pages import text_of
from edgeconv.types import Artifact, Conversion, FloatOperators, OutputError


def graded(grade: str, advice: str = "", **fields: Any) -> Artifact:
    artifact = example.artifact("int8")
    error: OutputError = replace(artifact.verification.outputs[0], grade=grade, **fields)
    verification = replace(artifact.verification, outputs=(error,), grade=grade, advice=advice)
    return replace(artifact, verification=verification)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "classes", "argmax_agreement": 0.875, "probability_error": 0.39}, "87.5 %"),
        ({"kind": "probabilities", "probability_error": 0.39}, "off by up to 0.39"),
        ({"kind": "numbers", "snr_db": 20.0}, "off by 10.0 % of the deviation"),
        ({"kind": "numbers", "snr_db": -200.0, "span": (1.0, 1.0)}, "1 throughout"),
    ],
)
def test_a_poor_file_says_why_and_what_is_closer(fields, said):
    line = grade_line(graded("poor", "int16x8", **fields))
    assert line.startswith("poor: ")
    assert said in line
    assert line.endswith("; closer: int16x8")


def test_one_more_output_is_one():
    artifact = graded("poor", kind="numbers", snr_db=20.0)
    checked = replace(artifact.verification, outputs=2 * artifact.verification.outputs)
    assert grade_line(replace(artifact, verification=checked)).endswith(" and 1 more output")


def test_a_close_file_and_one_that_nothing_was_compared_with_have_no_line():
    assert grade_line(graded("close", kind="numbers")) == ""
    assert grade_line(graded("")) == ""


def test_operators_in_float_are_named_with_their_number_layers_and_reason():
    left = (
        FloatOperators(name="ATAN2", count=2, layers=("a", "b"), reason="no kernel"),
        FloatOperators(name="ABS", count=1, layers=("c",), reason="neighbor"),
    )
    artifact = replace(example.artifact("int8"), left_in_float=left, integer_share=0.982)
    line = floats_line(artifact)
    for part in ("98.2 %", "ATAN2 ×2 in a, b (no integer kernel)", "ABS in c (between them)"):
        assert part in line
    assert floats_line(example.artifact("int8")) == ""


@pytest.mark.parametrize(("reason", "is_brief"), [("no kernel", True), ("rule", False)])
def test_what_a_rule_keeps_in_float_is_counted_only_for_those_who_ask(reason, is_brief):
    """A note names the layers already."""
    left = (FloatOperators(name="SOFTMAX", count=1, layers=("a",), reason=reason),)
    artifact = replace(example.artifact("int8"), left_in_float=left, integer_share=0.982)
    conversion = Conversion(directory="out", artifacts=(artifact,))
    assert ("98.2 % of the work" in text_of(conversion)) == is_brief
    assert "98.2 % of the work" in text_of(conversion, verbose=True)
