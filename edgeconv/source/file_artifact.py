"""A .tflite that edgeconv did not make, described as those are that it made."""

from __future__ import annotations

from pathlib import Path

from edgeconv.errors import InputRefused
from edgeconv.source.loading import inspect_model
from edgeconv.types import Artifact, Recipe, Verification

NOT_MADE_HERE = "none: edgeconv did not make this file"


def artifact_of_file(path: str | Path) -> Artifact:
    """What a manifest would say of the .tflite at `path`, as far as the file itself tells.

    The recipe is the one that it looks like. Nothing was compared with a float model, which
    `verification` says; there is no `key`. Raises `InputRefused` for what is not a .tflite.
    """
    from edgeconv.tflite.precision import likely_recipe

    found = inspect_model(path)
    if found.model.kind != "tflite":
        raise InputRefused(f"{path} is not a .tflite file", hint="convert it first")
    model = found.model
    content = Path(model.path).read_bytes()
    return Artifact(
        name=model.name,
        file=Path(model.path).name,
        key="",
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        source_path=model.path,
        source_kind="tflite",
        source_sha256=model.sha256,
        recipe=Recipe(name=likely_recipe(content, where=model.path)),
        engine="litert",
        signatures=model.signatures,
        operators=found.operators,
        quantized_weight_share=found.quantized_weight_share or 0.0,
        float16_weight_share=found.float16_weight_share or 0.0,
        float_operators=found.float_operators or (),
        verification=Verification(
            reference=NOT_MADE_HERE, samples=0, synthetic=False, runtime="", outputs=()
        ),
        oldest_runtime=found.oldest_runtime,
    )
