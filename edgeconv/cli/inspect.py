"""`edgeconv inspect`: what is in a model file, without running it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import TAG, opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from edgeconv.nouns import (
        Inspection,
        OldestRuntime,
        RuntimeNeed,
        Signature,
        SourceModel,
        TensorSpec,
    )

# Where nobody's window sets a width, lines end where their text does.
_UNLIMITED_WIDTH = 10_000
_KIND_NAMES = {
    "saved_model": "SavedModel",
    "keras": "Keras file",
    "hdf5": "Keras HDF5 file",
    "tflite": ".tflite file",
}
_KERAS = ("keras", "hdf5")


@click.command("inspect", cls=Configured)
@click.argument("model", type=click.Path(path_type=Path))
@TAG
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
def command(model: Path, *, tags: str, as_json: bool) -> None:
    """Show what is in MODEL: its signatures, operators or layers, and weights.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras, .h5 or
    .hdf5 file, or a .tflite file. Nothing in it is run.
    """
    from edgeconv.source import inspect_model

    inspection = inspect_model(model, opening({"tags": tags}))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(inspection).decode())
    else:
        _print(inspection)


def _print(inspection: Inspection) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNLIMITED_WIDTH
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    _print_table(console, _facts_table(inspection))
    for signature in inspection.model.signatures:
        key = _plain(signature.key) or "(none in the file: the first graph's ends)"
        console.print(f"\nsignature {key}", style="bold", soft_wrap=True)
        _print_table(console, _tensor_table(signature))
    if inspection.declared:
        console.print("\nsignature, as its config declares it", style="bold", soft_wrap=True)
        _print_table(console, _tensor_table(inspection.declared))
    if inspection.operators:
        is_keras = inspection.model.kind in _KERAS
        console.print(f"\n{'layers' if is_keras else 'operators'}", style="bold")
        _print_table(console, _operator_table(inspection))


def _print_table(console: Console, table: Table) -> None:
    # Rich pads the last column to a common width; nobody wants those spaces in a file.
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip(), color=True)


def _facts_table(inspection: Inspection) -> Table:
    table = _table("", "")
    table.show_header = False
    for name, value in _facts(inspection):
        table.add_row(name, value)
    return table


def _facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    model = inspection.model
    yield "model", f"{_plain(model.name)}, a {_KIND_NAMES[model.kind]}"
    yield "path", _plain(model.path)
    yield "size", f"{model.size_bytes:,} bytes"
    yield "sha256", model.sha256
    if inspection.description:
        yield "description", _plain(inspection.description)
    yield from _parameter_facts(inspection)
    yield from _weight_facts(inspection)
    if inspection.float_operators is not None:
        yield "computes on float", _listed(inspection.float_operators)
    if inspection.custom_operators:
        yield "custom operators", _listed(inspection.custom_operators)
    yield from _runtime_facts(inspection.oldest_runtime)
    if inspection.unknown_classes:
        yield "unknown classes", _listed(inspection.unknown_classes)
        yield "", "convert takes the module that has them: --custom-objects MODULE"
    if len(inspection.tag_sets) > 1 or inspection.tag_sets not in ((), (("serve",),)):
        yield "tags of its graphs", "; ".join(map(_plain, map(",".join, inspection.tag_sets)))
    for note in _notes(model):
        yield "note", note


def _parameter_facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.model.kind in _KERAS:
        yield "layers", f"{sum(layer.count for layer in inspection.operators):,}"
    total, trained = inspection.parameters, inspection.trainable_parameters
    if total is None:
        return
    told = "trainable or not: not known" if trained is None else f"{trained:,} trainable"
    yield "parameters", f"{total:,} ({told})"


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
        setters = ", ".join(_need_text(need) for need in oldest.operators)
        yield "oldest runtime", f"TensorFlow Lite {oldest.version} ({setters})"
    if oldest.unknown:
        unknown = ", ".join(_need_text(need) for need in oldest.unknown)
        yield "" if oldest.version else "oldest runtime", f"not known for {unknown}"


def _need_text(need: RuntimeNeed) -> str:
    text = f"{_plain(need.operator)} version {need.version}"
    if need.version != need.declared:
        text += f" by its tensors, {need.declared} in the file"
    return f"{text}, with {need.note}" if need.note else text


def _notes(model: SourceModel) -> Iterator[str]:
    yield from (_plain(note) for note in model.notes)


def _tensor_table(signature: Signature) -> Table:
    specs = [("input", t) for t in signature.inputs] + [("output", t) for t in signature.outputs]
    has_scales = any(tensor.scale for _, tensor in specs)
    scale_columns = ("scale", "zero point") if has_scales else ()
    table = _table("", "name", "shape", "type", *scale_columns)
    for side, tensor in specs:
        table.add_row(side, *_tensor_cells(tensor)[: 5 if has_scales else 3])
    return table


def _tensor_cells(tensor: TensorSpec) -> tuple[str, ...]:
    from edgeconv.source import shape_text

    return (
        _plain(tensor.name),
        shape_text(tensor),
        tensor.dtype,
        _one_or_range(tensor.scale),
        _one_or_range(tensor.zero_point),
    )


def _one_or_range(values: tuple[float, ...] | tuple[int, ...]) -> str:
    if len(values) > 1:
        return f"{min(values):.6g} to {max(values):.6g} ({len(values)} channels)"
    return "".join(f"{value:.6g}" for value in values)


def _operator_table(inspection: Inspection) -> Table:
    has_versions = any(operator.version for operator in inspection.operators)
    table = _table("name", *(["version"] if has_versions else []), "count")
    for operator in inspection.operators:
        version = [str(operator.version)] if has_versions else []
        table.add_row(_plain(operator.name), *version, str(operator.count))
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", header_style="dim")
    return table


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(_plain(name) for name in names) or "nothing"


def _plain(text: str) -> str:
    """`text` with all that could steer a terminal spelled out; names in a file are anybody's."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
