"""edgeconv sweep."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_json, echo_page, terminal


@verb_command(
    "sweep",
    examples=(
        "edgeconv sweep sweep.toml",
        "edgeconv sweep sweep.toml --jobs 4 --retry-failed",
        "edgeconv sweep sweep.toml --status",
    ),
)
def command(call: CommandCall) -> int:
    """Convert and measure all combinations of models, recipes, runtimes and data sets in FILE.

    Each combination is a cell, which runs once: a later run does only what is missing, for
    example after a change of a model, a data set or an option. A cell that fails is in the report
    with its reason, and does not end the sweep. Exit code 4 if a cell failed; `edgeconv check` on
    sweep.json holds all cells to the budget of FILE.
    """
    from edgeconv.cli.progress import progress
    from edgeconv.reporting.pages import text_of
    from edgeconv.reporting.sweeps.files import CSV_NAME, HTML_NAME, JSON_NAME

    of_config = call.of_config
    request = replace(call.request, allow=of_config["allow"], any_code=of_config["any_code"])
    with progress(quiet=call.shown.quiet) as on_progress:
        sweep = call.verb(request, on_progress=on_progress)
    if call.shown.as_json:
        echo_json(sweep)
    else:
        echo_page(text_of(sweep, **terminal()))
        for name in () if request.status else (HTML_NAME, JSON_NAME, CSV_NAME):
            echo(f"report: {Path(sweep.directory) / name}")
    return 4 if sweep.count("failed") else 0
