"""What is measured: .tflite files with their manifests, and the trained baseline."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from edgeconv.conversion.states import has_own_states
from edgeconv.data.preprocessing import describe
from edgeconv.model import source
from edgeconv.model.source.scanning import admit_model, trusted_models
from edgeconv.model.tflite import is_quantized, summarize
from edgeconv.model.tflite.weights import likely_recipe
from edgeconv.system.store import read_noun, sha256_file
from edgeconv.system.store.converted import find_source, was_converted
from edgeconv.types import (
    Artifact,
    Execution,
    Opening,
    Preprocessing,
    RecipeName,
    Signature,
    SourceModel,
    TensorSpec,
    TrainingRecord,
)
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from edgeconv.types import Steps


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite to measure; `artifact` is None where it has no manifest.

    `recipe` is that of the manifest, or what a quantized file looks like; None of other files.
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
    kinds = [
        *by_recipe,
        [f.file.stem for f in model_files],
        [f.file.name for f in model_files],
    ]
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
    model = source.load(file)
    if model.kind != "tflite":
        raise InputRefused(
            f"{file} is not a .tflite file",
            hint="convert it first; a trained model goes to --baseline",
        )
    manifest = file.with_suffix(".json")
    artifact = read_noun(manifest, Artifact, what="manifest") if manifest.is_file() else None
    sha256 = sha256_file(file)
    if artifact is not None and artifact.sha256 != sha256:
        raise InputRefused(
            f"{file} is not the file that {manifest.name} describes: its content changed",
            hint="convert again, which repairs it, or remove the manifest",
        )
    is_only = artifact is not None and len(artifact.signatures) == 1 and key is None
    chosen = (
        artifact.signature.key if artifact and is_only else source.chosen_signature(model, key).key
    )
    content = file.read_bytes()
    summary = summarize(content, where=str(file))
    signature = next((s for s in summary.signatures if s.key == chosen), None)
    if signature is None:
        raise InputRefused(
            f"{manifest} has a signature {chosen!r}, and {file.name} does not",
            hint="convert again, which repairs it, or remove the manifest",
        )
    source.refuse_unusable(str(file), signature)
    recipe = artifact.recipe.name if artifact else None
    if recipe is None and is_quantized(summary):
        recipe = likely_recipe(content, where=str(file))
    return ModelFile(
        name=file.stem,
        file=file,
        sha256=sha256,
        signature=signature,
        artifact=artifact,
        recipe=recipe,
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
    names = [f.name for f in model_files if f.artifact and has_own_states(f.artifact)]
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
    """The preprocessing by input, and notes on it: `steps`, or that of the manifests.

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
            spec,
            dtype="float32" if spec.scale else spec.dtype,
            scale=(),
            zero_point=(),
        )
        for spec in signature.inputs
    )
