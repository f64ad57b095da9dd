"""How far outputs are from those of a reference, in their own unit and in words."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.types import (
        Agreement,
        Artifact,
        Distance,
        Measurement,
        OutputError,
        Report,
    )

# Further outputs of one file are counted, not listed.
_MOST_OUTPUTS = 3
_MOST_STEPS = 1 << 16
_TINY = 1e-4


def snr(error: Distance) -> float | None:
    """The signal-to-noise ratio in decibels; None where the reference has no signal to speak of."""
    is_exact = error.snr_db >= MAX_SNR_DB
    return None if error.is_flat and not is_exact else error.snr_db


def worst_snr(errors: Iterable[Distance]) -> float | None:
    """The lowest of several; NaN is worse than all, None where none has one."""
    known = [value for error in errors if (value := snr(error)) is not None]
    return min(known, key=lambda value: (not math.isnan(value), value), default=None)


def span(error: Distance) -> str:
    """Between which values the reference lies: "0 to 1", "1 throughout"."""
    if error.span is None:
        return units.ABSENT
    most = max(map(abs, error.span))
    # What is next to nothing beside the other end is as good as 0.
    low, high = (_written(end if abs(end) > _TINY * most else 0.0) for end in error.span)
    if error.is_flat:
        return f"{high} throughout"
    if low == high:
        low, high = (_written(end, 9) for end in error.span)
    return f"{low} to {high}"


def error_lines(outputs: Iterable[OutputError], samples: int) -> list[str]:
    """A line for each output of a file, the worst first; of many, how many more.

    `samples` is how many were compared, for manifests that do not say it of each output.
    """
    errors = sorted(outputs, key=_badness)
    lines = [_error_line(error, error.samples or samples) for error in errors]
    more = len(lines) - _MOST_OUTPUTS
    if more > 1:
        lines[_MOST_OUTPUTS:] = [f"… {more} more outputs, which are closer: see --json"]
    return lines


def agreement_line(agreement: Agreement) -> str:
    """How far an output is from its reference, in a few words."""
    what = f"{units.plain(agreement.output)} against {units.plain(agreement.reference)}"
    parts = [_largest(agreement, agreement.max_error, agreement.samples), *_ratio(agreement)]
    parts.append(f"cosine {units.significant(agreement.cosine, 5)}")
    if agreement.flips is None:
        parts.append(units.counted(agreement.samples, "sample"))
    else:
        parts.append(f"{agreement.flips} of {agreement.samples} flipped")
    return f"{what}: {', '.join(parts)}"


def compared_with(artifacts: Sequence[Artifact]) -> list[str]:
    """What the lines of published files are against, and on which samples; nothing of none."""
    references: dict[str, list[str]] = {}
    for artifact in artifacts:
        if artifact.verification.outputs:
            recipes = references.setdefault(artifact.verification.reference, [])
            recipes.append(artifact.recipe.name)
    if not references:
        return []
    said = "; ".join(
        f"{', '.join(recipes)} with the {units.plain(reference)}"
        for reference, recipes in references.items()
    )
    synthetic = any(artifact.verification.synthetic for artifact in artifacts)
    kind = "made-up samples" if synthetic else "samples held back from calibration"
    return [f"compared on {kind}: {said}"]


def pictured(
    report: Report, models: Sequence[tuple[str, Measurement]]
) -> tuple[list[tuple[str, float | None]], str]:
    """The worst output of each file, by its label, and what it is against, for a picture.

    What `bench` measured of `models` where it did, which is what the tables beside say; else what
    was found when the files were made.
    """
    measured = [(label, model.agreement) for label, model in models if model.agreement]
    if not measured:
        files = [(units.plain(a.recipe.name), a.verification.outputs) for a in report.artifacts]
        said = "the float32 .tflite, float32 against the trained model, when it was converted"
        return [(label, worst_snr(outputs)) for label, outputs in files], said
    every = [each for _, agreement in measured for each in agreement]
    references = " and ".join(dict.fromkeys(units.plain(each.reference) for each in every))
    said = f"{references}, on {units.counted(max(e.samples for e in every), 'sample')}"
    return [(label, worst_snr(agreement)) for label, agreement in measured], said


def _error_line(error: OutputError, samples: int) -> str:
    parts = [_largest(error, error.max_abs_error, samples, _in_steps(error)), *_ratio(error)]
    if error.argmax_agreement is None:
        parts.append(units.counted(samples, "sample"))
    else:
        agreement = units.percent(error.argmax_agreement, 1)
        parts.append(f"argmax {agreement} of {units.counted(samples, 'sample')}")
    return f"{units.plain(error.output)}: {', '.join(parts)}"


def _badness(error: OutputError) -> tuple[float, float, str]:
    agreement = 1.0 if error.argmax_agreement is None else error.argmax_agreement
    found = snr(error)
    return agreement, math.inf if found is None else found, error.output


def _largest(error: Distance, largest: float, samples: int, in_steps: str = "") -> str:
    """The largest error and what it is to be seen beside."""
    said = f"max error {units.significant(largest)}{in_steps}" if largest else "no error"
    if largest >= sys.float_info.max:
        said = "values that are not finite"
    if error.span is None:
        return said
    same = ", the same for every sample" if error.is_constant and not error.is_flat else ""
    return f"{said} (outputs {_spanning(error)}{same if samples > 1 else ''})"


def _spanning(error: Distance) -> str:
    return f"are {span(error)}" if error.is_flat else f"span {span(error)}"


def _written(value: float, digits: int | None = None) -> str:
    digits = digits or (4 if abs(value) < 1000 else 7)
    return f"{value:.{digits}g}".replace("-", "−")


def _in_steps(error: OutputError) -> str:
    if not error.step:
        return ""
    if error.is_within_step:
        inverse = 1 / error.step
        is_whole = inverse == int(inverse) and 1 < inverse <= _MOST_STEPS
        step = f"1/{int(inverse)}" if is_whole else units.significant(error.step)
        return f", within one quantization step of {step}"
    return f", {units.significant(error.max_abs_error / error.step, 2)} quantization steps"


def _ratio(error: Distance) -> list[str]:
    found = snr(error)
    is_exact = found is not None and found >= MAX_SNR_DB
    return [] if found is None or is_exact else [f"SNR {units.decibels(found)}"]
