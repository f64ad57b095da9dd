"""Whether the paths of files that a graph reads and writes come from its loader.

Two kinds of operators access files in an honest SavedModel. Those of its saver take the path of the
checkpoint from the loader, and a lookup table reads an asset that the model declares. So each path
is followed back, through functions and their calls, to its origin.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edgeconv.model.source.scanning.nodes import Findings, families

if TYPE_CHECKING:
    from edgeconv.model.source.graph_pb2 import AssetFileDef, MetaGraphDef, TensorInfo, VariableDef
    from edgeconv.model.source.scanning.graphs import Body, GraphNode, MetaGraph

    Need = Literal["saver", "asset"]


# The inputs that are paths, by number.
_PATH_INPUTS = {
    "RestoreV2": (0,),
    "SaveV2": (0,),
    "MergeV2Checkpoints": (0, 1),
    "InitializeTableFromTextFile": (1,),
    "InitializeTableFromTextFileV2": (1,),
}
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_WRITERS = frozenset({"SaveV2", "MergeV2Checkpoints"})
_NOT_NAMED = "reads or writes a checkpoint that the loader did not name"
# A saver adds it to its prefix.
_PIECE = re.compile(rb"[A-Za-z0-9_.{}-]*(/part)?")
# Their inputs are the function's arguments.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_ROOTS = 10
# How many operators make a path; a handful is usual.
_MOST_STEPS = 100
_MAIN_OPS = ("saved_model_main_op", "legacy_init_op", "saved_model_train_op", "table_initializer")
# Variables of TensorFlow 1, with the nodes that a loader runs to give them values.
_VARIABLES = (
    "variables",
    "trainable_variables",
    "local_variables",
    "model_variables",
    "moving_average_variables",
    "global_step",
)
_ASSETS = "saved_model_assets"
# Those that a loader needs and that are looked at here; no other is written.
COLLECTIONS = frozenset({*_MAIN_OPS, *_VARIABLES})


class PathCheck:
    """Follows every path in one graph, and adds findings."""

    def __init__(self, graph: MetaGraph, findings: Findings) -> None:
        self._bodies = graph.bodies
        self._rest = graph.rest
        self._findings = findings
        top = graph.bodies[""].nodes
        # Nobody knows which path another node gives where the loader does not feed it.
        self._assets = {
            name for name in asset_tensors(graph.rest) if name in top and _is_fed(top[name])
        }
        self._bound = {
            key: function.bound_inputs
            for key, function in graph.rest.object_graph_def.concrete_functions.items()
        }
        self._saver_path = node_of(graph.rest.saver_def.filename_tensor_name)
        # By body and node: whether each path that is made there begins where the loader says.
        self._is_led: dict[tuple[str, str], bool] = {}
        self._sites: dict[str, list[tuple[Body, GraphNode]]] = defaultdict(list)
        self._variables: Counter[bytes] = Counter()
        # Each tensor is followed once: a graph can have half a million nodes.
        self._visited: dict[tuple[str, Need], set[str]] = defaultdict(set)
        self._followed: set[tuple[str, str, str]] = set()
        self._users: dict[str, list[GraphNode]] | None = None
        self._has_only_assets: dict[str, bool] = {}
        # By the identity of nodes, which may have many inputs.
        self._inputs: dict[int, list[str]] = {}

    def run(self) -> None:
        """Check all operators that have paths."""
        users: list[tuple[Body, GraphNode]] = []
        self._check_inputs()
        for body in self._bodies.values():
            for node in body.nodes.values():
                if node.op in _PATH_INPUTS:
                    users.append((body, node))
                elif node.op == "VarHandleOp":
                    self._variables[node.text[0]] += 1
                for name in node.calls:
                    self._sites[name].append((body, node))
        for body, node in users:
            family = families()[node.op]
            need: Need = "asset" if family.reach == "asset" else "saver"
            inputs = data_inputs(node)
            for index in _PATH_INPUTS[node.op]:
                if index < len(inputs):
                    self._follow(body, inputs[index], need, _PathUser(body, node))
        self._check_variables()
        self._check_runs(users)

    def _check_inputs(self) -> None:
        """Samples must not become paths."""
        paths = asset_tensors(self._rest) | {node_of(self._rest.saver_def.filename_tensor_name)}
        for key, signature in self._rest.signature_def.items():
            for name, tensor in signature.inputs.items():
                if node_of(tensor.name) in paths - {""}:
                    self._findings.add(
                        "path",
                        f"signature {key}",
                        f"input {name} that is a path",
                        "reads or writes the file that a sample names",
                    )

    def _check_variables(self) -> None:
        """Every variable of TensorFlow 1 must name nodes of the graph."""
        nodes = self._bodies[""].nodes
        for key, variable in variable_definitions(self._rest):
            for name in (variable.variable_name, variable.initializer_name):
                if node_of(name) not in nodes:
                    what = f"variable {variable.variable_name!r} of {name!r}"
                    self._findings.add("structure", key, what, "names nothing in the graph")

    def _follow(self, body: Body, tensor: str, need: Need, user: _PathUser) -> None:
        for origin in origins(body, tensor, self._visited[body.name, need]):
            if origin.kind == "argument":
                self._into_callers(body, origin.name, need, user)
            elif not self._is_fine(body, origin, need):
                source = f"constant {origin.text!r}" if origin.kind == "constant" else origin.op
                what = f"operator {user.op} on a path from {source} ({origin.name})"
                why = _NOT_NAMED
                if need == "asset":
                    why = "reads a file that is not an asset of the model"
                self._add(need, user.where, what, why)

    def _check_led(self, body: Body, node: GraphNode) -> None:
        """The paths of a saver must begin with the one that the loader feeds."""
        inputs = data_inputs(node)
        for index in _PATH_INPUTS[node.op]:
            if index < len(inputs) and not self._led(body, inputs[index], 0):
                where = _PathUser(body, node).where
                what = f"operator {node.op} on a path without the loader's own part"
                self._add("saver", where, what, _NOT_NAMED)

    def _led(self, body: Body, tensor: str, depth: int) -> bool:
        """Whether a path begins with the one that the loader feeds, whichever way it is made."""
        name = node_of(tensor)
        key = (body.name, name)
        if key not in self._is_led:
            # A path that leads back to itself comes from nowhere.
            self._is_led[key] = False
            self._is_led[key] = depth < _MOST_STEPS and self._begins_led(body, name, depth + 1)
        return self._is_led[key]

    def _begins_led(self, body: Body, name: str, depth: int) -> bool:
        node = body.nodes.get(name)
        if node is None:
            index = body.positions.get(name)
            calls = [(caller, self._inputs_of(site)) for caller, site in self._sites[body.name]]
            # What calls it without the graph is checked where the functions are bound.
            return index is not None and all(
                index < len(inputs) and self._led(caller, inputs[index], depth)
                for caller, inputs in calls
            )
        inputs = data_inputs(node)
        if node.op == "StringJoin":
            return any(self._led(body, each, depth) for each in inputs)
        if node.op in ("Identity", "ShardedFilename"):
            return bool(inputs) and self._led(body, inputs[0], depth)
        if node.op in ("Select", "SelectV2"):
            return len(inputs) == 3 and all(self._led(body, each, depth) for each in inputs[1:])
        if node.op == "Pack":
            return bool(inputs) and all(self._led(body, each, depth) for each in inputs)
        return not body.name and name == self._saver_path

    def _is_fine(self, body: Body, origin: Origin, need: Need) -> bool:
        if need == "asset":
            return not body.name and (
                origin.name in self._assets or self._reads_asset(body.nodes.get(origin.name))
            )
        if origin.kind == "constant":
            return bool(origin.text) and all(
                b".." not in text and _PIECE.fullmatch(text) for text in origin.text
            )
        return not body.name and origin.op in _PLACEHOLDERS

    def _reads_asset(self, node: GraphNode | None) -> bool:
        """Whether a node reads a variable that only ever holds the path of an asset.

        TensorFlow 2 exports assets so. No other node may use the variable, by name or handle.
        """
        if node is None or node.op != "ReadVariableOp" or not node.inputs:
            return False
        variable = self._bodies[""].nodes.get(node_of(node.inputs[0]))
        if variable is None or variable.op != "VarHandleOp":
            return False
        if variable.name not in self._has_only_assets:
            # Variables without a name may be one.
            is_one = self._variables[variable.text[0]] == 1 and len(variable.text) == 1
            self._has_only_assets[variable.name] = is_one and all(
                user.op in ("ReadVariableOp", "VarIsInitializedOp")
                or (user.op == "AssignVariableOp" and _assigned(user) in self._assets)
                for user in self._users_of(variable.name)
            )
        return self._has_only_assets[variable.name]

    def _users_of(self, name: str) -> list[GraphNode]:
        """The nodes of the graph itself that take an output of a node."""
        if self._users is None:
            self._users = defaultdict(list)
            for node in self._bodies[""].nodes.values():
                for each in set(map(node_of, node.inputs)):
                    self._users[each].append(node)
        return self._users.get(name, [])

    def _into_callers(self, body: Body, argument: str, need: Need, user: _PathUser) -> None:
        key = (body.name, argument, need)
        if key in self._followed:
            return
        self._followed.add(key)
        index = body.positions[argument]
        self._check_binding(body, index, need, user)
        for caller, node in self._sites[body.name]:
            inputs = self._inputs_of(node)
            is_call = node.op in _CALLS or node.op == body.name
            if is_call and len(node.calls) == 1 and index < len(inputs):
                self._follow(caller, inputs[index], need, user)
            else:
                what = f"operator {user.op} in a function that {node.op} calls ({node.name})"
                self._add(need, user.where, what, "gets a path that cannot be followed")

    def _inputs_of(self, node: GraphNode) -> list[str]:
        """The tensors that a call takes."""
        if id(node) not in self._inputs:
            self._inputs[id(node)] = data_inputs(node)
        return self._inputs[id(node)]

    def _check_binding(self, body: Body, index: int, need: Need, user: _PathUser) -> None:
        """Check what the loader of objects, which calls functions without the graph, passes."""
        bound = self._bound.get(body.name)
        if bound is None:
            return
        objects = self._rest.object_graph_def.nodes
        from_end = index - (body.argument_count - len(bound))
        number = bound[from_end] if from_end >= 0 else -1
        is_asset = 0 <= number < len(objects) and objects[number].HasField("asset")
        if need == "saver" or not is_asset:
            what = f"operator {user.op} in function {body.name}, which is one of the model's own"
            self._add(need, user.where, what, "takes a path from whoever calls the function")

    def _check_runs(self, users: Iterable[tuple[Body, GraphNode]]) -> None:
        """Only the loader may run the saver, and restoring must not write."""
        savers = [pair for pair in users if families()[pair[1].op].reach == "saver"]
        everything, functions = self._reaching(savers)
        writing, _ = self._reaching(pair for pair in savers if pair[1].op in _WRITERS)
        top = self._bodies[""]
        running = self._running(everything)
        # Each root takes a walk through the graph, and a few are enough to refuse it.
        for root in itertools.islice((r for r in _roots(self._rest) if r in running), _MOST_ROOTS):
            for name in ancestors(top, root) & everything:
                self._add_run(name, f"a saver that runs with {root}")
        for name in functions & self._bound.keys():
            self._add_run(name, f"a saver in function {name}, which is one of the model's own")
        restoring = ancestors(top, node_of(self._rest.saver_def.restore_op_name))
        for name in restoring & writing:
            self._add_run(name, "a saver that writes when the model is loaded")
        for body, node in savers:
            # Nothing runs a second saver of the graph itself.
            if body.name or node.name in restoring:
                self._check_led(body, node)

    def _running(self, names: set[str]) -> set[str]:
        """These nodes of the graph itself, and all that runs only after one of them."""
        waiting, running = list(names), set(names)
        while waiting:
            for user in self._users_of(waiting.pop()):
                if user.name not in running:
                    running.add(user.name)
                    waiting.append(user.name)
        return running

    def _add_run(self, where: str, what: str) -> None:
        self._add("saver", where, what, "reads or writes checkpoints when the model starts or runs")

    def _add(self, need: Need, where: str, what: str, why: str) -> None:
        self._findings.add("checkpoint" if need == "saver" else "asset", where, what, why)

    def _reaching(self, pairs: Iterable[tuple[Body, GraphNode]]) -> tuple[set[str], set[str]]:
        """What runs one of these nodes: nodes of the graph itself, and functions."""
        waiting, functions, top = list(pairs), set[str](), set[str]()
        while waiting:
            body, node = waiting.pop()
            if not body.name:
                top.add(node.name)
            elif body.name not in functions:
                functions.add(body.name)
                waiting += self._sites[body.name]
        return top, functions


class _PathUser:
    """The operator that a path is for."""

    def __init__(self, body: Body, node: GraphNode) -> None:
        self.where = f"{body.name}/{node.name}" if body.name else node.name
        self.op = node.op


def asset_files(rest: MetaGraphDef) -> Iterator[AssetFileDef]:
    """The assets that a loader takes: of the field for them, or else of the older collection.

    Raises `DecodeError`.
    """
    from edgeconv.model.source.graph_pb2 import AssetFileDef

    if rest.asset_file_def or _ASSETS not in rest.collection_def:
        yield from rest.asset_file_def
        return
    collection = rest.collection_def[_ASSETS]
    for packed in collection.any_list.value:
        yield AssetFileDef.FromString(packed.value)
    for value in collection.bytes_list.value:
        yield AssetFileDef.FromString(value)


def variable_definitions(rest: MetaGraphDef) -> Iterator[tuple[str, VariableDef]]:
    """The variables of TensorFlow 1, by the collections they are in. Raises `DecodeError`."""
    from edgeconv.model.source.graph_pb2 import VariableDef

    for key in _VARIABLES:
        if key in rest.collection_def:
            for packed in rest.collection_def[key].bytes_list.value:
                yield key, VariableDef.FromString(packed)


def asset_tensors(rest: MetaGraphDef) -> set[str]:
    """The nodes that a loader feeds the paths of assets to. Raises `DecodeError`."""
    return {node_of(asset.tensor_info.name) for asset in asset_files(rest)}


def _is_fed(node: GraphNode) -> bool:
    """Whether a node is a path that a loader feeds, and that the copy has another text for."""
    return bool(node.text) if node.op == "Const" else node.op in _PLACEHOLDERS


def _roots(rest: MetaGraphDef) -> Iterator[str]:
    """The nodes that a loader or a signature runs."""
    for signature in rest.signature_def.values():
        for output in signature.outputs.values():
            yield from map(node_of, _tensor_names(output))
    for key in _MAIN_OPS:
        if key in rest.collection_def:
            yield from map(node_of, rest.collection_def[key].node_list.value)
    for _, variable in variable_definitions(rest):
        names = (variable.initializer_name, variable.initial_value_name, variable.snapshot_name)
        yield from map(node_of, names)


def _tensor_names(info: TensorInfo) -> Iterator[str]:
    sparse = info.coo_sparse
    yield from (info.name, sparse.values_tensor_name, sparse.indices_tensor_name)
    yield sparse.dense_shape_tensor_name
    for component in info.composite_tensor.components:
        yield from _tensor_names(component)


def _assigned(node: GraphNode) -> str:
    """The node whose value an AssignVariableOp writes."""
    return node_of(node.inputs[1]) if len(node.inputs) > 1 else ""


# Where a tensor of a graph comes from, and what runs before a node.

# A saver builds its paths from a prefix with such operators.
_MADE_OF = frozenset(
    ("Identity", "Pack", "PlaceholderWithDefault", "Select", "SelectV2", "ShardedFilename")
) | {"StringJoin"}


class Origin(NamedTuple):
    """Where a path comes from: an argument, a constant, or an operator's output."""

    kind: Literal["argument", "constant", "node"]
    name: str
    op: str = ""
    text: tuple[bytes, ...] = ()


def origins(body: Body, tensor: str, visited: set[str]) -> Iterator[Origin]:
    """Where a path comes from, except tensors that were `visited`; others are added there."""
    waiting = [tensor]
    while waiting:
        name = node_of(waiting.pop())
        if name in visited:
            continue
        visited.add(name)
        node = body.nodes.get(name)
        if node is None:
            kind: Any = "argument" if name in body.positions else "node"
            yield Origin(kind, name, "nothing")
        elif node.op == "Const":
            yield Origin("constant", name, node.op, node.text)
        elif node.op in _MADE_OF:
            if node.text:
                # Between the strings that are joined.
                yield Origin("constant", name, node.op, node.text)
            waiting += data_inputs(node) if node.op != "ShardedFilename" else node.inputs[:1]
        elif node.op not in ("StaticRegexFullMatch", "RegexFullMatch"):
            # Those two return booleans.
            yield Origin("node", name, node.op)


def data_inputs(node: GraphNode) -> list[str]:
    """Its inputs that are tensors, and not only order."""
    return [name for name in node.inputs if not name.startswith("^")]


def node_of(tensor: str) -> str:
    """The name of the node that gives a tensor."""
    return tensor.lstrip("^").partition(":")[0]


def ancestors(body: Body, name: str) -> set[str]:
    """A node and all that runs before it."""
    waiting, visited = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in visited or name not in body.nodes:
            continue
        visited.add(name)
        waiting += [node_of(each) for each in body.nodes[name].inputs]
    return visited
