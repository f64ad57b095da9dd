from __future__ import annotations

import math

import pytest

from edgeconv.nouns import Finding, Verdict
from edgeconv.report.limits import closing_line, in_words, mark_of


def finding(
    limit: str, allowed: float, actual: float | None, *, ok: bool = True, model: str = "m"
) -> Finding:
    return Finding(model=model, limit=limit, allowed=allowed, actual=actual, ok=ok)


@pytest.mark.parametrize(
    ("limit", "allowed", "actual", "words"),
    [
        ("max-size-bytes", 100_000, 46_872, ("≤ 100 kB", "46.9 kB")),
        ("max-gzip-size-bytes", 2e6, None, ("≤ 2.00 MB", "–")),
        ("max-size-ratio", 0.3, 0.203, ("≤ 0.300×", "0.203×")),
        ("max-latency-p50-us", 50, 8020, ("≤ 50.0 µs", "8.02 ms")),
        ("max-latency-ratio", 1, math.nan, ("≤ 1.00×", "NaN")),
        ("max-accuracy-drop", 0.01, 0.0306, ("≤ 1.00 pp", "3.06 pp")),
        ("min-accuracy", 0.97, 0.9722, ("≥ 97.00 %", "97.22 %")),
        ("max-novelty", 12, 3, ("≤ 12.0", "3.00")),
    ],
)
def test_a_limit_is_written_in_its_own_unit(
    limit: str, allowed: float, actual: float | None, words: tuple[str, str]
) -> None:
    assert in_words(finding(limit, allowed, actual)) == words


def test_values_that_differ_are_never_written_alike() -> None:
    assert in_words(finding("max-size-bytes", 100_000, 100_040)) == ("≤ 100.00 kB", "100.04 kB")
    assert in_words(finding("max-accuracy-drop", 0.01, 0.010004)) == ("≤ 1.0000 pp", "1.0004 pp")
    assert in_words(finding("min-accuracy", 0.9, 0.89999)) == ("≥ 90.000 %", "89.999 %")


def test_a_model_is_over_if_one_of_its_limits_is_broken_and_unmarked_if_it_has_none() -> None:
    verdict = Verdict(
        findings=(
            finding("max-size-bytes", 1, 1, model="a"),
            finding("max-size-bytes", 1, 1, model="b"),
            finding("max-size-ratio", 1, 2, ok=False, model="b"),
        )
    )
    assert [mark_of(model, verdict) for model in "abc"] == ["ok", "over", "–"]
    assert mark_of("a", None) == "–"


def test_the_closing_line_counts_the_broken_limits_and_names_each_model_once() -> None:
    broken = [finding("max-size-bytes", 1, 2, ok=False, model=m) for m in ("a", "b", "a\n")]
    verdict = Verdict(findings=(finding("max-size-ratio", 1, 1), *broken, broken[0]))
    assert closing_line(verdict) == r"4 of 5 limits broken, by a, b, a\n."
    assert closing_line(Verdict(findings=(finding("max-size-ratio", 1, 1),))) == "1 limit holds."
    assert "nothing was judged" in closing_line(Verdict(findings=()))
    assert closing_line(None) == "No budget was checked."
