"""The float32 .tflite of a trained model: TensorFlow's part in a conversion."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeconv.model.tflite import summarize, with_needs_declared, with_scalars
from edgeconv.model.tflite.layers import STATEFUL
from edgeconv.model.tflite.rewriting.exponentials import with_bounded_exponentials
from edgeconv.tf import keras_files, lean
from edgeconv.tf.known import LISTS
from edgeconv.tf.rewrite import Change, freeze_variables, rewrite
from edgeconv.tf.saved_objects import leaves_variables_unread, save_again
from edgeconv.tf.shapes import FixedShapes
from edgeconv.tf.tables import make_tables_known
from edgeconv.tf.training_mode import refuse_training
from edgeconv.types import LadderStep, Opening, SourceKind
from edgeconv.types.errors import (
    ConversionRefused,
    EdgeconvError,
    InputRefused,
    UnsupportedFloats,
    UnsupportedOperators,
)
from edgeconv.types.words import SERVING_DEFAULT

_TF1_VARIABLES = "VariableV2"
# What Keras 3 looks at the sign of -0.0 with, in `ops.argmax`.
_SIGN_BITS = "BitwiseAnd"


class FloatJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert. `signatures` is empty for a Keras file, which has one.

    `opening` and `other_keras` say how to load a Keras file, `fixed`, `fuse` (its LSTM layers) and
    `unroll` what to change in the model first; `select_ops` allows operators that only TensorFlow
    has. Unless `keeps_fused`, recurrent layers that the converter fuses become loops again.
    `target` is the .tflite to write, `exported` where the SavedModel of a Keras file is written, or
    one that was saved again, and `rewritten` where a changed one is.
    """

    path: str
    kind: SourceKind
    opening: Opening = Opening()
    other_keras: bool = False
    signatures: tuple[str, ...]
    fixed: FixedShapes
    fuse: bool = False
    unroll: bool
    keeps_fused: bool = False
    select_ops: bool
    target: str
    exported: str
    rewritten: str


class FloatConversion(msgspec.Struct, frozen=True, kw_only=True):
    """What was converted.

    `trained` is the SavedModel whose outputs are the reference, `read` the one that TensorFlow's
    converter read. `loading` are the attempts at loading where the first failed; otherwise
    `loader` is the Keras that loaded. `narrow`: the trained model computes in coarser floats than
    float32. `can_fuse`: it has recurrent layers that are loops unless they are fused.
    """

    trained: str = ""
    read: str = ""
    signatures: tuple[str, ...]
    loading: tuple[LadderStep, ...] = ()
    loader: str = ""
    narrow: bool = False
    can_fuse: bool = False
    notes: tuple[str, ...] = ()


def to_float(job: FloatJob) -> FloatConversion:
    """Write the float32 .tflite. Runs in a child.

    Raises `InputRefused` for a model that does not load or convert, or that trains when it serves.
    """
    if job.kind == "saved_model":
        changes = job.fixed.fixes or job.unroll
        if not changes:
            lean.import_converter_only()
        graph = _saved(job)
    else:
        graph = _exported(job)
        changes = job.unroll
    refuse_training(graph.trained, graph.signatures, is_keras=job.kind != "saved_model")
    ways: tuple[Change, ...] = ("unrolled",) if job.unroll else ("traced", "inlined")
    try:
        graph, data = _changed(job, graph, ways) if changes else _unchanged(job, graph)
        if not job.keeps_fused and _has_fused(data):
            graph, data = _without_fused(job, graph, data)
    except UnsupportedFloats as error:
        lean.import_the_rest()
        failed = LadderStep(attempt="in the floats it was trained in", failed=error.message)
        graph, data = _changed(job, graph, ways[-1:], in_float32=True)
        graph = msgspec.structs.replace(
            graph,
            narrow=True,
            loading=(*graph.loading[:-1], failed, LadderStep(attempt="computed in float32")),
        )
    except EdgeconvError as error:
        raise error.with_message(
            error.message, error.cause._replace(loader=graph.loader)
        ) from error
    data = with_bounded_exponentials(with_scalars(data))
    Path(job.target).write_bytes(with_needs_declared(data))
    return graph


def _has_fused(data: bytes) -> bool:
    summary = summarize(data, where="the float32 model")
    return any(operator.name in STATEFUL for operator in summary.operators)


def _without_fused(
    job: FloatJob, graph: FloatConversion, data: bytes
) -> tuple[FloatConversion, bytes]:
    """The model with its recurrent layers as loops, which keep no state between invokes.

    As it is where the converter does not take them so.
    """
    lean.import_the_rest()
    try:
        loops, without = _changed(job, graph, ("inlined",))
    except InputRefused:
        return _restored(job, graph), data
    if _has_fused(without):
        return _restored(job, graph), data
    return msgspec.structs.replace(loops, can_fuse=True), without


def _restored(job: FloatJob, graph: FloatConversion) -> FloatConversion:
    """The graph where it was read from a place that another attempt has taken."""
    if graph.read == job.rewritten:
        shutil.rmtree(job.rewritten, ignore_errors=True)
        rewrite(graph.trained, graph.signatures, job.rewritten, fixed=job.fixed, change="traced")
    return graph


def _unchanged(job: FloatJob, graph: FloatConversion) -> tuple[FloatConversion, bytes]:
    """The model as it is and its .tflite, or without what the converter does not take.

    That is the variables of TF1, and sign bits in Keras 3.
    """
    try:
        return _convert(job, graph)
    except UnsupportedOperators as error:
        if _SIGN_BITS not in error.cause.operators:
            raise
        lean.import_the_rest()
        steps = (
            LadderStep(attempt="as it is", failed=error.message),
            LadderStep(attempt="0.0 and -0.0 as one number"),
        )
        loading = (*graph.loading[:-1], *steps)
        return _changed(job, msgspec.structs.replace(graph, loading=loading), ("inlined",))
    except ConversionRefused as error:
        if graph.read != graph.trained:
            # Its layers could not be fused.
            shutil.rmtree(graph.read)
            return _convert(job, msgspec.structs.replace(graph, read=graph.trained))
        if _TF1_VARIABLES not in error.cause.operators:
            raise
        freeze_variables(graph.read, graph.signatures, job.rewritten)
        failed = LadderStep(attempt="as it is", failed=error.message)
        graph = msgspec.structs.replace(
            graph,
            read=job.rewritten,
            loading=(failed, LadderStep(attempt="variables made constants")),
        )
        return _convert(job, graph)


def _changed(
    job: FloatJob, graph: FloatConversion, ways: Sequence[Change], *, in_float32: bool = False
) -> tuple[FloatConversion, bytes]:
    """The changed model and its .tflite.

    Its calls are kept first, by which the converter recognizes a fused recurrent layer. Where
    loops prevent that, they are inlined and their lists get a fixed batch.
    """
    graph = msgspec.structs.replace(graph, read=job.rewritten)
    for way in ways:
        shutil.rmtree(job.rewritten, ignore_errors=True)
        keys, target = graph.signatures, job.rewritten
        rewrite(graph.trained, keys, target, fixed=job.fixed, change=way, in_float32=in_float32)
        try:
            return _convert(job, graph)
        except (ConversionRefused, UnsupportedOperators) as error:
            inlined = LISTS.keys() | {_SIGN_BITS}
            if way == ways[-1] or inlined.isdisjoint(error.cause.operators):
                raise
    raise AssertionError("the last way returned or raised")


def _convert(job: FloatJob, graph: FloatConversion) -> tuple[FloatConversion, bytes]:
    notes = make_tables_known(graph.read, job.rewritten)
    if notes is not None:
        graph = msgspec.structs.replace(
            graph, read=job.rewritten, notes=tuple(dict.fromkeys((*graph.notes, *notes)))
        )
    data = lean.convert_saved_model(
        graph.read, signatures=graph.signatures, tags=("serve",), select_ops=job.select_ops
    )
    return graph, data


def _saved(job: FloatJob) -> FloatConversion:
    """The SavedModel as it is, or as its objects have it."""
    path = job.path
    if leaves_variables_unread(path):
        lean.import_the_rest()
        save_again(path, job.signatures, job.exported)
        path = job.exported
    return FloatConversion(trained=path, read=path, signatures=job.signatures)


def _exported(job: FloatJob) -> FloatConversion:
    loading = keras_files.export(
        job.path,
        job.kind,
        job.exported,
        opening=job.opening,
        fixed=job.fixed,
        other=job.other_keras,
        fused=job.rewritten if job.fuse else "",
    )
    return FloatConversion(
        trained=job.exported,
        read=job.rewritten if Path(job.rewritten).is_dir() else job.exported,
        signatures=(SERVING_DEFAULT,),
        loading=loading if len(loading) > 1 else (),
        loader=loading[0].attempt if len(loading) == 1 else "",
        can_fuse=loading[-1].attempt == "keras" and keras_files.has_lstm(job.path),
    )
