"""The .tflite that is embedded, checked against its manifest, or described from its content."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.source import artifact_of_file
from edgeconv.store import read_noun, refuse_pointer, sha256_file
from edgeconv.types import Artifact


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite and its manifest; without one, `manifest` is the model's path."""

    artifact: Artifact
    model: Path
    manifest: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on a model without a manifest."""
        if self.manifest != self.model:
            return ()
        return (
            f"{self.model.name} has no manifest: edgeconv has not verified it against a float "
            "model, and does not know its preprocessing",
        )

    @property
    def portable(self) -> Artifact:
        """The manifest without facts of where and how the conversion ran."""
        return msgspec.structs.replace(
            self.artifact, source_path="", calibration=(), notes=(), ladder=(), tools={}
        )


def published_file(path: Path, recipe: str = "") -> Path:
    """The .tflite or manifest at `path`; of a directory, the one of the recipe, or the only one.

    Raises `InputRefused` for a directory with none, or with several.
    """
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.json"))
    manifests = (each for each in files if each.with_suffix(".tflite").exists())
    matching = [each for each in manifests if not recipe or each.stem.endswith(f".{recipe}")]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(each.stem for each in matching) or "none"
    expected = f"one published {recipe} model" if recipe else "one published model"
    raise InputRefused(
        f"the directory {path} does not contain exactly {expected}; it has: {names}",
        hint="choose one with --recipe, or give the .tflite",
    )


def find_published(path: str | Path) -> Published:
    """The artifact at `path`: a published .tflite, its manifest, or a directory with only one.

    A .tflite without a manifest is described from its content. Raises `InputRefused` where there is
    no .tflite, or the manifest is of another.
    """
    file = published_file(Path(path))
    manifest = file if file.suffix == ".json" else file.with_suffix(".json")
    if file.suffix != ".json" and not file.is_file():
        raise InputRefused(
            f"{file} does not exist", hint="give a file that `edgeconv convert` published"
        )
    if not manifest.is_file():
        if file.suffix == ".json":
            raise InputRefused(f"{file} does not exist", hint="give the .tflite")
        return Published(artifact=artifact_of_file(file), model=file, manifest=file)
    artifact = read_noun(manifest, Artifact, what="manifest")
    model = manifest.parent / artifact.file
    if file.suffix != ".json" and model.name != file.name:
        raise InputRefused(
            f"{manifest} is the manifest of {artifact.file}, not of {file.name}",
            hint="keep the names that `edgeconv convert` published them under",
        )
    if not model.is_file():
        raise InputRefused(f"{model}, which {manifest.name} describes, does not exist")
    refuse_pointer(model)
    if sha256_file(model) != artifact.sha256:
        raise InputRefused(
            f"{model} is not the file that {manifest.name} describes: its content changed",
            hint="run `edgeconv convert` again to restore it",
        )
    return Published(artifact=artifact, model=model, manifest=manifest)
