"""The content of a SavedModel, read from saved_model.pb without TensorFlow."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.source.kinds import FOREST_SAVED_MODEL, unreadable
from edgeconv.model.source.wire import (
    Field,
    MalformedWire,
    TooMuchWire,
    delimited,
    fields,
    mapped,
    messages,
)
from edgeconv.system.store.files import leads_out
from edgeconv.types import OperatorCount, Signature, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from edgeconv.model.source.graph_pb2 import (
        MetaGraphDef,
        SavedObject,
        StructuredValue,
        TensorInfo,
    )


# The numbers of TensorFlow's .proto files, down to the name of a node's operator.
_META_GRAPH, _INFO, _GRAPH, _SIGNATURES, _OBJECTS = 2, 1, 2, 5, 7
_NODES, _LIBRARY, _FUNCTIONS, _FUNCTION_NODES, _OPERATOR, _TAGS = 1, 2, 1, 3, 2, 4
# Far more than any model has. Each byte of a signature may become 30 in memory.
_MOST_GRAPHS = 100
_MOST_NODES = 2_000_000
_MOST_SIGNATURE_BYTES = _MOST_OBJECT_BYTES = 2**24
# By the numbers of TensorFlow's DataType; references to variables are 100 higher.
_DTYPE_NAMES = (
    "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 "
    "bfloat16 qint16 quint16 uint16 complex128 float16 resource variant uint32 uint64 "
    "float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 "
    "int2 uint2 float4_e2m1fn"
)
_DTYPES = dict(enumerate(_DTYPE_NAMES.split(), start=1))
_FIRST_REFERENCE = 100
SERVING_TAG = "serve"
GRAPH_FILE = "saved_model.pb"
# The field saved_model_schema_version of the file, which has been 1 ever since.
SCHEMA_VERSION = b"\x08\x01"
_FOREST_OPERATORS = "SimpleML"
# TensorFlow also reads them.
_FOLDERS = ("variables", "assets")
_INITIALIZER = "__saved_model_init_op"


class SavedModelContent(NamedTuple):
    """Signatures, operators and notes of one graph; `tag_sets` has the tags of all graphs."""

    signatures: tuple[Signature, ...]
    operators: tuple[OperatorCount, ...]
    notes: tuple[str, ...]
    tag_sets: tuple[tuple[str, ...], ...]


def read_saved_model(directory: Path, tags: tuple[str, ...] = ()) -> SavedModelContent:
    """The content of the graph with these tags, () the one for serving.

    Signatures and their tensors are sorted by name; operators are counted in the graph and its
    functions. Without `tags` and a graph for serving, there are no signatures, and a note. Raises
    `InputRefused` for a file that is not a SavedModel, for missing values of variables and for a
    decision forest, and `UsageError` for tags that no graph has.
    """
    with _opened(directory / GRAPH_FILE) as graphs:
        tag_sets = tuple(tuple(graph.message.meta_info_def.tags) for graph in graphs)
        chosen = _chosen_graph(graphs, tags)
        if chosen is None and tags:
            raise UsageError(
                f"{directory} has no graph with exactly the tags {','.join(tags)}",
                hint=_tag_hint(tag_sets),
            )
        if chosen is None:
            others = "; ".join(map(_tag_text, tag_sets))
            note = f"no graph is tagged {SERVING_TAG!r}, only: {others}"
            return SavedModelContent((), (), (note,), tag_sets)
        operators = chosen.operators()
    names = [operator.name for operator in operators]
    if any(name.startswith(_FOREST_OPERATORS) for name in names):
        what, hint = FOREST_SAVED_MODEL
        raise InputRefused(f"{directory} is {what}", hint=hint)
    refuse_missing_variables(directory, names)
    message = chosen.message
    return SavedModelContent(_signatures(message), operators, tuple(_notes(message)), tag_sets)


def read_functions(directory: Path, tags: tuple[str, ...] = ()) -> tuple[TracedFunction, ...]:
    """The functions that the saved object of a graph was traced for; () for a graph without one.

    `tags` are as in `read_saved_model`. Raises `InputRefused` for a file that is not a SavedModel.
    """
    with _opened(directory / GRAPH_FILE) as graphs:
        chosen = _chosen_graph(graphs, tags)
        return functions_of(chosen.objects(), _dtype_name) if chosen else ()


def refuse_without_graph(path: str, tag_sets: tuple[tuple[str, ...], ...]) -> None:
    """Raise `InputRefused` where none of the graphs is for serving."""
    if not any(SERVING_TAG in tags for tags in tag_sets):
        others = "; ".join(map(_tag_text, tag_sets))
        raise InputRefused(
            f"{path} has no graph tagged {SERVING_TAG!r}, only: {others}", hint=_tag_hint(tag_sets)
        )


def number_of_graph(directory: Path, tags: tuple[str, ...]) -> int | None:
    """Which of the graphs has these tags, () the one for serving; None where none has.

    Raises `InputRefused`.
    """
    with _opened(directory / GRAPH_FILE) as graphs:
        chosen = _chosen_graph(graphs, tags)
        return None if chosen is None else graphs.index(chosen)


def serving_copy(directory: Path, tags: tuple[str, ...], target: Path) -> bool:
    """Write the graph with these tags to `target` as a SavedModel for serving.

    It has all the variables and assets. Returns False, and writes nothing, where TensorFlow loads
    that graph from `directory`. Raises `InputRefused`.
    """
    with _opened(directory / GRAPH_FILE) as graphs:
        chosen = _chosen_graph(graphs, tags)
        if chosen is None or list(chosen.message.meta_info_def.tags) == [SERVING_TAG]:
            return False
        try:
            target.mkdir(parents=True)
            for name in _FOLDERS:
                if (directory / name).is_dir():
                    shutil.copytree(directory / name, target / name)
            with (target / GRAPH_FILE).open("wb") as file:
                file.writelines(chosen.for_serving())
        except OSError as error:
            raise InputRefused(f"{directory} cannot be copied: {error}") from error
    return True


def _tag_text(tags: tuple[str, ...]) -> str:
    return ",".join(tags) or "(no tag)"


def _tag_hint(tag_sets: tuple[tuple[str, ...], ...]) -> str:
    options = [f"--tag {','.join(tags)}" for tags in tag_sets if tags]
    return f"choose the graph with {' or '.join(options)}" if options else "export it with tags"


class _MappedGraph:
    """One of a SavedModel's graphs, in the mapped file; `message` lacks its nodes."""

    def __init__(self, data: memoryview, start: int, stop: int) -> None:
        from edgeconv.model.source.graph_pb2 import MetaGraphDef

        self._data = data
        self._fields = list(fields(data, start, stop))
        kept = [self._bytes(f) for f in self._fields if f.number in (_INFO, _SIGNATURES)]
        if sum(map(len, kept)) > _MOST_SIGNATURE_BYTES:
            raise TooMuchWire(f"signatures of more than {_MOST_SIGNATURE_BYTES} bytes")
        self.message = MetaGraphDef.FromString(b"".join(kept))

    def operators(self) -> tuple[OperatorCount, ...]:
        """How often each operator occurs, in the graph and in its functions."""
        counts: Counter[str] = Counter()
        for number, (start, stop) in enumerate(self._nodes(), 1):
            if number > _MOST_NODES:
                raise TooMuchWire(f"more than {_MOST_NODES} nodes")
            # The last of several fields counts.
            operator = b""
            for begin, end in messages(self._data, start, stop, _OPERATOR):
                operator = bytes(self._data[begin:end])
            counts[operator.decode("utf-8", "replace")] += 1
        return tuple(
            OperatorCount(name=name, version=0, count=count)
            for name, count in sorted(counts.items())
        )

    def objects(self) -> bytes:
        """The SavedObjectGraph; empty if the file has none, or too much of it."""
        parts = [field for field in self._fields if field.number == _OBJECTS and field.is_message]
        if sum(field.stop - field.content for field in parts) > _MOST_OBJECT_BYTES:
            return b""
        return b"".join(bytes(self._data[field.content : field.stop]) for field in parts)

    def _nodes(self) -> Iterator[tuple[int, int]]:
        for graph in self._fields:
            if graph.number == _GRAPH and graph.is_message:
                for part in fields(self._data, graph.content, graph.stop):
                    if part.number == _NODES and part.is_message:
                        yield part.content, part.stop
                    elif part.number == _LIBRARY and part.is_message:
                        functions = messages(self._data, part.content, part.stop, _FUNCTIONS)
                        for start, stop in functions:
                            yield from messages(self._data, start, stop, _FUNCTION_NODES)

    def for_serving(self) -> Iterator[bytes]:
        """A saved_model.pb with only this graph, tagged only for serving."""
        infos = [f for f in self._fields if f.number == _INFO and f.is_message]
        info = b"".join(
            self._bytes(part)
            for each in infos
            for part in fields(self._data, each.content, each.stop)
            if part.number != _TAGS
        )
        info += delimited(_TAGS, len(SERVING_TAG)) + SERVING_TAG.encode()
        others = [f for f in self._fields if f not in infos]
        begin = delimited(_INFO, len(info)) + info
        size_bytes = len(begin) + sum(f.stop - f.start for f in others)
        yield SCHEMA_VERSION + delimited(_META_GRAPH, size_bytes) + begin
        yield from (self._bytes(f) for f in others)

    def _bytes(self, field: Field) -> bytes:
        return bytes(self._data[field.start : field.stop])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[list[_MappedGraph]]:
    """The graphs in a saved_model.pb, of which only signatures and tags are read at once.

    Raises `InputRefused` for an unreadable file, also from within the block.
    """
    from google.protobuf.message import DecodeError

    if leads_out(path, path.parent.resolve()):
        raise InputRefused(
            f"{path} is a symbolic link to {path.resolve()}, outside of the model",
            hint="copy the directory with cp -rL",
        )
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise garbled(path, "it is empty (0 bytes)")
            with mapped(file) as data:
                graphs = messages(data, 0, len(data), _META_GRAPH)
                limits = list(itertools.islice(graphs, _MOST_GRAPHS + 1))
                if not limits:
                    raise garbled(path, "it holds no graph")
                if len(limits) > _MOST_GRAPHS:
                    raise garbled(path, f"it holds more than {_MOST_GRAPHS} graphs")
                yield [_MappedGraph(data, start, stop) for start, stop in limits]
    except OSError as error:
        raise unreadable(path, error) from error
    except (MalformedWire, TooMuchWire, DecodeError) as error:
        raise garbled(path, str(error)) from error


def garbled(path: Path, what: str) -> InputRefused:
    """The refusal of an unreadable saved_model.pb."""
    return InputRefused(
        f"{path} cannot be read as a SavedModel: {what}",
        hint="copy or export the model again; it may be truncated",
    )


def _chosen_graph(graphs: list[_MappedGraph], tags: tuple[str, ...]) -> _MappedGraph | None:
    """The graph with exactly these tags.

    Without tags, the one tagged "serve" and nothing else, else the first with that among its tags.
    """
    if tags:
        return next(
            (each for each in graphs if set(each.message.meta_info_def.tags) == set(tags)), None
        )
    serving = [each for each in graphs if SERVING_TAG in each.message.meta_info_def.tags]
    return min(serving, key=lambda each: len(each.message.meta_info_def.tags), default=None)


def _signatures(graph: MetaGraphDef) -> tuple[Signature, ...]:
    return tuple(
        Signature(key=key, inputs=_specs(value.inputs), outputs=_specs(value.outputs))
        for key, value in sorted(graph.signature_def.items())
        if not key.startswith(_INITIALIZER)
    )


def _specs(by_name: Mapping[str, TensorInfo]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=name,
            shape=tuple(dim.size for dim in info.tensor_shape.dim),
            dtype=_dtype(info),
            rank_known=not info.tensor_shape.unknown_rank,
        )
        for name, info in sorted(by_name.items())
    )


def _dtype(info: TensorInfo) -> str:
    for encoding in ("coo_sparse", "composite_tensor"):
        if info.HasField(encoding):
            return encoding.replace("coo_", "").replace("_tensor", "")
    return _dtype_name(info.dtype)


def _dtype_name(number: int) -> str:
    return _DTYPES.get(number % _FIRST_REFERENCE, f"unknown type {number}")


def _notes(graph: MetaGraphDef) -> Iterator[str]:
    if graph.meta_info_def.tensorflow_version:
        yield f"saved by TensorFlow {graph.meta_info_def.tensorflow_version}"
    if list(graph.meta_info_def.tags) != [SERVING_TAG]:
        yield f"tagged {', '.join(graph.meta_info_def.tags)}"


# Whether the files with the values of a SavedModel's variables exist.

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2", "AutoReloadVariable"})
# Without one of these, variables are set by the graph itself.
_RESTORES = frozenset({"Restore", "RestoreSlice", "RestoreV2"})
_DATA = re.compile(r"variables\.data-\d{5}-of-(\d{5})")
# Checkpoints of the first TensorFlow are one file, or several of these.
_FIRST_FORMAT = re.compile(r"variables(-\d{5}-of-\d{5})?")
_HINT = (
    "copy the whole directory again, with variables/ in it; where it comes from Git, see whether "
    "a .gitignore leaves it out: git check-ignore -v "
)


def refuse_missing_variables(directory: Path, operators: Collection[str]) -> None:
    """Raise `InputRefused` where the graph restores variables, and their files are missing.

    `operators` are the names of those in the graph and its functions.
    """
    if _VARIABLES.isdisjoint(operators) or _RESTORES.isdisjoint(operators):
        return
    folder = directory / "variables"
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if any(map(_FIRST_FORMAT.fullmatch, names)):
        return
    if missing := _missing(names):
        raise InputRefused(
            f"{directory} lacks the values of its variables: "
            + (f"variables/{missing} is missing" if names else "variables/ is missing or empty"),
            hint=f"{_HINT}{folder / missing}",
        )


def _missing(names: set[str]) -> str:
    """The first missing file of a checkpoint, or ""."""
    if "variables.index" not in names:
        return "variables.index"
    shards = [match for name in names if (match := _DATA.fullmatch(name))]
    if not shards:
        return "variables.data-00000-of-00001"
    total = shards[0][1]
    expected = (f"variables.data-{number:05}-of-{total}" for number in range(int(total)))
    return next((name for name in expected if name not in names), "")


# The functions of a SavedModel's object: what there is to export where it has no signature.

# TensorFlow's own, of an object that was loaded and saved again.
_OWN = ("signatures", "_self_", "keras_api")
_MOST_DEPTH = 8


class TracedTensor(NamedTuple):
    """An argument of a function: its name, type, and shape, None for an open size."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def shape_text(self) -> str:
        """The sizes, -1 for an open one."""
        if self.shape is None:
            return "of any shape"
        return str([-1 if size is None else size for size in self.shape])


class TracedFunction(NamedTuple):
    """A function as it was traced once, under its name in the object; its tensors alone."""

    name: str
    tensors: tuple[TracedTensor, ...]

    @property
    def text(self) -> str:
        """As a call: "predict(x: float32 [-1, 8])"."""
        each = (f"{each.name}: {each.dtype} {each.shape_text}" for each in self.tensors)
        return f"{self.name}({', '.join(each)})"

    @property
    def trace(self) -> str:
        """The code that gives this trace of the object `model`."""
        specs = (
            f"tf.TensorSpec({None if t.shape is None else list(t.shape)}, tf.{t.dtype}, {t.name!r})"
            for t in self.tensors
        )
        return f"model.{self.name}.get_concrete_function({', '.join(specs)})"


def functions_of(objects: bytes, dtype_of: Callable[[int], str]) -> tuple[TracedFunction, ...]:
    """The functions of the outermost object, and those of objects in it as "inner.predict".

    `objects` is a SavedObjectGraph; `dtype_of` names TensorFlow's types. Raises protobuf's
    DecodeError.
    """
    from edgeconv.model.source.graph_pb2 import SavedObjectGraph

    graph = SavedObjectGraph.FromString(objects)
    traces = dict(graph.concrete_functions)
    traced = dict[TracedFunction, None]()
    for path, node in _named(list(graph.nodes)):
        bare = node.bare_concrete_function.concrete_function_name
        for name in (*node.function.concrete_functions, *([bare] if bare else [])):
            if name in traces:
                value = traces[name].canonicalized_input_signature
                traced[TracedFunction(path, tuple(_tensors(value, dtype_of)))] = None
    return tuple(traced)


def _named(nodes: list[SavedObject]) -> Iterator[tuple[str, SavedObject]]:
    """The objects within the first, by the path of their names, the nearest first; each once."""
    visited = {0}
    waiting = [("", 0)]
    while waiting:
        path, number = waiting.pop(0)
        if number >= len(nodes):
            continue
        yield path, nodes[number]
        for child in nodes[number].children:
            if child.node_id not in visited and child.local_name not in _OWN:
                visited.add(child.node_id)
                waiting.append((f"{path}.{child.local_name}".lstrip("."), child.node_id))


def _tensors(
    value: StructuredValue, dtype_of: Callable[[int], str], depth: int = 0
) -> Iterator[TracedTensor]:
    """The tensors in the arguments of a trace."""
    if value.HasField("tensor_spec_value"):
        spec = value.tensor_spec_value
        sizes = tuple(None if dim.size < 0 else dim.size for dim in spec.shape.dim)
        shape = None if spec.shape.unknown_rank else sizes
        yield TracedTensor(spec.name, dtype_of(spec.dtype), shape)
    if depth < _MOST_DEPTH:
        inner = (
            value.tuple_value.values,
            value.list_value.values,
            value.dict_value.fields.values(),
        )
        for each in itertools.chain(*inner):
            yield from _tensors(each, dtype_of, depth + 1)
