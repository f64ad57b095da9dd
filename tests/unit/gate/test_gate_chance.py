"""Limits on what is left to chance: drops, classes, flips, the lock and times."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_gate import LATENCY, agreement, measured, report
from wording import fails, says

from edgeconv.gate.budget import check, losses
from edgeconv.gate.drops import class_drops
from edgeconv.gate.stages import stage_states
from edgeconv.measure.bench import with_baseline as compare
from edgeconv.reporting.units import percent
from edgeconv.requests.config.lock import locked_model
from edgeconv.statistics.drop import MatchedDrop
from edgeconv.types import (
    Accuracy,
    Budget,
    DataIdentity,
    Finding,
    GateStatistics,
    Latency,
    Limit,
    Limits,
    LockedModel,
    LockedStage,
    Measurement,
    Report,
    Verdict,
)
from edgeconv.types.errors import InputRefused, UsageError

DATA = DataIdentity(source="npz", samples=1000, sha256="d" * 64)


def answers(wrong: set[int] | range, samples: int = 1000, classes: int = 10) -> Accuracy:
    """Right but for these samples; sample i is of class i modulo `classes`."""
    correct = "".join("0" if i in wrong else "1" for i in range(samples))
    said = tuple((i + (i in wrong)) % classes for i in range(samples))
    value = correct.count("1") / samples
    return Accuracy(value=value, samples=samples, correct=correct, predicted=said)


def beside(after: Accuracy | None, before: Accuracy | None = None, **changes: Any) -> Report:
    """A report of one artifact beside a baseline that is right throughout."""
    trained = before or answers(set(), after.samples if after else 1000)
    found = report(measured(accuracy=after, **changes), baseline_accuracy=trained)
    samples = trained.samples
    return replace(
        found, data=replace(DATA, samples=samples), labels=tuple(i % 10 for i in range(samples))
    )


def locked(rows: Report, **changes: Any) -> LockedModel:
    """The state of this report, as it would be locked."""
    models = [row for row in rows.measurements if row.accuracy is not None]
    values: dict[str, Any] = {
        "name": "digits",
        "inputs": {},
        "test_sha256": rows.data.sha256,
        "test_samples": rows.data.samples,
        "stages": tuple(
            LockedStage(
                name=row.name,
                role=row.role,
                recipe=row.recipe,
                sha256=row.sha256,
                size_bytes=row.size_bytes,
                accuracy=row.accuracy,
            )
            for row in models
        ),
    }
    return LockedModel(**{**values, **changes})


def judged(rows: Report, statistics: GateStatistics | None = None, **limits: Any) -> Finding:
    (finding,) = check(
        rows, Budget(every=Limits(**limits)), statistics=statistics or GateStatistics()
    ).findings
    return finding


def test_a_drop_fails_where_one_within_the_limit_is_ruled_out():
    found = judged(beside(answers(range(40))), max_accuracy_drop=0.01)
    assert (found.outcome, found.ok, found.actual) == ("failed", False, pytest.approx(0.04))
    assert 0.01 < found.interval[0] < 0.04 < found.interval[1]
    assert (found.method, found.confidence, found.samples) == ("exact mcnemar", 0.95, 1000)
    assert (found.reference, found.samples_needed) == ("baseline", None)


def test_between_the_two_it_is_inconclusive_and_says_how_many_samples_would_do():
    found = judged(beside(answers(range(9))), max_accuracy_drop=0.01)
    assert (found.outcome, found.severity, found.ok) == ("inconclusive", "error", False)
    assert found.samples_needed > 1000


def test_fifty_samples_are_too_few_even_where_no_answer_differs():
    found = judged(beside(answers(set(), 50)), max_accuracy_drop=0.01)
    assert (found.outcome, found.actual, found.samples) == ("inconclusive", 0.0, 50)
    assert found.interval == pytest.approx((-0.0713, 0.0713), abs=0.001)
    assert 3000 < found.samples_needed < 5000


def test_what_cannot_be_told_is_a_warning_by_choice_and_what_fails_is_not():
    choice = GateStatistics(inconclusive="warn")
    open_ = judged(beside(answers(range(9))), choice, max_accuracy_drop=0.01)
    assert (open_.outcome, open_.severity, open_.ok) == ("inconclusive", "warn", True)
    assert judged(beside(answers(range(40))), choice, max_accuracy_drop=0.01).severity == "error"


def test_a_limit_of_nothing_can_fail_and_never_be_shown_to_hold():
    equal = judged(beside(answers(set())), max_accuracy_drop=0.0)
    assert (equal.outcome, equal.samples_needed) == ("inconclusive", None)
    says(equal.reason)
    assert judged(beside(answers(range(9))), max_accuracy_drop=0.0).outcome == "failed"


def test_an_artifact_better_than_the_baseline_passes():
    found = judged(beside(answers(range(10)), answers(range(80))), max_accuracy_drop=0.0)
    assert (found.outcome, found.actual) == ("passed", pytest.approx(-0.07))


def test_a_higher_confidence_fails_later():
    rows = beside(answers(range(20)))
    outcomes = [
        judged(rows, GateStatistics(confidence=sure), max_accuracy_drop=0.01).outcome
        for sure in (0.8, 0.95, 0.99999)
    ]
    assert outcomes == ["failed", "failed", "inconclusive"]


@pytest.mark.parametrize("limit", [0.5, 0.9, 1.0])
def test_a_limit_that_lets_everything_through_holds(limit):
    for wrong in (range(0), range(100)):
        found = judged(beside(answers(wrong)), max_accuracy_drop=limit)
        assert found.outcome == "passed"


def test_more_limits_share_how_often_they_may_fail_wrongly():
    rows = beside(answers(range(17)))
    alone = judged(rows, max_accuracy_drop=0.01)
    budget = Budget(every=Limits(max_accuracy_drop=0.01, min_accuracy=0.5, max_flip_rate=0.9))
    among = check(rows, budget).findings[0]
    assert among.limit == alone.limit
    assert (alone.outcome, among.outcome) == ("failed", "inconclusive")
    assert among.interval == alone.interval
    within = [beside(answers(range(wrong))) for wrong in (3, 4, 5)]
    assert [check(rows, budget).findings[0].outcome for rows in within] == [
        judged(rows, max_accuracy_drop=0.01).outcome for rows in within
    ]


def test_a_warning_takes_nothing_away_from_what_may_fail_the_gate():
    rows = beside(answers(range(20)))
    warned = {"limit": 0.5, "severity": "warn"}
    limits = msgspec.convert({"max-accuracy-drop": 0.01, "min-accuracy": warned}, Limits)
    among = check(rows, Budget(every=limits)).findings
    assert among[0] == judged(rows, max_accuracy_drop=0.01)
    assert among[1].severity == "warn"


def test_a_relative_drop_is_held_against_its_share_of_the_reference():
    before, after = answers(range(500)), answers(range(550))
    rows = beside(after, before)
    found = judged(rows, max_relative_accuracy_drop=0.05)
    assert (found.outcome, found.actual) == ("failed", pytest.approx(0.1))
    assert judged(rows, max_relative_accuracy_drop=0.2).outcome == "passed"
    assert judged(rows, max_relative_accuracy_drop=0.1).outcome == "inconclusive"
    nothing = beside(answers(range(1000)), answers(range(1000)))
    assert judged(nothing, max_relative_accuracy_drop=0.5).outcome == "missing"


@pytest.mark.parametrize(
    ("right", "outcome"), [(990, "passed"), (950, "inconclusive"), (920, "failed")]
)
def test_a_least_accuracy_is_held_against_the_bounds_of_it(right, outcome):
    found = judged(beside(answers(range(1000 - right))), min_accuracy=0.95)
    assert (found.outcome, found.actual, found.reference) == (outcome, right / 1000, "")
    assert found.method == "clopper-pearson"


def test_a_least_accuracy_of_a_metric_of_which_less_is_better_is_no_limit():
    error = Accuracy(
        metric="mae", value=2.0, samples=3, higher_is_better=False, per_sample=(2.0,) * 3
    )
    found = judged(beside(error, error), min_accuracy=0.5)
    assert found.outcome == "missing"
    says(found.reason)


@pytest.mark.parametrize(
    ("changed", "outcome"), [(2, "passed"), (12, "inconclusive"), (40, "failed")]
)
def test_flips_are_held_against_the_bounds_of_their_share(changed, outcome):
    found = judged(beside(answers(range(changed))), max_flip_rate=0.01)
    assert (found.outcome, found.actual) == (outcome, changed / 1000)
    assert (found.samples_needed is not None) == (outcome == "inconclusive")


def test_flips_need_no_labels():
    rows = beside(None, agreement=(agreement("scores", 30.0, flips=4),))
    found = judged(rows, max_flip_rate=0.9)
    assert (found.outcome, found.actual, found.samples) == ("passed", 0.4, 10)


def test_without_labels_a_lock_tells_flips_of_the_same_file_and_of_no_other():
    labeled = beside(None, agreement=(agreement("scores", 30.0, flips=4),))
    artifact = labeled.measurements[-1]
    assert labeled.baseline is not None
    rows = replace(
        labeled,
        baseline=replace(labeled.baseline, accuracy=None),
        measurements=(artifact,),
        labels=(),
    )
    lock = locked_model("digits", rows, {})
    flips = Budget(every=Limits(max_flip_rate=0.9))
    same = [one for one in check(rows, flips, locked=lock).findings if one.reference == "lock"]
    assert [(one.outcome, one.actual) for one in same] == [("passed", 0.0)] * 2
    moved = replace(artifact, sha256="f" * 64)
    other = replace(rows, measurements=(moved,))
    found = check(other, flips, locked=lock).findings[-1]
    assert (found.reference, found.outcome) == ("lock", "missing")
    says(found.reason)


def test_one_class_that_dropped_fails_and_is_named_though_the_whole_is_within_the_limit():
    broken = {i for i in range(1000) if i % 10 == 3 and i < 400}
    rows = replace(beside(answers(broken)), class_names=tuple("abcdefghij"))
    assert judged(rows, max_accuracy_drop=0.06).outcome == "passed"
    found = judged(rows, max_class_drop=0.1)
    assert (found.outcome, found.subject, found.actual) == ("failed", "d", pytest.approx(0.4))
    assert found.samples == 100
    drops = class_drops(rows)
    assert [(one.kind, one.name, one.before, one.after) for one in drops] == [
        ("class", "d", 1.0, 0.6)
    ]
    assert drops[0].interval[0] > 0.2


def test_a_class_of_few_samples_is_inconclusive():
    found = judged(beside(answers(set(), 100)), max_class_drop=0.1)
    assert (found.outcome, found.samples) == ("inconclusive", 10)
    assert found.samples_needed is not None
    says(found.reason)


def test_the_worst_class_names_those_that_failed_with_it():
    broken = {i for i in range(1000) if i % 10 in (2, 7) and i < 500}
    found = judged(beside(answers(broken)), max_class_drop=0.1)
    assert (found.outcome, found.subject) == ("failed", "2")
    says(found.reason)


def test_a_slice_is_held_like_a_class():
    rows = beside(answers({i for i in range(400) if i % 4 == 0}))
    slices = ["night" if i < 400 else "day" for i in range(1000)]
    budget = Budget(every=Limits(max_slice_drop=0.15))
    (found,) = check(rows, budget, slices=slices).findings
    assert (found.outcome, found.subject, found.actual) == ("failed", "night", 0.25)
    named = [one.name for one in class_drops(rows, slices=slices) if one.kind == "slice"]
    assert named == ["night"]
    without = check(rows, budget).findings[0]
    assert (without.outcome, without.reason) == (
        "missing",
        "the slices of the test samples are not known",
    )


def test_slices_that_do_not_fit_the_samples_are_refused():
    with fails(InputRefused):
        check(beside(answers(set())), Budget(every=Limits(max_slice_drop=0.1)), slices=["a"] * 3)


def test_classes_of_a_metric_that_counts_nothing_are_judged_by_what_is_said():
    right = answers({3, 13, 23})
    f1 = Accuracy(
        metric="f1", value=0.99, samples=1000, per_sample=(0.99,) * 1000, predicted=right.predicted
    )
    sound = replace(f1, predicted=answers(set()).predicted)
    found = judged(beside(f1, sound), max_class_drop=0.5)
    assert (found.outcome, found.subject, found.actual) == ("passed", "3", pytest.approx(0.03))
    bare = replace(f1, predicted=())
    found = judged(beside(bare, bare), max_class_drop=0.5)
    assert found.outcome == "missing"
    says(found.reason)


def errors(values: list[float]) -> Accuracy:
    return Accuracy(
        metric="mae",
        value=sum(values) / len(values),
        samples=len(values),
        higher_is_better=False,
        per_sample=tuple(values),
    )


def test_a_metric_that_is_a_mean_is_judged_by_the_paired_bootstrap():
    before = [1.0 + (i * 37 % 100) / 100 for i in range(200)]
    after = [value + 0.05 + (i * 13 % 10) / 100 for i, value in enumerate(before)]
    rows = beside(errors(after), errors(before))
    outcomes = [judged(rows, max_accuracy_drop=limit) for limit in (0.05, 0.095, 0.12)]
    assert [one.outcome for one in outcomes] == ["failed", "inconclusive", "passed"]
    assert {one.method for one in outcomes} == {"paired bootstrap"}
    assert outcomes[0].actual == pytest.approx(0.095)
    assert judged(rows, max_relative_accuracy_drop=0.03).outcome == "failed"
    assert judged(rows, max_relative_accuracy_drop=0.1).outcome == "passed"


def test_a_number_in_the_unit_of_the_metric_has_its_name():
    rows = beside(errors([1.0, 2.0]), errors([1.0, 2.0]))
    names = ("max_accuracy_drop", "max_relative_accuracy_drop", "min_accuracy", "max_class_drop")
    limits = dict.fromkeys((*names, "max_slice_drop", "max_flip_rate", "max_size_bytes"), 1.0)
    named = {each.limit for each in judged_all(rows, **limits) if each.metric == "mae"}
    assert named == {"max-accuracy-drop", "min-accuracy", "max-class-drop", "max-slice-drop"}
    assert not any(each.metric for each in judged_all(beside(answers(set(), 9)), **limits))


def test_right_answers_may_be_resampled_on_request():
    rows = beside(answers(range(40)))
    found = judged(rows, GateStatistics(method="bootstrap", resamples=2000), max_accuracy_drop=0.01)
    exact = judged(rows, max_accuracy_drop=0.01)
    assert (found.outcome, found.method) == ("failed", "paired bootstrap")
    assert found.interval == exact.interval


def test_a_method_that_does_not_fit_the_metric_is_refused():
    rows = beside(errors([1.0, 2.0]), errors([1.0, 2.0]))
    with fails(UsageError):
        judged(rows, GateStatistics(method="mcnemar"), max_accuracy_drop=0.1)


@pytest.mark.parametrize(
    "before",
    [
        Accuracy(metric="top5", value=1.0, samples=10, correct="1" * 10),
        Accuracy(value=1.0, samples=9, correct="1" * 9),
        Accuracy(value=1.0, samples=10, correct="1" * 8),
    ],
)
def test_what_cannot_be_paired_is_missing_and_says_why(before):
    after = Accuracy(value=1.0, samples=10, correct="1" * 10)
    found = judged(beside(after, before), max_accuracy_drop=1.0)
    assert (found.outcome, found.ok) == ("missing", False)
    says(found.reason)


def test_without_a_trained_model_there_is_no_drop():
    rows = replace(beside(answers(set())), baseline=None)
    found = judged(rows, max_accuracy_drop=1.0)
    assert (found.outcome, found.reason) == ("missing", "the trained model was not measured")


DROP = Budget(every=Limits(max_accuracy_drop=0.01))


def test_with_a_lock_every_model_is_held_against_it_too_and_first_the_trained_one():
    rows = beside(answers(range(4)))
    verdict = check(rows, DROP, locked=locked(rows))
    assert [(one.model, one.reference, one.outcome) for one in verdict.findings] == [
        ("digits", "lock", "passed"),
        ("digits.int8", "baseline", "passed"),
        ("digits.int8", "lock", "passed"),
    ]


def test_the_same_file_with_the_same_answers_needs_no_statistics():
    rows = beside(answers(set(), 50))
    of_lock = [
        one for one in check(rows, DROP, locked=locked(rows)).findings if one.reference == "lock"
    ]
    assert [(one.outcome, one.method, one.interval) for one in of_lock] == [
        ("passed", "same file", (0.0, 0.0))
    ] * 2
    other = replace(
        rows, measurements=(*rows.measurements[:1], replace(rows.measurements[1], sha256="1"))
    )
    changed = check(other, DROP, locked=locked(rows)).findings[-1]
    assert (changed.reference, changed.outcome) == ("lock", "inconclusive")


def test_a_worse_retrain_fails_beside_the_lock_though_its_artifact_follows_it():
    before = beside(answers(set()))
    worse = answers(range(60))
    now = replace(
        report(measured(accuracy=worse, sha256="2"), baseline_accuracy=worse), data=before.data
    )
    now = replace(now, baseline=replace(now.baseline, sha256="3"))
    found = check(now, DROP, locked=locked(before)).findings
    assert [(one.model, one.reference, one.outcome) for one in found] == [
        ("digits", "lock", "failed"),
        ("digits.int8", "baseline", "passed"),
        ("digits.int8", "lock", "failed"),
    ]


GOOD = answers({3}, 100)


def accepted() -> Report:
    """A trained model and its artifact, right on 99 of 100 samples."""
    return beside(GOOD, GOOD)


def ruined(before: Report, right: int) -> Report:
    """Both models, as wrong as if they got other values than they were trained on."""
    answer = answers(range(100 - right), 100)
    row = measured(accuracy=answer, sha256="2")
    now = replace(report(row, baseline_accuracy=answer), data=before.data)
    assert now.baseline is not None
    return replace(now, baseline=replace(now.baseline, sha256="3"))


def of_lock(verdict: Verdict) -> list[Finding]:
    return [one for one in verdict.findings if one.reference == "lock"]


def test_other_preprocessing_of_the_same_samples_is_measured_and_fails():
    lock = locked(accepted(), preprocessing="x")
    found = of_lock(check(ruined(accepted(), right=49), DROP, locked=lock))
    assert [one.outcome for one in found] == ["failed", "failed"]
    assert (found[1].before, found[1].after) == (0.99, 0.49)
    assert found[1].reason == "49.00 % here, 99.00 % in the lock"
    assert not any("--update" in one.reason for one in found)


def test_other_samples_that_are_surely_worse_fail_unpaired_with_both_numbers():
    lock = locked(accepted(), test_sha256="e" * 64)
    found = of_lock(check(ruined(accepted(), right=49), DROP, locked=lock))
    assert [one.outcome for one in found] == ["failed", "failed"]
    assert found[1].method == "clopper-pearson, unpaired"
    assert found[1].interval[0] > 0.3
    reason = found[1].reason
    says(reason)
    assert "--update" not in reason


@pytest.mark.parametrize(("right", "is_loss"), [(98, True), (99, False), (100, False)])
def test_other_samples_never_pass_and_a_loss_is_not_advised_to_be_accepted(right, is_loss):
    lock = locked(accepted(), test_sha256="e" * 64)
    found = of_lock(check(ruined(accepted(), right=right), DROP, locked=lock))
    assert [one.outcome for one in found] == ["missing", "missing"]
    assert all(f"{percent(right / 100)} on today's samples" in one.reason for one in found)
    assert all("99.00 % on other samples in the lock" in one.reason for one in found)
    assert all(("--update" in one.reason) != is_loss for one in found)


def with_top5(rows: Report, *, and_top1: bool) -> Report:
    """The same models by another metric, which none of them has wrong; and by the old one."""
    best = replace(answers(set(), 100), metric="top5")

    def changed(row: Measurement) -> Measurement:
        further = (row.accuracy,) if and_top1 and row.accuracy else ()
        return replace(row, accuracy=best, metrics=further)

    assert rows.baseline is not None
    return replace(
        rows, baseline=changed(rows.baseline), measurements=tuple(map(changed, rows.measurements))
    )


def test_another_metric_is_compared_by_the_locked_one_where_both_are_measured():
    now = with_top5(ruined(accepted(), right=49), and_top1=True)
    found = of_lock(check(now, DROP, locked=locked(accepted())))
    assert [one.outcome for one in found] == ["failed", "failed"]
    assert {(one.before, one.after) for one in found} == {(0.99, 0.49)}


def test_a_metric_that_was_not_measured_is_not_compared_and_it_says_how():
    now = with_top5(ruined(accepted(), right=49), and_top1=False)
    found = of_lock(check(now, DROP, locked=locked(accepted())))
    assert [one.outcome for one in found] == ["missing", "missing"]
    assert all('metric = ["top5", "top1"] in [bench]' in one.reason for one in found)


def test_another_runtime_is_no_reason_not_to_compare():
    lock = locked(accepted())
    trained, int8 = lock.stages
    named = [replace(int8, name=f"int8 in {place}") for place in ("litert", "web")]
    lock = replace(lock, stages=(trained, *named))
    found = of_lock(check(ruined(accepted(), right=49), DROP, locked=lock))
    assert [(one.model, one.outcome) for one in found] == [
        ("digits", "failed"),
        ("digits.int8", "failed"),
    ]


def test_a_trained_model_that_is_gone_is_missing_beside_the_lock():
    now = replace(accepted(), baseline=None)
    found = of_lock(check(now, DROP, locked=locked(accepted())))
    assert [(one.model, one.outcome) for one in found] == [
        ("digits.int8", "passed"),
        ("digits", "missing"),
    ]


def test_without_labels_the_same_file_with_other_preprocessing_may_answer_otherwise():
    budget = Budget(every=Limits(max_flip_rate=0.01))
    rows = beside(GOOD, GOOD)
    bare = replace(rows.measurements[-1], accuracy=None)
    lock = locked(rows)
    int8 = replace(lock.stages[-1], accuracy=None)
    rows = replace(rows, baseline=None, measurements=(bare,))
    for preprocessing, outcome in (("", "passed"), ("scale=2", "missing")):
        lock = replace(lock, stages=(int8,), preprocessing=preprocessing)
        (found,) = of_lock(check(rows, budget, locked=lock))
        assert found.outcome == outcome


@pytest.mark.parametrize(
    "limits",
    [
        {"max_size_ratio": 5.0},
        {"max_accuracy_drop": Limit(limit=0.01, severity="warn")},
        {"max_accuracy_drop": 0.01},
        {"max_relative_accuracy_drop": 0.01},
    ],
    ids=["none", "warning", "error", "relative"],
)
def test_a_loss_beside_the_lock_is_found_whatever_the_budget_says(limits):
    budget = Budget(every=Limits(**limits))
    found = losses(ruined(accepted(), right=49), budget, locked=locked(accepted()))
    assert [(one.model, one.outcome, one.ok) for one in found] == [
        ("digits", "failed", False),
        ("digits.int8", "failed", False),
    ]
    assert losses(accepted(), budget, locked=locked(accepted())) == ()


def test_a_loss_that_the_budget_allows_is_none():
    allowed = Budget(every=Limits(max_relative_accuracy_drop=0.6))
    assert losses(ruined(accepted(), right=49), allowed, locked=locked(accepted())) == ()


def test_a_loss_that_few_samples_cannot_prove_is_a_loss_all_the_same():
    now = ruined(accepted(), right=97)
    found = of_lock(check(now, DROP, locked=locked(accepted())))
    assert [one.outcome for one in found] == ["inconclusive", "inconclusive"]
    assert len(losses(now, DROP, locked=locked(accepted()))) == 2


def test_an_artifact_that_is_locked_and_gone_is_missing():
    rows = beside(answers(range(4)))
    lock = locked(rows)
    gone = replace(lock.stages[-1], name="digits.dynamic", recipe="dynamic")
    found = check(rows, DROP, locked=replace(lock, stages=(*lock.stages, gone)))
    assert [(one.model, one.outcome) for one in found.findings][-1] == ("digits.dynamic", "missing")


def test_an_artifact_that_is_not_locked_is_held_against_the_trained_model_alone():
    rows = beside(answers(range(4)))
    found = check(rows, DROP, locked=locked(rows, stages=())).findings
    assert [(one.model, one.reference) for one in found] == [("digits.int8", "baseline")]


def timed(*rounds: tuple[float, ...]) -> Latency:
    flat = sorted(itertools.chain(*rounds))
    return replace(LATENCY, rounds_us=rounds, p50_us=flat[len(flat) // 2])


def in_rounds(*ratios: float) -> Report:
    """An artifact that takes so many times what float32 does, by round; the machine drifts."""
    base = [(100.0 + 30 * i,) * 3 for i in range(len(ratios))]
    other = [tuple(t * ratio for t in one) for one, ratio in zip(base, ratios, strict=True)]
    floating = measured("float32", latency=timed(*base), latency_ratio=1.0)
    ours = timed(*other)
    ratio = ours.p50_us / floating.latency.p50_us
    return report(floating, measured("int8", latency=ours, latency_ratio=ratio))


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ((0.5, 0.51, 0.49), "passed"),
        ((1.3, 1.31, 1.29), "failed"),
        ((0.7, 1.1, 0.9), "inconclusive"),
    ],
)
def test_a_latency_ratio_is_judged_by_rounds_and_is_a_warning(ratios, outcome):
    verdict = check(in_rounds(*ratios), Budget(recipe={"int8": Limits(max_latency_ratio=1.0)}))
    (found,) = verdict.findings
    assert (found.outcome, found.severity, found.ok) == (outcome, "warn", True)
    assert (found.samples, found.samples_needed) == (None, None)
    assert ("--rounds" in found.reason) == (outcome == "inconclusive")


def test_a_single_round_cannot_tell_a_latency_ratio():
    strict = msgspec.convert({"max-latency-ratio": {"limit": 9.0, "severity": "error"}}, Limits)
    (found,) = check(in_rounds(0.5), Budget(recipe={"int8": strict})).findings
    assert (found.outcome, found.ok) == ("inconclusive", False)
    says(found.reason)


def test_float32_itself_is_as_quick_as_float32():
    rows = in_rounds(0.5, 0.5)
    (found,) = check(rows, Budget(recipe={"float32": Limits(max_latency_ratio=1.0)})).findings
    assert (found.outcome, found.actual, found.interval) == ("passed", 1.0, None)


@pytest.mark.parametrize(
    ("limit", "outcome"), [(90.0, "failed"), (101.0, "inconclusive"), (150.0, "passed")]
)
def test_a_median_time_is_judged_by_rounds(limit, outcome):
    latency = timed((100.0, 100.0), (98.0, 98.0), (103.0, 103.0))
    found = judged(report(measured(latency=latency)), max_latency_p50_us=limit)
    assert (found.outcome, found.severity) == (outcome, "warn")
    quick = report(measured(latency=timed((0.5, 0.5), (0.5, 0.5))))
    assert judged(quick, max_latency_p50_us=limit).outcome == "passed"


@pytest.mark.parametrize(
    ("oldest", "limit", "outcome"),
    [
        ("2.3.0", "2.14.0", "passed"),
        ("2.14.0", "2.14", "passed"),
        ("2.14.0", "2.3.0", "failed"),
        ("", "2.14.0", "missing"),
    ],
)
def test_the_oldest_runtime_is_compared_as_a_release(oldest, limit, outcome):
    found = judged(report(measured(oldest_runtime=oldest)), oldest_runtime=limit)
    assert (found.outcome, found.allowed) == (outcome, limit)
    assert found.actual == (oldest or None)


def test_a_runtime_that_is_no_release_is_refused():
    with fails(UsageError):
        judged(report(measured(oldest_runtime="2.3.0")), oldest_runtime="latest")


def test_operators_are_those_of_the_manifest():
    import report_example as example

    rows = example.report()
    named = {one.name for one in rows.artifacts[0].operators}
    every = judged_all(rows, allowed_operators=tuple(named))
    assert {one.outcome for one in every if one.model == rows.measurements[0].name} <= {"passed"}
    less = judged_all(rows, allowed_operators=tuple(sorted(named))[1:])
    assert "failed" in {one.outcome for one in less}
    assert judged(report(measured()), allowed_operators=("CONV_2D",)).outcome == "missing"


def judged_all(rows: Report, **limits: Any) -> tuple[Finding, ...]:
    return check(rows, Budget(every=Limits(**limits))).findings


@given(st.sets(st.integers(0, 119), max_size=40), st.floats(0.001, 0.4))
@settings(deadline=None, max_examples=40)
def test_an_outcome_is_what_the_test_says_and_nothing_that_the_interval_rules_out(wrong, limit):
    found = judged(beside(answers(wrong, 120)), max_accuracy_drop=limit)
    drop = MatchedDrop(len(wrong), 0, 120)
    is_above, is_below = drop.is_above(limit, 0.05), drop.is_below(limit, 0.05)
    assert found.outcome == ("failed" if is_above else "passed" if is_below else "inconclusive")
    assert found.interval is not None
    low, high = found.interval
    assert found.outcome != ("passed" if low > limit else "failed" if high <= limit else "")
    assert low <= len(wrong) / 120 <= high


@pytest.mark.parametrize("method", ["auto", "bootstrap"])
@pytest.mark.parametrize("before", [answers(set(), 200), answers(range(7), 200)])
def test_a_finding_has_the_interval_of_the_report_whatever_it_is_judged_by(before, method):
    rows = beside(answers({3, 13, 23, 33, *range(50, 60)}, 200), before)
    assert rows.baseline is not None
    rows = replace(
        rows, measurements=tuple(compare(row, rows.baseline, ()) for row in rows.measurements)
    )
    budget = Budget(every=Limits(max_accuracy_drop=0.01, max_class_drop=0.3, min_accuracy=0.5))
    drop, _, worst = check(
        rows, budget, statistics=GateStatistics(method=method, confidence=0.99)
    ).findings
    assert drop.interval == rows.measurements[-1].accuracy_drop_interval
    (of_class,) = [one for one in class_drops(rows) if one.name == worst.subject]
    assert worst.interval == of_class.interval
    (state,) = [
        one for one in stage_states(rows, None, GateStatistics()) if one.model == drop.model
    ]
    assert state.own_interval == drop.interval
