"""`edgeconv compare`: what changed between two reports or two .tflite files."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("compare")
def command(call: Call) -> None:
    """Show what changed from BEFORE to AFTER.

    Both are the report.json of `edgeconv bench`, or both .tflite files. What must not be
    compared, such as times of two machines, is left out with the reason. A change is no
    failure: the exit code is 0.
    """
    from edgeconv.reporting.pages import text_of

    difference, shown = call.done(), call.shown
    if shown.as_json:
        echo_json(difference)
    else:
        echo_page(text_of(difference, everything=shown.everything, **terminal()))
