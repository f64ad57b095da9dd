"""Preprocessing as text, and back: what `--preprocess` takes and the manifest's notes say.

Inline, steps are joined by `&`: `resize=224x224&scale=1/127.5&mean=1`. A step for one input
has its name before it, `tokens.dtype=int32`, and `tokens.none` does nothing to that input. In
a TOML file, `[preprocess]` holds the steps of every input that is not named, and
`[preprocess.input.NAME]` those of one. The steps of a named input replace the general steps
altogether.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edgeconv.data.arrays import opened
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

_NONE = "none"
# What a TOML reader does with a key of many parts grows with their square.
_LARGEST_BYTES = 1 << 15
# `%` first, so that what it introduces is not escaped again.
_ESCAPES = (("%", "%25"), ("&", "%26"), ("=", "%3D"))
DTYPES = (
    *("float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
# The names of the fields, by those of the steps.
KEYS = dict(
    zip(Preprocessing.__struct_encode_fields__, Preprocessing.__struct_fields__, strict=True)
)
_NOTHING = Preprocessing()
# More is a slip of the finger, and would fill the memory.
_MOST = 1 << 26
_DIGITS = r"[0-9]{1,15}"
_DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_RESIZE = ("resize-method", "antialias")
_MEL = (
    *("wave-scale", "sample-rate-hz", "frame-length", "frame-step", "fft-length"),
    *("mel-low-hz", "mel-high-hz", "log-floor"),
)


def parse_preprocessing(text: str) -> dict[str, Preprocessing]:
    """The steps by input name, "" for every input not named, of inline steps or a .toml path.

    `none` gives {}. Raises `UsageError` for what is not understood or contradicts itself,
    `InputRefused` for a file that cannot be read.
    """
    if text.endswith(".toml"):
        return _parse_toml(Path(text))
    if not text:
        raise UsageError("the preprocessing is empty", hint=f"write {_NONE} for no preprocessing")
    by_input: dict[str, dict[str, Any]] = {}
    for part in text.split("&"):
        name, key, value = _parse_step(part)
        _add(by_input.setdefault(name, {}), part, key, value)
    for values in by_input.values():
        values.pop(_NONE, None)
    return _meant({name: _checked(values, _of_input(name)) for name, values in by_input.items()})


def describe(preprocessing: Mapping[str, Preprocessing]) -> str:
    """The inline text that `parse_preprocessing` gives the same steps for."""
    parts = []
    for name, steps in sorted(preprocessing.items()):
        prefix = f"{_escaped(name)}." if name else ""
        texts = [f"{prefix}{step_text(steps, key)}" for key in KEYS if _is_given(steps, key)]
        parts += texts or [prefix + _NONE]
    several = [part for part in parts if part != _NONE]
    return "&".join(several) or _NONE


def _parse_step(part: str) -> tuple[str, str, str]:
    """The input's name, the key, and the value of one step; "none" has no value."""
    left, equals, value = part.partition("=")
    name, dot, key = left.rpartition(".")
    if (dot and not name) or (equals and not value) or (not equals and key != _NONE):
        raise UsageError(
            f"{part!r} is not a preprocessing step",
            hint="steps look like resize=224x224&scale=1/255, or image.scale=1/255 for one "
            "input; a file with steps ends in .toml",
        )
    return _unescaped(name), key, value


def _add(values: dict[str, Any], part: str, key: str, value: str) -> None:
    if key in values:
        raise UsageError(f"the preprocessing gives {part.partition('=')[0]} twice")
    if values and _NONE in {key, *values}:
        raise UsageError(f"{part!r}: {_NONE} cannot be combined with other steps")
    values[key] = value


def _checked(values: Mapping[str, Any], where: str) -> Preprocessing:
    """The steps of one input, from keys and their values as text or as TOML has them."""
    fields = {}
    for key, value in values.items():
        if key not in KEYS:
            raise unknown_name(f"preprocessing step{where}", key, KEYS)
        fields[KEYS[key]] = value_of(key, value, where)
    steps = Preprocessing(**fields)
    check(steps, where)
    return steps


def _meant(steps: dict[str, Preprocessing]) -> dict[str, Preprocessing]:
    """Without the general steps where they are none: that is what leaving them out says."""
    return {name: value for name, value in steps.items() if name or value != Preprocessing()}


def _of_input(name: str) -> str:
    return f" of input {name!r}" if name else ""


def _escaped(name: str) -> str:
    for sign, escape in _ESCAPES:
        name = name.replace(sign, escape)
    return name


def _unescaped(name: str) -> str:
    for sign, escape in reversed(_ESCAPES):
        name = name.replace(escape, sign)
    return name


def _parse_toml(path: Path) -> dict[str, Preprocessing]:
    content = _toml(path)
    for table in content:
        if table != "preprocess":
            raise unknown_name(f"table in {path}", table, ["preprocess"])
    every = _table(path, "preprocess", content.get("preprocess", {}))
    inputs = _table(path, "preprocess.input", every.pop("input", {}))
    if not every and not inputs:
        raise InputRefused(
            f"{path} gives no preprocessing",
            hint="add a table [preprocess], for example with scale = 0.5",
        )
    steps = {"": _checked(every, f" in {path}")} if every else {}
    for name, values in inputs.items():
        if not name:
            raise UsageError(f"{path}: an input without a name", hint="write [preprocess]")
        keys = _table(path, f"preprocess.input.{name}", values)
        steps[name] = _checked(keys, f"{_of_input(name)} in {path}")
    return _meant(steps)


def _toml(path: Path) -> dict[str, Any]:
    with opened(path) as (file, size_bytes):
        if size_bytes > _LARGEST_BYTES:
            raise InputRefused(f"{path} has {size_bytes:,} bytes: that is not a preprocessing file")
        content = file.read()
    try:
        return msgspec.toml.decode(content, type=dict[str, Any])
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text, so it is not TOML") from None
    # Not msgspec.DecodeError alone: a number of five thousand digits is another ValueError.
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _table(path: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be a table", hint=f"write [{name}]")
    return dict(value)


class _WrongValueError(Exception):
    """A value that is not what its key takes."""


class _ValueType(NamedTuple):
    """How a value is read, raising `_WrongValueError`, and what it must be."""

    read: Callable[[object], Any]
    takes: str


def value_of(key: str, value: object, where: str) -> Any:
    """The value of `key`, from text or from TOML. Raises `UsageError`, naming `where`."""
    value_type = _VALUE_TYPES[key]
    try:
        return value_type.read(value)
    except _WrongValueError:
        raise UsageError(f"{key}{where} takes {value_type.takes}, not {value!r}") from None


def step_text(steps: Preprocessing, key: str) -> str:
    """`key=value`, as it is written inline, so that reading it gives the same value."""
    value = getattr(steps, KEYS[key])
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if not isinstance(value, tuple):
        return f"{key}={_in_text(value)}"
    return f"{key}={('x' if key in _WHOLE else ',').join(map(_in_text, value))}"


def check(steps: Preprocessing, where: str = "") -> None:
    """Raise `UsageError` for steps that are out of range or contradict each other."""
    for key in ("channels", "resize-method", "dtype"):
        if _is_given(steps, key):
            value_of(key, getattr(steps, KEYS[key]), where)
    for problem, hint in (*_out_of_range(steps), *_contradictions(steps)):
        raise UsageError(f"the preprocessing{where}: {problem}", hint=hint)


def _in_text(value: object) -> str:
    """A number, or one over a number where that is shorter: 1/127.5, not 0.00784313725490196."""
    if not isinstance(value, float):
        return str(value)
    plain = repr(value).removesuffix(".0")
    inverse = f"{1 / abs(value):.9g}" if abs(value) > 1e-300 else "0"
    exact = float(inverse) and 1 / float(inverse) == abs(value)
    fraction = f"{'-' * (value < 0)}1/{inverse}"
    return fraction if exact and len(fraction) < len(plain) else plain


def _out_of_range(steps: Preprocessing) -> Iterator[tuple[str, str]]:
    for key, name in KEYS.items():
        value = getattr(steps, name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                yield f"{key} is {number}", "numbers must be finite"
            least = 0 if key == "fft-length" else 1
            if key in _WHOLE and number is not None and not least <= number <= _MOST:
                yield f"{key} is {number}", f"it must be from {least} to {_MOST:,}"
    if steps.resize and math.prod(steps.resize) > _MOST:
        yield f"resize asks for {math.prod(steps.resize):,} pixels", f"at most {_MOST:,}"
    if 0 in {steps.scale, steps.wave_scale}:
        yield "a scale is 0, so every sample would be the same", "scale=1/255 for pixels"
    if any(not part > 0 for part in steps.std):
        yield f"it has {step_text(steps, 'std')}", "std must be over 0, in the units after scale"
    if not steps.log_floor > 0:
        yield f"log-floor is {steps.log_floor}", "it must be over 0: silence has no logarithm"


def _contradictions(steps: Preprocessing) -> Iterator[tuple[str, str]]:
    lengths = {len(steps.mean), len(steps.std)} - {0, 1}
    if len(lengths) > 1:
        yield (
            f"mean has {len(steps.mean)} values and std {len(steps.std)}",
            "give one value, or one for each channel",
        )
    if steps.resize is None:
        yield from _useless(steps, _RESIZE, "resize")
    if steps.antialias and steps.resize_method == "nearest":
        yield "antialias does nothing for resize-method=nearest", "remove one of them"
    audio = [key for key in ("length", "mel-bins") if _is_given(steps, key)]
    audio += ["channels"] if steps.channels == "mono" else []
    image = [key for key in ("resize", "crop") if _is_given(steps, key)]
    image += ["channels"] if steps.channels in {"rgb", "bgr", "gray"} else []
    if audio and image:
        yield (
            f"{step_text(steps, audio[0])} is for audio and rows, "
            f"{step_text(steps, image[0])} is for images",
            "remove one of them; a model with both has an input for each: image.resize=224x224",
        )
    yield from _mel_contradictions(steps)


def _mel_contradictions(steps: Preprocessing) -> Iterator[tuple[str, str]]:
    if steps.mel_bins is None:
        yield from _useless(steps, _MEL, "mel-bins")
        return
    half_hz = steps.sample_rate_hz / 2
    high_hz = steps.mel_high_hz or half_hz
    if not 0 <= steps.mel_low_hz < high_hz <= half_hz:
        yield (
            f"the mel bins run from {steps.mel_low_hz:g} to {high_hz:g} Hz at "
            f"{steps.sample_rate_hz} samples a second",
            f"0 <= mel-low-hz < mel-high-hz <= {half_hz:g}, half of sample-rate-hz",
        )
    if 0 < steps.fft_length < steps.frame_length:
        yield (
            f"fft-length {steps.fft_length} is below frame-length {steps.frame_length}",
            "remove fft-length for the next power of two",
        )
    if steps.length is not None and steps.length < steps.frame_length:
        yield (
            f"length {steps.length} is below frame-length {steps.frame_length}",
            "a spectrogram needs at least one frame",
        )


def _useless(
    steps: Preprocessing, keys: tuple[str, ...], without: str
) -> Iterator[tuple[str, str]]:
    for key in keys:
        if _is_given(steps, key):
            yield f"{key} does nothing without {without}", f"add {without}, or remove it"


def _is_given(steps: Preprocessing, key: str) -> bool:
    return bool(getattr(steps, KEYS[key]) != getattr(_NOTHING, KEYS[key]))


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(_DIGITS, value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _WrongValueError
    return value


def _number(value: object) -> float:
    if isinstance(value, str):
        over, slash, under = value.partition("/")
        if not all(re.fullmatch(_DECIMAL, part) for part in ((over, under) if slash else (over,))):
            raise _WrongValueError
        try:
            number = float(over) / float(under) if slash else float(over)
        except ZeroDivisionError as error:
            raise _WrongValueError from error
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongValueError
    else:
        # A whole number in TOML may be larger than any float.
        number = float(value) if abs(value) < 1e300 else math.inf
    if not math.isfinite(number):
        raise _WrongValueError
    return number


def _numbers(value: object) -> tuple[float, ...]:
    if isinstance(value, str):
        return tuple(_number(part) for part in value.split(","))
    if isinstance(value, list) and value:
        return tuple(_number(part) for part in value)
    return (_number(value),)


def _size(value: object) -> tuple[int, int]:
    parts: Any = value.split("x") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 2:
        raise _WrongValueError
    return _whole(parts[0]), _whole(parts[1])


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise _WrongValueError
    return value == "true"


def _one_of(*words: str) -> _ValueType:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise _WrongValueError
        return value

    return _ValueType(read, f"one of {', '.join(words)}")


_COUNT = _ValueType(_whole, "a whole number")
_FACTOR = _ValueType(_number, "a number or a fraction, such as 0.5 or 1/255")
_VALUES = _ValueType(_numbers, "a number, or one for each channel, such as 0.485,0.456,0.406")
_HEIGHT_WIDTH = _ValueType(_size, "HEIGHTxWIDTH, such as 224x224")
_TRUE_OR_FALSE = _ValueType(_flag, "true or false")

_VALUE_TYPES = {
    "length": _COUNT,
    "channels": _one_of("rgb", "bgr", "gray", "mono"),
    "resize": _HEIGHT_WIDTH,
    "resize-method": _one_of("nearest", "bilinear", "bicubic"),
    "antialias": _TRUE_OR_FALSE,
    "crop": _HEIGHT_WIDTH,
    "mel-bins": _COUNT,
    "wave-scale": _FACTOR,
    "sample-rate-hz": _COUNT,
    "frame-length": _COUNT,
    "frame-step": _COUNT,
    "fft-length": _COUNT,
    "mel-low-hz": _FACTOR,
    "mel-high-hz": _FACTOR,
    "log-floor": _FACTOR,
    "scale": _FACTOR,
    "mean": _VALUES,
    "std": _VALUES,
    "add-channel": _TRUE_OR_FALSE,
    "dtype": _one_of(*DTYPES),
}

_WHOLE = {key for key, value_type in _VALUE_TYPES.items() if value_type in (_COUNT, _HEIGHT_WIDTH)}
