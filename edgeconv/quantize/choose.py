"""Which ranges and methods serve a recipe best, by held-back calibration samples.

The plain file comes first, and where that is close enough to the float graph nothing else is
tried. Labels and the samples that verify the result take no part. What is chosen is made again
with all calibration samples.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.quantize.sensitivity import comparison_feeds
from edgeconv.quantize.trials import QuantizeTrials
from edgeconv.quantize.worker import NOT_TRIED
from edgeconv.statistics.sample_errors import sample_errors
from edgeconv.tflite import steps_by_output
from edgeconv.types import MAX_SNR_DB, MethodTrial, PostTraining

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph, Feed
    from edgeconv.quantize.parted import OutputArrays
    from edgeconv.statistics.sample_errors import SampleErrors
    from edgeconv.types import CalibrationRange, Closeness, PostTrainingMethod, Recipe

    Methods = tuple[PostTrainingMethod, ...]

# A third of the samples is held back. Where that is fewer than `_ENOUGH`, the other thirds take
# turns until that many have been compared, each on a file that has not seen them.
_PARTS = 3
_ENOUGH, _MOST = 64, 128
# Bias correction needs 16 to fit, which are two thirds of these.
MIN_SAMPLES_TO_CHOOSE = 24
# A file is close enough where its error is surely below 3 % of the output; below 6 % where the
# output is a classifier's and at most one answer in a hundred differs. On fresh samples of trained
# classifiers about 1 % of the answers differ at 25 dB.
_CLOSE_DB, _CLOSE_CLASSIFIER_DB, _CLOSE_AGREEMENT = 30.0, 25.0, 0.99
# At half a percent of the output, answers differ only where the float model has none.
_SURELY_CLOSE_DB = 46.0
# A gain must surely be above this: a narrower range certainly loses something, and has to be
# worth it.
_MARGIN_DB, _RANGE_MARGIN_DB = 0.1, 0.5
_RANGES: tuple[CalibrationRange, ...] = ("minmax", "percentile", "mse", "kl")
_METHODS: Methods = ("equalization", "bias-correction", "rounding")
# What is added to those that helped, the cheapest first. With scales by channel, 8 bits seldom
# need equalization; 4 bits always need rounding, and the bias follows the weights.
_STEPS: tuple[Methods, ...] = (("bias-correction",), ("rounding",), ("equalization",))
_FOUR_BIT_STEPS: tuple[Methods, ...] = (
    ("equalization",),
    ("bias-correction", "rounding"),
    ("bias-correction",),
)


class ChosenFile(NamedTuple):
    """A file, and the methods that made it; None where nothing was chosen or done.

    `choosing_s` is what the choice took, in seconds.
    """

    file: QuantizedModel
    record: PostTraining | None
    choosing_s: float = 0.0


class _HeldBackTrial(NamedTuple):
    """Settings, and the errors of their files on the samples held back from each.

    `errors` is None where no file could be made, `failed` says why. `four_bit`: a layer has
    weights of 4 bits.
    """

    settings: MethodSettings
    errors: SampleErrors | None
    four_bit: bool = False
    failed: str = ""

    def record(self) -> MethodTrial:
        errors = self.errors
        return MethodTrial(
            calibration_range=self.settings.calibration_range,
            methods=self.settings.methods,
            snr_db=-MAX_SNR_DB if errors is None else errors.snr_db,
            agreement=None if errors is None else errors.agreement,
            failed=self.failed,
        )


class MethodSearch:
    """Makes the file of each recipe of one graph, with the methods that serve it best.

    `dense_per_tensor` is for older runtimes, see `quantizer_recipe`.
    """

    def __init__(self, graph: CalibratedGraph, *, dense_per_tensor: bool = False) -> None:
        self.graph = graph
        self._dense_per_tensor = dense_per_tensor

    def file(self, recipe: Recipe) -> ChosenFile:
        """The file of a recipe, with the ranges and methods that its "auto" stands for.

        Where the samples are too few to choose by, and where a comparison fails, "auto" stands
        for nothing, and a note says why. Raises `ToolFailed` where nothing can be made of the
        graph, and `UsageError` for options that do not fit it or its samples.
        """
        plain = MethodSettings(_ranges_of(recipe)[0], _named(recipe))
        if recipe.methods != ("auto",) and len(_ranges_of(recipe)) == 1:
            return self._without_choice(recipe, plain)
        why_not = self._too_few()
        if why_not:
            return self._without_choice(recipe, plain, f"{NOT_TRIED}: {why_not}")
        started_s = time.perf_counter()
        try:
            trials = list(self._run_trials(recipe))
        except (ToolFailed, InputRefused) as error:
            return self._without_choice(recipe, plain, f"{NOT_TRIED}: {error.headline}")
        best = _best(trials)
        file = self._make(recipe, best.settings)
        record = _record(
            best.settings,
            file,
            trials=tuple(trial.record() for trial in trials),
            held_back=sum(trials.samples for trials in self._folds),
            closeness=closeness(best.errors),
        )
        return ChosenFile(file, record, time.perf_counter() - started_s)

    def _make(self, recipe: Recipe, settings: MethodSettings) -> QuantizedModel:
        """The file that is published: fitted to all calibration samples."""
        return make_file(self.graph, recipe, settings, dense_per_tensor=self._dense_per_tensor)

    def _without_choice(self, recipe: Recipe, settings: MethodSettings, *notes: str) -> ChosenFile:
        file = self._make(recipe, settings)
        is_plain = not (settings.methods or file.eight_bit)
        record = None if is_plain else _record(settings, file)
        return ChosenFile(file._replace(notes=(*file.notes, *notes)), record)

    def _too_few(self) -> str:
        """Why the samples do not suffice to choose by; "" where they do."""
        counts = [feed.samples for feed in self.graph.feeds.values()]
        if not counts:
            return "there are no calibration samples"
        if min(counts) >= MIN_SAMPLES_TO_CHOOSE and min(map(len, self.graph.feeds.values())) > 1:
            return ""
        return (
            f"{min(counts)} calibration samples are too few to choose by, "
            f"{MIN_SAMPLES_TO_CHOOSE} are needed"
        )

    def _run_trials(self, recipe: Recipe) -> Iterator[_HeldBackTrial]:
        """The plain ranges first, then each step on top of those that made it better."""
        best: _HeldBackTrial | None = None
        for calibration_range in _ranges_of(recipe):
            trial = self._run(recipe, MethodSettings(calibration_range, _named(recipe)))
            yield trial
            best = trial if best is None or _is_better(trial, best) else best
        assert best is not None, "there is a range"
        if recipe.methods != ("auto",):
            return
        for step in _FOUR_BIT_STEPS if recipe.has_four_bits or best.four_bit else _STEPS:
            if closeness(best.errors) == "close":
                return
            methods = tuple(m for m in _METHODS if m in (*best.settings.methods, *step))
            if methods == best.settings.methods or not self._can_try(step, best):
                continue
            trial = self._try(recipe, best.settings._replace(methods=methods))
            yield trial
            if _is_better(trial, best):
                best = trial

    def _can_try(self, step: Methods, best: _HeldBackTrial) -> bool:
        fitting = [trials.graph for trials in self._folds]
        if "equalization" in step and any(graph.equalized[0] is graph for graph in fitting):
            return False
        fewest = min(feed.samples for graph in fitting for feed in graph.feeds.values())
        needed = (MIN_SAMPLES[method] for method in step if method != "equalization")
        # Weights of 8 bits seldom cause the error where correcting biases did nothing.
        return fewest >= max(needed, default=0) and (
            step != ("rounding",) or bool(best.settings.methods)
        )

    def _try(self, recipe: Recipe, settings: MethodSettings) -> _HeldBackTrial:
        """A trial that may fail: then the file without these methods is left."""
        try:
            return self._run(recipe, settings)
        except (ToolFailed, InputRefused, UsageError) as error:
            return _HeldBackTrial(settings, None, failed=error.headline)
        except np.linalg.LinAlgError as error:
            return _HeldBackTrial(settings, None, failed=f"linear algebra: {error}")

    def _run(self, recipe: Recipe, settings: MethodSettings) -> _HeldBackTrial:
        chosen = ", ".join((settings.calibration_range, *settings.methods))
        report_progress(f"quantizing to {recipe.name}: trying {chosen}")
        answers = [trials.answers(recipe, settings) for trials in self._folds]
        actual = _joined([outputs for _, outputs in answers])
        file = answers[0][0]
        steps = steps_by_output(file.model, self.graph.feeds)
        errors = sample_errors(self._expected, actual, steps)
        return _HeldBackTrial(settings, errors, bool(file.four_bit))

    @cached_property
    def _folds(self) -> tuple[QuantizeTrials, ...]:
        """Each makes files of all but its held-back samples, and compares them on those."""
        parts, count = _parts(self.graph.feeds)
        # The same for all, so that their outputs can be joined.
        parted = QuantizeTrials(self.graph, comparison_feeds(self.graph.feeds)).parted
        return tuple(
            QuantizeTrials(
                fold.fitting,
                fold.held_back,
                dense_per_tensor=self._dense_per_tensor,
                parted=parted,
            )
            for fold in self.graph.folds(parts, count)
        )

    @cached_property
    def _expected(self) -> OutputArrays:
        return _joined([trials.expected for trials in self._folds])


def _parts(feeds: Mapping[str, Feed]) -> tuple[list[dict[str, list[int]]], int]:
    """Positions of batches by signature, and how many parts, the last ones, are held back."""
    fewest = min(feed.samples for feed in feeds.values())
    if fewest >= _PARTS * _ENOUGH:
        held_back = {
            key: np.linspace(0, len(feed) - 1, _held_batches(feed)).astype(int).tolist()
            for key, feed in feeds.items()
        }
        rest = {
            key: sorted(set(range(len(feed))) - set(held_back[key])) for key, feed in feeds.items()
        }
        return [rest, held_back], 1
    # In turns, since a source may be in the order of its classes.
    parts = min(_PARTS, *(len(feed) for feed in feeds.values()))
    turns = [
        {key: list(range(index, len(feed), parts)) for key, feed in feeds.items()}
        for index in range(parts)
    ]
    return turns, min(parts, -(-_ENOUGH * parts // fewest))


def _held_batches(feed: Feed) -> int:
    return max(1, min(len(feed) // _PARTS, _MOST // feed.batch))


def _joined(parts: Sequence[OutputArrays]) -> OutputArrays:
    return {output: np.concatenate([part[output] for part in parts]) for output in parts[0]}


def closeness(errors: SampleErrors | None) -> Closeness:
    """Whether outputs are so close to the float ones that no method could do any good.

    An error within a step of an output's own integers is as small as it can be. Else they are
    "close" by the lower bound of the signal-to-noise ratio and by the share of answers
    with the same largest value; "borderline" where that bound alone is too low.
    """
    if errors is None:
        return "far"
    if errors.is_within_step:
        return "close"
    if errors.agreement is None:
        least_db = _CLOSE_DB
    else:
        is_same = errors.agreement >= _CLOSE_AGREEMENT
        least_db = _CLOSE_CLASSIFIER_DB if is_same else _SURELY_CLOSE_DB
    if errors.least_snr_db >= least_db:
        return "close"
    return "borderline" if errors.snr_db >= least_db else "far"


def _named(recipe: Recipe) -> Methods:
    return tuple(method for method in recipe.methods if method != "auto")


def _ranges_of(recipe: Recipe) -> tuple[CalibrationRange, ...]:
    if recipe.calibration_range != "auto":
        return (recipe.calibration_range,)
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    return ("minmax",) if recipe.name == "int16x8" else _RANGES


def _best(trials: Sequence[_HeldBackTrial]) -> _HeldBackTrial:
    """The last of those that were each surely better than the best before."""
    best = trials[0]
    for trial in trials[1:]:
        if _is_better(trial, best):
            best = trial
    return best


def _is_better(trial: _HeldBackTrial, best: _HeldBackTrial) -> bool:
    if trial.errors is None or best.errors is None:
        return False
    same_range = trial.settings.calibration_range == best.settings.calibration_range
    margin_db = _MARGIN_DB if same_range else _RANGE_MARGIN_DB
    return trial.errors.is_closer(best.errors, margin_db=margin_db)


def _record(
    settings: MethodSettings,
    file: QuantizedModel,
    trials: tuple[MethodTrial, ...] = (),
    held_back: int = 0,
    closeness: Closeness = "",
) -> PostTraining:
    return PostTraining(
        calibration_range=settings.calibration_range,
        methods=settings.methods,
        trials=trials,
        held_back=held_back,
        closeness=closeness,
        four_bit=file.four_bit,
        eight_bit=file.eight_bit,
    )
