"""A float graph and what calibration finds of it, each part once, when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from edgeconv.errors import ToolFailed
from edgeconv.processes.tasks import report_progress
from edgeconv.quantize.calibrate import activation_ranges, widened
from edgeconv.quantize.engine import ENGINE_ERRORS, reason
from edgeconv.quantize.equalisation.equalise import equalised
from edgeconv.quantize.ranges.clipping import clipped
from edgeconv.quantize.ranges.histograms import histograms
from edgeconv.quantize.ranges.softmax import above_floors, softmax_floors
from edgeconv.tflite import activation_bounds, with_input_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.ranges.histograms import Histogram
    from edgeconv.quantize.ranges.softmax import Floor
    from edgeconv.types import CalibrationRange

Found = TypeVar("Found")


class Fitted(NamedTuple):
    """The ranges as a recipe needs them, and notes on what was changed in them."""

    ranges: dict[str, Any]
    notes: tuple[str, ...]


class CalibratedGraph:
    """A float graph with the samples of its signatures that it is calibrated with.

    Every method raises `ToolFailed` where the runtime cannot run the graph, and `InputRefused`
    for samples that give senseless ranges.
    """

    def __init__(self, model: bytes, feeds: Mapping[str, Feed], *, threads: int) -> None:
        shapes = {key: feed.shapes for key, feed in feeds.items()}
        self.model = with_input_shapes(model, shapes)
        self.feeds = dict(feeds)
        self.threads = threads

    def fitted(self, method: CalibrationRange, *, bits: int) -> Fitted:
        """The ranges by `method` for activations of so many bits."""
        ranges = self._calibrated(lambda: self._ranges(method, bits))
        ranges, wide = widened(ranges, activation_bounds(self.model), bits=bits)
        ranges, cut = above_floors(ranges, self._floors, bits=bits)
        notes = []
        if wide:
            notes.append(
                f"{len(wide)} ranges were widened, the runtime cannot express smaller ones"
            )
        if cut:
            notes.append(
                f"the ranges of {len(cut)} softmax inputs end where a softmax sees nothing"
            )
        return Fitted(ranges, tuple(notes))

    @cached_property
    def equalised(self) -> tuple[CalibratedGraph, tuple[str, ...]]:
        """The same graph with its layers equalised, and notes; itself where nothing applies."""
        done = self._calibrated(lambda: equalised(self.model, self.feeds, threads=self.threads))
        if done.model == self.model:
            return self, done.notes
        notes = (
            f"{len(done.pairs)} pairs of layers were equalised, and biases of "
            f"{len(done.absorbed)} moved on",
            *done.notes,
        )
        return CalibratedGraph(done.model, self.feeds, threads=self.threads), notes

    def _ranges(self, method: CalibrationRange, bits: int) -> dict[str, Any]:
        if method == "ema":
            return self._collected("ema")
        # With 16 bits there is room for every value, and nothing to gain by clipping.
        if method == "minmax" or method == "auto" or bits == 16:
            return self._minmax
        return clipped(method, self._histograms, self._minmax, bits=bits)

    def _collected(self, method: Literal["minmax", "ema"]) -> dict[str, Any]:
        report_progress("calibrating")
        return activation_ranges(
            self.model, self.feeds, calibration_range=method, threads=self.threads
        )

    @cached_property
    def _minmax(self) -> dict[str, Any]:
        return self._collected("minmax")

    @cached_property
    def _histograms(self) -> dict[str, Histogram]:
        return histograms(self.model, self.feeds, self._minmax, threads=self.threads)

    @cached_property
    def _floors(self) -> list[Floor]:
        return self._calibrated(
            lambda: softmax_floors(self.model, self.feeds, self._minmax, threads=self.threads)
        )

    @staticmethod
    def _calibrated(find: Callable[[], Found]) -> Found:
        try:
            return find()
        except ENGINE_ERRORS as error:
            raise ToolFailed(f"calibration: {reason(error)}") from error
