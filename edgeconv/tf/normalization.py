"""The layers in a graph that keep the mean and the variance that their inputs had in training.

They are batch normalization, fused or as it is computed step by step, and Keras's Normalization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
        """The layer of one operator that normalizes, where it does not train."""
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
        """The layer of (x - mean) / deviation, where that is the root of a variance."""
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
