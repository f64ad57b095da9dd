"""Trials made one after the other, each kept as soon as it is there."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.convert import convert
from edgeconv.data import parse_preprocessing
from edgeconv.errors import InputRefused, ToolFailed, UsageError, WorkerTimedOut
from edgeconv.processes.tasks import start_task
from edgeconv.quantize.sensitivity import SensitivityJob, measure_sensitivities
from edgeconv.quantize.worker import QuantizePart
from edgeconv.requests.convert import ConvertRequest
from edgeconv.sandbox import Access
from edgeconv.store import hash_of, publish_bytes, read_noun, sha256_file
from edgeconv.tuning.chances import LIKELY, chance_within
from edgeconv.types import Sensitivity, Steps, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edgeconv.tuning.judge import Judge
    from edgeconv.types import Artifact, Execution, Objective, Precision, Recipe

# A conversion that has begun may at least start its children.
_LEAST_S = 10.0


class TimeIsUp(Exception):
    """The time of the search ended while a trial was at work; there is nothing of it."""


class Ranked(msgspec.Struct, frozen=True):
    """The sensitivities that are kept."""

    layers: tuple[Sensitivity, ...]


@dataclass(frozen=True)
class Made:
    """What trials are made of: the float32 .tflite, and the SOURCE that calibrates.

    `samples` is where some calibration samples are stored as the model takes them.
    """

    floating: Path
    signature: str
    calibration: str
    preprocess: str
    samples: Path
    batch: int


@dataclass(frozen=True)
class Workshop:
    """Where trials are made and kept, by what they are held to, and until when.

    `place` is a directory of this search's own, where what an earlier run left is used again;
    `end_s` is on the clock of `time.monotonic`.
    """

    place: Path
    source: Made
    judge: Judge
    objective: Objective
    budget: float
    fresh: int
    end_s: float
    execution: Execution
    on_progress: Callable[[str], None]

    def trial(self, recipe: Recipe) -> TuningTrial:
        """The trial of a recipe: a kept one, or made anew. Raises `TimeIsUp`."""
        record = self.place / "trials" / f"{_key(recipe)}.json"
        trial = self._kept(record, recipe)
        if trial is None:
            started_s = time.monotonic()
            trial = self._made(recipe)
            trial = msgspec.structs.replace(trial, seconds=round(time.monotonic() - started_s, 2))
        trial = self._with_latency(trial)
        record.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(msgspec.json.encode(trial), record)
        return self._with_chance(trial)

    def file(self, trial: TuningTrial) -> Path:
        """The .tflite of a trial."""
        return self._file(trial.recipe)

    def sensitivities(self, precision: Precision) -> Sequence[Sensitivity]:
        """What each layer loses in this precision; kept as well. Raises `TimeIsUp`."""
        record = self.place / f"sensitivity-{precision}.json"
        with contextlib.suppress(InputRefused):
            return read_noun(record, Ranked, what="ranking").layers
        part = QuantizePart(
            signature=self.source.signature,
            samples=str(self.source.samples),
            batch=self.source.batch,
        )
        job = SensitivityJob(
            float_model=str(self.source.floating),
            parts=(part,),
            precisions=(precision,),
            threads=self.execution.threads,
        )
        execution = self._execution()
        try:
            with start_task(
                measure_sensitivities,
                job,
                label="the sensitivity of the layers",
                scratch=self.place,
                access=Access(reads=(self.source.floating, self.source.samples)),
                allowance=execution.allowance,
            ) as task:
                found = task.result(self.on_progress)
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        publish_bytes(msgspec.json.encode(Ranked(found.layers)), record)
        return found.layers

    def _kept(self, record: Path, recipe: Recipe) -> TuningTrial | None:
        try:
            trial = read_noun(record, TuningTrial, what="trial")
        except InputRefused:
            return None
        file = self._file(recipe)
        if trial.error:
            return trial
        return trial if file.is_file() and sha256_file(file) == trial.sha256 else None

    def _made(self, recipe: Recipe) -> TuningTrial:
        name = name_of(recipe)
        try:
            artifact = self._converted(recipe)
            file = self._file(recipe)
            self.on_progress(f"judging {name}")
            return TuningTrial(
                name=name,
                recipe=recipe,
                size_bytes=artifact.size_bytes,
                sha256=artifact.sha256,
                loss=self.judge.loss(file),
                post_training=artifact.post_training,
            )
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        except (ToolFailed, UsageError) as error:
            return TuningTrial(name=name, recipe=recipe, error=error.message)

    def _converted(self, recipe: Recipe) -> Artifact:
        conversion = convert(
            ConvertRequest(
                model=str(self.source.floating),
                directory=str(self._file(recipe).parent),
                to=(recipe,),
                calibration={"": self.source.calibration},
                preprocess=Steps(by_input=parse_preprocessing(self.source.preprocess)),
                signature=(self.source.signature,),
                execution=self._execution(),
            ),
            on_progress=lambda line: self.on_progress(f"{name_of(recipe)}: {line}"),
        )
        for failure in conversion.failures:
            kind = WorkerTimedOut if failure.error == WorkerTimedOut.__name__ else ToolFailed
            raise kind(failure.message, hint=failure.hint)
        (artifact,) = conversion.artifacts
        return artifact

    def _execution(self) -> Execution:
        """With no more time for a child than is left. Nothing of a trial goes into the cache."""
        left_s = max(_LEAST_S, self.end_s - time.monotonic())
        allowance = self.execution.allowance
        return msgspec.structs.replace(
            self.execution,
            use_cache=False,
            allowance=msgspec.structs.replace(
                allowance, timeout_s=min(left_s, allowance.timeout_s)
            ),
        )

    def _timed_out(self, error: WorkerTimedOut) -> Exception:
        """What it means: the search's time, or the user's own limit for a child."""
        return TimeIsUp() if time.monotonic() >= self.end_s else error

    def _with_latency(self, trial: TuningTrial) -> TuningTrial:
        if self.objective != "latency" or trial.error or trial.latency_us is not None:
            return trial
        if chance_within_of(trial, self.budget, self.fresh) < LIKELY:
            return trial
        self.on_progress(f"timing {trial.name}")
        try:
            latency = self.judge.latency(self._file(trial.recipe))
        except ToolFailed as error:
            return msgspec.structs.replace(trial, error=error.message)
        return msgspec.structs.replace(
            trial, latency_us=latency.p50_us, latency_interval_us=latency.p50_interval_us
        )

    def _with_chance(self, trial: TuningTrial) -> TuningTrial:
        chance = chance_within_of(trial, self.budget, self.fresh)
        return msgspec.structs.replace(trial, chance=chance)

    def _file(self, recipe: Recipe) -> Path:
        stem = self.source.floating.stem
        return self.place / "made" / _key(recipe) / f"{stem}.{recipe.name}.tflite"


def chance_within_of(trial: TuningTrial, budget: float, fresh: int) -> float:
    """The chance of a trial; one of the float32 model itself loses nothing."""
    if trial.error or trial.loss is None:
        return 0.0
    if trial.recipe.name == "float32":
        return 1.0
    return chance_within(trial.loss, budget, fresh)


def name_of(recipe: Recipe) -> str:
    """The recipe's name, and how many layers have which other precision."""
    if not recipe.layers:
        return recipe.name
    precisions = [rule.precision for rule in recipe.layers]
    told = [f"{precisions.count(one)} in {one}" for one in sorted(set(precisions))]
    return f"{recipe.name}, {' and '.join(told)}"


def _key(recipe: Recipe) -> str:
    return hash_of(recipe)[:24]
