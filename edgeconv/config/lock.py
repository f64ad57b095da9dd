"""The lock: a text file of what a team accepted, which the gate compares with.

It is TOML, one fact per line, in a fixed order: git can merge changes of different models. The
checksum of each model detects changes by hand; it is not a signature.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from edgeconv.config.lock_text import CHECKSUM, as_text, checksum, model_of, table_of
from edgeconv.errors import InputRefused
from edgeconv.store.pointers import refuse_pointer
from edgeconv.store.toml_text import toml_header
from edgeconv.types import Lock, LockedModel, LockedStage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from edgeconv.types import Environment, Measurement, Report

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
    from edgeconv.store import publish_bytes

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
    from edgeconv.store import cache_directory, owned

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
    facts = {name: getattr(row, name) for name in LockedStage.__struct_fields__}
    return LockedStage(**{**facts, "measured_in": row.measured_in or None})


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
