"""Graphs that still train when they serve: random numbers, and statistics of each batch.

The answers of such a model are not the same twice, or depend on the other samples of the batch, so
no file can be verified against it. The operators before the signatures' outputs show it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from edgeconv.tf.saved_objects import serving_graph
from edgeconv.types.errors import Cause, RunsInTraining
from edgeconv.types.words import quoted

_RANDOM = re.compile(
    r"(Stateless)?(Parameterized)?(Random\w+|TruncatedNormal\w*|Multinomial|SampleDistorted\w+)"
    r"|Stateful(Random|Uniform|StandardNormal|TruncatedNormal)\w*|StatelessShuffle"
)
# They compute what a random operator begins with.
_SEEDS = re.compile(r"StatelessRandomGet\w+")
_BEGINS_WITH = frozenset({"seed", "key", "counter"})
_AVERAGES = re.compile(r"(?:.*/)?([^/]+)/moving_(?:mean|variance|var|avg)(?:_\d+)?")
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
# Scopes that are not layers, but functions of TensorFlow.
_FUNCTION = re.compile(
    r"(stateless|stateful)_\w+|random_(uniform|normal|gamma|shuffle|int)\w*|truncated_normal\w*"
    r"|\w*PartitionedCall\w*|(cond|while|map)(_\d+)?"
)
# More than any model has that is converted; a function in a foreign file may call itself.
_MOST_VISITED = 2_000_000
_MOST_NAMED = 5
_HINT = (
    "export it in inference mode (model(x, training=False), and no layer with training=True), or "
    "give its .keras file; if the layer draws at inference too, as the sampling of a VAE, build a "
    "model of the outputs that are not random; random numbers that are wanted can be an input of "
    "the model"
)
_HINT_OF_FILE = (
    "let these layers act in training only (call(self, x, training=False)), or build a model of "
    "the outputs that are not random; random numbers that are wanted can be an input of the model"
)


class TrainingOperator(NamedTuple):
    """An operator of a graph that acts as in training.

    `layer` is the path of the layer that it is in, "" if the graph does not tell. `is_random`:
    it draws other numbers each time; else it normalizes with the statistics of the batch.
    """

    operator: str
    layer: str
    is_random: bool


class _Frame:
    """A graph, or one call of a function, with the nodes by name; `caller` is where it is called.

    That is the frame, the node and the number of inputs before the function's arguments.
    """

    def __init__(self, nodes: Any, function: Any = None, caller: Any = None) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.caller = caller
        self.path: tuple[str, ...] = ()
        if caller is not None:
            outer, node, _ = caller
            self.path = (*outer.path, *_scopes(node.name))
        self.children: dict[tuple[str, str], _Frame] = {}
        self.arguments: dict[str, int] = {}
        self.returns: list[str] = []
        if function is not None:
            arguments = function.signature.input_arg
            self.arguments = {each.name: index for index, each in enumerate(arguments)}
            self.returns = [function.ret[each.name] for each in function.signature.output_arg]


class _Walk:
    """What tensors of a graph are computed from, through the calls of its functions."""

    def __init__(self, graph_def: Any) -> None:
        self.root = _Frame(graph_def.node)
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self._visited = 0

    def nodes(self, start: Sequence[tuple[_Frame, str]]) -> Iterator[tuple[_Frame, Any]]:
        """Each node that the tensors depend on, with the frame that it is in, once.

        What merges the branches of a condition of TF1 is not passed: one of them never runs.
        """
        visited: set[tuple[int, str]] = set()
        waiting = list(start)
        while waiting and self._visited < _MOST_VISITED:
            frame, source = waiting.pop()
            if source.startswith("^"):
                continue
            name, _, output = source.partition(":")
            node = frame.nodes.get(name)
            if node is None:
                waiting += self._outside(frame, name)
                continue
            called = list(self._called(node))
            key = (id(frame), source if called else name)
            if key in visited or node.op == "Merge":
                continue
            visited.add(key)
            self._visited += 1
            yield frame, node
            if not called:
                waiting += [(frame, each) for each in node.input]
            for function, offset in called:
                child = self._entered(frame, node, function, offset)
                waiting += [(child, each) for each in _chosen(child.returns, node, output)]
                if len(called) > 1 and offset:
                    waiting.append((frame, node.input[0]))

    def fixed_origin(self, frame: _Frame, source: str) -> Any:
        """The node that a tensor comes from, past calls and those that hand it on; None if none."""
        for _ in range(_MOST_VISITED):
            name = source.removeprefix("^").partition(":")[0]
            node = frame.nodes.get(name)
            if node is None:
                outside = self._outside(frame, name)
                if not outside:
                    return None
                frame, source = outside[0]
            elif node.op == "Identity":
                source = node.input[0]
            else:
                return node
        return None

    def _outside(self, frame: _Frame, argument: str) -> list[tuple[_Frame, str]]:
        """What a function's argument is where it is called."""
        index = frame.arguments.get(argument)
        if index is None or frame.caller is None:
            return []
        outer, node, offset = frame.caller
        sources = [each for each in node.input if not each.startswith("^")]
        return [(outer, sources[index + offset])] if index + offset < len(sources) else []

    def _called(self, node: Any) -> Iterator[tuple[str, int]]:
        """The functions that a node calls, with the number of inputs before their arguments."""
        if node.op in self._functions:
            yield node.op, 0
        offset = 1 if node.op in _BRANCHES else 0
        for value in node.attr.values():
            for each in (value.func, *value.list.func):
                if each.name in self._functions:
                    yield each.name, offset

    def _entered(self, frame: _Frame, node: Any, name: str, offset: int) -> _Frame:
        key = (node.name, name)
        if key not in frame.children:
            function = self._functions[name]
            frame.children[key] = _Frame(function.node_def, function, (frame, node, offset))
        return frame.children[key]


def _chosen(returns: list[str], node: Any, output: str) -> list[str]:
    """Those of a function's results that an output of a call is, "2" or "output:2"; all if unsure.

    A loop's results are computed from each other.
    """
    index = output.rpartition(":")[2] or "0"
    is_call = node.op in ("PartitionedCall", "StatefulPartitionedCall") or node.op in _BRANCHES
    if not is_call or not index.isdecimal() or int(index) >= len(returns):
        return returns
    return [returns[int(index)]]


def find_training(meta_graph: Any, keys: Sequence[str]) -> list[TrainingOperator]:
    """The operators behind the outputs of signatures that act as in training, one for each layer.

    `meta_graph` is a MetaGraphDef with the signatures `keys`.
    """
    walk = _Walk(meta_graph.graph_def)
    start = [
        (walk.root, info.name)
        for key in keys
        for info in meta_graph.signature_def[key].outputs.values()
        if info.name
    ]
    training: dict[tuple[str, bool], TrainingOperator] = {}
    frames: dict[int, _Frame] = {}
    for frame, node in walk.nodes(start):
        frames[id(frame)] = frame
        if _RANDOM.fullmatch(node.op) and _is_drawn(walk, frame, node):
            each = TrainingOperator(node.op, _layer(frame, node), is_random=True)
        elif _normalizes_batch(walk, frame, node):
            each = TrainingOperator(node.op, _layer(frame, node), is_random=False)
        else:
            continue
        training.setdefault((each.layer, each.is_random), each)
    for frame in [frame for frame in frames.values() if frame.caller is not None]:
        for each in _updated(walk, frame):
            if not any(layer.split("/")[-1] == each.layer for layer, _ in training):
                training[each.layer, False] = each
    return list(training.values())


def _is_drawn(walk: _Walk, frame: _Frame, node: Any) -> bool:
    """Whether a random operator gives other numbers each time: it has no seed, or no fixed one."""
    from tensorflow.python.framework import op_def_registry

    if _SEEDS.fullmatch(node.op):
        return False
    definition = op_def_registry.get(node.op)
    if definition is None or definition.is_stateful:
        return True
    names = [each.name for each in definition.input_arg]
    seeds = [
        (frame, source)
        for name, source in zip(names, node.input, strict=False)
        if name in _BEGINS_WITH
    ]
    return any(not inner.input and inner.op != "Const" for _, inner in walk.nodes(seeds))


def _normalizes_batch(walk: _Walk, frame: _Frame, node: Any) -> bool:
    """Whether it is a batch normalization of this batch.

    The layer normalization of tf_keras is the same operator, on a sample in the form of a batch.
    """
    trains = "is_training" not in node.attr or node.attr["is_training"].b
    if not node.op.startswith("FusedBatchNorm") or not trains:
        return False
    values = walk.fixed_origin(frame, node.input[0])
    return not (
        node.attr["data_format"].s == b"NCHW" and values is not None and values.op == "Reshape"
    )


def _updated(walk: _Walk, frame: _Frame) -> Iterator[TrainingOperator]:
    """The normalizations whose moving averages a function changes."""
    for node in frame.nodes.values():
        if not (node.op.startswith("Assign") and node.op.endswith("VariableOp")):
            continue
        variable = walk.fixed_origin(frame, node.input[0])
        if variable is None or variable.op != "VarHandleOp":
            continue
        name = variable.attr["shared_name"].s.decode("utf-8", "replace") or variable.name
        match = _AVERAGES.fullmatch(name)
        if match:
            yield TrainingOperator(node.op, match[1], is_random=False)


def _layer(frame: _Frame, node: Any) -> str:
    """The path of the layer that a node is in, as far as the names of nodes tell."""
    path = (*frame.path, *_scopes(node.name.rpartition("/")[0]))
    # tf_keras has the function tf.nn.dropout within the layer.
    return "/".join(path[:-1] if path[1:] and path[-1] == "dropout" else path)


def _scopes(name: str) -> tuple[str, ...]:
    """The parts of a node's name that may be layers; a layer's own function repeats its name."""
    parts = [part for part in name.split("/") if part and not _FUNCTION.fullmatch(part)]
    return tuple(part for part, before in zip(parts, ["", *parts], strict=False) if part != before)


def refuse_training(directory: str, keys: Sequence[str], *, is_keras: bool) -> None:
    """Raise `RunsInTraining` where signatures of a SavedModel act as in training.

    `is_keras`: it was exported here from a Keras file.
    """
    meta_graph, _ = serving_graph(directory)
    training = [] if meta_graph is None else find_training(meta_graph, keys)
    if not training:
        return
    layers = tuple(dict.fromkeys(each.layer for each in training if each.layer))
    named = quoted(layers, _MOST_NAMED) or "the model"
    reasons = [
        f"{what} ({', '.join(names)})"
        for what, is_random in (("random numbers", True), ("statistics of each batch", False))
        if (names := dict.fromkeys(e.operator for e in training if e.is_random is is_random))
    ]
    raise RunsInTraining(
        f"{named} {'run' if len(layers) > 1 else 'runs'} in training mode, with "
        f"{' and '.join(reasons)}",
        hint=_HINT_OF_FILE if is_keras else _HINT,
        cause=Cause(
            operators=tuple(dict.fromkeys(each.operator for each in training)), layers=layers
        ),
    )
