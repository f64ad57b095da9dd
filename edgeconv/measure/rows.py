"""The measurements of a bench as rows of its report."""

import gzip
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.measure.debug import layer_errors
from edgeconv.measure.kernels import acceleration, begins_at, kernel_errors, other_kernels
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.measure.metrics.scoring import Scorer
from edgeconv.measure.models import BenchRun, MeasuredModel
from edgeconv.measure.profile import profile_model
from edgeconv.measure.timing import NAME, cold_latency_of, latency_of, paced_latency_of
from edgeconv.model.tflite import oldest_runtime
from edgeconv.model.tflite.arena import arena_bytes
from edgeconv.runtimes.interface import Arrays
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types import Measurement, SourceModel
from edgeconv.types.errors import InputRefused, ToolFailed
from edgeconv.types.words import listed


class Rows:
    """The rows so far. `baseline` is the trained model's, None if it was not measured."""

    def __init__(self, run: BenchRun, scorer: Scorer) -> None:
        self.baseline: Measurement | None = None
        self.notes: list[str] = []
        self._run = run
        self._scorer = scorer
        self._rows: list[Measurement] = []
        self._reference: tuple[str, Arrays] | None = None
        self._floating: MeasuredModel | None = None
        # Each file on the processor, with which its answers in other kernels are compared.
        self._here: dict[Path, MeasuredModel] = {}

    def artifacts(self) -> tuple[Measurement, ...]:
        """The rows of all artifacts."""
        return tuple(self._rows)

    def add_trained(self, row: Measurement, outputs: Arrays) -> None:
        """The row of the trained model, with its accuracy. Raises as `Scorer.accuracies`."""
        self._reference = (NAME, outputs)
        try:
            accuracies = self._scorer.accuracies(outputs, outputs)
        except ToolFailed as error:
            raise ToolFailed(f"the trained model: {error.message}", hint=error.hint) from error
        self.baseline = msgspec.structs.replace(
            row, accuracy=accuracies[0] if accuracies else None, metrics=accuracies[1:]
        )

    def add(self, models: Sequence[MeasuredModel], trained: SourceModel | None) -> None:
        """The rows of all models; without a trained model float32 is their reference.

        Raises the error of the trained model, and as `Scorer.accuracies`.
        """
        for measured in models:
            if measured.model_file is None and trained is not None:
                if measured.error is not None:
                    raise measured.error
                self.add_trained(_trained_row(self._run, measured, trained), measured.outputs)
        others = [measured for measured in models if measured.model_file]
        floating = [m for m in others if _is_floating(m) and m.error is None]
        self._floating = next(filter(_is_here, floating), next(iter(floating), None))
        self._here = {each.model.file: each for each in others if _is_here(each)}
        if self._reference is None and self._floating and self._floating.outputs:
            self._reference = self._floating.name, self._floating.outputs
        self._rows = [self._scored(measured) for measured in others]
        self.notes += [note for row in self._rows if (note := _acceleration_note(row))]
        self.notes += _open_batch_notes(others)

    def _scored(self, measured: MeasuredModel) -> Measurement:
        row = _artifact_row(self._run, measured)
        if measured.runtime.gpu:
            row = self._accelerated(row, measured)
        elif not measured.runtime.has_times:
            row = self._in_other_kernels(row, measured)
        if not measured.outputs:
            return self._inspected(row, measured)
        name, reference = self._reference or ("", None)
        try:
            accuracies = self._scorer.accuracies(measured.outputs, reference)
        except ToolFailed as error:
            return msgspec.structs.replace(row, error=str(error))
        agreement = agreements(dict(measured.outputs), dict(reference), name) if reference else ()
        row = msgspec.structs.replace(
            row,
            accuracy=accuracies[0] if accuracies else None,
            metrics=accuracies[1:],
            agreement=() if name == measured.name else agreement,
        )
        return self._inspected(row, measured)

    def _accelerated(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        """The row with what the GPU delegate did."""
        here = self._here.get(measured.model.file)
        outcome, kernels = acceleration(self._run, measured, here, self._floating)
        return msgspec.structs.replace(row, acceleration=outcome, kernels=kernels)

    def _in_other_kernels(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        """The row with how a device's kernels differ; where they are wrong, a note says so."""
        here = self._here.get(measured.model.file)
        kernels, mistake = other_kernels(measured, here, self._floating)
        if mistake:
            self.notes.append(f"{row.name}: its kernels compute different results: {mistake}")
        return msgspec.structs.replace(row, kernels=kernels)

    def _inspected(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        """The row with its profile and the errors of its layers, where they are to be measured.

        Where that fails, the reason is a note.
        """
        if measured.error is not None:
            return row
        measuring = self._run.measuring
        try:
            if measuring.profile:
                row = self._with_profile(row, measured)
        except (ToolFailed, InputRefused) as error:
            self.notes.append(f"no profile of {measured.name}: {error.message}")
        try:
            if measuring.layers and measured.runtime.gpu:
                row = self._with_kernels(row, measured)
            elif measuring.layers and measured is not self._floating:
                row = self._with_layers(row, measured)
        except (ToolFailed, InputRefused) as error:
            self.notes.append(f"no errors of the layers of {measured.name}: {error.message}")
        return row

    def _with_profile(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        """With the profile by the LiteRT of this environment: other runtimes have none."""
        runtime, run = measured.runtime, self._run
        if not (isinstance(runtime, LocalRuntime) and runtime.is_present_litert):
            raise InputRefused("its runtime has none")
        run.on_progress(f"profile of {measured.name}")
        profile = profile_model(
            measured.model,
            run.samples.first.arrays,
            threads=run.measuring.threads,
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
        return msgspec.structs.replace(row, profile=profile)

    def _with_kernels(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        """With the errors of the GPU's kernels alone, and the layer where they begin."""
        run, here = self._run, self._here.get(measured.model.file)
        there = measured.runtime
        if here is None or not isinstance(there, LocalRuntime):
            raise InputRefused("it did not run on the processor")
        if not isinstance(here.runtime, LocalRuntime):
            raise InputRefused("its runtime does not run parts of a model")
        errors = kernel_errors(
            measured.model,
            run.samples.first.arrays,
            (there, here.runtime),
            scratch=run.scratch,
            on_progress=run.on_progress,
        )
        first = begins_at(errors, measured.model)
        assert row.acceleration is not None
        outcome = msgspec.structs.replace(row.acceleration, begins_at=first.layer if first else "")
        return msgspec.structs.replace(
            row, layer_errors=errors, layers_against=here.name, acceleration=outcome
        )

    def _with_layers(self, row: Measurement, measured: MeasuredModel) -> Measurement:
        run = self._run
        if self._floating is None:
            raise InputRefused("there is no float32 model to compare with")
        run.on_progress(f"layers of {measured.name}")
        errors = layer_errors(
            measured.model,
            self._floating.model,
            run.samples.first.arrays,
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
        if errors.left_out:
            self.notes.append(
                f"{measured.name}: {errors.left_out} layers are not in the float32 model under the "
                "same name"
            )
        return msgspec.structs.replace(row, layer_errors=errors.errors)


def _is_here(measured: MeasuredModel) -> bool:
    runtime = measured.runtime
    has_it = isinstance(runtime, LocalRuntime) and runtime.is_present_litert
    return has_it and not runtime.gpu


def _is_floating(measured: MeasuredModel) -> bool:
    artifact = measured.model_file.artifact if measured.model_file else None
    return artifact is not None and artifact.recipe.name == "float32"


def _trained_row(run: BenchRun, measured: MeasuredModel, model: SourceModel) -> Measurement:
    return Measurement(
        name=NAME,
        role="baseline",
        runtime=_runtime(measured),
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        **_times(run, measured),
        batched_us=measured.batched_us,
        batched_size=measured.batched.batch if measured.batched else None,
    )


def _artifact_row(run: BenchRun, measured: MeasuredModel) -> Measurement:
    assert measured.model_file is not None
    content = measured.model_file.file.read_bytes()
    artifact = measured.model_file.artifact
    return Measurement(
        name=measured.name,
        role="artifact",
        runtime=_runtime(measured),
        sha256=measured.model_file.sha256,
        size_bytes=len(content),
        gzip_size_bytes=len(gzip.compress(content, mtime=0)),
        recipe=measured.model_file.recipe,
        group=measured.model_file.group,
        measured_in=measured.runtime_text,
        **_times(run, measured),
        arena_bytes=_arena_bytes(measured, content),
        oldest_runtime=oldest_runtime(content, str(measured.model_file.file)).version,
        grade=artifact.verification.grade if artifact else "",
        float_operators=sum(each.count for each in artifact.left_in_float)
        if artifact and artifact.recipe.full_integer
        else None,
        error=str(measured.error) if measured.error else "",
    )


def _times(run: BenchRun, measured: MeasuredModel) -> dict[str, Any]:
    """The fields of a row that timing gives; those that were not measured are left out."""
    every, threads, batch = run.measuring.every, run.measuring.threads, measured.model.batch
    times: dict[str, Any] = {}
    if measured.timed and run.measuring.is_timed and measured.runtime.has_times:
        times["latency"] = latency_of(measured.timed, threads=threads, batch=batch)
        known = [timed.memory_bytes for timed in measured.timed if timed.memory_bytes is not None]
        # The median over the rounds, None if no round has it.
        times["peak_memory_bytes"] = round(statistics.median(known)) if known else None
    if measured.paced and every is not None:
        paced = paced_latency_of(measured.paced, every * 1e6, threads=threads, batch=batch)
        times["paced"] = paced
    if measured.cold:
        times["cold"] = cold_latency_of(measured.cold, threads=threads, batch=batch)
    return times


def _arena_bytes(measured: MeasuredModel, content: bytes) -> int:
    """What the runtime took, or where it does not tell, the plan of the tensors."""
    taken = measured.timed[0].arena_bytes if measured.timed else None
    return arena_bytes(content) if taken is None else taken


def _runtime(measured: MeasuredModel) -> str:
    if not measured.timed:
        return ""
    on_gpu = f" on {measured.runtime.gpu}" if measured.runtime.gpu else ""
    return f"{measured.timed[0].runtime} {measured.timed[0].version}{on_gpu}"


def _acceleration_note(row: Measurement) -> str:
    """What a reader must know of a file on a GPU; "" if it is wholly and rightly there."""
    outcome = row.acceleration
    if outcome is None or (outcome.state == "full" and not outcome.begins_at):
        return ""
    operators = "; ".join(outcome.on_cpu)
    parts = {
        "full": "",
        "partial": f"partly on the GPU; on the processor: {operators}",
        "wrong": f"wrong on the GPU: {outcome.reason}",
        "refused": f"refused by the GPU delegate{operators and f': {operators}'}",
        "crashed": "it crashes the process when it runs with the GPU delegate",
    }
    begins = outcome.begins_at and f"the error of its kernels begins at {outcome.begins_at}"
    return f"{row.name}: {'; '.join(filter(None, (parts[outcome.state], begins)))}"


def _open_batch_notes(models: Sequence[MeasuredModel]) -> tuple[str, ...]:
    """A note on the files that a GPU delegate may refuse for their open batch; () for none."""
    names = [
        model.name
        for model in models
        if model.runtime.gpu
        and model.error is not None
        and model.model_file is not None
        and model.model_file.signature.has_open_batch
    ]
    if not names:
        return ()
    return (
        f"{listed(names)}: the batch is open, and a GPU delegate refuses graphs that compute "
        "shapes: edgeconv convert --batch 1 fixes it",
    )
