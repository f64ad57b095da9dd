"""`edgeconv debug`: which layers lose most when a model is quantized."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("debug")
def command(call: Call) -> None:
    """Show which layers of MODEL lose most when it is quantised, and which rules help.

    MODEL is anything that `convert` takes: a SavedModel, a .keras, .h5 or .hdf5 file, or a float
    .tflite. Each layer is quantised alone and ranked by what it costs at the outputs, beside the
    error of its own output in the whole quantised file. --layer rules for the worst are tried.
    A file that `convert` would refuse for its outputs is debugged all the same.
    """
    from edgeconv.reporting.pages import text_of

    debugged = call.done()
    if call.shown.as_json:
        echo_json(debugged)
    else:
        echo_page(text_of(debugged, top=call.shown.top, **terminal()))
