"""edgeconv demo."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo, echo_failed, echo_json, echo_page, terminal


@verb_command("demo")
def command(call: Call) -> int:
    """Run the whole job on a small model, without any download.

    Trains a CNN on scikit-learn's handwritten digits under MirroredStrategy with two
    logical CPU devices, converts it by every recipe, measures each artifact beside the
    trained baseline, and holds them to a small budget. Ends with exit code 1 where a limit
    is broken.
    """
    done = call.done()
    report = done.report
    if call.shown.as_json:
        echo_json(report)
    else:
        from edgeconv.reporting.pages import text_of

        echo_page(text_of(report, **terminal()))
        if report.verdict is not None:
            echo_page(text_of(report.verdict, below_table=True, **terminal()))
        echo(f"report: {done.report_html}")
        echo(f"        {done.report_json}")
    for failure in done.conversion.failures:
        echo_failed(failure)
    if done.conversion.failures:
        return 4
    return 0 if report.verdict is not None and report.verdict.ok else 1
