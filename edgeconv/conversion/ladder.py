"""The attempts at a conversion, in order: what is changed in the model when it fails as it is.

    as it is ─► by the other Keras ─► shapes fixed ─► LSTM layers fused ─► loops unrolled

A rung is tried only where it changes something: a Keras file that both Keras versions read,
dimensions that are open, an LSTM of Keras 3 that is to be fused, a loop. Each result is verified
against the trained model. A fused layer keeps a state that a loop has not: it is used where the
request asks for it, and recipes that take loops keep them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from edgeconv.conversion.plan import Plan, declared_signatures, sources_of
from edgeconv.conversion.prepare import Part, PreparedModel
from edgeconv.conversion.run import Run
from edgeconv.data import read_samples
from edgeconv.model.source.saved_model import read_saved_model
from edgeconv.model.tflite.layers import STATEFUL
from edgeconv.model.tflite.operators import RUN_GRAPHS
from edgeconv.tf.known import LISTS
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types import Signature
from edgeconv.types.errors import (
    BatchRefused,
    Cause,
    ConversionRefused,
    EdgeconvError,
    InternalError,
    NotFinite,
    SuspectCalibration,
    ToolFailed,
    UnsupportedOperators,
    UsageError,
    VerificationFailed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

# What a loop is in TensorFlow's graph.
_TF_LOOPS = frozenset({"If", "StatelessIf", "StatelessWhile", "While"})
_FILLS_TABLE = "HASHTABLE_IMPORT"
# What the user's limits stopped, or somebody killed, would end so again; and no other form of a
# model makes its NaN finite.
_FINAL = (
    UsageError,
    SuspectCalibration,
    WorkerTimedOut,
    WorkerOutOfMemory,
    WorkerKilled,
    NotFinite,
)
_OTHER_KERAS = {"hdf5": ("keras", "tf_keras"), "keras": ("tf_keras", "keras")}


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One way to convert: `text` describes it, and `step` is its position in the order."""

    text: str
    fixed: FixedShapes
    other_keras: bool = False
    fuse: bool = False
    unroll: bool = False
    step: int = 0

    @property
    def is_first(self) -> bool:
        """Whether it is the model with the user's options alone."""
        return self.step == 0


class ModelFacts(NamedTuple):
    """What an attempt showed about the model: what there is to change in it.

    `loader`: the Keras that loaded the file, where the other may read it as well. `is_open`:
    fixing dimensions may help. `can_fuse`: it has LSTM layers that became loops. `shapes`: those of
    the samples, by input, where dimensions within a sample are open. `takes_one`: its batch is
    open, and several samples at once were wrong.
    """

    converts: bool
    loader: str = ""
    is_open: bool = True
    has_loops: bool = True
    can_fuse: bool = False
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    takes_one: bool = False


def first_rung(batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Rung:
    """The model with the user's options alone: its batch, and shapes by input."""
    fixed = FixedShapes(batch=batch, by_input=dict(shapes))
    words = [f"batch fixed to {batch}"] if batch else []
    words += [f"{name} fixed to {list(shape)}" for name, shape in shapes.items()]
    return Rung(text=", ".join(words) or "as it is", fixed=fixed)


def next_rung(plan: Plan, rung: Rung, known: ModelFacts) -> Rung | None:
    """What else can be tried after `rung`, None for nothing."""
    start = first_rung(plan.request.batch, plan.request.shapes)
    if plan.model.kind == "tflite":
        is_cured = known.takes_one and rung.is_first
        return _fixed_rung(plan, known, other_keras=False) if is_cured else None
    if rung.step < 1 and not known.converts:
        first, second = _OTHER_KERAS.get(plan.model.kind, ("", ""))
        if first and known.loader == first:
            text = f"loaded with {second}"
            return replace(start, text=text, other_keras=True, step=1)
    # A Keras that gave a graph is the one to go on with, also where that took one sample at a time.
    other_keras = rung.other_keras and (known.converts or known.takes_one)
    if rung.step < 2 and (known.is_open or known.takes_one):
        fixed = _fixed_rung(plan, known, other_keras=other_keras)
        # The user's options may fix the same already.
        if replace(start.fixed, only_open=True) != fixed.fixed:
            return fixed
    if rung.step < 4 and known.has_loops:
        # Once they are fixed, the model does not show which dimensions were open.
        is_fixed = rung.step == 2 and not (known.converts and known.shapes)
        fixed = rung if is_fixed else _fixed_rung(plan, known, other_keras=other_keras)
        fuses = plan.request.fuse_lstm and known.can_fuse and known.converts
        if rung.step < 3 and fuses:
            return replace(fixed, text=f"LSTM layers fused, {fixed.text}", fuse=True, step=3)
        return replace(fixed, text=f"loops unrolled, {fixed.text}", unroll=True, step=4)
    return None


def _fixed_rung(plan: Plan, known: ModelFacts, *, other_keras: bool) -> Rung:
    request = plan.request
    shapes = dict(request.shapes) or dict(known.shapes)
    fixed = FixedShapes(batch=request.batch or 1, by_input=shapes, only_open=True)
    words = f"batch fixed to {fixed.batch}"
    if shapes and not request.shapes:
        each = "; ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        words = f"shapes fixed to those of the samples: {each}"
    if other_keras:
        words = f"loaded with {_OTHER_KERAS[plan.model.kind][1]}, {words}"
    return Rung(text=words, fixed=fixed, other_keras=other_keras, step=2)


def facts_of(prepared: PreparedModel) -> ModelFacts:
    """What is known of a model that gave a float32 graph."""
    return ModelFacts(
        converts=True,
        is_open=_is_open(prepared),
        has_loops=has_loops(prepared) or has_fused_layers(prepared),
        can_fuse=prepared.can_fuse and has_loops(prepared),
        shapes=_shapes_of_samples(prepared.parts),
    )


def facts_of_failure(run: Run, cause: Cause) -> ModelFacts:
    """What is known of a model that gave none: what its SavedModel says, if there is one."""
    if not cause.graph:
        # It was not even exported, which fixed shapes may help; there is no loop to unroll.
        shapes = _shapes_where_open(run, declared_signatures(run.plan))
        return ModelFacts(converts=False, loader=cause.loader, has_loops=False, shapes=shapes)
    content = read_saved_model(Path(cause.graph))
    keys = run.plan.request.signature
    signatures = [
        signature for signature in content.signatures if not keys or signature.key in keys
    ]
    return ModelFacts(
        converts=False,
        loader=cause.loader,
        is_open=any(-1 in spec.shape for signature in signatures for spec in signature.inputs),
        has_loops=any(operator.name in _TF_LOOPS for operator in content.operators),
        shapes=_shapes_where_open(run, signatures),
    )


def _shapes_where_open(run: Run, signatures: Sequence[Signature]) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the samples for signatures with dynamic dimensions within a sample."""
    with_open = [
        signature
        for signature in signatures
        if any(-1 in spec.shape[1:] for spec in signature.inputs)
    ]
    if not (with_open and sources_of(run.plan.request)):
        return {}
    parts = [Part(signature=signature, split=run.split(signature)) for signature in with_open]
    return _shapes_of_samples(parts)


def is_final(error: EdgeconvError) -> bool:
    """Whether no rung at all is to be tried after this error."""
    return isinstance(error, _FINAL)


def is_curable(error: EdgeconvError) -> bool:
    """Whether another rung may convert what ended in this error.

    A model or data that were refused are refused on each rung.
    """
    kinds = (ConversionRefused, UnsupportedOperators, ToolFailed, InternalError)
    return isinstance(error, kinds) and not is_final(error)


def combined_error(failures: Sequence[tuple[str, EdgeconvError]]) -> EdgeconvError:
    """One error for attempts that all failed: the likeliest cause, and what was tried.

    `failures` are attempts and their errors, in order.
    """
    errors = [error for _, error in failures]
    # No attempt changes the samples.
    if len(errors) == 1 or isinstance(errors[-1], SuspectCalibration):
        return errors[-1]
    likeliest = _likeliest(errors)
    attempts = dict[str, list[str]]()
    for attempt, error in failures:
        attempts.setdefault(error.headline, []).append(attempt)
    same = likeliest.headline
    tried = [
        f"\n  tried {', and '.join(texts)}: {'the same' if line == same else line}"
        for line, texts in attempts.items()
    ]
    return likeliest.with_message(likeliest.message + "".join(tried))


def _likeliest(errors: Sequence[EdgeconvError]) -> EdgeconvError:
    """What stopped the attempt that came farthest, which is one that gave a file.

    Where none did, the operators that the converter refused each time that it named any, in the
    last form of the model, else the first error. Lists of tensors, which a fixed batch removes, are
    the cause only where no attempt was over them; a batch to be fixed is in the next attempt.
    """
    errors = [error for error in errors if not isinstance(error, BatchRefused)] or errors
    verified = [error for error in errors if isinstance(error, VerificationFailed)]
    if verified:
        return max(verified, key=_progress)
    named = [error for error in errors if error.cause.operators]
    others = [error for error in named if not LISTS.keys() >= {*error.cause.operators}]
    if others and len(others) < len(named):
        return min(others, key=lambda error: len(error.cause.operators))
    # A later attempt was over the lists, and the quantizer refused it.
    quantized = [e for e in errors if isinstance(e, ToolFailed) and not e.cause.operators]
    if named and not others and quantized:
        return quantized[-1]
    always = frozenset.intersection(*(frozenset(e.cause.operators) for e in named)) if named else ()
    latest = reversed(named)
    return min(latest, key=lambda error: len(error.cause.operators)) if always else errors[0]


def _progress(error: EdgeconvError) -> tuple[bool, bool, int]:
    """How far a file came: its answers were compared; its operators were, and few were in float."""
    cause = error.cause
    return cause.snr_db is not None, bool(cause.operators), -len(cause.operators)


def has_loops(prepared: PreparedModel) -> bool:
    """Whether the float32 graph has loops and branches, which no quantizer looks through."""
    loops = prepared.operators & RUN_GRAPHS
    # Tables are filled in a separate graph, which has nothing to quantize.
    return bool(loops - {"CALL_ONCE"} if _FILLS_TABLE in prepared.operators else loops)


def has_fused_layers(prepared: PreparedModel) -> bool:
    """Whether the float32 graph has recurrent layers as one operator each.

    TFLiteConverter quantizes some of them, litert-quantizer none.
    """
    return bool(prepared.operators & STATEFUL)


def _is_open(prepared: PreparedModel) -> bool:
    """Whether a dimension within a sample, or that of a loop's batch, is dynamic."""
    inputs = [spec for part in prepared.parts for spec in part.signature.inputs]
    within = any(-1 in spec.shape[1:] for spec in inputs)
    loops = has_loops(prepared) or has_fused_layers(prepared)
    return within or (loops and any(-1 in spec.shape for spec in inputs))


def _shapes_of_samples(parts: Sequence[Part]) -> dict[str, tuple[int, ...]]:
    """The shapes of the samples, by input, for inputs with dynamic dimensions within a sample."""
    return {
        spec.name: arrays[spec.name].shape[1:]
        if spec.name in part.split.stacked
        else (part.split.batch, *arrays[spec.name].shape[1:])
        for part in parts
        if not part.split.synthetic
        for arrays in [read_samples(part.split.held_back).arrays]
        for spec in part.signature.inputs
        if -1 in spec.shape[spec.name not in part.split.stacked :]
    }
