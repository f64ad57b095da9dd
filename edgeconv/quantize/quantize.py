"""One quantized file from a float graph: methods on the graph, the quantizer, methods on layers.

The quantizer is litert-quantizer; its configuration follows from a `Recipe` and its rules.
"""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite import (
    FloatLayer,
    clipped_biases,
    with_asymmetric_inputs,
    with_fitting_biases,
    with_half_biases,
    with_integer_kernels,
    with_rows_of_weights,
    with_small_lstms,
    with_small_tables,
    with_sound_blocks,
    with_tables_once,
    with_uint8_io,
    with_weights_inside,
)
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, read, text
from edgeconv.model.tflite.layers import COMPRESSIBLE, SmallWeights
from edgeconv.quantize.ranges.clipping import MIN_SAMPLES as RANGE_SAMPLES
from edgeconv.quantize.refine.refining import MIN_SAMPLES, Method, RefinedModel, refine_layers
from edgeconv.quantize.refine.simulating import rounded_weights, with_weights_of
from edgeconv.quantize.rules import (
    BLOCKS,
    RuledLayer,
    float_outputs,
    kept_layers,
    rule_notes,
    ruled_layers,
    small_layers,
    weight_bits,
)
from edgeconv.quantize.states import with_fed_ranges
from edgeconv.system.processes.failures import is_called_back
from edgeconv.system.store import quantizer_module
from edgeconv.types import CalibrationRange, PostTrainingMethod, Precision, Recipe, RecipeName
from edgeconv.types.errors import ToolFailed, UsageError
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from edgeconv.model.tflite.stored_once import TableType
    from edgeconv.quantize.calibrate import CalibratedGraph

# All exceptions observed from the quantizer and from the runtime that it calibrates with.
_ENGINE_ERRORS = (ValueError, RuntimeError, TypeError, KeyError, IndexError, AttributeError)
_EVERYTHING = ".*"
# The same, spelled differently: an entry under an expression that the quantizer already has keeps
# its old position, and the last entry that matches wins.
_ENDS = "^.*"
_FLOAT16_OPERATORS = (
    "FULLY_CONNECTED",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "CONV_2D_TRANSPOSE",
    "EMBEDDING_LOOKUP",
)


# Their activations are floats, or nearly, and their weights are the first recipe's.
_WEIGHT_ONLY = Recipe(name="weight-only-int8")
_LOSES_BY_WEIGHTS = frozenset({"weight-only-int8", "dynamic", "int16x8", "weight-only-int4"})


# What the weights of a fused LSTM become, which litert-quantizer leaves in float32.
# Its kernels have no weights of 4 bits.
_LSTM_WEIGHTS: dict[RecipeName, SmallWeights] = {
    "dynamic": "int8",
    "float16": "float16",
    "weight-only-int8": "weight-only-int8",
    "weight-only-int4": "weight-only-int8",
}


# What tables become that nothing but a GATHER reads: it leaves them in float32, too.
_TABLES: dict[RecipeName, TableType] = {"float16": "float16"}


class MethodSettings(NamedTuple):
    """The ranges and the methods of one file."""

    calibration_range: CalibrationRange
    methods: tuple[PostTrainingMethod, ...]


class QuantizedModel(NamedTuple):
    """A quantized file, what a user should know of it, and what a rule leaves in float.

    `four_bit` names the layers whose weights have 4 bits, `eight_bit` those that a recipe of 4 bits
    keeps at 8, and `float_outputs` the tensors of the layers that a rule leaves in float.
    """

    model: bytes
    notes: tuple[str, ...] = ()
    four_bit: tuple[str, ...] = ()
    eight_bit: tuple[str, ...] = ()
    float_outputs: tuple[str, ...] = ()


def make_file(
    graph: CalibratedGraph,
    recipe: Recipe,
    setting: MethodSettings,
    *,
    dense_per_tensor: bool = False,
) -> QuantizedModel:
    """The file that `recipe` gives with this setting.

    Methods for layers act on the file that TFLiteConverter made, where `graph` has one. Raises
    `ToolFailed` with the quantizer's reason, `UsageError` for rules that do not fit the graph and
    for fewer samples than a method needs.
    """
    _refuse_few_samples(graph, recipe, setting)
    before = graph.layers
    graph, notes = graph.with_kernels_for(recipe)
    kept = kept_layers(graph.layers, recipe, len(graph.model))
    if "equalization" in setting.methods:
        graph, more = graph.equalized
        notes += more
    ruled = ruled_layers(graph.layers, recipe, before)
    notes += rule_notes(graph.layers, recipe)
    small = small_layers(graph.layers, recipe, ruled, len(graph.model))
    every = ruled | {each.layer.name: each for each in small}
    if graph.quantized is None:
        model, more = _quantized(graph, recipe, setting, every.values(), dense_per_tensor)
        notes += more
    else:
        model = graph.quantized
        if setting.methods:
            notes += graph.equalized[1]
    layerwise = frozenset(method for method in setting.methods if method != "equalization")
    bits_by_layer = weight_bits(graph.layers, recipe, every, kept)
    four_bit = tuple(name for name, layer in ruled.items() if layer.precision == BLOCKS)
    if layerwise or bits_by_layer:
        refined = _refined(
            graph,
            recipe,
            model,
            layerwise,
            bits_by_layer,
            dense_per_tensor,
            small=small,
            is_ruled=bool(ruled),
        )
        model, notes = refined.model, notes + refined.notes
        if refined.layers:
            four_bit = tuple(layer.name for layer in refined.layers if layer.bits == 4)
        _refuse_nothing_done(recipe, layerwise, bits_by_layer, refined)
    floats = float_outputs(graph.layers, recipe)
    if recipe.full_integer:
        model = with_rows_of_weights(model)
    else:
        model = with_tables_once(model, floats)
        if graph.quantized is None:
            model = with_small_tables(model, _TABLES.get(recipe.name, "int8"), floats)
    if recipe.name == "dynamic":
        model = with_asymmetric_inputs(model)
    short = {layer.name: layer.short_name for layer in graph.layers}
    return QuantizedModel(
        model=model if graph.quantized is not None else _with_io(model, recipe),
        notes=notes,
        four_bit=tuple(short.get(name, name) for name in four_bit),
        eight_bit=tuple(short.get(name, name) for name in kept if name not in every),
        float_outputs=floats,
    )


def _quantized(
    graph: CalibratedGraph,
    recipe: Recipe,
    setting: MethodSettings,
    ruled: Collection[RuledLayer],
    dense_per_tensor: bool,
) -> tuple[bytes, tuple[str, ...]]:
    """The file of litert-quantizer, with its ranges from the graph's samples, and notes."""
    bits = 16 if recipe.name == "int16x8" else 8
    fitted = graph.fitted(setting.calibration_range, bits=bits) if recipe.has_ranges else None
    ranges = None if fitted is None else fitted.ranges

    def quantized_by(ranges: dict[str, Any] | None) -> tuple[bytes, tuple[str, ...]]:
        return quantize_model(graph.model, recipe, ranges, ruled, dense_per_tensor=dense_per_tensor)

    model, notes = quantized_by(ranges)
    if ranges is not None and graph.states:
        fed = with_fed_ranges(graph.model, model, ranges, graph.states)
        model, notes = (model, notes) if fed is None else quantized_by(fed)
    return model, notes if fitted is None else fitted.notes + notes


def _refined(
    graph: CalibratedGraph,
    recipe: Recipe,
    model: bytes,
    methods: frozenset[Method],
    bits: Mapping[str, int],
    dense_per_tensor: bool,
    *,
    small: tuple[RuledLayer, ...],
    is_ruled: bool,
) -> RefinedModel:
    """`model` after the pass over layers.

    One pass, that of the weight-only file, serves all that lose by weights alone, unless its scales
    are too small for integer biases. Others take the weights that it has rounded.
    """
    refine = functools.partial(
        refine_layers,
        floating=graph.model,
        feeds=graph.fitted_feeds,
        methods=methods,
        weight_bits=bits,
        threads=graph.threads,
        kept=graph.float_outputs,
    )
    is_same = recipe.name in _LOSES_BY_WEIGHTS
    if not methods or is_ruled or graph.quantized or not (is_same or "rounding" in methods):
        return refine(model)
    key = (methods, tuple(sorted(bits.items())), dense_per_tensor)
    if key not in graph.refined:
        # Several recipes share it, but for the file of 4 bits.
        plain = quantize_model(
            *(graph.model, _WEIGHT_ONLY, None, small if bits else ()),
            dense_per_tensor=dense_per_tensor,
        )
        graph.refined[key] = refine(plain[0])
    shared = graph.refined[key]
    if not shared.layers:
        return refine(model)
    if is_same and bits:
        return shared
    if is_same:
        patched = with_weights_of(model, shared.model, graph.model)
        return refine(model) if clipped_biases(patched) else shared._replace(model=patched)
    return refine(model, rounded=rounded_weights(shared.model, graph.model))


def _refuse_nothing_done(
    recipe: Recipe, methods: Iterable[str], bits: Mapping[str, int], refined: RefinedModel
) -> None:
    """Raise `ToolFailed` if the recipe's bits or methods could not be applied at all."""
    why = "; ".join(refined.notes)
    if bits and not any(layer.bits == 4 for layer in refined.layers):
        raise ToolFailed(
            f"{recipe.name}: no weights of 4 bits could be made: {why or 'no layer took them'}",
            hint="choose a recipe whose weights have 8 bits, such as int8 or dynamic",
        )
    if not refined.layers and why:
        raise ToolFailed(
            f"{recipe.name} with {', '.join(sorted(methods))}: {why}",
            hint="leave these methods out",
        )


def _with_io(model: bytes, recipe: Recipe) -> bytes:
    uint8 = {"inputs": recipe.input_type == "uint8", "outputs": recipe.output_type == "uint8"}
    return with_uint8_io(model, **uint8) if any(uint8.values()) else model


def _refuse_few_samples(graph: CalibratedGraph, recipe: Recipe, setting: MethodSettings) -> None:
    needed: dict[str, int] = {
        method: MIN_SAMPLES[method] for method in setting.methods if method != "equalization"
    }
    if recipe.has_ranges:
        needed |= {m: n for m, n in RANGE_SAMPLES.items() if m == setting.calibration_range}
    for name, count in needed.items():
        for key, feed in graph.feeds.items():
            if feed.samples < count:
                raise UsageError(
                    f"{name} needs at least {count} calibration samples, and there are "
                    f"{feed.samples} for signature {key!r}",
                    hint="give more with --calibration and --samples, or remove it",
                )


def quantize_model(
    float_model: bytes,
    recipe: Recipe,
    ranges: dict[str, Any] | None,
    ruled: Collection[RuledLayer] = (),
    *,
    dense_per_tensor: bool = False,
) -> tuple[bytes, tuple[str, ...]]:
    """The quantized model, and notes on what was changed so that every integer bias fits.

    It has weights of 8 bits, and inputs and outputs that are not uint8. `ranges` (of
    `activation_ranges`) are for recipes that have them, `ruled` the layers of another precision.
    Raises `ToolFailed` with the quantizer's reason.
    """
    quantizer = quantizer_module("quantizer")
    configuration = quantizer_recipe(
        recipe,
        ruled,
        dense_per_tensor=dense_per_tensor,
        constants_first=_constants_first(float_model),
        before_logs=_before_logs(float_model) if recipe.name == "dynamic" else (),
    )
    # For a block of zeros it divides 0 by 0.
    with engine_errors("litert-quantizer"), np.errstate(divide="ignore", invalid="ignore"):
        engine = quantizer.Quantizer(float_model)
        engine.load_quantization_recipe(configuration)
        quantized = engine.quantize(
            ranges if engine.need_calibration else None,
            enable_progress_bar=False,
            enable_progress_report=False,
        ).quantized_model
    # It writes them outside of the flatbuffer, where few runtimes look.
    model = with_half_biases(with_weights_inside(bytes(quantized)))
    if any(each.precision == BLOCKS for each in ruled):
        return with_sound_blocks(model), ()
    if not recipe.full_integer:
        kept = {each.layer.name for each in ruled if each.is_float}
        kind = _LSTM_WEIGHTS.get(recipe.name)
        return with_small_lstms(model, kind, kept) if kind else model, ()
    sound, widened = with_fitting_biases(model, float_model)
    note = f"{widened} scales of nearly zero weights were widened, so that the biases fit"
    whole = with_integer_kernels(
        sound,
        plain_ranges(ranges or {}),
        integers="int16" if recipe.name == "int16x8" else "int8",
        kept={name for each in ruled if each.is_float for name in each.layer.outputs},
        only_integers=recipe.only_integers,
    )
    return whole, (note,) if widened else ()


def _constants_first(data: bytes) -> tuple[str, ...]:
    """The outputs of products of a constant with what varies, as a graph's neighbors with nodes."""
    model = read(data, where="the model")
    return tuple(
        text(graph.tensors[operator.outputs[0]].name)
        for graph in model.subgraphs
        for operator in graph.operators
        if operator_name(model, operator) == "BATCH_MATMUL"
        and is_constant(model, graph.tensors[operator.inputs[0]])
    )


# What the layers of a log-mel front end have between them; all else ends a search for them.
_OF_POWERS = frozenset(
    {
        *("ABS", "ADD", "COMPLEX_ABS", "CONCATENATION", "EXPAND_DIMS", "MAXIMUM", "MUL", "RESHAPE"),
        *("SLICE", "SQRT", "SQUARE", "SQUEEZE", "STRIDED_SLICE", "SUM", "TRANSPOSE"),
    }
)


def _before_logs(data: bytes) -> tuple[str, ...]:
    """The outputs of the linear layers that make what a LOG takes: powers, in a front end.

    Integers of 8 bits have no step for the small ones, which a logarithm magnifies.
    """
    model = read(data, where="the model")
    found: dict[str, None] = {}
    for graph in model.subgraphs:
        writers = {index: each for each in graph.operators for index in each.outputs}
        reached = [each for each in graph.operators if operator_name(model, each) == "LOG"]
        seen = {id(each) for each in reached}
        while reached:
            for index in reached.pop().inputs:
                writer = writers.get(index)
                if writer is None or id(writer) in seen:
                    continue
                seen.add(id(writer))
                is_layer = operator_name(model, writer) in COMPRESSIBLE
                if is_layer:
                    found[text(graph.tensors[writer.outputs[0]].name)] = None
                activation = getattr(writer.builtinOptions, "fusedActivationFunction", 0)
                if operator_name(model, writer) in _OF_POWERS or (is_layer and not activation):
                    reached.append(writer)
    return tuple(found)


def plain_ranges(ranges: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The least and the greatest value of every tensor that has one range."""
    return {
        name: (float(np.min(limits["min"])), float(np.max(limits["max"])))
        for name, limits in ranges.items()
        if np.size(limits["max"]) == 1
    }


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn what litert-quantizer raises into `ToolFailed`. Nothing else belongs in the block."""
    try:
        yield
    except _ENGINE_ERRORS as error:
        if is_called_back(error):
            raise
        raise ToolFailed(f"{what}: {first_line(error, 400)}") from error


def quantizer_recipe(
    recipe: Recipe,
    ruled: Iterable[RuledLayer] = (),
    *,
    dense_per_tensor: bool = False,
    constants_first: Iterable[str] = (),
    before_logs: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """The configuration that makes litert-quantizer follow `recipe`, 8 bits instead of 4.

    `ruled` are the layers of another precision. A full-integer recipe keeps inputs and outputs
    integer where it names an integer type. uint8 is made from int8 afterwards, since the quantizer
    does not know it; so are weights of 4 bits, which it knows for some operators only.
    `dense_per_tensor` gives the weights of FULLY_CONNECTED one scale instead of one a channel,
    which older runtimes do not have; a float16 recipe has no scales. `constants_first` are outputs
    of BATCH_MATMUL with a constant as its first input, which its kernel takes as 8 bits only beside
    integers of 8 bits; `before_logs` those of layers whose activations stay in float.
    """
    configuration = _Configuration(recipe)
    bits = 16 if recipe.name == "int16x8" else 8
    if recipe.name == "float16":
        configuration.add_float16(_EVERYTHING)
    else:
        configuration.add_integers(_EVERYTHING, activation_bits=bits)
    if dense_per_tensor and recipe.name != "float16":
        # What is added later holds for the operators that it names.
        configuration.add_integers(
            _EVERYTHING, "FULLY_CONNECTED", "TENSORWISE", activation_bits=bits
        )
    for name in constants_first:
        configuration.add_constant_first(f"^{re.escape(f'{name};')}$")
    for name in before_logs:
        scope = f"^{re.escape(f'{name};')}$"
        configuration.add_weights(scope)
        if dense_per_tensor:
            configuration.add_weights(scope, "FULLY_CONNECTED", "TENSORWISE")
    configuration.add_rules(ruled)
    if recipe.full_integer:
        # What it makes of them aborts, or compares roughly: see `with_integer_kernels`.
        for operation in ("EQUAL", "NOT_EQUAL"):
            configuration.add_floats(_EVERYTHING, operation)
        for operation, io_type in (("INPUT", recipe.input_type), ("OUTPUT", recipe.output_type)):
            if io_type == "float32":
                configuration.add_floats(_ENDS, operation)
    entries: list[dict[str, Any]] = configuration.manager.get_quantization_recipe()
    return entries


class _Configuration:
    """What litert-quantizer is to do, by scopes: expressions that outputs' names match."""

    def __init__(self, recipe: Recipe) -> None:
        qtyping = quantizer_module("qtyping")
        self.manager = quantizer_module("recipe_manager").RecipeManager()
        self._recipe = recipe
        self._operation = qtyping.TFLOperationName
        self._granularity = qtyping.QuantGranularity
        self._algorithm = quantizer_module("algorithm_manager").AlgorithmName

    def add_rules(self, ruled: Iterable[RuledLayer]) -> None:
        """Add the layers of another precision."""
        by: dict[Precision, list[str]] = {}
        for rule in ruled:
            by.setdefault(rule.precision, []).append(_scope(rule.layer))
        for precision, scopes in sorted(by.items()):
            scope = "|".join(scopes)
            if precision in ("float32", "float16"):
                self.add_floats(scope)
            if precision == "float16":
                self.add_float16(scope)
            if precision in ("int16x8", "int8", "int4"):
                self.add_integers(scope, activation_bits=16 if precision == "int16x8" else 8)
            if precision == BLOCKS:
                self.manager.add_dynamic_config(
                    scope,
                    self._operation.FULLY_CONNECTED,
                    4,
                    granularity=self._granularity.BLOCKWISE_32,
                )

    def add_constant_first(self, scope: str) -> None:
        """Leave a product in float where its kernel does not take the constant beside the rest."""
        if self._recipe.name == "dynamic":
            self.add_weights(scope, "BATCH_MATMUL")
        elif self._recipe.name == "int16x8":
            self.add_floats(scope, "BATCH_MATMUL")

    def add_floats(self, scope: str, operation: str = "ALL_SUPPORTED") -> None:
        """Leave operators in float."""
        self.manager.add_quantization_config(
            scope, self._operation[operation], algorithm_key=self._algorithm.NO_QUANTIZE
        )

    def add_integers(
        self,
        scope: str,
        operation: str = "ALL_SUPPORTED",
        granularity: str = "CHANNELWISE",
        *,
        activation_bits: int,
    ) -> None:
        """Weights of 8 bits; activations are as the recipe has them."""
        name, scales = self._operation[operation], self._granularity[granularity]
        if self._recipe.full_integer:
            self.manager.add_static_config(
                scope,
                name,
                activation_num_bits=activation_bits,
                weight_num_bits=8,
                weight_granularity=scales,
            )
            if operation == "ALL_SUPPORTED":
                # Its kernel gives 0 for a constant with several scales.
                self.add_integers(
                    scope, "BATCH_MATMUL", "TENSORWISE", activation_bits=activation_bits
                )
        elif self._recipe.name == "dynamic":
            self.manager.add_dynamic_config(scope, name, 8, granularity=scales)
        else:
            self.add_weights(scope, operation, granularity)

    def add_weights(
        self, scope: str, operation: str = "ALL_SUPPORTED", granularity: str = "CHANNELWISE"
    ) -> None:
        """Weights of 8 bits; activations are in float."""
        self.manager.add_weight_only_config(
            scope, self._operation[operation], 8, granularity=self._granularity[granularity]
        )

    def add_float16(self, scope: str) -> None:
        """Weights of 16 bits, if there is a kernel for them."""
        for name in _FLOAT16_OPERATORS:
            self.manager.add_weight_only_config(
                scope,
                self._operation[name],
                16,
                granularity=self._granularity.TENSORWISE,
                algorithm_key=self._algorithm.FLOAT_CASTING,
            )


def _scope(layer: FloatLayer) -> str:
    """What litert-quantizer finds the layer by: all its outputs, each with a semicolon."""
    return f"^{re.escape(''.join(f'{name};' for name in layer.outputs))}$"
