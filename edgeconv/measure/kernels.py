"""Where the kernels of two runtimes part: one file, cut after each operator, run in both."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.measure.debug import layers_of
from edgeconv.measure.metrics.agreement import agreement
from edgeconv.model.tflite.cut import graph_of, prefixes, with_fixed_shapes
from edgeconv.model.tflite.flatbuffer import operator_name, parse, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.runtimes.interface import Arrays, Model
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.system.processes.tasks import CountedLine
from edgeconv.types import LayerError
from edgeconv.types.errors import InputRefused, ToolFailed

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import SubGraphT
    from numpy.typing import NDArray

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.local import LocalRuntime

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
    there, here = (_CutRunner(runtime, directory, model.batch) for runtime in runtimes)
    try:
        for number, cut in enumerate(layers, start=1):
            on_progress(CountedLine(f"layers of {model.file.name}", number, len(layers)))
            actual, expected = there.output(cut, samples), here.output(cut, samples)
            if actual is not None and expected is not None and actual.shape == expected.shape:
                errors.append(_error(cut, actual, expected))
    finally:
        there.close()
        here.close()
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


class _CutRunner:
    """One runtime, with a session that runs one cut after another."""

    def __init__(self, runtime: LocalRuntime, directory: Path, batch: int) -> None:
        self._runtime, self._directory, self._batch = runtime, directory, batch
        self._session: RunnerSession | None = None

    def output(self, cut: _Cut, samples: Arrays) -> NDArray[np.generic] | None:
        """The layer's values for all samples; None where the runtime does not run it."""
        model = Model(file=cut.file, batch=self._batch)
        try:
            if self._session is None:
                self._session = self._runtime.start(model, self._directory)
            else:
                self._runtime.load(self._session, model)
            return self._session.run(samples)[cut.output]
        except ToolFailed:
            # It may have ended.
            self.close()
            return None

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


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
