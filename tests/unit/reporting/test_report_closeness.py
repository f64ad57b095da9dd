"""How far outputs are from a reference, as a person reads it."""

import math
import re

import msgspec
import numpy as np
import pytest
import report_example as example
from msgspec.structs import replace
from wording import says

from edgeconv.measure.metrics.agreement import agreement
from edgeconv.reporting import units
from edgeconv.reporting.closeness import (
    agreement_line,
    comparison_lines,
    error_lines,
    snr,
    worst_error,
    worst_output,
    worst_snr,
)
from edgeconv.reporting.facts import agreement_table
from edgeconv.reporting.html import render_html
from edgeconv.reporting.pages import text_of
from edgeconv.statistics.outputs import output_errors
from edgeconv.types import Agreement, Artifact, OutputError
from edgeconv.types.conversion import OVERLAPPING


def errors(reference: object, actual: object, step: float = 0.0) -> tuple[OutputError, ...]:
    return output_errors({"y": np.asarray(reference)}, {"y": np.asarray(actual)}, {"y": step})


def lines(found: tuple[OutputError, ...]) -> list[str]:
    return error_lines(found, 64)


def line(reference: object, actual: object, step: float = 0.0) -> str:
    (only,) = lines(errors(reference, actual, step))
    return only


def test_a_line_says_the_error_in_the_outputs_unit_its_span_and_how_many_samples():
    want = np.array([[0.0, 1.0], [0.75, 0.25], [0.4, 0.6], [0.9, 0.1]])
    says(line(want, want + np.array([0.001, -0.001]), step=0.0004))
    says(line(want, want))


def test_an_output_of_a_step_less_than_one_is_told_as_a_step_and_without_decibels():
    says(line([[1.0], [1.0]], [[0.99609375], [0.99609375]], step=1 / 256))


def test_half_of_two_samples_is_told_as_such():
    said = line([[0.9, 0.1], [0.51, 0.49]], [[0.9, 0.1], [0.49, 0.51]])
    assert said.endswith("argmax 50.0 % of 2 samples")


def test_an_output_that_says_the_same_to_every_sample_is_said_to():
    want = np.tile([0.9, 0.1], (3, 1))
    said = "y: max error 0.0100 (outputs span 0.1 to 0.9, the same for every sample)"
    assert line(want, want + 0.01).startswith(said)
    assert "the same" not in line(want[:1], want[:1] + 0.01)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((2, 1)), "outputs are 0 throughout"),
        (np.array([[-128], [127]], np.int8), "outputs span −128 to 127"),
        (np.array([[5000.0], [5001.0]]), "outputs span 5000 to 5001"),
        (np.array([[-1.0], [3.0e-19]]), "outputs span −1 to 0"),
        (np.array([[500000.0], [500100.0]]), "outputs span 500000 to 500100"),
    ],
)
def test_every_kind_of_output_has_its_span(values, said):
    assert said in line(values, values)


def test_a_manifest_of_before_has_its_line_without_a_span():
    old = OutputError(
        output="y", snr_db=41.23, max_abs_error=0.0039, rms_error=1, rms_reference=1, cosine=1
    )
    says(lines((old,)))


def test_of_many_outputs_the_worst_are_listed_and_the_others_counted():
    (one,) = errors([[0.0], [1.0]], [[0.1], [1.0]])
    many = tuple(replace(one, output=f"o{i}", snr_db=float(10 * i)) for i in range(6))
    said = lines(many)
    assert [each.split(":")[0] for each in said[:3]] == ["o0", "o1", "o2"]
    says(said[3:])
    assert len(lines(many[:4])) == 4


def test_a_probability_that_hardly_differs_is_not_the_worst_output():
    """A detector's objectness is 0.99996 to 1, and -9 dB next to that; its boxes are off."""
    (boxes,) = errors([[0.1], [0.9]], [[0.12], [0.88]])
    (objectness,) = errors([[0.99998], [1.0]], [[0.99995], [1.0]])
    objectness = replace(
        objectness, output="objectness", kind="probabilities", probability_error=3e-5
    )
    assert objectness.snr_db < boxes.snr_db
    assert worst_output((objectness, boxes)) is boxes


def test_the_worst_of_several_is_the_lowest_and_nan_is_worse_than_all():
    flat, close = *errors([[1.0], [1.0]], [[0.9], [0.9]]), *errors([[0.0], [1.0]], [[0.1], [1.0]])
    assert snr(flat) is None
    assert worst_snr((flat, close)) == close.snr_db
    assert math.isnan(worst_snr((close, replace(close, snr_db=math.nan))) or 0)
    assert worst_snr((flat,)) is None
    equal = errors([[1.0], [1.0]], [[1.0], [1.0]])
    assert units.decibels(worst_snr(equal)) == "exact"


def test_a_measured_output_says_the_same_in_the_same_words():
    want = np.array([[0.0, 1.0], [0.75, 0.25]])
    found = agreement("y", want + np.array([0.01, -0.01]), want, "baseline")
    says(agreement_line(found))
    assert agreement_line(found).endswith("0 of 2 flipped")
    broken = agreement("y", want * math.nan, want, "baseline")
    assert "values that are not finite" in agreement_line(broken)


def test_the_conversion_says_what_its_numbers_are_against():
    assert "SNR" not in text_of(example.conversion()).splitlines()[0]
    made = example.conversion().artifacts
    (said,) = comparison_lines(made)
    says(said)
    checked = replace(made[0].verification, outputs=())
    assert comparison_lines([replace(made[0], verification=checked)]) == []


def test_so_few_samples_that_nothing_is_proven_are_said_once():
    artifact = example.conversion().artifacts[0]
    for count, few in ((2, True), (7, True), (8, False)):
        checked = replace(artifact.verification, samples=count)
        (said,) = comparison_lines([replace(artifact, verification=checked)])
        assert said.startswith(f"compared on {count} samples held back from calibration")
        assert ("too few to tell whether a file is close:" in said) == few
    checked = replace(artifact.verification, samples=1)
    alone = replace(artifact, verification=checked, notes=(OVERLAPPING,))
    says(comparison_lines([alone])[0])


def test_of_a_mask_the_share_is_not_one_of_the_samples():
    made = example.conversion().artifacts[0]
    assert worst_error(made) == "100 % of 64 answers equal"
    (output,) = made.signature.outputs
    pixels = replace(output, shape=(1, 8, 8, 10))
    mask = replace(made.signature, outputs=(pixels,))
    said = worst_error(replace(made, signatures=(mask,)))
    says(said)


def in_decibels(artifact: Artifact, snr_db: float) -> Artifact:
    (error,) = artifact.verification.outputs
    error = replace(error, snr_db=snr_db)
    checked = replace(artifact.verification, outputs=(error,))
    return replace(artifact, verification=checked)


def test_the_picture_and_the_table_of_a_page_say_the_same_of_a_file():
    """At the conversion it was 49.9 dB from float32, and it is 21.2 dB from the trained model."""
    report = example.report()
    measured = tuple(
        replace(row, agreement=tuple(replace(a, snr_db=21.2) for a in row.agreement))
        for row in report.measurements
    )
    artifacts = tuple(in_decibels(artifact, 49.9) for artifact in report.artifacts)
    page = render_html(replace(report, measurements=measured, artifacts=artifacts))
    picture = page[page.index("Closeness of the outputs") :]
    picture = picture[: picture.index("</figure>")]
    assert set(re.findall(r"[\d.]+ dB", picture)) == {"21.2 dB"} | {"6 dB"}
    assert "compared with baseline, on 360 samples" in picture
    table = agreement_table(replace(report, measurements=measured))
    assert {row.cells[6].text for row in table.rows} == {"21.2 dB"}
    # What was found at the conversion names what it is against, line by line.
    made = page[page.index("The error of each output") :]
    rows = [row for row in made.splitlines() if "49.9 dB" in row]
    assert len(rows) == len(artifacts)
    assert all("digits_cnn_float32.tflite" in row for row in rows)


def test_a_page_without_measured_outputs_pictures_those_of_the_conversion():
    report = example.report()
    bare = tuple(replace(row, agreement=()) for row in report.measurements)
    page = render_html(replace(report, measurements=bare))
    assert "compared with the float32 .tflite, and float32 with the trained model" in page


def test_a_report_of_before_is_read():
    old = (
        b'{"output":"y","reference":"b","samples":2,"flips":0,"cosine":1,"snr_db":9,"max_error":1}'
    )
    found = msgspec.json.decode(old, type=Agreement)
    says(agreement_line(found))


@pytest.mark.parametrize(("step", "is_told"), [(1 / 256, True), (1 / 32768, False)])
def test_an_error_in_steps_is_told_of_8_bits_and_not_of_16(step, is_told):
    (artifact,) = example.conversion().artifacts[:1]
    (error,) = artifact.verification.outputs
    error = replace(error, step=step, max_abs_error=0.01, span=(0.0, 1.0))
    (line,) = error_lines([error], 64)
    assert ("quantization steps" in line) == is_told
