"""Files in every version of a runtime: which are right, and how that is shown."""

import msgspec
import numpy as np
from numpy.typing import NDArray
from report_example import report
from wording import says

from edgeconv.measure.matrix import Answer, judged
from edgeconv.reporting.sections import matrix_lines
from edgeconv.types import Report, VersionResult

RIGHT = np.random.default_rng(4).uniform(0, 1, (40, 3)).astype(np.float32)
INVERTED = 1 - RIGHT


def answer(version: str, outputs: NDArray[np.float32] | None, state: str = "right") -> Answer:
    result = VersionResult(
        model="int8",
        runtime=f"litert=={version}",
        state=state,
        detail="" if state == "right" else "because",
    )
    return Answer(result, None if outputs is None else {"y": outputs})


def example() -> Report:
    answers = [
        answer("2.0.2", None, "not installable"),
        answer("2.0.3", RIGHT + 1e-6),
        answer("2.1.0", INVERTED),
        answer("2.1.1", None, "crashes"),
        answer("2.3.0", RIGHT),
    ]
    return msgspec.structs.replace(report(), matrix=tuple(judged(answers)))


def test_answers_are_judged_by_those_of_the_newest_version_that_has_some():
    answers = [
        answer("1", INVERTED),
        answer("2", RIGHT + 1e-6),
        answer("3", RIGHT),
        answer("4", None, "crashes"),
    ]
    inverted, rounded, newest, crashed = judged(answers)
    assert (inverted.state, rounded.state) == ("wrong", "right")
    assert inverted.flips > 30
    assert rounded.flips == 0
    assert (newest.is_reference, newest.snr_db) == (True, None)
    assert (crashed.state, crashed.is_reference) == ("crashes", False)


def test_the_version_that_measures_the_file_is_the_reference_where_it_answers():
    answers = [answer("1", RIGHT), answer("2", RIGHT), answer("3", INVERTED)]
    old, present, newest = judged(answers, "litert==2")
    assert (old.state, newest.state) == ("right", "wrong")
    assert present.is_reference
    silent = [answer("1", RIGHT), answer("2", None, "crashes"), answer("3", INVERTED)]
    old, present, newest = judged(silent, "litert==2")
    assert (old.state, present.state) == ("wrong", "crashes")
    assert newest.is_reference


def test_an_output_of_another_shape_and_one_that_is_not_finite_are_wrong():
    broken = RIGHT.copy()
    broken[3] = np.nan
    flat, undefined, _ = judged(
        [answer("1", RIGHT[:, :1]), answer("2", broken), answer("3", RIGHT)]
    )
    assert flat.state == "wrong"
    assert "other names or shapes than in litert==3" in flat.detail
    assert undefined.state == "wrong"


def test_without_any_answers_each_version_keeps_its_state():
    answers = [answer("1", None, "crashes"), answer("2", None, "does not load")]
    assert [each.state for each in judged(answers)] == ["crashes", "does not load"]


def test_the_first_bad_version_is_the_oldest_that_could_be_installed():
    (line,) = matrix_lines(example())
    says(line)
    good = msgspec.structs.replace(example(), matrix=tuple(judged([answer("1", RIGHT)])))
    says(matrix_lines(good))


def test_versions_come_back_from_the_file_of_a_report():
    again = msgspec.json.decode(msgspec.json.encode(example()), type=Report)
    assert again.matrix == example().matrix
