"""One file in every version of a runtime: where it loads, where its answers are right.

Answers are kept in the cache: the same file on the same samples is not run in a version again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np

from edgeconv import data
from edgeconv.data.samples import sample_files
from edgeconv.measure.machine import environment
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.measure.model_files import CommonNames, ModelFile
from edgeconv.measure.models import BenchRun
from edgeconv.runtimes.choice import matching_versions
from edgeconv.runtimes.interface import Arrays, Model
from edgeconv.runtimes.isolated import is_present, isolated_target
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.store import (
    Cache,
    cache_directory,
    hash_of,
    scratch_directory,
    sha256_file,
    tool_versions,
)
from edgeconv.types import TargetRuntime, VersionResult
from edgeconv.types.errors import RuntimeUnusable, ToolFailed, UsageError, WorkerCrashed
from edgeconv.types.execution import usable_cores
from edgeconv.types.measurement import VersionState

# Kernels round differently from version to version, which costs far less: 20 dB are an error of a
# tenth of what the answers vary by.
_LEAST_DB = 20.0


class Answer(NamedTuple):
    """What became of one file in one version: its outputs, or the state that it ended in."""

    result: VersionResult
    outputs: Arrays | None = None


def version_matrix(
    run: BenchRun, model_files: Sequence[ModelFile], names: CommonNames
) -> tuple[VersionResult, ...]:
    """Each file in each version of `run.measuring.versions`, the oldest first.

    Versions run in parallel, on the first samples. Raises as `matching_versions` does, and
    `OutputRefused` where the cache cannot be written.
    """
    assert run.measuring.versions is not None, "some are named"
    versions = matching_versions(run.measuring.versions)
    models = {
        file.name: names.model(file.file, file.signature, run.samples.batch, run.scratch)
        for file in model_files
    }
    kept = KeptAnswers(run, models)
    columns: list[dict[str, Answer]] = []
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for column in pool.map(lambda version: _column(run, kept, version), versions):
            columns.append(column)
            line = f"versions of {run.measuring.versions}"
            run.on_progress(CountedLine(line, len(columns), len(versions)))
    finally:
        # What is not begun is not installed either, where the user ends the run.
        pool.shutdown(cancel_futures=True)
    rows = ([column[name] for column in columns] for name in models)
    present = next((str(version) for version in versions if is_present(version)), "")
    return tuple(result for row in rows for result in judged(row, present))


def judged(answers: Sequence[Answer], present: str = "") -> Iterable[VersionResult]:
    """The results of one file; outputs are compared with the outputs of the reference.

    That is the version `present`, in which the file's accuracy is measured; without its outputs,
    the newest version that has some.
    """
    able = [each for each in reversed(answers) if each.outputs is not None]
    able.sort(key=lambda each: each.result.runtime != present)
    reference = able[0] if able else None
    for each in answers:
        if reference is None or each.outputs is None or reference.outputs is None:
            yield each.result
        elif each is reference:
            yield msgspec.structs.replace(each.result, is_reference=True)
        else:
            yield _compared(each.result, each.outputs, reference.outputs, reference.result.runtime)


def _compared(
    result: VersionResult, outputs: Arrays, reference: Arrays, name: str
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


def _column(run: BenchRun, kept: KeptAnswers, version: TargetRuntime) -> dict[str, Answer]:
    """All files in one version, which is only started for those without a kept answer."""
    outputs = {name: kept.find(name, version) for name in kept.models}
    answers = {
        name: Answer(_result(name, version, "right", ""), each)
        for name, each in outputs.items()
        if each is not None
    }
    missing = {name: kept.models[name] for name in outputs if name not in answers}
    if not missing:
        return answers
    try:
        runtime = LocalRuntime(isolated_target(version), run.settings())
    except RuntimeUnusable as error:
        return answers | _without(missing, version, "does not run", error.message)
    except (ToolFailed, UsageError) as error:
        return answers | _without(missing, version, "not installable", error.message)
    for name, model in missing.items():
        answers[name] = _answer(run, runtime, name, model, version)
        if (new := answers[name].outputs) is not None:
            kept.keep(name, version, new)
    return answers


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


# The answers of models in versions of a runtime, kept in the cache.
#
# Only answers are kept: what crashed or did not load may have failed for want of memory or time.

_STAGE = "answers"
# Larger ones, such as images of a segmentation, are computed again.
_MOST_BYTES = 16 << 20


class KeptAnswers:
    """The kept answers of `models`, by name, on the first samples of a bench."""

    def __init__(self, run: BenchRun, models: Mapping[str, Model]) -> None:
        self.models = models
        self._cache = Cache(cache_directory() if run.execution.use_cache else None, run.on_progress)
        samples = data.SamplesHash()
        samples.update(run.samples.first)
        self._shared = (
            *(samples.hexdigest(), run.measuring.threads, run.measuring.accelerator),
            *(tool_versions()["edgeconv"], environment().cpu),
        )
        self._files = {name: sha256_file(model.file) for name, model in models.items()}

    def find(self, name: str, version: TargetRuntime) -> Arrays | None:
        """The outputs of a model, arrays (samples, *shape) by name; None where they are not kept.

        Raises `OutputRefused` where the cache cannot be read.
        """
        entry = self._cache.find(_STAGE, self._key(name, version))
        if entry is None:
            return None
        files = sample_files(entry / _STAGE)
        return {output: np.load(file, allow_pickle=False) for output, file in files.items()}

    def keep(self, name: str, version: TargetRuntime, outputs: Arrays) -> None:
        """Keep the outputs of a model. Raises `OutputRefused`."""
        if sum(array.nbytes for array in outputs.values()) > _MOST_BYTES:
            return
        with scratch_directory() as scratch:
            data.write_samples(data.Samples(dict(outputs), None, str(version)), scratch / _STAGE)
            self._cache.keep(_STAGE, self._key(name, version), {_STAGE: scratch / _STAGE})

    def _key(self, name: str, version: TargetRuntime) -> str:
        model = self.models[name]
        return hash_of(self._files[name], model.signature, model.batch, str(version), *self._shared)
