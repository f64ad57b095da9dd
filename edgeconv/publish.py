"""From an examined candidate to a published artifact: its manifest, and both files in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.nouns import Artifact, Recipe
from edgeconv.store import publish_bytes, publish_file, read_noun, sha256_file, tool_versions

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.plan import Plan
    from edgeconv.quantize.candidate import Examined
    from edgeconv.stages import Run
    from edgeconv.stages.prepare import Prepared

_STAGE = "artifact"
_MODEL, _MANIFEST = "model.tflite", "manifest.json"


def publish(run: Run, prepared: Prepared, examined: Examined) -> Artifact:
    """Publish an examined candidate, and keep it in the cache; returns its manifest."""
    artifact = _manifest(run.plan, prepared, examined)
    return _put(run, artifact, examined.candidate.file)


def kept(run: Run, recipe: Recipe) -> Artifact | None:
    """Publish an artifact from the cache; None if it is not there whole."""
    entry = run.cache.find(_STAGE, run.plan.key(recipe))
    if entry is None:
        return None
    file = entry / _MODEL
    try:
        artifact = read_noun(entry / _MANIFEST, Artifact, what="cached manifest")
    except InputRefused:
        return None
    if not file.is_file() or sha256_file(file) != artifact.sha256:
        return None
    # The same content may have stood elsewhere, under another name, when it was converted.
    here = msgspec.structs.replace(
        artifact,
        name=run.plan.model.name,
        file=run.plan.target(recipe.name).name,
        source_path=run.plan.model.path,
    )
    return _put(run, here, file)


def _manifest(plan: Plan, prepared: Prepared, examined: Examined) -> Artifact:
    candidate, summary = examined.candidate, examined.summary
    recipe = candidate.recipe
    return Artifact(
        name=plan.model.name,
        file=plan.target(recipe.name).name,
        key=plan.key(recipe),
        sha256=sha256_file(candidate.file),
        size_bytes=candidate.file.stat().st_size,
        source_path=plan.model.path,
        source_kind=plan.model.kind,
        source_sha256=plan.model.sha256,
        recipe=recipe,
        engine=candidate.engine,
        signature=examined.signature,
        operators=summary.operators,
        quantized_weight_share=summary.quantized_weight_share,
        float16_weight_share=summary.float16_weight_share,
        float_operators=summary.float_operators,
        verification=examined.verification,
        calibration=prepared.split.record if recipe.full_integer else None,
        notes=(*plan.model.notes, *prepared.notes, *prepared.split.notes, *candidate.notes),
        tools=tool_versions(),
    )


def _put(run: Run, artifact: Artifact, file: Path) -> Artifact:
    """Put the file and its manifest in place, and into the cache.

    The manifest goes last and is the commit: it has the hash of the file that belongs to
    it, so a reader can tell a pair that was torn by a crash.
    """
    text = msgspec.json.format(msgspec.json.encode(artifact), indent=2) + b"\n"
    manifest = run.scratch / f"{artifact.recipe.name}.manifest.json"
    manifest.write_bytes(text)
    run.cache.keep(_STAGE, artifact.key, {_MODEL: file, _MANIFEST: manifest})
    target = run.plan.target(artifact.recipe.name)
    publish_file(file, target)
    publish_bytes(text, target.with_suffix(".json"))
    return artifact
