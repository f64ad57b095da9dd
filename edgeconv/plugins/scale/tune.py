"""The whole search on one screen: a model and a budget in, a confirmed artifact out."""

import contextlib
import functools
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from edgeconv import data
from edgeconv.conversion.climb import SessionResult, make_all
from edgeconv.conversion.plan import Plan, make_plan
from edgeconv.conversion.publish import publish
from edgeconv.conversion.run import Run, cache_artifact
from edgeconv.data.preprocessing import describe
from edgeconv.model import source
from edgeconv.plugins.scale.tune_confirming import (
    closest,
    kernels_advice,
    notes_on,
    qat_advice,
    search_and_confirm,
)
from edgeconv.plugins.scale.tune_samples import (
    SampleOpener,
    SearchSamples,
    TuneRun,
    refuse_budget,
    refuse_options,
)
from edgeconv.plugins.scale.tune_search import pareto, recipe_text
from edgeconv.plugins.scale.tune_trials import AGREEMENT, Evaluator, TrialRunner, open_evaluators
from edgeconv.requests.config.reach import NOTHING_GRANTED, refusal
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.requests.texts import source_reach
from edgeconv.requests.tune import TuneRequest
from edgeconv.system.store import (
    Cache,
    cache_directory,
    locked,
    owned,
    publish_all,
    read_noun,
    refuse_inputs,
    scratch_directory,
    sha256_file,
    tool_versions,
    writable_directory,
)
from edgeconv.system.store.notes import in_project, note_converted
from edgeconv.types import DataIdentity, Measuring, Tuning, TuningTrial
from edgeconv.types.errors import EdgeconvError, InputRefused, UsageError


def tune(request: TuneRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Tuning:
    """Search the cheapest artifact of a model that loses no more than the budget.

    Each trial is kept as soon as it is complete: a search that was killed goes on from there. That
    nothing meets the budget is a result and not an error.

    Raises an `EdgeconvError` for a model, data or options that are refused.
    """
    started_s = time.monotonic()
    refuse_options(request)
    identified = source.identify(
        request.model, request.opening, allow_code=request.execution.allow_code
    )
    directory = Path(request.directory or f"{identified.name}.tuned").absolute()
    run = TuneRun(
        request=request,
        model=identified,
        directory=directory,
        identities=_identities(request),
        on_progress=on_progress,
        started_s=started_s,
    )
    refuse_inputs((run.result_file, run.recipe_file))
    before = _published(run)
    if before is not None and not _has_leftovers(run, before):
        return before
    writable_directory(directory)
    # Not the lock of the directory, which `convert` takes as well.
    lock = directory / f".{identified.name}.tuning.lock"
    waiting = f"waiting for another search into {directory}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        # The run that was waited for may have published the result.
        tuning = _published(run) or _search(run)
        if _has_leftovers(run, tuning):
            shutil.rmtree(run.work, ignore_errors=True)
    return tuning


def _has_leftovers(run: TuneRun, tuning: Tuning) -> bool:
    """Whether the trials of a finished search are still there; a killed run leaves them."""
    return not tuning.stopped and run.work.exists()


def _identities(request: TuneRequest) -> tuple[str, str]:
    """The hashes of the samples, and of those that calibrate ("" for no others)."""
    execution = request.execution
    identity = functools.partial(
        data.identity, allow_code=execution.allow_code, allowance=execution.allowance
    )
    samples = identity(request.data)
    if not request.calibration:
        return samples, ""
    calibration = identity(request.calibration)
    if calibration == samples:
        raise UsageError(
            "--calibration names the same samples as --data, but nothing may have used the fresh "
            "half before",
            hint="remove --calibration: then the search samples calibrate",
        )
    return samples, calibration


def _published(run: TuneRun) -> Tuning | None:
    """The result in the directory, if it is of the same request and whole."""
    try:
        tuning = read_noun(run.result_file, Tuning, what="tuning")
    except InputRefused:
        return None
    if tuning.key != run.key(tuning.trials) or not tuning.ok:
        return None
    file = run.directory / tuning.artifact
    is_whole = file.is_file() and sha256_file(file) == tuning.trial(tuning.recommended).sha256
    is_whole = is_whole and (run.directory / tuning.recipe_file).is_file()
    return _located(tuning, run) if is_whole else None


def _located(tuning: Tuning, run: TuneRun) -> Tuning:
    """The result as its file has it, but with the model and the directory as they are found."""
    return msgspec.structs.replace(tuning, model=run.model.path, directory=str(run.directory))


def _search(run: TuneRun) -> Tuning:
    request = run.request
    measuring = Measuring(
        runtimes=(request.runtime,),
        metrics=(request.metric,) if request.metric else (),
        output=request.output or None,
        is_timed=request.objective == "latency",
    )
    directory = run.trials_directory()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        opener = stack.enter_context(SampleOpener(run))
        conversion = stack.enter_context(_conversion(run, opener, scratch))
        floating = _float_model(conversion)
        prepared = floating.session.prepared
        samples, (part,) = opener.samples, prepared.parts
        evaluators = stack.enter_context(
            open_evaluators(
                {"search": samples.search, "fresh": samples.fresh},
                prepared.float_model,
                part.signature,
                samples.batch,
                msgspec.structs.replace(measuring, output=samples.output),
                request.execution,
                directory,
            )
        )
        metric = evaluators["search"].metric
        refuse_budget(request, "" if metric == AGREEMENT else metric)
        runner = TrialRunner(
            floating=floating,
            plan=_plan(request, floating, samples),
            directory=directory,
            evaluator=evaluators["search"],
            objective=request.objective,
            budget=request.max_drop,
            fresh=evaluators["fresh"].samples,
            end_s=run.end_s,
            execution=request.execution,
            npu=request.npu,
            on_progress=run.on_progress,
        )
        return _publish_result(run, runner, samples, evaluators)


def _conversion(run: TuneRun, opener: SampleOpener, scratch: Path) -> Run:
    """The conversion to the float32 .tflite that all trials are made of."""
    request = run.request
    plan = make_plan(
        ConvertRequest(
            model=run.model.path,
            directory=str(run.directory),
            to=tuple(make_recipes(["float32"])),
            signature=(request.signature,) if request.signature else (),
            batch=request.batch,
            allow_suspect_calibration=request.allow_suspect_calibration,
            opening=run.model.opening,
            execution=request.execution,
        )
    )
    use_cache = request.execution.use_cache
    cache = Cache(cache_directory() if use_cache else None, run.on_progress)
    cache.refuse_unwritable()
    return Run(plan, cache, request.execution, scratch, run.on_progress, opener.split)


def _float_model(conversion: Run) -> SessionResult:
    """The float32 .tflite, verified against the trained model."""
    (recipe,) = conversion.plan.recipes
    floating = make_all(conversion, [recipe])[recipe]
    if isinstance(floating, EdgeconvError):
        raise floating
    return floating


def _plan(request: TuneRequest, floating: SessionResult, samples: SearchSamples) -> Plan:
    """What `convert` would plan with the calibration samples, but for the recipe."""
    plan = floating.session.run.plan
    converted = msgspec.structs.replace(
        plan.request, calibration={"": samples.calibration_source}, preprocess=request.preprocess
    )
    identity = {"": samples.calibration_identity.sha256}
    return msgspec.structs.replace(plan, request=converted, calibration_identity=identity)


def _publish_result(
    run: TuneRun, runner: TrialRunner, samples: SearchSamples, evaluators: dict[str, Evaluator]
) -> Tuning:
    request = run.request
    search, fresh = evaluators["search"], evaluators["fresh"]
    (part,) = runner.floating.session.prepared.parts
    calibrating = part.split.record.samples if part.split.record else 0
    trials, confirmations, stopped = search_and_confirm(runner, request, calibrating, fresh)
    met = next((each.trial for each in confirmations if each.is_met), "")
    losses = (search.float_loss, fresh.float_loss)
    is_latency = request.objective == "latency"
    tuning = Tuning(
        key=run.key(trials),
        model=run.model.path,
        directory=str(run.directory),
        objective=request.objective,
        max_drop=request.max_drop,
        metric=search.metric,
        on_agreement=search.metric == AGREEMENT,
        runtime=str(request.runtime),
        data=DataIdentity(
            source=str(request.data),
            samples=sum(loss.samples for loss in losses),
            sha256=run.identities[0],
            preprocessing=describe(request.preprocess.by_input),
        ),
        search=search.samples,
        fresh=fresh.samples,
        calibration=samples.calibration_identity,
        float_size_bytes=runner.model.stat().st_size,
        float_loss=losses,
        float_latency_us=search.latency(runner.model).p50_us if is_latency else None,
        trials=trials,
        confirmations=confirmations,
        pareto=tuple(trial.name for trial in pareto(trials, request.objective)),
        closest="" if met else closest(trials, confirmations),
        stopped=stopped,
        advice=kernels_advice(request, None if met else search.kernels_loss(runner.model))
        or qat_advice(run.model, request, trials, met),
        notes=notes_on(request, losses, samples, search.metric),
        tools=tool_versions(),
    )
    if met:
        tuning = _recommend(run, tuning, runner, tuning.trial(met), samples)
    tuning = msgspec.structs.replace(tuning, seconds=round(time.monotonic() - run.started_s, 1))
    tuning = in_project(tuning, run.directory)
    text = msgspec.json.format(msgspec.json.encode(tuning), indent=2) + b"\n"
    publish_all({run.result_file: text})
    return _located(tuning, run)


def _recommend(
    run: TuneRun, tuning: Tuning, runner: TrialRunner, trial: TuningTrial, samples: SearchSamples
) -> Tuning:
    """Publish the artifact as `convert` does, and the recipe that gives it."""
    run.on_progress(f"publishing {trial.name}")
    artifact = runner.finished(trial.recipe)
    cache_artifact(replace(runner.floating.session.run, plan=runner.plan), artifact)
    waiting = f"waiting for another run into {run.directory}"
    with owned(run.directory, on_wait=lambda: run.on_progress(waiting)):
        publish(runner.plan, [artifact])
    # Its manifest may name the model from now on.
    note_converted(run.model.path, run.model.sha256)
    steps = describe(run.request.preprocess.by_input)
    text = recipe_text(
        trial.recipe, run.request, run.model.opening, str(samples.recipe_source), steps
    )
    publish_all({run.recipe_file: text.encode()})
    return msgspec.structs.replace(
        tuning,
        recommended=trial.name,
        artifact=artifact.artifact.file,
        recipe_file=run.recipe_file.name,
        allow=tuple(
            refused.option
            for reach in source_reach(samples.recipe_source)
            if (refused := refusal(reach, run.recipe_file, NOTHING_GRANTED)) and refused.option
        ),
    )
