"""`edgeconv tune`: the best artifact within a budget of accuracy."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("tune")
def command(call: Call) -> int:
    """Find the smallest or fastest .tflite of MODEL that loses no more than --max-drop.

    MODEL is what `convert` takes. Precisions and methods are tried, for the whole model and layer
    by layer. The artifact is published with its manifest and with NAME.recipe.toml, from which
    `convert --config` makes the same file. What is killed goes on from there when it is run
    again. Exit code 1 if nothing is within the budget on samples that the search never saw.
    """
    from edgeconv.reporting.pages import text_of

    tuning = call.done()
    if call.shown.as_json:
        echo_json(tuning)
    else:
        echo_page(text_of(tuning, **terminal()))
    return 0 if tuning.ok else 1
