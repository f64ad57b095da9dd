"""`edgeconv inspect`: what is in a model file, without running it."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("inspect")
def command(call: Call) -> None:
    """Show what is in MODEL: its signatures, operators or layers, and weights.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras, .h5 or
    .hdf5 file, or a .tflite file. Nothing in it is run.
    """
    inspection = call.done()
    if call.shown.as_json:
        echo_json(inspection)
    else:
        from edgeconv.reporting.inspected import inspection_page
        from edgeconv.reporting.layout import to_text

        echo_page(to_text(inspection_page(inspection), **terminal()))
