"""Trials made one after the other in one session, each kept as soon as it is there."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.climb import make_in_session
from edgeconv.conversion.publish import FinishedArtifact, find_published, finish_artifact, publish
from edgeconv.errors import InputRefused, ToolFailed, UsageError, WorkerTimedOut
from edgeconv.quantize.sensitivity import SensitivityJob, measure_sensitivities
from edgeconv.store import hash_of, publish_bytes, read_noun
from edgeconv.tuning.chances import LIKELY, chance_within
from edgeconv.types import Sensitivity, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edgeconv.conversion.climb import SessionResult
    from edgeconv.conversion.plan import Plan
    from edgeconv.tuning.judge import Evaluator
    from edgeconv.types import Artifact, Execution, Objective, Precision, Recipe

# What has begun may at least come to its first answer.
_LEAST_S = 10.0


class TimeIsUp(Exception):
    """The time of the search ended while a trial was at work; there is nothing of it."""


class Ranked(msgspec.Struct, frozen=True):
    """The sensitivities that are kept."""

    layers: tuple[Sensitivity, ...]


@dataclass(frozen=True)
class TrialRunner:
    """What makes and keeps trials, by what they are held to, and until when.

    `floating` is the float32 model, in whose session they are made as `plan` says. `place` is a
    directory of this search's own, where what an earlier run left is used again; `end_s` is on
    the clock of `time.monotonic`.
    """

    floating: SessionResult
    plan: Plan
    place: Path
    judge: Evaluator
    objective: Objective
    budget: float
    fresh: int
    end_s: float
    execution: Execution
    on_progress: Callable[[str], None]

    @property
    def model(self) -> Path:
        """The float32 .tflite."""
        return self.floating.session.prepared.float_model

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

    def file(self, recipe: Recipe) -> Path:
        """The .tflite of a recipe that was made."""
        return self._plan(recipe).target(recipe.name)

    def finished(self, recipe: Recipe) -> FinishedArtifact:
        """The artifact of a recipe that was made, as `convert` would publish it."""
        artifact = find_published(self._plan(recipe), recipe) or self._converted(recipe)
        return FinishedArtifact(artifact=artifact, file=self.file(recipe))

    def sensitivities(self, precision: Precision) -> Sequence[Sensitivity]:
        """What each layer loses in this precision; kept as well. Raises `TimeIsUp`."""
        record = self.place / f"sensitivity-{precision}.json"
        with contextlib.suppress(InputRefused):
            return read_noun(record, Ranked, what="ranking").layers
        self._let_session("")
        session = self.floating.session
        job = SensitivityJob(graph=session.graph, precisions=(precision,))
        try:
            found = session.result(measure_sensitivities, job)
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        publish_bytes(msgspec.json.encode(Ranked(found.layers)), record)
        return found.layers

    def _kept(self, record: Path, recipe: Recipe) -> TuningTrial | None:
        try:
            trial = read_noun(record, TuningTrial, what="trial")
        except InputRefused:
            return None
        artifact = None if trial.error else find_published(self._plan(recipe), recipe)
        is_whole = artifact is not None and artifact.sha256 == trial.sha256
        return trial if trial.error or is_whole else None

    def _made(self, recipe: Recipe) -> TuningTrial:
        name = name_of(recipe)
        try:
            artifact = self._converted(recipe)
            self.on_progress(f"judging {name}")
            return TuningTrial(
                name=name,
                recipe=recipe,
                size_bytes=artifact.size_bytes,
                sha256=artifact.sha256,
                loss=self.judge.loss(self.file(recipe)),
                post_training=artifact.post_training,
            )
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        except (ToolFailed, UsageError) as error:
            return TuningTrial(name=name, recipe=recipe, error=error.message)

    def _converted(self, recipe: Recipe) -> Artifact:
        plan = self._plan(recipe)
        self._let_session(f"{name_of(recipe)}: ")
        good = make_in_session(self.floating, recipe)
        made = finish_artifact(plan, good)
        plan.directory.mkdir(parents=True, exist_ok=True)
        publish(plan, [made])
        return made.artifact

    def _plan(self, recipe: Recipe) -> Plan:
        """What `convert` would plan for this recipe alone, published in a place of its own."""
        directory = self.place / "made" / _key(recipe)
        return msgspec.structs.replace(self.plan, recipes=(recipe,), directory=directory)

    def _let_session(self, before: str) -> None:
        """Give the session's children no more time than is left, and its lines a beginning."""
        left_s = max(_LEAST_S, self.end_s - time.monotonic())
        allowance = self.execution.allowance
        allowance = msgspec.structs.replace(allowance, timeout_s=min(left_s, allowance.timeout_s))
        session = self.floating.session
        session.run = dataclasses.replace(
            session.run,
            execution=msgspec.structs.replace(self.execution, allowance=allowance),
            on_progress=lambda line: self.on_progress(f"{before}{line}" if before else line),
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
            latency = self.judge.latency(self.file(trial.recipe))
        except ToolFailed as error:
            return msgspec.structs.replace(trial, error=error.message)
        return msgspec.structs.replace(
            trial, latency_us=latency.p50_us, latency_interval_us=latency.p50_interval_us
        )

    def _with_chance(self, trial: TuningTrial) -> TuningTrial:
        chance = chance_within_of(trial, self.budget, self.fresh)
        return msgspec.structs.replace(trial, chance=chance)


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
