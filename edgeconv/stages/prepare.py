"""The first stage: the float32 graph, the samples, and what the trained model says to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import UnsupportedOperators
from edgeconv.plan import SERVING, resolve
from edgeconv.stages.samples import Split, split_samples
from edgeconv.stages.tensorflow import Reference, start_float_graph, start_reference
from edgeconv.tflite import ensure_signature, summarise

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from edgeconv.nouns import Signature
    from edgeconv.stages import Run

# TensorFlow's converter gives the operators that only TensorFlow has this name.
_SELECT_TF = "Flex"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What every recipe starts from.

    `saved_model` is what TensorFlow's converter read, None for a .tflite source; likewise
    `reference`, which waits for what the trained model answers to the held-back samples.
    """

    float_model: Path
    signature: Signature
    saved_model: str | None
    saved_model_signature: str
    reference: Callable[[], Reference] | None
    split: Split
    notes: tuple[str, ...] = ()


def prepare(run: Run, children: contextlib.ExitStack) -> Prepared:
    """Everything the recipes need; the trained model may still be running in `children`.

    Raises an `EdgeconvError` where the model or the data are bad.
    """
    chosen = resolve(run.plan)
    if chosen is not None and run.plan.model.kind == "tflite":
        return _from_tflite(run, chosen)
    return _from_tensorflow(run, chosen, children)


def _from_tflite(run: Run, chosen: Signature) -> Prepared:
    run.on_progress("reading the float32 model")
    original = Path(run.plan.model.path).read_bytes()
    signed = ensure_signature(original)
    _refuse_select_tf(signed)
    file = run.scratch / "float.tflite"
    file.write_bytes(signed)
    note = "the source has no signature; it was given serving_default"
    signature = _signature(signed, chosen.key or SERVING)
    return Prepared(
        float_model=file,
        signature=signature,
        saved_model=None,
        saved_model_signature="",
        reference=None,
        split=split_samples(run, signature.inputs),
        notes=(note,) if signed != original else (),
    )


def _refuse_select_tf(model: bytes) -> None:
    custom = summarise(model, where="the model").custom_operators
    select = [name for name in custom if name.startswith(_SELECT_TF)]
    if select:
        raise UnsupportedOperators(
            f"the model needs operators that TFLite does not have: {', '.join(select)}",
            hint="replace them in the model it was converted from; edgeconv publishes no "
            "Select-TF models, which most device runtimes cannot load",
        )


def _from_tensorflow(
    run: Run, chosen: Signature | None, children: contextlib.ExitStack
) -> Prepared:
    # TensorFlow goes first, since it takes longest; the samples are read meanwhile.
    converted = start_float_graph(run, chosen, children)
    split: Split | None = None
    if chosen is not None and run.plan.batch is None:
        split = split_samples(run, chosen.inputs)
    graph = converted()
    signature = _signature(graph.file.read_bytes(), graph.signature)
    split = split or split_samples(run, signature.inputs)
    # Not before: two processes with TensorFlow in them would take the most memory of all.
    answered = start_reference(run, graph.saved_model, graph.signature, split, children)
    return Prepared(
        float_model=graph.file,
        signature=signature,
        saved_model=graph.saved_model,
        saved_model_signature=graph.signature,
        reference=answered,
        split=split,
        notes=graph.notes,
    )


def _signature(model: bytes, key: str) -> Signature:
    summary = summarise(model, where="the float32 model")
    return next(signature for signature in summary.signatures if signature.key == key)
