"""Which ranges and methods serve a recipe best, by held-back calibration samples.

Labels and the samples that verify the result take no part.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.quantize.trials import QuantizeTrials
from edgeconv.types import MethodTrial, PostTraining

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.quantize.calibrate import CalibratedGraph
    from edgeconv.quantize.trials import QuantizeTrial
    from edgeconv.types import CalibrationRange, PostTrainingMethod, Recipe

# A fifth of the samples is held back, within these bounds: fewer tell little, and more would not
# tell more.
_HELD_BACK_SHARE = 5
_FEWEST, _MOST = 8, 128
MIN_SAMPLES_TO_CHOOSE = _FEWEST * _HELD_BACK_SHARE
# A smaller gain is what other samples would change. A narrower range certainly loses something,
# and has to be worth it.
_MARGIN_DB, _RANGE_MARGIN_DB = 0.1, 0.5
_HALVED_DB = 3.0
_RANGES: tuple[CalibrationRange, ...] = ("minmax", "percentile", "mse", "kl")
# The cheap ones first.
_METHODS: tuple[PostTrainingMethod, ...] = ("equalization", "bias-correction", "rounding")


class ChosenFile(NamedTuple):
    """A file, and the methods that made it; None where nothing was chosen or done."""

    file: QuantizedModel
    record: PostTraining | None


class MethodSearch:
    """Makes the file of each recipe of one graph, with the methods that serve it best.

    `dense_per_tensor` is for older runtimes, see `quantizer_recipe`.
    """

    def __init__(self, graph: CalibratedGraph, *, dense_per_tensor: bool = False) -> None:
        self.graph = graph
        self._dense_per_tensor = dense_per_tensor

    def file(self, recipe: Recipe) -> ChosenFile:
        """The file of a recipe, with the ranges and methods that its "auto" stands for.

        Raises `ToolFailed` where nothing can be made of the graph, and `UsageError` for options
        that do not fit it or its samples.
        """
        if recipe.methods != ("auto",) and len(_ranges_of(recipe)) == 1:
            settings = MethodSettings(recipe.calibration_range, _named(recipe))
            file = make_file(self.graph, recipe, settings, dense_per_tensor=self._dense_per_tensor)
            return ChosenFile(file, _record(settings, file) if settings.methods else None)
        self._refuse_few(recipe)
        trials = list(self._run_trials(recipe))
        best = _best(trials)
        record = _record(
            best.settings,
            best.file,
            trials=tuple(
                MethodTrial(
                    calibration_range=trial.settings.calibration_range,
                    methods=trial.settings.methods,
                    snr_db=trial.snr_db,
                    agreement=trial.agreement,
                )
                for trial in trials
            ),
            held_back=self._trials.samples,
        )
        return ChosenFile(best.file, record)

    def _run_trials(self, recipe: Recipe) -> Iterator[QuantizeTrial]:
        """The plain ranges first, then each method on top of those that made it better."""
        tried: list[QuantizeTrial] = []
        for calibration_range in _ranges_of(recipe):
            tried.append(self._run(recipe, MethodSettings(calibration_range, _named(recipe))))
            yield tried[-1]
        best = _best(tried)
        if recipe.methods != ("auto",):
            return
        for method in _METHODS:
            if not self._is_worth_trying(method, recipe, best):
                continue
            methods = tuple(m for m in _METHODS if m in (*best.settings.methods, method))
            try:
                trial = self._run(recipe, best.settings._replace(methods=methods))
            except ToolFailed:
                continue
            yield trial
            best = _best([best, trial])

    def _run(self, recipe: Recipe, settings: MethodSettings) -> QuantizeTrial:
        chosen = ", ".join((settings.calibration_range, *settings.methods))
        report_progress(f"quantizing to {recipe.name}: trying {chosen}")
        return self._trials.run(recipe, settings)

    def _is_worth_trying(
        self, method: PostTrainingMethod, recipe: Recipe, best: QuantizeTrial
    ) -> bool:
        graph = self._trials.graph
        if method == "equalization":
            return graph.equalized[0] is not graph
        if min(feed.samples for feed in graph.feeds.values()) < MIN_SAMPLES[method]:
            return False
        # Weights of 8 bits seldom cause the error where the cheaper methods did nothing.
        has_four_bits = recipe.has_four_bits or best.file.four_bit
        return method != "rounding" or bool(has_four_bits or best.settings.methods)

    @cached_property
    def _trials(self) -> QuantizeTrials:
        """Made of all but the held-back samples, and compared on those."""
        fitting, held_back = self.graph.split(
            {
                key: min(max(_FEWEST, feed.samples // _HELD_BACK_SHARE), _MOST)
                for key, feed in self.graph.feeds.items()
            }
        )
        return QuantizeTrials(fitting, held_back.feeds, dense_per_tensor=self._dense_per_tensor)

    def _refuse_few(self, recipe: Recipe) -> None:
        for key, feed in self.graph.feeds.items():
            if feed.samples < MIN_SAMPLES_TO_CHOOSE:
                raise UsageError(
                    f"{recipe.name}: auto chooses by held-back calibration samples, and needs at "
                    f"least {MIN_SAMPLES_TO_CHOOSE} in all; there are {feed.samples} for "
                    f"signature {key!r}",
                    hint="give more with --calibration and --samples, or name the methods and "
                    "the range",
                )


def _named(recipe: Recipe) -> tuple[PostTrainingMethod, ...]:
    return tuple(method for method in recipe.methods if method != "auto")


def _ranges_of(recipe: Recipe) -> tuple[CalibrationRange, ...]:
    if recipe.calibration_range != "auto":
        return (recipe.calibration_range,)
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    return ("minmax",) if recipe.name == "int16x8" else _RANGES


def _best(trials: Sequence[QuantizeTrial]) -> QuantizeTrial:
    """The last of those that were each clearly better than the best before."""
    best = trials[0]
    for trial in trials[1:]:
        if _is_better(trial, best):
            best = trial
    return best


def _is_better(trial: QuantizeTrial, best: QuantizeTrial) -> bool:
    """Whether its error is clearly smaller, and not at the cost of the largest class.

    An error can shrink where it does not matter, and grow where two classes are close. But a few
    samples are as easily lost by chance, which does not halve an error.
    """
    gain_db = trial.snr_db - best.snr_db
    if (trial.agreement or 0.0) < (best.agreement or 0.0) and gain_db < _HALVED_DB:
        return False
    same_range = trial.settings.calibration_range == best.settings.calibration_range
    return gain_db > (_MARGIN_DB if same_range else _RANGE_MARGIN_DB)


def _record(
    settings: MethodSettings,
    file: QuantizedModel,
    trials: tuple[MethodTrial, ...] = (),
    held_back: int = 0,
) -> PostTraining:
    return PostTraining(
        calibration_range=settings.calibration_range,
        methods=settings.methods,
        trials=trials,
        held_back=held_back,
        four_bit=file.four_bit,
    )
