"""A CSV file to which every check adds a line for each model.

The columns are fixed; further metrics are in one column, as NAME=VALUE.
"""

import contextlib
import csv
import io
from collections.abc import Mapping
from pathlib import Path

from edgeconv.reporting.spreadsheet import safe
from edgeconv.reporting.trackers import TrackedRun, now, runs
from edgeconv.system.store import (
    cache_directory,
    owned,
    publish_bytes,
    refuse_pointer,
    writable_directory,
)
from edgeconv.types import Checked, Report
from edgeconv.types.errors import InputRefused, OutputRefused

# See edgeconv.reporting.trackers.
WRITES_FILES_ONLY = True
_TEXTS = ("role", "recipe", "runtime", "sha256", "machine", "data", "metric")
_NUMBERS = (
    *("accuracy", "accuracy_drop", "samples", "fixed", "broken"),
    *("size_bytes", "gzip_size_bytes", "size_ratio"),
    *("latency_p50_us", "latency_p90_us", "latency_p99_us", "latency_ratio"),
    *("peak_memory_bytes", "arena_bytes", "limits_broken"),
)
COLUMNS = (
    *("time", "config", "check", "model", "verdict", *_TEXTS, *_NUMBERS),
    *("further metrics", "error"),
)


def refuse(location: str) -> None:
    """Raise `InputRefused` for a file with other columns, `OutputRefused` if it is not writable."""
    path = Path(location)
    if path.is_symlink():
        # A checkout may contain one that leads anywhere.
        hint = "name the file that it leads to"
        raise OutputRefused(f"cannot add to {path}: it is a symbolic link", hint=hint)
    writable_directory(path.absolute().parent)
    try:
        refuse_pointer(path)
        _has_heading(path)
    except (OSError, UnicodeError) as error:
        raise OutputRefused(f"cannot add to {path}: {error}") from error


def track(checked: Checked, reports: Mapping[str, Report], location: str) -> None:
    """Add a line for every model to the file, which is created if missing. Raises as `refuse`."""
    refuse(location)
    path = Path(location)
    when = now().isoformat()
    rows = [_row(when, run) for run in runs(checked, reports)]
    try:
        # Concurrent checks take turns, where a lock can be written. The file is rewritten: an
        # appended line would be cut where the disk is full.
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OutputRefused):
                stack.enter_context(owned(cache_directory() / "tracking", passing=True))
            start = [] if _has_heading(path) else [COLUMNS]
            before = path.read_bytes() if path.is_file() else b""
            publish_bytes(before + _text([*start, *rows]).encode(), path)
    except (OSError, UnicodeError) as error:
        raise OutputRefused(f"cannot add to {path}: {error}") from error


def _has_heading(path: Path) -> bool:
    """Whether the file has its heading already. Raises `InputRefused` for another one."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open(encoding="utf-8", newline="") as file:
        first = file.readline()
    if first != _text([COLUMNS]):
        raise InputRefused(
            f"{path} was not written by --track csv, or has the columns of another version",
            hint="name another file",
        )
    return True


def _row(when: str, run: TrackedRun) -> tuple[str, ...]:
    further = {
        name.removeprefix("metric_"): value
        for name, value in run.numbers.items()
        if name.startswith("metric_")
    }
    return (
        when,
        *map(safe, (run.texts["config"], run.check, run.model, run.verdict)),
        *(safe(run.texts[name]) for name in _TEXTS),
        *(_number(run.numbers.get(name)) for name in _NUMBERS),
        safe(" ".join(f"{name}={value!r}" for name, value in further.items())),
        safe(run.texts["error"]),
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value.is_integer() else repr(value)


def _text(rows: list[tuple[str, ...]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
