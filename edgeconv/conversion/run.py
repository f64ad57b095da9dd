"""One conversion at work: its plan, its samples, its temporary files, and which of them are kept.

Some samples calibrate, and others are held back to verify.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv import data
from edgeconv.conversion.plan import FinishedArtifact, manifest_bytes, sources_of
from edgeconv.conversion.states import find_states
from edgeconv.model import source
from edgeconv.model.source.scanning import loadable
from edgeconv.system.processes.tasks import PersistentChild, start_task
from edgeconv.system.store import hash_of, keep_log, read_noun
from edgeconv.system.store.notes import in_project
from edgeconv.types import Artifact, CalibrationRecord
from edgeconv.types.conversion import OVERLAPPING
from edgeconv.types.errors import EdgeconvError, InputRefused, InternalError, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from edgeconv.conversion.plan import Plan
    from edgeconv.data import Samples
    from edgeconv.data.source import DataSet
    from edgeconv.system.processes.sandbox import Access
    from edgeconv.system.processes.tasks import Task
    from edgeconv.system.store import Cache
    from edgeconv.types import DataSource, Execution, Recipe, Signature, TensorSpec

    # The samples of a signature, with the vocabularies that made-up strings are taken from.
    ReadSamples = Callable[["Run", Signature, Sequence[Sequence[bytes]]], "Split"]

Answer = TypeVar("Answer")

_ARTIFACT = "artifact"
_MODEL, _MANIFEST = "model.tflite", "manifest.json"
_SYNTHETIC_SAMPLES = 4
_SYNTHETIC_SEED = 20240


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The stored samples: those to calibrate with (None: none were given), and the held-back.

    `sha256` is the hash of the held-back ones, `held_back_count` their number, `batch` the leading
    dimension that the model takes. `stacked` names the inputs without a batch dimension: their
    samples are stacked on a new first axis, and taken one at a time. `states` has the
    output that is fed back to an input with the next sample, by input: samples are in their order.
    """

    calibration: Path | None
    held_back: Path
    held_back_count: int
    sha256: str
    record: CalibrationRecord | None
    batch: int
    stacked: frozenset[str] = frozenset()
    states: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether the samples are made up."""
        return self.calibration is None


def split_samples(run: Run, signature: Signature, words: Sequence[Sequence[bytes]] = ()) -> Split:
    """Read, check, split and store a signature's samples; made-up ones where none were given.

    `words` are the vocabularies that made-up strings are taken from.
    """
    request = run.plan.request
    source = source_of(run.plan, signature.key)
    if source is None:
        _refuse_without_samples(run.plan, signature)
        inputs = data.synthetic_inputs(signature.inputs)
        batch = request.batch or data.batch_size(inputs)
        count = _SYNTHETIC_SAMPLES * batch
        made_up = data.synthetic_samples(inputs, count, _SYNTHETIC_SEED, words)
        states = find_states(signature, request.states)
        for name in states:
            made_up.arrays[name][...] = 0
        directory = _directory(run, signature, "held-back")
        data.write_samples(made_up, directory)
        return Split(
            calibration=None,
            held_back=directory,
            held_back_count=made_up.count,
            sha256=data.sha256_samples(made_up),
            record=None,
            batch=batch,
            stacked=_stacked(signature, inputs),
            states=states,
        )
    opening = functools.partial(
        data.opened_samples,
        source,
        preprocessing=request.preprocess.by_input,
        allow_code=run.execution.allow_code,
        labels=data.LabelUse(
            needs="if classes", outputs=tuple(spec.name for spec in signature.outputs)
        ),
        allowance=run.execution.allowance,
    )
    states = find_states(signature, request.states)
    inputs = _given_inputs(opening, signature, states) if states else signature.inputs
    with opening(inputs=inputs) as opened:
        return split_opened(run, signature, opened)


def _given_inputs(
    opening: Callable[..., AbstractContextManager[DataSet]],
    signature: Signature,
    states: Mapping[str, str],
) -> tuple[TensorSpec, ...]:
    """The inputs that the source has samples for: maybe those without the states.

    Raises the `InputRefused` for all inputs where there are no samples for these either.
    """
    try:
        with opening(inputs=signature.inputs):
            return signature.inputs
    except InputRefused:
        others = tuple(spec for spec in signature.inputs if spec.name not in states)
        with contextlib.suppress(InputRefused), opening(inputs=others):
            return others
        raise


def _without(samples: Samples, states: Mapping[str, str]) -> Samples:
    """The samples without states, which the model gives itself."""
    arrays = {name: array for name, array in samples.arrays.items() if name not in states}
    return data.Samples(arrays, samples.labels, samples.source)


def _write_with_states(samples: Samples, signature: Signature, directory: Path) -> Samples:
    """Write the samples with zeros for the states that the source has none for."""
    import numpy as np

    from edgeconv.data.checks import input_dtype

    arrays = {
        spec.name: samples.arrays[spec.name]
        if spec.name in samples.arrays
        else np.zeros((samples.count, *map(abs, spec.shape[1:])), input_dtype(spec))
        for spec in signature.inputs
    }
    samples = data.Samples(arrays, samples.labels, samples.source)
    data.write_samples(samples, directory)
    return samples


def split_opened(run: Run, signature: Signature, opened: DataSet) -> Split:
    """Check, split and store the samples of a data set for a signature's inputs."""
    batch = run.plan.request.batch or data.batch_size(opened.inputs)
    states = find_states(signature, run.plan.request.states)
    split = data.split_calibration(
        opened, run.plan.request.samples, batch=batch, consecutive=bool(states)
    )
    directories = [_directory(run, signature, name) for name in ("calibration", "held-back")]
    calibration, held_back = (
        _write_with_states(opened.take(indices), signature, directory)
        if states
        else opened.write(indices, directory)
        for indices, directory in zip(split, directories, strict=True)
    )
    overlap = calibration.count + held_back.count > opened.count
    return Split(
        states=states,
        calibration=directories[0],
        held_back=directories[1],
        held_back_count=held_back.count,
        sha256=data.sha256_samples(held_back),
        record=CalibrationRecord(
            signature=signature.key,
            source=opened.text,
            samples=calibration.count,
            sha256=data.sha256_samples(calibration),
            range="minmax",
            inputs=data.input_ranges(calibration, opened.inputs),
            suspicions=data.set_suspicions(_without(calibration, states)),
        ),
        batch=batch,
        stacked=_stacked(signature, opened.inputs),
        notes=(OVERLAPPING,) if overlap else (),
    )


def _stacked(signature: Signature, inputs: tuple[TensorSpec, ...]) -> frozenset[str]:
    """The inputs whose samples have one dimension more than the model takes."""
    ranks = {spec.name: len(spec.shape) for spec in signature.inputs}
    return frozenset(spec.name for spec in inputs if len(spec.shape) > ranks[spec.name])


def inputs_key(run: Run, signature: Signature) -> str:
    """A key of the samples that a signature takes: those of an equal key serve both."""
    # One sample at a time goes into a dynamic batch as well as into one of 1.
    inputs = [
        (s.name, s.dtype, [abs(size) for size in s.shape[:1]], s.shape[1:])
        for s in signature.inputs
    ]
    states = find_states(signature, run.plan.request.states)
    return hash_of(signature.key, sorted(inputs), sorted(states.items()))[:16]


def source_of(plan: Plan, key: str) -> DataSource | None:
    """The SOURCE that the plan names for a signature; None where there is none."""
    sources = sources_of(plan.request)
    return sources.get(key, sources.get(""))


def _refuse_without_samples(plan: Plan, signature: Signature) -> None:
    integer = [recipe.name for recipe in plan.recipes if recipe.needs_samples]
    if integer:
        raise UsageError(
            f"calibration samples for signature {signature.key!r} are needed for "
            f"{' and '.join(integer)}",
            hint=f"add --calibration {signature.key}=SOURCE: samples with the inputs "
            f"{quoted(spec.name for spec in signature.inputs)}",
        )


def _directory(run: Run, signature: Signature, name: str) -> Path:
    return run.samples / inputs_key(run, signature) / name


@dataclass(frozen=True)
class Run:
    """One conversion at work: its plan, its temporary files, and who is told of progress.

    `read_samples` gives the samples of a signature, usually the samples that the plan names.
    Leaving it as a context manager ends the children that stayed.
    """

    plan: Plan
    cache: Cache
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]
    read_samples: ReadSamples = split_samples
    _splits: dict[str, Split] = field(default_factory=dict, init=False)
    _children: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._children.close()

    @cached_property
    def loaded(self) -> Path:
        """What TensorFlow and Keras load of the model, see `loadable`. Raises as that does."""
        return loadable(
            self.plan.model,
            self.scratch / "loaded",
            trusted=self.execution.trusted,
            reads_layers=any(recipe.qat for recipe in self.plan.recipes),
        )

    def admit(self) -> None:
        """Raise `InputRefused` if the scan refuses the model, before anything loads it."""
        _ = self.loaded

    @property
    def samples(self) -> Path:
        """The directory of the stored samples."""
        return self.scratch / "samples"

    def start(
        self, function: Callable[[Any], Answer], job: msgspec.Struct, label: str, *, access: Access
    ) -> Task[Answer]:
        """Start a function of the package in a child, within the run's allowance."""
        return start_task(
            function,
            job,
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.execution.allowance,
            shown={str(self.loaded): self.plan.model.path},
        )

    def start_persistent(
        self, label: str, *, access: Access, environment: Mapping[str, str]
    ) -> PersistentChild:
        """Start a child that stays until it is closed, at the latest with the run."""
        child = PersistentChild(
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.execution.allowance,
            environment=environment,
        )
        self._children.callback(child.close)
        return child

    def result(self, task: Task[Answer]) -> Answer:
        """A child's answer; its whole log is kept where it ended in an error, which names it."""
        try:
            return task.result(self.on_progress)
        except InternalError:
            raise
        except EdgeconvError as error:
            kept = keep_log(task.child.log, f"{self.plan.model.name}-{self.plan.float_key[:8]}")
            if kept is None:
                raise
            message = f"{error.message}\n  the whole log: {kept}"
            raise error.with_message(message) from error

    def split(self, signature: Signature, words: Sequence[Sequence[bytes]] = ()) -> Split:
        """The stored samples of a signature, which are read once.

        `words` are the vocabularies that made-up strings are taken from.
        """
        key = inputs_key(self, signature)
        if key not in self._splits:
            self._splits[key] = self.read_samples(self, signature, words)
        return self._splits[key]

    def keep(self, stage: str, key: str, files: Mapping[str, Path]) -> None:
        """Keep what was made in the cache, by name, under a key of the plan.

        Raises `InputRefused` if the model or the samples have changed since the plan was made.
        Everything that is kept or published passes through here.
        """
        self._refuse_changed()
        self.cache.keep(stage, key, files)

    def _refuse_changed(self) -> None:
        plan, model = self.plan, self.plan.model
        now = source.identify(model.path, model.opening, allow_code=True)
        if (now.sha256, now.opening) != (model.sha256, model.opening):
            raise _changed(model.path)
        identities = [
            (sources_of(plan.request)[k], v) for k, v in plan.calibration_identity.items()
        ]
        if plan.request.training:
            identities.append((plan.request.training, plan.training_identity))
        for samples, identity in identities:
            # Code may give other samples each time, so its identity now proves nothing.
            if not data.runs_code(samples) and data.identity(samples) != identity:
                raise _changed(str(samples))


def _changed(what: str) -> InputRefused:
    return InputRefused(
        f"{what} changed while it was read, so the result cannot be trusted",
        hint="run it again, once nothing writes to it",
    )


def cache_artifact(run: Run, finished: FinishedArtifact) -> None:
    """Keep an artifact in the cache.

    Raises `InputRefused` if the model or the samples changed meanwhile.
    """
    manifest = run.scratch / f"{finished.artifact.recipe.name}.manifest.json"
    manifest.write_bytes(manifest_bytes(finished.artifact))
    run.keep(_ARTIFACT, finished.artifact.key, {_MODEL: finished.file, _MANIFEST: manifest})


def find_cached(run: Run, recipe: Recipe) -> FinishedArtifact | None:
    """The artifact of a recipe from the cache; None if it is not there whole.

    If another user's key sealed the entry, only its file is taken, and only if the published
    manifest has its hash.
    """
    key = run.plan.key(recipe)
    entry = run.cache.find(_ARTIFACT, key)
    if entry is None:
        return _promised(run, recipe, key)
    try:
        artifact = read_noun(entry / _MANIFEST, Artifact, what="cached manifest")
    except InputRefused:
        return None
    return FinishedArtifact(artifact=_here(run, recipe, artifact), file=entry / _MODEL)


def _promised(run: Run, recipe: Recipe, key: str) -> FinishedArtifact | None:
    manifest = run.plan.target(recipe.name).with_suffix(".json")
    try:
        artifact = read_noun(manifest, Artifact, what="manifest")
    except InputRefused:
        return None
    if artifact.key != key:
        return None
    file = run.cache.find_promised(_ARTIFACT, key, _MODEL, artifact.sha256)
    return FinishedArtifact(artifact=_here(run, recipe, artifact), file=file) if file else None


def _here(run: Run, recipe: Recipe, artifact: Artifact) -> Artifact:
    """A cached artifact with the paths and names of this run, which may differ from the first."""
    request = run.plan.request
    records = tuple(
        msgspec.structs.replace(record, source=str(source_of(run.plan, record.signature) or ""))
        for record in artifact.calibration
    )
    here = msgspec.structs.replace(
        artifact,
        calibration=records,
        qat=artifact.qat and msgspec.structs.replace(artifact.qat, source=str(request.training)),
        name=run.plan.model.name,
        file=run.plan.target(recipe.name).name,
        source_path=run.plan.source_path,
        opening=run.plan.published_opening,
    )
    return in_project(here, run.plan.directory)
