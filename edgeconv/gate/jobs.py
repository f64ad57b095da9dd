"""One model of a configuration as a job of the gate, and the hashes of its inputs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from edgeconv import data
from edgeconv.model import source
from edgeconv.system.store import hash_of, refuse_pointer, sha256_file
from edgeconv.types import TOP1, MetricChoice
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.requests.bench import BenchRequest
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Budget, Conversion, Execution, Report, RuntimeVersions

_LONGEST_SETTING = 64
_LONGEST_SLICE = 200


class MeasurementScope(NamedTuple):
    """What a check measures: times and memory where a limit needs them, and the lock's metrics."""

    is_timed: bool
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelJob:
    """One model of a configuration, and how it is converted, measured and checked.

    `converting` publishes its artifacts; it is None if the source itself is `ready`. `measuring`
    measures them with the trained model, and the `checkpoint`, if any. In the `versions` of a
    runtime, if any, all of them must be right. `slices` is a file with the
    slice of each test sample on a line. The report is written into `report_directory`, if any.
    `guards_trained`: a loss of the trained model against the lock fails, whatever the budget has.
    """

    name: str
    source: str
    budget: Budget
    measuring: BenchRequest
    converting: ConvertRequest | None = None
    ready: Conversion | None = None
    versions: RuntimeVersions | None = None
    checkpoint: str = ""
    slices: str = ""
    report_directory: Path | None = None
    guards_trained: bool = True

    def published_before(self) -> list[Path]:
        """The .tflite files that its directory has already."""
        directory = self.converting.directory if self.converting else None
        return [*Path(directory).glob("*.tflite")] if directory else []

    def bench_request(
        self, files: Sequence[Path], scope: MeasurementScope, baseline: str | None = None
    ) -> BenchRequest:
        """The request to measure these files with the trained model, or with `baseline`."""
        request = self.measuring
        baseline = baseline or request.baseline
        opening = request.opening
        if self.converting is not None and not baseline and self.converting.opening.custom_objects:
            custom = self.converting.opening.custom_objects
            opening = replace(opening, custom_objects=custom)
        first = request.measuring.metrics or (TOP1,)
        further = tuple(each for each in map(MetricChoice, scope.metrics) if each not in first)
        metrics = (*first, *further) if further else request.measuring.metrics
        return replace(
            request,
            models=tuple(map(str, files)),
            baseline=baseline,
            directory=None,
            opening=opening,
            measuring=replace(
                request.measuring, metrics=metrics, is_timed=scope.is_timed, versions=None
            ),
        )

    def versions_request(self, files: Sequence[Path], versions: RuntimeVersions) -> BenchRequest:
        """The request to run these files in versions of a runtime."""
        request = self.bench_request(files, MeasurementScope(is_timed=False))
        return replace(request, measuring=replace(request.measuring, versions=versions))


def refuse_job(job: ModelJob) -> None:
    """Raise `UsageError` for a budget without limits."""
    if not job.budget.names():
        raise UsageError(
            "the budget has no limit, so nothing would be checked",
            hint="add one to [budget], for example max-accuracy-drop = 0.01",
        )


def job_inputs(job: ModelJob, execution: Execution) -> dict[str, str]:
    """The inputs of conversion and measurement by name: hashes, and settings."""
    convert, bench = job.converting, job.measuring
    requests = {"convert": convert, "bench": bench}
    inputs = {
        f"{verb} --{key}": _short(value)
        for verb, request in requests.items()
        if request is not None
        for key, value in request.settings().items()
    }
    models = {"source": job.source, "checkpoint": job.checkpoint, "baseline": bench.baseline}
    inputs |= {name: source.identify(path).sha256 for name, path in models.items() if path}
    sources = {"training data": convert and convert.training, "test data": bench.data}
    calibrating = convert.calibration if convert else {}
    for number, key in enumerate(sorted(calibrating)):
        sources["calibration data" + (f" {number + 1}" if number else "")] = calibrating[key]
    inputs |= {
        name: data.identity(each, allow_code=execution.allow_code, allowance=execution.allowance)
        for name, each in sources.items()
        if each
    }
    if job.slices:
        with _reading(job):
            refuse_pointer(Path(job.slices))
            inputs["slices"] = sha256_file(Path(job.slices))
    return dict(sorted(inputs.items()))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_SETTING else hash_of(value)


def job_slices(job: ModelJob, report: Report) -> tuple[str, ...]:
    """The slice of each measured sample. Raises `InputRefused` for another number of slices."""
    if not job.slices:
        return ()
    with _reading(job):
        lines = tuple(Path(job.slices).read_text(encoding="utf-8").splitlines())
    if too_long := [n for n, name in enumerate(lines, 1) if len(name) > _LONGEST_SLICE]:
        raise InputRefused(
            f"{job.slices}, line {too_long[0]}: the name of a slice is longer than "
            f"{_LONGEST_SLICE} characters",
            hint="write only the name of a slice on each line",
        )
    count = report.data.samples if report.data else 0
    if len(lines) != count:
        raise InputRefused(
            f"{job.slices} has {len(lines)} lines, but {count} test samples were measured",
            hint="write one line for each sample, with the name of its slice",
        )
    return lines


@contextlib.contextmanager
def _reading(job: ModelJob) -> Any:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise InputRefused(
            f"the slices {job.slices} cannot be read: {error}",
            hint="give a text file with the name of a slice on each line",
        ) from error
