"""edgeconv check."""

from __future__ import annotations

from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import ANNOTATIONS, COLORS, echo, echo_text, terminal
from edgeconv.cli.progress import progress


@verb_command(
    "check",
    examples=(
        "edgeconv check",
        "edgeconv check --model mnist --output junit=build/junit.xml",
        "edgeconv check --update",
    ),
)
def command(call: CommandCall) -> int:
    """Convert and measure every model of edgeconv.toml, and check its budget and the lock.

    With REPORT, the report.json of `edgeconv bench`, nothing runs: the report is checked against
    the budget. Exit code 0 if every limit holds; 1 if one is broken, was not measured, or cannot be
    decided. Only --update accepts anything, and what did not change is not measured again.
    """
    from edgeconv.gate.check import checked
    from edgeconv.gate.destinations import is_github, parse_destinations, publish, track
    from edgeconv.reporting.verdicts import render

    request = replace(call.request, **call.of_config)
    places = parse_destinations(request)
    with progress(quiet=call.shown.quiet) as on_progress:
        result = checked(request, on_progress)
    for line in result.told:
        echo(line, err=True)
    if call.shown.as_json:
        echo_text(render(result.checked, "json"))
    else:
        echo_text(render(result.checked, "text", **terminal()), own=COLORS)
        if is_github():
            echo_text(render(result.checked, "github-annotations"), own=ANNOTATIONS)
    publish(result.checked, places.outputs)
    # Last, so that a server that does not answer delays no verdict.
    track(result.checked, result.reports, places)
    if result.errors:
        raise result.errors[0]
    return 0 if result.checked.ok else 1
