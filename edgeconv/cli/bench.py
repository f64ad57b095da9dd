"""edgeconv bench."""

from __future__ import annotations

from pathlib import Path

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo, echo_json, echo_page, terminal


@verb_command("bench")
def command(call: Call) -> int:
    """Measure MODELS beside the trained baseline.

    MODELS are .tflite files, or directories that `edgeconv convert` published in. Every
    model runs in fresh processes of its own, in rounds in which all take turns; size,
    latency with its raw samples, peak memory and accuracy go into the report. Exit code 4
    if a model did not run.
    """
    report = call.done()
    if call.shown.as_json:
        echo_json(report)
    else:
        from edgeconv.reporting.pages import text_of

        echo_page(text_of(report, **terminal()))
        if call.request.directory is not None:
            for name in ("report.json", "report.html"):
                echo(f"report: {Path(call.request.directory).absolute() / name}")
    return 4 if any(row.error for row in report.measurements) else 0
