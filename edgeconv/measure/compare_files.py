"""What changed between two .tflite files: size, operators, tensors and their scales."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Literal

from edgeconv.errors import InputRefused
from edgeconv.reporting.closeness import snr
from edgeconv.source import load
from edgeconv.store import read_noun
from edgeconv.tflite import summarize
from edgeconv.tflite.tensors import tensor_specs
from edgeconv.types import (
    Artifact,
    Difference,
    ModelDifference,
    NumberChange,
    OperatorChange,
    TensorChange,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from edgeconv.types import GraphSummary, OperatorCount, Signature, TensorSpec

Place = Literal["input", "output", "inside"]


def compare_files(before: Path, after: Path) -> Difference:
    """What changed from one .tflite to another; neither is run.

    What their manifests say of their closeness to the float model is compared too, where both
    have one. Raises `InputRefused` for a file that is no model.
    """
    one, other = load(before), load(after)
    contents = [before.read_bytes(), after.read_bytes()]
    graphs = [
        summarize(data, where=str(f)) for data, f in zip(contents, (before, after), strict=True)
    ]
    manifests, refused = _manifests((before, one.sha256), (after, other.sha256))
    numbers = [
        NumberChange(quantity="size_bytes", before=len(contents[0]), after=len(contents[1])),
        NumberChange(
            quantity="gzip_size_bytes",
            before=len(gzip.compress(contents[0], mtime=0)),
            after=len(gzip.compress(contents[1], mtime=0)),
        ),
        *_graph_numbers(graphs),
        *_manifest_numbers(manifests),
    ]
    specs = [
        tensor_specs(data, where=str(f)) for data, f in zip(contents, (before, after), strict=True)
    ]
    ends = changed_ends(graphs[0].signatures, graphs[1].signatures)
    model = ModelDifference(
        before=before.name,
        after=after.name,
        same_file=one.sha256 == other.sha256,
        numbers=tuple(n for n in numbers if n.before != n.after),
        operators=changed_operators(graphs[0].operators, graphs[1].operators),
        tensors=(*ends, *_changed("inside", specs[0], specs[1])),
    )
    return Difference(before=str(before), after=str(after), models=(model,), refused=refused)


def changed_operators(
    before: Sequence[OperatorCount], after: Sequence[OperatorCount]
) -> tuple[OperatorChange, ...]:
    """The operators, by version, that are not there equally often."""
    one, other = ({(o.name, o.version): o.count for o in side} for side in (before, after))
    changes = (
        OperatorChange(
            operator=name,
            version=version,
            before=one.get((name, version), 0),
            after=other.get((name, version), 0),
        )
        for name, version in sorted({*one, *other})
    )
    return tuple(change for change in changes if change.before != change.after)


def changed_ends(
    before: Iterable[Signature], after: Iterable[Signature]
) -> tuple[TensorChange, ...]:
    """The inputs and outputs, by signature and name, that are not the same."""
    before, after = tuple(before), tuple(after)
    found: list[TensorChange] = []
    for place in ("input", "output"):
        one, other = _ends(before, place), _ends(after, place)
        found += _changed("input" if place == "input" else "output", one, other)
    return tuple(found)


def _ends(signatures: Sequence[Signature], place: str) -> dict[str, TensorSpec]:
    several = len(signatures) > 1
    return {
        f"{s.key}: {t.name}" if several else t.name: t
        for s in signatures
        for t in (s.inputs if place == "input" else s.outputs)
    }


def _changed(
    place: Place, before: dict[str, TensorSpec], after: dict[str, TensorSpec]
) -> list[TensorChange]:
    names = dict.fromkeys((*before, *after))
    pairs = ((before.get(name), after.get(name)) for name in names)
    return [TensorChange(place=place, before=a, after=b) for a, b in pairs if a != b]


def _graph_numbers(graphs: Sequence[GraphSummary]) -> list[NumberChange]:
    one, other = graphs
    fields = ("weight_bytes", "quantized_weight_share", "float16_weight_share")
    return [
        NumberChange(quantity=field, before=getattr(one, field), after=getattr(other, field))
        for field in fields
    ]


def _manifest_numbers(manifests: Sequence[Artifact | None]) -> list[NumberChange]:
    one, other = manifests
    # Distances from different references do not compare: that of float32 is from the trained model.
    if one is None or other is None or one.verification.reference != other.verification.reference:
        return []
    was, is_now = ({o.output: o for o in made.verification.outputs} for made in (one, other))
    changes = []
    for name in dict.fromkeys((*was, *is_now)):
        ends = was.get(name), is_now.get(name)
        errors = [each.max_abs_error if each else None for each in ends]
        ratios = [snr(each) if each else None for each in ends]
        for what, (before, after) in (("max_error", errors), ("snr_db", ratios)):
            changes.append(NumberChange(quantity=f"{what}:{name}", before=before, after=after))
    return changes


def _manifests(
    *files: tuple[Path, str],
) -> tuple[list[Artifact | None], tuple[str, ...]]:
    """What is beside each file, and what cannot be used of it."""
    found: list[Artifact | None] = []
    refused = []
    for file, sha256 in files:
        path = file.with_suffix(".json")
        artifact = None
        if path.is_file():
            try:
                artifact = read_noun(path, Artifact, what="manifest")
            except InputRefused as error:
                refused.append(f"what manifests say: {error.message}")
        if artifact and artifact.sha256 != sha256:
            refused.append(f"what manifests say: {path.name} is of another {file.name}")
            artifact = None
        found.append(artifact)
    return found, tuple(refused)
