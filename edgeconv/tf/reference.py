"""The reference: outputs of the trained model on stored samples, in TensorFlow.

The same start shows whether the calibration samples are like those of the training.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.statistics.answers import more_telling
from edgeconv.tf import lean
from edgeconv.tf.normalization import inline
from edgeconv.tf.statistics_probe import LayerDistance, Probe, SignatureTensors
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The directory of the outputs on calibration samples.
CHECKED = "checked"
# How many of these are run, evenly drawn: fewer of large samples.
_CHECKED, _LEAST_CHECKED, _MOST_VALUES = 64, 20, 2**20
# How many at once where the model takes any number: fewer of large ones, whose layers take memory.
_AT_ONCE, _MOST_VALUES_AT_ONCE = 16, 2**18
# Samples like those of the training are rarely farther from the statistics than this.
SIMILAR = 0.45
# By which another preprocessing has to be nearer: a training that was too short is off by less.
_CLEARLY = 2.5
# And where all is near: by which it has to spread less, and what cannot be chance.
_SPREADS_LESS, _LEAST_SPREAD = 2.0, 0.2


class ReferencePart(msgspec.Struct, frozen=True, kw_only=True):
    """One signature, its stored samples, run `batch` at a time; outputs go to `directory`.

    Outputs on some of the samples in `calibration`, where there are any, go to `directory`/CHECKED.
    `is_open`: the model takes any number of samples at once.
    """

    signature: str
    samples: str
    batch: int
    directory: str
    calibration: str | None = None
    is_open: bool = False


class ReferenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """Signatures of a SavedModel to run."""

    saved_model: str
    parts: tuple[ReferencePart, ...]


class StatisticsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How far `samples` calibration samples are from the statistics of `layers` layers.

    `farthest` is the layer farthest off but for a quarter, `first` the one farthest off of those
    that the inputs meet first; None where none has statistics. With the preprocessing `better`,
    where there is one, they would be `better_distance` away from these, and not `own_distance`.
    Of a model without such layers `information` is that of its answers as they are and with it.
    """

    samples: int
    layers: int = 0
    farthest: LayerDistance | None = None
    first: LayerDistance | None = None
    better: str = ""
    own_distance: float = 0.0
    better_distance: float = 0.0
    information: tuple[float, float] = (0.0, 0.0)


class ReferenceOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs' names, by signature; output i is `directory`/i.npy, over all samples.

    `statistics` are what calibration samples gave in the normalization layers, by signature, where
    such were run; `failed` is what TensorFlow says of such samples that the model does not take.
    """

    outputs: dict[str, tuple[str, ...]]
    statistics: dict[str, StatisticsCheck] = {}
    failed: dict[str, str] = {}


def run_reference(job: ReferenceJob) -> ReferenceOutputs:
    """Write the trained model's outputs. Runs in a child.

    The SavedModel is loaded as a server does: one graph, one session. Raises `InputRefused` for a
    model that does not load or run.
    """
    lean.import_converter_only()
    from tensorflow.python.framework import errors_impl

    try:
        return _run(job)
    except (errors_impl.OpError, OSError, RuntimeError, ValueError) as error:
        damaged = lean.damaged_variables(str(error))
        if damaged:
            raise damaged from error
        raise InputRefused(
            f"the trained model does not run in TensorFlow: {first_line(error, 400)}",
            hint="correct the model: a conversion is verified against its outputs",
        ) from error


def _run(job: ReferenceJob) -> ReferenceOutputs:
    from tensorflow.python.framework import errors_impl

    try:
        return _answers(job, inlined=True)
    except (errors_impl.OpError, LookupError, RuntimeError, ValueError):
        # Some graphs cannot be inlined, or run as they are; what else is wrong shows again.
        return _answers(job, inlined=False)


def _settings(*, inlined: bool) -> Any:
    """A session's settings: an inlined graph runs as it is, because optimizing it takes longer."""
    from tensorflow.core.protobuf import config_pb2

    settings: Any = config_pb2.ConfigProto()
    settings.graph_options.rewrite_options.disable_meta_optimizer = inlined
    return settings


def _answers(job: ReferenceJob, *, inlined: bool) -> ReferenceOutputs:
    from tensorflow.python.client import session
    from tensorflow.python.framework import errors_impl, ops

    statistics, failed = {}, {}
    settings = _settings(inlined=inlined)
    with (
        ops.Graph().as_default() as graph,
        session.Session(graph=graph, config=settings) as running,
    ):
        loaded = load(running, job.saved_model, inlined=inlined)
        outputs = {part.signature: _outputs(running, loaded, part) for part in job.parts}
        for part in job.parts:
            if part.calibration is None:
                continue
            try:
                statistics[part.signature] = check_samples(running, loaded, part)
            except errors_impl.OpError as error:
                failed[part.signature] = first_line(error, 400)
    return ReferenceOutputs(outputs=outputs, statistics=statistics, failed=failed)


def load(running: Any, saved_model: str, *, inlined: bool) -> Any:
    """Load a SavedModel into a session as a server does; returns its MetaGraphDef.

    With its calls `inlined` before, as the session does when it runs them, the layers in them are
    in reach, and nothing is imported that no signature needs.
    """
    from tensorflow.python.saved_model import loader_impl

    loader = loader_impl.SavedModelLoader(saved_model)
    meta_graph: Any = loader.get_meta_graph_def_from_tags(["serve"])
    if inlined:
        meta_graph.graph_def.CopyFrom(inline(meta_graph))
    saver, _ = loader.load_graph(running.graph, ["serve"])
    loader.restore_variables(running, saver)
    loader.run_init_ops(running, ["serve"])
    return meta_graph


def _outputs(running: Any, loaded: Any, part: ReferencePart) -> tuple[str, ...]:
    """Write the outputs of one signature; returns their names."""
    from edgeconv.data.handover import read_samples

    tensors = SignatureTensors.of(loaded.signature_def[part.signature])
    arrays = read_samples(Path(part.samples)).arrays
    runs = [running.run(tensors.outputs, feed) for feed in tensors.feeds(arrays, part.batch)]
    _write(runs, Path(part.directory))
    return tuple(tensors.outputs)


def check_samples(running: Any, loaded: Any, part: ReferencePart) -> StatisticsCheck:
    """Write the outputs on some calibration samples; returns what these give in the layers.

    Raises TensorFlow's error for samples that the model does not take.
    """
    from edgeconv.data.handover import read_samples
    from edgeconv.data.plausibility import evenly, smaller_scales

    assert part.calibration is not None, "there is nothing to check"
    samples = read_samples(Path(part.calibration))
    size = sum(array[0].size for array in samples.arrays.values())
    enough = min(_CHECKED, max(_LEAST_CHECKED, _MOST_VALUES // max(1, size)))
    most = min(samples.count, max(enough, part.batch)) // part.batch * part.batch
    arrays = samples.take(evenly(samples.count, most)).arrays
    at_once = max(1, min(_AT_ONCE, _MOST_VALUES_AT_ONCE // max(1, size)))
    batch = at_once if part.is_open else part.batch
    probe = Probe(running, loaded, part.signature)
    outputs, layers = probe.run(arrays, batch)
    _write(outputs, Path(part.directory, CHECKED))
    if not layers:
        scaled = ((name, probe.run(x, batch)[0]) for name, x in smaller_scales(arrays))
        better, information = more_telling(
            _joined(outputs), ((name, _joined(answers)) for name, answers in scaled)
        )
        return StatisticsCheck(samples=most, better=better, information=information)
    check = StatisticsCheck(
        samples=most,
        layers=len(layers),
        farthest=_farthest(layers),
        first=max((each for each in layers if each.meets_inputs), key=lambda each: each.spread),
    )
    return _with_better(check, probe, arrays, batch)


def _with_better(
    check: StatisticsCheck, probe: Probe, arrays: Mapping[str, Any], batch: int
) -> StatisticsCheck:
    """The check with the other preprocessing that clearly fits better, where there is one.

    The first layers say which it may be. Where samples are near already, it is only looked for
    what hardly changes their distance: other colors, and negatives.
    """
    from edgeconv.data.plausibility import other_preprocessings

    assert check.farthest is not None, "there are layers"
    assert check.first is not None, "one of them is the first"
    own, spread = check.farthest.distance, check.first.spread
    is_near = own <= SIMILAR
    if is_near and spread < _LEAST_SPREAD:
        return check
    best, steps, fitting = spread, "", arrays
    for name, others in other_preprocessings(arrays, only_alike=is_near):
        changed = probe.spread(others, batch)
        if changed < best:
            best, steps, fitting = changed, name, others
    if is_near:
        is_better = best < spread / _SPREADS_LESS
        own, distance = spread, best
    elif steps:
        distance = _farthest(probe.run(fitting, batch)[1]).distance
        is_better = distance < min(own / _CLEARLY, SIMILAR)
    if not steps or not is_better:
        return check
    return msgspec.structs.replace(check, better=steps, own_distance=own, better_distance=distance)


def _farthest(layers: Iterable[LayerDistance]) -> LayerDistance:
    """The layer that is farther off than three quarters of the others, of few layers the farthest.

    A mistake in the samples moves most layers. In deep ones, a few samples may make the variance.
    """
    ranked = sorted(layers, key=lambda layer: layer.excess, reverse=True)
    return ranked[len(ranked) // 4]


def _joined(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each output over all runs."""
    from edgeconv.data.strings import as_tensorflow_gives

    return {
        name: np.concatenate([np.atleast_1d(as_tensorflow_gives(run[name])) for run in runs])
        for name in runs[0]
    }


def _write(runs: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Write each output over all runs."""
    from edgeconv.data.handover import write_arrays

    write_arrays(iter(_joined(runs).values()), directory)
