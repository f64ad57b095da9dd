"""What a user ought to know of a search, in words, and what to do where int8 costs too much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.data.preprocessing import describe
from edgeconv.processes.escaping import shell_line
from edgeconv.tuning.chances import enough_samples
from edgeconv.tuning.search import cheapest
from edgeconv.types import FULL_INTEGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.requests.tune import TuneRequest
    from edgeconv.tuning.samples import SearchSamples
    from edgeconv.types import Loss, Objective, RecipeName, SourceModel, TuningTrial

_MIB = 1 << 20
# tf_keras writes it into its SavedModels; without it there are no layers to train.
_KERAS_METADATA = "keras_metadata.pb"


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
    cost = f"{trial.size_bytes / _MIB:.3g} MiB"
    if trial.latency_us is not None:
        cost += f", {trial.latency_us / 1000:.3g} ms"
    if trial.npu is not None and trial.npu.latency_us is not None:
        cost += f", estimated {trial.npu.latency_us / 1000:.3g} ms"
    return f"{trial.name}, {cost}, drop {trial.loss.drop:+.4f}"


def notes_on(
    request: TuneRequest, losses: tuple[Loss, Loss], samples: SearchSamples
) -> tuple[str, ...]:
    """Notes on the samples: too few for such a budget, no labels, whose calibration it was."""
    notes = []
    least = min(loss.samples for loss in losses)
    enough = enough_samples(request.max_drop)
    if request.max_drop and 2 * least < enough:
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
