import math
from typing import Any

import msgspec
import pytest
from wording import says

from edgeconv.reporting.limits import (
    closing_line,
    explanation,
    in_words,
    mark_of,
    name_of,
    sentence,
    word_of,
)
from edgeconv.types import IN_VERSIONS, LIMIT_KINDS, NOT_CHECKED, Finding, Limits, Value, Verdict


def finding(
    limit: str, allowed: Value, actual: Value | None, *, ok: bool = True, **fields: Any
) -> Finding:
    given = {"model": "m", "outcome": "passed" if ok else "failed", **fields}
    return Finding(limit=limit, allowed=allowed, actual=actual, **given)


@pytest.mark.parametrize(
    ("limit", "allowed", "actual", "words"),
    [
        ("max-size-bytes", 100_000, 46_872, ("≤ 100 kB", "46.9 kB")),
        ("max-gzip-size-bytes", 2e6, None, ("≤ 2.00 MB", "–")),
        ("max-size-ratio", 0.3, 0.203, ("≤ 0.300×", "0.203×")),
        ("max-latency-p50-us", 50, 8020, ("≤ 50.0 µs", "8.02 ms")),
        ("max-latency-ratio", 1, math.nan, ("≤ 1.00×", "NaN")),
        ("max-accuracy-drop", 0.01, 0.0306, ("≤ 1.00 pp", "3.06 pp")),
        ("max-relative-accuracy-drop", 0.01, 0.02, ("≤ 1.00 %", "2.00 %")),
        ("max-class-drop", 0.05, 0.061, ("≤ 5.00 pp", "6.10 pp")),
        ("max-slice-drop", 0.05, None, ("≤ 5.00 pp", "–")),
        ("max-flip-rate", 0.02, 0.003, ("≤ 2.00 %", "0.30 %")),
        ("min-output-snr-db", 20, 27.31, ("≥ 20.0 dB", "27.3 dB")),
        ("max-arena-bytes", 50_000, 49_152, ("≤ 50.0 kB", "49.2 kB")),
        ("min-npu-operators", 0.9, 2 / 3, ("≥ 90.00 %", "66.67 %")),
        ("min-accuracy", 0.97, 0.9722, ("≥ 97.00 %", "97.22 %")),
        ("oldest-runtime", "2.14.0", "2.17.0", ("≤ 2.14.0", "2.17.0")),
        ("oldest-runtime", "2.14.0", None, ("≤ 2.14.0", "–")),
        ("allowed-operators", ("ADD", "EXP"), ("ADD",), ("2 operators", "1 operator")),
        ("allowed-operators", ("ADD",), ("ADD", "EXP", "LOG"), ("1 operator", "EXP, LOG")),
        ("allowed-operators", ("ADD",), None, ("1 operator", "–")),
        ("allowed-operators", (), tuple("abcdefg"), ("0 operators", "a, b, c, d, e and 2 more")),
        ("max-novelty", 12, 3, ("≤ 12.0", "3.00")),
    ],
)
def test_a_limit_is_written_in_its_own_unit(limit, allowed, actual, words):
    assert in_words(finding(limit, allowed, actual)) == words


@pytest.mark.parametrize("field", msgspec.structs.fields(Limits), ids=lambda each: each.name)
def test_every_limit_that_can_be_set_has_a_unit_of_its_own_and_none_is_a_bare_number(field):
    words = in_words(finding(field.encode_name, 0.5, 0.25))
    bare = field.encode_name in ("oldest-runtime", "allowed-operators")
    assert all(word[-1].isdigit() for word in words) == bare


def test_a_number_in_the_unit_of_a_metric_is_no_percentage():
    worse = finding("max-accuracy-drop", 0.5, 1.25, metric="mae", interval=(0.75, 1.5))
    assert in_words(worse) == ("≤ 0.500 mae", "1.25 mae")
    says(explanation(worse))
    masked = finding("min-accuracy", 0.5, 0.75, metric="masked_accuracy")
    assert in_words(masked) == ("≥ 50.00 %", "75.00 %")
    assert in_words(finding("min-accuracy", 0.5, None, metric="m:f")) == ("≥ 0.500 m:f", "–")


@pytest.mark.parametrize("limit", [NOT_CHECKED, IN_VERSIONS])
def test_what_is_no_number_is_neither_most_nor_least(limit):
    assert in_words(finding(limit, "right in 2 versions", "wrong")) == (
        "right in 2 versions",
        "wrong",
    )


def test_three_limits_leave_their_interval_to_the_table_of_the_report():
    findings = [finding(name, 1.0, 0.5, interval=(0.25, 0.75)) for name in LIMIT_KINDS]
    assert {each.limit for each in findings if not explanation(each, below_table=True)} == {
        "max-accuracy-drop",
        "max-latency-p50-us",
        "max-latency-ratio",
    }


def test_values_that_differ_are_never_written_alike():
    assert in_words(finding("max-size-bytes", 100_000, 100_040)) == ("≤ 100.00 kB", "100.04 kB")
    assert in_words(finding("max-accuracy-drop", 0.01, 0.010004)) == ("≤ 1.0000 pp", "1.0004 pp")
    assert in_words(finding("min-accuracy", 0.9, 0.89999)) == ("≥ 90.000 %", "89.999 %")


def test_a_limit_that_is_only_to_warn_is_no_failure_and_no_pass():
    outcomes = ("passed", "failed", "inconclusive", "missing")
    found = {
        severity: [
            word_of(finding("max-size-bytes", 1, 2, outcome=outcome, severity=severity))
            for outcome in outcomes
        ]
        for severity in ("error", "warn")
    }
    # What was not measured, or cannot be told, is not said to be broken, whatever it means.
    assert found == {"error": ["PASS", "FAIL", "?", "–"], "warn": ["PASS", "WARN", "?", "–"]}
    warned = finding("max-size-bytes", 1, 2, ok=False, severity="warn")
    assert mark_of("m", Verdict(findings=(warned, finding("max-size-ratio", 1, 1)))) == "warn"
    says(closing_line(Verdict(findings=(warned,))))


def test_a_finding_says_what_it_is_of_how_sure_it_is_and_what_would_do():
    found = finding(
        "max-class-drop",
        0.05,
        0.0522,
        outcome="inconclusive",
        reference="lock",
        subject="cat\n",
        interval=(0.0301, 0.0744),
        confidence=0.995,
        method="exact mcnemar",
        samples=1028,
        samples_needed=2420,
    )
    says(name_of(found))
    between = "95 % interval 3.01 pp to 7.44 pp"
    by = "tested at 99.5 % by exact mcnemar, 1028 samples"
    # In a table it has a mark, and how many samples would do is said once, above it.
    assert explanation(found) == (between, by)
    assert sentence(found).endswith(
        f"; inconclusive; {between}; {by}; 2420 samples would decide it"
    )
    closing = closing_line(Verdict(findings=(found, found)))
    says(closing)
    says(sentence(found))


def test_a_number_that_is_missing_says_why_and_one_that_is_certain_has_no_two_bounds():
    missing = finding("max-size-ratio", 1, None, outcome="missing", reason="it did\nnot run")
    says(explanation(missing))
    same = finding("max-flip-rate", 0.1, 0.0, interval=(0.0, 0.0), method="same file", samples=1)
    assert explanation(same) == ("exactly 0 %", "same file, 1 sample")
    assert explanation(finding("max-size-ratio", 1, 1)) == ()


def test_a_model_is_over_if_one_of_its_limits_is_broken_and_unmarked_if_it_has_none():
    verdict = Verdict(
        findings=(
            finding("max-size-bytes", 1, 1, model="a"),
            finding("max-size-bytes", 1, 1, model="b"),
            finding("max-size-ratio", 1, 2, ok=False, model="b"),
        )
    )
    assert [mark_of(model, verdict) for model in "abc"] == ["ok", "over", "–"]
    assert mark_of("a", None) == "–"


def test_the_closing_line_counts_the_broken_limits_and_names_each_model_once():
    broken = [finding("max-size-bytes", 1, 2, ok=False, model=m) for m in ("a", "b", "a\n")]
    verdict = Verdict(findings=(finding("max-size-ratio", 1, 1), *broken, broken[0]))
    assert closing_line(verdict) == r"4 of 5 limits broken: a, b, a\n."
    assert closing_line(Verdict(findings=(finding("max-size-ratio", 1, 1),))) == "1 limit holds."
    unsure = finding("max-flip-rate", 0.1, 0.2, outcome="inconclusive", model="c")
    absent = finding("max-size-ratio", 1, None, outcome="missing", model="d", severity="warn")
    mixed = Verdict(findings=(broken[0], unsure, absent, unsure))
    says(closing_line(mixed))
    assert closing_line(Verdict(findings=(unsure,))) == "1 of 1 limit inconclusive: c."
    assert "nothing was checked" in closing_line(Verdict(findings=()))
    says(closing_line(None))
