"""What is measured: .tflite files with their manifests, and the trained baseline.

All models get one set of names for their inputs and outputs, where they call these differently. An
NPU's compiler says what it would make of each file.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec import structs

from edgeconv.data.preprocessing import describe
from edgeconv.measure.machine import compiler_version
from edgeconv.model import source
from edgeconv.model.source.scanning import admit_model, trusted_models
from edgeconv.model.tflite import ensure_signature, is_quantized, summarize
from edgeconv.model.tflite.edit import with_names
from edgeconv.model.tflite.operators import likely_recipe
from edgeconv.model.tflite.summary import match_names
from edgeconv.plugins import npu_compiler
from edgeconv.runtimes.interface import Model
from edgeconv.system.store import read_noun
from edgeconv.system.store.notes import find_source, was_converted
from edgeconv.types import (
    Artifact,
    Execution,
    Measurement,
    NpuChoice,
    NpuEstimate,
    Opening,
    Preprocessing,
    RecipeName,
    Signature,
    SourceModel,
    Steps,
    TensorSpec,
    TrainingRecord,
    with_scaled,
)
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.measure.models import BenchRun


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite to measure; `artifact` is None where it has no manifest.

    `recipe` is the manifest's, or the one that a quantized file looks like; None for other files.
    `group` tells its directory from the others, "" where names are unique without it.
    """

    name: str
    file: Path
    sha256: str
    signature: Signature
    artifact: Artifact | None
    recipe: RecipeName | None = None
    group: str = ""


def find_model_files(
    paths: Sequence[str | Path], key: str | None, trusted: Collection[str] = ()
) -> tuple[ModelFile, ...]:
    """The .tflite files of `paths`: files, or directories that `convert` published in.

    Files of one model are named by their recipes, others by their own names, and with the ends of
    their directories' paths where two would have the same name.

    Raises `InputRefused` for a path without any, a file that its manifest does not describe, or
    that the scan refuses and that is not among `trusted`, `UsageError` for a file given twice.
    """
    files = [file.absolute() for path in paths for file in _files(Path(path))]
    real = [file.resolve() for file in files]
    if twice := [file for file in real if real.count(file) > 1]:
        raise UsageError(f"{twice[0]} is given twice", hint="give each file once")
    return _named([_subject(file, key, trusted) for file in files])


def _named(model_files: list[ModelFile]) -> tuple[ModelFile, ...]:
    """The files with the shortest kind of name that is unique."""
    groups = _groups([file.file.parent for file in model_files])
    recipes: list[str] = [f.artifact.recipe.name for f in model_files if f.artifact]
    is_one_model = len({f.artifact.name if f.artifact else None for f in model_files}) == 1
    by_recipe = [recipes] if recipes and is_one_model else []
    kinds = [*by_recipe, [f.file.stem for f in model_files], [f.file.name for f in model_files]]
    named = (
        [
            msgspec.structs.replace(file, name=f"{group}/{name}" if group else name, group=group)
            for file, group, name in zip(model_files, own, names, strict=True)
        ]
        for names in kinds
        for own in ([""] * len(model_files), groups)
    )
    return tuple(next(each for each in named if len({file.name for file in each}) == len(each)))


def _groups(directories: list[Path]) -> list[str]:
    """The end of each path, of the fewest parts that tell it from the other paths."""
    distinct = set(directories)
    ends = {}
    for path in distinct:
        counts = range(1, len(path.parts))
        enough = (
            n for n in counts if sum(each.parts[-n:] == path.parts[-n:] for each in distinct) == 1
        )
        ends[path] = "/".join(path.parts[-next(enough, len(path.parts)) :])
    return [ends[path] for path in directories]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [Path(path / a.file) for a in _manifests(path)] or sorted(path.glob("*.tflite"))
    if not files:
        raise InputRefused(
            f"{path} has no .tflite to measure", hint="give what `edgeconv convert` published"
        )
    return files


def _manifests(directory: Path) -> list[Artifact]:
    manifests = []
    for path in sorted(directory.glob("*.json")):
        try:
            manifests.append(read_noun(path, Artifact, what="manifest"))
        except InputRefused:
            continue  # Some other JSON file, such as a report.
    order = get_args(RecipeName)
    return sorted(manifests, key=lambda a: (a.name, order.index(a.recipe.name)))


def _subject(file: Path, key: str | None, trusted: Collection[str]) -> ModelFile:
    admit_model(file, trusted=trusted)
    model = source.identify(file)
    if model.kind != "tflite":
        raise InputRefused(
            f"{file} is not a .tflite file",
            hint="convert it first; a trained model goes to --baseline",
        )
    manifest = file.with_suffix(".json")
    artifact = read_noun(manifest, Artifact, what="manifest") if manifest.is_file() else None
    if artifact is not None and artifact.sha256 != model.sha256:
        raise InputRefused(
            f"{file} is not the file that {manifest.name} describes: its content changed",
            hint="convert again, which repairs it, or remove the manifest",
        )
    content = file.read_bytes()
    summary = summarize(content, where=str(file))
    model = structs.replace(model, signatures=summary.signatures)
    is_only = artifact is not None and len(artifact.signatures) == 1 and key is None
    chosen = (
        artifact.signature.key if artifact and is_only else source.chosen_signature(model, key).key
    )
    signature = next((s for s in model.signatures if s.key == chosen), None)
    if signature is None:
        raise InputRefused(
            f"{manifest} has a signature {chosen!r}, and {file.name} does not",
            hint="convert again, which repairs it, or remove the manifest",
        )
    source.refuse_unusable(str(file), signature)
    looks_like = likely_recipe(content, where=str(file)) if is_quantized(summary) else None
    recorded = (each for each in (artifact.signatures if artifact else ()) if each.key == chosen)
    return ModelFile(
        name=file.stem,
        file=file,
        sha256=model.sha256,
        signature=with_scaled(signature, next((each.scaled for each in recorded), ())),
        artifact=artifact,
        recipe=artifact.recipe.name if artifact else looks_like,
    )


def warned(model_files: Sequence[ModelFile]) -> tuple[str, ...]:
    """The warnings of the conversion, with the names of the files."""
    return tuple(
        f"{file.name}: {warning}"
        for file in model_files
        if file.artifact
        for warning in file.artifact.verification.warnings
    )


def given_states(model_files: Sequence[ModelFile]) -> tuple[str, ...]:
    """A note where files that have states of their own are run on those that the samples have."""
    names = [f.name for f in model_files if f.artifact and f.artifact.has_own_states]
    if not names:
        return ()
    return (
        f"{listed(names)}: each sample is taken alone, with the states that the data has; convert "
        "verified consecutive samples with the file's own states, whose errors may add up",
    )


def find_baseline(
    model_files: Sequence[ModelFile],
    baseline: str | Path | None,
    opening: Opening = Opening(),
    execution: Execution = Execution(),
) -> tuple[SourceModel | None, tuple[str, ...]]:
    """The trained model to compare with, and notes on the choice.

    `baseline`, or the source that every manifest names, if it is unchanged and this user converted
    it or trusts its content: a manifest may be anybody's. It is opened by `opening` and the tags in
    the manifests. Code that only they name is not run: raises `UsageError` where it is needed.
    Raises `InputRefused` for a model that the scan refuses, and that `execution` does not trust.
    """
    allow_code, trusted = execution.allow_code, execution.trusted
    if baseline is not None:
        admit_model(baseline, opening, allow_code=allow_code, trusted=trusted)
        return source.load_to_run(baseline, opening, allow_code=allow_code), ()
    artifacts = [s.artifact for s in model_files if s.artifact]
    # The code counts by its content, wherever it is.
    made_from = {
        (a.source_path, a.source_sha256, a.opening.tags, a.opening.code_sha256) for a in artifacts
    }
    if len(made_from) != 1 or any(s.artifact is None for s in model_files):
        return None, ("no baseline: none was given, and the manifests do not name one source",)
    recorded = artifacts[0].opening
    recorded_name, sha256, *_ = made_from.pop()
    path = str(find_source(recorded_name, sha256, model_files[0].file.parent))
    if not Path(path).exists():
        return None, (f"no baseline: {path}, which the manifests name, is not there",)
    if not (was_converted(path, sha256) or sha256 in trusted_models(trusted)):
        how = f"name the trained model with --baseline, as in --baseline {shlex.quote(path)}"
        return None, (
            f"no baseline: the manifests name {path}, which was not converted here; {how}",
        )
    if source.identify(path).sha256 != sha256:
        return None, (f"no baseline: {path} has changed since it was converted",)
    _refuse_unnamed_code(path, recorded, opening)
    opening = msgspec.structs.replace(opening, tags=opening.tags or recorded.tags)
    admit_model(path, opening, allow_code=allow_code, trusted=trusted)
    model = source.load_to_run(path, opening, allow_code=allow_code)
    if model.opening.code_sha256 != recorded.code_sha256:
        named = ", ".join(opening.custom_objects)
        return None, (f"no baseline: the code of {named} has changed since {path} was converted",)
    return model, ()


def _refuse_unnamed_code(path: str, recorded: Opening, opening: Opening) -> None:
    if recorded.custom_objects and not opening.custom_objects:
        options = " ".join(f"--custom-objects {text}" for text in recorded.custom_objects)
        raise UsageError(
            f"the trained model {path} needs the user's own code to load: "
            f"{', '.join(recorded.custom_objects)}",
            hint=f"look at it, and allow it to run with {options}",
        )


def record_of(model: SourceModel | None) -> TrainingRecord | None:
    """The record that `edgeconv train` wrote next to the model, if it can be read."""
    if model is None:
        return None
    path = Path(model.path)
    name = path.name if model.kind == "saved_model" else path.stem
    record = path.with_name(f"{name}.training.json")
    if not record.is_file():
        return None
    try:
        return read_noun(record, TrainingRecord, what="training record")
    except InputRefused:
        return None


def preprocessing_of(
    model_files: Sequence[ModelFile], steps: Steps | None
) -> tuple[dict[str, Preprocessing], tuple[str, ...]]:
    """The preprocessing by input, and notes on it: `steps`, or what the manifests have.

    Raises `InputRefused` where the manifests differ.
    """
    declared = {describe(s.artifact.preprocessing): s.artifact for s in model_files if s.artifact}
    if steps is not None:
        others = [text for text in declared if text != describe(steps.by_input)]
        note = f"preprocessing was given; the manifests say {' and '.join(others) or 'the same'}"
        return steps.by_input, (note,) if others else ()
    if len(declared) > 1:
        raise InputRefused(
            f"the models were calibrated with different preprocessing: {'; '.join(declared)}",
            hint="measure them in separate runs, or give one with --preprocess",
        )
    return next((dict(a.preprocessing) for a in declared.values()), {}), ()


def float_inputs(signature: Signature) -> tuple[TensorSpec, ...]:
    """The inputs in the form of their samples: float32 where the model is quantized."""
    return tuple(
        msgspec.structs.replace(
            spec, dtype="float32" if spec.scale else spec.dtype, scale=(), zero_point=()
        )
        for spec in signature.inputs
    )


class CommonNames:
    """The names that the samples' arrays and all outputs go by.

    Those of the trained model, where they can be read, else of the first artifact, else of the
    first file. `inputs` are what samples are given for: a size that one file leaves open and
    another fixes is fixed. `outputs` are those of the first file. `key` is the trained model's
    signature key; `notes` say which files are run under other names than their own.
    """

    def __init__(self, model_files: Sequence[ModelFile], trained: SourceModel | None) -> None:
        """Raises `InputRefused` where two files take different inputs.

        `UsageError` where the trained model has several signatures, and none of the files' key.
        """
        published = (file.signature for file in model_files if file.artifact)
        first = _signed(model_files[0].file, model_files[0].signature)
        compared = _trained_signature(trained, first.key) if trained else None
        self.key = compared.key if compared else first.key
        self._common = compared or next(published, first)
        self.inputs = _renamed(first, self._common)
        named = _matched(first.outputs, self._common.outputs)
        self.outputs = tuple(structs.replace(s, name=named[s.name]) for s in first.outputs)
        self.notes: dict[str, None] = {}
        before: list[tuple[str, tuple[TensorSpec, ...]]] = []
        for model_file in model_files:
            own = _renamed(_signed(model_file.file, model_file.signature), self._common)
            for earlier, theirs in before:
                if _agreed(own, theirs) is None:
                    raise InputRefused(
                        f"{model_file.file.name} has other inputs than {earlier}: "
                        f"{_listed(own)} and {_listed(theirs)}",
                        hint="measure models with different inputs in separate runs",
                    )
            before.append((model_file.file.name, own))
            self.inputs = _agreed(self.inputs, own) or self.inputs

    def trained(self, model: SourceModel, batch: int, scratch: Path) -> Model:
        """A trained model that is a .tflite, to be run; see `model`."""
        signature = source.chosen_signature(model, self.key if model.signatures[0].key else None)
        return self.model(Path(model.path), signature, batch, scratch)

    def model(self, file: Path, signature: Signature, batch: int, scratch: Path) -> Model:
        """The file to be run: itself, or a copy in `scratch` that differs in its names only."""
        own = _signed(file, signature)
        inputs = _matched(own.inputs, self._common.inputs)
        outputs = _matched(own.outputs, self._common.outputs)
        own_names = [spec.name for spec in (*signature.inputs, *signature.outputs)]
        common_names = [*inputs.values(), *outputs.values()]
        if own_names == common_names:
            return Model(file=file, signature=signature.key or None, batch=batch)
        copy = Path(tempfile.mkdtemp(prefix="named-", dir=scratch)) / file.name
        copy.write_bytes(with_names(file.read_bytes(), own.key, inputs, outputs))
        pairs = zip(own_names, common_names, strict=True)
        changed = ", ".join(f"{was!r} as {name!r}" for was, name in pairs if was != name)
        note = f"{file.name} is measured under other names for its inputs and outputs: {changed}"
        self.notes[note] = None
        return Model(file=copy, signature=own.key, batch=batch)


def _matched(own: Sequence[TensorSpec], common: Sequence[TensorSpec]) -> dict[str, str]:
    """The name of each, in order: the same tensor's name in `common`, else its own."""
    matches = match_names(own, common) or {}
    return {spec.name: matches.get(spec.name, spec.name) for spec in own}


def _trained_signature(trained: SourceModel, key: str) -> Signature | None:
    """The signature of this key, else the only one; None for a Keras file, which has none."""
    if not trained.signatures:
        return None
    has_key = any(signature.key == key for signature in trained.signatures)
    signature = source.chosen_signature(trained, key if has_key else None)
    return _signed(Path(trained.path), signature) if trained.kind == "tflite" else signature


def _signed(file: Path, signature: Signature) -> Signature:
    """The signature; of a file without any, the one that it would get."""
    if signature.key:
        return signature
    return summarize(ensure_signature(file.read_bytes()), where=str(file)).signatures[0]


def _renamed(own: Signature, common: Signature) -> tuple[TensorSpec, ...]:
    """The inputs in the form of their samples, by the common names."""
    names = _matched(own.inputs, common.inputs)
    return tuple(msgspec.structs.replace(spec, name=names[spec.name]) for spec in float_inputs(own))


def _agreed(
    inputs: Sequence[TensorSpec], other: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...] | None:
    """The inputs that suit both, with the sizes that either fixes; None if they differ."""
    others = {spec.name: spec for spec in other}
    if {spec.name for spec in inputs} != set(others):
        return None
    agreed = [_fixed(spec, others[spec.name]) for spec in inputs]
    return None if None in agreed else tuple(filter(None, agreed))


def _fixed(spec: TensorSpec, other: TensorSpec) -> TensorSpec | None:
    """`spec` with the sizes that `other` fixes; None if its type or a size of it differs."""
    if spec.dtype != other.dtype or len(spec.shape) != len(other.shape):
        return None
    sizes = tuple(zip(spec.shape, other.shape, strict=True))
    if any(own != theirs and min(own, theirs) >= 0 for own, theirs in sizes):
        return None
    return msgspec.structs.replace(spec, shape=tuple(max(pair) for pair in sizes))


def _listed(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {spec.dtype} {spec.shape_text}" for spec in inputs)


Estimates = dict[str, tuple[NpuEstimate, ...]]


def npu_estimates(run: BenchRun, model_files: Sequence[ModelFile]) -> Estimates:
    """The estimates of each file for each of `run.measuring.npus`, by the hash of the file.

    A file that Vela cannot compile has the reason in its `error`. Raises `ToolFailed` where Vela is
    not installed.
    """
    version = compiler_version(run.measuring)
    return {
        file.sha256: tuple(_estimate(run, file, npu, version) for npu in run.measuring.npus)
        for file in model_files
        if version
    }


def with_npu(rows: Iterable[Measurement], estimates: Estimates) -> tuple[Measurement, ...]:
    """The rows, each with the estimates of its file."""
    return tuple(structs.replace(row, npu=estimates.get(row.sha256, ())) for row in rows)


def _estimate(run: BenchRun, file: ModelFile, npu: NpuChoice, version: str) -> NpuEstimate:
    run.on_progress(f"{file.name} on {npu}")
    allowance = run.execution.allowance
    try:
        compiled = npu_compiler().compile_for(
            npu, file.file, scratch=run.scratch, allowance=allowance
        )
    except (InputRefused, ToolFailed) as error:
        return NpuEstimate(npu=str(npu), compiler=version, error=error.message)
    estimate: NpuEstimate = compiled.estimate
    return estimate
