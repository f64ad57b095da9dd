"""Rules for single layers that a graph and its calibration samples show to be needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from edgeconv.model.tflite import softmax_classes, softmax_outputs
from edgeconv.model.tflite.cut import input_fronts
from edgeconv.model.tflite.flatbuffer import entry_subgraphs, is_constant, operator_name, read, text
from edgeconv.model.tflite.layers import COMPRESSIBLE, FLOAT_KINDS
from edgeconv.model.tflite.operators import type_of
from edgeconv.quantize.parted import split_parts
from edgeconv.quantize.quantize import MethodSettings, make_file, plain_ranges
from edgeconv.quantize.rules import ruled_layers, with_eight_bits
from edgeconv.quantize.sensitivity import sensitivities_of
from edgeconv.quantize.trials import QuantizeTrials, comparison_feeds, lowest_snr_db, outputs_of
from edgeconv.statistics.grades import THRESHOLDS
from edgeconv.statistics.outputs import sample_errors, snr_db
from edgeconv.system.processes.tasks import report_progress
from edgeconv.types import MAX_SNR_DB, LayerRule, Precision, Recipe, ScalePart, SharedScale
from edgeconv.types.errors import ToolFailed, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    from edgeconv.model.tflite.cut import InputFront
    from edgeconv.quantize.calibrate import CalibratedGraph, Feed
    from edgeconv.quantize.parted import PartedOutput
    from edgeconv.types import Precision, Recipe, RecipeName


class FoundRules(NamedTuple):
    """What the file of a recipe is made from: a graph, and the recipe with the rules.

    `shared` are the outputs whose parts share a scale; `notes` are on all else.
    """

    graph: CalibratedGraph
    recipe: Recipe
    shared: tuple[SharedScale, ...]
    notes: tuple[str, ...]


def with_found_rules(graph: CalibratedGraph, recipe: Recipe) -> FoundRules:
    """The recipe with rules for layers and inputs that its scales and kernels do not serve.

    The graph may become an equal one. Raises `InputRefused` for samples that give senseless ranges.
    """
    ruled, front = with_float_front(graph, recipe)
    if not front and recipe.full_integer and recipe.methods == ("auto",):
        even = graph.evened
        evened, notes = (recipe, ()) if even is None else with_float_front(even, recipe)
        if notes:
            front = notes
        if even is not None and evened != recipe:
            graph, ruled = even, evened
            added = "; they were added, and the weights of the next layer take them back"
            front = (*front[:-1], *(f"{note}{added}" for note in front[-1:]))
    ruled, small = with_float_magnified(graph, ruled)
    recipe, softmax = with_float_softmax(graph, ruled)
    recipe, shared = with_own_scales(recipe, find_shared_scales(graph, recipe))
    return FoundRules(graph, recipe, shared, (*front, *small, *softmax))


# A file, or a part of an output, above this is close enough to float.
CLOSE_DB = 30.0

# Rules that leave the scaling of inputs inside a model in float, where one scale loses them.
#
# A table has columns of different sizes, such as years and fractions, and the model brings them to
# one size itself. A quantized tensor has one scale: the integers of an input like that have no
# steps left for the small columns, and no method gives them back. So the input stays float up to
# where its values are alike.

# Inputs that cost less when they alone are rounded need nothing.
_ROUNDED_DB = CLOSE_DB + 10
# What leaving the front in float has to gain.
_LEAST_GAIN_DB = 3.0
_PLAIN = MethodSettings("minmax", ())
_NAMED = 3


def with_float_front(graph: CalibratedGraph, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with rules that leave the inputs' scaling in float, and a note that says so.

    Only where `auto` chooses, the plain file is not close to the float graph, and the rules bring
    it clearly closer, on up to 32 calibration samples. With integer inputs there are no rules, and
    the note has what the inputs' one scale costs.
    """
    is_open = recipe.full_integer and recipe.methods == ("auto",) and graph.quantized is None
    fronts = input_fronts(graph.model) if is_open and graph.feeds else ()
    fronts = tuple(front for front in fronts if front.signature in graph.feeds)
    if not fronts:
        return recipe, ()
    try:
        return _tried(graph, recipe, fronts)
    except (ToolFailed, UsageError):
        # No file can be made or run: that is an error of the conversion, not of this.
        return recipe, ()


def _tried(
    graph: CalibratedGraph, recipe: Recipe, fronts: Sequence[InputFront]
) -> tuple[Recipe, tuple[str, ...]]:
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    layers = {name for front in fronts for name in front.layers}
    if layers & ruled_layers(graph.layers, recipe).keys():
        return recipe, ()
    short = {each.name: each.short_name for each in graph.layers if each.name in layers}
    rules = tuple(LayerRule(pattern=each, precision="float32") for each in short.values())
    stay = _stay(short.values(), _NAMED)
    if not rules:
        return recipe, ()
    if any(front.jumps for front in fronts) and not recipe.only_integers:
        # Too rare for the samples to show what it costs.
        return _with_rules(recipe, rules), (
            f"{stay}, since integers next to a jump are often on its wrong side",
        )
    if _rounded_db(trials, fronts, 16 if recipe.name == "int16x8" else 8) >= _ROUNDED_DB:
        return recipe, ()
    report_progress(f"{recipe.name}: the inputs have one scale for values of different sizes")
    # Weights of 4 bits hide what inputs lose.
    plain = with_eight_bits(recipe)
    before_db = trials.run(plain, _PLAIN).snr_db
    if before_db >= CLOSE_DB:
        return recipe, ()
    in_float = _with_rules(plain, rules)
    after_db = trials.run(
        replace(in_float, input_type="float32", output_type="float32"), _PLAIN
    ).snr_db
    if after_db < before_db + _LEAST_GAIN_DB:
        return recipe, ()
    inputs = quoted(dict.fromkeys(name for front in fronts for name in front.inputs))
    ratios = f"SNR {after_db:.1f} dB instead of {before_db:.1f} dB on {trials.samples} samples"
    if recipe.only_integers:
        return recipe, (
            f"an integer input has one scale for all values of {inputs}: without --io and "
            f"--full-integer {quoted(short.values(), _NAMED)} would stay in float, {ratios}",
        )
    return _with_rules(recipe, rules), (
        f"{stay}, since one scale does not fit all values of {inputs}: {ratios}",
    )


def _stay(layers: Iterable[str], most: int) -> str:
    """The beginning of a note: "'a' stays in float", "'a', 'b' stay in float"."""
    names = tuple(dict.fromkeys(layers))
    return f"{quoted(names, most)} {'stays' if len(names) == 1 else 'stay'} in float"


def _with_rules(recipe: Recipe, rules: Sequence[LayerRule]) -> Recipe:
    return replace(recipe, layers=(*recipe.layers, *dict.fromkeys(rules)))


def _rounded_db(trials: QuantizeTrials, fronts: Sequence[InputFront], bits: int) -> float:
    """The ratio of the float graph's outputs where nothing but the fronts' inputs is rounded."""
    feeds = dict(trials.feeds)
    for front in fronts:
        feed = trials.graph.feeds[front.signature]
        steps = {name: _step(feed, name, bits) for name in front.inputs}
        feeds[front.signature] = feeds[front.signature].with_steps(steps)
    actual = outputs_of(trials.graph.model, feeds, threads=trials.graph.threads)
    return lowest_snr_db(trials.expected, split_parts(trials.parted, actual))


def _step(feed: Feed, name: str, bits: int) -> float:
    """That of integers which have 0 and every value of an input."""
    low = min(0.0, *(float(batch[name].min(initial=0.0)) for batch in feed))
    high = max(0.0, *(float(batch[name].max(initial=0.0)) for batch in feed))
    return max(-low, high) / 2**15 if bits == 16 else (high - low) / (2**bits - 1)


# Rules that leave a softmax in float where the integers of its kernel are too coarse.
#
# LiteRT's int16 SOFTMAX adds up exponentials that were rounded one by one: with 10 classes nothing
# is lost, with 1,000 up to 9 decibels of the whole model (ai-edge-litert 2.3). That of 8 bits has
# steps of 1/256: where many classes are about as likely, all of them become 0, and tflite-micro's
# kernel aborts. Its input of 8 bits tells them apart.

# The kernel of 16 bits was right for fewer.
_MANY = 64
# A softmax that costs less alone is as good as the rest of an int16x8 file, or better.
_COSTS_DB = 40.0
# Probabilities of fewer classes that span as much have a hundred steps.
_FLAT = 0.5
# Answers that rounding alone changes are the softmax's fault; below this it is in any case.
_COARSE_DB = 25.0


def with_float_softmax(graph: CalibratedGraph, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with a rule for each softmax that alone costs much, and a note that says so.

    Only where `auto` chooses, on up to 32 calibration samples. For int16x8 each is measured with
    the real kernel, while all else computes in float. For 8 bits, those that make an output have
    the float graph's probabilities rounded. Where all is to be integers there are no rules.
    """
    if recipe.methods != ("auto",) or graph.quantized is not None:
        return recipe, ()
    find = {"int16x8": _costly_sixteen, "int8": _costly_eight, "int8x4": _costly_eight}
    if recipe.name not in find or not graph.feeds:
        return recipe, ()
    classes = softmax_classes(graph.model)
    try:
        ruled = ruled_layers(graph.layers, recipe)
        costly = find[recipe.name](graph, {n: c for n, c in classes.items() if n not in ruled})
    except (ToolFailed, UsageError):
        # No file can be made or run: that is an error of the conversion, not of this.
        return recipe, ()
    if not costly:
        return recipe, ()
    rules = tuple(LayerRule(pattern=name, precision="float32") for name in costly)
    bits = 16 if recipe.name == "int16x8" else 8
    least_db = min(costly.values())
    why = f"the softmax of {bits} bits alone would leave {least_db:.1f} dB"
    if least_db == -MAX_SNR_DB:
        why = (
            "the output is the same for all samples, so they do not show what "
            f"{bits} bits would cost"
        )
    short = {each.name: each.short_name for each in graph.layers}
    names = [short.get(name, name) for name in costly]
    if recipe.only_integers:
        options = "without --io and --full-integer"
        return recipe, (f"{why}: {options} {quoted(names, _NAMED)} would stay in float",)
    return _with_rules(recipe, rules), (f"{_stay(names, _NAMED)}: {why}",)


def _costly_sixteen(graph: CalibratedGraph, classes: Mapping[str, int]) -> dict[str, float]:
    """The ratio that each costly SOFTMAX leaves, by name, in decibels."""
    many = {each.name: each for each in graph.layers if classes.get(each.name, 0) >= _MANY}
    measured = sensitivities_of(graph, [(layer, "int16x8") for layer in many.values()])
    return {each.layer: each.snr_db for each in measured if each.snr_db < _COSTS_DB}


def _costly_eight(graph: CalibratedGraph, classes: Mapping[str, int]) -> dict[str, float]:
    """As `_costly_sixteen`. No sample is run where the ranges show that a few classes are sure."""
    ranges = plain_ranges(graph.fitted("minmax", bits=8).ranges)

    def may_be_flat(name: str) -> bool:
        low, high = ranges.get(name, (0.0, 0.0))
        return name in classes and (classes[name] >= _MANY or high - low < _FLAT)

    made = {o: n for o, n in softmax_outputs(graph.model).items() if may_be_flat(n)}
    if not made:
        return {}
    outputs = outputs_of(graph.model, comparison_feeds(graph.feeds), threads=graph.threads)
    costly: dict[str, float] = {}
    for output, name in made.items():
        if output in outputs:
            expected = {output: outputs[output]}
            rounded = {output: np.clip(np.rint(256 * outputs[output]), 0, 255) / 256}
            errors = sample_errors(expected, rounded, {})
            is_same = (errors.agreement or 0.0) >= THRESHOLDS["share of equal answers"].close
            if errors.snr_db < (_COARSE_DB if is_same else CLOSE_DB):
                costly[name] = lowest_snr_db(expected, rounded)
    return costly


# A plain file above this is not spoiled, and stays whole. One of 16 bits should be close.
_SPOILED_DB = 15.0
# What a costlier choice has to gain.
_LEAST_GAIN_OF_ANOTHER_SCALE_DB = 6.0
_NAMED_LAYERS = 4


def with_float_magnified(graph: CalibratedGraph, recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe with rules for what is magnified, and a note that says so.

    Only where `auto` chooses and the plain file is far from the float graph, on up to 32
    calibration samples, and where the rules bring it clearly closer.
    """
    is_open = recipe.methods == ("auto",) and graph.quantized is None and graph.feeds
    if not (is_open and recipe.full_integer) or recipe.only_integers:
        return recipe, ()
    bits = 16 if recipe.name == "int16x8" else 8
    places = magnified(graph.model, plain_ranges(graph.fitted("minmax", bits=bits).ranges))
    if not places:
        return recipe, ()
    ruled = ruled_layers(graph.layers, recipe).keys()
    whole = frozenset[str]().union(*(place.whole for place in places)) - ruled
    near = frozenset[str]().union(*(place.near for place in places), whole) - ruled
    before = frozenset[str]().union(*(place.before for place in places)) - near - ruled
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    before_db = _snr_db(trials, recipe)
    if before_db >= (CLOSE_DB if recipe.name == "int16x8" else _SPOILED_DB):
        return recipe, ()
    report_progress(f"{recipe.name}: small numbers are magnified")
    best, best_db = recipe, before_db
    chosen: Mapping[str, Precision] = {}
    for precisions in _choices(whole, near, before, recipe):
        other = replace(recipe, layers=_rules(graph, recipe, precisions))
        other_db = _snr_db(trials, other)
        if other_db >= best_db + _LEAST_GAIN_OF_ANOTHER_SCALE_DB:
            best, best_db, chosen = other, other_db, precisions
        if best_db >= CLOSE_DB:
            break
    if not chosen:
        return recipe, ()
    return best, (_note(graph, chosen, best_db, before_db, trials.samples),)


def _choices(
    whole: frozenset[str], near: frozenset[str], before: frozenset[str], recipe: Recipe
) -> Iterator[Mapping[str, Precision]]:
    """The precision of layers, the cheaper choice first."""
    if whole:
        yield dict.fromkeys(whole, "float32")
    floats: dict[str, Precision] = dict.fromkeys(near, "float32")
    yield floats
    if before and recipe.name != "int16x8":
        yield floats | dict.fromkeys(before, "int16x8")
    if before:
        yield floats | dict.fromkeys(before, "float32")


def _rules(
    graph: CalibratedGraph, recipe: Recipe, precisions: Mapping[str, Precision]
) -> tuple[LayerRule, ...]:
    rules = (
        LayerRule(pattern=layer.short_name, precision=precisions[layer.name])
        for layer in graph.layers
        if layer.name in precisions
    )
    return (*recipe.layers, *dict.fromkeys(rules))


def _snr_db(trials: QuantizeTrials, recipe: Recipe) -> float:
    """That of the plain file; the least there is of one that cannot be made or run."""
    # Weights of 4 bits hide what activations lose.
    plain = replace(with_eight_bits(recipe), input_type="float32", output_type="float32")
    try:
        return trials.run(plain, _PLAIN).snr_db
    except (ToolFailed, UsageError):
        return -MAX_SNR_DB


def _note(
    graph: CalibratedGraph,
    chosen: Mapping[str, Precision],
    after_db: float,
    before_db: float,
    samples: int,
) -> str:
    def named(precision: Precision) -> list[str]:
        layers = (each for each in graph.layers[::-1] if chosen.get(each.name) == precision)
        return list(dict.fromkeys(each.short_name for each in layers))

    floats, sixteen = _stay(named("float32"), _NAMED_LAYERS), named("int16x8")
    verb = "gets" if len(sixteen) == 1 else "get"
    also = f", and {quoted(sixteen, _NAMED_LAYERS)} {verb} 16 bits" if sixteen else ""
    before = "no file that runs" if before_db == -MAX_SNR_DB else f"{before_db:.1f} dB"
    return (
        f"{floats}{also}, since small numbers are magnified there: "
        f"SNR {after_db:.1f} dB instead of {before} on {samples} samples"
    )


_MAGNIFY = frozenset({"DIV", "LOG", "RSQRT"})
_WEIGHTS = COMPRESSIBLE | {"GATHER"}
# What takes the factor of a normalization: products, up to a sum.
_FACTORS, _SUMS = frozenset({"DIV", "MUL", "NEG"}), frozenset({"ADD", "SUB"})
# Integers of 8 bits have hardly a step for numbers that are a smaller part of the largest one.
_WIDE = 64.0


class Magnified(NamedTuple):
    """What has to be more exact than 8 bits for an operator that magnifies small numbers.

    `near` are the layers of numbers that are never negative, such as powers, and the operator
    itself; `before` are those from the inputs to these. `whole` are both and what takes the result,
    where no layer with weights is among them: the values of a table have one scale there. Each by
    the name of its first output.
    """

    near: frozenset[str]
    before: frozenset[str]
    whole: frozenset[str]


def magnified(data: bytes, ranges: Mapping[str, tuple[float, float]]) -> tuple[Magnified, ...]:
    """An entry for each operator with numbers before it that span orders of magnitude above 0.

    `ranges` has the least and greatest value of float activations by the tensor's name. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    places = (
        _before(model, graph, operator, ranges)
        for graph in (model.subgraphs[index] for index in entry_subgraphs(model))
        for operator in graph.operators
        if operator_name(model, operator) in _MAGNIFY
    )
    return tuple(place for place in places if place is not None)


def _before(
    model: ModelT, graph: SubGraphT, operator: OperatorT, ranges: Mapping[str, tuple[float, float]]
) -> Magnified | None:
    writers = {index: each for each in graph.operators for index in each.outputs}
    near, before = set[str](), set[str]()
    is_wide = has_weights = False
    # What is reached, and whether all from there to the operator is never negative.
    reached = [(operator, True)]
    while reached:
        each, is_near = reached.pop()
        name = text(graph.tensors[each.outputs[0]].name)
        if name in near or (name in before and not is_near):
            continue
        (near if is_near else before).add(name)
        has_weights = has_weights or operator_name(model, each) in _WEIGHTS
        for index in _varying(model, graph, each):
            low, high = ranges.get(text(graph.tensors[index].name), (-1.0, 0.0))
            is_wide = is_wide or (is_near and low >= 0 and high > low * _WIDE)
            if index in writers:
                reached.append((writers[index], is_near and low >= 0))
    if not is_wide:
        return None
    whole = set() if has_weights else near | before | _takers(model, graph, operator)
    return Magnified(frozenset(near), frozenset(before - near), frozenset(whole))


def _takers(model: ModelT, graph: SubGraphT, operator: OperatorT) -> set[str]:
    """What multiplies by an operator's result, and adds to that."""
    takers = set[str]()
    reached = [operator]
    while reached:
        outputs = set(reached.pop().outputs)
        for each in graph.operators:
            kind = operator_name(model, each)
            if kind not in _FACTORS | _SUMS or outputs.isdisjoint(each.inputs):
                continue
            name = text(graph.tensors[each.outputs[0]].name)
            reached += [each] if kind in _FACTORS and name not in takers else []
            takers.add(name)
    return takers


def _varying(model: ModelT, graph: SubGraphT, operator: OperatorT) -> Iterator[int]:
    for tensor, index in ((graph.tensors[i], i) for i in operator.inputs if i != -1):
        if type_of(tensor) in FLOAT_KINDS and not is_constant(model, tensor):
            yield index


# Rules that give the parts of an output their own scales, measured on calibration samples.
# Those whose activations have 8 bits.
_RECIPES: frozenset[RecipeName] = frozenset({"int8", "int8x4"})
# What a rule for such a part has to gain.
_LEAST_GAIN_BY_OWN_SCALES_DB = 3.0


def find_shared_scales(graph: CalibratedGraph, recipe: Recipe) -> tuple[SharedScale, ...]:
    """The outputs whose parts share a scale although their ranges differ by more than 4 times.

    Each with the rules that help, tried on a file without methods and compared with the float
    graph on up to 32 calibration samples. An output for which `recipe` has a rule already is left
    out. None where no file can be made or run: that is an error of the conversion, not of this.
    """
    if recipe.name not in _RECIPES:
        return ()
    try:
        return tuple(_shared_scales(graph, recipe))
    except ToolFailed:
        return ()


def _shared_scales(graph: CalibratedGraph, recipe: Recipe) -> Iterator[SharedScale]:
    trials = QuantizeTrials(graph, comparison_feeds(graph.feeds))
    names = {layer.name: layer.short_name for layer in graph.layers}
    ruled = ruled_layers(graph.layers, recipe)
    for parted in trials.parted:
        if ruled.keys() & set(parted.layers):
            continue
        report_progress(f"{recipe.name}: the parts of {parted.output} share a scale")
        layers = tuple(names[layer] for layer in parted.layers)
        before = _part_snrs(trials, parted, recipe)
        rules, after = _best_rules(trials, parted, recipe, layers, before)
        yield SharedScale(
            signature=parted.signature,
            output=parted.output,
            layers=layers,
            parts=tuple(
                ScalePart(span=part.span, snr_db=each, own_snr_db=own)
                for part, each, own in zip(parted.parts, before, after, strict=True)
            ),
            rules=rules,
        )


def with_own_scales(
    recipe: Recipe, shared: Iterable[SharedScale]
) -> tuple[Recipe, tuple[SharedScale, ...]]:
    """The recipe with the rules that `auto` takes, and `shared` with those marked as applied.

    They are taken where a part is not close to float without them. Other recipes stay as they are.
    """
    if recipe.methods != ("auto",):
        return recipe, tuple(shared)
    marked = tuple(
        replace(each, applied=bool(each.rules) and min(p.snr_db for p in each.parts) < CLOSE_DB)
        for each in shared
    )
    rules = (rule for each in marked if each.applied for rule in each.rules)
    layers = (*recipe.layers, *dict.fromkeys(rules))
    return replace(recipe, layers=layers), marked


def _best_rules(
    trials: QuantizeTrials,
    parted: PartedOutput,
    recipe: Recipe,
    layers: tuple[str, ...],
    before: tuple[float, ...],
) -> tuple[tuple[LayerRule, ...], tuple[float | None, ...]]:
    """The first rules that help the worst part clearly, and the ratio of each part with them."""
    for rules in _candidates(parted.is_joined, layers, recipe):
        with_rules = replace(recipe, layers=(*recipe.layers, *rules))
        try:
            after = _part_snrs(trials, parted, with_rules)
        except (ToolFailed, UsageError):
            continue
        if min(after) >= min(before) + _LEAST_GAIN_BY_OWN_SCALES_DB:
            return rules, after
    return (), (None,) * len(before)


def _candidates(
    is_joined: bool, layers: tuple[str, ...], recipe: Recipe
) -> Iterator[tuple[LayerRule, ...]]:
    """Rules for all that gives the parts one scale, the cheaper first.

    What only joins costs nothing in float, since the output is float. A layer with weights keeps
    them in 8 bits where only its activations get 16. An integer output has one scale in any case.
    """
    if recipe.output_type != "float32":
        return
    precisions: tuple[Precision, ...] = ("float32", "int16x8")
    precisions = precisions[recipe.only_integers :]
    for precision in precisions if is_joined else reversed(precisions):
        yield tuple(LayerRule(pattern=layer, precision=precision) for layer in layers)


def _part_snrs(trials: QuantizeTrials, parted: PartedOutput, recipe: Recipe) -> tuple[float, ...]:
    """The signal-to-noise ratio of each part in the plain file of a recipe, in decibels.

    With weights of 8 bits: those of 4 hide what the scales of activations cost.
    """
    file = make_file(trials.graph, with_eight_bits(recipe), MethodSettings("minmax", ()))
    actual = trials.outputs(file.model)
    keys = [(parted.signature, name) for name in parted.names]
    with np.errstate(invalid="ignore", over="ignore"):
        return tuple(
            snr_db(
                float(np.var(trials.expected[key])),
                float(np.mean((actual[key] - trials.expected[key]) ** 2)),
            )
            for key in keys
        )
