"""Which measurements may stand beside each other, and which must not.

Times compare on one machine, in one runtime, with as many threads; accuracies on the same
samples. A machine is known by its processor, cores, system and place: two machines that agree
in all of them cannot be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Latency, Measurement, Report

_DIGITS = 12


def latency_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the times of two reports do not compare, such as "threads: 1 and 2".

    Empty where they do, and where one of them has none. The baseline's do not count where there
    are others: those in TensorFlow are only shown.
    """
    one, other = _timed(first), _timed(second)
    return tuple(_different(_timing(first, one), _timing(second, other))) if one and other else ()


def accuracy_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the accuracies of two reports do not compare; empty where they do.

    And where one of them has none.
    """
    one, other = _metrics(first), _metrics(second)
    if not (one and other):
        return ()
    differences = tuple(_different(_samples(first), _samples(second)))
    if not set(one) & set(other):
        return (*differences, f"metric: {_listed(one)} and {_listed(other)}")
    return differences


def agreement_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the agreement of outputs in two reports does not compare; empty where it does.

    And where one of them has none.
    """
    if not all(any(row.agreement for row in _rows(report)) for report in (first, second)):
        return ()
    return tuple(_different(_samples(first), _samples(second)))


def _different(first: dict[str, str], second: dict[str, str]) -> Iterator[str]:
    for what, value in first.items():
        if value != second[what]:
            yield f"{what}: {value or 'none'} and {second[what] or 'none'}"


def _rows(report: Report) -> list[Measurement]:
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def _timed(report: Report) -> list[tuple[Measurement, Latency]]:
    timed = [(row, row.latency) for row in _rows(report) if row.latency is not None]
    return [pair for pair in timed if pair[0].role == "artifact"] or timed


def _timing(report: Report, timed: list[tuple[Measurement, Latency]]) -> dict[str, str]:
    here = report.environment
    return {
        "place": here.place or "this machine",
        "machine": here.machine,
        "processor": here.cpu,
        "cores": str(here.cores),
        # The release of a kernel changes with every update, and hardly the times.
        "system": here.system.partition(" ")[0],
        "runtime": _listed([row.runtime for row, _ in timed]),
        "threads": _listed([str(latency.threads) for _, latency in timed]),
        "batch": _listed([str(latency.batch) for _, latency in timed]),
    }


def _samples(report: Report) -> dict[str, str]:
    data = report.data
    return {
        "number of samples": str(data.samples) if data else "",
        "preprocessing": data.preprocessing if data else "",
        "hash of the samples": data.sha256[:_DIGITS] if data else "",
    }


def _metrics(report: Report) -> list[str]:
    rows = [row for row in _rows(report) if row.accuracy is not None]
    return [one.metric for row in rows for one in (row.accuracy, *row.metrics) if one is not None]


def _listed(values: list[str]) -> str:
    return ", ".join(sorted(set(values)))
