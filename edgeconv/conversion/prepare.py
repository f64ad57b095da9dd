"""The first stage: the float32 graph, the samples, and the trained model's outputs for them.

TensorFlow makes the graph and the outputs, each in a child, each kept in the cache. A function
starts it and returns what waits for it, so that others run in parallel. What is in the cache is not
started.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from edgeconv import data
from edgeconv.conversion.plan import declared_signatures, resolve
from edgeconv.conversion.run import Run, Split, source_of
from edgeconv.conversion.session import start_engine, verifying_runtime
from edgeconv.conversion.states import state_notes
from edgeconv.data.samples import mapped_arrays, sample_files
from edgeconv.model.source import code_files
from edgeconv.model.tflite import (
    ensure_signature,
    summarize,
    unused_inputs,
    update_format,
    vocabularies,
    with_fixed_sizes,
    with_needs_declared,
    with_unique_names,
)
from edgeconv.runtimes.local import start_run
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import hash_of
from edgeconv.tf.convert import FloatConversion, FloatJob, to_float
from edgeconv.tf.normalization import Scaled
from edgeconv.tf.reference import (
    CHECKED,
    ReferenceJob,
    ReferenceOutputs,
    ReferencePart,
    ScaledJob,
    find_scaled,
    run_reference,
)
from edgeconv.types import LadderStep, Signature, with_scaled
from edgeconv.types.decoding import ready
from edgeconv.types.errors import EdgeconvError, InputRefused, UnknownScale, UnsupportedOperators
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.conversion.ladder import Rung
    from edgeconv.system.processes.tasks import PersistentChild

# TensorFlow's converter gives the operators that only TensorFlow has this name.
SELECT_TF = "Flex"
_OLD_FORM = (
    "the source has its operator codes in the form of TensorFlow before 2.4; they were brought up "
    "to date"
)
_NO_SIGNATURE = "the source has no signature; it was given serving_default"
_EQUAL_NAMES = "tensors of the source have no name, or the same one; they were numbered"
# What the cache keeps, and the names of the files.
_FLOAT, _REFERENCE = "float", "reference"
_MODEL, _INDEX, _EXPORTED, _REWRITTEN = "float.tflite", "index.json", "exported", "rewritten"
_OUTPUTS = "outputs"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One signature of the float32 graph, with its samples."""

    signature: Signature
    split: Split


@dataclass(frozen=True, kw_only=True)
class PreparedModel:
    """What every recipe starts from.

    `saved_model` is what TensorFlow's converter read, None for a .tflite source; likewise
    `reference`, what the trained model answers to the held-back samples.
    `engine` is the child that has loaded litert-quantizer meanwhile, if that is needed.
    `narrow` says that the trained model computes in coarser floats than float32, and `can_fuse`
    that it has LSTM layers of Keras 3, which are loops unless they are fused.
    `select_ops` are the operators that only TensorFlow has. `ladder` are the attempts at
    loading the model, where the first one failed.
    """

    rung: Rung
    float_model: Path
    parts: tuple[Part, ...]
    saved_model: str | None
    reference: PendingReference | None
    engine: PersistentChild | None = None
    select_ops: tuple[str, ...] = ()
    narrow: bool = False
    can_fuse: bool = False
    ladder: tuple[LadderStep, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The signatures' keys."""
        return tuple(part.signature.key for part in self.parts)

    @property
    def calibration(self) -> tuple[Path, ...]:
        """Where the samples to calibrate with are stored."""
        stored = (part.split.calibration for part in self.parts)
        return tuple(path for path in stored if path is not None)

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The names of the float32 graph's operators."""
        summary = summarize(self.float_model.read_bytes(), where="the float32 model")
        return frozenset(operator.name for operator in summary.operators)

    @property
    def synthetic(self) -> bool:
        """Whether any samples are made up."""
        return any(part.split.synthetic for part in self.parts)


def prepare(
    run: Run, rung: Rung, children: contextlib.ExitStack, *, quantizes: bool
) -> PreparedModel:
    """Everything the recipes need; the trained model may still be running in `children`.

    `quantizes` says that litert-quantizer is needed, which is loaded meanwhile.

    Raises an `EdgeconvError` where the model or the data are bad.
    """
    run.admit()
    chosen = resolve(run.plan)
    if run.plan.model.kind == "tflite":
        return _from_tflite(run, chosen, rung)
    return _from_tensorflow(run, chosen, rung, children, quantizes=quantizes)


def _from_tflite(run: Run, chosen: tuple[Signature, ...], rung: Rung) -> PreparedModel:
    run.on_progress("reading the float32 model")
    original = Path(run.plan.model.path).read_bytes()
    current = update_format(original)
    signed = ensure_signature(current)
    named = with_unique_names(signed)
    if rung.fixed.fixes:
        # No dimension but the batch was given another size.
        named = signed = with_fixed_sizes(named)
    file = run.scratch / "float.tflite"
    file.write_bytes(with_needs_declared(named))
    signatures = _signatures(signed, [signature.key or SERVING_DEFAULT for signature in chosen])
    words = vocabularies(signed, where="the model")
    select_ops = _select_ops(run, signed)
    parts = _parts(run, signatures, words)
    fill_states(run, parts, file, select_ops)
    return PreparedModel(
        rung=rung,
        float_model=file,
        parts=parts,
        saved_model=None,
        reference=None,
        select_ops=select_ops,
        notes=(
            *((_OLD_FORM,) if current != original else ()),
            *((_NO_SIGNATURE,) if signed != current else ()),
            *((_EQUAL_NAMES,) if named != signed else ()),
            *_fixed_notes(rung),
            *dynamic_notes(signatures),
            *_unused_notes(signed),
            *_select_notes(select_ops),
            *_state_notes(run, parts),
        ),
    )


def _state_notes(run: Run, parts: Sequence[Part]) -> tuple[str, ...]:
    is_declared = bool(run.plan.request.states)
    return tuple(
        note for part in parts for note in state_notes(part.split.states, is_declared=is_declared)
    )


def _select_ops(run: Run, model: bytes) -> tuple[str, ...]:
    custom = summarize(model, where="the model").custom_operators
    select = tuple(name for name in custom if name.startswith(SELECT_TF))
    if select and not run.plan.request.select_ops:
        raise UnsupportedOperators(
            f"the model needs operators that TFLite does not have: {', '.join(select)}",
            hint="replace them in the model it was converted from, or convert with "
            "--allow-select-ops, and link the Select-TF (Flex) delegate on the device",
        )
    return select


def _from_tensorflow(
    run: Run,
    chosen: tuple[Signature, ...],
    rung: Rung,
    children: contextlib.ExitStack,
    *,
    quantizes: bool,
) -> PreparedModel:
    known = chosen or declared_signatures(run.plan)
    # TensorFlow goes first, since it takes longest; the samples are read meanwhile.
    pending = start_float_graph(run, chosen, rung, children)
    engine = None
    if quantizes:
        run.samples.mkdir(exist_ok=True)
        engine = start_engine(run, pending.directory, run.samples)
        children.callback(engine.close)
    # The outputs of a Keras file, which its states are among, are not known yet.
    _read_early(run, [each for each in known if chosen or len(each.inputs) == 1], rung)
    graph = pending.result()
    content = graph.file.read_bytes()
    signatures = _signatures(content, graph.facts.signatures)
    select_ops = _select_ops(run, content)
    words = vocabularies(content, where="the float32 model")
    try:
        parts = _parts(run, signatures, words)
    except UnknownScale:
        scaled = _scaled(run, graph.facts)
        named = (with_scaled(each, scaled.get(each.key, ())) for each in signatures)
        parts = _parts(run, tuple(named), words)
    fill_states(run, parts, graph.file, select_ops)
    # Not before: two processes with TensorFlow in them would take the most memory of all.
    answered = start_reference(run, rung, graph.facts.trained, parts, children)
    return PreparedModel(
        rung=rung,
        float_model=graph.file,
        parts=parts,
        saved_model=graph.facts.read,
        reference=answered,
        engine=engine,
        select_ops=select_ops,
        narrow=graph.facts.narrow,
        can_fuse=graph.facts.can_fuse,
        ladder=graph.facts.loading,
        notes=(
            *graph.facts.notes,
            *_fixed_notes(rung),
            *dynamic_notes(signatures),
            *_unused_notes(content),
            *_dilation_notes(content, signatures),
            *_select_notes(select_ops),
            *_state_notes(run, parts),
        ),
    )


def _scaled(run: Run, facts: FloatConversion) -> Scaled:
    """The inputs that the trained model scales itself, which only samples of integers ask for."""
    job = ScaledJob(saved_model=facts.trained, signatures=facts.signatures)
    access = Access(reads=(Path(facts.trained),))
    with run.start(find_scaled, job, "the trained model in TensorFlow", access=access) as task:
        return run.result(task)


def _unused_notes(content: bytes) -> tuple[str, ...]:
    return tuple(
        f"the input {name!r} is not used: no operator reads it" for name in unused_inputs(content)
    )


def _dilation_notes(content: bytes, signatures: Sequence[Signature]) -> tuple[str, ...]:
    """A note where dilated convolutions became several operators for the sake of an open batch."""
    names = {each.name for each in summarize(content, where="the float32 model").operators}
    is_open = any(spec.shape[:1] == (-1,) for each in signatures for spec in each.inputs)
    if not (is_open and names >= {"SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"}):
        return ()
    return (
        "the open batch turned dilated convolutions into SPACE_TO_BATCH_ND, a convolution and "
        "BATCH_TO_SPACE_ND: --batch 1 makes them one operator each, and the file smaller",
    )


def _select_notes(select_ops: tuple[str, ...]) -> tuple[str, ...]:
    if not select_ops:
        return ()
    return (
        f"{', '.join(select_ops)} run only where the Select-TF (Flex) delegate is linked: Android "
        "with org.tensorflow:tensorflow-lite-select-tf-ops, iOS with TensorFlowLiteSelectTfOps; "
        "not in LiteRT's or tflite-runtime's Python packages",
    )


def _fixed_notes(rung: Rung) -> tuple[str, ...]:
    return (f"changed before conversion: {rung.text}",) if rung.fixed.fixes else ()


def _read_early(run: Run, known: Sequence[Signature], rung: Rung) -> None:
    """Read the samples of signatures that are known before the model is converted.

    Samples that do not fit are refused at once, but for those whose scale the graph tells. Made-up
    strings come from the graph's tables, and code is not run where the signature may yet turn out
    to be another.
    """
    for signature in known:
        source = source_of(run.plan, signature.key)
        takes_strings = any(spec.dtype == "string" for spec in signature.inputs)
        if not (takes_strings if source is None else data.runs_code(source)):
            with contextlib.suppress(UnknownScale):
                run.split(_fixed(signature, rung))


def _fixed(signature: Signature, rung: Rung) -> Signature:
    """The signature with the dimensions that the rung fixes."""
    inputs = []
    for spec in signature.inputs:
        shape = rung.fixed.of(spec.name, [None if size == -1 else size for size in spec.shape])
        sizes = tuple(-1 if size is None else size for size in shape)
        inputs.append(msgspec.structs.replace(spec, shape=sizes))
    return msgspec.structs.replace(signature, inputs=tuple(inputs))


def _parts(
    run: Run, signatures: tuple[Signature, ...], words: Sequence[Sequence[bytes]] = ()
) -> tuple[Part, ...]:
    return tuple(
        Part(signature=signature, split=run.split(signature, words)) for signature in signatures
    )


def _signatures(model: bytes, keys: list[str] | tuple[str, ...]) -> tuple[Signature, ...]:
    summary = summarize(model, where="the float32 model")
    by_key = {signature.key: signature for signature in summary.signatures}
    missing = [key for key in keys if key not in by_key]
    if missing:
        raise InputRefused(
            f"the float32 model has no signature {missing[0]!r}: it has {[*by_key]}",
            hint="export the model again, with a name for each signature",
        )
    return tuple(by_key[key] for key in keys)


def dynamic_notes(signatures: tuple[Signature, ...]) -> tuple[str, ...]:
    """Notes on dimensions that stay dynamic within a sample."""
    return tuple(
        f"input {spec.name!r} keeps its dynamic shape {spec.shape_text}: the runtime allocates "
        "again when the size changes"
        for signature in signatures
        for spec in signature.inputs
        if -1 in spec.shape[1:]
    )


def fill_states(
    run: Run, parts: Sequence[Part], float_model: Path, select_ops: tuple[str, ...]
) -> None:
    """Replace the states in the stored samples by those that the float32 graph gives.

    It is run on the samples in their order, from the first one's state on. Raises as `start_run`.
    """
    for part in parts:
        split = part.split
        for directory in (split.calibration, split.held_back) if split.states else ():
            if directory is not None:
                _fill(run, part, directory, float_model, select_ops)


def _fill(
    run: Run, part: Part, directory: Path, float_model: Path, select_ops: tuple[str, ...]
) -> None:
    states, batch = part.split.states, part.split.batch
    running = start_run(
        float_model,
        directory,
        scratch=run.scratch,
        signature=part.signature.key,
        batch=batch,
        threads=run.execution.threads,
        target=verifying_runtime(run, select_ops),
        allowance=run.execution.allowance,
        states=states,
    )
    outputs = running.result().outputs
    for name, file in sample_files(directory).items():
        if name in states:
            first = np.load(file, mmap_mode="r")[:batch].copy()
            filled = np.concatenate([first, outputs[states[name]][:-batch]])
            # Not in place: the file is mapped.
            unfinished = file.with_suffix(".part")
            with unfinished.open("wb") as opened:
                np.save(opened, filled, allow_pickle=False)
            unfinished.replace(file)


class FloatGraph(NamedTuple):
    """The float32 .tflite, and how it was made."""

    file: Path
    facts: FloatConversion


class PendingGraph(NamedTuple):
    """A float32 graph that is being made in a directory; `result` waits for it.

    That raises an `EdgeconvError` where the model does not load or convert.
    """

    directory: Path
    result: Callable[[], FloatGraph]


class PendingReference(NamedTuple):
    """What the trained model answers; `result` waits for it, `is_there` says whether it need not.

    `result` raises `InputRefused` if the model does not run in TensorFlow.
    """

    is_there: Callable[[], bool]
    result: Callable[[], Reference]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What the trained model answers to the held-back samples, and to some calibration samples.

    Output i of signature j is `directory`/j/i.npy, and that of the calibration samples
    `directory`/j/CHECKED/i.npy; `answer` has the names, and the statistics of the layers.
    """

    directory: Path
    answer: ReferenceOutputs

    def arrays(self, key: str) -> dict[str, Any]:
        """The outputs of the signature `key` by name."""
        return dict(mapped_arrays(self._directory(key), self.answer.outputs[key]))

    def checked(self, key: str) -> dict[str, Any]:
        """The outputs on calibration samples, by name; none where none were run."""
        if key not in self.answer.statistics:
            return {}
        return dict(mapped_arrays(self._directory(key) / CHECKED, self.answer.outputs[key]))

    def _directory(self, key: str) -> Path:
        return self.directory / str(list(self.answer.outputs).index(key))


def start_float_graph(
    run: Run, chosen: tuple[Signature, ...], rung: Rung, children: contextlib.ExitStack
) -> PendingGraph:
    """Start making the float32 graph."""
    plan = run.plan
    key = hash_of(plan.float_key, rung)
    entry = run.cache.find(_FLOAT, key)
    if entry is not None:
        return PendingGraph(entry, lambda: _graph(run, entry))
    directory = Path(tempfile.mkdtemp(prefix="float-", dir=run.scratch))
    run.on_progress("converting to float32 with TensorFlow")
    job = FloatJob(
        path=str(run.loaded),
        kind=plan.model.kind,
        opening=plan.model.opening,
        other_keras=rung.other_keras,
        signatures=tuple(signature.key for signature in chosen),
        fixed=rung.fixed,
        fuse=rung.fuse,
        unroll=rung.unroll,
        keeps_fused=plan.request.fuse_lstm,
        select_ops=plan.request.select_ops,
        target=str(directory / _MODEL),
        exported=str(directory / _EXPORTED),
        rewritten=str(directory / _REWRITTEN),
    )
    access = Access(reads=(run.loaded, *code_files(plan.model.opening)), writes=(directory,))
    task = children.enter_context(run.start(to_float, job, "TensorFlow's converter", access=access))

    def finish() -> FloatGraph:
        try:
            answer = run.result(task)
        except EdgeconvError as error:
            graph = _trained(run, directory)
            if not Path(graph, "saved_model.pb").is_file():
                # The Keras file was not even exported.
                graph = ""
            raise error.with_message(error.message, error.cause._replace(graph=graph)) from error
        # Where the models are is known from where the entry is.
        kept = msgspec.structs.replace(answer, trained="", read="")
        (directory / _INDEX).write_bytes(msgspec.json.encode(kept))
        names = (_MODEL, _INDEX, _EXPORTED, _REWRITTEN)
        run.keep(_FLOAT, key, {n: directory / n for n in names if (directory / n).exists()})
        return _graph(run, directory)

    return PendingGraph(directory, finish)


def _graph(run: Run, directory: Path) -> FloatGraph:
    kept = msgspec.json.decode((directory / _INDEX).read_bytes(), type=ready(FloatConversion))
    rewritten, trained = directory / _REWRITTEN, _trained(run, directory)
    read = str(rewritten) if rewritten.is_dir() else trained
    facts = msgspec.structs.replace(kept, trained=trained, read=read)
    return FloatGraph(directory / _MODEL, facts)


def _trained(run: Run, directory: Path) -> str:
    """The SavedModel of the model as it was trained."""
    exported = directory / _EXPORTED
    return str(exported if exported.is_dir() else run.loaded)


def start_reference(
    run: Run, rung: Rung, trained: str, parts: tuple[Part, ...], children: contextlib.ExitStack
) -> PendingReference:
    """Start running the trained model on the held-back samples."""
    samples = [
        (
            part.signature.key,
            part.split.batch,
            part.split.sha256,
            part.split.record and part.split.record.sha256,
        )
        for part in parts
    ]
    key = hash_of(run.plan.float_key, rung, samples)
    entry = run.cache.find(_REFERENCE, key)
    if entry is not None:
        return PendingReference(lambda: True, lambda: _reference(entry))
    directory = Path(tempfile.mkdtemp(prefix="reference-", dir=run.scratch))
    for index in range(len(parts)):
        (directory / _OUTPUTS / str(index) / CHECKED).mkdir(parents=True)
    job = ReferenceJob(
        saved_model=trained,
        parts=tuple(
            ReferencePart(
                signature=part.signature.key,
                samples=str(part.split.held_back),
                batch=part.split.batch,
                directory=str(directory / _OUTPUTS / str(index)),
                calibration=str(part.split.calibration) if part.split.calibration else None,
                is_open=not part.split.stacked
                and all(spec.shape[:1] == (-1,) for spec in part.signature.inputs),
                states=part.split.states,
            )
            for index, part in enumerate(parts)
        ),
    )
    stored = (path for part in job.parts for path in (part.samples, part.calibration) if path)
    access = Access(reads=(Path(trained), *map(Path, stored)), writes=(directory,))
    task = children.enter_context(
        run.start(run_reference, job, "the trained model in TensorFlow", access=access)
    )

    def finish() -> Reference:
        (directory / _INDEX).write_bytes(msgspec.json.encode(run.result(task)))
        run.keep(_REFERENCE, key, {n: directory / n for n in (_OUTPUTS, _INDEX)})
        return _reference(directory)

    return PendingReference(task.child.has_ended, finish)


def _reference(directory: Path) -> Reference:
    answer = msgspec.json.decode((directory / _INDEX).read_bytes(), type=ready(ReferenceOutputs))
    return Reference(directory=directory / _OUTPUTS, answer=answer)
