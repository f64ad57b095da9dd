"""TensorFlow Lite for Microcontrollers with the interface of LiteRT's interpreter.

runner.py, in the same directory, runs it where the package tflite_micro is, so it needs only
that package and numpy. Its kernels are the reference kernels that firmware is built with, compiled
for this processor: the outputs are a microcontroller's, the times are not.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Details = dict[str, dict[str, Any]]
# What its allocator prints where the arena is too small.
_TOO_SMALL = re.compile(r"Failed to (allocate|resize)|[Mm]issing: \d+")
_NO_OPERATOR = re.compile(r"op(?:eration)? ?code '?(\w+)")
_TOTAL = re.compile(r"Arena allocation total (\d+) bytes")
# No microcontroller has the most.
_LEAST_BYTES, _MOST_BYTES = 1 << 18, 1 << 28


class MicroInterpreter:
    """The first graph of a .tflite, which is what it runs; see LiteRT's `Interpreter`.

    `arena_bytes` is what the model took of its arena in this 64-bit build. Raises `RuntimeError`
    with what it printed for a model that it cannot run.
    """

    def __init__(self, model_path: str, num_threads: int = 1) -> None:  # noqa: ARG002
        from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

        content = Path(model_path).read_bytes()
        self._model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        if any(each.offset > 1 for each in self._model.buffers):
            # It would take them for tensors that are computed.
            raise RuntimeError(
                "tflite-micro cannot read its weights, which are outside of the flatbuffer"
            )
        self._graph = self._model.subgraphs[0]
        self._places = _places(self._graph.inputs), _places(self._graph.outputs)
        self._inner, self.arena_bytes = _allocated(content)
        # Resetting prepares the whole graph again.
        self._keeps_state = len(self._model.subgraphs) > 1 or any(
            each.isVariable for each in self._graph.tensors
        )

    def get_signature_list(self) -> dict[str, Any]:
        """The signatures of the first graph, and whether another has one."""
        return {_text(each.signatureKey): each for each in self._model.signatureDefs or ()}

    def get_signature_runner(self, key: str | None) -> MicroSignature:
        """The signature `key`, None for the only one. Raises `ValueError` for another graph's."""
        signatures = self.get_signature_list()
        chosen = signatures[key] if key else next(iter(signatures.values()))
        if chosen.subgraphIndex:
            raise ValueError(f"tflite-micro runs the first graph only, and {key!r} is another")
        return MicroSignature(self, chosen)

    def get_input_details(self) -> list[dict[str, Any]]:
        """Index, name, shape, dtype and quantization of each input."""
        return [self.details(int(each)) for each in self._graph.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """The same of each output."""
        return [self.details(int(each)) for each in self._graph.outputs]

    def details(self, index: int) -> dict[str, Any]:
        """Those of one tensor, by its index in the graph."""
        inputs, outputs = self._places
        inner = self._inner
        raw = (
            inner.get_input_details(inputs[index])
            if index in inputs
            else inner.get_output_details(outputs[index])
        )
        scales = raw["quantization_parameters"]
        quantization = (0.0, 0)
        if len(scales["scales"]):
            quantization = float(scales["scales"][0]), int(scales["zero_points"][0])
        return {
            "index": index,
            "name": _text(self._graph.tensors[index].name),
            "shape": raw["shape"],
            "dtype": raw["dtype"],
            "quantization": quantization,
        }

    def resize_tensor_input(self, index: int, shape: Any, strict: bool = False) -> None:  # noqa: ARG002
        """Raise `ValueError` for another shape than the input's own."""
        own = tuple(int(each) for each in self.details(index)["shape"])
        if tuple(shape) != own:
            raise ValueError(f"tflite-micro has fixed shapes: {own}, not {tuple(shape)}")

    def allocate_tensors(self) -> None:
        """They are allocated already."""

    def set_tensor(self, index: int, value: Any) -> None:
        """Set an input."""
        self._inner.set_input(np.ascontiguousarray(value), self._places[0][index])

    def invoke(self) -> None:
        """Run the graph. Raises `RuntimeError`, with what it printed."""
        with _printed() as text:
            try:
                self._inner.invoke()
            except RuntimeError as error:
                raise RuntimeError(f"{error}: {_one_line(text())}") from None

    def get_tensor(self, index: int) -> Any:
        """A copy of an output."""
        return np.array(self._inner.get_output(self._places[1][index]))

    def reset_all_variables(self) -> None:
        """Give a model that keeps a state the one that it begins with."""
        if self._keeps_state:
            self._inner.reset()


class MicroSignature:
    """Inputs and outputs by the names of a signature."""

    def __init__(self, interpreter: MicroInterpreter, signature: Any) -> None:
        self._interpreter = interpreter
        self._inputs = {_text(each.name): each.tensorIndex for each in signature.inputs or ()}
        self._outputs = {_text(each.name): each.tensorIndex for each in signature.outputs or ()}

    def get_input_details(self) -> Details:
        """The interpreter's details of each input."""
        return {name: self._interpreter.details(index) for name, index in self._inputs.items()}

    def get_output_details(self) -> Details:
        """The interpreter's details of each output."""
        return {name: self._interpreter.details(index) for name, index in self._outputs.items()}

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name. Raises as `MicroInterpreter.invoke`."""
        for name, value in inputs.items():
            self._interpreter.resize_tensor_input(self._inputs[name], np.shape(value))
            self._interpreter.set_tensor(self._inputs[name], value)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(i) for name, i in self._outputs.items()}


def _allocated(content: bytes) -> tuple[Any, int]:
    """The interpreter in the smallest arena of a few sizes, and the bytes that it took of it."""
    from tflite_micro import runtime

    size = _LEAST_BYTES
    while True:
        with _printed() as text:
            try:
                inner = runtime.Interpreter.from_bytes(content, arena_size=size)
                inner.print_allocations()
                total = _TOTAL.search(text())
                return inner, int(total.group(1)) if total else 0
            except RuntimeError as error:
                printed = text()
                operator = _NO_OPERATOR.search(printed)
                if operator is not None:
                    raise RuntimeError(f"it has no kernel for {operator.group(1)}") from None
                if not _TOO_SMALL.search(printed) or size >= _MOST_BYTES:
                    raise RuntimeError(f"{error}: {_one_line(printed)}") from None
        size *= 4


@contextlib.contextmanager
def _printed() -> Iterator[Callable[[], str]]:
    """What C++ prints to stderr meanwhile, which is not printed."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield text
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _places(indices: Any) -> dict[int, int]:
    """The position of each tensor among the inputs or outputs."""
    return {int(index): position for position, index in enumerate(indices)}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
