"""The error of every layer of a quantized model against the float32 one, on real samples."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.strings import as_tensorflow_takes
from edgeconv.model.tflite.cut import with_fixed_shapes, with_outputs
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.model.tflite.operators import shape_of, type_of
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.statistics.outputs import Signal, snr_db
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.types import LayerError
from edgeconv.types.errors import InputRefused, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import Allowance

    Array = NDArray[np.generic]

# These only change the type of a tensor, and are not layers.
_BRIDGES = ("QUANTIZE", "DEQUANTIZE")
_MODEL = "model.tflite"
_NUMBERS = ("float32", "float16", "int8", "uint8", "int16")


class GraphLayer(NamedTuple):
    """An operator's first output: the index of the tensor, the operator, and the shape."""

    tensor: int
    operator: str
    shape: tuple[int, ...]


class LayerErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors in the order of the graph, and the number of layers without a counterpart."""

    errors: tuple[LayerError, ...]
    left_out: int


class LayersJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the child compares: the directories of both models, each with the model and samples."""

    quantized: str
    floating: str
    batch: int


def layer_errors(
    quantized: Model, floating: Model, inputs: Arrays, *, scratch: Path, allowance: Allowance
) -> LayerErrors:
    """How far each layer of `quantized` is from the tensor of the same name in `floating`.

    `inputs` are samples (n, *shape) by input, floats where the quantized model takes integers. Both
    models run on all of them in a child process, with every layer as an output: a delegate keeps no
    other tensor. A layer is an operator's first output, dequantized; it includes the errors of the
    layers before it. One that the other model does not have in that shape, because a
    converter fused or removed it, is counted as left out. Raises `InputRefused` for samples that do
    not fit, and `ToolFailed` where a model does not run, or they have no layer in common.
    """
    directory = Path(tempfile.mkdtemp(prefix="layers-", dir=scratch))
    job = LayersJob(
        quantized=_stored(quantized, inputs, directory / "quantized"),
        floating=_stored(floating, inputs, directory / "floating"),
        batch=quantized.batch,
    )
    label = f"comparing the layers of {quantized.file.name}"
    access = Access(reads=(directory,))
    with start_task(
        compare_layers, job, label=label, scratch=scratch, access=access, allowance=allowance
    ) as task:
        errors = task.result()
    if not errors.errors:
        raise ToolFailed(
            f"{quantized.file.name} and {floating.file.name} have no layer of the same name",
            hint="give the float32 .tflite of the same model",
        )
    return errors


def compare_layers(job: LayersJob) -> LayerErrors:
    """Run both models on all samples; runs in a child. Raises `ToolFailed`."""
    inside = layers_of(_model(job.quantized))
    outside = layers_of(_model(job.floating))
    common = {
        name: layer
        for name, layer in inside.items()
        if name in outside and outside[name].shape == layer.shape
    }
    sums = {name: _ErrorSums() for name in common}
    samples = _run(job, common, outside, sums)
    short = short_names(parse(_model(job.floating), where="the model"))
    return LayerErrors(
        errors=tuple(
            sums[name].error(short.get(name, name), name, common[name].operator, samples)
            for name in common
        ),
        left_out=len(inside) - len(common),
    )


def _run(
    job: LayersJob,
    common: Mapping[str, GraphLayer],
    outside: Mapping[str, GraphLayer],
    sums: Mapping[str, _ErrorSums],
) -> int:
    """Add up the errors over all whole batches; returns how many samples they have."""
    quantized = _shown(job.quantized, common)
    floating = _shown(job.floating, {name: outside[name] for name in common})
    inputs = read_samples(Path(job.quantized)).arrays
    expected = read_samples(Path(job.floating)).arrays
    count = min(len(array) for array in inputs.values()) // job.batch * job.batch
    for start in range(0, count, job.batch):
        rows = slice(start, start + job.batch)
        have = quantized.run(as_tensorflow_takes({n: a[rows] for n, a in inputs.items()}))
        want = floating.run(as_tensorflow_takes({n: a[rows] for n, a in expected.items()}))
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
    """A layer's signal so far, the sum of its squared errors, and the largest error."""

    signal: Signal = field(default_factory=Signal)
    noise: float = 0.0
    count: int = 0
    largest: float = 0.0

    def add(self, expected: Array, actual: Array) -> None:
        """Add one batch of the float model and of the quantized one, arrays of one shape."""
        want, have = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
        self.signal.add(want)
        self.count += want.size
        # Values that are not finite make the sums so, without a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            error = have - want
            self.noise += float(np.sum(error**2))
            self.largest = float(np.maximum(self.largest, np.max(np.abs(error), initial=0.0)))

    def error(self, layer: str, tensor: str, operator: str, samples: int) -> LayerError:
        """The sums as a `LayerError`; an error that is not finite is the largest float64."""
        finite = np.isfinite(self.largest)
        return LayerError(
            layer=layer,
            tensor=tensor,
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
        # The widening of a float16 weight is not a layer.
        if name in _BRIDGES or all(is_constant(model, tensor) for tensor in inputs):
            continue
        output = graph.tensors[operator.outputs[0]]
        if type_of(output) in _NUMBERS:
            layers[text(output.name)] = GraphLayer(operator.outputs[0], name, shape_of(output))
    return layers


def _stored(model: Model, inputs: Arrays, directory: Path) -> str:
    """A directory with the model in the shapes of one batch, and its inputs in its dtypes."""
    values = raw(inputs, signature_of(model).inputs)
    if min(len(value) for value in values.values()) < model.batch:
        raise InputRefused(f"there are fewer samples than the {model.batch} of one invoke")
    shapes = {name: (model.batch, *value.shape[1:]) for name, value in values.items()}
    write_samples(Samples(values, None, "the samples"), directory)
    file = directory / _MODEL
    file.write_bytes(with_fixed_shapes(model.file.read_bytes(), model.signature, shapes))
    return str(directory)
