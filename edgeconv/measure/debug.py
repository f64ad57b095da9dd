"""The verb `debug`: which layers lose most when a model is quantized, and what helps.

The error of a layer is measured on its outputs in the float and in the quantized model.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from edgeconv import data
from edgeconv.conversion.calibration_checks import calibration_warnings
from edgeconv.conversion.climb import make_all
from edgeconv.conversion.plan import ALL_SIGNATURES, make_plan
from edgeconv.conversion.run import Run
from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.data.arrays import as_tensorflow_takes
from edgeconv.model.tflite.cut import with_fixed_shapes, with_outputs
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.model.tflite.operators import shape_of, type_of
from edgeconv.quantize.debugging import DebugAnswer, DebugJob, debug_file, worst_first
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.requests.texts import comma_list
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.runtimes.interface import Arrays, Model
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.statistics.outputs import Signal, snr_db
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import Cache, cache_directory, scratch_directory, tool_versions
from edgeconv.types import QAT, Allowance, Debugged, DebuggedLayer, LayerError, Recipe
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Session
    from edgeconv.requests.looking import DebugRequest

    Array = NDArray[np.generic]

_FLOAT32 = "float32"
_RUNTIME = "ai-edge-litert"


def debug(
    request: DebugRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Debugged:
    """Quantize a model by one recipe, and measure what each layer loses and which rules help.

    The file is what `convert` would verify, output by the first engine; one that `convert` would
    refuse for what it answers is debugged all the same. Raises an `EdgeconvError` where the model
    gives no float32 graph, or the quantizer nothing that runs.
    """
    recipe = _refuse_recipe(_recipe(request))
    if request.signature == ALL_SIGNATURES:
        raise UsageError("debug takes one signature", hint="name it with --signature")
    execution = request.execution
    (floating,) = make_recipes([_FLOAT32])
    with scratch_directory() as scratch:
        plan = make_plan(
            ConvertRequest(
                model=request.model,
                directory=str(scratch / "files"),
                to=(floating, recipe),
                signature=(request.signature,) if request.signature else (),
                calibration={"": request.calibration},
                samples=request.samples,
                preprocess=request.preprocess,
                opening=request.opening,
                execution=execution,
            )
        )
        cache = Cache(cache_directory() if execution.use_cache else None, on_progress)
        with Run(plan, cache, execution, scratch, on_progress) as run:
            good = make_all(run, [floating])[floating]
            if isinstance(good, EdgeconvError):
                raise good
            return _debugged(good.session, recipe)


def _recipe(request: DebugRequest) -> Recipe:
    """The recipe of `--to`. Raises `UsageError` for several."""
    if isinstance(request.to, Recipe):
        return request.to
    recipes = make_recipes(
        comma_list(request.to),
        calibration_range=request.calibration_range,
        methods=request.methods,
        layers=request.layers,
    )
    if len(recipes) > 1:
        raise UsageError(
            f"--to {request.to}: debug looks into one recipe at a time", hint="name one"
        )
    return recipes[0]


def _refuse_recipe(recipe: Recipe) -> Recipe:
    if recipe.name == _FLOAT32:
        raise UsageError(
            "float32 quantizes nothing, so there is nothing to debug",
            hint="--to int8, or another recipe that makes the file smaller or faster",
        )
    if recipe.name == QAT:
        raise UsageError(
            "debug looks into post-training quantization, but qat trains",
            hint="--to int8 shows which layers are hard",
        )
    return recipe


def _debugged(session: Session, recipe: Recipe) -> Debugged:
    run, prepared = session.run, session.prepared
    (part,) = prepared.parts
    file = Path(tempfile.mkdtemp(prefix="debugged-", dir=run.scratch), f"{recipe.name}.tflite")
    debugged = _dissected(session, recipe, file)
    layers, notes = _with_layer_errors(run, debugged, part, (file, prepared.float_model))
    record = part.split.record
    assert record is not None
    return Debugged(
        model=run.plan.model.path,
        signature=part.signature.key,
        recipe=recipe,
        calibration=session.checked(record),
        samples=debugged.samples,
        runtime=f"{_RUNTIME} {tool_versions()[_RUNTIME]}",
        float_size_bytes=prepared.float_model.stat().st_size,
        size_bytes=file.stat().st_size,
        outputs=debugged.outputs,
        snr_db=debugged.snr_db,
        layers=tuple(worst_first(layers)),
        fixes=debugged.fixes,
        post_training=debugged.post_training,
        shared_scales=debugged.shared_scales,
        notes=(*calibration_warnings(session, recipe), *prepared.notes, *debugged.notes, *notes),
    )


def _dissected(session: Session, recipe: Recipe, file: Path) -> DebugAnswer:
    output = session.child().directory / file.name
    debugged = session.result(
        debug_file, DebugJob(graph=session.graph, recipe=recipe, file=str(output))
    )
    shutil.copyfile(output, file)
    return debugged


def _with_layer_errors(
    run: Run, debugged: DebugAnswer, part: Part, files: tuple[Path, Path]
) -> tuple[Sequence[DebuggedLayer], tuple[str, ...]]:
    """The layers with the errors of their outputs in the file, and notes.

    `files` are the quantized model and the float32 one.
    """
    run.on_progress("comparing the layers")
    assert part.split.calibration is not None
    samples = data.read_samples(part.split.calibration).arrays
    quantized, floating = (
        Model(file=file, signature=part.signature.key, batch=part.split.batch) for file in files
    )
    try:
        errors = layer_errors(
            quantized,
            floating,
            {name: array[-debugged.samples :] for name, array in samples.items()},
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
    except (ToolFailed, InputRefused) as error:
        return debugged.layers, (f"no errors inside the file: {error.message}",)
    inside = {error.tensor: error.snr_db for error in errors.errors}
    layers = [
        msgspec.structs.replace(layer, inside_snr_db=inside.get(layer.tensor))
        for layer in debugged.layers
    ]
    return layers, ()


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
