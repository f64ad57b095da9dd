"""Messages of tools without the values of samples that are in them."""

from __future__ import annotations

import re

_LEFT_OUT = "…"
# A list of at most this many whole numbers may be a shape.
_MOST_DIMENSIONS = 8
_MOST_NESTED = 8
_STRING = r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*\""""
_FLAT = rf"(?:{_STRING}|[^()'\"])*"
_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?j?|nan|inf)"
# A message may be cut anywhere, so anything may lack its end.
_ARRAYS = (
    # As in <tf.Tensor: shape=(2,), dtype=float32, numpy=array([0.5, 1. ], dtype=float32)>.
    (re.compile(rf"\bnumpy=(?:{_STRING}|[^>'\"])*"), f"numpy={_LEFT_OUT}"),
    (re.compile(rf"\btf\.Tensor\({_FLAT}?(, shape=|\Z)"), rf"tf.Tensor({_LEFT_OUT}\1"),
    (
        re.compile(rf"\b(array|Array|tensor)\((?:{_STRING}|[^()'\"]|\({_FLAT}\))*\)?"),
        rf"\1({_LEFT_OUT})",
    ),
    (re.compile(rf"\b(np\.\w+)\({_FLAT}\)?"), rf"\1({_LEFT_OUT})"),
)
_ITEM = re.compile(rf"\[{_LEFT_OUT}\]|{_NUMBER}|True|False", re.IGNORECASE)
_ITEMS = rf"(?:{_ITEM.pattern}|\.\.\.)"
_LIST = re.compile(
    rf"(?P<begin>[\[(])(?P<items>\s*{_ITEMS}(?:[\s,]+{_ITEMS})*[\s,]*)"
    r"(?P<end>[\])]|[-+.e]{0,3}…?\Z)",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"[-+]?\d+")


def without_values(text: str) -> str:
    """The text with `…` for what is in arrays and tensors, as NumPy and TensorFlow print them.

    So are lists of numbers that cannot be shapes: with fractions, without commas, or long.
    """
    for pattern, instead in _ARRAYS:
        text = pattern.sub(instead, text)
    # From the innermost lists outward.
    for _ in range(_MOST_NESTED):
        text = _LIST.sub(_hidden, text)
    return text


def _hidden(numbers: re.Match[str]) -> str:
    items = _ITEM.findall(numbers["items"])
    is_list = numbers["begin"] == "["
    if not items or (len(items) == 1 and not is_list):
        return numbers[0]
    is_spaced = "," not in numbers["items"] and len(items) > 1
    # Where the message is cut, [100 may have been the first value of any array.
    is_whole = numbers["end"] in ("]", ")")
    is_shape = is_whole and all(map(_WHOLE.fullmatch, items)) and len(items) <= _MOST_DIMENSIONS
    if is_shape and not is_spaced:
        return numbers[0]
    return f"[{_LEFT_OUT}]" if is_list else f"({_LEFT_OUT})"
