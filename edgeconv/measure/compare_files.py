"""What changed between two .tflite files: size, operators, tensors and their scales."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Literal

from edgeconv.errors import InputRefused
from edgeconv.reporting.closeness import snr
from edgeconv.source import load
from edgeconv.store import read_noun
from edgeconv.tflite import summarize
from edgeconv.tflite.contents import tensor_specs
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

Position = Literal["input", "output", "inside"]


def compare_files(before: Path, after: Path) -> Difference:
    """What changed from one .tflite to another; neither is run.

    Where both have a manifest, their closeness to the float model is compared too. Raises
    `InputRefused` for a file that is not a model.
    """
    was, now = load(before), load(after)
    contents = [before.read_bytes(), after.read_bytes()]
    graphs = [
        summarize(data, where=str(f)) for data, f in zip(contents, (before, after), strict=True)
    ]
    manifests, refused = _manifests((before, was.sha256), (after, now.sha256))
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
    ends = changed_tensors(graphs[0].signatures, graphs[1].signatures)
    model = ModelDifference(
        before=before.name,
        after=after.name,
        same_file=was.sha256 == now.sha256,
        numbers=tuple(n for n in numbers if n.before != n.after),
        operators=changed_operators(graphs[0].operators, graphs[1].operators),
        tensors=(*ends, *_changed("inside", specs[0], specs[1])),
    )
    return Difference(before=str(before), after=str(after), models=(model,), refused=refused)


def changed_operators(
    before: Sequence[OperatorCount], after: Sequence[OperatorCount]
) -> tuple[OperatorChange, ...]:
    """The operators, by version, whose counts differ."""
    was, now = ({(o.name, o.version): o.count for o in side} for side in (before, after))
    changes = (
        OperatorChange(
            operator=name,
            version=version,
            before=was.get((name, version), 0),
            after=now.get((name, version), 0),
        )
        for name, version in sorted({*was, *now})
    )
    return tuple(change for change in changes if change.before != change.after)


def changed_tensors(
    before: Iterable[Signature], after: Iterable[Signature]
) -> tuple[TensorChange, ...]:
    """The inputs and outputs, by signature and name, that are not the same."""
    before, after = tuple(before), tuple(after)
    positions: tuple[Position, ...] = ("input", "output")
    return tuple(
        change
        for position in positions
        for change in _changed(position, _specs(before, position), _specs(after, position))
    )


def _specs(signatures: Sequence[Signature], position: Position) -> dict[str, TensorSpec]:
    several = len(signatures) > 1
    return {
        f"{s.key}: {t.name}" if several else t.name: t
        for s in signatures
        for t in (s.inputs if position == "input" else s.outputs)
    }


def _changed(
    position: Position, before: dict[str, TensorSpec], after: dict[str, TensorSpec]
) -> list[TensorChange]:
    names = dict.fromkeys((*before, *after))
    pairs = ((before.get(name), after.get(name)) for name in names)
    return [TensorChange(role=position, before=a, after=b) for a, b in pairs if a != b]


def _graph_numbers(graphs: Sequence[GraphSummary]) -> list[NumberChange]:
    was, now = graphs
    fields = ("weight_bytes", "quantized_weight_share", "float16_weight_share")
    return [
        NumberChange(quantity=field, before=getattr(was, field), after=getattr(now, field))
        for field in fields
    ]


def _manifest_numbers(manifests: Sequence[Artifact | None]) -> list[NumberChange]:
    before, after = manifests
    # Distances from different references do not compare: that of float32 is from the trained model.
    if not (before and after) or before.verification.reference != after.verification.reference:
        return []
    was, now = ({o.output: o for o in each.verification.outputs} for each in (before, after))
    changes = []
    for name in dict.fromkeys((*was, *now)):
        both = was.get(name), now.get(name)
        errors = [each.max_abs_error if each else None for each in both]
        ratios = [snr(each) if each else None for each in both]
        for what, (first, second) in (("max_error", errors), ("snr_db", ratios)):
            changes.append(NumberChange(quantity=f"{what}:{name}", before=first, after=second))
    return changes


def _manifests(
    *files: tuple[Path, str],
) -> tuple[list[Artifact | None], tuple[str, ...]]:
    """The manifest next to each file, and why one cannot be used."""
    manifests: list[Artifact | None] = []
    refused = []
    for file, sha256 in files:
        path = file.with_suffix(".json")
        artifact = None
        if path.is_file():
            try:
                artifact = read_noun(path, Artifact, what="manifest")
            except InputRefused as error:
                refused.append(f"manifests: {error.message}")
        if artifact and artifact.sha256 != sha256:
            refused.append(f"manifests: {path.name} describes another {file.name}")
            artifact = None
        manifests.append(artifact)
    return manifests, tuple(refused)
