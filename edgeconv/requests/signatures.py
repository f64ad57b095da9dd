"""What Python shows of a verb: its arguments with their types and defaults, from its options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from edgeconv.requests.option import leaves_of
from edgeconv.requests.request import ALLOW_CODE, other_words, positional_words
from edgeconv.types import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.requests.option import Leaf

_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NONE = inspect.Parameter.empty
_PATH = "str | PathLike[str]"
# By what an option holds, or takes; the names are explained in edgeconv/__init__.pyi.
_TYPES = {
    "model": "Model",
    "samples": "Samples",
    "flag": "bool",
    "whole": "int",
    "number": "float",
}


def signature_of(kind: type[msgspec.Struct], needed: Mapping[str, Any]) -> inspect.Signature:
    """The signature of a verb: what must be given, the other options, values of several.

    `needed` has further arguments that must be given (None), or have another default.
    """
    leaves = {leaf.word: leaf for leaf in leaves_of(kind)}
    required = [word for word, default in needed.items() if default is None]
    order = [word for word in positional_words(kind) if word not in needed] + required
    found = [_parameter(leaves[word], _EITHER) for word in order]
    if found and leaves[order[0]].option.takes_rest:
        several = inspect.Parameter.VAR_POSITIONAL
        found = [found[0].replace(kind=several, default=_NONE, annotation=_PATH)]
    found = [each.replace(default=_NONE) if each.name in required else each for each in found]
    for word, leaf in leaves.items():
        if word not in order:
            each = _parameter(leaf, _BY_NAME)
            found.append(each.replace(default=needed[word]) if word in needed else each)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for word in (word for word in other_words(kind) if word not in leaves):
        is_flag = word == ALLOW_CODE or fields[word].type is bool
        text = "bool" if is_flag else f"{_field_text(fields[word].type)} | None"
        found.append(
            inspect.Parameter(word, _BY_NAME, default=False if is_flag else None, annotation=text)
        )
    told = "Callable[[str], None] | None"
    found.append(inspect.Parameter("on_progress", _BY_NAME, default=None, annotation=told))
    return inspect.Signature(found)


def _parameter(leaf: Leaf, kind: Any) -> inspect.Parameter:
    default = _NONE if leaf.is_required else leaf.raw_default
    default = None if default == () else default
    text = type_text(leaf) + (" | None" if default is None else "")
    return inspect.Parameter(leaf.word, kind, default=default, annotation=text)


def type_text(leaf: Leaf) -> str:
    """The type of an option's value in Python: what is typed for it, or its value itself."""
    plain = _PATH if leaf.text.is_path else "str"
    one = _TYPES.get(leaf.text.holds) or _TYPES.get(leaf.takes, plain)
    if leaf.choices:
        one = f"Literal[{', '.join(map(repr, leaf.choices))}]"
    values = () if leaf.text.holds == "samples" else _structs(leaf.declared)
    one = " | ".join([one, *(each.__name__ for each in values)])
    if leaf.text.holds == "samples":
        return f"{one} | Mapping[str, {one}]" if leaf.several else one
    one = f"{one} | Mapping[str, Any]" if get_origin(leaf.declared) is dict else one
    return f"{one} | Sequence[{one}]" if leaf.several or leaf.text.is_list else one


def _field_text(type_: Any) -> str:
    """The type of a field that is no option."""
    structs = _structs(type_)
    if structs == (Budget,):
        return "Budget | Mapping[str, Any]"
    return (
        structs[0].__name__
        if structs
        else "str"
        if str(type_).startswith("str")
        else "Sequence[str]"
    )


def _structs(type_: Any) -> tuple[type[msgspec.Struct], ...]:
    """The values that a type may be."""
    if isinstance(type_, type) and not get_args(type_):
        return (type_,) if issubclass(type_, msgspec.Struct) else ()
    return tuple(dict.fromkeys(each for arg in get_args(type_) for each in _structs(arg)))
