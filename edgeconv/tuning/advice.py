"""What to do where quantizing after training costs more than the budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.processes.escaping import shell_line
from edgeconv.types import FULL_INTEGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.tuning.asked import Wanted
    from edgeconv.types import SourceModel, TuningTrial

# tf_keras writes it into its SavedModels; without it there are no layers to train.
_KERAS = "keras_metadata.pb"
_WEIGHTS_ALONE = ("weight-only-int8", "dynamic")


def advice(
    model: SourceModel, wanted: Wanted, trials: Sequence[TuningTrial], recommended: str
) -> tuple[str, ...]:
    """What quantization-aware training may give, and its command; nothing where int8 does.

    It is worth a thought where no full-integer artifact is within the budget, although asked for.
    """
    by_name = {one.name: one for one in trials}
    int8 = by_name.get("int8")
    chosen = by_name.get(recommended)
    if int8 is None or int8.loss is None or int8.loss.drop <= wanted.max_drop:
        return ()
    if chosen is not None and chosen.recipe.name in FULL_INTEGER:
        return ()
    return (
        f"int8 loses {int8.loss.drop:.4f}{_share(int8, trials)}. Quantization-aware training is "
        f"for that: at most these {int8.loss.drop:.4f} can be won back. In the five recorded "
        "benchmarks of docs/qat.md it lost nothing to the float model; of this model nothing is "
        "known until it is trained",
        _command(model, wanted),
    )


def _share(int8: TuningTrial, trials: Sequence[TuningTrial]) -> str:
    """How much of the loss is there with weights of 8 bits alone, as measured."""
    alone = next((t.loss for t in trials if t.name in _WEIGHTS_ALONE and t.loss), None)
    if alone is None or int8.loss is None:
        return ""
    share = min(1.0, max(0.0, alone.drop / int8.loss.drop))
    return (
        f", of which {share:.0%} are there with 8-bit weights alone, and {1 - share:.0%} come with "
        "8-bit activations"
    )


def _command(model: SourceModel, wanted: Wanted) -> str:
    if not can_be_trained(model):
        return (
            "QAT needs the layers: a Keras file, or a SavedModel that tf_keras saved. Train it "
            "from there, with edgeconv convert MODEL.keras --to qat --training TRAIN.npz"
        )
    words = ["edgeconv", "convert", model.path, "--to", "qat", "--training", "TRAIN.npz"]
    if wanted.preprocess != "none":
        words += ["--preprocess", wanted.preprocess]
    return f"{shell_line(words)}  (TRAIN.npz: labelled training samples)"


def can_be_trained(model: SourceModel) -> bool:
    """Whether QAT takes a model of this kind."""
    if model.kind == "saved_model":
        return Path(model.path, _KERAS).is_file()
    return model.kind in ("keras", "hdf5")
