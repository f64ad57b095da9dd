"""Which ranges and methods serve a recipe best, by held-back calibration samples.

Labels, and samples that the result is judged by, take no part.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.calibrate import CalibratedGraph
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.statistics.signal import snr_db
from edgeconv.types import MAX_SNR_DB, MethodTrial, PostTraining

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.types import CalibrationRange, PostTrainingMethod, Recipe

    # By signature and output, (n, …).
    Answers = dict[tuple[str, str], NDArray[np.float64]]

# A fifth judges, within these bounds: fewer say little, and more would not say more.
_HELD_BACK_SHARE = 5
_FEWEST, _MOST = 8, 128
MIN_SAMPLES_TO_CHOOSE = _FEWEST * _HELD_BACK_SHARE
# What is not better by so much is no better: it is what other samples would change. A narrower
# range gives something up for sure, and has to be worth it.
_MARGIN_DB, _RANGE_MARGIN_DB = 0.1, 0.5
_HALVED_DB = 3.0
_RANGES: tuple[CalibrationRange, ...] = ("minmax", "percentile", "mse", "kl")
# The cheap ones first.
_METHODS: tuple[PostTrainingMethod, ...] = ("equalization", "bias-correction", "rounding")


class ChosenFile(NamedTuple):
    """A made file, and how it came to be what it is; None where nothing was chosen or done."""

    made: QuantizedModel
    record: PostTraining | None


class _Tried(NamedTuple):
    setting: MethodSettings
    made: QuantizedModel
    snr_db: float
    agreement: float | None

    def betters(self, other: _Tried) -> bool:
        """Whether its error is clearly smaller, and not at the cost of the largest class.

        An error may shrink where nobody looks, and grow where two classes are close. But a few
        samples are as easily lost by chance, which does not halve an error.
        """
        gain_db = self.snr_db - other.snr_db
        if (self.agreement or 0.0) < (other.agreement or 0.0) and gain_db < _HALVED_DB:
            return False
        same_range = self.setting.calibration_range == other.setting.calibration_range
        margin_db = _MARGIN_DB if same_range else _RANGE_MARGIN_DB
        return gain_db > margin_db

    @property
    def noun(self) -> MethodTrial:
        return MethodTrial(
            calibration_range=self.setting.calibration_range,
            methods=self.setting.methods,
            snr_db=self.snr_db,
            agreement=self.agreement,
        )


class MethodSearch:
    """The float graph on all samples, and on those that are left when some are held back."""

    def __init__(self, graph: CalibratedGraph, *, dense_per_tensor: bool = False) -> None:
        self.graph = graph
        self._dense_per_tensor = dense_per_tensor

    def file(self, recipe: Recipe) -> ChosenFile:
        """The file of a recipe, with what its "auto" stands for.

        Raises `ToolFailed` where nothing can be made of the graph, and `UsageError` for options
        that do not fit it or its samples.
        """
        if not _is_open(recipe):
            setting = MethodSettings(recipe.calibration_range, _named(recipe))
            made = self._make(self.graph, recipe, setting)
            return ChosenFile(made, _record(setting, made) if setting.methods else None)
        self._refuse_few(recipe)
        tried = list(self._trials(recipe))
        best = _best(tried)
        record = PostTraining(
            calibration_range=best.setting.calibration_range,
            methods=best.setting.methods,
            trials=tuple(one.noun for one in tried),
            held_back=sum(feed.samples for feed in self._judging.values()),
            four_bit=best.made.four_bit,
        )
        return ChosenFile(best.made, record)

    def _trials(self, recipe: Recipe) -> Iterator[_Tried]:
        """The plain ranges first, then each method on top of those that made it better."""
        best: _Tried | None = None
        named = _named(recipe)
        for method in _ranges_of(recipe):
            one = self._tried(recipe, MethodSettings(method, named))
            yield one
            best = one if best is None else _best([best, one])
        assert best is not None
        if recipe.methods != ("auto",):
            return
        for step in _METHODS:
            if not self._is_worth_trying(step, recipe, best):
                continue
            methods = tuple(m for m in _METHODS if m in (*best.setting.methods, step))
            try:
                one = self._tried(recipe, best.setting._replace(methods=methods))
            except ToolFailed:
                continue
            yield one
            best = _best([best, one])

    def _is_worth_trying(self, step: PostTrainingMethod, recipe: Recipe, best: _Tried) -> bool:
        if step == "equalization":
            return self._fitting.equalized[0] is not self._fitting
        if self._fitting_samples < MIN_SAMPLES[step]:
            return False
        # Weights of 8 bits are seldom what is wrong where the cheaper methods did nothing.
        has_four_bits = recipe.has_four_bits or best.made.four_bit
        return step != "rounding" or bool(has_four_bits or best.setting.methods)

    def _tried(self, recipe: Recipe, setting: MethodSettings) -> _Tried:
        chosen = ", ".join((setting.calibration_range, *setting.methods))
        report_progress(f"quantizing to {recipe.name}: trying {chosen}")
        made = self._make(self._fitting, recipe, setting)
        actual = answers(made.model, self._judging, threads=self.graph.threads)
        return _Tried(
            setting,
            made,
            lowest_snr_db(self._expected, actual),
            lowest_agreement(self._expected, actual),
        )

    def _make(
        self, graph: CalibratedGraph, recipe: Recipe, setting: MethodSettings
    ) -> QuantizedModel:
        return make_file(graph, recipe, setting, dense_per_tensor=self._dense_per_tensor)

    @cached_property
    def _parts(self) -> tuple[dict[str, Feed], dict[str, Feed]]:
        parts = {}
        for key, feed in self.graph.feeds.items():
            held_back = min(max(_FEWEST, feed.samples // _HELD_BACK_SHARE), _MOST)
            parts[key] = feed.parted(held_back)
        return (
            {key: fitting for key, (fitting, _) in parts.items()},
            {key: judging for key, (_, judging) in parts.items()},
        )

    @cached_property
    def _fitting(self) -> CalibratedGraph:
        return CalibratedGraph(self.graph.model, self._parts[0], threads=self.graph.threads)

    @property
    def _judging(self) -> dict[str, Feed]:
        return self._parts[1]

    @property
    def _fitting_samples(self) -> int:
        return min(feed.samples for feed in self._parts[0].values())

    @cached_property
    def _expected(self) -> Answers:
        return answers(self.graph.model, self._judging, threads=self.graph.threads)

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


def _is_open(recipe: Recipe) -> bool:
    """Whether something is left to choose."""
    return recipe.methods == ("auto",) or len(_ranges_of(recipe)) > 1


def _named(recipe: Recipe) -> tuple[PostTrainingMethod, ...]:
    return tuple(method for method in recipe.methods if method != "auto")


def _ranges_of(recipe: Recipe) -> tuple[CalibrationRange, ...]:
    if recipe.calibration_range != "auto":
        return (recipe.calibration_range,)
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    return ("minmax",) if recipe.name == "int16x8" else _RANGES


def _best(tried: list[_Tried]) -> _Tried:
    """The last of those that each bettered the best before."""
    best = tried[0]
    for one in tried[1:]:
        if one.betters(best):
            best = one
    return best


def _record(setting: MethodSettings, made: QuantizedModel) -> PostTraining:
    return PostTraining(
        calibration_range=setting.calibration_range,
        methods=setting.methods,
        four_bit=made.four_bit,
    )


def answers(model: bytes, feeds: Mapping[str, Feed], *, threads: int) -> Answers:
    """What the model gives for all samples, as the real numbers that its integers stand for.

    Outputs of strings are left out: they are no numbers that could be nearer or farther.
    Raises `ToolFailed` where it does not run.
    """
    found: Answers = {}
    interpreter = open_interpreter(model, threads=threads)
    for key, feed in feeds.items():
        one = InProcessModel(interpreter, key)
        parts = [one.run(batch) for batch in feed]
        for name in one.outputs:
            values = np.concatenate([part[name] for part in parts])
            if values.dtype.kind != "S":
                found[key, name] = values.astype(np.float64)
    return found


def lowest_snr_db(expected: Answers, actual: Answers) -> float:
    """The signal-to-noise ratio of the output that has the lowest, in decibels."""
    with np.errstate(invalid="ignore", over="ignore"):
        return min(
            (
                snr_db(float(np.var(want)), float(np.mean((actual[output] - want) ** 2)))
                for output, want in expected.items()
            ),
            default=MAX_SNR_DB,
        )


def lowest_agreement(expected: Answers, actual: Answers) -> float | None:
    """The share of rows with the same largest value, of the output that has the lowest.

    None where no output has rows of several values.
    """
    shares = [
        float(np.mean(want.argmax(axis=-1) == actual[output].argmax(axis=-1)))
        for output, want in expected.items()
        if want.ndim > 1 and want.shape[-1] > 1
    ]
    return min(shares, default=None)
