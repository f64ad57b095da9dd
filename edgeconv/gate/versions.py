"""Files in every version of a runtime as limits: each must load and be right in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting.matrix import first_bad, what_it_does
from edgeconv.reporting.units import counted
from edgeconv.types import IN_VERSIONS, Finding
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import Report, RuntimeVersions, VersionResult

_MOST_NAMES = 4


def version_findings(
    report: Report, versions: RuntimeVersions | None = None
) -> tuple[Finding, ...]:
    """One finding for each file that the report has in versions of a runtime.

    It fails with a version in which the file does not load, does not run, crashes or is wrong; a
    version that could not be installed is a missing number. Where `versions` were to be run and the
    report has none, that is missing too.
    """
    if versions is not None and not report.matrix:
        return (_not_run(report, versions),)
    names = dict.fromkeys(each.model for each in report.matrix)
    return tuple(
        _finding(name, [each for each in report.matrix if each.model == name]) for name in names
    )


def _finding(model: str, results: Sequence[VersionResult]) -> Finding:
    missing = [each for each in results if each.state == "not installable"]
    bad = first_bad(results)
    right = sum(each.state == "right" for each in results)
    actual = what_it_does(bad) if bad else f"right in {counted(right, 'version')}"
    return Finding(
        model=model,
        limit=IN_VERSIONS,
        allowed=f"right in {counted(len(results), 'version')}",
        actual=actual,
        outcome="failed" if bad else "missing" if missing else "passed",
        reason="; ".join((*_why(results, bad), *_not_installed(missing))),
    )


def _why(results: Sequence[VersionResult], bad: VersionResult | None) -> Iterator[str]:
    if bad is None:
        return
    others = [each for each in results if each.state not in ("right", "not installable")][1:]
    yield f"first bad version {bad.runtime}"
    if others:
        names = listed([each.runtime for each in others], _MOST_NAMES)
        yield f"bad too: {names}"
    if bad.detail:
        yield bad.detail.splitlines()[0]
    reference = next((each.runtime for each in results if each.is_reference), "")
    if bad.snr_db is not None:
        flips = "" if bad.flips is None else f", {counted(bad.flips, 'flip')}"
        yield f"{bad.snr_db:.1f} dB from {reference}{flips}"
    version = bad.runtime.partition("==")[2]
    yield (
        f"leave it out of the specifier (!={version}) if no app ships it, or convert with "
        f"--target-runtime {bad.runtime}"
    )


def _not_installed(missing: Sequence[VersionResult]) -> Iterator[str]:
    if missing:
        names = listed([each.runtime for each in missing], _MOST_NAMES)
        why = missing[0].detail.splitlines()[0] if missing[0].detail else "no reason is known"
        yield f"not installed: {names} ({why}); check that pip can install it, or leave it out"


def _not_run(report: Report, versions: RuntimeVersions) -> Finding:
    return Finding(
        model=report.title,
        limit=IN_VERSIONS,
        allowed=f"right in {versions}",
        actual=None,
        outcome="missing",
        reason=f"the report has no versions: measure it with `bench --runtimes '{versions}'`",
    )
