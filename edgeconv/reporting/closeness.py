"""Models against their references in words: errors of outputs, drops, and what files are of."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from edgeconv.reporting import units
from edgeconv.reporting.units import interval_value
from edgeconv.types import (
    LEAST_SAMPLES,
    MAX_SNR_DB,
    Agreement,
    Artifact,
    Comparison,
    Distance,
    FloatOperators,
    Grade,
    Measurement,
    OutputError,
    Report,
    Signature,
)
from edgeconv.types.conversion import OVERLAPPING, FloatReason
from edgeconv.types.words import listed

# Further outputs of one file are counted, not listed.
_MOST_OUTPUTS = 3
_MOST_STEPS = 1 << 16
_MOST_TOLD = 4096
_TINY = 1e-4
_NOT_FINITE = "values that are not finite"


def snr(error: Distance) -> float | None:
    """The signal-to-noise ratio in decibels; None where the reference is constant."""
    is_exact = error.snr_db >= MAX_SNR_DB
    return None if error.is_flat and not is_exact else error.snr_db


def worst_snr(errors: Iterable[Distance]) -> float | None:
    """The lowest ratio of several; NaN is the worst, None where none has a ratio."""
    known = [value for error in errors if (value := snr(error)) is not None]
    return min(known, key=lambda value: (not math.isnan(value), value), default=None)


def span(error: Distance, digits: int | None = None) -> str:
    """The range of the reference: "0 to 1", "1 throughout"; of so many digits, or of 4 or 7."""
    if error.span is None:
        return units.ABSENT
    most = max(map(abs, error.span))
    # A limit that is tiny next to the other one is shown as 0.
    low, high = (_written(end if abs(end) > _TINY * most else 0.0, digits) for end in error.span)
    if error.is_flat:
        return f"{high} throughout"
    if low == high:
        low, high = (_written(end, 9) for end in error.span)
    return f"{low} to {high}"


def worst_error(artifact: Artifact) -> str:
    """The error of the worst output of a file, in a few words.

    The share of equal answers of a classifier, else the largest error in the output's own unit.
    """
    checked = artifact.verification
    if not checked.outputs:
        return units.ABSENT
    worst = worst_output(checked.outputs)
    name = f"{units.plain(worst.output)}: " if len(checked.outputs) > 1 else ""
    if _has_answers(worst):
        count = worst.samples or checked.samples
        answers = units.counted(count, "answer")
        if _has_several(artifact, worst):
            answers = f"the answers to {units.counted(count, 'sample')}"
        return f"{name}{units.percent(worst.argmax_agreement, 1)} of {answers} equal"
    if not worst.max_abs_error:
        return f"{name}equal"
    if worst.max_abs_error >= sys.float_info.max:
        return f"{name}{_NOT_FINITE}"
    inside = f" in {span(worst, 3)}" if worst.span is not None else ""
    return f"{name}max error {units.significant(worst.max_abs_error)}{inside}"


def _has_several(artifact: Artifact, error: OutputError) -> bool:
    """Whether a sample has several answers in an output, such as one a pixel."""
    shapes = (spec.shape for spec in artifact.signature.outputs if spec.name == error.output)
    inner = next(shapes, ())[1 : None if error.kind == "labels" else -1]
    return any(size != 1 for size in inner)


def worst_output(outputs: Iterable[OutputError]) -> OutputError:
    """The first of those that `error_lines` has."""
    return min(outputs, key=_badness)


def error_lines(outputs: Iterable[OutputError], samples: int) -> list[str]:
    """A line for each output of a file, the worst first, and how many more there are.

    `samples` is the number compared, for manifests that do not have it for each output.
    """
    errors = sorted(outputs, key=_badness)
    lines = [_error_line(error, error.samples or samples) for error in errors]
    more = len(lines) - _MOST_OUTPUTS
    if more > 1:
        lines[_MOST_OUTPUTS:] = [f"… {more} more outputs with smaller errors: see --json"]
    return lines


def agreement_lines(model: Measurement) -> list[str]:
    """The error of each output of a model against its reference, as a line."""
    return [agreement_line(each) for each in (*model.agreement, *model.kernels)]


def agreement_line(agreement: Agreement) -> str:
    """The error of an output against its reference, as a line."""
    what = f"{units.plain(agreement.output)} against {units.plain(agreement.reference)}"
    parts = [_largest(agreement, agreement.max_error, agreement.samples), *_ratio(agreement)]
    parts.append(f"cosine {units.significant(agreement.cosine, 5)}")
    if agreement.flips is None:
        parts.append(units.counted(agreement.samples, "sample"))
    else:
        parts.append(f"{agreement.flips} of {agreement.samples} flipped")
    return f"{what}: {', '.join(parts)}"


def comparison_lines(artifacts: Sequence[Artifact]) -> list[str]:
    """A line with the references and samples that published files were compared with, if any."""
    references: dict[str, list[str]] = {}
    checked = [(a.recipe.name, a.verification) for a in artifacts if a.verification.outputs]
    for recipe, verification in checked:
        references.setdefault(verification.reference, []).append(recipe)
    if not references:
        return []
    most = max(references, key=lambda reference: len(references[reference]))
    first, *others = sorted(references, key=lambda reference: reference == most)
    pairs = [f"{', '.join(references[first])} with the {units.plain(first)}"]
    for reference in others:
        is_rest = reference == most and len(references[reference]) > 1
        recipes = "the others" if is_rest else ", ".join(references[reference])
        pairs.append(f"{recipes} with the {units.plain(reference)}")
    synthetic = any(verification.synthetic for _, verification in checked)
    counts = {verification.samples for _, verification in checked}
    kind = f"{'synthetic ' if synthetic else ''}{'sample' if counts == {1} else 'samples'}"
    overlap = any(OVERLAPPING in artifact.notes for artifact in artifacts)
    kind += "" if synthetic or overlap else " held back from calibration"
    count = f"{max(counts)} " if len(counts) == 1 else ""
    few = ", too few to tell whether a file is close" if max(counts) < LEAST_SAMPLES else ""
    return [f"compared on {count}{kind}{few}: {', '.join(pairs)}"]


def worst_outputs(
    report: Report, models: Sequence[tuple[str, Measurement]]
) -> tuple[list[tuple[str, float | None]], str]:
    """The worst output of each file, by its label, and what it was compared with, for a plot.

    From the agreement of `models` where it was measured, else from the verification of the files.
    """
    measured = [(label, model.agreement) for label, model in models if model.agreement]
    if not measured:
        files = [(units.plain(a.recipe.name), a.verification.outputs) for a in report.artifacts]
        against = "the float32 .tflite, and float32 with the trained model, at conversion"
        return [(label, worst_snr(outputs)) for label, outputs in files], against
    every = [each for _, agreement in measured for each in agreement]
    references = " and ".join(dict.fromkeys(units.plain(each.reference) for each in every))
    against = f"{references}, on {units.counted(max(e.samples for e in every), 'sample')}"
    return [(label, worst_snr(agreement)) for label, agreement in measured], against


def _error_line(error: OutputError, samples: int) -> str:
    parts = [_largest(error, error.max_abs_error, samples, _in_steps(error)), *_ratio(error)]
    if not _has_answers(error):
        parts.append(units.counted(samples, "sample"))
    else:
        agreement = units.percent(error.argmax_agreement, 1)
        parts.append(f"argmax {agreement} of {units.counted(samples, 'sample')}")
    return f"{units.plain(error.output)}: {', '.join(parts)}"


def _has_answers(error: OutputError) -> bool:
    """Whether the largest value of an output is an answer: of a landmark it is none."""
    is_class = error.kind in ("", "classes", "scores", "labels")
    return is_class and error.argmax_agreement is not None


def _badness(error: OutputError) -> tuple[int, float, float, str]:
    """The worst grade first, then the fewest equal answers, then the lowest ratio.

    A probability is next to what it may be, 1: it may hardly differ between the samples.
    """
    agreement = error.argmax_agreement if _has_answers(error) else None
    ratio = snr(error)
    if error.kind == "probabilities" and error.probability_error:
        ratio = -20 * math.log10(error.probability_error)
    return (
        -get_args(Grade).index(error.grade),
        1.0 if agreement is None else agreement,
        math.inf if ratio is None else ratio,
        error.output,
    )


def _largest(error: Distance, largest: float, samples: int, in_steps: str = "") -> str:
    text = f"max error {units.significant(largest)}{in_steps}" if largest else "no error"
    if largest >= sys.float_info.max:
        text = _NOT_FINITE
    if error.span is None:
        return text
    is_same = error.is_constant and not error.is_flat and samples > 1
    same = ", the same for every sample" if is_same else ""
    return f"{text} (outputs {'are' if error.is_flat else 'span'} {span(error)}{same})"


def _written(value: float, digits: int | None = None) -> str:
    digits = digits or (4 if abs(value) < 1000 else 7)
    return f"{value:.{digits}g}".replace("-", "−")


def _in_steps(error: OutputError) -> str:
    is_fine = error.span is not None and error.span[1] - error.span[0] > _MOST_TOLD * error.step
    # In steps of 16 bits, an error is a large number that says nothing: the weights are its cause.
    if not error.step or (is_fine and not error.is_within_step):
        return ""
    if error.is_within_step:
        inverse = 1 / error.step
        is_whole = inverse == int(inverse) and 1 < inverse <= _MOST_STEPS
        step = f"1/{int(inverse)}" if is_whole else units.significant(error.step)
        return f", within one quantization step of {step}"
    return f", {units.significant(error.max_abs_error / error.step, 2)} quantization steps"


def _ratio(error: Distance) -> list[str]:
    ratio = snr(error)
    is_exact = ratio is not None and ratio >= MAX_SNR_DB
    return [] if ratio is None or is_exact else [f"SNR {units.decibels(ratio)}"]


def weights(artifact: Artifact) -> str:
    """The shares of the weights that are stored as integers and as float16."""
    shares = (artifact.quantized_weight_share, "int"), (artifact.float16_weight_share, "f16")
    return ", ".join(f"{units.percent(s, 1)} {kind}" for s, kind in shares if s != 0) or "float"


def io_types(signature: Signature) -> str:
    """The dtypes of inputs and outputs: "float32" where all are equal, else "int8 → float32"."""
    sides = (signature.inputs, signature.outputs)
    into, out = (", ".join(dict.fromkeys(units.plain(t.dtype) for t in side)) for side in sides)
    return into if into == out else f"{into} → {out}"


def difference_lines(report: Report) -> list[str]:
    """Which drops are within chance, and a line for each comparison of two artifacts."""
    drops = "; ".join(_drops(report))
    compared = [_compared(comparison) for comparison in report.comparisons]
    return [*([f"drop: {drops}"] if drops else []), *compared]


def _drops(report: Report) -> Iterator[str]:
    intervals = [
        (units.plain(model.name), model.accuracy_drop_interval)
        for model in report.measurements
        if model.accuracy_drop_interval is not None
    ]
    within = [name for name, (low, high) in intervals if low <= 0 <= high]
    if within:
        yield f"within chance for {', '.join(within)} (0 is in the 95 % interval)"
    worse = [name for name, (low, _) in intervals if low > 0]
    if worse:
        yield f"worse beyond chance for {', '.join(worse)}"
    better = [name for name, (_, high) in intervals if high < 0]
    if better:
        yield f"better beyond chance for {', '.join(better)}"


def _compared(comparison: Comparison) -> str:
    low, high = comparison.interval
    verdict = "better beyond" if low > 0 else "worse beyond" if high < 0 else "within"
    sign = "+" if comparison.difference > 0 else ""
    points = units.points(comparison.difference).replace(" pp", " points")
    return (
        f"{units.plain(comparison.model)} against {units.plain(comparison.other)}: "
        f"{sign}{points} {interval_value(comparison.interval, '')}, "
        f"{comparison.fixed} fixed, {comparison.broken} broken: {verdict} chance"
    )


_REASONS: dict[FloatReason, str] = {
    "no kernel": "no integer kernel",
    "rule": "kept in float",
    "engine": "not quantized",
    "neighbor": "between them",
}
_KINDS = 3


def floats_line(artifact: Artifact) -> str:
    """What computes in float in a file of integers, how often, where and why; "" for nothing."""
    left = artifact.left_in_float
    if not left:
        return ""
    parts = [_part(each) for each in left[:_KINDS]]
    more = sum(each.count for each in left[_KINDS:])
    if more:
        parts.append(f"{more} more between them or like them")
    share = units.percent(artifact.integer_share or 0.0, 1)
    return units.plain(f"{share} of the work in integers; in float: {'; '.join(parts)}")


def grade_line(artifact: Artifact) -> str:
    """Why a file is only usable, or poor, and what would make it better; "" where it is close."""
    checked = artifact.verification
    if checked.grade not in ("usable", "poor"):
        return ""
    graded = [each for each in checked.outputs if each.grade == checked.grade]
    worst = worst_output(graded)
    name = f"{worst.output}: " if len(checked.outputs) > 1 else ""
    more = f" and {units.counted(len(graded) - 1, 'more output')}" if len(graded) > 1 else ""
    closer = f"; closer: {checked.advice}" if checked.advice else ""
    return units.plain(f"{checked.grade}: {name}{_why(worst)}{more}{closer}")


def _why(error: OutputError) -> str:
    """The measure that gave an output its grade, with its interval where that is wide."""
    if error.kind in ("classes", "scores", "labels") and error.argmax_agreement is not None:
        from edgeconv.statistics.estimate import share_interval

        same = round(error.argmax_agreement * error.samples)
        low, high = share_interval(same, error.samples)
        answers = (
            f"{units.percent(error.argmax_agreement, 1)} of the answers are float's (95 % interval "
            f"{units.percent(low, 0)} to {units.percent(high, 0)})"
        )
        if error.probability_error is None:
            return answers
        return f"{answers}, probabilities off by up to {error.probability_error:.2g}"
    if error.probability_error is not None:
        return f"a probability is off by up to {error.probability_error:.2g}"
    largest = f"up to {units.significant(error.max_abs_error)}"
    if error.is_flat:
        return f"off by {largest}, and {span(error)}"
    share = units.percent(10 ** (-error.snr_db / 20), 1)
    return f"off by {share} of the deviation, {largest}"


def _part(each: FloatOperators) -> str:
    times = f" ×{each.count}" if each.count > 1 else ""
    return f"{each.name}{times} in {listed(each.layers, 2)} ({_REASONS[each.reason]})"
