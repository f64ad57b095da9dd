"""A value of any noun, made from its declared types, with something in every field."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Noun = TypeVar("Noun")
_DEEPEST = 7


def example_of(kind: type[Noun]) -> Noun:
    """A value of this type. Lists and tables have one item, as deep as nouns are in one another."""
    return msgspec.convert(_value(msgspec.inspect.type_info(kind), 0), kind)


def _value(kind: Any, depth: int) -> Any:
    inspect = msgspec.inspect
    if isinstance(kind, inspect.StructType):
        fields = (f for f in kind.fields if f.required or depth < _DEEPEST)
        tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
        return tag | {field.encode_name: _value(field.type, depth + 1) for field in fields}
    if isinstance(kind, inspect.UnionType):
        # None stands among them where a value may be missing.
        return _value(
            max(kind.types, key=lambda each: not isinstance(each, inspect.NoneType)), depth
        )
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.TupleType):
        return [_value(each, depth + 1) for each in kind.item_types]
    if isinstance(kind, inspect.DictType):
        return {_value(kind.key_type, depth): _value(kind.value_type, depth + 1)}
    if hasattr(kind, "item_type"):
        return [_value(kind.item_type, depth + 1)]
    plain = {
        inspect.BoolType: True,
        inspect.IntType: 3,
        inspect.FloatType: 0.5,
        inspect.StrType: "a",
    }
    return plain.get(type(kind))
