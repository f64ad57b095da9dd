"""The whole search on one screen: a model and a budget in, a confirmed artifact out."""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data, source
from edgeconv.conversion.climb import make_all
from edgeconv.conversion.plan import make_plan
from edgeconv.conversion.publish import cache_artifact, publish
from edgeconv.conversion.run import Run
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.errors import EdgeconvError, InputRefused, UsageError
from edgeconv.quantize.recipes import make_recipes
from edgeconv.requests.convert import ConvertRequest
from edgeconv.store import (
    Cache,
    cache_directory,
    locked,
    owned,
    publish_all,
    read_noun,
    scratch_directory,
    sha256_file,
    tool_versions,
    writable_directory,
)
from edgeconv.store.converted import note_converted
from edgeconv.tuning.advice import advice
from edgeconv.tuning.asked import Limits, Wanted, refuse
from edgeconv.tuning.confirming import closest
from edgeconv.tuning.finding import search_and_confirm
from edgeconv.tuning.judge import AGREEMENT, open_evaluators
from edgeconv.tuning.notes import notes_on
from edgeconv.tuning.question import TuneRun
from edgeconv.tuning.recipe_file import recipe_text
from edgeconv.tuning.samples import SearchSamples
from edgeconv.tuning.search import pareto
from edgeconv.tuning.trials import TrialRunner
from edgeconv.types import DataIdentity, Measuring, Steps, Tuning, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.conversion.climb import SessionResult
    from edgeconv.conversion.plan import Plan
    from edgeconv.requests.tune import TuneRequest
    from edgeconv.tuning.judge import Evaluator
    from edgeconv.tuning.samples import Samples
    from edgeconv.types import Execution


def tune(asked: TuneRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Tuning:
    """Search the cheapest artifact of a model that loses no more than what is allowed.

    Trials are kept as they are made: a search that was killed goes on. That nothing meets the
    budget is an answer and no error.

    Raises an `EdgeconvError` for a model, data or options that cannot be taken.
    """
    started_s = time.monotonic()
    wanted, limits = Wanted.of(asked), Limits(trials=asked.trials, seconds=asked.time_limit_s)
    refuse(wanted, limits)
    execution, data_source = asked.execution, asked.data
    identified = source.identify(asked.model, asked.opening, allow_code=execution.allow_code)
    target = Path(asked.directory or f"{identified.name}.tuned").absolute()
    run = TuneRun(
        model=identified,
        wanted=wanted,
        limits=limits,
        directory=target,
        data=data_source,
        identities=_identities(data_source, wanted.calibration, execution),
        execution=execution,
        on_progress=on_progress,
        started_s=started_s,
    )
    before = _published(run)
    if before is not None and not _left_over(run, before):
        return before
    writable_directory(target)
    # Not that of the directory, which `convert` holds for itself.
    lock = target / f".{identified.name}.tuning.lock"
    waiting = f"waiting for another search into {target}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        # The run that was waited for may have done it.
        tuning = _published(run) or _tuned(run)
        if _left_over(run, tuning):
            shutil.rmtree(run.work, ignore_errors=True)
    return tuning


def _left_over(run: TuneRun, tuning: Tuning) -> bool:
    """Whether the trials of a search that is done are still there; a killed run leaves them."""
    return not tuning.stopped and run.work.exists()


def _identities(data_source: str, calibration: str, execution: Execution) -> tuple[str, str]:
    """The hashes of the samples, and of those that calibrate if there are others."""
    identity = functools.partial(
        data.identity, allow_code=execution.allow_code, allowance=execution.allowance
    )
    own = identity(data_source)
    if not calibration:
        return own, ""
    given = identity(calibration)
    if given == own:
        raise UsageError(
            "--calibration names the same samples as --data, and the fresh half must be new to "
            "everything",
            hint="leave --calibration away: then the half that searches calibrates",
        )
    return own, given


def _published(run: TuneRun) -> Tuning | None:
    """The result that is there already, if it is of the same question and whole."""
    try:
        tuning = read_noun(run.record, Tuning, what="tuning")
    except InputRefused:
        return None
    if tuning.key != run.key or not tuning.ok:
        return None
    file = run.directory / tuning.artifact
    is_whole = file.is_file() and sha256_file(file) == tuning.trial(tuning.recommended).sha256
    return tuning if is_whole and (run.directory / tuning.recipe_file).is_file() else None


def _tuned(run: TuneRun) -> Tuning:
    measuring = Measuring(
        runtimes=(run.wanted.runtime,),
        metrics=(run.wanted.metric,) if run.wanted.metric else (),
        output=run.wanted.output or None,
    )
    place = run.made_place()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        opened = stack.enter_context(SearchSamples(run))
        floating = _float_model(run, opened, scratch)
        prepared = stack.enter_context(floating.session).prepared
        samples, (part,) = opened.opened, prepared.parts
        judges = stack.enter_context(
            open_evaluators(
                {"search": samples.parts.search, "fresh": samples.parts.fresh},
                prepared.float_model,
                part.signature.key,
                samples.batch,
                measuring,
                run.execution,
                place,
            )
        )
        runner = TrialRunner(
            floating=floating,
            plan=_plan(run, floating, samples),
            place=place,
            judge=judges["search"],
            objective=run.wanted.objective,
            budget=run.wanted.max_drop,
            fresh=judges["fresh"].samples,
            end_s=run.end_s,
            execution=run.execution,
            on_progress=run.on_progress,
        )
        return _searched(run, runner, samples, judges)


def _float_model(run: TuneRun, samples: SearchSamples, scratch: Path) -> SessionResult:
    """The float32 .tflite that all trials are made of, verified against the trained model."""
    (recipe,) = make_recipes(["float32"])
    plan = make_plan(
        ConvertRequest(
            model=run.model.path,
            directory=str(run.directory),
            to=(recipe,),
            signature=(run.wanted.signature,) if run.wanted.signature else (),
            batch=run.wanted.batch,
            opening=run.model.opening,
            execution=run.execution,
        )
    )
    cache = Cache(cache_directory() if run.execution.use_cache else None, run.on_progress)
    cache.refuse_unwritable()
    conversion = Run(plan, cache, run.execution, scratch, run.on_progress, samples.split)
    floating = make_all(conversion, [recipe])[recipe]
    if isinstance(floating, EdgeconvError):
        raise floating
    return floating


def _plan(run: TuneRun, floating: SessionResult, samples: Samples) -> Plan:
    """What `convert` would plan with the samples that calibrate, but for the recipe."""
    plan = floating.session.run.plan
    asked = msgspec.structs.replace(
        plan.asked,
        calibration={"": samples.calibration},
        preprocess=Steps(by_input=parse_preprocessing(run.wanted.preprocess)),
    )
    identity = {"": samples.calibration_identity.sha256}
    return msgspec.structs.replace(plan, asked=asked, calibration_identity=identity)


def _searched(
    run: TuneRun, runner: TrialRunner, samples: Samples, judges: dict[str, Evaluator]
) -> Tuning:
    trials, confirmations, stopped = search_and_confirm(
        runner, run.wanted, run.limits, samples.calibrating.count, judges["fresh"]
    )
    met = next((one.trial for one in confirmations if one.is_met), "")
    losses = (judges["search"].float_loss, judges["fresh"].float_loss)
    is_latency = run.wanted.objective == "latency"
    floating_us = judges["search"].latency(runner.model).p50_us if is_latency else None
    tuning = Tuning(
        key=run.key,
        model=run.model.path,
        directory=str(run.directory),
        objective=run.wanted.objective,
        max_drop=run.wanted.max_drop,
        metric=judges["search"].metric,
        on_agreement=judges["search"].metric == AGREEMENT,
        runtime=run.wanted.runtime,
        data=DataIdentity(
            source=run.data,
            samples=sum(one.samples for one in losses),
            sha256=run.identities[0],
            preprocessing=describe(parse_preprocessing(run.wanted.preprocess)),
        ),
        search=losses[0].samples,
        fresh=losses[1].samples,
        calibration=samples.calibration_identity,
        float_size_bytes=runner.model.stat().st_size,
        float_loss=losses,
        float_latency_us=floating_us,
        trials=trials,
        confirmations=confirmations,
        pareto=tuple(one.name for one in pareto(trials, run.wanted.objective)),
        closest="" if met else closest(trials, confirmations),
        stopped=stopped,
        advice=advice(run.model, run.wanted, trials, met),
        notes=notes_on(run.wanted, losses, samples),
        tools=tool_versions(),
    )
    if met:
        tuning = _recommended(run, tuning, runner, tuning.trial(met), samples)
    tuning = msgspec.structs.replace(tuning, seconds=round(time.monotonic() - run.started_s, 1))
    publish_all({run.record: msgspec.json.format(msgspec.json.encode(tuning), indent=2) + b"\n"})
    return tuning


def _recommended(
    run: TuneRun, tuning: Tuning, runner: TrialRunner, trial: TuningTrial, samples: Samples
) -> Tuning:
    """Publish the artifact as `convert` does, and the recipe that gives it."""
    run.on_progress(f"publishing {trial.name}")
    done = runner.finished(trial.recipe)
    conversion = replace(runner.floating.session.run, plan=runner.plan)
    cache_artifact(conversion, done)
    waiting = f"waiting for another run into {run.directory}"
    with owned(run.directory, on_wait=lambda: run.on_progress(waiting)):
        publish(runner.plan, [done])
    # Its manifest may name it from now on.
    note_converted(run.model.path, run.model.sha256)
    text = recipe_text(
        trial.recipe,
        run.wanted,
        run.model.opening,
        samples.calibration_there,
        samples.preprocess,
    )
    publish_all({run.recipe_file: text.encode()})
    return msgspec.structs.replace(
        tuning,
        recommended=trial.name,
        artifact=done.artifact.file,
        recipe_file=run.recipe_file.name,
    )
