"""Files made of one float graph, each compared with the graph on the same samples."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.cut import joined_outputs
from edgeconv.quantize.parted import OutputArrays, PartedOutput, parted_outputs, split_parts
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.runtimes.runner import Batch, join_batches
from edgeconv.statistics.outputs import snr_db
from edgeconv.types import MAX_SNR_DB, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.quantize.calibrate import CalibratedGraph, Feed

# Samples of each signature to compare on: the order of the layers hardly changes with more.
COMPARISON_SAMPLES = 32
# Fewer are not worth another interpreter.
_FEWEST_BATCHES = 8


class QuantizeTrial(NamedTuple):
    """A file, the settings that it was made with, and how close its outputs are.

    `snr_db` is that of the output with the lowest, and `agreement` the fraction of rows with the
    same largest value; None where no output has rows of several values.
    """

    settings: MethodSettings
    file: QuantizedModel
    snr_db: float
    agreement: float | None


def comparison_feeds(
    feeds: Mapping[str, Feed], samples: int = COMPARISON_SAMPLES
) -> dict[str, Feed]:
    """The last samples of each signature, or all where there are fewer, in whole batches."""
    return {
        key: feed.split(samples)[1] if feed.samples > samples and len(feed) > 1 else feed
        for key, feed in feeds.items()
    }


class QuantizeTrials:
    """Makes files of `graph`, and compares them with it on the samples `feeds`, by signature.

    Methods raise `ToolFailed` where a file cannot be made or does not run.
    """

    def __init__(self, graph: CalibratedGraph, feeds: Mapping[str, Feed]) -> None:
        self.graph = graph
        self.feeds = feeds

    def run(self, recipe: Recipe, settings: MethodSettings) -> QuantizeTrial:
        """Make the file of a recipe with these settings, and compare it."""
        file = make_file(self.graph, recipe, settings)
        actual = self.outputs(file.model)
        return QuantizeTrial(
            settings,
            file,
            lowest_snr_db(self.expected, actual),
            lowest_agreement(self.expected, actual),
        )

    def snr_db(self, model: bytes) -> float:
        """The lowest signal-to-noise ratio of all outputs of a .tflite, in decibels."""
        return lowest_snr_db(self.expected, self.outputs(model))

    def outputs(self, model: bytes) -> OutputArrays:
        """What a .tflite gives for all samples, with the parts of outputs apart, see `parted`."""
        outputs = outputs_of(model, self.feeds, threads=self.graph.threads)
        return split_parts(self.parted, outputs)

    @cached_property
    def expected(self) -> OutputArrays:
        """What the float graph gives, with the parts of outputs apart."""
        return split_parts(self.parted, self._whole)

    @cached_property
    def parted(self) -> tuple[PartedOutput, ...]:
        """The outputs of several parts, of which a small one would not show in the whole."""
        joined = joined_outputs(self.graph.model)
        return parted_outputs(joined, self._whole) if joined else ()

    @cached_property
    def _whole(self) -> OutputArrays:
        return outputs_of(self.graph.model, self.feeds, threads=self.graph.threads)

    @property
    def samples(self) -> int:
        """How many samples the files are compared on."""
        return sum(feed.samples for feed in self.feeds.values())


def outputs_of(model: bytes, feeds: Mapping[str, Feed], *, threads: int) -> OutputArrays:
    """What the model gives for all samples, integers as the real numbers that they stand for.

    Outputs of strings are left out. Raises `ToolFailed` where the model does not run.
    """
    outputs: OutputArrays = {}
    for key, feed in feeds.items():
        # An interpreter for each thread, as in `refine.running`.
        most = max(1, min(threads, len(feed) // _FEWEST_BATCHES))
        bounds = np.linspace(0, len(feed), most + 1).astype(int)
        parts = [feed.take(range(a, b)) for a, b in itertools.pairwise(bounds)]
        with ThreadPoolExecutor(most) as pool:
            runs = [run for part in pool.map(partial(_run, model, key), parts) for run in part]
        for name, values in join_batches(runs, [feed.batch] * len(feed)).items():
            if values.dtype.kind != "S":
                outputs[key, name] = values.astype(np.float64)
    return outputs


def _run(model: bytes, key: str, feed: Feed) -> list[Batch]:
    signature = InProcessModel(open_interpreter(model), key)
    return [signature.run(batch) for batch in feed]


def lowest_snr_db(expected: OutputArrays, actual: OutputArrays) -> float:
    """The signal-to-noise ratio of the output that has the lowest, in decibels."""
    with np.errstate(invalid="ignore", over="ignore"):
        return min(
            (
                snr_db(float(np.var(values)), float(np.mean((actual[output] - values) ** 2)))
                for output, values in expected.items()
            ),
            default=MAX_SNR_DB,
        )


def lowest_agreement(expected: OutputArrays, actual: OutputArrays) -> float | None:
    """The fraction of rows with the same largest value, of the output that has the lowest.

    None where no output has rows of several values.
    """
    shares = [
        float(np.mean(values.argmax(axis=-1) == actual[output].argmax(axis=-1)))
        for output, values in expected.items()
        if values.ndim > 1 and values.shape[-1] > 1
    ]
    return min(shares, default=None)
