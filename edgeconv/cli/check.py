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

    With REPORT, the report.json of `edgeconv bench` or the sweep.json of `edgeconv sweep`, nothing
    runs: it is checked against the budget (a sweep by default against its own). Exit code 0 if
    every limit holds; 1 if one is broken, was not measured, or cannot be decided. Only --update
    accepts anything, and a step whose inputs did not change is not repeated.
    """
    from edgeconv.gate.check import is_github, parse_destinations, publish, run_check, track
    from edgeconv.reporting.verdicts import render

    request = replace(call.request, **call.of_config)
    destinations = parse_destinations(request)
    with progress(quiet=call.shown.quiet) as on_progress:
        run = run_check(request, on_progress)
    for notice in run.notices:
        echo(notice, err=True)
    if call.shown.as_json:
        echo_text(render(run.checked, "json"))
    else:
        echo_text(render(run.checked, "text", **terminal()), own=COLORS)
        if is_github():
            echo_text(render(run.checked, "github-annotations"), own=ANNOTATIONS)
    publish(run.checked, destinations.outputs)
    # Last: a server that does not answer must not keep the verdict back.
    track(run, destinations)
    if run.errors:
        raise run.errors[0]
    return 0 if run.checked.ok else 1
