"""Which signatures of a model are converted, once it was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.model import source
from edgeconv.types.errors import UsageError, unknown_name
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edgeconv.conversion.plan import Plan
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Signature, SourceModel

ALL_SIGNATURES = "all"


def resolve(plan: Plan) -> tuple[Signature, ...]:
    """The signatures to convert; none for a Keras file, which has its one once it is loaded.

    The scan has admitted the model. Raises `InputRefused` for a model that cannot be converted,
    `UsageError` where the signature must be chosen, or for options that this kind of model does not
    have.
    """
    # What is to be run was allowed when the plan was made.
    model = source.load_to_run(plan.model.path, plan.model.opening, allow_code=True)
    request = plan.request
    if model.kind == "tflite":
        source.refuse_quantized(model)
        _refuse_tflite_options(plan)
    if model.kind in ("saved_model", "tflite"):
        return _chosen(model, request)
    if set(request.signature) - {SERVING_DEFAULT, ALL_SIGNATURES}:
        raise UsageError(
            f"--signature {' '.join(request.signature)}: "
            f"a Keras file has one signature, {SERVING_DEFAULT}",
            hint="remove --signature",
        )
    _refuse_unknown_keys(request.sources, [SERVING_DEFAULT])
    if request.shapes and (known := declared_signatures(plan)):
        _refuse_unknown_inputs(request.shapes, known)
    return ()


def declared_signatures(plan: Plan) -> tuple[Signature, ...]:
    """The signature that a Keras file's config declares; () where it does not tell, or elsewhere.

    Raises `InputRefused` as `model.source.keras_file_signature` does.
    """
    signature = source.keras_file_signature(plan.model.path)
    return (signature,) if signature else ()


def _chosen(model: SourceModel, request: ConvertRequest) -> tuple[Signature, ...]:
    keys: Sequence[str | None] = request.signature or (None,)
    if ALL_SIGNATURES in keys and not any(s.key == ALL_SIGNATURES for s in model.signatures):
        keys = [signature.key for signature in source.distinct_signatures(model)]
    chosen = {
        signature.key: signature
        for signature in (source.chosen_signature(model, key) for key in keys)
    }
    _refuse_unknown_keys(request.sources, list(chosen))
    _refuse_unknown_inputs(request.shapes, chosen.values())
    return tuple(chosen.values())


def _refuse_unknown_keys(calibration: Mapping[str, object], keys: Sequence[str]) -> None:
    for key in calibration:
        if key and key not in keys:
            raise unknown_name("signature in --calibration", key, keys)


def _refuse_unknown_inputs(shapes: Mapping[str, object], signatures: Iterable[Signature]) -> None:
    names = {spec.name for signature in signatures for spec in signature.inputs}
    for name in shapes:
        if name not in names:
            raise unknown_name("input in --shape", name, names)


def _refuse_tflite_options(plan: Plan) -> None:
    request = plan.request
    if request.batch is not None or request.shapes:
        option = "--shape" if request.batch is None else "--batch"
        raise UsageError(
            f"{option}: a .tflite cannot be given other shapes without the model it came from",
            hint="convert the SavedModel or the Keras file",
        )
    if any(recipe.engine == "tflite" and not recipe.full_integer for recipe in plan.recipes):
        raise UsageError(
            "--engine tflite: TFLiteConverter makes only int8 and int16x8 from a .tflite",
            hint="remove --engine, or convert the SavedModel or the Keras file",
        )
