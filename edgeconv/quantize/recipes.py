"""Recipe names to `Recipe` values, and a `Recipe` to ai-edge-quantizer's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import UsageError, unknown_name
from edgeconv.nouns import (
    CALIBRATED,
    FULL_INTEGER,
    QAT,
    RECIPE_NAMES,
    CalibrationRange,
    Engine,
    IoType,
    Qat,
    Recipe,
    RecipeName,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# The lowest signal-to-noise ratio of an output, in decibels, that is published. Below
# about 6 dB the error is half as large as what the output says; a float16 weight
# carries 11 bits, so anything under 30 dB there is a fault and not rounding.
MIN_SNR_DB: dict[RecipeName, float] = {
    "float32": 60.0,
    "float16": 30.0,
    "dynamic": 6.0,
    "weight-only-int8": 6.0,
    "int8": 6.0,
    "int16x8": 6.0,
    "qat": 6.0,
}
_IO_TYPES: dict[RecipeName, tuple[IoType, ...]] = {
    "int8": ("float32", "int8", "uint8"),
    "int16x8": ("float32", "int16"),
    "qat": ("float32", "int8", "uint8"),
}
# One is a layer that computes nothing.
_LEAST_CLUSTERS = 2
_FLOAT16_OPERATORS = (
    "FULLY_CONNECTED",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "CONV_2D_TRANSPOSE",
    "EMBEDDING_LOOKUP",
)


def recipe_names(names: Sequence[str]) -> tuple[RecipeName, ...]:
    """The recipes asked for, each once, in the order of `RECIPE_NAMES`, and qat after them.

    `all` stands for every one but qat, which trains. Raises `UsageError` for an unknown name, or
    none.
    """
    asked = {name.strip() for name in names if name.strip()}
    for name in sorted(asked):
        if name not in (*RECIPE_NAMES, QAT, "all"):
            raise unknown_name("recipe", name, (*RECIPE_NAMES, QAT, "all"))
    if not asked:
        raise UsageError("no recipe given", hint=f"--to {','.join(RECIPE_NAMES)}, qat or all")
    trained: tuple[RecipeName, ...] = (QAT,) if QAT in asked else ()
    return (*(name for name in RECIPE_NAMES if name in asked or "all" in asked), *trained)


def make_recipes(
    names: Sequence[str],
    *,
    engine: Engine = "auto",
    calibration_range: CalibrationRange = "minmax",
    input_type: IoType = "float32",
    output_type: IoType = "float32",
    allow_float: Sequence[str] = (),
    min_snr_db: float | None = None,
    qat: Qat | None = None,
) -> tuple[Recipe, ...]:
    """The recipes for what was asked. Raises `UsageError` where an option cannot be met.

    `input_type`, `output_type` and `allow_float` are for the full-integer recipes; the
    others have float inputs and outputs. `min_snr_db` of None takes `MIN_SNR_DB`. `qat` is how
    the recipe of that name trains, None: as `Qat` does by default.
    """
    chosen = recipe_names(names)
    if qat is not None:
        refuse_qat(qat, chosen)
    _refuse_io(chosen, input_type, output_type)
    return tuple(
        Recipe(
            name=name,
            engine=engine,
            calibration_range=calibration_range if name in CALIBRATED else "minmax",
            input_type=input_type if name in FULL_INTEGER else "float32",
            output_type=output_type if name in FULL_INTEGER else "float32",
            allow_float=tuple(sorted(allow_float)) if name in FULL_INTEGER else (),
            min_snr_db=MIN_SNR_DB[name] if min_snr_db is None else min_snr_db,
            qat=(qat or Qat()) if name == QAT else None,
        )
        for name in chosen
    )


def refuse_qat(qat: Qat, names: Sequence[RecipeName]) -> None:
    """Raise `UsageError` for settings that cannot be, or that nothing asks for."""
    if QAT not in names:
        raise UsageError(
            f"options of quantisation-aware training, and only {', '.join(names)} are asked for",
            hint="add qat to --to, or leave them away",
        )
    counts = {
        "--qat-epochs": qat.epochs,
        "--qat-fine-tune-epochs": qat.fine_tune_epochs,
        "--qat-batch": qat.global_batch,
        "--qat-patience": 1 if qat.patience is None else qat.patience,
    }
    for option, count in counts.items():
        if count < 1:
            raise UsageError(f"{option} {count}: at least 1 is needed")
    if not 0 < qat.learning_rate < float("inf"):
        raise UsageError(f"--qat-learning-rate {qat.learning_rate:g}: a number above 0 is needed")
    if qat.warmup_steps < 0 or (qat.freeze_batch_norm_after or 0) < 0:
        raise UsageError("a number of warm-up steps or epochs below 0")
    if not 0 <= qat.validation_fraction < 1:
        raise UsageError(f"--qat-validation-fraction {qat.validation_fraction:g} is not in 0 to 1")
    if qat.patience is not None and not qat.validation_fraction:
        raise UsageError("--qat-patience needs samples to validate with")
    if qat.prune is not None and not 0 < qat.prune < 1:
        raise UsageError(f"--prune {qat.prune:g}: a share of zeros above 0 and below 1 is needed")
    asynchronous = qat.distribution.strategy == "parameter-server"
    if asynchronous and (qat.prune is not None or qat.cluster is not None):
        raise UsageError(
            "--prune and --cluster act after each step, and --strategy parameter-server has no "
            "common ones",
            hint="choose --strategy multiworker or mirrored",
        )
    if qat.cluster is not None and qat.cluster < _LEAST_CLUSTERS:
        raise UsageError(f"--cluster {qat.cluster}: at least {_LEAST_CLUSTERS} are needed")


def _refuse_io(names: Sequence[RecipeName], input_type: IoType, output_type: IoType) -> None:
    integer = [name for name in names if name in FULL_INTEGER]
    asked = {input_type, output_type} - {"float32"}
    if asked and not integer:
        raise UsageError(
            f"--io {'/'.join(sorted(asked))} needs a full-integer recipe: {', '.join(names)} "
            "have float inputs and outputs",
            hint="add int8 to --to, or leave --io away",
        )
    for name in integer:
        for io_type in (input_type, output_type):
            if io_type not in _IO_TYPES[name]:
                raise UsageError(
                    f"recipe {name} cannot have {io_type} inputs or outputs",
                    hint=f"--io for {name}: {', '.join(_IO_TYPES[name])}; convert recipes that "
                    "need different types in two runs",
                )


def quantizer_recipe(recipe: Recipe, *, dense_per_tensor: bool = False) -> list[dict[str, Any]]:
    """The configuration that makes ai-edge-quantizer follow `recipe`.

    A full-integer recipe keeps the boundary integer where an integer type is asked for;
    uint8 is made from int8 afterwards, since the quantiser does not know it.
    `dense_per_tensor` gives the weights of FULLY_CONNECTED one scale instead of one a
    channel, which older runtimes do not have; a float16 recipe has no scales.
    """
    from ai_edge_quantizer import algorithm_manager, qtyping, recipe_manager

    manager = recipe_manager.RecipeManager()
    if recipe.name == "float16":
        _add_float16(manager)
        return _entries(manager)
    _add_int8_weights(manager, recipe, "ALL_SUPPORTED", "CHANNELWISE")
    if dense_per_tensor:
        # What is added later holds for the operators that it names.
        _add_int8_weights(manager, recipe, "FULLY_CONNECTED", "TENSORWISE")
    if recipe.full_integer:
        unquantized = algorithm_manager.AlgorithmName.NO_QUANTIZE
        for operation, io_type in (("INPUT", recipe.input_type), ("OUTPUT", recipe.output_type)):
            if io_type == "float32":
                manager.add_quantization_config(
                    ".*", qtyping.TFLOperationName[operation], algorithm_key=unquantized
                )
    return _entries(manager)


def _entries(manager: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = manager.get_quantization_recipe()
    return entries


def _add_int8_weights(manager: Any, recipe: Recipe, operation: str, granularity: str) -> None:
    from ai_edge_quantizer import qtyping

    name = qtyping.TFLOperationName[operation]
    scales = qtyping.QuantGranularity[granularity]
    if recipe.name == "dynamic":
        manager.add_dynamic_config(".*", name, 8, granularity=scales)
    elif recipe.name == "weight-only-int8":
        manager.add_weight_only_config(".*", name, 8, granularity=scales)
    else:
        manager.add_static_config(
            ".*",
            name,
            activation_num_bits=8 if recipe.name == "int8" else 16,
            weight_num_bits=8,
            weight_granularity=scales,
        )


def _add_float16(manager: Any) -> None:
    from ai_edge_quantizer import algorithm_manager, qtyping

    for name in _FLOAT16_OPERATORS:
        manager.add_weight_only_config(
            ".*",
            qtyping.TFLOperationName[name],
            16,
            granularity=qtyping.QuantGranularity.TENSORWISE,
            algorithm_key=algorithm_manager.AlgorithmName.FLOAT_CASTING,
        )
