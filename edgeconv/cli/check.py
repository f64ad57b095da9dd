"""edgeconv check."""

from __future__ import annotations

from msgspec.structs import replace

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import ANNOTATIONS, COLORS, echo, echo_text, terminal
from edgeconv.cli.progress import progress


@verb_command("check")
def command(call: Call) -> int:
    """Convert, measure and judge every model of edgeconv.toml, and compare with the lock.

    With REPORT, the report.json of `edgeconv bench`, nothing is run: it is held against the
    budget. Exit code 0 when every limit holds; 1 when one is broken, when what it needs was not
    measured, or when it cannot be told. Nothing is accepted without --update, and nothing is
    measured again that did not change.
    """
    from edgeconv.gate.check import checked
    from edgeconv.gate.destinations import is_github, parse_destinations, publish, track
    from edgeconv.reporting.verdicts import render

    asked = replace(call.request, **call.of_config)
    places = parse_destinations(asked)
    with progress(quiet=call.shown.quiet) as on_progress:
        done = checked(asked, on_progress)
    for line in done.told:
        echo(line, err=True)
    if call.shown.as_json:
        echo_text(render(done.checked, "json"))
    else:
        echo_text(render(done.checked, "text", **terminal()), own=COLORS)
        if is_github():
            echo_text(render(done.checked, "github-annotations"), own=ANNOTATIONS)
    publish(done.checked, places.outputs)
    # Last: a server that does not answer must not keep the verdict back.
    track(done.checked, done.reports, places)
    if done.errors:
        raise done.errors[0]
    return 0 if done.checked.ok else 1
