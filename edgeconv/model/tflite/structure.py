"""The structure of a .tflite compared with its size, before a parser makes objects of it.

Its tables are read in place, and never outside of the file. A flatbuffer may refer to a vector many
times, so that a small file has any number of tensors. So lengths are added up first, without an
object for each. What is then visited one by one is not more than the bytes of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap

_OFFSET_BYTES = 4
_MOST_NAME_BYTES = 1000


class BrokenFlatbuffer(ValueError):
    """An offset or length that points outside of the file."""


class FlatTable(NamedTuple):
    """A table at `at`; absent fields are 0 or empty."""

    data: memoryview
    at: int

    def int8(self, field: int) -> int:
        """A byte."""
        return self._number("<b", field)

    def uint8(self, field: int) -> int:
        """A byte, such as the type of a union."""
        return self._number("<B", field)

    def int32(self, field: int) -> int:
        """A number of 32 bits."""
        return self._number("<i", field)

    def uint64(self, field: int) -> int:
        """A number of 64 bits."""
        return self._number("<Q", field)

    def length(self, field: int, item_bytes: int = 1) -> int:
        """How many items a vector has, all of them in the file."""
        return self._vector(field, item_bytes)[1]

    def text(self, field: int) -> str:
        """A string, truncated if it is too long for a name."""
        return self.bytes(field)[:_MOST_NAME_BYTES].decode("utf-8", "replace")

    def bytes(self, field: int) -> bytes:
        """A vector of bytes."""
        start, count = self._vector(field, 1)
        return bytes(self.data[start : start + count])

    def int32s(self, field: int) -> tuple[int, ...]:
        """A vector of numbers."""
        start, count = self._vector(field, 4)
        return struct.unpack_from(f"<{count}i", self.data, start) if count else ()

    def table(self, field: int) -> FlatTable | None:
        """A table within this one."""
        offset = self._offset(field)
        return self._at(offset) if offset else None

    def tables(self, field: int) -> Iterator[FlatTable]:
        """The tables of a vector."""
        start, count = self._vector(field, _OFFSET_BYTES)
        return (self._at(start + _OFFSET_BYTES * index) for index in range(count))

    def lengths(self, *fields: int) -> int:
        """How many items several vectors have together."""
        return sum(self._vector(field, 1)[1] for field in fields)

    def _at(self, offset: int) -> FlatTable:
        return FlatTable(self.data, offset + read(self.data, "<I", offset))

    def _vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        offset = self._offset(field)
        if not offset:
            return 0, 0
        start = offset + read(self.data, "<I", offset)
        count = read(self.data, "<I", start)
        start += _OFFSET_BYTES
        if start + count * item_bytes > len(self.data):
            raise BrokenFlatbuffer(f"a list of {count} items at byte {start} goes beyond the file")
        return start, count

    def _number(self, kind: str, field: int) -> int:
        offset = self._offset(field)
        return read(self.data, kind, offset) if offset else 0

    def _offset(self, field: int) -> int:
        """The offset of a field in the file, 0 if it is absent."""
        table = self.at - read(self.data, "<i", self.at)
        entry = 4 + 2 * field
        if entry >= read(self.data, "<H", table):
            return 0
        offset = read(self.data, "<H", table + entry)
        return self.at + offset if offset else 0


def root(data: memoryview) -> FlatTable:
    """The root table of a flatbuffer. Raises `BrokenFlatbuffer`."""
    return FlatTable(data, read(data, "<I", 0))


def read(data: memoryview, kind: str, offset: int) -> int:
    """A number at an offset in the file. Raises `BrokenFlatbuffer`."""
    if offset < 0:
        raise BrokenFlatbuffer(f"an offset points to byte {offset}")
    try:
        number: int = struct.unpack_from(kind, data, offset)[0]
    except struct.error:
        raise BrokenFlatbuffer(
            f"an offset points to byte {offset}, and the file has {len(data)}"
        ) from None
    return number


# Fields by their numbers in the schema.
_CODES, _SUBGRAPHS, _BUFFERS, _METADATA, _SIGNATURES = 1, 2, 4, 6, 7
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = 0, 1, 2, 3
_SHAPE, _NAME, _QUANTIZATION, _SHAPE_SIGNATURE, _EXTERNAL_BUFFER = 0, 3, 4, 7, 10
_GRAPH_NAME, _CUSTOM_CODE, _KEY, _MAP_NAME = 4, 1, 2, 0
_EXTERNAL = (8, 9)
_SPARSITY, _VARIANTS, _DIMENSIONS = 6, 9, 2
_OPCODE, _OPTIONS_TYPE, _OPTIONS, _CUSTOM_OPTIONS = 0, 3, 4, 5
_LARGE_OPTIONS_OFFSET, _LARGE_OPTIONS_SIZE, _OPTIONS_2_TYPE, _OPTIONS_2 = 9, 10, 11, 12
_DATA, _DATA_OFFSET, _DATA_SIZE = 0, 1, 2
_CUSTOM = 32
# Options that name subgraphs: the fields that do, by the options' number in the union.
_CALLS = {16: (0,), 92: (0, 1), 93: (0, 1), 103: (0,)}
_CALLS_2 = {6: (1,), 7: (6,), 13: (5,), 14: (2,), 15: (0, 1), 21: (1,)}
_CASE = 23
# More than any model has; parsing takes some 100 microseconds for each subgraph, 30 for the others.
_MOST_SUBGRAPHS = 1000
_MOST_PARTS = 200_000
# An offset and a table; and how often a converter names the same list.
_LEAST_PART_BYTES = 8
_MOST_SHARED = 2
# What a kernel takes; NumPy has 64.
MOST_DIMENSIONS = 16
_MOST_ELEMENTS = 2**34
_MOST_DEPTH = 32
_TAKES_ALL = "takes all memory or time to read"


class StructureProblem(NamedTuple):
    """What no converter writes: where it is, what it is, and why it is refused."""

    where: str
    what: str
    why: str


class CustomOperator(NamedTuple):
    """A custom operator, with its options as they are in the file."""

    where: str
    name: str
    options: bytes


@dataclass
class FileStructure:
    """The structure of a file. After a problem, the rest was not checked."""

    problems: list[StructureProblem] = field(default_factory=list)
    custom: list[CustomOperator] = field(default_factory=list)
    # Tensors whose values are in another file.
    external: list[str] = field(default_factory=list)


def structure(data: bytes | mmap.mmap) -> FileStructure:
    """The structure of a .tflite; its size bounds the time. Raises `BrokenFlatbuffer`."""
    with memoryview(data) as view:
        walk = _StructureWalk(view)
        walk.run()
    return walk.result


class _StructureWalk:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._calls: dict[int, set[int]] = {}
        self.result = FileStructure()

    def run(self) -> None:
        model = root(self._data)
        count = model.length(_SUBGRAPHS)
        if count > _MOST_SUBGRAPHS:
            self._add("subgraphs", f"{count} subgraphs, and models have a few", _TAKES_ALL)
            return
        if model.length(_SIGNATURES) > _MOST_SUBGRAPHS:
            signatures = model.length(_SIGNATURES)
            self._add("model", f"{signatures} signatures, and models have a few", _TAKES_ALL)
            return
        subgraphs = list(model.tables(_SUBGRAPHS))
        if not self._is_bounded(model, subgraphs):
            return
        custom = self._custom_operators(model)
        self._check_buffers(model)
        for number, graph in enumerate(subgraphs):
            for index, tensor in enumerate(graph.tables(_TENSORS)):
                self._check_tensor(f"subgraph {number}, tensor {index}", tensor)
            self._calls[number] = set()
            for index, operator in enumerate(graph.tables(_OPERATORS)):
                self._check_operator(number, index, operator, custom)
        self._check_recursion()

    def _is_bounded(self, model: FlatTable, subgraphs: list[FlatTable]) -> bool:
        """Whether a model has few enough parts, and each is in the file about once."""
        parts = model.lengths(_CODES, _BUFFERS, _METADATA, _SIGNATURES, *_EXTERNAL)
        parts += sum(graph.lengths(_TENSORS, _OPERATORS) for graph in subgraphs)
        # Only a small number is visited.
        if self._is_small(parts):
            parts += sum(signature.lengths(0, 1) for signature in model.tables(_SIGNATURES))
            parts += sum(_parts_of(each) for graph in subgraphs for each in graph.tables(_TENSORS))
        if not self._is_small(parts):
            what = f"{parts} tensors, operators and buffers in {len(self._data)} bytes"
            self._add("model", what, _TAKES_ALL)
            return False
        items = sum(_items_of(model, subgraphs))
        if items > _MOST_SHARED * len(self._data):
            what = f"lists of {items} items in {len(self._data)} bytes"
            self._add("model", what, _TAKES_ALL)
            return False
        return True

    def _is_small(self, parts: int) -> bool:
        return parts <= min(_MOST_PARTS, len(self._data) // _LEAST_PART_BYTES)

    def _custom_operators(self, model: FlatTable) -> dict[int, str]:
        """The custom operators, by the number of their code."""
        return {
            number: code.text(1)
            for number, code in enumerate(model.tables(_CODES))
            if max(code.int8(0), code.int32(3)) == _CUSTOM
        }

    def _check_buffers(self, model: FlatTable) -> None:
        for buffer in model.tables(_BUFFERS):
            buffer.length(_DATA)
            offset, size = buffer.uint64(_DATA_OFFSET), buffer.uint64(_DATA_SIZE)
            if offset > 1 and offset + size > len(self._data):
                end = offset + size
                raise BrokenFlatbuffer(
                    f"weights end at byte {end}, and the file at {len(self._data)}"
                )

    def _check_tensor(self, where: str, tensor: FlatTable) -> None:
        for number in (_SHAPE, _SHAPE_SIGNATURE):
            count = tensor.length(number)
            if count > MOST_DIMENSIONS:
                self._add(where, f"a tensor of {count} dimensions", "is more than any kernel takes")
            elif math.prod(abs(size) for size in tensor.int32s(number)) > _MOST_ELEMENTS:
                self._add(where, f"a tensor of shape {tensor.int32s(number)}", "takes all memory")
        if tensor.int32(_EXTERNAL_BUFFER):
            self.result.external.append(where)

    def _check_operator(
        self, graph: int, index: int, operator: FlatTable, custom: dict[int, str]
    ) -> None:
        self._calls[graph].update(_called(operator, _OPTIONS_TYPE, _OPTIONS, _CALLS))
        self._calls[graph].update(_called(operator, _OPTIONS_2_TYPE, _OPTIONS_2, _CALLS_2))
        name = custom.get(operator.int32(_OPCODE))
        if name is not None:
            offset = operator.uint64(_LARGE_OPTIONS_OFFSET)
            options = operator.bytes(_CUSTOM_OPTIONS)
            if offset > 1:
                options = bytes(self._data[offset : offset + operator.uint64(_LARGE_OPTIONS_SIZE)])
            where = f"subgraph {graph}, operator {index}"
            self.result.custom.append(CustomOperator(where, name, options))

    def _check_recursion(self) -> None:
        """Add a problem for subgraphs that call each other for ever, or too deeply."""
        calls = {number: named & self._calls.keys() for number, named in self._calls.items()}
        try:
            order = list(TopologicalSorter(calls).static_order())
        except CycleError as error:
            first = min(error.args[1])
            self._add(f"subgraph {first}", "subgraphs that call themselves", "never ends")
            return
        depths: dict[int, int] = {}
        for number in order:
            depths[number] = 1 + max((depths[called] for called in calls[number]), default=0)
        deepest = max(depths.values(), default=0)
        if deepest > _MOST_DEPTH:
            what = f"subgraphs that call each other {deepest} deep"
            self._add("model", what, "overflows the stack of a runtime")

    def _add(self, where: str, what: str, why: str) -> None:
        self.result.problems.append(StructureProblem(where, what, why))


def _parts_of(tensor: FlatTable) -> int:
    """How many objects a parser makes in a tensor."""
    sparsity = tensor.table(_SPARSITY)
    return tensor.lengths(_VARIANTS) + (sparsity.lengths(_DIMENSIONS) if sparsity else 0)


def _items_of(model: FlatTable, subgraphs: list[FlatTable]) -> Iterator[int]:
    """The lengths of lists and texts, each as often as a parser reads it."""
    yield from (code.lengths(_CUSTOM_CODE) for code in model.tables(_CODES))
    for number in (_METADATA, *_EXTERNAL[:1]):
        yield from (each.lengths(0) for each in model.tables(number))
    for signature in model.tables(_SIGNATURES):
        yield signature.lengths(_KEY)
        for number in (0, 1):
            yield from (each.lengths(_MAP_NAME) for each in signature.tables(number))
    for graph in subgraphs:
        yield graph.lengths(_INPUTS, _OUTPUTS, _GRAPH_NAME)
        yield from map(_items_of_operator, graph.tables(_OPERATORS))
        for tensor in graph.tables(_TENSORS):
            yield tensor.lengths(_SHAPE, _NAME, _SHAPE_SIGNATURE)
            quantization = tensor.table(_QUANTIZATION)
            yield quantization.lengths(0, 1, 2, 3) if quantization else 0


def _items_of_operator(operator: FlatTable) -> int:
    items = operator.lengths(1, 2, _CUSTOM_OPTIONS, 8)
    if operator.uint8(_OPTIONS_2_TYPE) == _CASE:
        case = operator.table(_OPTIONS_2)
        items += case.lengths(0) if case else 0
    if operator.uint64(_LARGE_OPTIONS_OFFSET) > 1:
        items += operator.uint64(_LARGE_OPTIONS_SIZE)
    return items


def _called(
    operator: FlatTable, type_field: int, field: int, calls: dict[int, tuple[int, ...]]
) -> Iterator[int]:
    """The subgraphs that an operator names in its options."""
    kind = operator.uint8(type_field)
    if type_field == _OPTIONS_2_TYPE and kind == _CASE:
        case = operator.table(field)
        yield from case.int32s(0) if case else ()
    fields = calls.get(kind, ())
    options = operator.table(field) if fields else None
    if options is not None:
        yield from (options.int32(number) for number in fields)
