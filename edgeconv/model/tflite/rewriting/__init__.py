"""A float graph whose operators have integer kernels, equal to one whose operators have none.

`rewritten` only makes the graph; `edgeconv.quantize.rewritten` runs both and compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from edgeconv.model.tflite.flatbuffer import entry_subgraphs, parse, read, serialize, text
from edgeconv.model.tflite.kernels import COMPARISONS, IntegerType, has_kernel
from edgeconv.model.tflite.rewriting import arithmetic, layers, masks
from edgeconv.model.tflite.rewriting.editor import GraphEditor

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

    Rewriting = Callable[[GraphEditor, OperatorT], list[OperatorT] | None]

# What an operator without a kernel becomes: operators, or None where it stays.
_REWRITINGS: dict[str, Rewriting] = {
    "ADD_N": arithmetic.sum_of_many,
    "ARG_MAX": layers.largest_index,
    "CEIL": arithmetic.ceiling,
    "CUMSUM": layers.cumulative_sum,
    "DEPTH_TO_SPACE": layers.moved_blocks,
    "DIV": arithmetic.quotient,
    "ELU": layers.elu,
    "FLOOR": arithmetic.floor,
    "FLOOR_DIV": arithmetic.floor_quotient,
    "FLOOR_MOD": arithmetic.floor_remainder,
    "GREATER": arithmetic.turned_comparison,
    "HARD_SWISH": layers.hard_swish,
    "L2_NORMALIZATION": layers.l2_normalization,
    "LESS_EQUAL": arithmetic.turned_comparison,
    "LOCAL_RESPONSE_NORMALIZATION": layers.response_normalization,
    "LOG_SOFTMAX": layers.log_softmax,
    "NEG": arithmetic.negation,
    "ONE_HOT": layers.one_hot,
    "POW": arithmetic.power,
    "PRELU": layers.prelu,
    "RELU_N1_TO_1": layers.clipped_at_one,
    "SIGN": arithmetic.sign,
    "SPACE_TO_DEPTH": layers.moved_blocks,
    "SQUARE": arithmetic.square,
    "SQUARED_DIFFERENCE": arithmetic.squared_difference,
}
# An operator becomes others that may have no kernel themselves, such as FLOOR_MOD.
_MOST_ROUNDS = 4


def may_be_rewritten(data: bytes, integers: IntegerType) -> bool:
    """Whether a model has anything that `rewritten` may change.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    return any(
        _may_change(GraphEditor(model, model.subgraphs[index], {}, integers))
        for index in entry_subgraphs(model)
    )


def _may_change(editor: GraphEditor) -> bool:
    names = {
        editor.name(operator)
        for operator in editor.graph.operators
        if any(editor.is_float(index) for index in operator.inputs)
    }
    lacking = any(name in names and not has_kernel(name, editor.integers) for name in _REWRITINGS)
    if lacking or ("CAST" in names and bool(names & COMPARISONS)):
        return True
    return layers.has_norms_of_one(editor) or masks.has_masks(editor)


def rewritten(
    data: bytes,
    ranges: Mapping[str, tuple[float, float]],
    integers: IntegerType,
    *,
    without: Collection[str] = (),
    kept: Collection[str] = (),
    floors: bool = False,
) -> tuple[bytes, tuple[str, ...]]:
    """The model with kernels for these integers wherever that can be, and what was rewritten.

    `ranges` has the least and greatest value of float tensors by name. What was rewritten are names
    of operators, "masks", "ids" and "norms"; those `without` stay, as do operators whose output is
    named in `kept`. `floors` is for rows in which every position is masked, see `masks.clamp`.
    `data` itself comes back where there is nothing to change. Raises `InputRefused` for bytes that
    are not a model.
    """
    model = parse(data, where="the model")
    changes: dict[str, None] = {}
    for index in entry_subgraphs(model):
        editor = GraphEditor(model, model.subgraphs[index], ranges, integers)
        if "masks" not in without and masks.clamp(editor, floors=floors):
            changes["masks"] = None
        if "ids" not in without and masks.compare_as_integers(editor):
            changes["ids"] = None
        if "norms" not in without and layers.drop_norms_of_one(editor):
            changes["norms"] = None
        for _ in range(_MOST_ROUNDS):
            changed = _rewrite_once(editor, without, kept)
            if not changed:
                break
            changes |= dict.fromkeys(changed)
        _remove_needless(editor)
    return (serialize(model), tuple(changes)) if changes else (data, ())


def _rewrite_once(
    editor: GraphEditor, without: Collection[str], kept: Collection[str]
) -> list[str]:
    changes = []
    for operator in tuple(editor.graph.operators):
        name = editor.name(operator)
        if name in without or name not in _REWRITINGS or not _is_float(editor, operator):
            continue
        if has_kernel(name, editor.integers) or _is_kept(editor, operator, kept):
            continue
        others = _REWRITINGS[name](editor, operator)
        if others is None:
            continue
        position = next(
            number for number, each in enumerate(editor.graph.operators) if each is operator
        )
        editor.graph.operators[position : position + 1] = others
        changes.append(name)
    return changes


def _is_kept(editor: GraphEditor, operator: OperatorT, kept: Collection[str]) -> bool:
    return any(text(editor.tensor(index).name) in kept for index in operator.outputs)


def _is_float(editor: GraphEditor, operator: OperatorT) -> bool:
    return any(editor.is_float(index) for index in operator.inputs)


def _remove_needless(editor: GraphEditor) -> None:
    """Remove operators whose results nobody reads, and the values of constants likewise."""
    graph = editor.graph
    while True:
        read = {i for operator in graph.operators for i in operator.inputs} | set(graph.outputs)
        # One without outputs, or with a state, is run for what it does.
        kept = [o for o in graph.operators if not o.outputs or read & set(o.outputs)]
        if len(kept) == len(graph.operators):
            break
        graph.operators = kept
    written = {i for operator in graph.operators for i in operator.outputs}
    used = read | written | set(graph.inputs)
    for index, tensor in enumerate(graph.tensors):
        if index not in used:
            tensor.buffer = 0
    stored = {tensor.buffer for each in editor.model.subgraphs for tensor in each.tensors}
    stored |= {metadata.buffer for metadata in editor.model.metadata or ()}
    for number, buffer in enumerate(editor.model.buffers):
        if number not in stored:
            buffer.data = None
