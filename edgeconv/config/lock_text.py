"""The lock of a model as TOML: a table of facts, and its text, one line per fact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.config.packed import (
    pack_classes,
    pack_numbers,
    pack_right,
    unpack_classes,
    unpack_numbers,
    unpack_right,
)
from edgeconv.store import hash_of
from edgeconv.store.toml_text import toml_header, toml_key, toml_value
from edgeconv.types import LockedModel, LockedStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Accuracy

CHECKSUM = "checksum"
_STAGE = "stage"
_CORRECT, _NUMBERS = "correct", "per-sample"
_CLASSES, _DIFFERENCES = "predicted", "predicted-differences"
# As an older edgeconv wrote it.
_OLD_DIFFERENCES = "predicted-beside-first"
# Literal strings are read much faster, and these need no escapes. A line may unpack to a thousand
# times its length.
_MOST_SAMPLES = 2**24
_PACKED = (_CORRECT, _NUMBERS, _CLASSES, _DIFFERENCES, _OLD_DIFFERENCES)


def table_of(model: LockedModel) -> dict[str, Any]:
    """The facts of a locked model without its name, with per-sample results packed."""
    fields = msgspec.to_builtins(model)
    del fields["name"], fields["stages"]
    first: tuple[int, ...] = ()
    stages = {}
    for stage in model.stages:
        stages[stage.name] = _stage_table(stage, first)
        first = first or _classes(stage)
    table = {**_kebab(fields), _STAGE: stages}
    # An empty table or list has no line.
    return {key: value for key, value in table.items() if value not in ({}, [], ())}


def model_of(name: str, table: dict[str, Any]) -> LockedModel:
    """The model of a table as `table_of` makes it.

    Raises `msgspec.ValidationError` and `ValueError` for any other.
    """
    fields = dict(table)
    stages: list[LockedStage] = []
    first: tuple[int, ...] = ()
    for stage, facts in _as_table(fields.pop(_STAGE, {})).items():
        stages.append(_stage_of(stage, facts, first))
        first = first or _classes(stages[-1])
    plain = {key.replace("-", "_"): value for key, value in fields.items()}
    whole = {"inputs": {}, **plain, "name": name, "stages": stages}
    model = msgspec.convert(whole, LockedModel)
    # An older edgeconv wrote these names.
    inputs = {
        key: text.replace("equalisation", "equalization") for key, text in model.inputs.items()
    }
    machine = {"host" if key == "place" else key: text for key, text in model.machine.items()}
    return msgspec.structs.replace(model, inputs=inputs, machine=machine)


def checksum(name: str, table: dict[str, Any]) -> str:
    """The hash of the facts of a model, without the order of the lines."""
    return hash_of(name, table)


def as_text(tables: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Tables as TOML: a line for each value, and an empty one before each table."""
    return "".join(_lines(tables, path))


def _lines(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    facts = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if facts:
        yield f"\n{toml_header(path)}\n"
    for key, value in facts.items():
        yield f"{toml_key(key)} = {_value(key, value)}\n"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines(value, (*path, key))


def _value(key: str, value: str | float | bool) -> str:
    is_packed = key in _PACKED and isinstance(value, str)
    return f"'{value}'" if is_packed else toml_value(value)


def _kebab(fields: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in fields.items() if value is not None}


def _classes(stage: LockedStage) -> tuple[int, ...]:
    return stage.accuracy.predicted if stage.accuracy else ()


def _stage_table(stage: LockedStage, first: tuple[int, ...]) -> dict[str, Any]:
    fields = {f: getattr(stage, f) for f in stage.__struct_fields__ if f not in _NOT_FACTS}
    return _kebab(fields) | (_accuracy_table(stage.accuracy, first) if stage.accuracy else {})


_NOT_FACTS = ("name", "accuracy")


def _accuracy_table(accuracy: Accuracy, first: tuple[int, ...]) -> dict[str, Any]:
    table: dict[str, Any] = {
        "metric": accuracy.metric,
        "accuracy": accuracy.value,
        "samples": accuracy.samples,
        "higher-is-better": accuracy.higher_is_better,
    }
    if accuracy.correct:
        table[_CORRECT] = pack_right(accuracy.correct)
    if accuracy.per_sample:
        table[_NUMBERS] = pack_numbers(accuracy.per_sample)
    if accuracy.predicted:
        # The models of one flow mostly predict the same.
        like = first if len(first) == len(accuracy.predicted) else ()
        table[_DIFFERENCES if like else _CLASSES] = pack_classes(accuracy.predicted, like)
    return table


def _stage_of(name: str, table: object, first: tuple[int, ...]) -> LockedStage:
    fields = dict(_as_table(table))
    accuracy = _accuracy_of(fields, first) if "metric" in fields else None
    plain = {key.replace("-", "_"): value for key, value in fields.items()}
    return msgspec.convert({**plain, "name": name, "accuracy": accuracy}, LockedStage)


def _accuracy_of(fields: dict[str, Any], first: tuple[int, ...]) -> dict[str, Any]:
    """The fields of an `Accuracy`, taken out of those of a stage."""
    samples = fields.pop("samples", 0)
    if not isinstance(samples, int) or not 0 <= samples <= _MOST_SAMPLES:
        raise ValueError(f"{samples!r} samples")
    accuracy: dict[str, Any] = {"samples": samples}
    for key, field in _ACCURACY.items():
        if key in fields:
            accuracy[field] = fields.pop(key)
    if line := _line(fields, _CORRECT):
        accuracy["correct"] = unpack_right(line, samples)
    if line := _line(fields, _NUMBERS):
        accuracy["per_sample"] = unpack_numbers(line, samples)
    if line := _line(fields, _CLASSES):
        accuracy["predicted"] = unpack_classes(line, samples)
    if line := _line(fields, _DIFFERENCES) or _line(fields, _OLD_DIFFERENCES):
        accuracy["predicted"] = unpack_classes(line, samples, first)
    return accuracy


def _line(fields: dict[str, Any], key: str) -> str:
    line = fields.pop(key, "")
    if not isinstance(line, str):
        raise ValueError(f"{key} is {line!r}")  # noqa: TRY004
    return line


def _as_table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table")  # noqa: TRY004
    return value


_ACCURACY = {"metric": "metric", "accuracy": "value", "higher-is-better": "higher_is_better"}
