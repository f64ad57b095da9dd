"""What can be verified of a file before it is run: operators, types, scales, weights."""

import math
from collections.abc import Mapping, Sequence

from edgeconv.conversion.candidate import Candidate, CandidateGraph
from edgeconv.model.tflite import clipped_biases, float_layers, largest_scales, summarize
from edgeconv.model.tflite.kernels import KERNELS, IntegerType
from edgeconv.model.tflite.layers import STATEFUL, FloatsLeft, floats_left
from edgeconv.model.tflite.operators import RUN_GRAPHS, float_groups
from edgeconv.model.tflite.summary import rounded_indices
from edgeconv.quantize.rules import unruled_floats
from edgeconv.types import GraphSummary, Recipe, Signature, TensorSpec
from edgeconv.types.errors import Cause, InputRefused, VerificationFailed
from edgeconv.types.words import listed, quoted

# Beyond this a scale cannot come from real activations: calibration on 1e38 gives 4e35.
_MAX_SCALE = 1e12
# TFLiteConverter leaves a tensor of fewer than 1,024 numbers in float32, as not worth it.
_FEW_WEIGHT_BYTES = 4 * 1024
LOOK_AT_NUMBERS = "look at the model's weights, and at the samples: are they scaled as in training?"
_MOST = 0.5
_STORED = {"weight-only-int4": "int4 or int8"}
_WEIGHTS_ONLY = frozenset({"dynamic", "weight-only-int8", "weight-only-int4"})
# What a stateful layer or a `tf.Variable` that the model changes becomes.
_ASSIGN = "ASSIGN_VARIABLE"
# TFLiteConverter leaves weights of fewer numbers as they are.
_TFLITE_LEAST = 1024
_NAMED_LAYERS = 3
_ANOTHER_FORM = RUN_GRAPHS | STATEFUL


def verify_graph(candidate: Candidate, keys: Sequence[str]) -> CandidateGraph:
    """What can be said of the candidate's file before it is run.

    Raises `VerificationFailed`, see `verify_signature` and `refuse_floats`; and where nothing was
    quantized, and something could be.
    """
    content = candidate.file.read_bytes()
    try:
        summary = summarize(content, where=candidate.recipe.name)
    except InputRefused as error:
        raise VerificationFailed(
            f"the quantizer wrote a malformed file: {error.message}"
        ) from error
    refuse_senseless_scales(candidate.recipe, largest_scales(content))
    if clipped := clipped_biases(content):
        raise VerificationFailed(
            f"{candidate.recipe.name}: biases do not fit their integer type, and were clipped: "
            f"{listed(clipped, _NAMED_LAYERS)}"
        )
    unruled = unruled_floats(candidate.recipe, float_groups(content, candidate.float_outputs))
    if candidate.recipe.only_integers:
        refuse_floats(candidate.recipe, unruled)
    by_key = {signature.key: signature for signature in summary.signatures}
    warnings: dict[str, None] = {}
    for key in keys:
        if key not in by_key:
            raise VerificationFailed(
                f"{candidate.recipe.name}: the signature {key!r} is missing in the file"
            )
        warnings |= dict.fromkeys(verify_signature(candidate.recipe, summary, by_key[key]))
        refuse_rounded_indices(candidate.recipe, rounded_indices(content, key))
    if not converted_share(candidate.recipe, summary):
        warnings |= dict.fromkeys(_refuse_untouched(candidate, content))
    floats = FloatsLeft()
    if candidate.recipe.full_integer:
        integers: IntegerType = "int16" if candidate.recipe.name == "int16x8" else "int8"
        floats = floats_left(content, candidate.float_outputs, integers)
    signatures = tuple(by_key[key] for key in keys)
    return CandidateGraph(summary, signatures, tuple(warnings), floats, unruled)


def _refuse_untouched(candidate: Candidate, content: bytes) -> tuple[str, ...]:
    """Raise `VerificationFailed` for weights that the recipe has a kernel for, if none became so.

    Returns a warning where TFLiteConverter left all of them for being few.
    """
    recipe = candidate.recipe
    # The weights that a rule keeps, and those of products of matrices in float16, are to stay.
    able = [
        layer
        for layer in float_layers(content)
        if layer.compressible
        and layer.name not in candidate.float_outputs
        and not (layer.operator == "BATCH_MATMUL" and recipe.name == "float16")
    ]
    if not able:
        return ()
    able.sort(key=lambda layer: -layer.compressible)
    layers = listed(
        (f"{layer.operator} {layer.name!r} ({layer.compressible:,} weights)" for layer in able),
        _NAMED_LAYERS,
    )
    if candidate.engine == "tflite" and able[0].compressible < _TFLITE_LEAST:
        few = f"fewer than {_TFLITE_LEAST:,} weights"
        return (
            f"TFLiteConverter quantizes no layer of {few}, and all layers are that small: {layers}",
        )
    raise VerificationFailed(
        f"{recipe.name}: nothing was quantized, though the recipe has kernels for {layers}",
        hint="convert the float32 model that the file was made from, or remove the recipe",
    )


def verify_signature(
    recipe: Recipe, summary: GraphSummary, signature: Signature
) -> tuple[str, ...]:
    """Verify the graph by the recipe; returns warnings.

    Raises `VerificationFailed` for I/O types other than the recipe's, for scales that make no
    sense, and where no weight of an integer model was quantized.
    """
    _check_io(recipe, signature)
    _check_scales((*signature.inputs, *signature.outputs))
    return (
        *_nothing_quantized(recipe, summary),
        *_keeps_state(summary),
        *_kept_strings(recipe, signature),
    )


def _check_io(recipe: Recipe, signature: Signature) -> None:
    for tensors, wanted_type in (
        (signature.inputs, recipe.input_type),
        (signature.outputs, recipe.output_type),
    ):
        for tensor in tensors:
            # Token ids, for one, stay integers in every recipe: there is no float to keep.
            is_value = tensor.dtype == "float32" or bool(tensor.scale)
            if is_value and tensor.dtype != wanted_type:
                raise VerificationFailed(
                    f"{recipe.name}: tensor {tensor.name!r} is {tensor.dtype}, not {wanted_type}"
                )


def _check_scales(tensors: tuple[TensorSpec, ...]) -> None:
    for tensor in tensors:
        for scale in tensor.scale:
            if not (math.isfinite(scale) and 0 < scale <= _MAX_SCALE):
                raise VerificationFailed(
                    f"tensor {tensor.name!r} has the scale {scale:g}, which makes no sense",
                    hint=LOOK_AT_NUMBERS,
                )


def refuse_senseless_scales(recipe: Recipe, scales: Mapping[str, float]) -> None:
    """Raise `VerificationFailed` for a scale (the largest of each tensor) of no real activation."""
    for name, scale in scales.items():
        if not scale <= _MAX_SCALE:
            raise VerificationFailed(
                f"{recipe.name}: tensor {name!r} has the scale {scale:g}, which makes no sense",
                hint=LOOK_AT_NUMBERS,
            )


def refuse_rounded_indices(recipe: Recipe, names: Sequence[str]) -> None:
    """Raise `VerificationFailed` for integer inputs that round the indices they are given."""
    if names:
        raise VerificationFailed(
            f"{recipe.name}: the model takes {quoted(names)} as indices, such as ids of words, and "
            f"an {recipe.input_type} input rounds them",
            hint="leave --io out, or give the model an int32 input, which stays one in each recipe",
        )


def refuse_floats(recipe: Recipe, left: Sequence[str]) -> None:
    """Raise `VerificationFailed` for operators that compute in float, `unruled_floats`."""
    if left:
        raise left_in_float(recipe, left)


def left_in_float(recipe: Recipe, left: Sequence[str]) -> VerificationFailed:
    """The error for operators that compute in float."""
    option = "--full-integer" if recipe.input_type == recipe.output_type == "float32" else "--io"
    return VerificationFailed(
        f"{recipe.name}: these operators compute in float: {', '.join(left)}",
        hint=f"leave out {option}, then they stay in float, or convert to dynamic instead"
        + _others_for(left),
        cause=Cause(operators=tuple(left)),
    )


def are_curable(left: Sequence[str]) -> bool:
    """Whether another form of the model, or the other engine, may compute operators in integers.

    Not those that nothing computes in integers: a loop may be unrolled, and a recurrent layer is
    quantized as one by TFLiteConverter alone.
    """
    return any(
        not KERNELS[name].stays_float if name in KERNELS else name in _ANOTHER_FORM for name in left
    )


def _others_for(operators: Sequence[str]) -> str:
    """What to write in the model for operators that have no integer kernel; "" for none known."""
    kernels = ((name, KERNELS[name]) for name in operators if name in KERNELS)
    others = [f"{k.instead} for {name}" for name, k in kernels if k.instead and not k.stays_float]
    return f"; or write in the model {listed(others, _NAMED_LAYERS)}" if others else ""


def converted_share(recipe: Recipe, summary: GraphSummary) -> float:
    """The fraction of the weights that are stored as the recipe says; 1 for float32."""
    if recipe.name == "float32":
        return 1.0
    is_float16 = recipe.name == "float16"
    return summary.float16_weight_share if is_float16 else summary.quantized_weight_share


def is_mostly_float(recipe: Recipe, summary: GraphSummary) -> bool:
    """Whether most of the weights of a model that has some were left as they are."""
    enough = summary.weight_bytes > _FEW_WEIGHT_BYTES
    return not recipe.full_integer and enough and converted_share(recipe, summary) < _MOST


def _nothing_quantized(recipe: Recipe, summary: GraphSummary) -> tuple[str, ...]:
    if recipe.name in _WEIGHTS_ONLY and not summary.quantized_weight_share:
        return (f"nothing was quantized: this {recipe.name} model is the float32 model",)
    if recipe.name == "float16" and not summary.float16_weight_share:
        return ("nothing became float16: this model is the float32 model",)
    if is_mostly_float(recipe, summary):
        share = converted_share(recipe, summary)
        kind = "float16" if recipe.name == "float16" else _STORED.get(recipe.name, "int8")
        return (f"only {share:.1%} of the weights became {kind}; the others stay float32",)
    # Constants of elementwise operators become int16 in an int16x8 model, which do not count.
    left_float = summary.weight_bytes and summary.float_operators
    if recipe.full_integer and left_float and not summary.quantized_weight_share:
        raise VerificationFailed(
            f"{recipe.name}: no weight was quantized",
            hint="none of the model's operators can be quantized; convert to float32 or float16",
        )
    return ()


def _keeps_state(summary: GraphSummary) -> tuple[str, ...]:
    names = {operator.name for operator in summary.operators}
    stateful = sorted(names & {*STATEFUL, _ASSIGN})
    if not stateful:
        return ()
    return (
        f"{', '.join(stateful)} keeps its state between invokes: reset the interpreter's "
        "variables before each new input",
    )


def _kept_strings(recipe: Recipe, signature: Signature) -> tuple[str, ...]:
    """Notes on strings where the recipe has integer inputs or outputs."""
    return tuple(
        f"{side} {tensor.name!r} holds strings, which --io {io_type} leaves as they are"
        for side, tensors, io_type in (
            ("input", signature.inputs, recipe.input_type),
            ("output", signature.outputs, recipe.output_type),
        )
        for tensor in tensors
        if tensor.dtype == "string" and io_type != "float32"
    )
