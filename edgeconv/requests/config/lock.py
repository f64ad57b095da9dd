"""The lock: a text file of what a team accepted, which the gate compares with.

It is TOML, one fact per line, in a fixed order: git can merge changes of different models. The
checksum of each model detects changes by hand; it is not a signature.

Per-sample results are packed into a line, exactly as they were: base64 of the numbers,
little-endian and compressed by zlib of the standard library. It is the same on every machine.
"""

import base64
import re
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from edgeconv.system.store import cache_directory, hash_of, owned, publish_bytes
from edgeconv.system.store.files import refuse_pointer
from edgeconv.system.store.toml_file import toml_header, toml_key, toml_value
from edgeconv.types import (
    Accuracy,
    Environment,
    Lock,
    LockedModel,
    LockedStage,
    Measurement,
    Report,
)
from edgeconv.types.decoding import ready
from edgeconv.types.errors import InputRefused

FILE_NAME = "edgeconv.lock"
FORMAT = 1
_MODEL = "model"
_HASH = "sha256 = "
_BEGINNING = (
    "# What was accepted: written by `edgeconv check --update`, and not to be edited by hand."
)
# A TOML reader takes the square of the number of parts of a key. Only packed results are longer.
_LONGEST_LINE = 1 << 13
_PACKED_LINE = re.compile(r"[a-z-]+ = '[^']*'")
_MARKERS = ("<<<<<<<", "|||||||", ">>>>>>>")
_RESTORE = (
    "restore the file (git checkout), or delete it and accept the current state "
    "with edgeconv check --update"
)
CHECKSUM = "checksum"
_STAGE = "stage"
_UNPROVEN = "unproven"
_CORRECT, _NUMBERS = "correct", "per-sample"
_CLASSES, _DIFFERENCES = "predicted", "predicted-differences"
# Literal strings are read much faster, and these need no escapes. A line may unpack to a thousand
# times its length.
_MOST_SAMPLES = 2**24
_PACKED = (_CORRECT, _NUMBERS, _CLASSES, _DIFFERENCES)
# The bytes of a whole number, the fewest first, by the letter that begins the line.
_WHOLE = {"b": 1, "h": 2, "i": 4, "q": 8}
_DOUBLE_BYTES = 8


def read(path: str | Path) -> Lock:
    """The lock in a file.

    Raises `InputRefused`, with the line, for a file that is missing, not readable or not a lock,
    has merge conflicts, is of a newer version, or was edited by hand.
    """
    path = Path(path)
    refuse_pointer(path)
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        hint = "write it with edgeconv check --update"
        raise InputRefused(f"the lock {path} does not exist", hint=hint) from None
    except OSError as error:
        raise InputRefused(f"the lock {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputRefused(
            f"{path} is not UTF-8 text, so it is not a lock", hint=_RESTORE
        ) from error
    return _File(path, text).lock()


def accepted_hashes(path: Path, model: str) -> frozenset[str] | None:
    """The hashes of the accepted files of a model, None where it is not in the lock.

    Faster than `read`: only lines are compared, and no checksum is checked. Raises `InputRefused`
    for a lock that cannot be read.
    """
    if not path.exists():
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise InputRefused(f"the lock {path} cannot be read: {error}", hint=_RESTORE) from error
    own = toml_header((_MODEL, model))
    if own not in lines:
        return None
    stages = own.replace("]", ".stage.")
    hashes, is_own = set(), False
    for line in lines:
        if line.startswith("["):
            is_own = line.startswith(stages)
        elif is_own and line.startswith(_HASH):
            hashes.add(line.removeprefix(_HASH).strip(' "'))
    return frozenset(hashes)


def write(lock: Lock, path: str | Path) -> None:
    """Write the lock, whole or not at all; equal locks give equal bytes.

    Raises `OutputRefused` where it cannot be written; the file is then as it was.
    """
    tables = {name: _table(model) for name, model in sorted(lock.models.items())}
    publish_bytes(_document(FORMAT, tables), Path(path))


def _document(version: int, tables: dict[str, Any]) -> bytes:
    return f"{_BEGINNING}\nformat = {version}\n{as_text({_MODEL: tables})}".encode()


def is_as_written(content: bytes) -> bool:
    """Whether a lock that `read` takes has exactly the bytes that `write` writes."""
    tables = msgspec.toml.decode(content)
    return content == _document(tables.pop("format"), tables.pop(_MODEL, {}))


def accept(models: Iterable[LockedModel], path: Path, *, of: Collection[str]) -> None:
    """Replace models in the lock, and remove those that are not in `of`.

    All others stay as they are now: another run may have accepted one meanwhile. Raises as `read`
    and `write`.
    """
    with owned(cache_directory() / "accepting", passing=True):
        locked = read(path).models if path.exists() else {}
        kept = {name: model for name, model in locked.items() if name in of}
        write(Lock(models=kept | {model.name: model for model in models}), path)


def locked_model(name: str, report: Report, inputs: Mapping[str, str]) -> LockedModel:
    """The state of a report, to be accepted; `inputs` are hashes of its inputs.

    Models that did not run are omitted. Raises `InputRefused` for two rows of one name.
    """
    rows = [row for row in (report.checkpoint, report.baseline, *report.measurements) if row]
    names = [row.name for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputRefused(
            f"the report {report.title!r} has two models called {twice[0]!r}",
            hint="the lock knows models by their names: give each file a different one",
        )
    tools = (artifact.tools for artifact in report.artifacts)
    return LockedModel(
        name=name,
        inputs=dict(sorted(inputs.items())),
        test_sha256=report.data.sha256 if report.data else "",
        test_samples=report.data.samples if report.data else 0,
        preprocessing=report.data.preprocessing if report.data else "",
        tools=_merged(report.environment.tools, *tools),
        machine=_machine(report.environment),
        stages=tuple(_stage(row) for row in rows if not row.error),
    )


def _stage(row: Measurement) -> LockedStage:
    facts = {
        name: getattr(row, name) for name in LockedStage.__struct_fields__ if name != _UNPROVEN
    }
    known = {"measured_in": row.measured_in or None, "grade": row.grade or None}
    return LockedStage(**{**facts, **known})


def _merged(*tables: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted((key, value) for table in tables for key, value in table.items()))


def _machine(environment: Environment) -> dict[str, str]:
    return {
        name: value
        for name in ("cores", "cpu", "host", "machine", "python", "system")
        if (value := str(getattr(environment, name)))
    }


def _table(model: LockedModel) -> dict[str, Any]:
    table = table_of(model)
    return {CHECKSUM: checksum(model.name, table), **table}


class _File:
    """A lock while it is read, with the lines that errors point to."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._refuse_conflicts()
        self._refuse_long_lines()
        try:
            self._content = msgspec.toml.decode(text)
        except (ValueError, RecursionError) as error:
            # A number with too many digits is a `ValueError` only.
            raise InputRefused(f"{path} is not valid TOML: {error}", hint=_RESTORE) from error

    def lock(self) -> Lock:
        """The whole lock. Raises `InputRefused`."""
        self._refuse_format(self._content.pop("format", None))
        tables = self._content.pop(_MODEL, {})
        for name in self._content:
            self._refuse(f"{name!r} does not belong in a lock", name)
        if not isinstance(tables, dict):
            self._refuse("[model] is not a table of models", _MODEL)
        return Lock(models={name: self._model(name, table) for name, table in tables.items()})

    def _model(self, name: str, table: object) -> LockedModel:
        where = toml_header((_MODEL, name))
        if not isinstance(table, dict) or table.pop(CHECKSUM, None) != checksum(name, table):
            self._refuse(
                f"the lock of model {name!r} is not as `edgeconv check --update` wrote it: it was "
                "edited, or a merge mixed two states",
                where,
            )
        try:
            return model_of(name, table)
        except (msgspec.ValidationError, ValueError) as error:
            self._refuse(f"the lock of model {name!r} cannot be read: {error}", where)

    def _refuse_conflicts(self) -> None:
        for number, line in enumerate(self._text.splitlines(), 1):
            if line.startswith(_MARKERS):
                raise InputRefused(
                    f"{self._path}, line {number}: the lock has merge conflicts",
                    hint="take one side whole (git checkout --ours or --theirs), and accept the "
                    "merged state with edgeconv check --update",
                )

    def _refuse_long_lines(self) -> None:
        for number, line in enumerate(self._text.split("\n"), 1):
            if len(line) > _LONGEST_LINE and not _PACKED_LINE.fullmatch(line.rstrip("\r")):
                raise InputRefused(
                    f"{self._path} is not valid TOML: line {number} has {len(line)} characters",
                    hint=_RESTORE,
                )

    def _refuse_format(self, version: object) -> None:
        is_number = isinstance(version, int) and not isinstance(version, bool)
        if is_number and version == FORMAT:
            return
        if isinstance(version, int) and version > FORMAT:
            raise InputRefused(
                f"{self._path} is a lock of format {version}, from a newer edgeconv; this "
                f"one reads format {FORMAT}",
                hint="install that version: pip install --upgrade edgeconv",
            )
        raise InputRefused(
            f"{self._path} is not a lock: it has no line `format = {FORMAT}`", hint=_RESTORE
        )

    def _refuse(self, message: str, beginning: str) -> NoReturn:
        lines = enumerate(self._text.splitlines(), 1)
        line = next((number for number, text in lines if text.startswith(beginning)), 1)
        raise InputRefused(f"{self._path}, line {line}: {message}", hint=_RESTORE)


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
    return msgspec.convert(whole, ready(LockedModel))


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
    unproven = {_UNPROVEN: msgspec.to_builtins(stage.unproven)} if stage.unproven else {}
    accuracy = _accuracy_table(stage.accuracy, first) if stage.accuracy else {}
    return _kebab(fields) | unproven | accuracy


_NOT_FACTS = ("name", "accuracy", _UNPROVEN)


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
    return msgspec.convert({**plain, "name": name, "accuracy": accuracy}, ready(LockedStage))


def _accuracy_of(fields: dict[str, Any], first: tuple[int, ...]) -> dict[str, Any]:
    """The fields of an `Accuracy`, taken out of a stage's."""
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
    if line := _line(fields, _DIFFERENCES):
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


def pack_right(correct: str) -> str:
    """A line for a "1" or "0" per sample."""
    count = len(correct)
    return _deflated(int(f"0{correct}", 2).to_bytes((count + 7) // 8, "little"))


def unpack_right(line: str, samples: int) -> str:
    """The argument of `pack_right`, of this length. Raises `ValueError` for any other line."""
    number = int.from_bytes(_inflated(line, (samples + 7) // 8), "little")
    correct = f"{number:0{samples}b}" if samples else ""
    if len(correct) != samples:
        raise ValueError(f"holds more than {samples} samples")
    return correct


def pack_classes(classes: Sequence[int], reference: Sequence[int] = ()) -> str:
    """A line for a class per sample; shorter where `reference` has similar classes.

    `reference` is as long as `classes`, or empty. Numbers and differences are within 64 bits.
    """
    numbers = (
        [a - b for a, b in zip(classes, reference, strict=True)] if reference else list(classes)
    )
    low, high = min(numbers, default=0), max(numbers, default=0)
    letter = next(
        letter
        for letter, size in _WHOLE.items()
        if -(1 << (8 * size - 1)) <= low and high < 1 << (8 * size - 1)
    )
    return f"{letter}:{_deflated(struct.pack(f'<{len(numbers)}{letter}', *numbers))}"


def unpack_classes(line: str, samples: int, reference: Sequence[int] = ()) -> tuple[int, ...]:
    """The argument of `pack_classes`. Raises `ValueError` for any other line."""
    letter, _, packed = line.partition(":")
    if letter not in _WHOLE:
        raise ValueError(f"begins with {letter[:1]!r}")
    content = _inflated(packed, samples * _WHOLE[letter])
    numbers: tuple[int, ...] = struct.unpack(f"<{samples}{letter}", content)
    return tuple(a + b for a, b in zip(numbers, reference, strict=True)) if reference else numbers


def pack_numbers(numbers: Sequence[float]) -> str:
    """A line for a number per sample, exact."""
    content = struct.pack(f"<{len(numbers)}d", *numbers)
    # The first bytes of all, then the second ones: similar exponents compress well.
    return _deflated(b"".join(content[at::_DOUBLE_BYTES] for at in range(_DOUBLE_BYTES)))


def unpack_numbers(line: str, samples: int) -> tuple[float, ...]:
    """The argument of `pack_numbers`. Raises `ValueError` for any other line."""
    content = _inflated(line, samples * _DOUBLE_BYTES)
    whole = bytearray(len(content))
    for at in range(_DOUBLE_BYTES):
        whole[at::_DOUBLE_BYTES] = content[at * samples : (at + 1) * samples]
    return struct.unpack(f"<{samples}d", whole)


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _inflated(line: str, size: int) -> bytes:
    """The content of a line, of `size` bytes, and never more. Raises `ValueError`."""
    try:
        inflating = zlib.decompressobj()
        content = inflating.decompress(base64.b64decode(line, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"is damaged: {error}") from error
    if len(content) != size or not inflating.eof or inflating.unused_data:
        raise ValueError(f"does not hold the {size} bytes that it should")
    return content
