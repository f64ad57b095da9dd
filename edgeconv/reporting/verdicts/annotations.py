"""GitHub annotations: commands that a job prints, shown beside the changed files.

GitHub takes ten errors, ten warnings and ten notices of a step and drops the rest; a title may have
255 characters, a message 64 KiB.
Source of the form: "Workflow commands for GitHub Actions" in GitHub's documentation, and the
escapes of `@actions/core`, command.ts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.limits import sentence
from edgeconv.reporting.verdicts.words import file_of, level_of, unheld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Checked

_MOST = 10
_MOST_IN_A_TITLE = 200
_MOST_IN_A_MESSAGE = 8000


def render_annotations(checked: Checked) -> str:
    """A line for each limit that does not hold, and a notice for what is said of each model."""
    return "".join(f"{line}\n" for line in (*_limits(checked), *_notices(checked)))


def _limits(checked: Checked) -> Iterator[str]:
    file = file_of(checked)
    for level in ("error", "warning"):
        found = [(c, f) for c, f in unheld(checked) if level_of(f) == level]
        shown = found if len(found) <= _MOST else found[: _MOST - 1]
        for check, finding in shown:
            yield _command(level, file, check.name, sentence(finding), finding.line)
        if len(shown) < len(found):
            more = f"{len(found) - len(shown)} more limits do not hold; see the summary of the job"
            yield _command(level, file, "edgeconv check", more)


def _notices(checked: Checked) -> Iterator[str]:
    told = [check for check in checked.checks if check.summary]
    for check in told[:_MOST]:
        yield _command("notice", file_of(checked), check.name, units.plain(check.summary))


def _command(level: str, file: str, title: str, message: str, line: int | None = None) -> str:
    where = f"file={_property(file)},line={line or 1}," if file else ""
    title = _property(units.plain(title)[:_MOST_IN_A_TITLE])
    return f"::{level} {where}title={title}::{_data(message[:_MOST_IN_A_MESSAGE])}"


def _data(text: str) -> str:
    harmless = units.plain(text)
    return harmless.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
