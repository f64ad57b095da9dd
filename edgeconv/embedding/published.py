"""The .tflite that is embedded: checked against its manifest, or described by itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.source import artifact_of_file
from edgeconv.store import read_noun, refuse_pointer, sha256_file
from edgeconv.types import Artifact


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite and its manifest, which belong together; without one, `manifest` is the model."""

    artifact: Artifact
    model: Path
    manifest: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of a model without a manifest."""
        if self.manifest != self.model:
            return ()
        return (
            f"{self.model.name} has no manifest, so edgeconv did not make it, or not here: it was "
            "never compared with a float model, and its preprocessing is not known",
        )

    @property
    def portable(self) -> Artifact:
        """The manifest without what depends on where and how the conversion ran."""
        return msgspec.structs.replace(
            self.artifact, source_path="", calibration=(), notes=(), ladder=(), tools={}
        )


def published_file(path: Path, recipe: str = "") -> Path:
    """The .tflite or manifest at `path`: itself, or of a directory the one of the recipe.

    Without a recipe, the only one. Raises `InputRefused` where there is none, or are several.
    """
    if not path.is_dir():
        return path
    manifests = (each for each in sorted(path.glob("*.json")) if _is_manifest(each))
    found = [each for each in manifests if not recipe or each.stem.endswith(f".{recipe}")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.stem for each in found) or "none"
    wanted = f"one published {recipe} model" if recipe else "one published model"
    raise InputRefused(
        f"{path} is a directory, and holds not {wanted}, but: {names}",
        hint="choose with --recipe, or give the .tflite",
    )


def _is_manifest(path: Path) -> bool:
    return path.with_suffix(".tflite").exists()


def find_published(path: str | Path) -> Published:
    """The artifact at `path`: the .tflite that `convert` published, its manifest, or a directory.

    A directory must hold one only. A .tflite without a manifest is described by what is in it.

    Raises `InputRefused` where there is no .tflite, or its manifest is of another.
    """
    given = published_file(Path(path))
    manifest = given if given.suffix == ".json" else given.with_suffix(".json")
    if given.suffix != ".json" and not given.is_file():
        raise InputRefused(f"{given} does not exist", hint="give what `edgeconv convert` published")
    if not manifest.is_file():
        if given.suffix == ".json":
            raise InputRefused(f"{given} does not exist", hint="give the .tflite")
        return Published(artifact=artifact_of_file(given), model=given, manifest=given)
    artifact = read_noun(manifest, Artifact, what="manifest")
    model = manifest.parent / artifact.file
    if given.suffix != ".json" and model.name != given.name:
        raise InputRefused(
            f"{manifest} is the manifest of {artifact.file}, not of {given.name}",
            hint="keep the names that `edgeconv convert` published them under",
        )
    if not model.is_file():
        raise InputRefused(f"{model}, which {manifest.name} describes, does not exist")
    refuse_pointer(model)
    if sha256_file(model) != artifact.sha256:
        raise InputRefused(
            f"{model} is not the file that {manifest.name} describes: its content changed",
            hint="run `edgeconv convert` again, which repairs it",
        )
    return Published(artifact=artifact, model=model, manifest=manifest)
