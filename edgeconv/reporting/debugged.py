"""The page of `debug`: the layers by what they cost, and the rules that help."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.closeness import error_lines
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.layout import dim, notes
from edgeconv.reporting.tables import Cell, Column, table
from edgeconv.system.processes.escaping import shell_line
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.reporting.layout import Page
    from edgeconv.types import Debugged, DebuggedLayer, LayerFix, PostTraining

TOP_LAYERS = 20
# What another recipe costs that its size does not show, as a comment in a shell.
_RECIPE_COSTS: dict[str, str] = {"int16x8": "  # 16-bit activations, slower on most devices"}
_EXPLAINED = (
    "alone: the outputs when only this layer is quantized; share: its part of the error of all "
    "layers; inside: the layer's output in the whole file. Both are compared with the float32 "
    "model, as a signal-to-noise ratio: every 6 dB halve the error."
)


def debugged_page(debugged: Debugged, *, top: int = TOP_LAYERS) -> Page:
    """The model, its `top` costliest layers, and what to do next."""
    costly = [layer for layer in debugged.layers if layer.alone_snr_db is not None]
    noise = sum(_noise(layer) for layer in costly)
    return [
        *(dim(units.plain(line)) for line in _circumstances(debugged)),
        *(("", table(_columns(noise), costly[:top])) if costly[:top] else ()),
        *map(dim, _left_out(debugged, len(costly), top)),
        "",
        *_next_steps(debugged),
        *notes(debugged.notes),
    ]


def _circumstances(debugged: Debugged) -> Iterator[str]:
    size = units.size(debugged.size_bytes)
    yield (
        f"{debugged.model} to {debugged.recipe.name}: {size}, as float32 "
        f"{units.size(debugged.float_size_bytes)}, on {debugged.runtime}"
    )
    record = debugged.post_training
    if record is not None:
        methods = ", ".join(record.methods) or "none"
        ranges = f"; ranges: {record.calibration_range}" if debugged.recipe.has_ranges else ""
        yield f"post-training methods: {methods}{ranges}"
    calibration = debugged.calibration
    yield (
        f"calibrated on {units.counted(calibration.samples, 'sample')} of {calibration.source}, "
        f"measured on {debugged.samples} of them"
    )
    if debugged.outputs:
        yield "outputs compared with the float32 model:"
        yield from (f"  {line}" for line in error_lines(debugged.outputs, debugged.samples))
    else:
        yield f"outputs compared with the float32 model: {units.decibels(debugged.snr_db)}"


def _columns(noise: float) -> tuple[Column[DebuggedLayer], ...]:
    return (
        Column("layer", lambda layer: layer_name(layer.layer), is_text=True, wraps=True),
        Column(
            "operator",
            lambda layer: Cell(units.plain(layer.operator), style="dim"),
            is_text=True,
            beneath=True,
        ),
        Column("weights", lambda each: f"{each.weights:,}" if each.weights else units.ABSENT),
        Column("bytes", lambda e: units.size(e.weight_bytes) if e.weights else "", beneath=True),
        Column("precision", lambda layer: layer.precision, is_text=True),
        Column("alone", lambda layer: units.decibels(layer.alone_snr_db)),
        Column(
            "share",
            lambda layer: units.percent(_noise(layer) / noise if noise else 0.0, 0),
            beneath=True,
        ),
        Column("inside", lambda layer: units.decibels(layer.inside_snr_db)),
    )


def _noise(layer: DebuggedLayer) -> float:
    """The power of the error at the outputs, over that of the signal."""
    if layer.alone_snr_db is None or layer.alone_snr_db >= MAX_SNR_DB:
        return 0.0
    return math.pow(10, -layer.alone_snr_db / 10)


def _left_out(debugged: Debugged, costly: int, top: int) -> Iterator[str]:
    if costly > top:
        yield f"… {units.counted(costly - top, 'layer')} more, which cost less: --top {costly}"
    floats = len(debugged.layers) - costly
    if floats:
        yield f"… {units.counted(floats, 'layer')} in float, or not measurable alone"
    if costly:
        yield _EXPLAINED


def _next_steps(debugged: Debugged) -> Iterator[str | Text]:
    helpful = debugged.helpful
    tried = units.counted(len(debugged.fixes), "change")
    if helpful:
        yield Text(
            f"Of {tried} tried, these help, the best first. "
            "Give `convert` the options of one of them:",
            style="bold green",
        )
        for fix in helpful:
            yield from _fix_lines(fix, debugged)
    elif debugged.fixes:
        yield Text(
            f"Nothing that was tried clearly improves the outputs ({tried}).", style="bold yellow"
        )
    if debugged.recipe.name == "int8":
        yield "  not tried: --to qat, which trains the model on"


def _fix_lines(fix: LayerFix, debugged: Debugged) -> Iterator[str | Text]:
    more_bytes = fix.size_bytes - debugged.size_bytes
    sign = "−" if more_bytes < 0 else "+"
    gain = f" (+{units.decibels(fix.snr_db - debugged.snr_db)})"
    yield Text.assemble(
        (f"  {units.decibels(fix.snr_db)}", "bold"),
        gain if fix.snr_db < MAX_SNR_DB else "",
        f", {sign}{units.size(abs(more_bytes))}:",
    )
    yield from (f"    {option}" for option in _options(fix))


def _chosen(record: PostTraining) -> str:
    ranges = record.calibration_range
    return ", ".join((*([] if ranges == "minmax" else [f"ranges: {ranges}"]), *record.methods))


def _options(fix: LayerFix) -> Iterator[str]:
    if fix.recipe is not None:
        yield f"--to {fix.recipe} --methods none" + _RECIPE_COSTS.get(fix.recipe, "")
    if fix.methods:
        chosen = _chosen(fix.post_training) if fix.post_training else ""
        yield f"--methods {','.join(fix.methods)}" + (f"  # {chosen}" if chosen else "")
    for rule in fix.rules:
        yield f"--layer {shell_line([f'{rule.pattern}={rule.precision}'])}"
