"""Running the trained baseline in TensorFlow: its outputs, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from numpy.typing import NDArray

from edgeconv.data import Samples, batch_size
from edgeconv.data.arrays import as_tensorflow_gives, as_tensorflow_takes
from edgeconv.data.samples import join_samples, stacked_spec
from edgeconv.statistics.outputs import TOGETHER, differing_outputs
from edgeconv.system.store import scratch_directory
from edgeconv.tf import keras_files
from edgeconv.tf.environment import use_cpu_only
from edgeconv.tf.lazy import tf
from edgeconv.tf.reasons import whole_reason
from edgeconv.tf.rewrite import load_saved_model
from edgeconv.types import Opening, SourceKind, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import SERVING_DEFAULT, quoted

Arrays = dict[str, NDArray[Any]]

_BATCH_REPEATS = 10


class BaselineJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, on what, and where its outputs go.

    `path` is a SavedModel directory or a Keras file, `opening` how to load it. `signature` is None
    for a Keras file, which has only one. `inputs` is the directory in which
    `edgeconv.data.handover` hands over `samples` samples, in parts of whole batches except the
    last. `batch` is for the evaluation; a model with a fixed batch keeps it.
    """

    path: str
    kind: SourceKind
    opening: Opening = Opening()
    signature: str | None
    inputs: str
    outputs: str
    samples: int
    batch: int = 64
    warmup: int = 10
    repeats: int = 100
    threads: int = 1


class BaselineRun(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs of the baseline, and raw times in microseconds.

    Output `names[i]` of all samples, (samples, *output_shape), is in `outputs`/i.npy.
    `load_us` is the time until the signature can be called, with a Keras file also its tracing;
    `first_us` the first call, which plans the graph. `samples_us` are calls of `latency_batch`
    samples (1, or the model's fixed batch), `batch_samples_us` calls of `evaluation_batch`
    samples. Both are measured after warm-up on the first samples, from input tensors to output
    arrays. `loader` read the model: "tf.saved_model", "keras" or "tf_keras".
    """

    loader: str
    names: tuple[str, ...]
    samples: int
    load_us: float
    first_us: float
    latency_batch: int
    samples_us: tuple[float, ...]
    evaluation_batch: int
    batch_samples_us: tuple[float, ...]
    threads: int


class BaselineModel(NamedTuple):
    """A model ready to be called: `call(**tensors)` gives the output tensors by name.

    `stacked` names the inputs without a batch dimension, whose samples have one all the same.
    """

    call: Callable[..., Mapping[str, Any]]
    inputs: tuple[TensorSpec, ...]
    loader: str
    owner: object  # A signature does not keep its own variables alive.
    stacked: frozenset[str] = frozenset()

    def feeds(self, arrays: Arrays, batch: int) -> Iterator[dict[str, Any]]:
        """The samples as tensors by input name, `batch` at a time; the last may be fewer."""
        for start in range(0, _count(arrays), batch):
            piece = {name: array[start : start + batch] for name, array in arrays.items()}
            yield {
                name: tf.constant(array[0] if name in self.stacked else array)
                for name, array in as_tensorflow_takes(piece).items()
            }

    def taking(self, arrays: Arrays) -> BaselineModel:
        """The same model with its inputs as they take these samples."""
        stacked = frozenset(
            spec.name for spec in self.inputs if arrays[spec.name].ndim == len(spec.shape) + 1
        )
        inputs = (stacked_spec(spec) if spec.name in stacked else spec for spec in self.inputs)
        return self._replace(inputs=tuple(inputs), stacked=stacked)


def run_baseline(job: BaselineJob) -> BaselineRun:
    """Run the baseline on all samples and time it. Runs in a child.

    Raises `InputRefused` for a model that does not load or run, or samples that do not fit it,
    `UsageError` for an unknown signature, and `OutputRefused`.
    """
    use_cpu_only()
    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(job.threads)
    opened, load_us = _timed(partial(open_model, job))
    parts = _parts(opened, job)
    first = next(parts)
    opened = opened.taking(first)
    small, large = batch_sizes(opened.inputs, job.batch, min(_count(first), job.samples))
    latency_feed = next(opened.feeds(first, small))
    try:
        _, first_us = _timed(partial(_answer, opened, latency_feed))
        if not _rows_are_apart(opened, first, small, large):
            large = small
        samples_us = _call_times_us(opened, latency_feed, job.warmup, job.repeats)
        repeats = min(job.repeats, _BATCH_REPEATS)
        batch_feed = next(opened.feeds(first, large))
        batch_samples_us = _call_times_us(opened, batch_feed, 1, repeats) if repeats else ()
        names = _evaluate(opened, chain([first], parts), large, job)
    except tf.errors.OpError as error:
        raise InputRefused(f"{job.path} fails in TensorFlow: {whole_reason(error)}") from error
    return BaselineRun(
        loader=opened.loader,
        names=names,
        samples=job.samples,
        load_us=load_us,
        first_us=first_us,
        latency_batch=small,
        samples_us=samples_us,
        evaluation_batch=large,
        batch_samples_us=batch_samples_us,
        threads=job.threads,
    )


def open_model(job: BaselineJob) -> BaselineModel:
    """Load the model and choose its signature.

    A Keras file is exported first: so inputs and outputs are named as in a .tflite converted from
    it. Raises `InputRefused`, `UsageError`.
    """
    if job.kind == "tflite":
        raise UsageError(
            f"{job.path} is a .tflite, not a trained baseline",
            hint="name the SavedModel or Keras file that it was converted from",
        )
    if job.kind == "saved_model":
        return _open_saved_model(job.path, job.signature or SERVING_DEFAULT, "tf.saved_model")
    with scratch_directory() as scratch:
        exported = str(scratch / "model")
        loaders = keras_files.export(job.path, job.kind, exported, opening=job.opening)
        return _open_saved_model(exported, SERVING_DEFAULT, loaders[-1].attempt)


def _open_saved_model(directory: str, key: str, loader: str) -> BaselineModel:
    loaded = load_saved_model(directory)
    signatures = getattr(loaded, "signatures", {})
    if not signatures:
        raise InputRefused(f"{directory} has no signature", hint="export it with a signature")
    if key not in signatures:
        raise unknown_name("signature", key, signatures)
    call = signatures[key]
    for name, spec in call.structured_outputs.items():
        _refuse_unstorable(name, spec.dtype)
    # The second part is by keyword; a signature has no positional inputs.
    specs = call.structured_input_signature[1]
    inputs = tuple(_tensor_spec(name, spec) for name, spec in specs.items())
    return BaselineModel(call, inputs, loader, loaded)


def _tensor_spec(name: str, spec: Any) -> TensorSpec:
    if spec.shape.rank is None or spec.shape.rank == 0:
        raise InputRefused(
            f"input {name!r} has no batch dimension: its shape is {spec.shape}",
            hint="export a signature whose inputs have the samples in their first dimension",
        )
    shape = tuple(-1 if size is None else size for size in spec.shape.as_list())
    return TensorSpec(name=name, shape=shape, dtype=spec.dtype.name)


def _refuse_unstorable(name: str, dtype: Any) -> None:
    is_known = dtype.is_bool or dtype.is_integer or dtype.is_floating or dtype.name == "string"
    if not is_known or dtype.name == "bfloat16":
        raise InputRefused(
            f"output {name!r} is {dtype.name}, which cannot be compared with a .tflite file's",
            hint="choose a signature with outputs of numbers or strings",
        )


def _parts(opened: BaselineModel, job: BaselineJob) -> Iterator[Arrays]:
    """The samples part by part, by input, checked against the model's inputs."""
    from edgeconv.data.handover import take_parts

    for number, part in enumerate(take_parts(Path(job.inputs), job.samples)):
        arrays = fitting(opened, part)
        inputs = opened.taking(arrays).inputs
        if not number and all(spec.shape[0] != -1 for spec in inputs):
            batch_sizes(inputs, job.batch, job.samples)
        yield arrays


def _rows_are_apart(opened: BaselineModel, arrays: Arrays, small: int, large: int) -> bool:
    """Whether samples have the same outputs, a row each, alone and in a batch of several."""
    count = min(TOGETHER[-1], large, _count(arrays))
    if large == small or count == small:
        return True
    some = {name: array[:count] for name, array in arrays.items()}
    try:
        together = _answer(opened, next(opened.feeds(some, count)))
    except tf.errors.OpError:
        return False
    runs = [_answer(opened, feed) for feed in opened.feeds(some, small)]
    alone = {
        name: join_samples([run[name] for run in runs], [small] * len(runs)) for name in runs[0]
    }
    several = {name: join_samples([values], [count]) for name, values in together.items()}
    return not differing_outputs(alone, several, {})


def fitting(opened: BaselineModel, samples: Samples) -> Arrays:
    """The samples, (n, *input_shape), by input of the model. Raises `InputRefused`."""
    from edgeconv.data.checks import check_input
    from edgeconv.model.tflite.summary import match_names

    names = match_names(opened.inputs, samples.specs)
    if names is None:
        raise InputRefused(
            f"{samples.source} has arrays for {quoted(samples.arrays)}, "
            f"the model takes {quoted(spec.name for spec in opened.inputs)}",
            hint="name each array after its input",
        )
    arrays = {own: samples.arrays[name] for own, name in names.items()}
    for spec in opened.taking(arrays).inputs:
        check_input(samples.source, arrays[spec.name], spec)
    return arrays


def batch_sizes(inputs: tuple[TensorSpec, ...], batch: int, count: int) -> tuple[int, int]:
    """The samples per call for the latency, and for the evaluation.

    They are 1 and `batch`, at most `count`, or twice the model's fixed batch. Raises
    `InputRefused` where `count` is not a multiple of a fixed batch.
    """
    fixed = batch_size(inputs)
    if all(spec.shape[0] == -1 for spec in inputs):
        return 1, min(batch, count)
    if count % fixed:
        raise InputRefused(
            f"the model takes {fixed} samples at once, and {count} is not a multiple of {fixed}",
            hint=f"give {count - count % fixed or fixed} samples",
        )
    return fixed, fixed


def _count(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))


def _answer(opened: BaselineModel, feed: dict[str, Any]) -> Arrays:
    outputs = opened.call(**feed)
    return {name: as_tensorflow_gives(value.numpy()) for name, value in outputs.items()}


def _call_times_us(
    opened: BaselineModel, feed: dict[str, Any], warmup: int, repeats: int
) -> tuple[float, ...]:
    for _ in range(warmup):
        _answer(opened, feed)
    return tuple(_timed(partial(_answer, opened, feed))[1] for _ in range(repeats))


def _evaluate(
    opened: BaselineModel, parts: Iterable[Arrays], batch: int, job: BaselineJob
) -> tuple[str, ...]:
    """Write the outputs of all samples, a file each; their names."""
    from edgeconv.data.handover import RowsFile

    directory = Path(job.outputs)
    files: dict[str, RowsFile] = {}
    written = 0
    for arrays in parts:
        for start in range(0, _count(arrays), batch):
            size = min(batch, _count(arrays) - start)
            piece = {name: array[start : start + size] for name, array in arrays.items()}
            outputs = _answer(opened, next(opened.feeds(piece, size)))
            for name, whole in outputs.items():
                array = join_samples([whole], [size])
                if name not in files:
                    files[name] = RowsFile(directory / f"{len(files)}.npy", job.samples, array)
                files[name].write(written, array)
            written += size
    for file in files.values():
        file.close()
    return tuple(files)


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started_ns = time.perf_counter_ns()
    answer = function()
    return answer, (time.perf_counter_ns() - started_ns) / 1e3
