"""The page of `inspect`: what is in a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Block, Grid, GridColumn, Labeled, Page, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Inspection, OldestRuntime, RuntimeNeed, Signature, TensorSpec

_KIND_NAMES = {
    "saved_model": "SavedModel",
    "keras": "Keras file",
    "hdf5": "Keras HDF5 file",
    "tflite": ".tflite file",
}
_KERAS = ("keras", "hdf5")
_TENSORS = (
    GridColumn("", right=False),
    GridColumn("name", right=False, wraps=True),
    GridColumn("shape", right=False),
    GridColumn("type", right=False, beneath=True),
)
_SCALES = (GridColumn("scale", right=False), GridColumn("zero point", right=False, beneath=True))
_COUNTED = (GridColumn("name", right=False, wraps=True), GridColumn("version"), GridColumn("count"))


def inspection_page(inspection: Inspection) -> Page:
    """Facts about the file, then each signature, then the operators or layers."""
    page: list[Block] = [Labeled(list(_facts(inspection)))]
    for signature in inspection.model.signatures:
        key = (
            units.plain(signature.key)
            or "(none in the file: inputs and outputs of the first graph)"
        )
        page += _signature(f"signature {key}", signature)
    if inspection.declared:
        page += _signature("signature, as its config declares it", inspection.declared)
    if inspection.operators:
        is_keras = inspection.model.kind in _KERAS
        page += [Text(), Text("layers" if is_keras else "operators", style="bold")]
        page.append(_operators(inspection))
    return page


def _signature(heading: str, signature: Signature) -> list[Block]:
    specs = [("input", t) for t in signature.inputs] + [("output", t) for t in signature.outputs]
    columns = _TENSORS + (_SCALES if any(tensor.scale for _, tensor in specs) else ())
    rows = [_row(side, *_tensor_cells(tensor)[: len(columns) - 1]) for side, tensor in specs]
    return [Text(), Text(heading, style="bold"), Grid(columns, rows)]


def _operators(inspection: Inspection) -> Grid:
    has_versions = any(operator.version for operator in inspection.operators)
    columns = _COUNTED if has_versions else (_COUNTED[0], _COUNTED[2])
    rows = [
        _row(units.plain(each.name), *([str(each.version)] * has_versions), str(each.count))
        for each in inspection.operators
    ]
    return Grid(columns, rows)


def _row(*cells: str) -> Row:
    return Row(tuple(map(Text, cells)))


def _facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    model = inspection.model
    yield "model", f"{units.plain(model.name)}, a {_KIND_NAMES[model.kind]}"
    yield "path", units.plain(model.path)
    yield "size", f"{model.size_bytes:,} bytes"
    yield "sha256", model.sha256
    if inspection.description:
        yield "description", units.plain(inspection.description)
    yield from _parameter_facts(inspection)
    yield from _weight_facts(inspection)
    if inspection.float_operators is not None:
        yield "computes on float", _listed(inspection.float_operators)
    if inspection.custom_operators:
        yield "custom operators", _listed(inspection.custom_operators)
    yield from _runtime_facts(inspection.oldest_runtime)
    if inspection.missing_in_micro is not None:
        missing = inspection.missing_in_micro
        yield (
            "microcontroller",
            (f"not with tflite-micro: {_listed(missing)}" if missing else "runs with tflite-micro"),
        )
    if inspection.unknown_classes:
        yield "unknown classes", _listed(inspection.unknown_classes)
        yield "", "give convert the module that has them: --custom-objects MODULE"
    if len(inspection.tag_sets) > 1 or inspection.tag_sets not in ((), (("serve",),)):
        yield "tags of its graphs", "; ".join(map(units.plain, map(",".join, inspection.tag_sets)))
    yield from (("note", units.plain(note)) for note in model.notes)


def _parameter_facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.model.kind in _KERAS:
        yield "layers", f"{sum(layer.count for layer in inspection.operators):,}"
    total, trained = inspection.parameters, inspection.trainable_parameters
    if total is None:
        return
    trainable = "trainable: not known" if trained is None else f"{trained:,} trainable"
    yield "parameters", f"{total:,} ({trainable})"


def _weight_facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.weight_bytes is None:
        return
    quantized = inspection.quantized_weight_share or 0.0
    float16 = inspection.float16_weight_share or 0.0
    yield "weights", f"{inspection.weight_bytes:,} bytes as stored"
    yield "", f"{quantized:.1%} in 8 bits or less, {float16:.1%} in float16"


def _runtime_facts(oldest: OldestRuntime | None) -> Iterator[tuple[str, str]]:
    if oldest is None:
        return
    if oldest.version:
        deciding = ", ".join(map(_need_text, oldest.operators))
        yield "oldest runtime", f"TensorFlow Lite {oldest.version} ({deciding})"
    if oldest.unknown:
        unknown = ", ".join(map(_need_text, oldest.unknown))
        yield "" if oldest.version else "oldest runtime", f"not known for {unknown}"


def _need_text(need: RuntimeNeed) -> str:
    text = f"{units.plain(need.operator)} version {need.version}"
    if need.version != need.declared:
        text += f" by its tensors, {need.declared} in the file"
    return f"{text}, with {need.note}" if need.note else text


def _tensor_cells(tensor: TensorSpec) -> tuple[str, ...]:
    return (
        units.plain(tensor.name),
        tensor.shape_text,
        tensor.dtype,
        _one_or_range(tensor.scale),
        _one_or_range(tensor.zero_point),
    )


def _one_or_range(values: tuple[float, ...] | tuple[int, ...]) -> str:
    if len(values) > 1:
        return f"{min(values):.6g} to {max(values):.6g} ({len(values)} channels)"
    return "".join(f"{value:.6g}" for value in values)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(units.plain, names)) or "nothing"
