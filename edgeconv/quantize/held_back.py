"""Files of one float graph compared with it on samples that they were not fitted to.

Each fold's file is made without the samples held back from it. The answers of all folds are joined
first. How they are compared is decided on all of them afterwards, so it is the same for each fold.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite import Logits, steps_by_output, with_logits
from edgeconv.model.tflite.cut import joined_outputs
from edgeconv.model.tflite.layers import work_of_invoke
from edgeconv.quantize.parted import OutputArrays, PartedOutput, parted_outputs, split_parts
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.refine.simulating import simulated
from edgeconv.quantize.trials import outputs_of
from edgeconv.runtimes.runner import join_samples
from edgeconv.statistics.outputs import SampleErrors, sample_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import CalibratedGraph, Feed, Fold
    from edgeconv.types import Recipe

    Steps = dict[tuple[str, str], float]
    Floats = NDArray[np.float64]


# Most comparisons are decided by as many.
_FIRST = 32
# Batches that tell what rounding activations to 16 bits does, which is much the same for all: two
# of a large model, and of a small one as many as half a second of the reference kernels gives.
_FEWEST_ROUNDED, _ROUNDED_WORK = 2, 500_000_000


class _FoldAnswers(NamedTuple):
    """What a fold's file and the float graph give for its held-back samples, with all logits.

    `steps` are the quantization steps of the file's outputs.
    """

    outputs: OutputArrays
    expected: OutputArrays
    steps: Steps


class HeldBackTrials:
    """Makes a file of each fold of one graph, and compares them all on the held-back samples.

    There is at least one fold. Methods raise `ToolFailed` where a file cannot be made or does not
    run.
    """

    def __init__(self, folds: Sequence[Fold], *, dense_per_tensor: bool = False) -> None:
        self._folds = tuple(folds)
        self._turns = tuple(turn for fold in folds[:1] for turn in _turns(fold)) + tuple(folds[1:])
        make = functools.partial(make_file, dense_per_tensor=dense_per_tensor)
        # The file of a fold's graph; the last ones are kept.
        self.file = functools.lru_cache(maxsize=2)(make)
        self._answered: tuple[Any, list[_FoldAnswers]] = (None, [])

    @property
    def samples(self) -> int:
        """How many samples there are to compare the files on."""
        return sum(feed.samples for fold in self._folds for feed in fold.held_back.values())

    @property
    def is_less_sure(self) -> bool:
        """Whether softmax or sigmoid are compared as if the model were less sure of its samples."""
        return bool(self._saturated)

    @property
    def fitting(self) -> tuple[CalibratedGraph, ...]:
        """The graph of each fold, with the samples that its files are fitted to."""
        return tuple(fold.fitting for fold in self._folds)

    def errors(
        self, recipe: Recipe, settings: MethodSettings, *, first: bool = False
    ) -> SampleErrors:
        """The errors of the files of a recipe with these settings, on all held-back samples.

        Or on the `first` of them, which are then not run again for all.
        """
        if self._answered[0] != (recipe, settings):
            self._answered = (recipe, settings), []
        answers = self._answered[1]
        for turn in self._turns[len(answers) : 1 if first else None]:
            answers.append(self._answers(turn, self._whole[len(answers)], recipe, settings))
        actual = self._compared(_joined([each.outputs for each in answers]))
        expected = self._compared(_joined([each.expected for each in answers]))
        # A file of another engine may have no logits.
        expected = {output: expected[output] for output in actual}
        return sample_errors(expected, actual, _joined_steps([each.steps for each in answers]))

    def _answers(
        self, fold: Fold, whole: OutputArrays, recipe: Recipe, settings: MethodSettings
    ) -> _FoldAnswers:
        """Of a fold's file; that of int16x8 is mostly computed in floats, see `simulating`."""
        graph = fold.fitting
        file = self.file(graph, recipe, settings)
        floating, has_16_bits = None, recipe.name == "int16x8"
        if has_16_bits:
            is_equalized = "equalization" in settings.methods
            floating = simulated(file.model, (graph.equalized[0] if is_equalized else graph).model)
        ends = graph.ends(16 if has_16_bits else 8) if recipe.has_ranges else {}

        def run(model: bytes, feeds: Mapping[str, Feed]) -> OutputArrays:
            model = with_logits(model)[0] if self._saturated else model
            return self._cut(outputs_of(model, feeds, threads=graph.threads), ends)

        outputs = run(floating or file.model, fold.held_back)
        if floating:
            outputs = _with_errors_of(run(file.model, self._few(fold)), outputs)
        return _FoldAnswers(
            outputs=outputs,
            expected=self._cut(whole, ends),
            steps=steps_by_output(file.model, fold.held_back),
        )

    def _few(self, fold: Fold) -> dict[str, Feed]:
        feeds = fold.held_back
        work = max(1, work_of_invoke(fold.fitting.model))
        work *= max(feed.batch for feed in feeds.values())
        most = max(_FEWEST_ROUNDED, _ROUNDED_WORK // work)
        return {key: feed.take(range(min(len(feed), most))) for key, feed in feeds.items()}

    def _cut(self, outputs: OutputArrays, ends: Mapping[str, tuple[float, float]]) -> OutputArrays:
        """Outputs whose logits end where a file's range does, since nothing sees further.

        `ends` has those of ranges by tensor.
        """
        cut = dict(outputs)
        for tempered in self._saturated:
            if tempered.logits.tensor in ends and tempered.key in cut:
                cut[tempered.key] = np.clip(cut[tempered.key], *ends[tempered.logits.tensor])
        return cut

    def _compared(self, outputs: OutputArrays) -> OutputArrays:
        """Outputs with their parts apart, and those that hide errors once more, see `saturation`.

        The values of a sigmoid are an answer each, and none has to be the largest: they are
        [samples, values, 1].
        """
        logits = {(each.signature, each.output) for each in self._exposed[1]}
        others = {output: values for output, values in outputs.items() if output not in logits}
        compared = split_parts(self._parted, others)
        for each in self._exposed[1]:
            output = each.signature, each.makes
            if each.beta is None and output in compared:
                compared[output] = compared[output].reshape(len(compared[output]), -1, 1)
        for tempered in self._saturated:
            if tempered.key in outputs:
                compared[tempered.key] = tempered.probabilities(outputs[tempered.key])
        return compared

    @cached_property
    def _parted(self) -> tuple[PartedOutput, ...]:
        """The outputs of several parts, of which a small one would not show in the whole."""
        joined = joined_outputs(self._folds[0].fitting.model)
        return parted_outputs(joined, _joined(self._whole)) if joined else ()

    @cached_property
    def _whole(self) -> tuple[OutputArrays, ...]:
        """What the float graph gives for the held-back samples of each turn, with all logits."""
        return tuple(
            outputs_of(self._exposed[0], turn.held_back, threads=turn.fitting.threads)
            for turn in self._turns
        )

    @cached_property
    def _exposed(self) -> tuple[bytes, tuple[Logits, ...]]:
        return with_logits(self._folds[0].fitting.model)

    @cached_property
    def _saturated(self) -> tuple[Tempered, ...]:
        logits = self._exposed[1]
        return saturated(logits, _joined(self._whole)) if logits else ()


def _with_errors_of(few: OutputArrays, outputs: OutputArrays) -> OutputArrays:
    """`outputs` with the differences of `few`, the same for the first samples, in turns."""
    return {
        key: values + np.resize(few[key] - values[: len(few[key])], values.shape)
        for key, values in outputs.items()
        if key in few
    }


def _turns(fold: Fold) -> tuple[Fold, ...]:
    """Some of the fold's held-back samples, evenly spread, and the others, if there are many."""
    feeds = fold.held_back
    step = min(feed.samples // _FIRST for feed in feeds.values())
    if step < 2 or min(map(len, feeds.values())) < step:
        return (fold,)
    places = {key: range(0, len(feed), step) for key, feed in feeds.items()}
    first = {key: feed.take(places[key]) for key, feed in feeds.items()}
    others = {
        key: feed.take(n for n in range(len(feed)) if n not in places[key])
        for key, feed in feeds.items()
    }
    return fold._replace(held_back=first), fold._replace(held_back=others)


def _joined(parts: Sequence[OutputArrays]) -> OutputArrays:
    sizes = [len(next(iter(part.values()))) for part in parts] if parts[0] else []
    return {output: join_samples([part[output] for part in parts], sizes) for output in parts[0]}


def _joined_steps(parts: Sequence[Steps]) -> Steps:
    """The step whose square is the mean of those of all parts: rounding errors add up so."""
    return {
        output: float(np.sqrt(np.mean([part[output] ** 2 for part in parts])))
        for output in parts[0]
    }


# Outputs of softmax and sigmoid as they would be if the network were less sure of its samples.
#
# A network is very sure of the samples that it was trained with, and calibration samples are such:
# its probabilities are 0 and 1, and hide errors that change answers on other samples. Divided by a
# temperature, the same logits give probabilities that show them (Guo et al. 2017, "On Calibration
# of Modern Neural Networks", section 4.2, where the confidence is to be the accuracy).

# As sure as a network that is right nine times of ten.
_CONFIDENCE = 0.9
# Rows that a temperature is found by, and how often its interval is halved.
_MOST_ROWS = 4096
_HALVINGS = 30
_MOST_TEMPERATURE = 2.0**10


class Tempered(NamedTuple):
    """Logits that saturate their output, and by what to divide them so that they do not."""

    logits: Logits
    temperature: float

    @property
    def key(self) -> tuple[str, str]:
        """Signature and output."""
        return self.logits.signature, self.logits.output

    def probabilities(self, values: Floats) -> Floats:
        """What logits [samples, ..., classes] would give: [samples, values, 1], of equal weight."""
        shares = _probabilities(values / self.temperature, self.logits.beta)
        return shares.reshape(len(shares), -1, 1)


def saturated(logits: Iterable[Logits], expected: OutputArrays) -> tuple[Tempered, ...]:
    """Those of the logits whose outputs are surer than those of a network that errs now and then.

    `expected` has the float model's, [samples, ..., classes].
    """
    saturating = []
    for each in logits:
        values = expected[each.signature, each.output]
        temperature = _temperature(values, each.beta) if values.size else 1.0
        if temperature > 1:
            saturating.append(Tempered(each, temperature))
    return tuple(saturating)


def _temperature(values: Floats, beta: float | None) -> float:
    """By what to divide logits for a mean confidence of `_CONFIDENCE`; 1 where it is not higher."""
    rows = values.reshape(-1, values.shape[-1] if beta is not None else 1)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)]
    low, high = 0.0, float(np.log2(_MOST_TEMPERATURE))
    if not np.isfinite(rows).all() or _confidence(rows, beta) <= _CONFIDENCE:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_sure = _confidence(rows / 2.0**middle, beta) > _CONFIDENCE
        low, high = (middle, high) if is_sure else (low, middle)
    return float(2.0**high)


def _confidence(rows: Floats, beta: float | None) -> float:
    shares = _probabilities(rows, beta)
    most = np.maximum(shares, 1 - shares) if beta is None else shares.max(axis=-1)
    return float(most.mean())


def _probabilities(logits: Floats, beta: float | None) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        if beta is None:
            return 1 / (1 + np.exp(-logits))
        powers = np.exp(beta * (logits - logits.max(axis=-1, keepdims=True)))
        shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
        return shares
