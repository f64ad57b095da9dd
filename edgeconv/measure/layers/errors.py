"""The error of every layer of a quantised model against the float32 one, on real samples."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.strings import as_tensorflow_takes
from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import start_task
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.statistics.outputs import Signal, snr_db
from edgeconv.tflite.cut import with_fixed_shapes, with_outputs
from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, text
from edgeconv.tflite.uses import shape_of, type_of
from edgeconv.types import LayerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Allowance

    Array = NDArray[np.generic]

# What only changes the type of a tensor, and is no layer.
_BRIDGES = ("QUANTIZE", "DEQUANTIZE")
_MODEL = "model.tflite"
_NUMBERS = ("float32", "float16", "int8", "uint8", "int16")


class GraphLayer(NamedTuple):
    """An operator's first output: the index of the tensor, the operator, and the shape."""

    tensor: int
    operator: str
    shape: tuple[int, ...]


class LayerErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors in the order of the graph, and how many layers have no counterpart."""

    errors: tuple[LayerError, ...]
    left_out: int


class LayersJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is to do: the directories of both models, each with the model and samples."""

    quantised: str
    floating: str
    batch: int


def layer_errors(
    quantised: Model, floating: Model, inputs: Arrays, *, scratch: Path, allowance: Allowance
) -> LayerErrors:
    """How far each layer of `quantised` is from the tensor of the same name in `floating`.

    `inputs` are samples by input, (n, *shape), as floats where the quantised model takes
    integers. Both models run on all of them in a child process, changed only in that every layer
    is an output: a delegate keeps no other tensor. A layer is an operator's first output; it is
    compared dequantised, and has the errors of the layers before it too. One whose tensor the
    other model does not have, or has in another shape, was fused or removed by a converter, and
    is counted as left out. Raises `InputRefused` for samples that do not fit, and `ToolFailed`
    where one of the models does not run, or they have no layer in common.
    """
    directory = Path(tempfile.mkdtemp(prefix="layers-", dir=scratch))
    job = LayersJob(
        quantised=_stored(quantised, inputs, directory / "quantised"),
        floating=_stored(floating, inputs, directory / "floating"),
        batch=quantised.batch,
    )
    label = f"comparing the layers of {quantised.file.name}"
    access = Access(reads=(directory,))
    with start_task(
        compare_layers, job, label=label, scratch=scratch, access=access, allowance=allowance
    ) as task:
        found = task.result()
    if not found.errors:
        raise ToolFailed(
            f"{quantised.file.name} and {floating.file.name} have no layer of the same name",
            hint="give the float32 .tflite that it was made from",
        )
    return found


def compare_layers(job: LayersJob) -> LayerErrors:
    """Run both models on all samples; runs in a child. Raises `ToolFailed`."""
    inside = layers_of(_model(job.quantised))
    outside = layers_of(_model(job.floating))
    common = {
        name: layer
        for name, layer in inside.items()
        if name in outside and outside[name].shape == layer.shape
    }
    sums = {name: _ErrorSums() for name in common}
    samples = _run(job, common, outside, sums)
    return LayerErrors(
        errors=tuple(sums[name].error(name, common[name].operator, samples) for name in common),
        left_out=len(inside) - len(common),
    )


def _run(
    job: LayersJob,
    common: Mapping[str, GraphLayer],
    outside: Mapping[str, GraphLayer],
    sums: Mapping[str, _ErrorSums],
) -> int:
    """Add up the errors over all whole batches; returns how many samples they have."""
    quantised = _shown(job.quantised, common)
    floating = _shown(job.floating, {name: outside[name] for name in common})
    given = read_samples(Path(job.quantised)).arrays
    wanted = read_samples(Path(job.floating)).arrays
    count = min(len(array) for array in given.values()) // job.batch * job.batch
    for start in range(0, count, job.batch):
        rows = slice(start, start + job.batch)
        have = quantised.run(as_tensorflow_takes({n: a[rows] for n, a in given.items()}))
        want = floating.run(as_tensorflow_takes({n: a[rows] for n, a in wanted.items()}))
        for name, layer in common.items():
            sums[name].add(want[str(outside[name].tensor)], have[str(layer.tensor)])
    return count


def _model(directory: str) -> bytes:
    return (Path(directory) / _MODEL).read_bytes()


def _shown(directory: str, layers: Mapping[str, GraphLayer]) -> InProcessModel:
    """A model with one signature, whose outputs are the tensors of its layers by number."""
    tensors = sorted({layer.tensor for layer in layers.values()})
    return InProcessModel(open_interpreter(with_outputs(_model(directory), tensors)))


@dataclass
class _ErrorSums:
    """What is known of one layer so far: its signal, its errors squared, and the largest error."""

    signal: Signal = field(default_factory=Signal)
    noise: float = 0.0
    count: int = 0
    largest: float = 0.0

    def add(self, expected: Array, actual: Array) -> None:
        """One batch, as the float model has it and as the quantized one does."""
        want, have = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
        self.signal.add(want)
        self.count += want.size
        # What is not finite makes the sums so, without a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            error = have - want
            self.noise += float(np.sum(error**2))
            self.largest = float(np.maximum(self.largest, np.max(np.abs(error), initial=0.0)))

    def error(self, layer: str, operator: str, samples: int) -> LayerError:
        """The noun; an error that is not finite is the largest that there is."""
        finite = np.isfinite(self.largest)
        return LayerError(
            layer=layer,
            operator=operator,
            samples=samples,
            snr_db=snr_db(self.signal.variance, self.noise / max(self.count, 1)),
            max_error=self.largest if finite else float(np.finfo(np.float64).max),
        )


def layers_of(data: bytes) -> dict[str, GraphLayer]:
    """The layers of a model with one signature by name, in the order of the graph."""
    model = parse(data, where="the model")
    graph = model.subgraphs[model.signatureDefs[0].subgraphIndex]
    layers = {}
    for operator in graph.operators:
        name = operator_name(model, operator)
        inputs = [graph.tensors[i] for i in operator.inputs if i != -1]
        # A weight that is widened is no layer, as in a model of float16 weights.
        if name in _BRIDGES or all(is_constant(model, tensor) for tensor in inputs):
            continue
        output = graph.tensors[operator.outputs[0]]
        if type_of(output) in _NUMBERS:
            layers[text(output.name)] = GraphLayer(operator.outputs[0], name, shape_of(output))
    return layers


def _stored(model: Model, inputs: Arrays, directory: Path) -> str:
    """A directory with the model, of the shapes of one batch, and its inputs in its own dtypes."""
    values = raw(inputs, signature_of(model).inputs)
    if min(len(value) for value in values.values()) < model.batch:
        raise InputRefused(f"there are fewer samples than the {model.batch} of one invoke")
    shapes = {name: (model.batch, *value.shape[1:]) for name, value in values.items()}
    write_samples(Samples(values, None, "the samples"), directory)
    file = directory / _MODEL
    file.write_bytes(with_fixed_shapes(model.file.read_bytes(), model.signature, shapes))
    return str(directory)
