import pytest
from msgspec.structs import replace
from report_example import SAMPLES, report
from wording import says

from edgeconv.gate.stages import stage_states
from edgeconv.reporting.verdicts.words import changes, summary
from edgeconv.requests.config.lock import locked_model
from edgeconv.types import (
    Accuracy,
    Finding,
    GateStatistics,
    LockedModel,
    Measurement,
    Report,
    StageState,
    Verdict,
)

INPUTS = {"source": "a" * 64, "calibration data": "b" * 64, "test data": "c" * 64}
TOOLS = {"edgeconv": "0.1.0", "litert-quantizer": "0.10.0"}
PASSED = Verdict(findings=(Finding(model="m", limit="x", allowed=1, actual=0, outcome="passed"),))
JUDGING = GateStatistics()


def right(broken: int, of: int = SAMPLES, base: int = 0) -> Accuracy:
    """`broken` wrong answers at the end, beside `base` at the beginning."""
    correct = "0" * base + "1" * (of - broken - base) + "0" * broken
    return Accuracy(value=correct.count("1") / of, samples=of, correct=correct)


def row(recipe: str, accuracy: Accuracy | None, sha256: str = "1") -> Measurement:
    trained = recipe in ("baseline", "checkpoint")
    return Measurement(
        name=recipe if trained else f"digits_{recipe}",
        role="baseline" if trained else "artifact",
        runtime="litert 2.3.0",
        sha256=sha256 * 64,
        size_bytes=1000,
        recipe=None if trained else recipe,
        accuracy=accuracy,
    )


def reported(**broken: int | Accuracy | None) -> Report:
    """A report of some stages, each with so many wrong answers, and new bytes where they are."""
    rows = {}
    for recipe, found in broken.items():
        accuracy = right(found, base=20) if isinstance(found, int) else found
        sha256 = str(found % 10) if isinstance(found, int) else "e"
        rows[recipe] = row(recipe.replace("_", "-"), accuracy, sha256)
    return replace(
        report(),
        checkpoint=rows.pop("checkpoint", None),
        baseline=rows.pop("baseline", None),
        measurements=tuple(rows.values()),
    )


def locked(found: Report, **fields: object) -> LockedModel:
    return replace(locked_model("digits", found, INPUTS), **fields)


SOUND = reported(checkpoint=0, baseline=0, float32=0, int8=0)


def states(now: Report, before: Report | None = SOUND) -> dict[str, StageState]:
    found = stage_states(now, locked(before) if before else None, JUDGING)
    return {one.model.removeprefix("digits_"): one for one in found}


def said(now: Report, before: Report | None = SOUND, *changed: str) -> str:
    model = locked(before) if before else None
    return summary(PASSED, stage_states(now, model, JUDGING), changed)


def test_the_stages_are_in_the_order_of_the_flow():
    now = reported(int8=0, qat=0, float32=0, baseline=0, checkpoint=0)
    assert [(one.stage, one.model) for one in stage_states(now, None, JUDGING)] == [
        ("checkpoint", "checkpoint"),
        ("trained", "baseline"),
        ("float32", "digits_float32"),
        ("quantized", "digits_int8"),
        ("quantized", "digits_qat"),
    ]


def test_a_stage_is_held_against_the_lock_and_against_the_stage_before_it():
    now = states(reported(checkpoint=0, baseline=0, float32=0, int8=36))
    int8, float32 = now["int8"], now["float32"]
    assert (float32.changed, float32.moved, float32.drop) == (False, False, 0)
    assert float32.interval == (0, 0)
    assert (int8.changed, int8.moved) == (True, True)
    assert (int8.before, int8.after) == (pytest.approx(340 / 360), pytest.approx(304 / 360))
    assert int8.drop == pytest.approx(0.1)
    assert int8.own_drop == pytest.approx(0.1)
    assert int8.interval[0] == pytest.approx(0.075, abs=0.01)
    assert int8.interval[1] == pytest.approx(0.13, abs=0.01)
    assert now["checkpoint"].own_drop is None


def test_without_a_lock_there_is_only_the_stage_before():
    one = states(reported(baseline=0, float32=0, int8=36), None)["int8"]
    assert (one.changed, one.before, one.drop, one.interval, one.moved) == (None,) * 5
    assert one.own_drop == pytest.approx(0.1)


def test_what_was_made_of_the_trained_model_at_once_is_held_against_that():
    one = states(reported(baseline=0, int8=36), None)["int8"]
    assert one.own_drop == pytest.approx(0.1)


def test_each_runtime_has_a_float32_of_its_own():
    rows = reported(float32=0, int8=9).measurements
    web = [replace(r, name=f"{r.name} in web", runtime="web") for r in rows]
    web[0] = replace(web[0], accuracy=right(9, base=20))
    now = replace(SOUND, measurements=(*rows, *web))
    drops = {one.model: one.own_drop for one in stage_states(now, None, JUDGING)}
    assert drops["digits_int8"] == pytest.approx(9 / 360)
    assert drops["digits_int8 in web"] == 0


def test_accuracies_of_other_samples_are_shown_and_not_paired():
    now, other = reported(baseline=36, int8=36), locked(SOUND, test_sha256="f" * 64)
    for one in stage_states(now, other, JUDGING):
        assert (one.drop, one.interval, one.moved) == (None,) * 3
        assert one.before is not None
        assert one.after is not None


def test_a_stage_that_is_not_in_the_lock_has_nothing_before_it():
    for one in stage_states(reported(baseline=36, int8=36), locked(SOUND, stages=()), JUDGING):
        assert (one.before, one.drop, one.interval, one.moved) == (None,) * 4
        assert one.after is not None


def test_the_same_samples_are_paired_whatever_is_done_to_them():
    now, before = reported(int8=36), locked(SOUND, preprocessing="scale=2")
    (one,) = stage_states(now, before, JUDGING)
    assert one.drop == pytest.approx(0.1)
    assert one.moved


@pytest.mark.parametrize(
    "other",
    [
        None,
        Accuracy(metric="top5", value=1.0, samples=SAMPLES, correct="1" * SAMPLES),
        Accuracy(metric="mae", value=1.0, samples=SAMPLES, per_sample=(1.0,) * SAMPLES),
        Accuracy(value=1.0, samples=SAMPLES),
    ],
)
def test_other_metrics_are_not_held_against_each_other(other):
    for now, before in (
        (reported(int8=other), reported(int8=0)),
        (reported(int8=0), reported(int8=other)),
    ):
        (one,) = stage_states(now, locked(before), JUDGING)
        assert (one.before, one.drop, one.moved) == (None, None, None)
        assert one.changed


def test_a_metric_of_which_less_is_better_drops_as_it_grows():
    def mae(offset: float) -> Accuracy:
        errors = tuple(offset + 0.001 * (i % 7) for i in range(SAMPLES))
        value = sum(errors) / SAMPLES
        return Accuracy(
            metric="mae", value=value, samples=SAMPLES, per_sample=errors, higher_is_better=False
        )

    now = reported(baseline=mae(0.1), int8=mae(0.3))
    one = states(now, reported(baseline=mae(0.1), int8=mae(0.2)))["int8"]
    assert (one.drop, one.own_drop, one.moved) == (pytest.approx(0.1), pytest.approx(0.2), True)
    says(said(now, reported(baseline=mae(0.1), int8=mae(0.2))))


def test_a_model_that_does_not_run_any_more_has_no_accuracy():
    failed = replace(
        reported(int8=0).measurements[0], name="int8", sha256="", accuracy=None, error="no"
    )
    now = replace(SOUND, measurements=(SOUND.measurements[0], failed))
    one = states(now)["int8"]
    assert (one.changed, one.after, one.drop, one.moved) == (True, None, None, None)


def test_what_never_moved_is_said_to_have_moved_by_luck_at_most_once_in_twenty_times():
    """Four stages, each with 3 % of the samples changed at random, and no drop."""
    import random

    drawn, moved, rounds = random.Random(11), 0, 150
    for _ in range(rounds):
        rows = {}
        for recipe in ("baseline", "float32", "int8", "int16x8"):
            flipped = "".join(
                ("0" if one == "1" else "1") if drawn.random() < 0.03 else one
                for one in "10" * (SAMPLES // 2)
            )
            accuracy = Accuracy(
                value=flipped.count("1") / SAMPLES, samples=SAMPLES, correct=flipped
            )
            rows[recipe] = accuracy
        before = dict.fromkeys(rows, Accuracy(value=0.5, samples=SAMPLES, correct="10" * 180))
        found = stage_states(reported(**rows), locked(reported(**before)), JUDGING)
        moved += any(one.moved for one in found)
    assert moved <= 0.05 * rounds


def test_changes_name_inputs_and_versions():
    model = locked(SOUND, tools=TOOLS)
    assert changes(model, INPUTS, TOOLS) == ()
    now = {"source": "z", "calibration data": "b" * 64, "slices": "s"}
    tools = {"edgeconv": "0.1.0", "litert-quantizer": "0.11.0", "keras": "3.0"}
    says(changes(model, now, tools))


def test_the_quantizer_under_its_old_name_is_one_tool_of_another_version():
    locked_tools = {"edgeconv": "0.1.0", "ai-edge-quantizer": "0.10.0"}
    now = {"edgeconv": "0.1.0", "litert-quantizer": "0.11.0"}
    model = locked(SOUND, tools=locked_tools)
    says(changes(model, INPUTS, now))
    says(changes(model, INPUTS, {"edgeconv": "0.1.0"}))


WORSE = reported(baseline=36, float32=36, int8=36)
LOST = reported(checkpoint=0, baseline=0, float32=0, int8=36)


@pytest.mark.parametrize(
    ("now", "before", "changed"),
    [
        (LOST, SOUND, "the calibration data changed since the lock"),
        # Bytes changed: of a float model that is as good, and where the answers did not.
        (reported(checkpoint=0, baseline=0, float32=1, int8=36), SOUND, ""),
        (reported(checkpoint=0, baseline=0, float32=0, int8=1), SOUND, "litert-quantizer 0.10.0"),
        # The trained model is the cause of all that follows.
        (WORSE, SOUND, "the source model changed since the lock"),
        # A stage lost much more than the one before.
        (reported(checkpoint=0, baseline=18, float32=18, int8=90), SOUND, ""),
        # It became better.
        (reported(baseline=0, float32=0, int8=0), WORSE, ""),
        # Without a lock the loss on the way is said.
        (reported(baseline=0, float32=0, int8=36), None, ""),
        (SOUND, None, ""),
        (reported(int8=0), None, ""),
    ],
)
def test_a_loss_is_named_after_the_stage_that_is_sound(now, before, changed):
    says(said(now, before, *filter(None, [changed])))


def test_a_loss_is_that_of_the_stage_it_begins_at_though_chance_could_explain_it_there():
    """6 of 360 may be luck, 10 are not; but most of the 10 are those 6."""
    now = reported(checkpoint=0, baseline=6, float32=6, int8=10)
    moved = {name: one.moved for name, one in states(now).items()}
    assert moved == {"checkpoint": False, "baseline": False, "float32": False, "int8": True}
    says(said(now))


def test_a_stage_that_became_better_is_not_said_to_be_as_it_was():
    text = said(reported(baseline=0, float32=0, int8=72), WORSE)
    assert text == "int8 lost 10.00 pp."


def test_nothing_moved_and_nothing_to_compare_with():
    says(said(SOUND))
    elsewhere = stage_states(SOUND, locked(SOUND, test_sha256="f"), JUDGING)
    says(summary(PASSED, elsewhere, ("the test data changed since the lock",)))


def finding(outcome: str, limit: str = "max-size-bytes", **fields: object) -> Finding:
    return Finding(model="digits_int8", limit=limit, allowed=1, actual=2, outcome=outcome, **fields)


def summed(*findings: Finding) -> str:
    stages = stage_states(SOUND, locked(SOUND), JUDGING)
    return summary(Verdict(findings=findings), stages, ())


def test_limits_that_fail_while_nothing_moved_are_named():
    says(summed(finding("failed"), finding("missing", "max-flip-rate")))
    warned = finding("failed", severity="warn")
    says(summed(warned, finding("passed", "max-flip-rate")))


def test_limits_that_fail_because_a_stage_moved_are_not_said_again():
    stages = stage_states(reported(baseline=0, int8=36), locked(SOUND), JUDGING)
    broken = finding("failed", "max-accuracy-drop")
    assert "What does not hold" not in summary(Verdict(findings=(broken,)), stages, ())


def test_a_test_set_that_is_too_small_is_told_elsewhere():
    few = finding("inconclusive", "max-accuracy-drop", samples_needed=740, samples=50)
    says(summed(few))


def test_many_changes_are_cut():
    assert said(LOST, SOUND, *"abcdef").endswith("; a, b, c and 3 more.")


def test_hostile_names_are_spelled_out():
    now = replace(SOUND, measurements=(replace(row("int8", right(36)), name="x\n::error::"),))
    text = said(now, None)
    assert "\n" not in text
    assert "x\\n::error::" in text
