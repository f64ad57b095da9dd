"""A float graph and what its calibration samples show, each part computed once, when it is needed.

Ranges are true minima and maxima unless a recipe names an exponential moving average. The
quantizer's default is the average, which clips: Jacob et al. 2018, "Quantization and Training of
Neural Networks for Efficient Integer-Arithmetic-Only Inference", section 3.1, propose it for
training, where ranges drift.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeconv.model.tflite import (
    FloatLayer,
    activation_bounds,
    float_layers,
    multiplications,
    squashed_tensors,
    sum_units,
    with_input_shapes,
)
from edgeconv.model.tflite.kernels import JUMPING, IntegerType
from edgeconv.model.tflite.rewriting import may_be_rewritten
from edgeconv.quantize.equalization.equalize import equalize, same_outputs
from edgeconv.quantize.even_inputs import dense_inputs, even_inputs
from edgeconv.quantize.quantize import engine_errors, plain_ranges
from edgeconv.quantize.ranges.clipping import clip_ranges
from edgeconv.quantize.ranges.histograms import Histogram, histograms
from edgeconv.quantize.ranges.softmax import (
    Floor,
    cut_at_floors,
    cut_where_squashed,
    softmax_floors,
    squashing_end,
)
from edgeconv.quantize.ranges.unseen import widen_unseen
from edgeconv.quantize.refine.refining import RefinedModel
from edgeconv.quantize.refine.running import KeptOutputs
from edgeconv.quantize.rules import float_outputs
from edgeconv.quantize.states import States, with_common_ranges
from edgeconv.system.processes.tasks import report_progress
from edgeconv.system.store import quantizer_module
from edgeconv.types import CalibrationRange, Recipe
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import listed

# No activation of a working model is this large, and no scale made from it makes sense.
MAX_MAGNITUDE = 1e15
# Layers are fitted to as many samples where others are left to judge by, and to more if these are.
_LEAST_FITTED, _MOST_FITTED, _MOST_JUDGING = 128, 256, 128
_FEW_PRODUCTS = 2e9
_INT32_MAX = 2**31 - 1
# Other samples go beyond the range of these: cut off, they cost up to 24 dB. In 16 bits a wider
# range costs nothing that can be measured.
_ROOM = 1.5
_MOST_NAMED = 3


class Feed:
    """Samples as the calibrator takes them: re-iterable, of known length, one batch each.

    `arrays` are by input name, [samples, ...] each, in the dtypes of the inputs.
    """

    def __init__(
        self,
        arrays: dict[str, NDArray[np.generic]],
        batch: int,
        numbers: Sequence[int] | None = None,
        *,
        stacked: Collection[str] = (),
    ) -> None:
        """`numbers` are those of the batches to take, in this order; None takes all.

        `stacked` names the inputs without a batch dimension, which get a sample at a time.
        """
        self._arrays = arrays
        self._batch = batch
        self._stacked = stacked
        count = len(next(iter(arrays.values()))) // batch
        self._numbers = range(count) if numbers is None else numbers

    @property
    def samples(self) -> int:
        """How many samples there are, in whole batches."""
        return len(self) * self._batch

    @property
    def batch(self) -> int:
        """How many samples a batch has."""
        return self._batch

    def take(self, numbers: Iterable[int]) -> Feed:
        """The batches at these positions, in this order."""
        chosen = [self._numbers[number] for number in numbers]
        return Feed(self._arrays, self._batch, chosen, stacked=self._stacked)

    def with_steps(self, steps: Mapping[str, float]) -> Feed:
        """The same samples, with some inputs rounded to multiples of a step; 0 leaves them."""
        rows = (np.asarray(self._numbers)[:, None] * self._batch + np.arange(self._batch)).ravel()
        arrays = {name: array[rows] for name, array in self._arrays.items()}
        for name, step in steps.items():
            if step:
                given = arrays[name].dtype
                values = np.rint(arrays[name].astype(np.float32) / step) * step
                arrays[name] = (values if given.kind == "f" else np.rint(values)).astype(given)
        rounded = copy.copy(self)
        rounded._arrays, rounded._numbers = arrays, range(len(self._numbers))
        return rounded

    def split(self, held_back: int) -> tuple[Feed, Feed]:
        """All but the last `held_back` samples, and those, in whole batches, at least one each."""
        end = len(self) - min(max(1, held_back // self._batch), len(self) - 1)
        return self.take(range(end)), self.take(range(end, len(self)))

    @property
    def fitted_batches(self) -> list[int]:
        """Positions of the batches that layers are fitted to, evenly spread over all."""
        most = min(max(_LEAST_FITTED, self.samples - _MOST_JUDGING), _MOST_FITTED)
        count = max(1, min(len(self), most // self._batch))
        numbers: list[int] = np.linspace(0, len(self) - 1, count).astype(int).tolist()
        return numbers

    def column_ranges(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the greatest value of each column of an input, (columns,)."""
        lows, highs = [], []
        for batch in self:
            rows = np.asarray(batch[name], np.float64).reshape(-1, batch[name].shape[-1])
            lows.append(rows.min(axis=0))
            highs.append(rows.max(axis=0))
        return np.min(lows, axis=0), np.max(highs, axis=0)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of a batch of each input."""
        return {
            name: array.shape[1:] if name in self._stacked else (self._batch, *array.shape[1:])
            for name, array in self._arrays.items()
        }

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        from edgeconv.data.arrays import as_tensorflow_takes

        for index in self._numbers:
            part = slice(index * self._batch, (index + 1) * self._batch)
            batch = as_tensorflow_takes({name: a[part] for name, a in self._arrays.items()})
            yield {
                name: np.ascontiguousarray(value[0] if name in self._stacked else value)
                for name, value in batch.items()
            }


def activation_ranges(
    float_model: bytes,
    feeds: dict[str, Feed],
    *,
    calibration_range: Literal["minmax", "ema"],
    threads: int,
) -> dict[str, Any]:
    """The range of every activation tensor by name: {"min": array, "max": array}, float32 [1, ...].

    `feeds` has the samples by signature. Raises `InputRefused` for a range that is not finite or
    implausibly large, and `ToolFailed` where the calibrator does not run.
    """
    ranges = measured_ranges(
        float_model, feeds, calibration_range=calibration_range, threads=threads
    )
    _refuse_senseless(ranges)
    return ranges


def measured_ranges(
    float_model: bytes,
    feeds: dict[str, Feed],
    *,
    calibration_range: Literal["minmax", "ema"],
    threads: int,
) -> dict[str, Any]:
    """As `activation_ranges`, but of any size.

    The runtime's profiler collects the ranges in C++.
    """
    calibrator, recipe = quantizer_module("calibrator"), quantizer_module("recipe")
    qsv_utils = quantizer_module("utils.qsv_utils")
    update = {"minmax": qsv_utils.min_max_update, "ema": qsv_utils.moving_average_update}
    manager = quantizer_module("recipe_manager").RecipeManager()
    manager.load_quantization_recipe(recipe.static_wi8_ai8())
    with engine_errors("calibration"):
        runner = calibrator.Calibrator(
            float_model,
            num_threads=threads,
            mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
            qsv_update_func=update[calibration_range],
        )
        runner.calibrate(feeds, manager)
        ranges: dict[str, Any] = runner.get_model_qsvs()
    return ranges


def _refuse_senseless(ranges: dict[str, Any]) -> None:
    for name, limits in ranges.items():
        values: Sequence[float] = [
            float(v) for bound in ("min", "max") for v in np.ravel(limits[bound])
        ]
        if not np.isfinite(values).all() or max(map(abs, values)) > MAX_MAGNITUDE:
            raise InputRefused(
                f"calibration gives tensor {name!r} the range {min(values):g} … {max(values):g}",
                hint="look for samples that the model was not made for, or a layer that overflows",
            )


def widen_ranges(
    ranges: dict[str, Any], bounds: dict[str, float], *, bits: int
) -> tuple[dict[str, Any], list[str]]:
    """`ranges` made wide enough to express each tensor's bound, and the names of those widened.

    A kernel with a fused RELU6 computes 6 / scale as an int32, and refuses a model in which that
    overflows, as for a layer of an untrained network that hardly ever fires; the softmax of
    tflite-micro ends the program where the steps of its input are as small. `bounds` (of
    `edgeconv.model.tflite.activation_bounds`) has the bound by tensor name.
    """
    levels = _levels(bits)
    wide, names = dict(ranges), []
    for name, bound in bounds.items():
        # Twice the least, so that rounding of the scale to float32 cannot undo it.
        least = 2 * bound * levels / _INT32_MAX
        limits = ranges.get(name)
        if limits and float(np.max(limits["max"]) - min(0.0, np.min(limits["min"]))) < least:
            wide[name] = {**limits, "max": np.maximum(limits["max"], least)}
            names.append(name)
    return wide, names


def _levels(bits: int) -> int:
    return (1 << 15) - 1 if bits == 16 else (1 << bits) - 1


def _sum_bounds(model: bytes, ranges: dict[str, Any], *, bits: int) -> dict[str, float]:
    """What the output of each weighted layer has to express, by name, see `widen_ranges`.

    XNNPACK refuses a model in which a unit of the integer sum is 256 steps of the output or more,
    as for a layer that never fires. With these bounds it is at most 128.
    """
    scales = {
        name: float(max(0.0, np.max(limits["max"])) - min(0.0, np.min(limits["min"])))
        / _levels(bits)
        for name, limits in ranges.items()
        if np.size(limits["max"]) == 1
    }
    return {name: unit * 2.0**23 for name, unit in sum_units(model, scales).items()}


class FittedRanges(NamedTuple):
    """The ranges as a recipe needs them, and notes on what was changed."""

    ranges: dict[str, Any]
    notes: tuple[str, ...]


class Fold(NamedTuple):
    """A graph on a part of the samples, and the feeds that it has not seen, by signature."""

    fitting: CalibratedGraph
    held_back: Mapping[str, Feed]


class CalibratedGraph:
    """A float graph with the samples of its signatures that it is calibrated with.

    `quantized` is what TFLiteConverter made of the same model, if that is to be refined. `states`
    are the outputs that are fed back, which share their scale with the input. Every method raises
    `ToolFailed` where the runtime cannot run the graph, and `InputRefused` for samples that give
    senseless ranges.
    """

    def __init__(
        self,
        model: bytes,
        feeds: Mapping[str, Feed],
        *,
        threads: int,
        quantized: bytes | None = None,
        states: States = MappingProxyType({}),
    ) -> None:
        shapes = {key: feed.shapes for key, feed in feeds.items()}
        self.model = with_input_shapes(model, shapes)
        self.feeds = dict(feeds)
        self.threads = threads
        self.quantized = quantized
        self.states = states
        self._parts: tuple[CalibratedGraph, ...] = ()
        # Equal graphs by integers and what stays in float; and for which this one is, with notes.
        self._rewritten: dict[tuple[IntegerType, tuple[str, ...], bool], CalibratedGraph] = {}
        self._settled: dict[IntegerType, tuple[str, ...]] = {}
        self._fitted: dict[tuple[CalibrationRange, int], FittedRanges] = {}
        # Files with float activations after the pass over layers, see `quantize`.
        self.refined: dict[Hashable, RefinedModel] = {}
        self.float_outputs = KeptOutputs()

    def folds(self, parts: Sequence[Mapping[str, Sequence[int]]], count: int) -> tuple[Fold, ...]:
        """Each of the last `count` parts held back, with the graph on all the others.

        A part has positions of batches by signature; together they are all, each once. Minima and
        maxima of all samples are from then on those of the parts. Where a part has none of the
        samples that layers are fitted to, the graph on the others has the same ones.
        """
        graphs = tuple(self._on(part) for part in parts)
        self._parts = graphs
        folds = []
        for index in range(len(parts) - count, len(parts)):
            others = [number for number in range(len(parts)) if number != index]
            fitting = graphs[others[0]]
            if len(others) > 1:
                fitting = self._on(
                    {key: sorted(n for o in others for n in parts[o][key]) for key in self.feeds}
                )
                fitting._parts = tuple(graphs[number] for number in others)
            if self.fitted_feeds is not self.feeds and all(
                set(feed.fitted_batches).isdisjoint(parts[index][key])
                for key, feed in self.feeds.items()
            ):
                # What was fitted for a trial is what is published.
                fitting.fitted_feeds, fitting.refined = self.fitted_feeds, self.refined
                fitting.float_outputs = self.float_outputs
            folds.append(Fold(fitting, graphs[index].feeds))
        return tuple(folds)

    def _on(self, batches: Mapping[str, Sequence[int]]) -> CalibratedGraph:
        feeds = {key: feed.take(batches[key]) for key, feed in self.feeds.items()}
        part = CalibratedGraph(
            self.model, feeds, threads=self.threads, quantized=self.quantized, states=self.states
        )
        part._settled = self._settled
        return part

    @cached_property
    def fitted_feeds(self) -> dict[str, Feed]:
        """The samples that the pass over layers sees: all for a model that takes no time."""
        samples = sum(feed.samples for feed in self.feeds.values())
        if samples * multiplications(self.model) < _FEW_PRODUCTS:
            return self.feeds
        return {key: feed.take(feed.fitted_batches) for key, feed in self.feeds.items()}

    @cached_property
    def layers(self) -> tuple[FloatLayer, ...]:
        """The layers of the graph, in its order."""
        return float_layers(self.model)

    def fitted(self, method: CalibrationRange, *, bits: int) -> FittedRanges:
        """The ranges by `method` for activations of `bits` bits; computed once."""
        if (method, bits) not in self._fitted:
            self._fitted[method, bits] = self._fit(method, bits)
        return self._fitted[method, bits]

    def _fit(self, method: CalibrationRange, bits: int) -> FittedRanges:
        ranges = with_common_ranges(self.model, self._ranges(method, bits), self.states)
        ranges, squashed = cut_where_squashed(ranges, self._squashed, bits=bits)
        ranges, unseen = widen_unseen(self.model, ranges, bits=bits)
        bounds = _sum_bounds(self.model, ranges, bits=bits)
        for name, bound in activation_bounds(self.model).items():
            bounds[name] = max(bound, bounds.get(name, 0.0))
        ranges, wide = widen_ranges(ranges, bounds, bits=bits)
        ranges, cut = cut_at_floors(ranges, self._floors, bits=bits)
        notes = []
        if unseen:
            short = {name: each.short_name for each in self.layers for name in each.outputs}
            names = listed((short.get(name, name) for name in unseen), _MOST_NAMED)
            notes.append(
                f"ranges were widened, since the samples leave these at zero or nearly so: {names}"
            )
        if wide:
            notes.append(
                f"{len(wide)} ranges were widened, the runtime cannot express smaller ones"
            )
        if cut:
            notes.append(
                f"the ranges of {len(cut)} inputs of a softmax were cut off far below their "
                "largest values, where its outputs are 0"
            )
        if squashed:
            notes.append(
                f"the ranges of {len(squashed)} inputs of sigmoid or tanh end where it is constant"
            )
        return FittedRanges(ranges, tuple(notes))

    def ends(self, bits: int) -> dict[str, tuple[float, float]]:
        """Where ranges of `bits` bits end as what reads them sees nothing beyond, by tensor."""
        floors = {name: floor.at(bits) for floor in self._floors for name in floor.tensors}
        ends = {name: (floor, np.inf) for name, floor in floors.items()}
        for name, kind in self._squashed.items():
            end = squashing_end(kind, bits)
            ends[name] = -end, end
        return ends

    @cached_property
    def _squashed(self) -> dict[str, str]:
        return squashed_tensors(self.model)

    @cached_property
    def equalized(self) -> tuple[CalibratedGraph, tuple[str, ...]]:
        """The same graph with its layers equalized, and notes; itself where nothing applies."""
        if self.quantized is not None:
            return self, (
                "equalization needs another float graph, which TFLiteConverter cannot take",
            )
        result = equalize(self.model, self.feeds, threads=self.threads)
        if result.model == self.model:
            return self, result.notes
        notes = (
            f"{len(result.pairs)} pairs of layers were equalized, and biases of "
            f"{len(result.absorbed)} moved to the next layer",
            *result.notes,
        )
        return self.on_equal(result.model), notes

    @cached_property
    def evened(self) -> CalibratedGraph | None:
        """An equal graph that evens out the columns of its inputs; None where there is none."""
        if self.quantized is not None or not self.feeds:
            return None
        ranges = {
            (key, name): self.feeds[key].column_ranges(name)
            for key, name in dense_inputs(self.model)
            if key in self.feeds
        }
        model = even_inputs(self.model, ranges) if ranges else None
        if model is None or not same_outputs(self.model, model, self.feeds, threads=self.threads):
            return None
        return self.on_equal(model)

    def on_equal(self, model: bytes) -> CalibratedGraph:
        """The same samples with another float graph that gives the same for them."""
        equal = CalibratedGraph(model, self.feeds, threads=self.threads, states=self.states)
        equal._settled = self._settled
        return equal

    def with_kernels_for(self, recipe: Recipe) -> tuple[CalibratedGraph, tuple[str, ...]]:
        """An equal graph whose operators have kernels for the recipe's integers, and notes.

        Itself where nothing applies, and for recipes with float activations. An operator that a
        rule leaves in float stays what it is.
        """
        from edgeconv.quantize.rewritten import equal_graph

        if not recipe.full_integer or self.quantized is not None or not self.feeds:
            return self, ()
        integers: IntegerType = "int16" if recipe.name == "int16x8" else "int8"
        kept = float_outputs(self.layers, recipe)
        if integers in self._settled or not may_be_rewritten(self.model, integers):
            return self, self._settled.get(integers, ())
        key = (integers, kept, recipe.only_integers)
        if key not in self._rewritten:
            ranges = plain_ranges(self._measured)
            equal = equal_graph(
                self.model,
                self.feeds,
                ranges,
                integers,
                kept=kept,
                left=() if recipe.only_integers else JUMPING,
                threads=self.threads,
            )
            notes: tuple[str, ...] = ()
            # What stays for one recipe's rules may change for another recipe.
            graph = copy.copy(self)
            if equal.changes:
                graph = CalibratedGraph(
                    equal.model, self.feeds, threads=self.threads, states=self.states
                )
                names = ", ".join(sorted(equal.changes))
                notes = (f"rewritten as operators that have integer kernels: {names}",)
            graph._settled = {**self._settled, integers: notes}
            self._rewritten[key] = graph
        graph = self._rewritten[key]
        return graph, graph._settled[integers]

    def _ranges(self, method: CalibrationRange, bits: int) -> dict[str, Any]:
        if method == "ema":
            report_progress("calibrating")
            return activation_ranges(
                self.model, self.feeds, calibration_range="ema", threads=self.threads
            )
        if bits == 16:
            return {
                name: {"min": each["min"] * _ROOM, "max": each["max"] * _ROOM}
                for name, each in self._minmax.items()
            }
        if method == "minmax" or method == "auto":
            return self._minmax
        return clip_ranges(method, self._histograms, self._minmax, bits=bits)

    @cached_property
    def _measured(self) -> dict[str, Any]:
        """True minima and maxima of any size."""
        report_progress("calibrating")
        return measured_ranges(
            self.model, self.feeds, calibration_range="minmax", threads=self.threads
        )

    @cached_property
    def _minmax(self) -> dict[str, Any]:
        if not self._parts or "_measured" in vars(self):
            _refuse_senseless(self._measured)
            return self._measured
        # A tensor within a branch may have values in one part only.
        merged: dict[str, Any] = {}
        for part in self._parts:
            for name, limits in part._minmax.items():
                before = merged.get(name, limits)
                merged[name] = {
                    "min": np.minimum(before["min"], limits["min"]),
                    "max": np.maximum(before["max"], limits["max"]),
                }
        return merged

    @cached_property
    def _histograms(self) -> dict[str, Histogram]:
        return histograms(self.model, self.feeds, self._minmax, threads=self.threads)

    @cached_property
    def _floors(self) -> list[Floor]:
        return softmax_floors(self.model, self.feeds, self._minmax, threads=self.threads)
