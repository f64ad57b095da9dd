"""The limits of a budget in words: what each is, what was there, and who broke what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgeconv.reporting import units
from edgeconv.reporting.values import is_share
from edgeconv.types import NOT_CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.types import Finding, Value, Verdict

Mark = Literal["ok", "warn", "over", "not measured", "?", "–"]
# Of a limit: "–" was not measured, and "?" too few samples could not tell.
Word = Literal["PASS", "WARN", "FAIL", "–", "?"]
VerdictWord = Literal["PASS", "WARN", "FAIL", "NOT MEASURED", "INCONCLUSIVE"]

_MOST_DIGITS = 12
_MOST_NAMES = 5
# Where the table of a report stands beside, it has an interval of these.
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
    "max-latency-p50-us": "Median microseconds of one run. A warning, unless it says error.",
    "max-latency-ratio": "Median time over that of the float32 .tflite beside it. A warning, "
    "unless it says error.",
    "max-peak-memory-bytes": "Bytes of memory that running the model takes at most.",
    "max-arena-bytes": "Bytes of the arena that holds the tensors.",
    "max-accuracy-drop": "How much lower the accuracy is, as a fraction of 1.",
    "max-relative-accuracy-drop": "How much lower the accuracy is, over that of the reference.",
    "min-accuracy": "The accuracy itself, as a fraction of 1.",
    "max-class-drop": "The accuracy drop of the worst class.",
    "max-slice-drop": "The accuracy drop of the worst slice.",
    "max-flip-rate": "The share of samples whose class is another.",
    "min-output-snr-db": "Decibels between an output and its distance from the trained model's.",
    "oldest-runtime": "The TFLite release, as 2.14.0, that the model must still run on.",
    "allowed-operators": "The operators that the model may have.",
}
# By what is in the name of the limit.
_FIXES = {
    "size": "Take a recipe with smaller weights, or raise the limit.",
    "latency": "Time on a quiet machine again before anything else, and look at the profile of "
    "`bench`.",
    "memory": "Look at the largest tensors with `edgeconv inspect`.",
    "arena": "Look at the largest tensors with `edgeconv inspect`.",
    "runtime": "Convert with --target-runtime, which looks for a form that runs there.",
    "operators": "Change the model, or allow the operator where the target has it.",
    "check": "See the documentation of `edgeconv check`.",
    "": "Look at the stages to see where it was lost: in the trained model, or in the quantised "
    "file alone; then at the calibration data and at a recipe that loses less, as int16x8 or qat.",
}
_OUTCOMES = {"failed": "broken", "inconclusive": "inconclusive", "missing": "not measured"}


def meaning(limit: str) -> tuple[str, str]:
    """What a limit is, and what to do where it does not hold."""
    fix = next(text for part, text in _FIXES.items() if part in limit)
    return LIMIT_WORDS.get(limit.replace("_", "-"), "A limit of the budget."), fix


def mark_of(model: str, verdict: Verdict | None) -> Mark:
    """The budget mark of a model, that of its worst finding; "–" where no limit was held to it."""
    words = [word_of(f) for f in verdict.findings if f.model == model] if verdict else []
    return next((mark for word, mark in _MARKS.items() if word in words), "–")


def word_of(finding: Finding) -> Word:
    """What came of a limit: "WARN" is one that does not hold, and may."""
    if finding.outcome == "missing":
        return "–"
    if finding.outcome == "inconclusive":
        return "?"
    if finding.outcome == "passed":
        return "PASS"
    return "WARN" if finding.ok else "FAIL"


def word_of_verdict(verdict: Verdict) -> VerdictWord:
    """What came of all limits: nothing is said to be broken that was not measured or not told."""
    words = {word_of(finding) for finding in verdict.findings if not finding.ok}
    if verdict.ok:
        held = all(finding.outcome == "passed" for finding in verdict.findings)
        return "PASS" if held else "WARN"
    if "FAIL" in words or not words:
        return "FAIL"
    return "NOT MEASURED" if "–" in words else "INCONCLUSIVE"


def name_of(finding: Finding) -> str:
    """The limit, what its number is of and what from: "max-class-drop of cat (lock)"."""
    of = f" of {units.plain(finding.subject)}" if finding.subject else ""
    since = f" ({finding.reference})" if finding.reference else ""
    return f"{units.plain(finding.limit)}{of}{since}"


def in_words(finding: Finding) -> tuple[str, str]:
    """The allowed and the actual value, with a unit, precise enough to tell them apart."""
    allowed, actual = finding.allowed, finding.actual
    relation = "≥" if _plain_limit(finding).startswith("min") else "≤"
    if isinstance(allowed, tuple):
        return units.counted(len(allowed), "operator"), _besides(actual, allowed)
    if isinstance(allowed, str) or isinstance(actual, str | tuple):
        beside = "" if finding.limit == NOT_CHECKED else f"{relation} "
        return f"{beside}{_listed(allowed)}", _listed(actual)
    form = _form_of(finding)
    digits = 3
    if actual is not None and actual != allowed:
        while digits < _MOST_DIGITS and form(allowed, digits) == form(actual, digits):
            digits += 1
    return f"{relation} {form(allowed, digits)}", form(actual, digits)


def confidence(fraction: float) -> str:
    """A confidence: "95 %", "99.5 %"."""
    return f"{fraction * 100:g} %"


def explanation(finding: Finding, *, beside_table: bool = False) -> tuple[str, ...]:
    """What is to be said of a finding beside its two values, a clause each, harmless.

    `beside_table`: the table of the report is shown too, and has the interval of most numbers.
    """
    reason = units.plain(finding.reason)
    if finding.outcome == "missing":
        reason = f"not measured: {reason}" if reason else "not measured"
    is_in_table = _plain_limit(finding) in _IN_TABLE and finding.reference != "lock"
    interval = "" if beside_table and is_in_table else _interval(finding)
    return tuple(filter(None, (reason, interval, _judged(finding))))


def _interval(finding: Finding) -> str:
    """Between which values the true one is; "" where it is not known."""
    if finding.interval is None:
        return ""
    low, high = (_form_of(finding)(end, 3) for end in finding.interval)
    return f"exactly {low}" if low == high else f"95 % interval {low} to {high}"


def _judged(finding: Finding) -> str:
    """By which test, at which confidence and over what."""
    method = units.plain(finding.method)
    over = units.counted(finding.samples, "sample") if finding.samples is not None else ""
    by = ", ".join(filter(None, (method, over)))
    return f"judged at {confidence(finding.confidence)} by {by}" if finding.confidence else by


def sentence(finding: Finding, *, beside_table: bool = False) -> str:
    """A finding as one line of harmless text, but for the word of `word_of`.

    `beside_table`: `closing_line` is shown too, and says how many samples would tell.
    """
    allowed, actual = in_words(finding)
    further = "".join(f"; {said}" for said in explanation(finding, beside_table=beside_table))
    if finding.outcome == "inconclusive" and not beside_table:
        further = f"; inconclusive{further}"
    if finding.samples_needed is not None and not beside_table:
        needed = units.counted(finding.samples_needed, "sample")
        further += f"; {needed} would be enough to tell"
    value = f"{name_of(finding)}: {actual}, allowed {allowed}"
    return f"{units.plain(finding.model)}: {value}{further}"


def closing_line(verdict: Verdict | None) -> str:
    """One sentence for the whole verdict, others for warnings and for how many samples it needs."""
    if verdict is None:
        return "No budget was checked."
    total = len(verdict.findings)
    if total == 0:
        return "The budget held no model to any limit, so nothing was judged."
    broken = [finding for finding in verdict.findings if not finding.ok]
    warned = [one for one in verdict.findings if one.ok and one.outcome != "passed"]
    needed = _needed(verdict.findings)
    if broken:
        also = f" Warnings: {_outcomes(warned)}." if warned else ""
        of = f" of {units.counted(total, 'limit')}"
        return f"{_outcomes(broken, of)}.{also}{needed}"
    if warned:
        return f"No limit is broken that has to hold. Warnings: {_outcomes(warned)}.{needed}"
    return f"{units.counted(total, 'limit')} {'holds' if total == 1 else 'hold'}."


def _outcomes(findings: Sequence[Finding], of: str = "") -> str:
    """How many are broken, inconclusive and not measured, and whose they are."""
    counts = {
        word: sum(finding.outcome == outcome for finding in findings)
        for outcome, word in _OUTCOMES.items()
    }
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    number, word = parts[0].split(" ", 1)
    said = ", ".join([f"{number}{of} {word}", *parts[1:]])
    models = ", ".join(dict.fromkeys(units.plain(finding.model) for finding in findings))
    return f"{said}, by {models}"


def _needed(findings: Sequence[Finding]) -> str:
    """How many samples would tell what is inconclusive, and how many there are; "" for none."""
    untold = [one for one in findings if one.outcome == "inconclusive" and one.samples]
    if not untold:
        return ""
    most = max(untold, key=lambda one: one.samples_needed or 0)
    of = f" of {units.plain(most.subject)}" if most.subject else ""
    if most.samples_needed is None:
        return f" Inconclusive (?): {most.samples:,} samples{of} are too few to tell."
    needed = f"{most.samples_needed:,} samples{of} would tell"
    return f" Inconclusive (?): {needed}, there are {most.samples:,}."


def _besides(actual: Value | None, allowed: tuple[str, ...]) -> str:
    """The operators that are not allowed, and how many there are where all are."""
    if not isinstance(actual, tuple):
        return _listed(actual)
    further = tuple(name for name in actual if name not in allowed)
    return _listed(further) if further else units.counted(len(actual), "operator")


def _listed(value: Value | None) -> str:
    if value is None:
        return units.ABSENT
    if isinstance(value, float | int):
        return units.significant(value)
    names = (value,) if isinstance(value, str) else value
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(units.plain, names[:_MOST_NAMES])) + more


def _plain_limit(finding: Finding) -> str:
    return finding.limit.replace("_", "-")


def _form_of(finding: Finding) -> Callable[[float | None, int], str]:
    """The way to write a limit's values, given significant digits."""
    limit = _plain_limit(finding)
    if not is_share(finding.metric):
        name = units.plain(finding.metric)
        return lambda value, digits: (
            units.ABSENT if value is None else f"{units.significant(value, digits)} {name}"
        )
    if limit.endswith("-bytes"):
        return units.size
    if limit.endswith("-us"):
        return units.duration
    if limit.endswith("-ratio"):
        return units.times
    if limit == "max-relative-accuracy-drop":
        return lambda value, digits: units.percent(value, digits - 1)
    if limit.endswith("-drop"):
        return lambda value, digits: units.points(value, digits - 1)
    if limit.endswith(("-accuracy", "-rate")):
        return lambda value, digits: units.percent(value, digits - 1)
    if limit.endswith("-db"):
        return lambda value, digits: units.decibels(value, digits - 2)
    return _number


def _number(value: float | None, digits: int) -> str:
    return units.ABSENT if value is None else units.significant(value, digits)
