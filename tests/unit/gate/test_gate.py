import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import fails, says

import edgeconv
from edgeconv.gate.budget import check
from edgeconv.types import (
    Accuracy,
    Agreement,
    Budget,
    Environment,
    Finding,
    GateStatistics,
    Latency,
    Limits,
    Measurement,
    NpuEstimate,
    RecipeName,
    Report,
)
from edgeconv.types.errors import InputRefused, UsageError

LATENCY = Latency(
    rounds_us=((90.0, 110.0),),
    load_us=(5.0,),
    first_us=(200.0,),
    threads=1,
    batch=1,
    p50_us=100.0,
    p90_us=110.0,
    p99_us=110.0,
    p50_interval_us=(100.0, 100.0),
)


def agreement(output: str, snr_db: float, flips: int | None = None) -> Agreement:
    return Agreement(
        output=output,
        reference="baseline",
        samples=10,
        flips=flips,
        cosine=1.0,
        snr_db=snr_db,
        max_error=0.1,
    )


def measured(recipe: RecipeName | None = "int8", **changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "name": f"digits.{recipe}",
        "role": "artifact",
        "recipe": recipe,
        "runtime": "litert",
        "sha256": "0" * 64,
        "size_bytes": 1000,
        "gzip_size_bytes": 800,
        "latency": LATENCY,
        "peak_memory_bytes": 5000,
        "accuracy": Accuracy(value=0.9, samples=10, correct="1111111110"),
        "size_ratio": 0.25,
        "latency_ratio": 0.6,
        "arena_bytes": 700,
        "agreement": (agreement("scores", 31.5), agreement("boxes", 40.0)),
    }
    return Measurement(**{**values, **changes})


def report(*measurements: Measurement, baseline_accuracy: Accuracy | None = None) -> Report:
    environment = Environment(machine="m", cpu="c", cores=2, system="s", python="3.11", tools={})
    baseline = measured(
        None,
        name="digits",
        role="baseline",
        sha256="b" * 64,
        size_bytes=4000,
        accuracy=baseline_accuracy or measured().accuracy,
    )
    return Report(
        title="digits",
        environment=environment,
        data=None,
        baseline=baseline,
        measurements=(baseline, *measurements),
    )


def only(
    model: Measurement | None = None, statistics: GateStatistics | None = None, **limits: Any
) -> Finding:
    """The one finding for one artifact."""
    budget = Budget(every=Limits(**limits))
    (finding,) = check(
        report(model or measured()), budget, statistics=statistics or GateStatistics()
    ).findings
    return finding


ACTUAL = {
    "max_size_bytes": 1000.0,
    "max_gzip_size_bytes": 800.0,
    "max_size_ratio": 0.25,
    "max_peak_memory_bytes": 5000.0,
    "max_arena_bytes": 700.0,
    "min_output_snr_db": 31.5,
}
# Held against their limits in tests of their own.
NOT_PLAIN = {
    *("max_latency_p50_us", "max_latency_ratio", "max_accuracy_drop"),
    *("max_relative_accuracy_drop", "min_accuracy", "max_class_drop", "max_slice_drop"),
    *("max_flip_rate", "oldest_runtime", "allowed_operators"),
    *("min_npu_operators", "max_float_operators"),
}


@pytest.mark.parametrize("limit", ACTUAL)
def test_each_plain_limit_is_held_against_its_own_number_and_is_inclusive(limit):
    actual = ACTUAL[limit]
    sign = -1 if limit.startswith("min") else 1
    for allowed in (actual * (1 + 0.01 * sign), actual):
        verdict = check(report(measured()), Budget(every=Limits(**{limit: allowed})))
        assert verdict.findings == (
            Finding(
                model="digits.int8",
                limit=limit.replace("_", "-"),
                allowed=allowed,
                actual=actual,
                outcome="passed",
                subject="scores" if "snr" in limit else "",
                recipe="int8",
            ),
        )
    tight = only(**{limit: actual * (1 - 0.01 * sign)})
    assert tight.outcome == "failed"
    assert not tight.ok


def test_every_field_of_the_limits_is_tested_here():
    assert {*ACTUAL, *NOT_PLAIN} == set(Limits.__struct_fields__)


def test_a_hair_of_rounding_over_the_limit_holds():
    ratio = 0.3 - 0.2
    assert ratio < 0.1
    assert only(measured(size_ratio=0.1), max_size_ratio=ratio).outcome == "passed"


def test_one_byte_over_a_large_size_fails():
    gigabyte = 10**9
    budget = Budget(every=Limits(max_size_bytes=gigabyte))
    assert not check(report(measured(size_bytes=gigabyte + 1)), budget).ok


def test_a_recipe_limit_replaces_the_general_one_of_the_same_name_only():
    budget = Budget(
        every=Limits(max_size_bytes=10, max_arena_bytes=800),
        recipe={"int8": Limits(max_size_bytes=2000)},
    )
    verdict = check(report(measured("int8"), measured("dynamic")), budget)
    found = {(each.model, each.limit): (each.allowed, each.ok) for each in verdict.findings}
    assert found == {
        ("digits.int8", "max-size-bytes"): (2000, True),
        ("digits.int8", "max-arena-bytes"): (800, True),
        ("digits.dynamic", "max-size-bytes"): (10, False),
        ("digits.dynamic", "max-arena-bytes"): (800, True),
    }
    assert not verdict.ok


def test_a_recipe_measured_twice_is_judged_twice():
    second = measured("int8", name="on the phone", size_bytes=9999)
    budget = Budget(recipe={"int8": Limits(max_size_bytes=2000)})
    verdict = check(report(measured("int8"), second), budget)
    assert [finding.ok for finding in verdict.findings] == [True, False]


def test_a_recipe_with_limits_that_is_not_in_the_report_fails_each_of_them():
    budget = Budget(
        every=Limits(max_size_bytes=2000),
        recipe={"int16x8": Limits(min_accuracy=0.5, max_size_ratio=1)},
    )
    verdict = check(report(measured("int8")), budget)
    missing = [finding for finding in verdict.findings if finding.model == "int16x8"]
    assert [(each.limit, each.actual, each.ok) for each in missing] == [
        ("max-size-ratio", None, False),
        ("min-accuracy", None, False),
    ]
    assert not verdict.ok


@pytest.mark.parametrize(
    "limits",
    [
        {"max_latency_p50_us": 1e9},
        {"max_latency_ratio": 1e9},
        {"max_gzip_size_bytes": 1e9},
        {"max_arena_bytes": 1e9},
        {"min_accuracy": 0.0},
        {"max_accuracy_drop": 1.0},
        {"max_relative_accuracy_drop": 1.0},
        {"max_class_drop": 1.0},
        {"max_slice_drop": 1.0},
        {"max_flip_rate": 1.0},
        {"min_output_snr_db": -200.0},
        {"oldest_runtime": "99.0.0"},
        {"allowed_operators": ("CONV_2D",)},
        {"max_float_operators": 9},
    ],
)
def test_what_was_not_measured_is_missing_and_never_passes(limits):
    bare = measured(
        latency=None,
        latency_ratio=None,
        gzip_size_bytes=None,
        arena_bytes=None,
        accuracy=None,
        agreement=(),
        oldest_runtime="",
    )
    found = only(bare, **limits)
    assert (found.outcome, found.actual) == ("missing", None)
    assert found.reason


@pytest.mark.parametrize("actual", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_never_passes(actual):
    broken = measured(accuracy=Accuracy(value=actual, samples=0), size_ratio=actual)
    budget = Budget(every=Limits(max_accuracy_drop=1.0, min_accuracy=0.0, max_size_ratio=1e9))
    found = check(report(broken), budget).findings
    assert {finding.outcome for finding in found} == {"missing"}


def test_a_number_of_one_sample_that_is_not_finite_never_passes():
    before = Accuracy(metric="mae", value=1.0, samples=2, per_sample=(1.0, 1.0))
    for value, per_sample in ((1.0, (1.0, math.nan)), (math.inf, (1.0, math.inf))):
        after = Accuracy(metric="mae", value=value, samples=2, per_sample=per_sample)
        for name in ("max_accuracy_drop", "max_relative_accuracy_drop"):
            rows = report(measured(accuracy=after), baseline_accuracy=before)
            found = check(rows, Budget(every=Limits(**{name: 1e9}))).findings
            assert [one.outcome for one in found] == ["missing"]


def test_a_limit_of_nan_lets_nothing_through():
    assert not check(report(measured()), Budget(every=Limits(max_size_bytes=math.nan))).ok


@pytest.mark.parametrize(("count", "outcome"), [(0, "passed"), (2, "passed"), (3, "failed")])
def test_operators_in_float_are_limited_in_recipes_of_integers_alone(count, outcome):
    finding = only(measured(float_operators=count), max_float_operators=2)
    assert (finding.outcome, finding.actual, finding.allowed) == (outcome, count, 2)
    rows = report(measured(recipe="int8", float_operators=count), measured("dynamic"))
    found = check(rows, Budget(every=Limits(max_float_operators=2))).findings
    assert [each.outcome for each in found] == [outcome]


def test_an_artifact_that_did_not_run_fails_all_its_limits_even_its_size():
    verdict = check(
        report(measured(error="SIGSEGV"), measured("dynamic")),
        Budget(every=Limits(max_size_bytes=2000, max_arena_bytes=800)),
    )
    assert [finding.ok for finding in verdict.findings] == [False, False, True, True]


def test_an_artifact_without_a_recipe_has_the_general_limits():
    assert check(report(measured(None)), Budget(every=Limits(max_size_bytes=2000))).ok


def test_a_report_without_artifacts_is_refused():
    with fails(InputRefused):
        check(report(), Budget(every=Limits(max_size_bytes=2000)))


def test_a_budget_without_limits_is_refused():
    with fails(UsageError):
        check(report(measured()), Budget())


def test_the_verb_check_judges_a_report_by_a_budget():
    judged, budget = report(measured()), Budget(every=Limits(max_size_bytes=2000))
    (answer,) = edgeconv.check(report=judged, budget=budget).checks
    assert answer.verdict == check(judged, budget)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_maximum_holds_exactly_when_the_number_is_not_over_it(actual, allowed):
    budget = Budget(every=Limits(max_size_ratio=allowed))
    ok = check(report(measured(size_ratio=actual)), budget).ok
    if abs(actual - allowed) > 1e-5:
        assert ok == (actual < allowed)
    if actual <= allowed:
        assert ok


def test_an_output_that_never_varies_has_no_signal_to_hold_against_a_limit():
    budget = Budget(every=Limits(min_output_snr_db=20.0))
    close = agreement("scores", -86.8)
    flat = msgspec.structs.replace(close, span=(1.0, 1.0), varies_by=0.0)
    (finding,) = check(report(measured(agreement=(flat,))), budget).findings
    assert (finding.outcome, finding.actual) == ("missing", None)
    says(finding.reason)
    exact = msgspec.structs.replace(flat, snr_db=200.0)
    assert check(report(measured(agreement=(exact,))), budget).ok


def on_npu(share: float, name: str = "ethos-u55-128") -> NpuEstimate:
    return NpuEstimate(npu=name, compiler="vela", operators=100, on_npu=round(100 * share))


def test_the_share_of_operators_is_that_of_the_npu_with_the_fewest():
    both = measured(npu=(on_npu(0.95), on_npu(0.8, "ethos-u85-256")))
    finding = only(both, min_npu_operators=0.9)
    assert (finding.outcome, finding.actual, finding.subject) == ("failed", 0.8, "ethos-u85-256")
    assert only(both, min_npu_operators=0.8).outcome == "passed"


@pytest.mark.parametrize(
    "estimates",
    [
        (),
        (on_npu(1), NpuEstimate(npu="n", compiler="v", error="SIGSEGV")),
        (NpuEstimate(npu="n", compiler="v"),),
    ],
)
def test_a_share_that_is_not_known_never_passes(estimates):
    finding = only(measured(npu=estimates), min_npu_operators=0.0)
    assert (finding.outcome, finding.actual, finding.ok) == ("missing", None, False)
    says(finding.reason)
