"""The tensors of a graph by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import entry_subgraphs, parse, text
from edgeconv.tflite.summary import spec_of

if TYPE_CHECKING:
    from edgeconv.types import TensorSpec


def tensor_specs(data: bytes, *, where: str) -> dict[str, TensorSpec]:
    """Every tensor that a caller's graphs have, weights among them, by name.

    A name that is there more than once gets its number: "name", "name (2)". Raises
    `InputRefused`, which names the file as `where`, for bytes that are no model.
    """
    model = parse(data, where=where)
    found: dict[str, TensorSpec] = {}
    # The number to go on with, so that many tensors of one name take no more than their number.
    numbers: dict[str, int] = {}
    for index in entry_subgraphs(model):
        for tensor in model.subgraphs[index].tensors:
            name = unique = text(tensor.name)
            while unique in found:
                numbers[name] = numbers.get(name, 1) + 1
                unique = f"{name} ({numbers[name]})"
            found[unique] = spec_of(unique, tensor)
    return found


def layers_of_graphs(data: bytes, *, where: str) -> dict[str, frozenset[str]]:
    """The outputs of the operators of every graph, by the graph's name.

    A graph without a name is called "main", as viewers do. Raises `InputRefused`.
    """
    model = parse(data, where=where)
    found: dict[str, frozenset[str]] = {}
    for graph in model.subgraphs:
        outputs = {i for operator in graph.operators for i in operator.outputs if i != -1}
        names = frozenset(text(graph.tensors[i].name) for i in outputs)
        key = text(graph.name) or "main"
        found[key] = found.get(key, frozenset()) | names
    return found
