"""Whether calibration samples can be what the model was trained on.

The held-back samples come from the same source, so the file of a wrong set passes
verification. What is compared here does not come from there: the statistics of
the model's normalization layers, what a trained model answers, and the samples themselves.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.samples import evenly, is_image
from edgeconv.data.suspects import (
    answer_remarks,
    are_hit,
    classes_of,
    is_at_chance,
    is_larger,
    is_overdriven,
    is_saturated,
    more_right,
    more_telling,
    other_preprocessings,
    saturated_share,
    state_suspicions,
    usual_scales,
    variation,
)
from edgeconv.model.tflite import constant_outputs
from edgeconv.model.tflite.cut import decided_outputs
from edgeconv.types import CalibrationRecord, InputRange, Recipe, Suspicion
from edgeconv.types.errors import SuspectCalibration, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Session
    from edgeconv.tf.normalization import ScaledTwice
    from edgeconv.tf.reference import StatisticsCheck

# Distances from the statistics: of a set that may be wrong, and of one that cannot be right. Right
# ones of 20 samples and more were at most 0.74 away; see docs/data.md.
_DOUBTFUL, _WRONG = 0.9, 1.8
# And the spread over the channels of one that cannot be right: that of right ones was 0.44 at most.
_WIDE = 3.0
# With fewer samples than these, chance is larger than they show.
_ENOUGH = 20
# By how much more answers tell of samples in the scale that is right. Digits in the wrong one: 0.6.
_CLEARLY_APART = 0.4
# What images, and any inputs, of a usual scale span more than, and how much answers to the right
# ones vary at least: few of a trained model vary by less than 0.7, those to an eighth of the scale
# by 0.1.
_NARROW, _TINY, _VARIED, _STILL = 0.25, 0.05, 0.3, 0.05
# The share of what answers tell that they keep in a smaller scale, if that may be right.
_KEPT = 0.5


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


def refuse_suspect(session: Session, recipe: Recipe, *, used: bool) -> None:
    """Raise `SuspectCalibration` for a recipe that `used` samples that cannot be right."""
    if session.run.plan.request.allow_suspect_calibration or not (used and recipe.calibrates):
        return
    for key, check in session.calibration.items():
        if not check.is_wrong:
            continue
        (record,) = (p.split.record for p in session.prepared.parts if p.signature.key == key)
        assert record is not None, "it was checked"
        reasons = (each.reason for each in check.suspicions)
        hint = _hint(check)
        if not recipe.has_ranges:
            hint += "; --methods none uses no samples"
        raise _cannot_be(record, f"{recipe.name}: ", "; ".join(reasons), hint)


def refuse_untaken(session: Session) -> None:
    """Raise `SuspectCalibration` for samples of the user that the trained model does not take.

    There is nothing to verify any file with.
    """
    answer = session.reference.answer if session.reference else None
    for record in (part.split.record for part in session.prepared.parts):
        if answer and record and record.signature not in answer.outputs:
            raise _cannot_be(
                record,
                "",
                f"the trained model does not take them: {answer.failed[record.signature]}",
                "give samples with the preprocessing used in training: of ids, none beyond the "
                "model's vocabulary",
            )


def _cannot_be(
    record: CalibrationRecord, recipe: str, reasons: str, hint: str
) -> SuspectCalibration:
    return SuspectCalibration(
        f"{recipe}the calibration samples of {record.source} cannot be what the model was trained "
        f"on: {reasons}\n  they are {_ranges(record)}",
        hint=hint,
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
    allowed = "--allow-suspect-calibration converts anyway"
    if "exchanged" in check.better:
        return f"they fit with {check.better}: correct the data, or rename its arrays; {allowed}"
    if check.better:
        return (
            f"they fit with --preprocess '{check.better}' after the current preprocessing; "
            f"{allowed}"
        )
    return (
        "give samples with the preprocessing used in training, which edgeconv doctor MODEL DATA "
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
    samples = read_samples(split.calibration)
    more = state_suspicions(samples.arrays, split.states) if split.states else ()
    suspicions = (*split.record.suspicions, *more)
    record = msgspec.structs.replace(split.record, suspicions=suspicions)
    images = [spec.name for spec in part.signature.inputs if is_image((1, *spec.shape[1:]))]
    content = session.prepared.float_model.read_bytes()
    # They say little of the samples: one-hot classes are as certain of wrong ones.
    left_out = constant_outputs(content, key) | decided_outputs(content, key)
    if session.reference is None or answer is None:
        outputs, labels = session.expected.outputs[key], read_samples(split.held_back).labels
        outputs = {name: array for name, array in outputs.items() if name not in left_out}
        statistics = _answers_of_graph(session, part)
        return verify_samples(record, outputs, labels, statistics, images=images)
    statistics = answer.statistics[key]
    labels = samples.take(evenly(samples.count, statistics.samples)).labels
    checked = session.reference.checked(key)
    outputs = {name: array for name, array in checked.items() if name not in left_out}
    return verify_samples(record, outputs, labels, statistics, images=images)


def _answers_of_graph(session: Session, part: Part) -> StatisticsCheck:
    """What the float32 graph tells of some held-back samples, and of these in a smaller scale."""
    from edgeconv.tf.reference import StatisticsCheck

    split, outputs = part.split, session.expected.outputs[part.signature.key]
    held_back = read_samples(split.held_back)
    most = min(held_back.count, max(_ENOUGH, split.batch)) // split.batch * split.batch
    some = held_back.take(evenly(held_back.count, most))

    def answered(
        name: str, changed: Iterator[tuple[str, dict[str, NDArray[Any]]]]
    ) -> Iterator[tuple[str, Mapping[str, NDArray[Any]]]]:
        for number, (steps, arrays) in enumerate(changed):
            directory = split.held_back.with_name(f"{name}-{number}")
            write_samples(Samples(arrays, None, some.source), directory)
            # Ids that were scaled are beyond a table.
            with contextlib.suppress(ToolFailed):
                yield steps, session.answers_to(part, directory)

    better, information = more_telling(
        outputs, answered("scaled", usual_scales(some.arrays, outputs))
    )
    some_outputs = {n: a[evenly(held_back.count, most)] for n, a in outputs.items()}
    others = answered("other", other_preprocessings(some.arrays))
    right, hits = more_right(some.labels, some_outputs, others)
    return StatisticsCheck(samples=most, better=right or better, information=information, hits=hits)


def verify_samples(
    record: CalibrationRecord,
    outputs: Mapping[str, NDArray[Any]],
    labels: NDArray[Any] | None,
    statistics: StatisticsCheck | None = None,
    *,
    images: Collection[str] = (),
) -> CalibrationCheck:
    """The check of samples from what is known of them.

    `record` has their ranges, and what is suspicious about the samples alone. `outputs`, (samples,
    ...), are what the float model answers to some of them, `labels`, (samples,), those of these.
    `images` names the inputs that are images.
    """
    layers = list(_layer_suspicions(statistics)) if statistics else []
    unsettled = [] if layers or statistics is None else list(_unsettled(statistics))
    # Those of a model whose statistics are not right yet are its own.
    remarks = [] if unsettled else list(answer_remarks(outputs))
    # As those of a model that is not trained well are, too.
    useless = [
        f"the float model's answers in {name!r} have nothing to do with the labels"
        for name, output in outputs.items()
        if not unsettled and is_at_chance(output, classes_of(labels, name))
    ]
    is_unscaled = _has_pixels(record.inputs) and any(map(is_saturated, outputs.values()))
    overdriven = [
        Suspicion(f"on these pixels of 0 to 255, the float model's {name!r} goes to extremes")
        for name, output in outputs.items()
        if not is_unscaled and _has_pixels(record.inputs) and is_overdriven(output)
    ]
    farthest = statistics.farthest if statistics else None
    # What is strange about the answers may be the model's own; both together are not.
    # No training gets the probabilities of every sample to exactly 0 and 1.
    at_ends = any(saturated_share(output) == 1 for output in outputs.values())
    is_extreme = is_unscaled or (farthest is None and at_ends)
    seen = bool(layers) and not (statistics and is_larger(statistics.better))
    is_wrong = (is_extreme and not _fits_only_as_is(statistics)) or bool(seen and remarks)
    is_wrong = is_wrong and not are_hit(labels, outputs)
    twice = statistics.twice if statistics else None
    better = statistics.better if statistics else ""
    found = (
        *record.suspicions,
        *layers,
        *(_scaled_twice(statistics, twice) if statistics and twice else ()),
        *(Suspicion(remark, is_wrong) for remark in remarks),
        *(Suspicion(remark, seen) for remark in useless),
        *overdriven,
        *_narrow(record.inputs, images, outputs.values()),
    )
    is_refused = any(each.is_certain for each in found)
    return CalibrationCheck(
        found if is_refused else (*unsettled, *found),
        farthest.distance if farthest else None,
        better or (twice.steps if twice and twice.is_confirmed else ""),
    )


def _layer_suspicions(check: StatisticsCheck) -> Iterator[Suspicion]:
    farthest = check.farthest
    if farthest is None:
        if check.hits:
            hits = check.hits
            reason = (
                f"of {hits.count} labels the float model's answers hit {hits.own} as they are, and "
                f"{hits.other} with {check.better}"
            )
            yield Suspicion(reason, is_certain=True)
        elif check.better:
            own, other = check.information
            reason = (
                f"the float model's answers carry {other:.0%} of the possible information with "
                f"{check.better}, and {own:.0%} as they are"
            )
            is_clear = other - own > _CLEARLY_APART and check.samples >= _ENOUGH
            # A model that was hardly trained is surer of itself with larger samples, too.
            if is_clear or not is_larger(check.better):
                yield Suspicion(reason, is_clear and not is_larger(check.better))
        return
    # Deep layers lag behind those before them.
    chance = max(1.0, math.sqrt(_ENOUGH / check.samples)) * (1 + check.left)
    is_doubtful = farthest.excess > _DOUBTFUL * chance
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
            f"{check.own_distance:.2g}"
        )
    # A layer that no other one is before is the surest, but one trained elsewhere may be far off.
    # Of a short training it is the only one: in deep layers, what lags adds up.
    both = (check.first,) if check.left else (farthest, check.first)
    is_far = any(
        each.excess > _WRONG * chance or each.spread > _WIDE for each in both if each is not None
    )
    if check.left and not is_far:
        return
    yield Suspicion(reason, is_doubtful and (is_far or bool(check.better)))


def _unsettled(check: StatisticsCheck) -> Iterator[Suspicion]:
    """That the statistics are not those of the training yet, which is no fault of the samples."""
    if check.left:
        yield Suspicion(
            f"batch normalization has not converged: variance = {check.left:.2g} + "
            f"{1 - check.left:.2g} × that of the data, so the model answers "
            "otherwise than in its training; train longer, or with a lower momentum"
        )


def _scaled_twice(check: StatisticsCheck, twice: ScaledTwice) -> Iterator[Suspicion]:
    reason = (
        f"the model divides {twice.name!r} by {twice.divisor:.4g} itself, and they reach "
        f"{twice.high:.3g} only"
    )
    hits = twice.hits
    # `_layer_suspicions` says the same of the same steps.
    is_said = check.farthest is None and check.hits and check.better == twice.steps
    if hits and not is_said:
        reason += (
            f"; of {hits.count} labels its answers hit {hits.own} as they are, and {hits.other} "
            f"with {twice.steps}"
        )
    elif not hits:
        reason += f": give them unscaled, or with --preprocess '{twice.steps}'"
    yield Suspicion(reason, twice.is_confirmed)


def _fits_only_as_is(statistics: StatisticsCheck | None) -> bool:
    """Whether smaller samples would tell the model little, as if it was trained on these pixels."""
    own, other = statistics.information if statistics else (0.0, 0.0)
    return 0 < other < _KEPT * own


def _narrow(
    inputs: Iterable[InputRange], images: Collection[str], outputs: Iterable[NDArray[Any]]
) -> Iterator[Suspicion]:
    """Inputs of a scale that is not usual, of which the model sees nothing."""
    varied = max((variation(each) for each in outputs if each.dtype.kind == "f"), default=math.inf)
    for each in inputs:
        is_image = each.name in images
        if 0 < each.high - each.low < (_NARROW if is_image else _TINY) and varied < _VARIED:
            yield Suspicion(
                f"{'the images ' if is_image else ''}{each.name!r} span "
                f"{each.high - each.low:.3g} only, and the float model gives almost the same "
                "answer for all",
                varied < _STILL,
            )


def _has_pixels(inputs: tuple[InputRange, ...]) -> bool:
    """Whether an input has whole numbers of 0 to 255, as images are stored."""
    return any(each.is_whole and each.low >= 0 and 1 < each.high <= 255 for each in inputs)
