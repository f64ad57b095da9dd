"""One model of a configuration with all that is done to it, and the hashes of what goes in."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from edgeconv import data, source
from edgeconv.errors import InputRefused, UsageError
from edgeconv.store import hash_of, refuse_pointer, sha256_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.requests.bench import BenchRequest
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Budget, Conversion, Execution, Report

_LONGEST_SETTING = 64
_LONGEST_SLICE = 200


class MeasurementScope(NamedTuple):
    """What a check measures besides what is configured, and what it leaves out.

    `is_timed`: whether a limit needs times or memory. `metrics`: those of the lock, so that the
    next answers are compared with it by the metric that it has.
    """

    is_timed: bool
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelJob:
    """One model of a configuration, with all that is done to it.

    `converting` publishes its artifacts; None where the source is `ready`, as it is. `measuring`
    measures them beside the trained model, and then the `checkpoint`, where there is one. `slices`
    is a file with the slice of each test sample on a line, `report_directory` where the report
    goes, if it goes anywhere.
    """

    name: str
    source: str
    budget: Budget
    measuring: BenchRequest
    converting: ConvertRequest | None = None
    ready: Conversion | None = None
    checkpoint: str = ""
    slices: str = ""
    report_directory: Path | None = None

    def bench_request(
        self, files: Sequence[Path], extent: MeasurementScope, baseline: str | None = None
    ) -> BenchRequest:
        """What `bench` is asked: these files beside the trained model, or beside `baseline`."""
        asked = self.measuring
        beside = baseline or asked.baseline
        opening = asked.opening
        if self.converting is not None and not beside and self.converting.opening.custom_objects:
            custom = self.converting.opening.custom_objects
            opening = replace(opening, custom_objects=custom)
        first = asked.measuring.metrics or ("top1",)
        further = tuple(name for name in extent.metrics if name not in first)
        metrics = (*first, *further) if further else asked.measuring.metrics
        return replace(
            asked,
            models=tuple(map(str, files)),
            baseline=beside,
            directory=None,
            opening=opening,
            measuring=replace(asked.measuring, metrics=metrics, is_timed=extent.is_timed),
        )


def refuse_job(job: ModelJob) -> None:
    """Raise `UsageError` where nothing could come of the check."""
    if not job.budget.every.given() and not job.budget.recipe:
        raise UsageError(
            "the budget sets no limit, so nothing would be checked",
            hint="add one to [budget], for example max-accuracy-drop = 0.01",
        )


def job_inputs(job: ModelJob, execution: Execution) -> dict[str, str]:
    """All that goes into the conversion and the measuring, by name: hashes, and settings."""
    convert, bench = job.converting, job.measuring
    requests = {"convert": convert, "bench": bench}
    found = {
        f"{verb} --{key}": _short(value)
        for verb, request in requests.items()
        if request is not None
        for key, value in request.settings().items()
    }
    models = {"source": job.source, "checkpoint": job.checkpoint, "baseline": bench.baseline}
    found |= {name: source.identify(path).sha256 for name, path in models.items() if path}
    sources = {
        "training data": convert.training if convert else "",
        "test data": bench.data or "",
    }
    calibrating = convert.calibration if convert else {}
    for number, (_, text) in enumerate(sorted(calibrating.items())):
        sources["calibration data" + (f" {number + 1}" if number else "")] = text
    found |= {
        name: data.identity(text, allow_code=execution.allow_code, allowance=execution.allowance)
        for name, text in sources.items()
        if text
    }
    if job.slices:
        found["slices"] = _file_hash(job)
    return dict(sorted(found.items()))


def _short(value: object) -> str:
    """A setting as text, or its hash where that is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_SETTING else hash_of(value)


def job_slices(job: ModelJob, report: Report) -> tuple[str, ...]:
    """The slice of each measured sample. Raises `InputRefused` for another number of them."""
    if not job.slices:
        return ()
    lines = _slice_lines(job)
    if too_long := [n for n, name in enumerate(lines, 1) if len(name) > _LONGEST_SLICE]:
        raise InputRefused(
            f"{job.slices}, line {too_long[0]}: a slice has a name of {_LONGEST_SLICE} characters "
            "at most",
            hint="write the name of a slice on each line, and nothing else",
        )
    count = report.data.samples if report.data else 0
    if len(lines) != count:
        raise InputRefused(
            f"{job.slices} has {len(lines)} lines, and {count} test samples were measured",
            hint="write the name of each sample's slice on a line of its own, for all samples",
        )
    return lines


def _slice_lines(job: ModelJob) -> tuple[str, ...]:
    with _reading(job):
        return tuple(Path(job.slices).read_text(encoding="utf-8").splitlines())


def _file_hash(job: ModelJob) -> str:
    with _reading(job):
        refuse_pointer(Path(job.slices))
        return sha256_file(Path(job.slices))


@contextlib.contextmanager
def _reading(job: ModelJob) -> Any:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise InputRefused(
            f"the slices {job.slices} cannot be read: {error}",
            hint="give a text file with the name of a slice on each line",
        ) from error
