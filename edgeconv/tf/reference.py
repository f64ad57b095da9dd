"""The reference: outputs of the trained model on stored samples, in TensorFlow.

The same start shows whether the calibration samples are like the training samples.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeconv.data import Samples
from edgeconv.data.arrays import as_tensorflow_gives
from edgeconv.data.samples import evenly, join_samples, read_samples, write_arrays
from edgeconv.data.suspects import (
    Hits,
    hits_of,
    more_right,
    more_telling,
    other_preprocessings,
    usual_scales,
)
from edgeconv.statistics.outputs import TOGETHER, differing_outputs, same_outputs
from edgeconv.tf import lean
from edgeconv.tf.normalization import (
    Scaled,
    ScaledTwice,
    divisors,
    inline,
    scaled_before,
    scaled_inputs,
    undone,
)
from edgeconv.tf.reasons import reason, whole_reason
from edgeconv.tf.statistics_probe import SIMILAR, LayerDistance, Probe, SignatureTensors, farthest
from edgeconv.types.errors import InputRefused

# The directory of the outputs on calibration samples.
CHECKED = "checked"
# How many of these are run, evenly drawn: fewer of large samples.
_CHECKED, _LEAST_CHECKED, _MOST_VALUES = 64, 20, 2**20
# How many at once where the model takes any number: fewer of large ones, whose layers take memory.
_AT_ONCE, _MOST_VALUES_AT_ONCE = 16, 2**18
# By which another preprocessing has to be nearer: a training that was too short is off by less.
_CLEARLY = 2.5
# And where all is near: by which it has to spread less, and what cannot be chance.
_SPREADS_LESS, _LEAST_SPREAD = 2.0, 0.2


class ReferencePart(msgspec.Struct, frozen=True, kw_only=True):
    """One signature, its stored samples, run `batch` at a time; outputs go to `directory`.

    Outputs on some of the samples in `calibration`, if it is given, go to `directory`/CHECKED.
    `is_open`: the model takes any number of samples at once. `states`: by input, the output that
    is fed back to it with the next batch.
    """

    signature: str
    samples: str
    batch: int
    directory: str
    calibration: str | None = None
    is_open: bool = False
    states: dict[str, str] = {}


class ReferenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """Signatures of a SavedModel to run."""

    saved_model: str
    parts: tuple[ReferencePart, ...]


class StatisticsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How far `samples` calibration samples are from the statistics of `layers` layers.

    `farthest` is the layer farthest off, not counting a quarter of the layers; `first` is the
    farthest among the layers that the inputs meet first. Both are None if no layer has statistics.
    `left` as in `Probed`. With the preprocessing `better`, if one was found, the samples would be
    `better_distance` away, and not `own_distance`. For a model without such layers, `information`
    is the information in its answers without and with `better`, and `hits` counts right answers
    if labels prefer it. `twice` is an input that both the model and the preprocessing scale.
    """

    samples: int
    layers: int = 0
    farthest: LayerDistance | None = None
    first: LayerDistance | None = None
    left: float = 0.0
    better: str = ""
    own_distance: float = 0.0
    better_distance: float = 0.0
    information: tuple[float, float] = (0.0, 0.0)
    hits: Hits | None = None
    twice: ScaledTwice | None = None


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """How a model with an open batch goes wrong with `batch` samples at once.

    `failed` is TensorFlow's error. Without one, `differing` are the outputs that depend on the
    other samples; `same` are the ones among them that repeat for each sample alone.
    """

    batch: int
    failed: str = ""
    differing: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


class ReferenceOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs' names, by signature; output i is `directory`/i.npy, over all samples.

    `statistics` are what calibration samples gave in the normalization layers, by signature, where
    such were run; `failed` is what TensorFlow says of samples of the user that the model does not
    take. A signature that takes the samples to verify with not has no outputs.
    `together` has what goes wrong with several samples at once where the batch is open. `scaled`
    are the inputs that the model scales itself.
    """

    outputs: dict[str, tuple[str, ...]]
    statistics: dict[str, StatisticsCheck] = {}
    failed: dict[str, str] = {}
    together: dict[str, Together] = {}
    scaled: Scaled = {}


class ScaledJob(msgspec.Struct, frozen=True, kw_only=True):
    """The SavedModel to look at, and which signatures of it."""

    saved_model: str
    signatures: tuple[str, ...]


def find_scaled(job: ScaledJob) -> Scaled:
    """As `scaled_inputs`. Runs in a child. A graph whose calls cannot be inlined has none."""
    lean.import_converter_only()
    from tensorflow.python.framework import errors_impl
    from tensorflow.python.saved_model import loader_impl

    loader = loader_impl.SavedModelLoader(job.saved_model)
    meta_graph: Any = loader.get_meta_graph_def_from_tags(["serve"])
    with contextlib.suppress(errors_impl.OpError, LookupError, RuntimeError, ValueError):
        return scaled_inputs(inline(meta_graph), meta_graph.signature_def, job.signatures)
    return {}


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
            f"the trained model does not run in TensorFlow: {whole_reason(error)}",
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

    outputs: dict[str, tuple[str, ...]] = {}
    statistics, failed, together = {}, {}, {}
    settings = _settings(inlined=inlined)
    with (
        ops.Graph().as_default() as graph,
        session.Session(graph=graph, config=settings) as running,
    ):
        loaded = load(running, job.saved_model, inlined=inlined)
        for part in job.parts:
            try:
                outputs[part.signature] = _outputs(running, loaded, part)
                wrong = _together(running, loaded, part) if part.is_open else None
                if wrong is not None:
                    together[part.signature] = wrong
                if part.calibration is not None:
                    checked = msgspec.structs.replace(part, is_open=part.is_open and wrong is None)
                    statistics[part.signature] = check_samples(running, loaded, checked)
            except errors_impl.OpError as error:
                # Samples that nobody gave are made up, so that the model takes them.
                is_of_samples = isinstance(error, errors_impl.InvalidArgumentError)
                if part.calibration is None or (
                    part.signature not in outputs and (inlined or not is_of_samples)
                ):
                    raise
                failed[part.signature] = reason(error)
        keys = [part.signature for part in job.parts] if inlined else []
        scaled = scaled_inputs(loaded.graph_def, loaded.signature_def, keys)
    return ReferenceOutputs(
        outputs=outputs, statistics=statistics, failed=failed, together=together, scaled=scaled
    )


def _together(running: Any, loaded: Any, part: ReferencePart) -> Together | None:
    """What goes wrong with several samples at once; None where each has its own answers."""
    from tensorflow.python.framework import errors_impl

    tensors = SignatureTensors.of(loaded.signature_def[part.signature])
    stored = [read_samples(Path(path)) for path in (part.samples, part.calibration) if path]
    samples = max(stored, key=lambda each: min(each.count, TOGETHER[-1]))
    arrays = samples.take(np.arange(TOGETHER[-1]) % samples.count).arrays

    def answers(size: int, count: int) -> dict[str, Any]:
        some = {name: array[:count] for name, array in arrays.items()}
        runs = [running.run(tensors.outputs, feed) for feed in tensors.feeds(some, size)]
        return _joined(runs, some, size)

    alone = answers(1, TOGETHER[-1])
    for batch in TOGETHER:
        try:
            several = answers(batch, batch)
        except errors_impl.OpError as error:
            return Together(batch=batch, failed=reason(error))
        own = {name: values[:batch] for name, values in alone.items()}
        if differing := differing_outputs(own, several, {}):
            same = set(same_outputs(alone))
            return Together(
                batch=batch,
                differing=differing,
                same=tuple(name for name in differing if name in same),
            )
    return None


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
    tensors = SignatureTensors.of(loaded.signature_def[part.signature])
    arrays = read_samples(Path(part.samples)).arrays
    runs: list[dict[str, Any]] = []
    for feed in tensors.feeds(arrays, part.batch):
        if runs:
            feed |= {tensors.inputs[name]: runs[-1][out] for name, out in part.states.items()}
        runs.append(running.run(tensors.outputs, feed))
    _write(_joined(runs, arrays, part.batch), Path(part.directory))
    return tuple(tensors.outputs)


def check_samples(running: Any, loaded: Any, part: ReferencePart) -> StatisticsCheck:
    """Write the outputs on some calibration samples; returns what these give in the layers.

    Raises TensorFlow's error for samples that the model does not take.
    """
    assert part.calibration is not None, "there is nothing to check"
    samples = read_samples(Path(part.calibration))
    size = sum(array[0].size for array in samples.arrays.values())
    enough = min(_CHECKED, max(_LEAST_CHECKED, _MOST_VALUES // max(1, size)))
    most = min(samples.count, max(enough, part.batch)) // part.batch * part.batch
    some = samples.take(evenly(samples.count, most))
    arrays = some.arrays
    at_once = max(1, min(_AT_ONCE, _MOST_VALUES_AT_ONCE // max(1, size)))
    batch = at_once if part.is_open else part.batch
    probe = Probe(running, loaded, part.signature)
    done = probe.run(arrays, batch)
    outputs = _joined(done.answers, arrays, batch)
    _write(outputs, Path(part.directory, CHECKED))
    twice = _scaled_twice(loaded, probe, some, outputs, batch)
    if not done.layers:
        scaled = ((name, probe.run_if_taken(x, batch)) for name, x in usual_scales(arrays, outputs))
        better, information = more_telling(
            outputs, ((name, _joined(ran.answers, arrays, batch)) for name, ran in scaled if ran)
        )
        others = ((name, probe.run_if_taken(x, batch)) for name, x in other_preprocessings(arrays))
        right, hits = more_right(
            some.labels,
            outputs,
            ((name, _joined(ran.answers, arrays, batch)) for name, ran in others if ran),
        )
        return StatisticsCheck(
            samples=most, better=right or better, information=information, hits=hits, twice=twice
        )
    check = StatisticsCheck(
        samples=most,
        layers=len(done.layers),
        farthest=farthest(done.layers),
        first=max(
            (each for each in done.layers if each.meets_inputs), key=lambda each: each.spread
        ),
        left=done.left,
        twice=twice,
    )
    return _with_better(check, probe, arrays, batch)


def _scaled_twice(
    loaded: Any, probe: Probe, samples: Samples, outputs: Mapping[str, Any], batch: int
) -> ScaledTwice | None:
    """An input that the model scales itself, where the samples are scaled already."""
    for name, divisor in divisors(loaded.graph_def, probe.tensors.inputs).items():
        twice = scaled_before(name, samples.arrays[name], divisor)
        if twice is None:
            continue
        arrays = {**samples.arrays, name: undone(samples.arrays[name], twice)}
        done = None if samples.labels is None else probe.run_if_taken(arrays, batch)
        if samples.labels is not None and done is not None:
            others = _joined(done.answers, arrays, batch)
            hits = hits_of(samples.labels, outputs, others)
            twice = msgspec.structs.replace(twice, hits=hits)
        return None if twice.is_refuted else twice
    return None


def _with_better(
    check: StatisticsCheck, probe: Probe, arrays: Mapping[str, Any], batch: int
) -> StatisticsCheck:
    """The check with another preprocessing that clearly fits better, if one does.

    The first layers say which it may be. If the samples are near already, only changes that hardly
    move them are tried: other colors, and negatives.
    """
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
        done = probe.run_if_taken(fitting, batch)
        distance = farthest(done.layers).distance if done and done.layers else math.inf
        is_better = distance < min(own / _CLEARLY, SIMILAR)
    if not steps or not is_better:
        return check
    return msgspec.structs.replace(check, better=steps, own_distance=own, better_distance=distance)


def _joined(
    runs: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any], batch: int
) -> dict[str, Any]:
    """Each output over all runs of the samples in `arrays`, `batch` at a time: a row a sample."""
    count = len(next(iter(arrays.values())))
    sizes = [min(batch, count - start) for start in range(0, count, batch)]
    return {
        name: join_samples([as_tensorflow_gives(run[name]) for run in runs], sizes)
        for name in runs[0]
    }


def _write(outputs: Mapping[str, Any], directory: Path) -> None:
    """Write each output over all samples."""
    write_arrays(iter(outputs.values()), directory)
