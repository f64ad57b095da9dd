"""edgeconv convert."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_failed, echo_json, echo_page, terminal


@verb_command("convert")
def command(call: Call) -> int:
    """Convert MODEL to .tflite files, each verified before it is published.

    MODEL is a SavedModel directory (or its versioned parent), a .keras or .h5 file, or a
    float .tflite; qat needs the layers, so a Keras file or a SavedModel that tf_keras saved.
    Beside each .tflite goes a JSON manifest of all that is known of it. What is up to date
    already is left alone.
    """
    conversion = call.done()
    if call.shown.as_json:
        echo_json(conversion)
    else:
        from edgeconv.reporting.pages import text_of

        echo_page(text_of(conversion, **terminal()))
        for failure in conversion.failures:
            echo_failed(failure)
    return 4 if conversion.failures else 0
