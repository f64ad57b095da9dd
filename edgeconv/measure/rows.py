"""What was measured, as rows of the report."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused, ToolFailed
from edgeconv.measure.layers.errors import layer_errors
from edgeconv.measure.layers.profile import profile_model
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.measure.timing import latency_of, memory_bytes_of
from edgeconv.measure.trained import NAME
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.tflite import oldest_runtime
from edgeconv.tflite.arena import arena_bytes
from edgeconv.types import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.metrics.scoring import Scorer
    from edgeconv.measure.models import MeasuredModel
    from edgeconv.types import Latency, SourceModel

    Outputs = Mapping[str, NDArray[np.generic]]


class Rows:
    """The rows so far. `baseline` is the trained model's, None where it was not measured."""

    def __init__(self, run: BenchRun, scorer: Scorer) -> None:
        self.baseline: Measurement | None = None
        self.notes: list[str] = []
        self._run = run
        self._scorer = scorer
        self._rows: list[Measurement] = []
        self._reference: tuple[str, Outputs] | None = None
        self._floating: MeasuredModel | None = None

    def artifacts(self) -> tuple[Measurement, ...]:
        """The rows of all artifacts."""
        return tuple(self._rows)

    def add_trained(self, row: Measurement, outputs: Outputs) -> None:
        """The row of the trained model, with its accuracy. Raises as `Scorer.accuracies`."""
        self._reference = (NAME, outputs)
        try:
            found = self._scorer.accuracies(outputs, outputs)
        except ToolFailed as error:
            raise ToolFailed(f"the trained model: {error.message}", hint=error.hint) from error
        self.baseline = msgspec.structs.replace(
            row, accuracy=found[0] if found else None, metrics=found[1:]
        )

    def add(self, models: Sequence[MeasuredModel], trained: SourceModel | None) -> None:
        """The rows of all models; without a trained model float32 is what they are beside.

        Raises what a trained model failed with, and as `Scorer.accuracies`.
        """
        for one in models:
            if one.model_file is None and trained is not None:
                if one.error is not None:
                    raise one.error
                self.add_trained(_trained_row(self._run, one, trained), one.outputs)
        others = [one for one in models if one.model_file is not None]
        floating = (one for one in others if _is_floating(one) and one.error is None)
        self._floating = next(floating, None)
        if self._reference is None and self._floating and self._floating.outputs:
            self._reference = self._floating.name, self._floating.outputs
        self._rows = [self._judged(one) for one in others]

    def _judged(self, one: MeasuredModel) -> Measurement:
        row = _artifact_row(self._run, one)
        if not one.outputs:
            return self._looked_into(row, one)
        name, reference = self._reference or ("", None)
        try:
            found = self._scorer.accuracies(one.outputs, reference)
        except ToolFailed as error:
            return msgspec.structs.replace(row, error=str(error))
        agreement = agreements(dict(one.outputs), dict(reference), name) if reference else ()
        row = msgspec.structs.replace(
            row,
            accuracy=found[0] if found else None,
            metrics=found[1:],
            agreement=() if name == one.name else agreement,
        )
        return self._looked_into(row, one)

    def _looked_into(self, row: Measurement, one: MeasuredModel) -> Measurement:
        """The row with what is asked for of the inside of the model."""
        if one.error is not None:
            return row
        return looked_into(self._run, row, one, self._floating, self.notes)


def _is_floating(one: MeasuredModel) -> bool:
    artifact = one.model_file.artifact if one.model_file else None
    return artifact is not None and artifact.recipe.name == "float32"


def _trained_row(run: BenchRun, one: MeasuredModel, model: SourceModel) -> Measurement:
    return Measurement(
        name=NAME,
        role="baseline",
        runtime=_runtime(one),
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        latency=_latency(run, one),
        peak_memory_bytes=_memory_bytes(run, one),
        batched_us=one.batched_us,
        batched_size=one.batched.batch if one.batched else None,
    )


def _artifact_row(run: BenchRun, one: MeasuredModel) -> Measurement:
    assert one.model_file is not None
    content = one.model_file.file.read_bytes()
    return Measurement(
        name=one.name,
        role="artifact",
        runtime=_runtime(one),
        sha256=one.model_file.sha256,
        size_bytes=len(content),
        gzip_size_bytes=len(gzip.compress(content, mtime=0)),
        recipe=one.model_file.recipe,
        group=one.model_file.group,
        latency=_latency(run, one),
        peak_memory_bytes=_memory_bytes(run, one),
        arena_bytes=arena_bytes(content),
        oldest_runtime=oldest_runtime(content, str(one.model_file.file)).version,
        error=str(one.error) if one.error else "",
    )


def _latency(run: BenchRun, one: MeasuredModel) -> Latency | None:
    if not (one.timed and run.measuring.is_timed):
        return None
    return latency_of(one.timed, threads=run.measuring.threads, batch=one.model.batch)


def _memory_bytes(run: BenchRun, one: MeasuredModel) -> int | None:
    return memory_bytes_of(one.timed) if run.measuring.is_timed else None


def _runtime(one: MeasuredModel) -> str:
    return f"{one.timed[0].runtime} {one.timed[0].version}" if one.timed else ""


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
