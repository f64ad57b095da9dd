"""The lock: a text file of what a team accepted, that the gate compares with.

It is TOML, one fact a line, in one order, so that git merges the changes of two branches to
different models. Each model has a checksum of all that is said of it, against changes by hand;
it is no signature.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from edgeconv.config.lock_text import CHECKSUM, as_text, checksum, model_of, table_of
from edgeconv.config.toml_text import toml_header
from edgeconv.errors import InputRefused
from edgeconv.store.pointers import refuse_pointer
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
# What a TOML reader does with a key of many parts grows with their square; only packed answers are
# long, which are literal strings.
_LONGEST_LINE = 1 << 13
_PACKED_LINE = re.compile(r"[a-z-]+ = '[^']*'")
_MARKERS = ("<<<<<<<", "|||||||", ">>>>>>>")
_RESTORE = (
    "take the file back as it was (git checkout), or delete it and accept the present state "
    "with edgeconv check --update"
)


def read(path: str | Path) -> Lock:
    """The lock in a file.

    Raises `InputRefused` for a file that is not there or not readable, is left from a merge with
    conflicts, is of a newer version, is no lock, or was edited by hand, with the line.
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
        raise InputRefused(f"{path} is not UTF-8 text, so it is no lock", hint=_RESTORE) from error
    return _File(path, text).lock()


def accepted_hashes(path: Path, model: str) -> frozenset[str] | None:
    """The hashes of the files that were accepted of a model, None where it is not in the lock.

    For whoever has no time to read all answers: the lines are looked through, and no checksum is
    checked. Raises `InputRefused` for a lock that cannot be read.
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
    """Put the lock in a file, whole or not at all; equal locks give equal bytes.

    Raises `OutputRefused` where it cannot be written; the file is then as it was.
    """
    from edgeconv.store import publish_bytes

    tables = {name: _table(model) for name, model in sorted(lock.models.items())}
    publish_bytes(_document(FORMAT, tables), Path(path))


def _document(version: int, tables: dict[str, Any]) -> bytes:
    return f"{_BEGINNING}\nformat = {version}\n{as_text({_MODEL: tables})}".encode()


def is_as_written(content: bytes) -> bool:
    """Whether the text of a lock that `read` takes is what `write` writes of it, to the byte.

    The checksums are of what is said; this is of how it is written too.
    """
    tables = msgspec.toml.decode(content)
    return content == _document(tables.pop("format"), tables.pop(_MODEL, {}))


def accept(models: Iterable[LockedModel], path: Path, *, of: Collection[str]) -> None:
    """Put models in the lock, in place of theirs; those that are not in `of` leave it.

    The others stay as they are by now: another run may have accepted one meanwhile. Raises as
    `read` and `write`.
    """
    from edgeconv.store import cache_directory, owned

    with owned(cache_directory() / "accepting", passing=True):
        there = read(path).models if path.exists() else {}
        kept = {name: one for name, one in there.items() if name in of}
        write(Lock(models=kept | {one.name: one for one in models}), path)


def locked_model(name: str, report: Report, inputs: Mapping[str, str]) -> LockedModel:
    """The state of a report as what is accepted; `inputs` are hashes of what it was made from.

    Models that did not run are left out. Raises `InputRefused` for two rows of one name.
    """
    rows = [row for row in (report.checkpoint, report.baseline, *report.measurements) if row]
    names = [row.name for row in rows]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise InputRefused(
            f"the report {report.title!r} has two models called {twice[0]!r}",
            hint="what is locked is known by its name: give each file one of its own",
        )
    made_with = (one.tools for one in report.artifacts)
    return LockedModel(
        name=name,
        inputs=dict(sorted(inputs.items())),
        test_sha256=report.data.sha256 if report.data else "",
        test_samples=report.data.samples if report.data else 0,
        preprocessing=report.data.preprocessing if report.data else "",
        tools=_merged(report.environment.tools, *made_with),
        machine=_machine(report.environment),
        stages=tuple(_stage(row) for row in rows if not row.error),
    )


def _stage(row: Measurement) -> LockedStage:
    return LockedStage(
        name=row.name,
        role=row.role,
        recipe=row.recipe,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        gzip_size_bytes=row.gzip_size_bytes,
        arena_bytes=row.arena_bytes,
        latency_ratio=row.latency_ratio,
        peak_memory_bytes=row.peak_memory_bytes,
        accuracy=row.accuracy,
    )


def _merged(*tables: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted((key, value) for table in tables for key, value in table.items()))


def _machine(environment: Environment) -> dict[str, str]:
    return {
        name: value
        for name in ("cores", "cpu", "machine", "place", "python", "system")
        if (value := str(getattr(environment, name)))
    }


def _table(model: LockedModel) -> dict[str, Any]:
    table = table_of(model)
    return {CHECKSUM: checksum(model.name, table), **table}


class _File:
    """A lock while it is being read: knows where to point when something is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._refuse_conflicts()
        self._refuse_long_lines()
        try:
            self._content = msgspec.toml.decode(text)
        except (ValueError, RecursionError) as error:
            # A number with too many digits is a `ValueError` only.
            raise InputRefused(f"{path} is no valid TOML: {error}", hint=_RESTORE) from error

    def lock(self) -> Lock:
        """The whole lock. Raises `InputRefused`."""
        self._refuse_format(self._content.pop("format", None))
        tables = self._content.pop(_MODEL, {})
        for name in self._content:
            self._refuse(f"{name!r} does not belong into a lock", name)
        if not isinstance(tables, dict):
            self._refuse("[model] is no table of models", _MODEL)
        return Lock(models={name: self._model(name, table) for name, table in tables.items()})

    def _model(self, name: str, table: object) -> LockedModel:
        where = toml_header((_MODEL, name))
        if not isinstance(table, dict) or table.pop(CHECKSUM, None) != checksum(name, table):
            self._refuse(
                f"what is locked of model {name!r} is not as `edgeconv check --update` wrote it: "
                "it was edited, or a merge mixed two states",
                where,
            )
        try:
            return model_of(name, table)
        except (msgspec.ValidationError, ValueError) as error:
            self._refuse(f"what is locked of model {name!r} cannot be read: {error}", where)

    def _refuse_conflicts(self) -> None:
        for number, line in enumerate(self._text.splitlines(), 1):
            if line.startswith(_MARKERS):
                raise InputRefused(
                    f"{self._path}, line {number}: the lock is left from a merge with conflicts",
                    hint="take one side whole (git checkout --ours or --theirs), and accept the "
                    "merged state with edgeconv check --update",
                )

    def _refuse_long_lines(self) -> None:
        for number, line in enumerate(self._text.split("\n"), 1):
            if len(line) > _LONGEST_LINE and not _PACKED_LINE.fullmatch(line.rstrip("\r")):
                raise InputRefused(
                    f"{self._path} is no valid TOML: line {number} has {len(line)} characters",
                    hint=_RESTORE,
                )

    def _refuse_format(self, found: object) -> None:
        is_number = isinstance(found, int) and not isinstance(found, bool)
        if is_number and found == FORMAT:
            return
        if isinstance(found, int) and found > FORMAT:
            raise InputRefused(
                f"{self._path} is a lock of format {found}, from a newer edgeconv; this one reads "
                f"format {FORMAT}",
                hint="install that version: pip install --upgrade edgeconv",
            )
        raise InputRefused(
            f"{self._path} is no lock: `format = {FORMAT}` is not in it", hint=_RESTORE
        )

    def _refuse(self, message: str, beginning: str) -> NoReturn:
        lines = enumerate(self._text.splitlines(), 1)
        line = next((number for number, text in lines if text.startswith(beginning)), 1)
        raise InputRefused(f"{self._path}, line {line}: {message}", hint=_RESTORE)
