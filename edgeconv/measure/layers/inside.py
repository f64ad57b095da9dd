"""What goes on inside a model: the time of its operators, the error of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.measure.layers.errors import layer_errors
from edgeconv.measure.layers.profile import profile_model
from edgeconv.runtimes.local import LocalRuntime

if TYPE_CHECKING:
    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.models import MeasuredModel
    from edgeconv.types import Measurement


def looked_into(
    run: BenchRun,
    row: Measurement,
    one: MeasuredModel,
    floating: MeasuredModel | None,
    notes: list[str],
) -> Measurement:
    """The row with its profile and its layers' errors, where they are asked for and can be had.

    Why they cannot is added to `notes`. `floating` is the float32 model.
    """
    if run.measuring.profile:
        row = _profiled(run, row, one, notes)
    if run.measuring.layers and one is not floating:
        row = _with_layers(run, row, one, floating, notes)
    return row


def _profiled(run: BenchRun, row: Measurement, one: MeasuredModel, notes: list[str]) -> Measurement:
    """With the profile, by the profiler of the LiteRT here: no runtime is asked for another."""
    if not (isinstance(one.runtime, LocalRuntime) and one.runtime.is_present_litert):
        notes.append(f"no profile of {one.name}: its runtime has none")
        return row
    run.on_progress(f"profile of {one.name}")
    try:
        profile = profile_model(
            one.model,
            run.samples.first.arrays,
            threads=run.measuring.threads,
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
    except (ToolFailed, InputRefused) as error:
        notes.append(f"no profile of {one.name}: {error.message}")
        return row
    return msgspec.structs.replace(row, profile=profile)


def _with_layers(
    run: BenchRun,
    row: Measurement,
    one: MeasuredModel,
    floating: MeasuredModel | None,
    notes: list[str],
) -> Measurement:
    if floating is None:
        notes.append(f"no errors of the layers of {one.name}: there is no float32 model beside it")
        return row
    run.on_progress(f"layers of {one.name}")
    try:
        found = layer_errors(
            one.model,
            floating.model,
            run.samples.first.arrays,
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
    except (ToolFailed, InputRefused) as error:
        notes.append(f"no errors of the layers of {one.name}: {error.message}")
        return row
    if found.left_out:
        notes.append(
            f"{one.name}: {found.left_out} layers are not in the float32 model under their name"
        )
    return msgspec.structs.replace(row, layer_errors=found.errors)
