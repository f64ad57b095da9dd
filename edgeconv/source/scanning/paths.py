"""Whether the paths of files that a graph reads and writes come from its loader.

Two kinds of operators access files in an honest SavedModel. Those of its saver take the path of the
checkpoint from the loader, and a lookup table reads an asset that the model declares. So each path
is followed back, through functions and their calls, to its origin.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from edgeconv.source.scanning.operators import families
from edgeconv.source.scanning.origins import Origin, ancestors, data_inputs, node_of, origins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from edgeconv.source.saved_model_pb2 import AssetFileDef, MetaGraphDef, TensorInfo
    from edgeconv.source.scanning.findings import Findings
    from edgeconv.source.scanning.graphs import Body, GraphNode, MetaGraph

    Need = Literal["saver", "asset"]

# The inputs that are paths, by number.
_PATH_INPUTS = {
    "RestoreV2": (0,),
    "SaveV2": (0,),
    "MergeV2Checkpoints": (0, 1),
    "InitializeTableFromTextFile": (1,),
    "InitializeTableFromTextFileV2": (1,),
}
_WRITERS = frozenset({"SaveV2", "MergeV2Checkpoints"})
# A saver adds it to its prefix.
_PIECE = re.compile(rb"[A-Za-z0-9_.{}-]*(/part)?")
# Their inputs are the function's arguments.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_ROOTS = 10
_MAIN_OPS = ("saved_model_main_op", "legacy_init_op", "saved_model_train_op")


class PathCheck:
    """Follows every path in one graph, and adds findings."""

    def __init__(self, graph: MetaGraph, findings: Findings) -> None:
        self._bodies = graph.bodies
        self._rest = graph.rest
        self._findings = findings
        self._assets = _asset_tensors(graph.rest)
        self._bound = {
            entry.key: entry.value.bound_inputs
            for entry in graph.rest.object_graph_def.concrete_functions
        }
        self._sites: dict[str, list[tuple[Body, GraphNode]]] = defaultdict(list)
        self._variables: Counter[tuple[bytes, ...]] = Counter()
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
                    self._variables[node.text] += 1
                for name in node.calls:
                    self._sites[name].append((body, node))
        for body, node in users:
            family = families()[node.op]
            need: Need = "asset" if family.reach == "asset" else "saver"
            inputs = data_inputs(node)
            for index in _PATH_INPUTS[node.op]:
                if index < len(inputs):
                    self._follow(body, inputs[index], need, _PathUser(body, node))
        self._check_runs(users)

    def _check_inputs(self) -> None:
        """Samples must not become paths."""
        paths = self._assets | {node_of(self._rest.saver_def.filename_tensor_name)}
        for entry in self._rest.signature_def:
            for tensor in entry.value.inputs:
                if node_of(tensor.value.name) in paths - {""}:
                    self._findings.add(
                        "path",
                        f"signature {entry.key}",
                        f"input {tensor.key} that is a path",
                        "reads or writes the file that a sample names",
                    )

    def _follow(self, body: Body, tensor: str, need: Need, user: _PathUser) -> None:
        for origin in origins(body, tensor, self._visited[body.name, need]):
            if origin.kind == "argument":
                self._into_callers(body, origin.name, need, user)
            elif not self._is_fine(body, origin, need):
                source = f"constant {origin.text!r}" if origin.kind == "constant" else origin.op
                what = f"operator {user.op} on a path from {source} ({origin.name})"
                why = "reads or writes a checkpoint that the loader did not name"
                if need == "asset":
                    why = "reads a file that is not an asset of the model"
                self._add(need, user.where, what, why)

    def _is_fine(self, body: Body, origin: Origin, need: Need) -> bool:
        if need == "asset":
            return not body.name and (
                origin.name in self._assets or self._reads_asset(body.nodes.get(origin.name))
            )
        if origin.kind == "constant":
            return bool(origin.text) and all(_is_piece(text) for text in origin.text)
        return not body.name and origin.op in ("Placeholder", "PlaceholderV2")

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
            self._has_only_assets[variable.name] = self._variables[variable.text] == 1 and all(
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
        for name in ancestors(top, node_of(self._rest.saver_def.restore_op_name)) & writing:
            self._add_run(name, "a saver that writes when the model is loaded")

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
    """The assets that a graph declares in either field for them. Raises `DecodeError`."""
    from edgeconv.source.saved_model_pb2 import AssetFileDef

    yield from rest.asset_file_def
    for entry in rest.collection_def:
        if entry.key == "saved_model_assets":
            for packed in entry.value.any_list.value:
                yield AssetFileDef.FromString(packed.value)
            for value in entry.value.bytes_list.value:
                yield AssetFileDef.FromString(value)


def _asset_tensors(rest: MetaGraphDef) -> set[str]:
    return {node_of(asset.tensor_info.name) for asset in asset_files(rest)}


def _is_piece(text: bytes) -> bool:
    return b".." not in text and _PIECE.fullmatch(text) is not None


def _roots(rest: MetaGraphDef) -> Iterator[str]:
    """The nodes that a loader or a signature runs."""
    for entry in rest.signature_def:
        for output in entry.value.outputs:
            yield from map(node_of, _tensor_names(output.value))
    for collection in rest.collection_def:
        if collection.key in _MAIN_OPS:
            yield from map(node_of, collection.value.node_list.value)


def _tensor_names(info: TensorInfo) -> Iterator[str]:
    sparse = info.coo_sparse
    yield from (info.name, sparse.values_tensor_name, sparse.indices_tensor_name)
    yield sparse.dense_shape_tensor_name
    for component in info.composite_tensor.components:
        yield from _tensor_names(component)


def _assigned(node: GraphNode) -> str:
    """The node whose value an AssignVariableOp writes."""
    return node_of(node.inputs[1]) if len(node.inputs) > 1 else ""
