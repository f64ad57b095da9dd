"""What a graph does to its inputs' numbers: layers that keep statistics, and scalings of its own.

The layers keep the mean and the variance that their inputs had in training: batch normalization,
fused or as it is computed step by step, and Keras's Normalization.

A model with Rescaling(1/255), as Keras's applications have, takes pixels of 0 to 255. Given pixels
of 0 to 1 it sees next to nothing, and without a normalization layer nothing else tells.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.data.suspects import Hits

# The names of inputs, by signature.
Scaled = dict[str, tuple[str, ...]]

_PASSING = frozenset({"Identity", "Cast"})
# What stands in for a missing epsilon.
_LEAST = 1e-12


class Normalization(NamedTuple):
    """A layer that takes `mean` from `values`, and divides by a deviation; all names of tensors.

    `variance` has the square of the deviation with `epsilon` in it, which is a tensor or a number.
    `is_first` says that channels are dimension 1. A layer that is not `is_moving` has statistics
    that were computed once, of all the data. No other one is before one that `meets_inputs`.
    """

    name: str
    values: str
    mean: str
    variance: str
    epsilon: str | float
    is_first: bool = False
    is_moving: bool = True
    meets_inputs: bool = True


def inline(meta_graph: Any) -> Any:
    """The graph of a SavedModel as a GraphDef in which every call is inlined.

    What its signatures, its loading and its initialization name is kept.
    """
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
    from tensorflow.python.grappler import tf_optimizer

    whole: Any = meta_graph_pb2.MetaGraphDef()
    whole.graph_def.CopyFrom(meta_graph.graph_def)
    for function in whole.graph_def.library.function:
        # One of several implementations would be chosen otherwise.
        function.attr.pop("api_implements", None)
    whole.collection_def["train_op"].node_list.value.extend(sorted(_named(meta_graph)))
    config: Any = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.optimizers.append("function")
    options.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    return tf_optimizer.OptimizeGraph(config, whole)


def _named(meta_graph: Any) -> set[str]:
    """The tensors and operations that a MetaGraphDef names outside of its graph."""
    saver = meta_graph.saver_def
    names = {saver.filename_tensor_name, saver.save_tensor_name, saver.restore_op_name}
    names |= {asset.tensor_info.name for asset in meta_graph.asset_file_def}
    for signature in meta_graph.signature_def.values():
        names |= {info.name for info in (*signature.inputs.values(), *signature.outputs.values())}
    for collection in meta_graph.collection_def.values():
        names.update(collection.node_list.value)
    return names - {""}


def find_normalizations(graph_def: Any, inputs: Collection[str]) -> list[Normalization]:
    """The layers in an inlined graph that have statistics; `inputs` are the nodes that are fed."""
    graph = _Graph(graph_def, inputs)
    layers: list[Normalization] = []
    for node in graph_def.node:
        if node.op.startswith("FusedBatchNorm") and node.name in graph.fed:
            layers += graph.fused(node)
        elif node.op == "Rsqrt" and node.name not in graph.fed:
            layers += graph.decomposed(node)
        elif node.op == "RealDiv" and node.name in graph.fed:
            layers += graph.divided(node)
    behind = graph.reached(user.name for each in layers for user in graph.users.get(each.name, ()))
    return [layer._replace(meets_inputs=node_name(layer.values) not in behind) for layer in layers]


class _Graph:
    """The nodes of a GraphDef by name, and which of them depend on what is fed."""

    def __init__(self, graph_def: Any, inputs: Collection[str]) -> None:
        self.nodes = {node.name: node for node in graph_def.node}
        self.users: dict[str, list[Any]] = {}
        for node in graph_def.node:
            for source in node.input:
                self.users.setdefault(node_name(source), []).append(node)
        self.fed = self.reached(name for name in inputs if name in self.nodes)

    def reached(self, names: Iterable[str]) -> set[str]:
        """The nodes with these names, and all that depend on them."""
        nodes, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name not in nodes:
                nodes.add(name)
                waiting += [user.name for user in self.users.get(name, ())]
        return nodes

    def fused(self, node: Any) -> Iterator[Normalization]:
        """The layer of one operator that normalizes, unless it trains."""
        values, _, _, mean, variance = node.input[:5]
        if node.attr["is_training"].b or {node_name(mean), node_name(variance)} & self.fed:
            return
        yield Normalization(
            name=node.name,
            values=values,
            mean=mean,
            variance=variance,
            epsilon=node.attr["epsilon"].f,
            is_first=node.attr["data_format"].s == b"NCHW",
        )

    def decomposed(self, rsqrt: Any) -> Iterator[Normalization]:
        """The layer of x * inverse + (offset - mean * inverse), scaled or not."""
        total = self._passed(rsqrt.input[0])
        scaled = (rsqrt, *self._products(rsqrt, is_fed=False))
        inverse = next((node for node in scaled if any(self._factors(node, is_fed=True))), None)
        if inverse is None or not total.op.startswith("Add"):
            return
        values = list(self._factors(inverse, is_fed=True))
        means = list(self._factors(inverse, is_fed=False))
        if len(values) == len(means) == 1:
            mean = self._passed(means[0])
            yield Normalization(
                name=rsqrt.name,
                values=values[0],
                mean=mean.input[0] if mean.op == "Neg" else means[0],
                variance=total.input[0],
                epsilon=total.input[1],
            )

    def divided(self, node: Any) -> Iterator[Normalization]:
        """The layer of (x - mean) / deviation, if the deviation is the root of a variance."""
        difference, deviation = (self._passed(name) for name in node.input[:2])
        root = self._passed(deviation.input[0]) if deviation.op == "Maximum" else deviation
        if difference.op != "Sub" or root.op != "Sqrt" or root.name in self.fed:
            return
        values, mean = difference.input[:2]
        if node_name(values) in self.fed and node_name(mean) not in self.fed:
            yield Normalization(
                name=node.name,
                values=values,
                mean=mean,
                variance=root.input[0],
                epsilon=_LEAST,
                is_moving=False,
            )

    def _passed(self, name: str) -> Any:
        """The node that a tensor comes from, past those that hand it on."""
        node = self.nodes[node_name(name)]
        while node.op in _PASSING:
            node = self.nodes[node_name(node.input[0])]
        return node

    def _products(self, node: Any, *, is_fed: bool) -> Iterator[Any]:
        """The multiplications by a node's output, past those that hand it on."""
        for user in self.users.get(node.name, ()):
            if user.op in _PASSING:
                yield from self._products(user, is_fed=is_fed)
            elif user.op == "Mul" and (user.name in self.fed) == is_fed:
                yield user

    def _factors(self, node: Any, *, is_fed: bool) -> Iterator[str]:
        """The tensors that a node's output is multiplied by."""
        for product in self._products(node, is_fed=is_fed):
            others = [name for name in product.input[:2] if self._passed(name) is not node]
            yield from others[:1]


def node_name(name: str) -> str:
    """The name of the node that a tensor comes from."""
    return name.removeprefix("^").partition(":")[0]


_KEEPING = frozenset(
    {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Pad", "MirrorPad"}
    | {"ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"}
)
_SHIFTING = frozenset({"Add", "AddV2", "Sub", "BiasAdd"})
# A model that multiplies by less takes pixels of 0 to 255 or audio of 16 bits.
_SMALL = 1 / 50
# Samples that were scaled to 0 to 1 or to -1 to 1, or normalized, span between these.
_LARGEST_HALF, _LARGEST_PIXEL = 130.0, 1000.0
_DEVIATIONS = 2.0
_MOST, _MOST_NORMALIZED, _LEAST_SPAN = 1.001, 5.0, 0.25


class ScaledTwice(msgspec.Struct, frozen=True, kw_only=True):
    """An input that the model divides by `divisor`, though the samples reach `high` only.

    `steps` would undo the other scaling; `hits` is what labels say of that, None without any.
    """

    name: str
    divisor: float
    high: float
    steps: str
    hits: Hits | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether labels say that the samples are right as they are."""
        return self.hits is not None and self.hits.own >= self.hits.other and self.hits.own > 0

    @property
    def is_confirmed(self) -> bool:
        """Whether labels say that they are not, beyond chance."""
        return self.hits is not None and self.hits.is_more(_DEVIATIONS)


def divisors(graph_def: Any, inputs: Mapping[str, str]) -> dict[str, float]:
    """By input, the number that an inlined graph divides it by before anything else.

    `inputs` are the tensors that are fed. Inputs that do not become far smaller are left out.
    """
    return {name: 1 / factor for name, factor in _largest_factors(graph_def, inputs) if factor}


def scaled_inputs(graph_def: Any, signatures: Any, keys: Iterable[str]) -> Scaled:
    """By signature, the inputs that an inlined graph scales itself before anything else.

    It divides them so that only numbers such as pixels of 0 to 255 need it, or normalizes them
    as Keras's layer does.
    """
    by_key = {}
    for key in keys:
        inputs = {name: each.name for name, each in signatures[key].inputs.items()}
        layers = find_normalizations(graph_def, {node_name(each) for each in inputs.values()})
        normalized = {each.name for each in layers if not each.is_moving}
        by_key[key] = tuple(name for name, _ in _largest_factors(graph_def, inputs, normalized))
    return {key: names for key, names in by_key.items() if names}


def _largest_factors(
    graph_def: Any, inputs: Mapping[str, str], normalized: Collection[str] = ()
) -> Iterator[tuple[str, float]]:
    """The inputs that all paths make far smaller, and the most that one multiplies them by.

    That is 0 where all come to the end of a layer that is among `normalized`.
    """
    nodes = {node.name: node for node in graph_def.node}
    users: dict[str, list[Any]] = {}
    for node in graph_def.node:
        for source in node.input:
            if not source.startswith("^"):
                users.setdefault(node_name(source), []).append(node)
    for name, tensor in inputs.items():
        factors = set(_factors(nodes, users, node_name(tensor), normalized))
        if factors and max(factors) < _SMALL:
            yield name, max(factors)


def _factors(
    nodes: Mapping[str, Any],
    users: Mapping[str, list[Any]],
    start: str,
    normalized: Collection[str],
) -> Iterator[float]:
    """What each path from a node multiplies it by; 1 for a path that does something else first."""
    waiting, visited = [start], {start}
    while waiting:
        name = waiting.pop()
        for user in users.get(name, ()):
            others = [each for each in user.input[:2] if node_name(each) != name]
            constant = _constant(nodes, others[0]) if others else None
            factor = None if constant is None else _one_number(constant)
            if user.name in normalized:
                yield 0.0
            elif user.op == "Mul" and factor:
                yield factor
            elif user.op == "RealDiv" and factor and node_name(user.input[0]) == name:
                yield 1 / factor
            elif user.op in _KEEPING or (user.op in _SHIFTING and constant is not None):
                if user.name not in visited:
                    visited.add(user.name)
                    waiting.append(user.name)
            elif user.op not in ("Shape", "Rank", "Size"):
                yield 1.0


def _constant(nodes: Mapping[str, Any], tensor: str) -> NDArray[np.float64] | None:
    """The numbers of a constant; None for another tensor."""
    from tensorflow.python.framework import tensor_util

    node = nodes.get(node_name(tensor))
    while node is not None and node.op in ("Identity", "Cast"):
        node = nodes.get(node_name(node.input[0]))
    if node is None or node.op != "Const":
        return None
    values = np.asarray(tensor_util.MakeNdarray(node.attr["value"].tensor))
    return values.astype(np.float64) if values.dtype.kind in "fiu" and values.size else None


def _one_number(constant: NDArray[np.float64]) -> float | None:
    """The magnitude of a constant of about one number; columns of a table have others each."""
    magnitudes = np.abs(constant)
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high if 0 < high <= 2 * low and math.isfinite(high) else None


def scaled_before(name: str, array: NDArray[Any], divisor: float) -> ScaledTwice | None:
    """What is wrong with samples, (samples, ...), of an input that the model divides itself.

    None for those that may be right: pixels of a dark picture are whole numbers.
    """
    if array.dtype.kind != "f" or not array.size:
        return None
    low, high = float(array.min()), float(array.max())
    is_signed = low < -_LEAST_SPAN
    most = _MOST_NORMALIZED if is_signed else _MOST
    if max(-low, high) > most or high - low < _LEAST_SPAN or bool((array == np.rint(array)).all()):
        return None
    if not is_signed:
        # Rescaling(1/127.5, offset=-1) is of pixels, too.
        steps = f"scale={_rounded(divisor if divisor > _LARGEST_HALF else 2 * divisor)}"
    elif divisor > _LARGEST_PIXEL:
        steps = f"scale={_rounded(divisor)}"
    else:
        half = _rounded(divisor / 2 if divisor > _LARGEST_HALF else divisor)
        steps = f"scale={half}&mean=-{half}"
    return ScaledTwice(name=name, divisor=divisor, high=high, steps=steps)


def _rounded(number: float) -> str:
    return f"{round(number, 2):g}"


def undone(array: NDArray[Any], twice: ScaledTwice) -> NDArray[Any]:
    """Samples, (samples, ...), after the steps that undo their scaling."""
    numbers = dict(step.split("=") for step in twice.steps.split("&"))
    changed = array * float(numbers["scale"]) - float(numbers.get("mean", 0))
    return changed.astype(array.dtype)
