"""The keys of a preprocessing: what each takes, as text or in TOML, and what goes together."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.errors import UsageError
from edgeconv.types import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DTYPES = (
    *("float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
KEYS = {field.encode_name: field for field in msgspec.structs.fields(Preprocessing)}

# More is a slip of the finger, and would fill the memory.
_MOST = 1 << 26
_DIGITS = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_RESIZE = ("resize-method", "antialias")
_MEL = (
    *("wave-scale", "sample-rate-hz", "frame-length", "frame-step", "fft-length"),
    *("mel-low-hz", "mel-high-hz", "log-floor"),
)


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
    value = getattr(steps, KEYS[key].name)
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if not isinstance(value, tuple):
        return f"{key}={_in_text(value)}"
    return f"{key}={('x' if key in _WHOLE else ',').join(map(_in_text, value))}"


def check(steps: Preprocessing, where: str = "") -> None:
    """Raise `UsageError` for steps that are out of range or contradict each other."""
    for key in ("channels", "resize-method", "dtype"):
        if _is_given(steps, key):
            value_of(key, getattr(steps, KEYS[key].name), where)
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
    for key, field in KEYS.items():
        value = getattr(steps, field.name)
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
    return bool(getattr(steps, KEYS[key].name) != KEYS[key].default)


def _whole(value: object) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _WrongValueError
    return value


def _number(value: object) -> float:
    if isinstance(value, str):
        over, slash, under = value.partition("/")
        if not all(_DECIMAL.fullmatch(part) for part in ((over, under) if slash else (over,))):
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
