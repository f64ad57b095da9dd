"""Whether calibration samples can be what the model was trained on.

The held-back samples come from the same source, so the file of a wrong set passes
verification. What is compared here does not come from there: the statistics of
the model's normalization layers, what a trained model answers, and the samples themselves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.data import read_samples
from edgeconv.data.plausibility import evenly
from edgeconv.errors import SuspectCalibration
from edgeconv.statistics.answers import answer_remarks, is_at_chance, is_saturated
from edgeconv.types import Suspicion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Session
    from edgeconv.tf.reference import StatisticsCheck
    from edgeconv.types import CalibrationRecord, InputRange, Recipe

# Distances from the statistics: of a set that may be wrong, and of one that cannot be right. Right
# ones of 20 samples and more were at most 0.74 away; see docs/data.md.
_DOUBTFUL, _WRONG = 0.9, 1.8
# With fewer samples than these, chance is larger.
_ENOUGH = 20


class CalibrationCheck(NamedTuple):
    """What is suspicious about the samples of one signature, and their distance in its layers.

    `better` is the preprocessing with which they would fit, where one was found.
    """

    suspicions: tuple[Suspicion, ...]
    distance: float | None = None
    better: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether the samples cannot be right."""
        return any(suspicion.is_certain for suspicion in self.suspicions)


def check_calibration(session: Session) -> dict[str, CalibrationCheck]:
    """The check of each signature's calibration samples; {} where none were given."""
    return {
        part.signature.key: _check(session, part)
        for part in session.prepared.parts
        if part.split.record is not None
    }


def refuse_suspect(session: Session, recipe: Recipe) -> None:
    """Raise `SuspectCalibration` for a calibrated recipe whose samples cannot be right."""
    if session.run.plan.request.allow_suspect_calibration or not recipe.calibrates:
        return
    for key, check in session.calibration.items():
        if not check.is_wrong:
            continue
        (part,) = (part for part in session.prepared.parts if part.signature.key == key)
        assert part.split.record is not None, "it was checked"
        raise SuspectCalibration(
            f"{recipe.name}: the calibration samples of {part.split.record.source} cannot be what "
            f"the model was trained on: {'; '.join(each.reason for each in check.suspicions)}"
            f"\n  they are {_ranges(part.split.record)}",
            hint=_hint(check),
        )


def calibration_warnings(session: Session, recipe: Recipe) -> tuple[str, ...]:
    """A warning for each suspicion about the samples of a calibrated recipe."""
    if not recipe.calibrates:
        return ()
    return tuple(
        f"calibration samples: {suspicion.reason}"
        for check in session.calibration.values()
        for suspicion in check.suspicions
    )


def _hint(check: CalibrationCheck) -> str:
    allowed = "--allow-suspect-calibration converts all the same"
    if "exchanged" in check.better:
        return f"they fit with {check.better}: correct the data, or rename its arrays; {allowed}"
    if check.better:
        return f"they fit with --preprocess '{check.better}' after what is done now; {allowed}"
    return (
        "give samples with the preprocessing of the training, which edgeconv doctor MODEL DATA "
        f"finds; {allowed}"
    )


def _ranges(record: CalibrationRecord) -> str:
    return "; ".join(each.text for each in record.inputs) or "not numbers"


def _check(session: Session, part: Part) -> CalibrationCheck:
    key, split = part.signature.key, part.split
    assert split.record is not None, "it is checked"
    assert split.calibration is not None, "it has a record"
    answer = session.reference.answer if session.reference else None
    if answer and key in answer.failed:
        refused = f"the trained model does not take them: {answer.failed[key]}"
        return CalibrationCheck((*split.record.suspicions, Suspicion(refused, is_certain=True)))
    if session.reference is None or answer is None:
        outputs, labels = session.expected.outputs[key], read_samples(split.held_back).labels
        return verify_samples(split.record, outputs, labels)
    statistics = answer.statistics[key]
    samples = read_samples(split.calibration)
    labels = samples.take(evenly(samples.count, statistics.samples)).labels
    outputs = session.reference.checked(key)
    return verify_samples(split.record, outputs, labels, statistics)


def verify_samples(
    record: CalibrationRecord,
    outputs: Mapping[str, NDArray[Any]],
    labels: NDArray[Any] | None,
    statistics: StatisticsCheck | None = None,
) -> CalibrationCheck:
    """The check of samples from what is known of them.

    `record` has their ranges, and what is suspicious about the samples alone. `outputs`, (samples,
    ...), are what the float model answers to some of them, `labels`, (samples,), those of these.
    """
    layers = list(_layer_suspicions(statistics)) if statistics else []
    remarks = list(answer_remarks(outputs))
    # As those of a model that is not trained well are, too.
    useless = [
        f"the float model's answers in {name!r} have nothing to do with the labels"
        for name, output in outputs.items()
        if is_at_chance(output, labels)
    ]
    is_unscaled = _has_pixels(record.inputs) and any(map(is_saturated, outputs.values()))
    # What is strange about the answers may be the model's own; both together are not.
    is_wrong = is_unscaled or bool(layers and remarks)
    farthest = statistics.farthest if statistics else None
    return CalibrationCheck(
        (
            *record.suspicions,
            *layers,
            *(Suspicion(remark, is_wrong) for remark in remarks),
            *map(Suspicion, useless),
        ),
        farthest.distance if farthest else None,
        statistics.better if statistics else "",
    )


def _layer_suspicions(check: StatisticsCheck) -> Iterator[Suspicion]:
    farthest = check.farthest
    if farthest is None:
        return
    chance = max(1.0, math.sqrt(_ENOUGH / check.samples))
    is_doubtful = farthest.distance > _DOUBTFUL * chance
    if not is_doubtful and not (check.better and check.samples >= _ENOUGH):
        return
    reason = (
        f"in the normalization layer {farthest.name!r} their mean is {farthest.shift:.3g} standard "
        f"deviations from that of the training, and their deviation differs by a factor of "
        f"{farthest.factor:.3g}"
    )
    if check.better:
        reason += (
            f"; with {check.better} the distance would be {check.better_distance:.2g} instead of "
            f"{farthest.distance:.2g}"
        )
    is_far = farthest.distance > _WRONG * chance
    yield Suspicion(reason, is_far or (is_doubtful and bool(check.better)))


def _has_pixels(inputs: tuple[InputRange, ...]) -> bool:
    """Whether an input has whole numbers of 0 to 255, as images are stored."""
    return any(each.is_whole and each.low >= 0 and 1 < each.high <= 255 for each in inputs)
