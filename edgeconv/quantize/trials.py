"""Files made of one float graph, each compared with the graph on the same samples."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.quantize.parted import parted_outputs, split_parts
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.refine.simulating import simulated
from edgeconv.quantize.saturation import saturated
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.statistics.outputs import snr_db
from edgeconv.tflite import steps_by_output, with_logits
from edgeconv.tflite.joined import joined_outputs
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.quantize.calibrate import CalibratedGraph, Feed
    from edgeconv.quantize.parted import OutputArrays, PartedOutput
    from edgeconv.quantize.saturation import Tempered
    from edgeconv.tflite import Logits
    from edgeconv.types import Recipe


class QuantizeTrial(NamedTuple):
    """A file, the settings that it was made with, and how close its outputs are.

    `snr_db` is that of the output with the lowest, and `agreement` the fraction of rows with the
    same largest value; None where no output has rows of several values.
    """

    settings: MethodSettings
    file: QuantizedModel
    snr_db: float
    agreement: float | None


class ComparedFile(NamedTuple):
    """A file, what it and the float graph give for all samples, and its quantization steps.

    `outputs` and `expected` have the parts of outputs apart, see `parted`, and those that are so
    sure that they hide errors once more, see `saturation`.
    """

    file: QuantizedModel
    outputs: OutputArrays
    expected: OutputArrays
    steps: dict[tuple[str, str], float]


class QuantizeTrials:
    """Makes files of `graph`, and compares them with it on the samples `feeds`, by signature.

    `parted` are the outputs of several parts; None finds them by these samples. Methods raise
    `ToolFailed` where a file cannot be made or does not run.
    """

    def __init__(
        self,
        graph: CalibratedGraph,
        feeds: Mapping[str, Feed],
        *,
        dense_per_tensor: bool = False,
        parted: tuple[PartedOutput, ...] | None = None,
    ) -> None:
        self.graph = graph
        self.feeds = feeds
        self._dense_per_tensor = dense_per_tensor
        self._parted = parted

    def run(self, recipe: Recipe, settings: MethodSettings) -> QuantizeTrial:
        """Make the file of a recipe with these settings, and compare it."""
        file = make_file(self.graph, recipe, settings, dense_per_tensor=self._dense_per_tensor)
        actual = self.outputs(file.model)
        return QuantizeTrial(
            settings,
            file,
            lowest_snr_db(self.expected, actual),
            lowest_agreement(self.expected, actual),
        )

    def answers(self, recipe: Recipe, settings: MethodSettings) -> ComparedFile:
        """The file of a recipe with these settings, and what it gives for all samples.

        That of int16x8 is computed in floats with the file's weights, see `simulating`.
        """
        file = make_file(self.graph, recipe, settings, dense_per_tensor=self._dense_per_tensor)
        model = None
        if recipe.name == "int16x8":
            is_equalized = "equalization" in settings.methods
            graph = self.graph.equalized[0] if is_equalized else self.graph
            model = simulated(file.model, graph.model)
        floors = self.graph.floors if recipe.has_ranges and model is None else {}
        model = model or file.model
        if self._saturated:
            model, _ = with_logits(model)
        outputs = outputs_of(model, self.feeds, threads=self.graph.threads)
        actual = self._compared(outputs, floors)
        whole = self._compared(self._whole, floors)
        return ComparedFile(
            file=file,
            outputs=actual,
            # A file of another engine may have no logits.
            expected={output: whole[output] for output in actual},
            steps=steps_by_output(file.model, self.feeds),
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
        return split_parts(self.parted, self._without_logits(self._whole))

    def _compared(self, outputs: OutputArrays, floors: Mapping[str, float]) -> OutputArrays:
        """Outputs with their parts apart, and those that hide errors once more, see `saturation`.

        `floors` has the ends of ranges by tensor. The values of a sigmoid are an answer each, and
        none has to be the largest: they are [samples, values, 1].
        """
        compared = split_parts(self.parted, self._without_logits(outputs))
        for each in self._exposed[1]:
            output = each.signature, each.makes
            if each.beta is None and output in compared:
                compared[output] = compared[output].reshape(len(compared[output]), -1, 1)
        for tempered in self._saturated:
            if tempered.key in outputs:
                compared[tempered.key] = tempered.probabilities(
                    outputs[tempered.key], floors.get(tempered.logits.tensor)
                )
        return compared

    def _without_logits(self, outputs: OutputArrays) -> OutputArrays:
        names = {(each.signature, each.output) for each in self._exposed[1]}
        return {output: values for output, values in outputs.items() if output not in names}

    @cached_property
    def parted(self) -> tuple[PartedOutput, ...]:
        """The outputs of several parts, of which a small one would not show in the whole."""
        if self._parted is not None:
            return self._parted
        joined = joined_outputs(self.graph.model)
        return parted_outputs(joined, self._whole) if joined else ()

    @cached_property
    def _whole(self) -> OutputArrays:
        return outputs_of(self._exposed[0], self.feeds, threads=self.graph.threads)

    @cached_property
    def _exposed(self) -> tuple[bytes, tuple[Logits, ...]]:
        return with_logits(self.graph.model)

    @cached_property
    def _saturated(self) -> tuple[Tempered, ...]:
        return saturated(self._exposed[1], self._whole)

    @property
    def samples(self) -> int:
        """How many samples the files are compared on."""
        return sum(feed.samples for feed in self.feeds.values())


def outputs_of(model: bytes, feeds: Mapping[str, Feed], *, threads: int) -> OutputArrays:
    """What the model gives for all samples, integers as the real numbers that they stand for.

    Outputs of strings are left out. Raises `ToolFailed` where the model does not run.
    """
    outputs: OutputArrays = {}
    interpreter = open_interpreter(model, threads=threads)
    for key, feed in feeds.items():
        signature = InProcessModel(interpreter, key)
        parts = [signature.run(batch) for batch in feed]
        for name in signature.outputs:
            values = np.concatenate([part[name] for part in parts])
            if values.dtype.kind != "S":
                outputs[key, name] = values.astype(np.float64)
    return outputs


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
