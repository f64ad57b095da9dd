"""--update and --accept-drop: what is refused, what is noted in the lock, and for how long."""

# The fixtures of another module are arguments here.
# ruff: noqa: F811
from datetime import datetime, timezone

import msgspec
import pytest
import report_example as example
from test_gate_flow import checking, job, model, work, wrong_on  # noqa: F401
from wording import fails

from edgeconv.gate.accepting import parse_accepted, unnamed_losses, with_accepted
from edgeconv.reporting.verdicts import render
from edgeconv.requests.config import lock
from edgeconv.types import Budget, Check, Checked, Limits, Lock, LockedModel, Report, UnprovenLimit
from edgeconv.types.errors import UsageError


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
    work.report = wrong_on(work.report, 180)
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


STRICT = Budget(every=Limits(max_accuracy_drop=0.01))


def converted(fixed: int, broken: int) -> Report:
    """A report of one artifact with so many answers fixed and broken, of the same trained model."""
    accuracy = example.accuracy(fixed, broken)
    row = msgspec.structs.replace(example.measurement("float32"), accuracy=accuracy)
    return msgspec.structs.replace(example.report(), measurements=(row,), comparisons=())


def locked_unproven(work, model, path) -> LockedModel:
    work.report = converted(1, 3)
    run = checking(accepting=True)
    check = run.check(job(work, model, budget=STRICT))
    assert [(each.outcome, each.severity) for each in check.verdict.findings] == [
        ("inconclusive", "warn")
    ]
    state = run.accepted(job(work, model))
    new = with_accepted(state, None, check, "edgeconv check --update")
    lock.write(Lock(models={"digits": new}), path)
    return lock.read(path).models["digits"]


def test_an_inconclusive_state_is_locked_as_unproven(work, model, tmp_path):
    new = locked_unproven(work, model, tmp_path / "edgeconv.lock")
    limit = UnprovenLimit(limit="max-accuracy-drop", allowed=0.01, actual=2 / 360)
    assert [stage.unproven for stage in new.stages] == [(), (limit,)]
    after = checking(has_lock=True, locked={"digits": new}).check(job(work, model, budget=STRICT))
    assert after.verdict.ok
    assert [each.outcome for each in after.verdict.findings if each.severity == "warn"] == [
        "inconclusive"
    ]
    assert "accepted as measured, unproven" in render(Checked(checks=(after,)), "text")


@pytest.mark.parametrize(
    ("broken", "allowed", "is_accepted"),
    [(3, 0.01, True), (4, 0.01, True), (6, 0.01, False), (3, 0.011, False)],
    ids=["as it was", "within the limit", "beyond the limit", "another limit"],
)
def test_an_unproven_limit_is_accepted_only_as_it_was_measured(
    work, model, tmp_path, broken, allowed, is_accepted
):
    new = locked_unproven(work, model, tmp_path / "edgeconv.lock")
    work.report = converted(1, broken)
    model.write_bytes(model.read_bytes() + b"\0")
    budget = Budget(every=Limits(max_accuracy_drop=allowed))
    check = checking(has_lock=True, locked={"digits": new}).check(job(work, model, budget=budget))
    (found,) = (f for f in check.verdict.findings if f.reference == "baseline")
    assert found.outcome == "inconclusive"
    assert (found.severity == "warn") == is_accepted


def test_an_update_accepts_no_broken_limit(work, model):
    work.report = converted(0, 40)
    check = checking(accepting=True).check(job(work, model, budget=STRICT))
    assert [each.outcome for each in check.verdict.findings] == ["failed"]
    assert not check.verdict.ok


@pytest.mark.parametrize("text", ["digit", "digits:int88", "digits:"])
def test_a_loss_of_what_there_is_not_cannot_be_accepted(text):
    with fails(UsageError):
        parse_accepted([text], ["digits"], updates=True)
