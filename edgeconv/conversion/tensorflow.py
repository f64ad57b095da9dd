"""The two things that TensorFlow does in a conversion, each in a child, each kept in the cache.

Each is started by a function that returns what waits for it, so that others run in parallel. What
is in the cache is not started.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.model.source import code_files
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import hash_of
from edgeconv.tf.convert import FloatJob, to_float
from edgeconv.tf.reference import (
    CHECKED,
    ReferenceJob,
    ReferenceOutputs,
    ReferencePart,
    run_reference,
)
from edgeconv.types import LadderStep
from edgeconv.types.decoding import ready
from edgeconv.types.errors import EdgeconvError

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from edgeconv.conversion.ladder import Rung
    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.run import Run
    from edgeconv.types import Signature

_FLOAT, _REFERENCE = "float", "reference"
_MODEL, _INDEX, _EXPORTED, _REWRITTEN = "float.tflite", "index.json", "exported", "rewritten"
_OUTPUTS = "outputs"


class FloatIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache keeps with the float32 graph: its signatures, and how the model was loaded."""

    signatures: tuple[str, ...]
    loading: tuple[LadderStep, ...]
    narrow: bool
    can_fuse: bool = False
    notes: tuple[str, ...]


class FloatGraph(NamedTuple):
    """The float32 .tflite, and the SavedModels that it was made from.

    `trained` is the model as it was trained, `read` what TensorFlow's converter read.
    """

    file: Path
    trained: str
    read: str
    facts: FloatIndex


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
        from edgeconv.data.handover import mapped_arrays

        return dict(mapped_arrays(self._directory(key), self.answer.outputs[key]))

    def checked(self, key: str) -> dict[str, Any]:
        """The outputs on calibration samples, by name; none where none were run."""
        from edgeconv.data.handover import mapped_arrays

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
        index = FloatIndex(
            signatures=answer.signatures,
            loading=answer.loading,
            narrow=answer.narrow,
            can_fuse=answer.can_fuse,
            notes=answer.notes,
        )
        (directory / _INDEX).write_bytes(msgspec.json.encode(index))
        names = (_MODEL, _INDEX, _EXPORTED, _REWRITTEN)
        run.keep(_FLOAT, key, {n: directory / n for n in names if (directory / n).exists()})
        return _graph(run, directory)

    return PendingGraph(directory, finish)


def _graph(run: Run, directory: Path) -> FloatGraph:
    index = msgspec.json.decode((directory / _INDEX).read_bytes(), type=ready(FloatIndex))
    rewritten, trained = directory / _REWRITTEN, _trained(run, directory)
    return FloatGraph(
        file=directory / _MODEL,
        trained=trained,
        read=str(rewritten) if rewritten.is_dir() else trained,
        facts=index,
    )


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
