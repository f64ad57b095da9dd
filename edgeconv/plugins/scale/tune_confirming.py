"""Searching and confirming by turns, until something is confirmed or a limit is reached.

And what the user is told on the way, and at the end.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from edgeconv.data.preprocessing import describe
from edgeconv.model.tflite import float_layers
from edgeconv.plugins.scale.tune_samples import SearchSamples
from edgeconv.plugins.scale.tune_search import (
    LIKELY,
    LIKELY_OF_MANY,
    SURE,
    Space,
    cheapest,
    enough_samples,
    is_candidate,
    search,
    uniform_recipes,
)
from edgeconv.plugins.scale.tune_trials import AGREEMENT, Evaluator, TimeIsUp, TrialRunner
from edgeconv.quantize.equalization.equalize import has_pairs
from edgeconv.reporting import units
from edgeconv.requests.tune import TuneRequest
from edgeconv.system.processes.escaping import shell_line
from edgeconv.system.processes.progress import CountedLine
from edgeconv.types import (
    FULL_INTEGER,
    Confirmation,
    Loss,
    Objective,
    Recipe,
    RecipeName,
    SourceModel,
    TuningTrial,
)

Stopped = Literal["", "time", "trials"]
# Each confirmation uses the fresh samples, which are a little less fresh for the next.
MOST = 3
# tf_keras writes it into its SavedModels; without it there are no layers to train.
_KERAS_METADATA = "keras_metadata.pb"


class SearchResult(NamedTuple):
    """All trials, the confirmations, met or not, and the limit that ended the search."""

    trials: tuple[TuningTrial, ...]
    confirmations: tuple[Confirmation, ...]
    stopped: Stopped


def search_and_confirm(
    runner: TrialRunner, request: TuneRequest, calibration: int, fresh: Evaluator
) -> SearchResult:
    """Search and confirm; `calibration` counts the samples that calibrate.

    Once a trial is likely enough to be within the budget, recipes that must be larger are not
    tried. Where it turns out not to be, the search goes on to likelier ones, and last to one that
    is all but sure.
    """
    floating = runner.model.read_bytes()
    space = Space(
        objective=request.objective,
        uniform=uniform_recipes(request, calibration, equalizes=has_pairs(floating)),
        weights=sum(layer.weights for layer in float_layers(floating)),
        sensitivities=runner.sensitivities,
    )
    trials: dict[Recipe, TuningTrial] = {}
    confirmations: list[Confirmation] = []
    stopped: Stopped = ""
    for most, enough in enumerate((LIKELY, LIKELY_OF_MANY, SURE), start=1):
        stopped = _search_on(runner, request.trials, space, enough, trials)
        known = list(trials.values())
        while len(confirmations) < (MOST if stopped else most):
            trial = next_to_confirm(known, confirmations, request.objective, request.max_drop)
            if trial is None:
                break
            confirmations.append(_confirm(runner, trial, fresh))
        if stopped or any(confirmation.is_met for confirmation in confirmations):
            break
    return SearchResult(tuple(trials.values()), tuple(confirmations), stopped)


def _search_on(
    runner: TrialRunner, most: int, space: Space, enough: float, trials: dict[Recipe, TuningTrial]
) -> Stopped:
    """Put every trial into `trials`, each with another name; returns the limit that was reached."""

    def measure(recipe: Recipe) -> TuningTrial:
        return trials.get(recipe) or _with_unique_name(runner.trial(recipe), trials.values())

    try:
        for trial in search(space, measure, enough):
            if trial.recipe in trials:
                continue
            trials[trial.recipe] = trial
            line = progress_line(list(trials.values()), space.objective)
            runner.on_progress(CountedLine(line, len(trials), most))
            if len(trials) >= most:
                return "trials"
            if time.monotonic() >= runner.end_s:
                return "time"
    except TimeIsUp:
        return "time"
    return ""


def _with_unique_name(trial: TuningTrial, others: Iterable[TuningTrial]) -> TuningTrial:
    name = trial.name
    same = sum(other.name == name or other.name.startswith(f"{name} (") for other in others)
    return msgspec.structs.replace(trial, name=f"{name} ({same + 1})") if same else trial


def _confirm(runner: TrialRunner, trial: TuningTrial, fresh: Evaluator) -> Confirmation:
    runner.on_progress(f"confirming {trial.name} on {fresh.samples} fresh samples")
    loss = fresh.loss(runner.file(trial.recipe))
    return Confirmation(trial=trial.name, loss=loss, is_met=loss.drop <= runner.budget)


def next_to_confirm(
    trials: Sequence[TuningTrial],
    confirmations: Sequence[Confirmation],
    objective: Objective,
    budget: float,
) -> TuningTrial | None:
    """The trial to evaluate on the fresh samples next; None where no more is to be confirmed.

    The first two are the cheapest candidates; but after a failure no mix, and no other methods of
    the same recipe, that would also fail if the fresh samples took as much from it. The last is the
    cheapest of those that are all but sure to be within the budget, or else the likeliest.
    """
    if len(confirmations) == MOST or any(earlier.is_met for earlier in confirmations):
        return None
    tried = {earlier.trial for earlier in confirmations}
    left = [trial for trial in trials if trial.name not in tried and is_candidate(trial)]
    if len(confirmations) < MOST - 1:
        more = max((_lost_more(trials, earlier) for earlier in confirmations), default=0.0)
        failed = {trial.recipe.name for trial in trials if trial.name in tried}
        able = [
            trial
            for trial in left
            if (trial.is_uniform and trial.recipe.name not in failed)
            or _drop(trial) + more <= budget
        ]
        return cheapest(able or left, objective)
    sure = cheapest(left, objective, SURE)
    return sure or max(left, key=lambda trial: (trial.chance, -trial.cost(objective)), default=None)


def closest(trials: Iterable[TuningTrial], confirmations: Sequence[Confirmation]) -> str:
    """The name of the trial that comes nearest to the budget, "" where none was evaluated."""
    if confirmations:
        return min(confirmations, key=lambda confirmation: confirmation.loss.drop).trial
    evaluated = [trial for trial in trials if trial.loss is not None and not trial.error]
    if not evaluated:
        return ""
    return max(evaluated, key=lambda trial: (trial.chance, -_drop(trial))).name


def _lost_more(trials: Iterable[TuningTrial], confirmation: Confirmation) -> float:
    """How much more was lost on the fresh samples than on the search samples."""
    searched = next(_drop(trial) for trial in trials if trial.name == confirmation.trial)
    return confirmation.loss.drop - searched


def _drop(trial: TuningTrial) -> float:
    return trial.loss.drop if trial.loss else float("inf")


def progress_line(trials: Sequence[TuningTrial], objective: Objective) -> str:
    """The last trial, and the best so far."""
    last = trials[-1]
    best = cheapest(trials, objective)
    best_text = _summary(best) if best else "none"
    return f"trial {len(trials)}: {_summary(last)}; best so far: {best_text}"


def _summary(trial: TuningTrial) -> str:
    if trial.loss is None or (trial.error and not trial.refused):
        return f"{trial.name} failed"
    if trial.refused:
        return f"{trial.name} refused, drop {trial.loss.drop:+.4f}"
    cost = units.size(trial.size_bytes)
    if trial.latency_us is not None:
        cost += f", {units.duration(trial.latency_us)}"
    if trial.npu is not None and trial.npu.latency_us is not None:
        cost += f", estimated {units.duration(trial.npu.latency_us)}"
    return f"{trial.name}, {cost}, drop {trial.loss.drop:+.4f}"


def notes_on(
    request: TuneRequest, losses: tuple[Loss, Loss], samples: SearchSamples, metric: str
) -> tuple[str, ...]:
    """Notes on the samples: too few for such a budget, no labels, whose calibration it was."""
    notes = []
    least = min(loss.samples for loss in losses)
    enough = enough_samples(request.max_drop)
    is_counted = request.max_drop and (metric == AGREEMENT or units.is_share(metric))
    if is_counted and 2 * least < enough:
        notes.append(
            f"one answer of {least} is more than the budget of {request.max_drop:g}: "
            f"{enough} samples would let one differ"
        )
    if samples.search.labels is None:
        notes.append(
            "there are no labels: the budget applies to the agreement with the float32 model, "
            "right or wrong; give labels to tune by accuracy"
        )
    if not request.calibration:
        count = samples.calibration.count
        notes.append(f"{count} of the search samples calibrate, their labels unused")
    return tuple(notes)


def kernels_advice(request: TuneRequest, loss: Loss | None) -> tuple[str, ...]:
    """What to do where the float32 model itself loses too much in the runtime.

    `loss` is what it loses there; () where that is within the budget.
    """
    if loss is None or loss.drop <= request.max_drop:
        return ()
    fixed = "" if request.batch else ". A fixed batch (--batch 1) may help"
    return (
        f"the float32 model itself loses {loss.drop:.4f} with the kernels of {request.runtime}, "
        f"which no recipe wins back: `edgeconv bench --runtime {request.runtime}` and "
        f"`edgeconv inspect` show what they compute wrong{fixed}",
    )


def qat_advice(
    model: SourceModel, request: TuneRequest, trials: Sequence[TuningTrial], recommended: str
) -> tuple[str, ...]:
    """What quantization-aware training may win back, and its command.

    () where int8 or the recommended full-integer artifact is within the budget.
    """
    int8 = _least_loss(trials, "int8")
    if int8 is None or int8.drop <= request.max_drop:
        return ()
    chosen = next((trial for trial in trials if trial.name == recommended), None)
    if chosen is not None and chosen.recipe.name in FULL_INTEGER:
        return ()
    return (
        f"int8 loses {int8.drop:.4f}{_weights_share(int8, trials)}. Quantization-aware training "
        f"can win back at most this {int8.drop:.4f}. In the five recorded benchmarks of "
        "docs/qat.md it lost nothing compared with the float model; what it gains for this model "
        "is not known until it is trained",
        _qat_command(model, request),
    )


def _least_loss(trials: Sequence[TuningTrial], name: RecipeName) -> Loss | None:
    """The loss of the uniform trial of a recipe that loses least."""
    losses = [
        trial.loss
        for trial in trials
        if trial.recipe.name == name and trial.is_uniform and trial.loss is not None
    ]
    return min(losses, key=lambda loss: loss.drop, default=None)


def _weights_share(int8: Loss, trials: Sequence[TuningTrial]) -> str:
    """How much of the loss is there with weights of 8 bits alone, as measured."""
    alone = _least_loss(trials, "weight-only-int8") or _least_loss(trials, "dynamic")
    if alone is None:
        return ""
    share = min(1.0, max(0.0, alone.drop / int8.drop))
    return (
        f", of which {share:.0%} are there with 8-bit weights alone, and {1 - share:.0%} come with "
        "8-bit activations"
    )


def _qat_command(model: SourceModel, request: TuneRequest) -> str:
    if not can_be_trained(model):
        return (
            "QAT needs the layers: a Keras file, or a SavedModel that tf_keras saved. Train it "
            "from there, with edgeconv convert MODEL.keras --to qat --training TRAIN.npz"
        )
    words = ["edgeconv", "convert", model.path, "--to", "qat", "--training", "TRAIN.npz"]
    steps = describe(request.preprocess.by_input)
    if steps != "none":
        words += ["--preprocess", steps]
    return f"{shell_line(words)}  (TRAIN.npz: labeled training samples)"


def can_be_trained(model: SourceModel) -> bool:
    """Whether QAT takes a model of this kind."""
    if model.kind == "saved_model":
        return Path(model.path, _KERAS_METADATA).is_file()
    return model.kind in ("keras", "hdf5")
