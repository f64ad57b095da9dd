"""The whole search on one screen: a model and a budget in, a confirmed artifact out."""

from __future__ import annotations

import functools
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data, source
from edgeconv.conversion.convert import convert
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.measure.subjects import float_inputs
from edgeconv.requests.convert import ConvertRequest
from edgeconv.store import (
    locked,
    publish_all,
    read_noun,
    sha256_file,
    tool_versions,
    writable_directory,
)
from edgeconv.tuning.advice import advice
from edgeconv.tuning.asked import Limits, Wanted, refuse
from edgeconv.tuning.confirming import closest
from edgeconv.tuning.finding import found
from edgeconv.tuning.judge import AGREEMENT, opened_judges
from edgeconv.tuning.notes import notes_on
from edgeconv.tuning.question import Question
from edgeconv.tuning.recipe_file import recipe_text
from edgeconv.tuning.samples import Samples, samples_of
from edgeconv.tuning.search import pareto
from edgeconv.tuning.workshop import Made, Workshop
from edgeconv.types import DataIdentity, Execution, Measuring, Opening, Steps, Tuning, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.tuning.judge import Judge
    from edgeconv.types import Artifact


def tune(
    model: str | Path,
    data_source: str,
    wanted: Wanted,
    directory: str | Path | None = None,
    *,
    limits: Limits = Limits(),
    opening: Opening = Opening(),
    execution: Execution = Execution(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Tuning:
    """Search the cheapest artifact of `model` that loses no more than `wanted.max_drop`.

    `data_source`: samples with labels; one half searches, and the other, which nothing of the
    search sees, confirms. Without labels the budget is of the agreement with the float32 model.
    The artifact is published in `directory` (None: NAME.tuned in the current one) with its recipe
    as a file for `edgeconv convert --config` and all the trials. Trials are kept as they are
    made: a search that was killed goes on. That nothing meets the budget is an answer and no
    error.

    Raises an `EdgeconvError` for a model, data or options that cannot be taken.
    """
    started_s = time.monotonic()
    refuse(wanted, limits)
    identified = source.identify(model, opening, allow_code=execution.allow_code)
    target = Path(directory or f"{identified.name}.tuned").absolute()
    run = Question(
        model=identified,
        wanted=wanted,
        limits=limits,
        directory=target,
        data_source=data_source,
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


def _left_over(run: Question, tuning: Tuning) -> bool:
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


def _published(run: Question) -> Tuning | None:
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


def _tuned(run: Question) -> Tuning:
    place = run.made_place()
    floating = _float_model(run, place)
    signature = floating.signature
    inputs = float_inputs(signature)
    kept = run.directory / f"{run.model.name}.calibration.npz"
    measuring = Measuring(
        runtimes=(run.wanted.runtime,),
        metrics=(run.wanted.metric,) if run.wanted.metric else (),
        output=run.wanted.output or None,
    )
    file = place / floating.file
    with (
        samples_of(run.data_source, inputs, run.wanted, kept, place, run.execution) as samples,
        opened_judges(
            {"search": samples.parts.search, "fresh": samples.parts.fresh},
            file,
            signature.key,
            samples.batch,
            measuring,
            run.execution,
        ) as judges,
    ):
        made = Made(
            floating=file,
            signature=signature.key,
            calibration=samples.calibration,
            preprocess=run.wanted.preprocess,
            samples=samples.stored,
            batch=samples.batch,
        )
        shop = Workshop(
            place=place,
            source=made,
            judge=judges["search"],
            objective=run.wanted.objective,
            budget=run.wanted.max_drop,
            fresh=judges["fresh"].samples,
            end_s=run.end_s,
            execution=run.execution,
            on_progress=run.on_progress,
        )
        return _searched(run, shop, samples, floating, judges)


def _float_model(run: Question, place: Path) -> Artifact:
    """The float32 .tflite that all trials are made of, verified against the trained model."""
    conversion = convert(
        ConvertRequest(
            model=run.model.path,
            directory=str(place),
            to=("float32",),
            signature=(run.wanted.signature,) if run.wanted.signature else (),
            batch=run.wanted.batch,
            opening=run.model.opening,
            execution=run.execution,
        ),
        on_progress=run.on_progress,
    )
    for failure in conversion.failures:
        raise ToolFailed(failure.message, hint=failure.hint)
    (artifact,) = conversion.artifacts
    return artifact


def _searched(
    run: Question, shop: Workshop, samples: Samples, floating: Artifact, judges: dict[str, Judge]
) -> Tuning:
    trials, confirmations, stopped = found(
        shop, run.wanted, run.limits, samples.calibration_count, judges["fresh"]
    )
    met = next((one.trial for one in confirmations if one.is_met), "")
    losses = (judges["search"].float_loss, judges["fresh"].float_loss)
    is_latency = run.wanted.objective == "latency"
    floating_us = judges["search"].latency(shop.source.floating).p50_us if is_latency else None
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
            source=run.data_source,
            samples=sum(one.samples for one in losses),
            sha256=run.identities[0],
            preprocessing=describe(parse_preprocessing(run.wanted.preprocess)),
        ),
        search=losses[0].samples,
        fresh=losses[1].samples,
        calibration=samples.calibration_identity,
        float_size_bytes=floating.size_bytes,
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
        tuning = _recommended(run, tuning, tuning.trial(met), samples)
    tuning = msgspec.structs.replace(tuning, seconds=round(time.monotonic() - run.started_s, 1))
    publish_all({run.record: msgspec.json.format(msgspec.json.encode(tuning), indent=2) + b"\n"})
    return tuning


def _recommended(run: Question, tuning: Tuning, trial: TuningTrial, samples: Samples) -> Tuning:
    """Publish the artifact as `convert` does, and the recipe that gives it."""
    run.on_progress(f"publishing {trial.name}")
    conversion = convert(
        ConvertRequest(
            model=run.model.path,
            directory=str(run.directory),
            to=(trial.recipe,),
            calibration={"": samples.calibration},
            preprocess=Steps(by_input=parse_preprocessing(run.wanted.preprocess)),
            signature=(run.wanted.signature,) if run.wanted.signature else (),
            batch=run.wanted.batch,
            opening=run.model.opening,
            execution=run.execution,
        ),
        on_progress=run.on_progress,
    )
    for failure in conversion.failures:
        raise ToolFailed(
            f"{trial.name} was tried and cannot be published: {failure.message}", hint=failure.hint
        )
    (artifact,) = conversion.artifacts
    if artifact.sha256 != trial.sha256:
        raise ToolFailed(
            f"{trial.name} gave other bytes when it was published than when it was tried",
            hint=f"something changed meanwhile: remove {run.work} and run it again",
        )
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
        artifact=artifact.file,
        recipe_file=run.recipe_file.name,
    )
