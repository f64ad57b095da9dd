"""Limits and findings in words."""

from collections.abc import Callable, Sequence
from typing import Literal

from edgeconv.reporting import units
from edgeconv.reporting.units import is_share
from edgeconv.types import Finding, LimitUnit, Outcome, Value, Verdict
from edgeconv.types.words import listed

Form = Callable[[float | None, int], str]


Mark = Literal["ok", "warn", "over", "not measured", "?", "–"]
# The mark of a limit: "–" was not measured, and "?" has too few samples.
Word = Literal["PASS", "WARN", "FAIL", "–", "?"]
VerdictWord = Literal["PASS", "WARN", "FAIL", "NOT MEASURED", "INCONCLUSIVE"]

_MOST_DIGITS = 12
_MOST_NAMES = 5
# The worst first.
_MARKS: dict[Word, Mark] = {
    "FAIL": "over",
    "–": "not measured",
    "?": "?",
    "WARN": "warn",
    "PASS": "ok",
}
_OUTCOMES = {"failed": "broken", "inconclusive": "inconclusive", "missing": "not measured"}


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
    relation = "≥" if finding.kind.is_minimum else "≤"
    if isinstance(allowed, tuple):
        return units.counted(len(allowed), "operator"), _not_allowed(actual, allowed)
    if isinstance(allowed, str) or isinstance(actual, str | tuple):
        sign = "" if finding.kind.unit == "text" else f"{relation} "
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
    is_in_table = finding.kind.in_table and finding.reference != "lock"
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


def _form_of(finding: Finding) -> Form:
    if is_share(finding.metric):
        return _FORMS.get(finding.kind.unit, _number)
    name = units.plain(finding.metric)
    return lambda value, digits: _number(value, digits, f" {name}")


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return units.ABSENT if value is None else f"{units.significant(value, digits)}{unit}"


# Each with a number of significant digits.
_FORMS: dict[LimitUnit, Form] = {
    "bytes": units.size,
    "us": units.duration,
    "ratio": units.times,
    "share": lambda value, digits: units.percent(value, digits - 1),
    "points": lambda value, digits: units.points(value, digits - 1),
    "count": lambda value, _: (
        units.ABSENT if value is None else units.counted(round(value), "operator")
    ),
    "db": lambda value, digits: units.decibels(value, digits - 2),
}
