from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgeconv
from edgeconv.errors import InputRefused, UsageError
from edgeconv.measure.gate import check
from edgeconv.nouns import (
    Accuracy,
    Budget,
    Environment,
    Finding,
    Latency,
    Limits,
    Measurement,
    Report,
)

if TYPE_CHECKING:
    from edgeconv.nouns import RecipeName

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
        "accuracy_drop": 0.02,
    }
    return Measurement(**{**values, **changes})


def report(*measurements: Measurement) -> Report:
    environment = Environment(machine="m", cpu="c", cores=2, system="s", python="3.11", tools={})
    baseline = measured(None, name="digits", role="baseline", size_bytes=4000)
    return Report(
        title="digits",
        environment=environment,
        data=None,
        baseline=baseline,
        measurements=(baseline, *measurements),
    )


ACTUAL = {
    "max_size_bytes": 1000.0,
    "max_gzip_size_bytes": 800.0,
    "max_size_ratio": 0.25,
    "max_latency_p50_us": 100.0,
    "max_latency_ratio": 0.6,
    "max_peak_memory_bytes": 5000.0,
    "max_accuracy_drop": 0.02,
    "min_accuracy": 0.9,
}


@pytest.mark.parametrize("limit", ACTUAL)
def test_each_limit_is_held_against_its_own_number_and_is_inclusive(limit: str) -> None:
    actual = ACTUAL[limit]
    sign = -1 if limit.startswith("min") else 1
    for allowed, ok in ((actual * (1 + 0.01 * sign), True), (actual, True)):
        verdict = check(report(measured()), Budget(every=Limits(**{limit: allowed})))
        assert verdict.findings == (
            Finding(
                model="digits.int8",
                limit=limit.replace("_", "-"),
                allowed=allowed,
                actual=actual,
                ok=ok,
            ),
        )
    tight = check(report(measured()), Budget(every=Limits(**{limit: actual * (1 - 0.01 * sign)})))
    assert not tight.ok


def test_every_field_of_the_limits_is_tested_above() -> None:
    assert set(ACTUAL) == set(Limits.__struct_fields__)


def test_a_hair_of_rounding_over_the_limit_holds() -> None:
    drop = 0.91 - 0.90
    assert drop > 0.01
    assert check(
        report(measured(accuracy_drop=drop)), Budget(every=Limits(max_accuracy_drop=0.01))
    ).ok
    assert check(
        report(measured(accuracy_drop=1e-17)), Budget(every=Limits(max_accuracy_drop=0.0))
    ).ok


def test_one_byte_over_a_large_size_fails() -> None:
    gigabyte = 10**9
    budget = Budget(every=Limits(max_size_bytes=gigabyte))
    assert not check(report(measured(size_bytes=gigabyte + 1)), budget).ok


def test_an_artifact_better_than_the_baseline_passes() -> None:
    budget = Budget(every=Limits(max_accuracy_drop=0.0))
    assert check(report(measured(accuracy_drop=-0.01)), budget).ok


def test_the_baseline_is_not_judged() -> None:
    verdict = check(report(measured()), Budget(every=Limits(max_size_bytes=2000)))
    assert [finding.model for finding in verdict.findings] == ["digits.int8"]
    assert verdict.ok


def test_a_recipe_limit_replaces_the_general_one_of_the_same_name_only() -> None:
    budget = Budget(
        every=Limits(max_size_bytes=10, min_accuracy=0.5),
        recipe={"int8": Limits(max_size_bytes=2000)},
    )
    verdict = check(report(measured("int8"), measured("dynamic")), budget)
    found = {(each.model, each.limit): (each.allowed, each.ok) for each in verdict.findings}
    assert found == {
        ("digits.int8", "max-size-bytes"): (2000, True),
        ("digits.int8", "min-accuracy"): (0.5, True),
        ("digits.dynamic", "max-size-bytes"): (10, False),
        ("digits.dynamic", "min-accuracy"): (0.5, True),
    }
    assert not verdict.ok


def test_a_recipe_measured_twice_is_judged_twice() -> None:
    second = measured("int8", name="on the phone", size_bytes=9999)
    budget = Budget(recipe={"int8": Limits(max_size_bytes=2000)})
    verdict = check(report(measured("int8"), second), budget)
    assert [finding.ok for finding in verdict.findings] == [True, False]


def test_a_recipe_with_limits_that_is_not_in_the_report_fails_each_of_them() -> None:
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


def test_what_was_not_measured_fails() -> None:
    bare = measured(latency=None, accuracy=None, accuracy_drop=None, latency_ratio=None)
    for limits in (
        Limits(max_latency_p50_us=1e9),
        Limits(min_accuracy=0.0),
        Limits(max_accuracy_drop=1.0),
        Limits(max_latency_ratio=1e9),
    ):
        verdict = check(report(bare), Budget(every=limits))
        assert not verdict.ok
        assert verdict.findings[0].actual is None


@pytest.mark.parametrize("actual", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_fails(actual: float) -> None:
    broken = measured(accuracy_drop=actual, accuracy=Accuracy(value=actual, samples=0, correct=""))
    budget = Budget(every=Limits(max_accuracy_drop=1.0, min_accuracy=0.0))
    assert [finding.ok for finding in check(report(broken), budget).findings] == [False, False]


def test_a_limit_of_nan_lets_nothing_through() -> None:
    assert not check(report(measured()), Budget(every=Limits(max_size_bytes=math.nan))).ok


def test_an_artifact_that_did_not_run_fails_all_its_limits_even_its_size() -> None:
    verdict = check(
        report(measured(error="SIGSEGV"), measured("dynamic")),
        Budget(every=Limits(max_size_bytes=2000, min_accuracy=0.5)),
    )
    assert [finding.ok for finding in verdict.findings] == [False, False, True, True]


def test_an_artifact_without_a_recipe_has_the_general_limits() -> None:
    assert check(report(measured(None)), Budget(every=Limits(max_size_bytes=2000))).ok


def test_a_report_without_artifacts_is_refused() -> None:
    with pytest.raises(InputRefused, match="no artifacts"):
        check(report(), Budget(every=Limits(max_size_bytes=2000)))


def test_a_budget_without_limits_is_refused() -> None:
    with pytest.raises(UsageError, match="sets no limit"):
        check(report(measured()), Budget())


def test_check_is_a_verb_of_the_package() -> None:
    assert edgeconv.check is check


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_maximum_holds_exactly_when_the_number_is_not_over_it(
    actual: float, allowed: float
) -> None:
    budget = Budget(every=Limits(max_latency_ratio=allowed))
    ok = check(report(measured(latency_ratio=actual)), budget).ok
    if abs(actual - allowed) > 1e-5:
        assert ok == (actual < allowed)
    if actual <= allowed:
        assert ok
