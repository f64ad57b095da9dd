"""`edgeconv doctor`: which preprocessing a model was trained with."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("doctor")
def command(call: Call) -> int:
    """Find out which preprocessing MODEL was trained with, by labelled samples.

    MODEL is a SavedModel, a .keras, .h5 or .hdf5 file, or a .tflite; DATA a SOURCE with labels.
    The plausible scales, means and orders of colours are tried on a few dozen samples, and the
    text for --preprocess is named with which the model is right. Exit code 1 if there is none.
    """
    from edgeconv.reporting.pages import text_of

    diagnosis = call.done()
    if call.shown.as_json:
        echo_json(diagnosis)
    else:
        echo_page(text_of(diagnosis, **terminal()))
    return 0 if diagnosis.ok else 1
