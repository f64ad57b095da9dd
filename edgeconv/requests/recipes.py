"""Names of recipes, rules for layers and options to `Recipe` values."""

from collections.abc import Sequence
from typing import get_args

from edgeconv.types import (
    CALIBRATED,
    EVERY_RECIPE,
    FULL_INTEGER,
    QAT,
    RECIPE_NAMES,
    CalibrationRange,
    Engine,
    IoType,
    LayerRule,
    Methods,
    PostTrainingMethod,
    Precision,
    Qat,
    Recipe,
    RecipeName,
)
from edgeconv.types.errors import UsageError, unknown_name

# The lowest signal-to-noise ratio of an output that is published, in decibels. Only float32 has
# one: it computes the same as the trained model, and anything less is a fault and not rounding.
MIN_SNR_DB: dict[RecipeName, float] = {"float32": 60.0}
_IO_TYPES: dict[RecipeName, tuple[IoType, ...]] = {
    "int8": ("float32", "int8", "uint8"),
    "int16x8": ("float32", "int16"),
    "int8x4": ("float32", "int8", "uint8"),
    "qat": ("float32", "int8", "uint8"),
}
# Recipes in which some layers may have another precision, and recipes that have methods.
_RULED: frozenset[RecipeName] = frozenset(EVERY_RECIPE) - {"float32", QAT}
_QUANTIZED: frozenset[RecipeName] = _RULED - {"float16"}


def recipe_names(names: Sequence[str]) -> tuple[RecipeName, ...]:
    """The named recipes, each once, in the order of `EVERY_RECIPE`.

    `all` means `RECIPE_NAMES`. Raises `UsageError` for an unknown name, or none.
    """
    unique = {name.strip() for name in names if name.strip()}
    for name in sorted(unique):
        if name not in (*EVERY_RECIPE, "all"):
            raise unknown_name("recipe", name, (*EVERY_RECIPE, "all"))
    if not unique:
        raise UsageError("no recipe given", hint=f"--to {','.join(EVERY_RECIPE)} or all")
    if "all" in unique:
        unique |= set(RECIPE_NAMES)
    return tuple(name for name in EVERY_RECIPE if name in unique)


def make_recipes(
    names: Sequence[str],
    *,
    engine: Engine = "auto",
    calibration_range: CalibrationRange | None = None,
    input_type: IoType = "float32",
    output_type: IoType = "float32",
    full_integer: bool = False,
    min_snr_db: float | None = None,
    methods: Sequence[str] | None = None,
    layers: Sequence[LayerRule] = (),
    qat: Qat | None = None,
) -> tuple[Recipe, ...]:
    """The recipes for these options. Raises `UsageError` where an option cannot be met.

    `input_type`, `output_type` and `full_integer` are for the full-integer recipes; the others have
    float inputs and outputs. `full_integer` refuses operators in float, as integer inputs or
    outputs do. `calibration_range` of None takes auto where the methods are auto, else minmax.
    `min_snr_db` of None takes `MIN_SNR_DB`. `methods` are for the recipes that
    quantize, see `method_names`; None takes auto. `qat` is how the recipe of that name trains,
    None: as `Qat` does by default.
    """
    chosen = recipe_names(names)
    named = None if methods is None else method_names(methods)
    _refuse_methods(chosen, named or (), layers, calibration_range)
    if calibration_range is None:
        calibration_range = default_range(("auto",) if named is None else named)
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
            only_integers=name in FULL_INTEGER
            and (full_integer or {input_type, output_type} != {"float32"}),
            min_snr_db=MIN_SNR_DB.get(name) if min_snr_db is None else min_snr_db,
            methods=_methods_of(name, named),
            layers=tuple(layers) if name in _RULED else (),
            qat=(qat or Qat()) if name == QAT else None,
        )
        for name in chosen
    )


def default_range(methods: Methods) -> CalibrationRange:
    """How the ranges are found with these methods unless somebody says it."""
    return "auto" if methods == ("auto",) else "minmax"


def method_names(names: Sequence[str]) -> Methods:
    """The named methods, each once, in the order in which they act.

    `none` and `auto` are given alone. Raises `UsageError`.
    """
    every: tuple[PostTrainingMethod, ...] = get_args(PostTrainingMethod)
    unique = {name.strip() for name in names if name.strip()}
    for name in sorted(unique):
        if name not in (*every, "auto", "none"):
            raise unknown_name("method", name, (*every, "auto", "none"))
    for alone in ("none", "auto"):
        if alone in unique and len(unique) > 1:
            raise UsageError(f"--methods {','.join(sorted(unique))}: {alone} stands alone")
    if not unique:
        raise UsageError("no method given", hint=f"--methods auto, none, or {', '.join(every)}")
    return ("auto",) if "auto" in unique else tuple(name for name in every if name in unique)


def parse_rule(text: str) -> LayerRule:
    """A rule from `PATTERN=PRECISION`. Raises `UsageError`."""
    pattern, equals, precision = text.rpartition("=")
    if not (pattern and equals):
        raise UsageError(
            f"--layer {text}: not of the form PATTERN=PRECISION",
            hint="as in --layer 'DEPTHWISE_CONV_2D=int8' or --layer '*/logits/*=float32'",
        )
    if precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))
    return LayerRule(pattern=pattern, precision=precision)  # type: ignore[arg-type]


def _methods_of(name: RecipeName, named: Methods | None) -> Methods:
    if name not in _QUANTIZED:
        return ()
    return ("auto",) if named is None else named


def _refuse_methods(
    names: Sequence[RecipeName],
    methods: Methods,
    layers: Sequence[LayerRule],
    calibration_range: CalibrationRange | None,
) -> None:
    recipes = ", ".join(names)
    if methods and not _QUANTIZED.intersection(names):
        raise UsageError(f"--methods is for recipes that quantize, and {recipes} do not")
    if layers and not _RULED.intersection(names):
        raise UsageError(f"--layer is for post-training recipes, and --to names only {recipes}")
    if calibration_range not in (None, "minmax") and not CALIBRATED.intersection(names):
        raise UsageError(
            f"--calibration-range {calibration_range}: {recipes} have no ranges of activations",
            hint=f"it is for {', '.join(sorted(CALIBRATED))}",
        )


def refuse_qat(qat: Qat, names: Sequence[RecipeName]) -> None:
    """Raise `UsageError` for settings that nothing asks for, or that exclude each other."""
    if QAT not in names:
        raise UsageError(
            f"options of quantization-aware training, and --to names only {', '.join(names)}",
            hint="add qat to --to, or remove them",
        )
    if qat.patience is not None and not qat.validation_fraction:
        raise UsageError("--qat-patience needs samples to validate with")


def _refuse_io(names: Sequence[RecipeName], input_type: IoType, output_type: IoType) -> None:
    integer = [name for name in names if name in FULL_INTEGER]
    types = {input_type, output_type} - {"float32"}
    if types and not integer:
        raise UsageError(
            f"--io {'/'.join(sorted(types))} needs a full-integer recipe: {', '.join(names)} "
            "have float inputs and outputs",
            hint="add int8 to --to, or remove --io",
        )
    for name in integer:
        for io_type in (input_type, output_type):
            if io_type not in _IO_TYPES[name]:
                raise UsageError(
                    f"recipe {name} cannot have {io_type} inputs or outputs",
                    hint=f"--io for {name}: {', '.join(_IO_TYPES[name])}; convert recipes that "
                    "need different types in two runs",
                )
