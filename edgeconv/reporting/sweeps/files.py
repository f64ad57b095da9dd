"""The files of a sweep: sweep.json, sweep.html and sweep.csv."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.reporting.spreadsheet import safe
from edgeconv.reporting.sweeps.html import render_sweep
from edgeconv.store import html_with_checksum, json_with_checksum, publish_all

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Swept

JSON_NAME, HTML_NAME, CSV_NAME = "sweep.json", "sweep.html", "sweep.csv"
# By the name of the column: the field of a cell.
_COLUMNS = {
    "model": "model",
    "recipe": "recipe",
    "runtime": "runtime",
    "data": "data",
    "state": "state",
    "reason": "reason",
    "size (bytes)": "size_bytes",
    "latency p50 (us)": "latency_us",
    "metric": "metric",
    "value of the metric": "value",
    "drop": "drop",
    "SNR (dB)": "snr_db",
    "on the Pareto front": "on_front",
    "change": "change",
    "file": "file",
    "sha256": "sha256",
    "key": "key",
}


def write_sweep(sweep: Swept, directory: Path) -> None:
    """Write all files into `directory`, or none. Raises `OutputRefused`.

    The same results give the same bytes: where they are is not in them.
    """
    plain = msgspec.structs.replace(sweep, directory="")
    publish_all(
        {
            directory / CSV_NAME: sweep_csv(plain).encode(),
            directory / HTML_NAME: html_with_checksum(render_sweep(plain)),
            directory / JSON_NAME: json_with_checksum(plain, indent=1),
        }
    )


def sweep_csv(sweep: Swept) -> str:
    """One line for each cell, worst first; numbers that are missing are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in sweep.cells:
        writer.writerow([_written(getattr(cell, field)) for field in _COLUMNS.values()])
    return file.getvalue()


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(value) if isinstance(value, str) else "" if value is None else repr(value)
