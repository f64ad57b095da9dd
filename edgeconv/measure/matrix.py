"""One file in every version of a runtime: where it loads, where its answers are right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.errors import RuntimeUnusable, ToolFailed, UsageError, WorkerCrashed
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.processes.progress import CountedLine
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import LocalRuntime, usable_cores
from edgeconv.runtimes.versions import matching_versions
from edgeconv.types import VersionResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.model_files import ModelFile
    from edgeconv.measure.names import CommonNames
    from edgeconv.runtimes.interface import Model
    from edgeconv.types import TargetRuntime
    from edgeconv.types.measurement import VersionState

    Outputs = Mapping[str, NDArray[np.generic]]

# Kernels round differently from version to version, which costs far less: 20 dB are an error of a
# tenth of what the answers vary by.
_LEAST_DB = 20.0


class Answer(NamedTuple):
    """What became of one file in one version: its outputs, or the state that it ended in."""

    result: VersionResult
    outputs: Outputs | None = None


def version_matrix(
    run: BenchRun, model_files: Sequence[ModelFile], names: CommonNames
) -> tuple[VersionResult, ...]:
    """Each file in each version of `run.measuring.versions`, the oldest first; () without any.

    Versions run in parallel, on the first samples. Raises as `matching_versions` does.
    """
    if run.measuring.versions is None:
        return ()
    versions = matching_versions(run.measuring.versions)
    models = {
        file.name: names.model(file.file, file.signature, run.samples.batch, run.scratch)
        for file in model_files
    }
    columns: list[dict[str, Answer]] = []
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for column in pool.map(lambda version: _column(run, models, version), versions):
            columns.append(column)
            line = f"versions of {run.measuring.versions}"
            run.on_progress(CountedLine(line, len(columns), len(versions)))
    finally:
        # What is not begun is not installed either, where the user ends the run.
        pool.shutdown(cancel_futures=True)
    rows = ([column[name] for column in columns] for name in models)
    return tuple(result for row in rows for result in judged(row))


def judged(answers: Sequence[Answer]) -> Iterable[VersionResult]:
    """The results of one file, those with outputs by those of the newest version that has some."""
    newest = next((each for each in reversed(answers) if each.outputs is not None), None)
    for each in answers:
        if newest is None or each.outputs is None or newest.outputs is None:
            yield each.result
        elif each is newest:
            yield msgspec.structs.replace(each.result, is_reference=True)
        else:
            yield _compared(each.result, each.outputs, newest.outputs, newest.result.runtime)


def _compared(
    result: VersionResult, outputs: Outputs, reference: Outputs, name: str
) -> VersionResult:
    pairs = agreements(dict(outputs), dict(reference), name)
    if len(pairs) < len(reference):
        return msgspec.structs.replace(
            result, state="wrong", detail=f"its outputs have other names or shapes than in {name}"
        )
    worst = min(pairs, key=lambda pair: pair.snr_db)
    flips = [pair.flips for pair in pairs if pair.flips is not None]
    return msgspec.structs.replace(
        result,
        state="right" if worst.snr_db >= _LEAST_DB else "wrong",
        snr_db=worst.snr_db,
        flips=max(flips) if flips else None,
    )


def _column(
    run: BenchRun, models: Mapping[str, Model], version: TargetRuntime
) -> dict[str, Answer]:
    """All files in one version."""
    try:
        runtime = LocalRuntime(isolated_target(version), run.settings())
    except RuntimeUnusable as error:
        return _without(models, version, "does not run", error.message)
    except (ToolFailed, UsageError) as error:
        return _without(models, version, "not installable", error.message)
    return {name: _answer(run, runtime, name, model, version) for name, model in models.items()}


def _without(
    models: Iterable[str], version: TargetRuntime, state: VersionState, why: str
) -> dict[str, Answer]:
    return {name: Answer(_result(name, version, state, why)) for name in models}


def _answer(
    run: BenchRun, runtime: LocalRuntime, name: str, model: Model, version: TargetRuntime
) -> Answer:
    try:
        session = runtime.start(model)
    except WorkerCrashed as error:
        return Answer(_result(name, version, "crashes", error.message))
    except ToolFailed as error:
        return Answer(_result(name, version, "does not load", error.message))
    try:
        outputs = session.run(run.samples.first.arrays)
    except WorkerCrashed as error:
        return Answer(_result(name, version, "crashes", error.message))
    except ToolFailed as error:
        return Answer(_result(name, version, "does not run", error.message))
    finally:
        session.close()
    return Answer(_result(name, version, "right", ""), outputs)


def _result(name: str, version: TargetRuntime, state: VersionState, detail: str) -> VersionResult:
    return VersionResult(model=name, runtime=str(version), state=state, detail=detail)
