"""Limits and findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgeconv.reporting import units
from edgeconv.reporting.units import is_share
from edgeconv.types import IN_VERSIONS, NOT_CHECKED
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.types import Finding, Outcome, Value, Verdict

Mark = Literal["ok", "warn", "over", "not measured", "?", "–"]
# Of a limit: "–" was not measured, and "?" has too few samples.
Word = Literal["PASS", "WARN", "FAIL", "–", "?"]
VerdictWord = Literal["PASS", "WARN", "FAIL", "NOT MEASURED", "INCONCLUSIVE"]

_MOST_DIGITS = 12
_MOST_NAMES = 5
# The table of a report has the intervals of these.
_IN_TABLE = {"max-accuracy-drop", "max-latency-p50-us", "max-latency-ratio"}
# The worst first.
_MARKS: dict[Word, Mark] = {
    "FAIL": "over",
    "–": "not measured",
    "?": "?",
    "WARN": "warn",
    "PASS": "ok",
}
LIMIT_WORDS = {
    "max-size-bytes": "Bytes of the file.",
    "max-gzip-size-bytes": "Bytes of the file, packed with gzip.",
    "max-size-ratio": "The file's size over that of the trained model.",
    "max-latency-p50-us": 'Median microseconds of one run. A warning without severity = "error".',
    "max-latency-ratio": "Median time over that of the float32 .tflite in the same runtime. A "
    'warning without severity = "error".',
    "max-peak-memory-bytes": "Peak bytes of memory while the model runs.",
    "max-arena-bytes": "Bytes of the arena that holds the tensors.",
    "max-accuracy-drop": "The accuracy drop from the reference, as a fraction of 1.",
    "max-relative-accuracy-drop": "The accuracy drop over the accuracy of the reference.",
    "min-accuracy": "The accuracy, as a fraction of 1.",
    "max-class-drop": "The accuracy drop of the worst class.",
    "max-slice-drop": "The accuracy drop of the worst slice.",
    "max-flip-rate": "The share of samples whose class differs from the reference.",
    "min-output-snr-db": "The lowest signal-to-noise ratio of an output against the reference, in "
    "decibels.",
    "oldest-runtime": "The oldest TFLite release, such as 2.14.0, that the model must run on.",
    "allowed-operators": "The operators that the model may contain.",
    "min-npu-operators": "The share of the operators on the NPU, as its compiler estimates it.",
    IN_VERSIONS: "The versions of a runtime in which the file must load and answer right.",
}
# By a part of the name of the limit.
_ADVICE = {
    "npu": "`bench --npu` shows which operators stay on the processor, and why.",
    "size": "Choose a recipe with smaller weights, or raise the limit.",
    "latency": "First measure again on a quiet machine; then look at the profile of `bench`.",
    "memory": "Look at the largest tensors with `edgeconv inspect`.",
    "arena": "Look at the largest tensors with `edgeconv inspect`.",
    IN_VERSIONS: "Leave out a version that no app ships, as in 'litert>=2.0,!=2.1.0', or convert "
    "with --target-runtime and the version, which looks for a form that runs there.",
    "runtime": "Convert with --target-runtime, which looks for a form that runs there.",
    "operators": "Change the model, or allow the operator where the target supports it.",
    "check": "See the documentation of `edgeconv check`.",
    "": "The stages show where it was lost: in the trained model, or only in the quantized file. "
    "Then look at the calibration data, or choose a recipe that loses less, as int16x8 or qat.",
}
_OUTCOMES = {"failed": "broken", "inconclusive": "inconclusive", "missing": "not measured"}


def meaning(limit: str) -> tuple[str, str]:
    """What a limit is, and what to do where it does not hold."""
    advice = next(text for part, text in _ADVICE.items() if part in limit)
    return LIMIT_WORDS.get(limit.replace("_", "-"), "A limit of the budget."), advice


def mark_of(model: str, verdict: Verdict | None) -> Mark:
    """The mark of a model's worst finding; "–" where it has no finding."""
    words = [word_of(f) for f in verdict.findings if f.model == model] if verdict else []
    return next((mark for word, mark in _MARKS.items() if word in words), "–")


def word_of(finding: Finding) -> Word:
    """The outcome of a limit; "WARN" is broken, with the severity "warn"."""
    broken: Word = "WARN" if finding.ok else "FAIL"
    words: dict[Outcome, Word] = {"missing": "–", "inconclusive": "?", "passed": "PASS"}
    return words.get(finding.outcome, broken)


def word_of_verdict(verdict: Verdict) -> VerdictWord:
    """The outcome of all limits; "FAIL" only where one is surely broken."""
    words = {word_of(finding) for finding in verdict.findings if not finding.ok}
    if verdict.ok:
        held = all(finding.outcome == "passed" for finding in verdict.findings)
        return "PASS" if held else "WARN"
    if "FAIL" in words or not words:
        return "FAIL"
    return "NOT MEASURED" if "–" in words else "INCONCLUSIVE"


def name_of(finding: Finding) -> str:
    """The limit with its subject and reference: "max-class-drop of cat (lock)"."""
    of = f" of {units.plain(finding.subject)}" if finding.subject else ""
    since = f" ({finding.reference})" if finding.reference else ""
    return f"{units.plain(finding.limit)}{of}{since}"


def in_words(finding: Finding) -> tuple[str, str]:
    """The allowed and the actual value with units, precise enough to differ."""
    allowed, actual = finding.allowed, finding.actual
    relation = "≥" if _plain_limit(finding).startswith("min") else "≤"
    if isinstance(allowed, tuple):
        return units.counted(len(allowed), "operator"), _not_allowed(actual, allowed)
    if isinstance(allowed, str) or isinstance(actual, str | tuple):
        sign = "" if finding.limit in (NOT_CHECKED, IN_VERSIONS) else f"{relation} "
        return f"{sign}{_text(allowed)}", _text(actual)
    form = _form_of(finding)
    digits = 3
    if actual is not None and actual != allowed:
        while digits < _MOST_DIGITS and form(allowed, digits) == form(actual, digits):
            digits += 1
    return f"{relation} {form(allowed, digits)}", form(actual, digits)


def confidence(fraction: float) -> str:
    """A confidence: "95 %", "99.5 %"."""
    return f"{fraction * 100:g} %"


def explanation(finding: Finding, *, below_table: bool = False) -> tuple[str, ...]:
    """Clauses that explain a finding, as harmless text.

    `below_table`: the table of the report is shown too, which has the interval of most numbers.
    """
    reason = units.plain(finding.reason)
    if finding.outcome == "missing":
        reason = f"not measured: {reason}" if reason else "not measured"
    is_in_table = _plain_limit(finding) in _IN_TABLE and finding.reference != "lock"
    interval = "" if below_table and is_in_table else _interval(finding)
    return tuple(filter(None, (reason, interval, _test(finding))))


def _interval(finding: Finding) -> str:
    if finding.interval is None:
        return ""
    low, high = (_form_of(finding)(end, 3) for end in finding.interval)
    return f"exactly {low}" if low == high else f"95 % interval {low} to {high}"


def _test(finding: Finding) -> str:
    method = units.plain(finding.method)
    over = units.counted(finding.samples, "sample") if finding.samples is not None else ""
    by = ", ".join(filter(None, (method, over)))
    return f"tested at {confidence(finding.confidence)} by {by}" if finding.confidence else by


def sentence(finding: Finding, *, below_table: bool = False) -> str:
    """A finding as one line of harmless text, without the word of `word_of`.

    `below_table`: `closing_line` is shown too, with the number of samples that is needed.
    """
    allowed, actual = in_words(finding)
    further = "".join(f"; {clause}" for clause in explanation(finding, below_table=below_table))
    if finding.outcome == "inconclusive" and not below_table:
        further = f"; inconclusive{further}"
    if finding.samples_needed is not None and not below_table:
        further += f"; {units.counted(finding.samples_needed, 'sample')} would decide it"
    value = f"{name_of(finding)}: {actual}, allowed {allowed}"
    return f"{units.plain(finding.model)}: {value}{further}"


def closing_line(verdict: Verdict | None) -> str:
    """Sentences for the whole verdict: broken limits, warnings, and how many samples it needs."""
    if verdict is None:
        return "No budget was checked."
    total = len(verdict.findings)
    if total == 0:
        return "The budget has no limit for any model, so nothing was checked."
    broken = [finding for finding in verdict.findings if not finding.ok]
    warned = [finding for finding in verdict.findings if finding.ok and finding.outcome != "passed"]
    needed = _needed(verdict.findings)
    if broken:
        also = f" Warnings: {_outcomes(warned)}." if warned else ""
        total_text = f" of {units.counted(total, 'limit')}"
        return f"{_outcomes(broken, total_text)}.{also}{needed}"
    if warned:
        return f"Every limit of severity error holds. Warnings: {_outcomes(warned)}.{needed}"
    return f"{units.counted(total, 'limit')} {'holds' if total == 1 else 'hold'}."


def _outcomes(findings: Sequence[Finding], total: str = "") -> str:
    counts = {
        word: sum(finding.outcome == outcome for finding in findings)
        for outcome, word in _OUTCOMES.items()
    }
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    number, word = parts[0].split(" ", 1)
    outcomes = ", ".join([f"{number}{total} {word}", *parts[1:]])
    models = ", ".join(dict.fromkeys(units.plain(finding.model) for finding in findings))
    return f"{outcomes}: {models}"


def _needed(findings: Sequence[Finding]) -> str:
    """How many samples would decide the inconclusive limits; "" where none is inconclusive."""
    undecided = [each for each in findings if each.outcome == "inconclusive" and each.samples]
    if not undecided:
        return ""
    most = max(undecided, key=lambda finding: finding.samples_needed or 0)
    of = f" of {units.plain(most.subject)}" if most.subject else ""
    if most.samples_needed is None:
        return f" Inconclusive (?): {most.samples:,} samples{of} are too few."
    needed = f"{most.samples_needed:,} samples{of} are needed"
    return f" Inconclusive (?): {needed}, there are {most.samples:,}."


def _not_allowed(actual: Value | None, allowed: tuple[str, ...]) -> str:
    if not isinstance(actual, tuple):
        return _text(actual)
    further = tuple(name for name in actual if name not in allowed)
    return _text(further) if further else units.counted(len(actual), "operator")


def _text(value: Value | None) -> str:
    if value is None or isinstance(value, float | int):
        return _number(value, 3)
    return listed(map(units.plain, (value,) if isinstance(value, str) else value), _MOST_NAMES)


def _plain_limit(finding: Finding) -> str:
    return finding.limit.replace("_", "-")


def _form_of(finding: Finding) -> Callable[[float | None, int], str]:
    """How to write a limit's values with a number of significant digits."""
    limit = _plain_limit(finding)
    if not is_share(finding.metric):
        name = units.plain(finding.metric)
        return lambda value, digits: _number(value, digits, f" {name}")
    if limit.endswith("-bytes"):
        return units.size
    if limit.endswith("-us"):
        return units.duration
    if limit.endswith("-ratio"):
        return units.times
    shares = ("-accuracy", "-rate", "-npu-operators")
    if limit == "max-relative-accuracy-drop" or limit.endswith(shares):
        return lambda value, digits: units.percent(value, digits - 1)
    if limit.endswith("-drop"):
        return lambda value, digits: units.points(value, digits - 1)
    if limit.endswith("-db"):
        return lambda value, digits: units.decibels(value, digits - 2)
    return _number


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return units.ABSENT if value is None else f"{units.significant(value, digits)}{unit}"
