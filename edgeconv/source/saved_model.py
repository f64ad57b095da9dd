"""What a SavedModel says of itself, read from saved_model.pb without TensorFlow."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.errors import InputRefused, UsageError
from edgeconv.messages import message_class
from edgeconv.nouns import OperatorCount, Signature, TensorSpec
from edgeconv.source.foreign_kinds import FOREST_SAVED_MODEL
from edgeconv.source.kinds import unreadable
from edgeconv.source.variables import refuse_missing_variables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# See edgeconv.messages.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "SavedModel": {"meta_graphs": (2, "MetaGraph*")},
    "MetaGraph": {
        "info": (1, "Info"),
        "graph": (2, "Graph"),
        "signatures": (5, "SignatureEntry*"),
    },
    "Info": {"tags": (4, "string*"), "tensorflow_version": (5, "string")},
    "SignatureEntry": {"key": (1, "string"), "value": (2, "SignatureDef")},
    "SignatureDef": {"inputs": (1, "TensorEntry*"), "outputs": (2, "TensorEntry*")},
    "TensorEntry": {"key": (1, "string"), "value": (2, "TensorInfo")},
    "TensorInfo": {
        "dtype": (2, "int32"),
        "shape": (3, "Shape"),
        "sparse": (4, "Empty"),
        "composite": (5, "Empty"),
    },
    "Empty": {},
    "Shape": {"dims": (2, "Dim*"), "unknown_rank": (3, "bool")},
    "Dim": {"size": (1, "int64")},
    "Graph": {"nodes": (1, "Node*"), "library": (2, "Library")},
    "Node": {"op": (2, "string")},
    "Library": {"functions": (1, "Function*")},
    "Function": {"nodes": (3, "Node*")},
}
# By the numbers of TensorFlow's DataType; references to variables are 100 higher.
_DTYPE_NAMES = (
    "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 "
    "bfloat16 qint16 quint16 uint16 complex128 float16 resource variant uint32 uint64 "
    "float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 "
    "int2 uint2 float4_e2m1fn"
)
_DTYPES = dict(enumerate(_DTYPE_NAMES.split(), start=1))
_FIRST_REFERENCE = 100
_SERVING_TAG = "serve"
_FOREST_OPERATORS = "SimpleML"
# What TensorFlow reads besides saved_model.pb.
_FOLDERS = ("variables", "assets")
_INITIALISER = "__saved_model_init_op"


class Content(NamedTuple):
    """One graph of a SavedModel: its signatures, its operators, and what is worth saying.

    `tag_sets` are the tags of every graph that is there.
    """

    signatures: tuple[Signature, ...]
    operators: tuple[OperatorCount, ...]
    notes: tuple[str, ...]
    tag_sets: tuple[tuple[str, ...], ...]


def read_saved_model(directory: Path, tags: tuple[str, ...] = ()) -> Content:
    """What `directory`/saved_model.pb says of the graph with these tags, () the one for serving.

    Signatures and their tensors are sorted by name; operators are counted in the graph and
    in its functions. Without `tags`, and without a graph for serving, there are no signatures and
    a note says so. Raises `InputRefused` for a file that is no SavedModel, for one without the
    values of its variables, and for a decision forest, and `UsageError` for tags that no graph has.
    """
    graphs = _parse(directory / "saved_model.pb").meta_graphs
    tag_sets = tuple(tuple(graph.info.tags) for graph in graphs)
    chosen = _chosen_graph(graphs, tags)
    if chosen is None and tags:
        raise UsageError(
            f"{directory} has no graph with exactly the tags {','.join(tags)}",
            hint=_tag_hint(tag_sets),
        )
    if chosen is None:
        there = "; ".join(map(_tag_text, tag_sets))
        note = f"no graph is tagged {_SERVING_TAG!r}, only: {there}"
        return Content((), (), (note,), tag_sets)
    operators = _operators(chosen)
    _refuse_unusable(directory, [operator.name for operator in operators])
    return Content(_signatures(chosen), operators, tuple(_notes(chosen)), tag_sets)


def _refuse_unusable(directory: Path, operators: list[str]) -> None:
    if any(name.startswith(_FOREST_OPERATORS) for name in operators):
        what, hint = FOREST_SAVED_MODEL
        raise InputRefused(f"{directory} is {what}", hint=hint)
    refuse_missing_variables(directory, operators)


def refuse_without_graph(path: str, tag_sets: tuple[tuple[str, ...], ...]) -> None:
    """Raise `InputRefused` where none of the graphs is for serving."""
    if not any(_SERVING_TAG in tags for tags in tag_sets):
        there = "; ".join(map(_tag_text, tag_sets))
        raise InputRefused(
            f"{path} has no graph tagged {_SERVING_TAG!r}, only: {there}", hint=_tag_hint(tag_sets)
        )


def serving_copy(directory: Path, tags: tuple[str, ...], target: Path) -> bool:
    """Write the graph with these tags to `target` as a SavedModel for serving.

    It has all the variables and assets. Returns False, and writes nothing, where what
    TensorFlow takes by itself is that graph already. Raises `InputRefused`.
    """
    message = _parse(directory / "saved_model.pb")
    chosen = _chosen_graph(message.meta_graphs, tags)
    if chosen is None or list(chosen.info.tags) == [_SERVING_TAG]:
        return False
    kept = type(chosen).FromString(chosen.SerializeToString())
    kept.info.tags[:] = [_SERVING_TAG]
    del message.meta_graphs[:]
    message.meta_graphs.append(kept)
    try:
        target.mkdir(parents=True)
        for name in _FOLDERS:
            if (directory / name).is_dir():
                shutil.copytree(directory / name, target / name)
        (target / "saved_model.pb").write_bytes(message.SerializeToString())
    except OSError as error:
        raise InputRefused(f"{directory} cannot be copied: {error}") from error
    return True


def _tag_text(tags: tuple[str, ...]) -> str:
    return ",".join(tags) or "(no tag)"


def _tag_hint(tag_sets: tuple[tuple[str, ...], ...]) -> str:
    options = [f"--tag {','.join(tags)}" for tags in tag_sets if tags]
    return f"choose the graph with {' or '.join(options)}" if options else "export it with tags"


def _parse(path: Path) -> Any:
    from google.protobuf.message import DecodeError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if not data:
        raise garbled(path, "it is empty (0 bytes)")
    message = _message_class()()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise garbled(path, str(error)) from error
    if not message.meta_graphs:
        raise garbled(path, "it holds no graph")
    return message


def garbled(path: Path, what: str) -> InputRefused:
    """The refusal of a saved_model.pb whose content makes no sense."""
    return InputRefused(
        f"{path} is no SavedModel that can be read: {what}",
        hint="copy or export the model again; it may be truncated",
    )


@cache
def _message_class() -> Any:
    return message_class(_MESSAGES, "SavedModel")


def _chosen_graph(graphs: Any, tags: tuple[str, ...]) -> Any:
    """The graph with exactly these tags.

    Without tags, the one tagged "serve" and nothing else, else the first with that among its tags.
    """
    if tags:
        return next((graph for graph in graphs if set(graph.info.tags) == set(tags)), None)
    serving = [graph for graph in graphs if _SERVING_TAG in graph.info.tags]
    return min(serving, key=lambda graph: len(graph.info.tags), default=None)


def _signatures(graph: Any) -> tuple[Signature, ...]:
    by_key = {entry.key: entry.value for entry in graph.signatures}
    return tuple(
        Signature(key=key, inputs=_specs(value.inputs), outputs=_specs(value.outputs))
        for key, value in sorted(by_key.items())
        if not key.startswith(_INITIALISER)
    )


def _specs(entries: Any) -> tuple[TensorSpec, ...]:
    by_name = {entry.key: entry.value for entry in entries}
    return tuple(
        TensorSpec(
            name=name,
            shape=tuple(dim.size for dim in info.shape.dims),
            dtype=_dtype(info),
            rank_known=not info.shape.unknown_rank,
        )
        for name, info in sorted(by_name.items())
    )


def _dtype(info: Any) -> str:
    for encoding in ("sparse", "composite"):
        if info.HasField(encoding):
            return encoding
    return _DTYPES.get(info.dtype % _FIRST_REFERENCE, f"unknown type {info.dtype}")


def _operators(graph: Any) -> tuple[OperatorCount, ...]:
    counts = Counter(node.op for node in graph.graph.nodes)
    for function in graph.graph.library.functions:
        counts.update(node.op for node in function.nodes)
    return tuple(
        OperatorCount(name=name, version=0, count=count) for name, count in sorted(counts.items())
    )


def _notes(graph: Any) -> Iterator[str]:
    if graph.info.tensorflow_version:
        yield f"saved by TensorFlow {graph.info.tensorflow_version}"
    if list(graph.info.tags) != [_SERVING_TAG]:
        yield f"tagged {', '.join(graph.info.tags)}"
