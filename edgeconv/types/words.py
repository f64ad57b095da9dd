"""Words that every room uses: lists of names, texts without values, the default signature."""

import re
from collections.abc import Iterable

# The signature that TensorFlow gives a model whose author named none.
SERVING_DEFAULT = "serving_default"


def listed(names: Iterable[object], most: int | None = None) -> str:
    """Names for a message: "a, b, c"; of more than `most`, "a, b and 3 more"."""
    texts = [str(name) for name in names]
    if most is None or len(texts) <= most:
        return ", ".join(texts)
    return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"


def quoted(names: Iterable[object], most: int | None = None) -> str:
    """Names in quotes, as `listed`: "'a', 'b'". What cannot be printed is escaped."""
    return listed(map(repr, names), most)


def shortened(text: str, most: int = 200) -> str:
    """The first `most` characters of a text, with an ellipsis where there were more."""
    return text if len(text) <= most else f"{text[:most]}…"


def first_line(text: object, most: int = 300) -> str:
    """The first line of a text or of an error's message that is not blank, stripped and shortened.

    An error without a message gives the name of its type. Values of arrays are left out.
    """
    lines = (line.strip() for line in without_values(str(text)).splitlines())
    blank = type(text).__name__ if isinstance(text, BaseException) else ""
    return shortened(next(filter(None, lines), blank), most)


_LEFT_OUT = "…"
# A list of at most this many whole numbers may be a shape.
_MOST_DIMENSIONS = 8
_MOST_NESTED = 8
_STRING = r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*\""""
_FLAT = rf"(?:{_STRING}|[^()'\"])*"
_NUMBER = r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?j?|nan|inf)"
# A message may be cut anywhere, so anything may lack its end. Compiled where there is a message.
_ARRAYS = (
    # As in <tf.Tensor: shape=(2,), dtype=float32, numpy=array([0.5, 1. ], dtype=float32)>.
    (rf"\bnumpy=(?:{_STRING}|[^>'\"])*", f"numpy={_LEFT_OUT}"),
    (rf"\btf\.Tensor\({_FLAT}?(, shape=|\Z)", rf"tf.Tensor({_LEFT_OUT}\1"),
    (rf"\b(array|Array|tensor)\((?:{_STRING}|[^()'\"]|\({_FLAT}\))*\)?", rf"\1({_LEFT_OUT})"),
    (rf"\b(np\.\w+)\({_FLAT}\)?", rf"\1({_LEFT_OUT})"),
)
_ITEM = rf"\[{_LEFT_OUT}\]|{_NUMBER}|True|False"
_ITEMS = rf"(?:{_ITEM}|\.\.\.)"
_LIST = (
    rf"(?P<begin>[\[(])(?P<items>\s*{_ITEMS}(?:[\s,]+{_ITEMS})*[\s,]*)"
    r"(?P<end>[\])]|[-+.e]{0,3}…?\Z)"
)


def without_values(text: str) -> str:
    """The text with `…` for what is in arrays and tensors, as NumPy and TensorFlow print them.

    So are lists of numbers that cannot be shapes: with fractions, without commas, or long.
    """
    for pattern, instead in _ARRAYS:
        text = re.sub(pattern, instead, text)
    # From the innermost lists outward.
    for _ in range(_MOST_NESTED):
        text = re.sub(_LIST, _hidden, text, flags=re.IGNORECASE)
    return text


def _hidden(numbers: re.Match[str]) -> str:
    items = re.findall(_ITEM, numbers["items"], re.IGNORECASE)
    is_list = numbers["begin"] == "["
    if not items or (len(items) == 1 and not is_list):
        return numbers[0]
    is_spaced = "," not in numbers["items"] and len(items) > 1
    # Where the message is cut, [100 may have been the first value of any array.
    is_whole = numbers["end"] in ("]", ")")
    are_whole = all(re.fullmatch(r"[-+]?\d+", item) for item in items)
    is_shape = is_whole and are_whole and len(items) <= _MOST_DIMENSIONS
    if is_shape and not is_spaced:
        return numbers[0]
    return f"[{_LEFT_OUT}]" if is_list else f"({_LEFT_OUT})"
