"""Runs all samples through a graph, from one operator to the next."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.model.tflite.cut import with_fixed_shapes
from edgeconv.model.tflite.flatbuffer import text
from edgeconv.model.tflite.operators import scales_of, type_of
from edgeconv.model.tflite.segments import GraphSegments
from edgeconv.quantize.refine.moments import Geometry, Quantity, layer_outputs
from edgeconv.runtimes.in_process import open_interpreter, runtime_errors
from edgeconv.runtimes.runner import quantize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT, TensorT
    from numpy.typing import NDArray

    from edgeconv.quantize.refine.layers import RefinableLayer

    Array = NDArray[np.generic]
    Values = NDArray[np.float32]
    Key = tuple[int, bool, int]


class SampleRun:
    """Runs all samples through a graph, up to operator number `last`.

    `inputs` are by signature input, (samples, *shape of one run), floats where the graph takes
    integers.
    """

    def __init__(
        self, model: ModelT, last: int, inputs: Mapping[str, Array], *, threads: int
    ) -> None:
        self._model = model
        self._threads = threads
        self._pieces = GraphSegments(model, last)
        tensors = model.subgraphs[0].tensors
        self._inputs: dict[int, Array] = {
            entry.tensorIndex: _as_stored(tensors[entry.tensorIndex], inputs[text(entry.name)])
            for entry in model.signatureDefs[0].inputs
        }
        self._values: dict[int, Array] = {}
        self._at = 0
        self._start()

    def advance(self, number: int) -> None:
        """Run what comes before operator `number`. Raises `ToolFailed` where it does not run.

        From the start for an earlier operator than the last.
        """
        if number < self._at:
            self._start()
        piece = self._pieces.cut(self._at, number)
        if piece is not None:
            shapes = {i: self._values[i].shape[1:] for i in piece.inputs}
            inputs = [self._values[i] for i in piece.inputs]
            outputs = _run(piece.data(shapes), inputs, threads=self._threads)
            self._values |= dict(zip(piece.outputs, outputs, strict=True))
        live = self._pieces.live(number)
        self._values = {i: value for i, value in self._values.items() if i in live}
        self._at = number

    def _start(self) -> None:
        live = self._pieces.live(0)
        self._values = {i: value for i, value in self._inputs.items() if i in live}
        self._at = 0

    @property
    def position(self) -> int:
        """The operator before which the run is."""
        return self._at

    def quantity(self, index: int) -> Quantity | None:
        """The values of a tensor that is read from here on; None where no sample decides them."""
        if index not in self._values:
            return None
        tensor = self._model.subgraphs[0].tensors[index]
        return quantity_of(tensor, self._values[index])


def quantity_of(tensor: TensorT, stored: Array) -> Quantity:
    """Stored values, of any shape, with their one scale and zero point, or as they are."""
    scales = scales_of(tensor)
    if type_of(tensor) == "float32" or len(scales) != 1:
        return Quantity(stored)
    return Quantity(stored, scales[0], int(tensor.quantization.zeroPoint[0]))


def peak_bytes(model: ModelT, numbers: Sequence[int], sizes: Mapping[int, int]) -> int:
    """The most that one sample's tensors take before any of these operators, in bytes."""
    pieces = GraphSegments(model, max(numbers))
    return max(sum(sizes.get(i, 0) for i in pieces.live(number)) for number in numbers)


def tensor_bytes(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[int, int]:
    """What each tensor of the first graph takes when the inputs have these shapes, in bytes.

    `shapes` are by signature input. Raises `ToolFailed` where the model does not run.
    """
    return _tensor_bytes(data, tuple(shapes.items()))


# The float model's are wanted for each file that is made of it.
@lru_cache(maxsize=4)
def _tensor_bytes(data: bytes, inputs: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[int, int]:
    shapes = dict(inputs)
    interpreter = open_interpreter(with_fixed_shapes(data, None, shapes), delegates=False)
    with runtime_errors():
        interpreter.allocate_tensors()
        details = interpreter.get_tensor_details()
    return {
        detail["index"]: int(np.prod(detail["shape"])) * np.dtype(detail["dtype"]).itemsize
        for detail in details
    }


def _as_stored(tensor: TensorT, values: Array) -> Array:
    """Floats as the integers of a quantized input; others as they are."""
    kind = type_of(tensor)
    scales = scales_of(tensor)
    if values.dtype != np.float32 or kind not in ("int8", "uint8", "int16") or not scales:
        return values
    stored: Array = quantize(values, kind, scales[0], int(tensor.quantization.zeroPoint[0]))
    return stored


def _run(data: bytes, inputs: Sequence[Array], *, threads: int) -> list[Array]:
    """Every output over all samples, [samples, ...]."""
    count = len(inputs[0])
    arrays: dict[int, Array] = {}
    # An interpreter for each thread: the threads inside one wait for each other by spinning,
    # which on a busy machine takes far longer than the work.
    bounds = np.linspace(0, count, min(threads, count) + 1).astype(int)
    parts = [range(a, b) for a, b in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(partial(_run_part, data, inputs, arrays), parts))
    return [arrays[position] for position in range(len(arrays))]


def _run_part(
    data: bytes, inputs: Sequence[Array], arrays: dict[int, Array], numbers: range
) -> None:
    """Run some of the samples, and put each output into its array, by position."""
    interpreter = open_interpreter(data)
    with runtime_errors():
        interpreter.allocate_tensors()
    inputs_at = [detail["index"] for detail in interpreter.get_input_details()]
    outputs_at = [detail["index"] for detail in interpreter.get_output_details()]
    for number in numbers:
        interpreter.reset_all_variables()
        for index, values in zip(inputs_at, inputs, strict=True):
            interpreter.set_tensor(index, values[number])
        with runtime_errors():
            interpreter.invoke()
        for position, index in enumerate(outputs_at):
            output = interpreter.get_tensor(index)
            array = arrays.get(position)
            if array is None:
                # The first one of all threads stays.
                empty: Array = np.empty((len(inputs[0]), *output.shape), output.dtype)
                array = arrays.setdefault(position, empty)
            array[number] = output


# What is kept of one graph; other layers are computed again for each file.
_MOST_BYTES = 2**28


class KeptOutputs:
    """Outputs of layers that are kept, up to a size."""

    def __init__(self) -> None:
        self._parts: dict[Key, tuple[Values, ...] | None] = {}
        self._size_bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._parts

    def __getitem__(self, key: Key) -> tuple[Values, ...] | None:
        return self._parts[key]

    def keep(self, key: Key, parts: tuple[Values, ...] | None) -> None:
        """Keep them, if there is room."""
        size_bytes = sum(part.nbytes for part in parts or ())
        if self._size_bytes + size_bytes <= _MOST_BYTES:
            self._parts[key] = parts
            self._size_bytes += size_bytes


class FloatOutputs:
    """The outputs of a float graph's layers, before bias and activation, on `samples` samples.

    `run` brings the graph from one of the operators `numbers` to the next, wherever these outputs
    are not among the `kept` ones.
    """

    def __init__(
        self, run: SampleRun, numbers: Sequence[int], samples: int, kept: KeptOutputs
    ) -> None:
        self._run = run
        self._numbers = numbers
        self._samples = samples
        self._kept = kept

    def of(
        self,
        layer: RefinableLayer,
        geometry: Geometry,
        weights: NDArray[np.float64],
        *,
        means: bool,
    ) -> tuple[Values, ...] | None:
        """Rows of a layer's outputs, (groups, rows, channels), a part of the samples at a time.

        `weights` are the layer's, (groups, channels, d), and `means` says if the rows are few, for
        means. None where no sample decides the layer's input.
        """
        key = (layer.floating.number, means, self._samples)
        if key in self._kept:
            return self._kept[key]
        self._advance(layer.floating.number)
        inputs = self._run.quantity(layer.floating.source)
        parts = None
        if inputs is not None:
            parts = tuple(layer_outputs(inputs, geometry, weights, means=means))
        self._kept.keep(key, parts)
        return parts

    def _advance(self, number: int) -> None:
        # In the same steps wherever they start: a longer piece of the graph may round otherwise.
        for each in self._numbers:
            if self._run.position < each < number:
                self._run.advance(each)
        self._run.advance(number)
