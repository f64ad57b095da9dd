"""Which ranges and methods serve a recipe best, by held-back calibration samples.

The plain file comes first, and where that is close enough to the float graph nothing else is
tried. Labels and the samples that verify the result take no part. What is chosen is made again
with all calibration samples.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from edgeconv.model.tflite.operators import RUN_GRAPHS, float_groups
from edgeconv.quantize.held_back import HeldBackTrials
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.ranges.clipping import MIN_SAMPLES as RANGE_SAMPLES
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.quantize.rules import unruled_floats, with_eight_bits
from edgeconv.quantize.spared import Sparing, sparings
from edgeconv.statistics.grades import THRESHOLDS
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.tasks import report_progress
from edgeconv.types import MAX_SNR_DB, MethodTrial, PostTraining
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph, Feed
    from edgeconv.statistics.outputs import SampleErrors
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
# Weights of 4 bits have the same error for every sample, which methods can nearly always lower.
_ENOUGH_FOUR_BIT_DB = 30.0
# At half a percent of the output, answers differ only where the float model has none.
_SURELY_CLOSE_DB = 46.0
# The first samples suffice for a file that would be as close with this many times the noise.
_CLEARLY = 2.0
# A gain must surely be above this: a narrower range certainly loses something, and has to be
# worth it, which it is where it halves the error.
_MARGIN_DB, _RANGE_MARGIN_DB, _HALVED_DB = 0.1, 0.5, 3.0
# All of these clip, the first the most: where it does no good, the others seldom do.
_RANGES: tuple[CalibrationRange, ...] = ("kl", "mse", "percentile", "ema")
# From then on a user is told how to do without.
_LONG_S = 60.0
_METHODS: Methods = ("equalization", "bias-correction", "rounding")
# What is added to those that helped, the cheapest first. With scales by channel, 8 bits seldom
# need equalization; 4 bits always need rounding, and the bias follows the weights.
_UNBIASED: Methods = ("bias-correction",)
_STEPS: tuple[Methods, ...] = (("rounding",), ("equalization",))
_FOUR_BIT_STEPS: tuple[Methods, ...] = (
    ("equalization",),
    ("bias-correction", "rounding"),
    _UNBIASED,
)


class ChosenFile(NamedTuple):
    """A file, and the methods that made it; None where nothing was chosen or done.

    `choosing_s` is what the choice took, in seconds; `notes` say what the samples do not
    allow, and which layers were kept in higher precision.
    """

    file: QuantizedModel
    record: PostTraining | None
    choosing_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass
class _HeldBackTrial:
    """Settings, and the errors of their files on the samples held back from each.

    `first` are those on the first samples, which are all in `errors` where they decide. Both are
    None where no file could be made, `failed` says why.
    """

    settings: MethodSettings
    first: SampleErrors | None
    errors: SampleErrors | None
    failed: str = ""

    @property
    def snr_db(self) -> float:
        """That of all outputs; of a file that could not be made the least there is."""
        return -MAX_SNR_DB if self.errors is None else self.errors.snr_db

    def record(self, samples: int) -> MethodTrial:
        """What a record has of it, if it can on as many samples as the trial taken."""
        errors = self.errors if self.errors and self.errors.samples == samples else self.first
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
        self._by_recipe: dict[Recipe, list[_HeldBackTrial]] = {}
        self._tried: Counter[Recipe] = Counter()
        self._started_s = time.monotonic()

    def file(self, recipe: Recipe) -> ChosenFile:
        """The file of a recipe, with the ranges and methods that its "auto" stands for.

        Where the samples are too few to choose by, and where a comparison fails, "auto" stands
        for nothing, and a note says why. Raises `ToolFailed` where nothing can be made of the
        graph, and `UsageError` for options that do not fit it or its samples.
        """
        plain = MethodSettings(_ranges_of(recipe)[0], _named(recipe))
        if recipe.methods != ("auto",) and not _has_free_ranges(recipe, self.graph):
            return self._without_choice(recipe, plain)
        why_not = self._too_few()
        if why_not:
            chosen = self._without_choice(recipe, plain)
            return chosen._replace(notes=(f"{NOT_TRIED}: {why_not}",))
        started_s = time.perf_counter()
        try:
            left = self._left_in_float(recipe, plain)
            if left:
                reason = f"{', '.join(left)} would compute in float"
                return self._without_choice(recipe, plain, f"{NOT_TRIED}: {reason}")
            trials = list(self._run_trials(recipe))
        except (ToolFailed, InputRefused) as error:
            return self._without_choice(recipe, plain, f"{NOT_TRIED}: {error.headline}")
        best = _best(trials)
        spared, errors, more = self._spared(recipe, trials[0], best)
        file = self._made(spared.recipe, best.settings)
        samples = 0 if best.errors is None else best.errors.samples
        record = _record(
            best.settings,
            file,
            trials=tuple(trial.record(samples) for trial in trials),
            held_back=samples,
            closeness=closeness(errors),
            is_less_sure=self._held_back.is_less_sure,
            spared=spared.layers,
        )
        return ChosenFile(file, record, time.perf_counter() - started_s, more)

    def _spared(
        self, recipe: Recipe, first: _HeldBackTrial, best: _HeldBackTrial
    ) -> tuple[Sparing, SampleErrors | None, tuple[str, ...]]:
        """The recipe with a few layers in higher precision, where no method made it close.

        With the errors of its file, and a note that says which layers and what they cost.
        """
        if recipe.methods != ("auto",) or best.errors is None or _is_close(best.errors):
            return Sparing(recipe), best.errors, ()
        gained_db = max(0.0, best.snr_db - first.snr_db)
        least_db = _CLOSE_DB if best.errors.agreement is None else _CLOSE_CLASSIFIER_DB
        try:
            for each in sparings(self.graph, recipe, best.settings, least_db - gained_db):
                errors = self._held_back.errors(each.recipe, best.settings)
                if _is_close(errors) and errors.snr_db >= best.snr_db + _HALVED_DB:
                    recipes = (recipe, each.recipe)
                    sizes = [len(self._make(r, best.settings).model) for r in recipes]
                    return each, errors, (_spared_note(each, best, errors, sizes),)
        except (ToolFailed, InputRefused, UsageError):
            # The file without is there.
            pass
        return Sparing(recipe), best.errors, ()

    def _left_in_float(self, recipe: Recipe, settings: MethodSettings) -> tuple[str, ...]:
        """The operators for which a plain file is not taken as it is, which no method changes.

        It is refused for any that computes in float, or unrolled for a loop.
        """
        if not recipe.full_integer:
            return ()
        # Rounding weights to 4 bits takes long, and decides nothing.
        plain = with_eight_bits(recipe)
        file = self._held_back.file(
            self._held_back.fitting[0], plain, settings._replace(methods=())
        )
        left = unruled_floats(recipe, float_groups(file.model, file.float_outputs))
        return left if recipe.only_integers or RUN_GRAPHS.intersection(left) else ()

    def _made(self, recipe: Recipe, settings: MethodSettings) -> QuantizedModel:
        """The file that is published, which has been made if no sample makes a difference to it."""
        if recipe.has_ranges or settings.methods or _has_four_bits(recipe):
            return self._make(recipe, settings)
        return self._held_back.file(self._held_back.fitting[0], recipe, settings)

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
        """The plain file first, then each step on top of those that made it better."""
        eight_bits = with_eight_bits(recipe)
        if recipe.methods != ("auto",):
            named = MethodSettings("minmax", _named(recipe))
            every = [named._replace(calibration_range=each) for each in _ranges_of(recipe)]
            if "bias-correction" in named.methods:
                every = list(dict.fromkeys((named, self._with_range_of(eight_bits, named))))
            for each in every:
                yield self._run(recipe, each)
            return
        if recipe.name == "float16":
            # No method changes what weights of 16 bits lose.
            yield self._run(recipe, MethodSettings(_ranges_of(recipe)[0], ()))
            return
        has_four_bits = _has_four_bits(recipe)
        if has_four_bits:
            best = self._run(recipe, MethodSettings(_ranges_of(recipe)[0], ()))
            yield best
        else:
            trials = self._activation_trials(recipe)
            yield from trials
            best = _best(trials)
        for step in _FOUR_BIT_STEPS if has_four_bits else _STEPS:
            if _is_enough(best, has_four_bits=has_four_bits):
                return
            settings = best.settings
            if has_four_bits and _has_free_ranges(recipe, self.graph):
                settings = self._with_range_of(eight_bits, settings)
            settings = _with_step(settings, step)
            if settings == best.settings or not self._can_try(settings, best):
                continue
            trial = self._try(recipe, settings, best)
            yield trial
            best = trial if _is_better(trial, best) else best

    def _with_range_of(self, eight_bits: Recipe, settings: MethodSettings) -> MethodSettings:
        """The settings with the range that serves 8 bits best, which 4 bits could not tell."""
        best = _best(self._activation_trials(eight_bits)).settings
        settings = settings._replace(calibration_range=best.calibration_range)
        return settings if best.calibration_range == "minmax" else _with_step(settings, _UNBIASED)

    def _activation_trials(self, recipe: Recipe) -> list[_HeldBackTrial]:
        """The plain file, and what activations gain by: corrected biases, and other ranges.

        A narrower range moves the means of activations, so both are tried together. A range
        that is not closer than those before it is the last one.
        """
        key = msgspec.structs.replace(recipe, methods=("auto",), min_snr_db=None)
        if key in self._by_recipe:
            return self._by_recipe[key]
        best = self._run(recipe, MethodSettings(_ranges_of(recipe)[0], ()))
        trials = [best]
        plain = best.settings.calibration_range
        ranges = _RANGES if _has_free_ranges(recipe, self.graph) else ()
        methods = _UNBIASED
        for calibration_range in (plain, *ranges):
            settings = MethodSettings(calibration_range, methods)
            if _is_enough(best, has_four_bits=False) or not self._can_try(settings, best):
                continue
            trial = self._try(recipe, settings, best)
            is_closest = trial.snr_db > max(each.snr_db for each in trials)
            trials.append(trial)
            if trial.failed:
                methods = ()
            elif calibration_range != plain and not is_closest:
                break
            best = trial if _is_better(trial, best) else best
        self._by_recipe[key] = trials
        return trials

    def _can_try(self, settings: MethodSettings, best: _HeldBackTrial) -> bool:
        fitting = self._held_back.fitting
        methods = settings.methods
        if "equalization" in methods and any(graph.equalized[0] is graph for graph in fitting):
            return False
        fewest = min(feed.samples for graph in fitting for feed in graph.feeds.values())
        needed = [MIN_SAMPLES[method] for method in methods if method != "equalization"]
        needed += [n for name, n in RANGE_SAMPLES.items() if name == settings.calibration_range]
        added = set(methods) - set(best.settings.methods)
        # Weights of 8 bits seldom cause the error where correcting biases did nothing.
        return fewest >= max(needed, default=0) and (
            added != {"rounding"} or bool(best.settings.methods)
        )

    def _try(
        self, recipe: Recipe, settings: MethodSettings, best: _HeldBackTrial
    ) -> _HeldBackTrial:
        """A trial that may fail: then the file without these methods is left."""
        try:
            return self._run(recipe, settings, best)
        except (ToolFailed, InputRefused, UsageError) as error:
            return _HeldBackTrial(settings, None, None, failed=error.headline)
        except np.linalg.LinAlgError as error:
            return _HeldBackTrial(settings, None, None, failed=f"linear algebra: {error}")

    def _run(
        self, recipe: Recipe, settings: MethodSettings, best: _HeldBackTrial | None = None
    ) -> _HeldBackTrial:
        """A trial on the first held-back samples, and on all where those leave it open.

        `best` is what it has to be better than, which is then compared on all of them too.
        """
        report_progress(self._progress(recipe))
        errors = self._held_back.errors(recipe, settings, first=True)
        trial = _HeldBackTrial(settings, errors, errors)
        # Ranges of 8 bits may be too narrow for the samples of another fold.
        is_open = best is None and with_eight_bits(recipe).name == "int8"
        is_open = is_open or recipe.methods != ("auto",)
        if is_open or not _is_decided(trial, best, has_four_bits=_has_four_bits(recipe)):
            for each in (trial, best):
                if each and each.errors and each.errors.samples < self._held_back.samples:
                    each.errors = self._held_back.errors(recipe, each.settings)
        return trial

    def _progress(self, recipe: Recipe) -> CountedLine:
        """Which of how many trials comes next; after a minute also how to do without."""
        self._tried[recipe] += 1
        most = 1 + len(_FOUR_BIT_STEPS)
        if recipe.methods != ("auto",):
            most = len(_ranges_of(recipe))
        elif not recipe.has_four_bits:
            most = 1 + len(_ranges_of(recipe)) + len(_STEPS)
        most = max(most, self._tried[recipe])
        text = f"{recipe.name}: choosing among at most {most} settings"
        if time.monotonic() - self._started_s > _LONG_S:
            text += ", which --methods none and fewer samples shorten"
        return CountedLine(text, self._tried[recipe] - 1, most)

    @cached_property
    def _held_back(self) -> HeldBackTrials:
        is_all = self.graph.fitted_feeds is self.graph.feeds
        folds = self.graph.folds(*_parts(self.graph.feeds, but_fitted=not is_all))
        return HeldBackTrials(folds, dense_per_tensor=self._dense_per_tensor)


def _parts(
    feeds: Mapping[str, Feed], *, but_fitted: bool = False
) -> tuple[list[dict[str, list[int]]], int]:
    """Positions of batches by signature, and how many parts, the last ones, are held back.

    `but_fitted`: of many samples those are held back that layers are not fitted to.
    """
    fewest = min(feed.samples for feed in feeds.values())
    if fewest >= _PARTS * _ENOUGH:
        held_back = {key: _held_back_of(feed, but_fitted) for key, feed in feeds.items()}
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


def _held_back_of(feed: Feed, but_fitted: bool) -> list[int]:
    free = sorted(set(range(len(feed))).difference(feed.fitted_batches if but_fitted else ()))
    count = min(len(free), max(1, min(len(feed) // _PARTS, _MOST // feed.batch)))
    return [free[place] for place in np.linspace(0, len(free) - 1, count).astype(int)]


def closeness(errors: SampleErrors | None) -> Closeness:
    """Whether outputs are so close to the float ones that no method could do any good.

    An error within a step of an output's own integers is as small as it can be, which says little
    where the outputs are as small themselves ("coarse"). Else they are "close" by the lower bound
    of the signal-to-noise ratio and by the share of answers with the
    same largest value; "borderline" where that bound alone is too low.
    """
    if errors is None:
        return "far"
    if errors.is_within_step:
        return "close" if errors.snr_db >= _CLOSE_CLASSIFIER_DB else "coarse"
    if errors.agreement is None:
        least_db = _CLOSE_DB
    else:
        is_same = errors.agreement >= _CLOSE_AGREEMENT
        least_db = _CLOSE_CLASSIFIER_DB if is_same else _SURELY_CLOSE_DB
    if errors.least_snr_db >= least_db:
        return "close"
    return "borderline" if errors.snr_db >= least_db else "far"


def _is_close(errors: SampleErrors) -> bool:
    """Whether outputs are close in the terms of `statistics.grades`."""
    least = THRESHOLDS["share of equal answers"].close
    is_same = errors.agreement is not None and errors.agreement >= least
    return is_same or closeness(errors) == "close" or errors.snr_db >= _CLOSE_DB


def _spared_note(
    spared: Sparing, best: _HeldBackTrial, errors: SampleErrors, sizes: Sequence[int]
) -> str:
    before, after = sizes
    kept = {"float32": "float", "int16x8": "16 bits", "int8": "8 bits"}[spared.precision]
    return (
        f"{quoted(spared.layers, 3)} kept in {kept}, which makes the file close: "
        f"SNR {errors.snr_db:.1f} dB instead of {best.snr_db:.1f} dB on {errors.samples} samples, "
        f"for {max(0, after - before):,} bytes more ({100 * max(0.0, after / before - 1):.1f} %)"
    )


def _is_decided(trial: _HeldBackTrial, best: _HeldBackTrial | None, *, has_four_bits: bool) -> bool:
    """Whether the first samples show if a trial is enough, and if it is better than the best."""
    own, before = trial.first, None if best is None else best.first
    if own is None:
        return True
    surely, maybe = (
        _is_enough(
            dataclasses.replace(trial, errors=own.scaled(factor)), has_four_bits=has_four_bits
        )
        for factor in (_CLEARLY, 1 / _CLEARLY)
    )
    if best is None or before is None or _is_better(trial, best):
        return surely or not maybe
    mean_db, _, high_db = own.gain_db(before)
    return high_db < _MARGIN_DB or (mean_db <= 0 and own.snr_db <= before.snr_db)


def _is_enough(trial: _HeldBackTrial, *, has_four_bits: bool) -> bool:
    """Whether no further method is tried."""
    if trial.errors is None:
        return False
    least_db = _ENOUGH_FOUR_BIT_DB if has_four_bits else -MAX_SNR_DB
    is_close = closeness(trial.errors) == "close" and trial.errors.least_snr_db >= least_db
    return trial.errors.is_within_step or is_close


def _named(recipe: Recipe) -> Methods:
    return tuple(method for method in recipe.methods if method != "auto")


def _ranges_of(recipe: Recipe) -> tuple[CalibrationRange, ...]:
    if recipe.calibration_range != "auto":
        return (recipe.calibration_range,)
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    return ("minmax",) if recipe.name == "int16x8" else ("minmax", *_RANGES)


def _has_four_bits(recipe: Recipe) -> bool:
    return recipe.has_four_bits or with_eight_bits(recipe) != recipe


def _has_free_ranges(recipe: Recipe, graph: CalibratedGraph) -> bool:
    """Whether other ranges than minima and maxima may be tried; TFLiteConverter has only those."""
    return recipe.has_ranges and len(_ranges_of(recipe)) > 1 and graph.quantized is None


def _with_step(settings: MethodSettings, step: Methods) -> MethodSettings:
    methods = tuple(method for method in _METHODS if method in (*settings.methods, *step))
    return settings._replace(methods=methods)


def _best(trials: Sequence[_HeldBackTrial]) -> _HeldBackTrial:
    """The last of those that were each surely better than the best before."""
    best = trials[0]
    for trial in trials[1:]:
        if _is_better(trial, best):
            best = trial
    return best


def _is_better(trial: _HeldBackTrial, best: _HeldBackTrial) -> bool:
    own, before = trial.errors, best.errors
    if own and before and own.samples != before.samples:
        own, before = trial.first, best.first
    if own is None or before is None:
        return False
    same_range = trial.settings.calibration_range == best.settings.calibration_range
    is_halved = own.snr_db >= before.snr_db + _HALVED_DB
    margin_db = _MARGIN_DB if same_range else _RANGE_MARGIN_DB
    return own.is_closer(before, margin_db=0.0 if is_halved else margin_db)


def _record(
    settings: MethodSettings,
    file: QuantizedModel,
    trials: tuple[MethodTrial, ...] = (),
    held_back: int = 0,
    closeness: Closeness = "",
    is_less_sure: bool = False,
    spared: tuple[str, ...] = (),
) -> PostTraining:
    return PostTraining(
        calibration_range=settings.calibration_range,
        methods=settings.methods,
        trials=trials,
        held_back=held_back,
        closeness=closeness,
        is_less_sure=is_less_sure,
        four_bit=file.four_bit,
        eight_bit=file.eight_bit,
        spared=spared,
    )
