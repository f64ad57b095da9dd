"""The first stage: the float32 graph, the samples, and the trained model's outputs for them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.conversion.ladder import dynamic_notes
from edgeconv.conversion.quantize import start_engine
from edgeconv.conversion.samples import Split, source_of
from edgeconv.conversion.signatures import declared_signatures, resolve
from edgeconv.conversion.tensorflow import start_float_graph, start_reference
from edgeconv.errors import InputRefused, UnsupportedOperators
from edgeconv.tflite import (
    ensure_signature,
    summarize,
    update_format,
    vocabularies,
    with_unique_names,
)
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    from edgeconv.conversion.ladder import Rung
    from edgeconv.conversion.run import Run
    from edgeconv.conversion.tensorflow import PendingReference
    from edgeconv.processes.persistent import PersistentChild
    from edgeconv.types import LadderStep, Signature

# TensorFlow's converter gives the operators that only TensorFlow has this name.
SELECT_TF = "Flex"
_OLD_FORM = (
    "the source has its operator codes in the form of TensorFlow before 2.4; they were brought up "
    "to date"
)
_NO_SIGNATURE = "the source has no signature; it was given serving_default"
_EQUAL_NAMES = "tensors of the source have no name, or the same one; they were numbered"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One signature of the float32 graph, with its samples."""

    signature: Signature
    split: Split


@dataclass(frozen=True, kw_only=True)
class PreparedModel:
    """What every recipe starts from.

    `saved_model` is what TensorFlow's converter read, None for a .tflite source; likewise
    `reference`, what the trained model answers to the held-back samples.
    `engine` is the child that has loaded ai-edge-quantizer meanwhile, if that is needed.
    `narrow` says that the trained model computes in coarser floats than float32, and `can_fuse`
    that it has LSTM layers of Keras 3, which are loops unless they are fused.
    `select_ops` are the operators that only TensorFlow has. `ladder` are the attempts at
    loading the model, where the first one failed.
    """

    rung: Rung
    float_model: Path
    parts: tuple[Part, ...]
    saved_model: str | None
    reference: PendingReference | None
    engine: PersistentChild | None = None
    select_ops: tuple[str, ...] = ()
    narrow: bool = False
    can_fuse: bool = False
    ladder: tuple[LadderStep, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The signatures' keys."""
        return tuple(part.signature.key for part in self.parts)

    @property
    def calibration(self) -> tuple[Path, ...]:
        """Where the samples to calibrate with are stored."""
        stored = (part.split.calibration for part in self.parts)
        return tuple(path for path in stored if path is not None)

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The names of the float32 graph's operators."""
        summary = summarize(self.float_model.read_bytes(), where="the float32 model")
        return frozenset(operator.name for operator in summary.operators)

    @property
    def synthetic(self) -> bool:
        """Whether any samples are made up."""
        return any(part.split.synthetic for part in self.parts)


def prepare(
    run: Run, rung: Rung, children: contextlib.ExitStack, *, quantizes: bool
) -> PreparedModel:
    """Everything the recipes need; the trained model may still be running in `children`.

    `quantizes` says that ai-edge-quantizer is needed, which is loaded meanwhile.

    Raises an `EdgeconvError` where the model or the data are bad.
    """
    chosen = resolve(run.plan, run.execution.trusted)
    if run.plan.model.kind == "tflite":
        return _from_tflite(run, chosen, rung)
    return _from_tensorflow(run, chosen, rung, children, quantizes=quantizes)


def _from_tflite(run: Run, chosen: tuple[Signature, ...], rung: Rung) -> PreparedModel:
    run.on_progress("reading the float32 model")
    original = Path(run.plan.model.path).read_bytes()
    current = update_format(original)
    signed = ensure_signature(current)
    named = with_unique_names(signed)
    file = run.scratch / "float.tflite"
    file.write_bytes(named)
    signatures = _signatures(signed, [signature.key or SERVING_DEFAULT for signature in chosen])
    words = vocabularies(signed, where="the model")
    select_ops = _select_ops(run, signed)
    return PreparedModel(
        rung=rung,
        float_model=file,
        parts=_parts(run, signatures, words),
        saved_model=None,
        reference=None,
        select_ops=select_ops,
        notes=(
            *((_OLD_FORM,) if current != original else ()),
            *((_NO_SIGNATURE,) if signed != current else ()),
            *((_EQUAL_NAMES,) if named != signed else ()),
            *dynamic_notes(signatures),
            *_select_notes(select_ops),
        ),
    )


def _select_ops(run: Run, model: bytes) -> tuple[str, ...]:
    custom = summarize(model, where="the model").custom_operators
    select = tuple(name for name in custom if name.startswith(SELECT_TF))
    if select and not run.plan.request.select_ops:
        raise UnsupportedOperators(
            f"the model needs operators that TFLite does not have: {', '.join(select)}",
            hint="replace them in the model it was converted from, or convert with "
            "--allow-select-ops, and link the Select-TF (Flex) delegate on the device",
        )
    return select


def _from_tensorflow(
    run: Run,
    chosen: tuple[Signature, ...],
    rung: Rung,
    children: contextlib.ExitStack,
    *,
    quantizes: bool,
) -> PreparedModel:
    known = chosen or declared_signatures(run.plan)
    # TensorFlow goes first, since it takes longest; the samples are read meanwhile.
    pending = start_float_graph(run, chosen, rung, children)
    engine = None
    if quantizes:
        run.samples.mkdir(exist_ok=True)
        engine = start_engine(run, pending.directory, run.samples)
        children.callback(engine.close)
    _read_early(run, known, rung)
    graph = pending.result()
    content = graph.file.read_bytes()
    signatures = _signatures(content, graph.facts.signatures)
    select_ops = _select_ops(run, content)
    parts = _parts(run, signatures, vocabularies(content, where="the float32 model"))
    # Not before: two processes with TensorFlow in them would take the most memory of all.
    answered = start_reference(run, rung, graph.trained, parts, children)
    return PreparedModel(
        rung=rung,
        float_model=graph.file,
        parts=parts,
        saved_model=graph.read,
        reference=answered,
        engine=engine,
        select_ops=select_ops,
        narrow=graph.facts.narrow,
        can_fuse=graph.facts.can_fuse,
        ladder=graph.facts.loading,
        notes=(
            *graph.facts.notes,
            *_fixed_notes(rung),
            *dynamic_notes(signatures),
            *_select_notes(select_ops),
        ),
    )


def _select_notes(select_ops: tuple[str, ...]) -> tuple[str, ...]:
    if not select_ops:
        return ()
    return (
        f"{', '.join(select_ops)} run only where the Select-TF (Flex) delegate is linked: Android "
        "with org.tensorflow:tensorflow-lite-select-tf-ops, iOS with TensorFlowLiteSelectTfOps; "
        "not in LiteRT's or tflite-runtime's Python packages",
    )


def _fixed_notes(rung: Rung) -> tuple[str, ...]:
    return (f"changed before conversion: {rung.text}",) if rung.fixed.fixes else ()


def _read_early(run: Run, known: tuple[Signature, ...], rung: Rung) -> None:
    """Read the samples of signatures that are known before the model is converted.

    Samples that do not fit are refused at once. Made-up strings come from the graph's tables, and
    code is not run where the signature may yet turn out to be another.
    """
    for signature in known:
        source = source_of(run.plan, signature.key)
        takes_strings = any(spec.dtype == "string" for spec in signature.inputs)
        if not (takes_strings if source is None else data.runs_code(source)):
            run.split(_fixed(signature, rung))


def _fixed(signature: Signature, rung: Rung) -> Signature:
    """The signature with the dimensions that the rung fixes."""
    inputs = []
    for spec in signature.inputs:
        shape = rung.fixed.of(spec.name, [None if size == -1 else size for size in spec.shape])
        sizes = tuple(-1 if size is None else size for size in shape)
        inputs.append(msgspec.structs.replace(spec, shape=sizes))
    return msgspec.structs.replace(signature, inputs=tuple(inputs))


def _parts(
    run: Run, signatures: tuple[Signature, ...], words: Sequence[Sequence[bytes]] = ()
) -> tuple[Part, ...]:
    return tuple(
        Part(signature=signature, split=run.split(signature, words)) for signature in signatures
    )


def _signatures(model: bytes, keys: list[str] | tuple[str, ...]) -> tuple[Signature, ...]:
    summary = summarize(model, where="the float32 model")
    by_key = {signature.key: signature for signature in summary.signatures}
    missing = [key for key in keys if key not in by_key]
    if missing:
        raise InputRefused(
            f"the float32 model has no signature {missing[0]!r}: it has {[*by_key]}",
            hint="export the model again, with a name for each signature",
        )
    return tuple(by_key[key] for key in keys)
