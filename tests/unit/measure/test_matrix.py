"""Files in every version of a runtime: which are right, and how that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from report_example import report

from edgeconv.measure.matrix import Answer, judged
from edgeconv.reporting.html import render_html
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.matrix import matrix_lines
from edgeconv.reporting.pages import text_of
from edgeconv.types import Report, VersionResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

RIGHT = np.random.default_rng(4).uniform(0, 1, (40, 3)).astype(np.float32)
INVERTED = 1 - RIGHT


def answer(version: str, outputs: NDArray[np.float32] | None, state: str = "right") -> Answer:
    result = VersionResult(
        model="int8",
        runtime=f"litert=={version}",
        state=state,  # type: ignore[arg-type]
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


def test_answers_are_judged_by_those_of_the_newest_version_that_has_some() -> None:
    answers = [
        answer("1", INVERTED),
        answer("2", RIGHT + 1e-6),
        answer("3", RIGHT),
        answer("4", None, "crashes"),
    ]
    inverted, rounded, newest, crashed = judged(answers)
    assert (inverted.state, rounded.state) == ("wrong", "right")
    assert inverted.flips is not None
    assert inverted.flips > 30
    assert rounded.flips == 0
    assert (newest.is_reference, newest.snr_db) == (True, None)
    assert (crashed.state, crashed.is_reference) == ("crashes", False)


def test_the_version_that_measures_the_file_is_the_reference_where_it_answers() -> None:
    answers = [answer("1", RIGHT), answer("2", RIGHT), answer("3", INVERTED)]
    old, present, newest = judged(answers, "litert==2")
    assert (old.state, newest.state) == ("right", "wrong")
    assert present.is_reference
    silent = [answer("1", RIGHT), answer("2", None, "crashes"), answer("3", INVERTED)]
    old, present, newest = judged(silent, "litert==2")
    assert (old.state, present.state) == ("wrong", "crashes")
    assert newest.is_reference


def test_an_output_of_another_shape_and_one_that_is_not_finite_are_wrong() -> None:
    broken = RIGHT.copy()
    broken[3] = np.nan
    flat, undefined, _ = judged(
        [answer("1", RIGHT[:, :1]), answer("2", broken), answer("3", RIGHT)]
    )
    assert flat.state == "wrong"
    assert "other names or shapes than in litert==3" in flat.detail
    assert undefined.state == "wrong"


def test_without_any_answers_each_version_keeps_its_state() -> None:
    answers = [answer("1", None, "crashes"), answer("2", None, "does not load")]
    assert [each.state for each in judged(answers)] == ["crashes", "does not load"]


def test_the_first_bad_version_is_the_oldest_that_could_be_installed() -> None:
    (line,) = matrix_lines(example())
    assert line == (
        "int8 in 5 versions, 1 of them not installable: first bad version litert==2.1.0, which "
        "answers wrong."
    )
    good = msgspec.structs.replace(example(), matrix=tuple(judged([answer("1", RIGHT)])))
    assert matrix_lines(good) == ("int8 in 1 version: none is bad.",)


def test_each_format_has_every_version_and_the_first_bad_one() -> None:
    text = text_of(example(), width=160)
    page, markdown = render_html(example()), render_markdown(example())
    for shown in (text, page, markdown.replace("\\", "")):
        assert "first bad version litert==2.1.0" in shown
        for version in ("2.0.2", "2.0.3", "2.1.0", "2.1.1", "2.3.0"):
            assert f"litert=={version}" in shown
    again = msgspec.json.decode(msgspec.json.encode(example()), type=Report)
    assert again.matrix == example().matrix
