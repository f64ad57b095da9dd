"""What other kernels did with a file: what a delegate took, and whether the answers are right.

Where they part from the answers of the processor's kernels is found by cutting the file after each
operator, and running it in both.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.measure.debug import layers_of
from edgeconv.measure.metrics.agreement import agreement, agreements
from edgeconv.model.tflite.cut import graph_of, prefixes, with_fixed_shapes
from edgeconv.model.tflite.flatbuffer import operator_name, parse, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, worst_snr
from edgeconv.runtimes.interface import Arrays, Model
from edgeconv.runtimes.local import IdleRunners, LocalRuntime
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.statistics.outputs import ALONE_DB, LEAST_AGREEMENT, is_another, loses_answers
from edgeconv.system.processes.progress import CountedLine
from edgeconv.types import Acceleration, Agreement, LayerError
from edgeconv.types.errors import (
    InputRefused,
    ToolFailed,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import SubGraphT
    from numpy.typing import NDArray

    from edgeconv.measure.models import BenchRun, MeasuredModel

# A model with more operators is cut after so many of them only.
_MOST_CUTS = 200
# What other rounding costs at most is less than this.
_ANOTHER_DB = 20.0


class _Cut(NamedTuple):
    """The model that ends after one operator: the layer, its tensor, and the name as an output."""

    file: Path
    layer: str
    tensor: str
    operator: str
    output: str


def kernel_errors(
    model: Model,
    inputs: Arrays,
    runtimes: tuple[LocalRuntime, LocalRuntime],
    *,
    scratch: Path,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[LayerError, ...]:
    """How far each layer in the first runtime is from the same layer in the second.

    Both run what ends after the layer, from the same samples `inputs` (n, *shape), so that only the
    kernels differ. Layers that only one of them runs are left out. Raises `InputRefused` for
    samples that do not fit, and `ToolFailed` where no layer runs in both.
    """
    directory = Path(tempfile.mkdtemp(prefix="cuts-", dir=scratch))
    cuts = cuts_of(model, inputs, directory)
    layers = [each for each in cuts if each.output]
    count = min(len(array) for array in inputs.values()) // model.batch * model.batch
    samples = {name: array[:count] for name, array in inputs.items()}
    errors = []
    with contextlib.closing(IdleRunners(directory)) as idle:
        for number, cut in enumerate(layers, start=1):
            on_progress(CountedLine(f"layers of {model.file.name}", number, len(layers)))
            actual, expected = (_output(cut, samples, r, model.batch, idle) for r in runtimes)
            if actual is not None and expected is not None and actual.shape == expected.shape:
                errors.append(_error(cut, actual, expected))
    if not errors:
        raise ToolFailed(f"no layer of {model.file.name} runs in both runtimes")
    return tuple(errors)


def begins_at(errors: Sequence[LayerError], model: Model) -> LayerError | None:
    """The layer of a model at which its error begins; None where all layers are close."""
    return origin(errors, graph_of(model.file.read_bytes(), model.signature), _ANOTHER_DB)


def refused_operator(model: Model, inputs: Arrays, runtime: LocalRuntime, scratch: Path) -> str:
    """The layer and operator with which a runtime begins to refuse the model; "" where it does not.

    What ends before it is run, and what ends after it is refused, so halving finds it. `inputs` are
    samples (n, *shape) by input. Raises `InputRefused` for samples that do not fit.
    """
    directory = Path(tempfile.mkdtemp(prefix="cuts-", dir=scratch))
    cuts = [each for each in cuts_of(model, inputs, directory) if each.output]
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        if _loads(cuts[middle], runtime, model.batch):
            low = middle + 1
        else:
            high = middle
    return f"{cuts[low].operator} ({cuts[low].layer})" if low < len(cuts) else ""


def cuts_of(model: Model, inputs: Arrays, directory: Path) -> list[_Cut]:
    """The models that end after each operator, in files of `directory`, in the graph's order.

    `inputs` are samples (n, *shape) by input. `output` is "" after an operator that is not a layer.
    Raises `InputRefused`.
    """
    values = raw(inputs, signature_of(model).inputs)
    if min(len(value) for value in values.values()) < model.batch:
        raise InputRefused(f"there are fewer samples than the {model.batch} of one invoke")
    shapes = {name: (model.batch, *value.shape[1:]) for name, value in values.items()}
    data = with_fixed_shapes(model.file.read_bytes(), model.signature, shapes)
    whole = parse(data, where="the model")
    short, layers = short_names(whole), layers_of(data)
    operators = whole.subgraphs[whole.signatureDefs[0].subgraphIndex].operators
    cuts = []
    ends = prefixes(data)
    for number, (operator, content) in enumerate(zip(operators[:_MOST_CUTS], ends, strict=False)):
        file = directory / f"{number}.tflite"
        file.write_bytes(content)
        ended = parse(content, where="the model")
        graph = ended.subgraphs[ended.signatureDefs[0].subgraphIndex]
        tensor = text(graph.tensors[operator.outputs[0]].name) if operator.outputs else ""
        outputs = {each.tensorIndex: text(each.name) for each in ended.signatureDefs[0].outputs}
        output = outputs.get(operator.outputs[0], "") if tensor in layers else ""
        name = operator_name(whole, operator)
        cuts.append(_Cut(file, short.get(tensor, tensor), tensor, name, output))
    return cuts


def _output(
    cut: _Cut, samples: Arrays, runtime: LocalRuntime, batch: int, idle: IdleRunners
) -> NDArray[np.generic] | None:
    """The layer's values for all samples; None where the runtime does not run it."""
    try:
        session = runtime.start(Model(file=cut.file, batch=batch), idle)
        with contextlib.closing(session):
            return session.run(samples)[cut.output]
    except ToolFailed:
        return None


def _loads(cut: _Cut, runtime: LocalRuntime, batch: int) -> bool:
    try:
        runtime.start(Model(file=cut.file, batch=batch)).close()
    except ToolFailed:
        return False
    return True


def _error(cut: _Cut, actual: NDArray[np.generic], expected: NDArray[np.generic]) -> LayerError:
    distance = agreement(cut.tensor, actual, expected, "")
    return LayerError(
        layer=cut.layer,
        tensor=cut.tensor,
        operator=cut.operator,
        samples=len(actual),
        snr_db=distance.snr_db,
        max_error=distance.max_error,
    )


def origin(errors: Sequence[LayerError], graph: SubGraphT, least_db: float) -> LayerError | None:
    """The first layer that is less than `least_db` close although all before it are closer.

    It is one that the error of an output comes from, where an output has one: a branch that is
    right is not in between. None where all layers are close.
    """
    off = {error.tensor for error in errors if error.snr_db < least_db}
    before, ends = _flow(graph, {error.tensor for error in errors})
    reached = _reached(ends & off, before, off)
    candidates = [error for error in errors if error.tensor in (reached or off)]
    return next((each for each in candidates if not before[each.tensor] & off), None)


def _flow(
    graph: SubGraphT, measured: Iterable[str]
) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """The measured layers that each one reads from, and those that the outputs do, by tensor.

    What is between two of them is passed over.
    """
    names = frozenset(measured)
    sources: dict[int, frozenset[str]] = {}
    before: dict[str, frozenset[str]] = {}
    for operator in graph.operators:
        read = _joined(sources, operator.inputs)
        for index in operator.outputs:
            name = text(graph.tensors[index].name)
            if name in names:
                before[name] = before.get(name, frozenset()) | (read - {name})
            sources[index] = frozenset({name}) if name in names else read
    return before, _joined(sources, graph.outputs)


def _joined(sources: Mapping[int, frozenset[str]], tensors: Iterable[int]) -> frozenset[str]:
    return frozenset().union(*(sources.get(index, frozenset()) for index in tensors))


def _reached(
    ends: Iterable[str], before: Mapping[str, frozenset[str]], off: frozenset[str] | set[str]
) -> set[str]:
    """The layers that are off and lead to `ends` through such layers alone."""
    reached: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += before[name] & off
    return reached


# Errors of a process that ended without an answer.
_ENDED = (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory)
_OPERATOR = re.compile(r"(?:Node number \d+ \(|not supported by GPU delegate:\W+)([\w-]+)")


def acceleration(
    run: BenchRun, there: MeasuredModel, here: MeasuredModel | None, floating: MeasuredModel | None
) -> tuple[Acceleration, tuple[Agreement, ...]]:
    """What the delegate did with a model, and the agreement with the same file on the processor.

    `here` is the same file, `floating` the float32 model, both on the processor.
    """
    device = there.runtime.gpu
    if there.error is not None:
        is_crash = isinstance(there.error, _ENDED)
        return Acceleration(
            state="crashed" if is_crash else "refused",
            device=device,
            on_cpu=() if is_crash else _refused(run, there, str(there.error)),
            reason=there.error.message,
        ), ()
    taken = next((timed.gpu for timed in there.timed if timed.gpu), None)
    kernels = _agreement(there, here)
    mistake = _mistake(kernels, _agreement(there, floating), _agreement(here, floating))
    left = taken.left if taken else ()
    return Acceleration(
        state="wrong" if mistake else "full" if taken and taken.is_full else "partial",
        device=device,
        on_cpu=left or _counted(taken.on_cpu if taken else None),
        reason=mistake,
    ), kernels


def other_kernels(
    there: MeasuredModel, here: MeasuredModel | None, floating: MeasuredModel | None
) -> tuple[tuple[Agreement, ...], str]:
    """The agreement with the same file on the processor, and what a device's kernels get wrong.

    `here` is the same file, `floating` the float32 model, both on the processor.
    """
    kernels = _agreement(there, here)
    return kernels, kernel_mistake(kernels, _agreement(there, floating), _agreement(here, floating))


def kernel_mistake(
    kernels: Sequence[Agreement], there: Sequence[Agreement], here: Sequence[Agreement]
) -> str:
    """Why kernels compute something else, by output; "" if they only round differently.

    `kernels` compares the same file there and here, the others each with float32. Without float32
    the file here stands for it.
    """
    own = {each.output: each for each in here}
    to_float = {each.output: each for each in there}
    mistakes = (
        _output_mistake(same, to_float.get(same.output), own.get(same.output)) for same in kernels
    )
    return next(filter(None, mistakes), "")


def _output_mistake(same: Agreement, there: Agreement | None, here: Agreement | None) -> str:
    if there is None or here is None:
        ratio = snr(same)
        is_other = ratio is not None and is_another(ratio, ALONE_DB)
        return f"SNR {units.decibels(ratio)} against {same.reference}" if is_other else ""
    there_db, here_db = snr(there), snr(here)
    if there_db is not None and here_db is not None and is_another(there_db, here_db):
        return (
            f"SNR {units.decibels(there_db)} against {there.reference}, and "
            f"{units.decibels(here_db)} on the processor"
        )
    if same.flips is None or there.flips is None or here.flips is None:
        return ""
    if not loses_answers(there.flips - here.flips, same.flips, same.samples):
        return ""
    return (
        f"{there.flips} of {same.samples} answers are not those of {there.reference}, and "
        f"{here.flips} on the processor"
    )


def _counted(number: int | None) -> tuple[str, ...]:
    return (units.counted(number, "operator"),) if number else ()


def _refused(run: BenchRun, measured: MeasuredModel, message: str) -> tuple[str, ...]:
    """The operator that a delegate refuses, where it names one or cutting the model shows it."""
    operator = _OPERATOR.search(message)
    if operator is not None:
        return (operator[1],)
    if not isinstance(measured.runtime, LocalRuntime):
        return ()
    run.on_progress(f"the operator of {measured.name} that is refused")
    samples = run.samples.first.arrays
    try:
        name = refused_operator(measured.model, samples, measured.runtime, run.scratch)
    except (InputRefused, ToolFailed):
        return ()
    return (name,) if name else ()


def _agreement(
    measured: MeasuredModel | None, reference: MeasuredModel | None
) -> tuple[Agreement, ...]:
    if not (measured and reference and measured.outputs and reference.outputs):
        return ()
    return agreements(measured.outputs, reference.outputs, reference.name)


def _mistake(
    kernels: Sequence[Agreement], there: Sequence[Agreement], here: Sequence[Agreement]
) -> str:
    """Why the answers there are not the float32 model's, and what did it; "" if they are.

    `kernels` compares the same file there and here, the others compare it with float32. Without
    float32 the same file stands for it.
    """
    share, ratio = _share(there or kernels), worst_snr(there or kernels)
    if share is not None:
        if share >= LEAST_AGREEMENT:
            return ""
        own = _share(here) if there else None
        with_processor = "" if own is None else f", and {units.percent(own, 1)} on the processor"
        what = f"{units.percent(share, 1)} of the answers are those of float32{with_processor}"
        if not there:
            what = f"{units.percent(share, 1)} of the answers are those of the processor"
        return f"{what}: {_culprit(_share(kernels), own)}"
    own_snr = worst_snr(here) if there else None
    if ratio is None or own_snr is None or not is_another(ratio, own_snr):
        return ""
    return (
        f"SNR {units.decibels(ratio)} against float32, and {units.decibels(own_snr)} on the "
        "processor: the delegate did it"
    )


def _culprit(same: float | None, own: float | None) -> str:
    """Who did it: `same` answers as on the processor, where `own` are float32's."""
    by_kernels = same is None or same < LEAST_AGREEMENT
    by_quantizer = own is not None and own < LEAST_AGREEMENT
    if by_kernels == by_quantizer:
        return "the delegate and the quantizer did it"
    return f"the {'delegate' if by_kernels else 'quantizer'} did it"


def _share(compared: Sequence[Agreement]) -> float | None:
    """The smallest share of samples with the same class; None without classes."""
    shares = [
        1 - each.flips / each.samples
        for each in compared
        if each.flips is not None and each.samples and snr(each) is not None
    ]
    return min(shares, default=None)
