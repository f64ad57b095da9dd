"""Preprocessing as text, and back: what `--preprocess` takes and the manifest's notes say.

Inline, steps are joined by `&`: `resize=224x224&scale=1/127.5&mean=1`. A step for one input
has its name before it, `tokens.dtype=int32`, and `tokens.none` does nothing to that input. In
a TOML file, `[preprocess]` holds the steps of every input that is not named, and
`[preprocess.input.NAME]` those of one. The steps of a named input replace the general steps,
and adds nothing to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import opened
from edgeconv.data.steps import KEYS, check, step_text, value_of
from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.types import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Mapping

_NONE = "none"
# What a TOML reader does with a key of many parts grows with their square.
_LARGEST_BYTES = 1 << 15
# `%` first, so that what it introduces is not escaped again.
_ESCAPES = (("%", "%25"), ("&", "%26"), ("=", "%3D"))


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
        texts = [
            f"{prefix}{step_text(steps, key)}"
            for key, field in KEYS.items()
            if getattr(steps, field.name) != field.default
        ]
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
        fields[KEYS[key].name] = value_of(key, value, where)
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
