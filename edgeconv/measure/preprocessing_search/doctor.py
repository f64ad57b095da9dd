"""The verb `doctor`: which preprocessing a model was trained with, by trying the plausible ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from edgeconv import data, source
from edgeconv.data.preprocessing import describe
from edgeconv.errors import UsageError
from edgeconv.measure.preprocessing_search.candidates import STANDARDIZED
from edgeconv.measure.preprocessing_search.evaluation import score_candidates
from edgeconv.measure.preprocessing_search.model import (
    SearchContext,
    only_float_input,
    open_model,
    run_model,
)
from edgeconv.measure.preprocessing_search.trials import (
    LEAST_SAMPLES,
    joined,
    pick_samples,
    stored_of,
    try_candidates,
)
from edgeconv.statistics.paired import is_better
from edgeconv.store import scratch_directory
from edgeconv.types import DataIdentity, Diagnosis, Preprocessing, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from edgeconv.data.source import DataSet, LocalDataSet
    from edgeconv.measure.preprocessing_search.evaluation import Outputs, SearchScores
    from edgeconv.measure.preprocessing_search.trials import CandidateSamples
    from edgeconv.requests.looking import DoctorRequest
    from edgeconv.types import DataSource, Execution, TensorSpec


def doctor(
    request: DoctorRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Try the plausible preprocessings of labeled samples, and find which the model works with.

    A model that works with none is a result, not an error. Raises an `EdgeconvError` for several or
    integer inputs, no labels, a single label, fewer than 8 samples, or an output without a score
    for each class.
    """
    model, data_source, samples = request.model, request.data, request.samples
    execution = request.execution
    if samples is not None and samples < LEAST_SAMPLES:
        raise UsageError(f"the request is for {samples} samples", hint=f"at least {LEAST_SAMPLES}")
    chosen_steps = None if request.preprocess is None else request.preprocess.by_input
    _refuse_early(model, data_source, chosen_steps, execution)
    with scratch_directory() as scratch:
        context = SearchContext(scratch=scratch, execution=execution, on_progress=on_progress)
        searched = open_model(context, model, request.signature, request.opening)
        # With steps, even empty ones, samples can be opened that do not fit the model as stored.
        steps = (searched.declared if chosen_steps is None else chosen_steps) or {
            "": Preprocessing()
        }
        with _opened(data_source, searched.spec, steps, execution) as whole:
            chosen = pick_samples(whole, samples, searched.batch)
        base = steps.get(searched.spec.name, steps.get("", Preprocessing()))
        tried = try_candidates(chosen, stored_of(chosen), base)
        on_progress(f"running the model with {len(tried)} preprocessings")
        outputs, runtime = run_model(context, searched, joined(tried, chosen))
    assert whole.labels is not None
    assert chosen.labels is not None
    limits = int(whole.labels.min()), int(whole.labels.max())
    parts = _parts(outputs, len(tried), chosen.count)
    scored = score_candidates(parts, chosen.labels, label_limits=limits, output=request.output)
    return _diagnosis(model, runtime, whole, chosen, tried, scored)


def _refuse_early(
    model: str,
    data_source: DataSource,
    steps: Mapping[str, Preprocessing] | None,
    execution: Execution,
) -> None:
    """Refuse a Keras file's input, or the samples for it, before the model is loaded."""
    signature = source.keras_file_signature(model)
    if signature is None or data.runs_code(data_source):
        return
    spec = only_float_input(str(model), signature)
    neutral = steps or {"": Preprocessing()}
    with _opened(data_source, spec, neutral, execution):
        pass


def _opened(
    source: DataSource, spec: TensorSpec, steps: Mapping[str, Preprocessing], execution: Execution
) -> AbstractContextManager[DataSet]:
    return data.opened_samples(
        source,
        (spec,),
        preprocessing=steps,
        allow_code=execution.allow_code,
        allowance=execution.allowance,
    )


def _parts(outputs: Outputs, parts: int, count: int) -> list[Outputs]:
    """The outputs of each candidate, from those of all of them one after the other."""
    return [
        {name: array[part * count : (part + 1) * count] for name, array in outputs.items()}
        for part in range(parts)
    ]


def _diagnosis(
    model: str,
    runtime: str,
    whole: DataSet,
    source: LocalDataSet,
    tried: Sequence[CandidateSamples],
    scored: SearchScores,
) -> Diagnosis:
    stored = stored_of(source)
    trials = [
        Trial(
            name=attempt.candidate.name,
            preprocess=describe({"": attempt.candidate.steps}),
            accuracy=result.accuracy,
            interval=result.interval,
            fits=result.fits,
            is_current=attempt.is_current,
        )
        for attempt, result in zip(tried, scored.candidates, strict=True)
    ]
    trials = likeliest_first(trials)
    return Diagnosis(
        model=model,
        runtime=runtime,
        data=_identity(source, next(attempt for attempt in tried if attempt.is_current)),
        available=whole.count,
        stored_dtype=stored.dtype.name,
        stored_limits=stored.limits,
        classes=scored.classes,
        scores=scored.scores,
        label_offset=scored.label_offset,
        guessing=scored.guessing,
        chance=scored.chance,
        trials=tuple(trials),
        notes=tuple(_notes(trials, source)),
    )


def _identity(source: LocalDataSet, now: CandidateSamples) -> DataIdentity:
    used = dataclasses.replace(source, preprocessing={"": now.candidate.steps})
    digest = data.SamplesHash()
    for _ in used.chunks(np.arange(used.count), used.count, digest):
        pass
    return DataIdentity(
        source=used.text,
        samples=used.count,
        sha256=digest.hexdigest(),
        preprocessing=describe({"": now.candidate.steps}),
    )


def likeliest_first(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, the best first, but a usual preprocessing before one computed from these samples,
    unless the latter is better by a test of the two.
    """
    ordered = sorted(trials, key=lambda trial: (not trial.fits, -trial.accuracy.value))
    usual = next((each for each in ordered if each.fits and not _is_computed(each)), None)
    if usual and not is_better(ordered[0].accuracy, usual.accuracy, 1):
        ordered.remove(usual)
        ordered.insert(0, usual)
    return ordered


def _is_computed(trial: Trial) -> bool:
    return trial.name.startswith(STANDARDIZED)


def _notes(trials: Sequence[Trial], source: LocalDataSet) -> Iterator[str]:
    if trials[0].fits and _is_computed(trials[0]):
        yield (
            f"the mean and std of {trials[0].name!r} are those of these {source.count} samples: "
            "use those of the training samples instead"
        )
