"""--update and --accept-drop: what is refused, what is noted in the lock, and for how long."""

# The fixtures of another module are arguments here.
# ruff: noqa: F811
from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest
import report_example as example
from test_gate_flow import checking, job, model, work  # noqa: F401

from edgeconv.gate.accepting import parse_accepted, unnamed_losses, with_accepted
from edgeconv.reporting.verdicts import render
from edgeconv.requests.config import lock
from edgeconv.types import Accuracy, Check, Checked, Lock, LockedModel, Report
from edgeconv.types.errors import UsageError


def worse(report: Report, wrong: int) -> Report:
    """The same report, all models wrong on the first so many samples."""

    def changed(row: Any) -> Any:
        before = row.accuracy
        correct = "0" * wrong + before.correct[wrong:]
        value = correct.count("1") / len(correct)
        accuracy = Accuracy(value=value, samples=before.samples, correct=correct)
        return msgspec.structs.replace(row, accuracy=accuracy)

    return msgspec.structs.replace(
        report,
        baseline=changed(report.baseline),
        measurements=tuple(map(changed, report.measurements)),
    )


def update(work, model, was: LockedModel, *names: str) -> tuple[Check, LockedModel]:
    run = checking(
        accepting=True,
        has_lock=True,
        locked={"digits": was},
        accepted_drops=parse_accepted(names, ["digits"], updates=True),
    )
    check = run.check(job(work, model))
    command = " ".join(["edgeconv check --update", *(f"--accept-drop {name}" for name in names)])
    return check, with_accepted(run.accepted(job(work, model)), was, check, command)


@pytest.fixture
def was(work, model) -> LockedModel:
    state = checking(accepting=True).accepted(job(work, model))
    work.report = worse(work.report, 180)
    model.write_bytes(model.read_bytes() + b"\0")
    return state


def test_an_update_that_lost_accuracy_is_refused_and_says_which_models(work, model, was):
    check, _ = update(work, model, was)
    assert not check.verdict.ok
    assert unnamed_losses(check) == ("digits:trained", "digits:float32")
    assert "47.78 % here, 97.78 % in the lock" in render(Checked(checks=(check,)), "text")


def test_a_loss_that_is_named_is_accepted_and_the_others_are_not(work, model, was):
    check, _ = update(work, model, was, "digits:float32")
    assert unnamed_losses(check) == ("digits:trained",)
    check, _ = update(work, model, was, "digits")
    assert check.verdict.ok
    assert {one.severity for one in check.verdict.findings if one.reference == "lock"} == {"warn"}


def test_the_lock_notes_what_was_accepted_when_and_by_which_command(work, model, was, tmp_path):
    _, new = update(work, model, was, "digits:float32", "digits:trained")
    assert [one.stage for one in new.accepted] == ["digits_cnn", "digits_cnn-float32"]
    noted = new.accepted[1]
    assert (noted.limits, noted.metric) == (("max-accuracy-drop",), "top1")
    assert (noted.before, noted.after) == (352 / 360, new.stages[1].accuracy.value)
    assert noted.date == datetime.now(timezone.utc).date().isoformat()
    assert noted.command.endswith("--accept-drop digits:float32 --accept-drop digits:trained")
    lock.write(Lock(models={"digits": new}), tmp_path / "edgeconv.lock")
    assert lock.read(tmp_path / "edgeconv.lock").models["digits"] == new
    after = checking(has_lock=True, locked={"digits": new}).check(job(work, model))
    assert after.verdict.ok
    said = render(Checked(checks=(after,)), "text")
    assert (
        f"accepted: digits_cnn-float32 from 97.78 % to 47.78 % on {noted.date} by `edgeconv check"
        in said
    )


def test_what_was_accepted_stays_noted_until_it_is_made_up_for(work, model, was):
    _, new = update(work, model, was, "digits")
    again, second = update(work, model, new)
    assert again.verdict.ok
    assert second == new
    model.write_bytes(model.read_bytes() + b"\0")
    row = example.measurement("float32")
    work.report = msgspec.structs.replace(example.report(), measurements=(row,), comparisons=())
    better, third = update(work, model, second)
    assert better.verdict.ok
    assert third.accepted == ()


def test_a_lock_without_accepted_losses_is_as_it_always_was(work, model, tmp_path):
    state = checking(accepting=True).accepted(job(work, model))
    lock.write(Lock(models={"digits": state}), tmp_path / "edgeconv.lock")
    assert "accepted" not in (tmp_path / "edgeconv.lock").read_text().split("\n", 1)[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("digit", "unknown model of --accept-drop 'digit'"),
        ("digits:int88", "unknown recipe of --accept-drop 'int88'"),
        ("digits:", "unknown recipe of --accept-drop ''"),
    ],
)
def test_a_loss_of_what_there_is_not_cannot_be_accepted(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_accepted([text], ["digits"], updates=True)
