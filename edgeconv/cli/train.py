"""edgeconv train."""

from __future__ import annotations

from edgeconv.cli.command import Call, verb_command
from edgeconv.cli.printing import echo_json, echo_page, terminal


@verb_command("train")
def command(call: Call) -> None:
    """Train the baseline MODULE, evaluate it and export it as the next version of a SavedModel.

    MODULE is a model of edgeconv (digits_cnn, mnist_cnn, spoken_digits, cifar_mobilenet,
    bert_mlm), a file ending in .py or a module that Python finds; see docs/training.md. Beside
    the SavedModel MODULE/N go the Keras file MODULE/N.keras and the record
    MODULE/N.training.json. A training that was killed goes on from its last checkpoint when
    the same command is run again.
    """
    record = call.done(keep=True)
    if record is None:
        return
    if call.shown.as_json:
        echo_json(record)
        return
    from edgeconv.reporting.pages import text_of

    echo_page(text_of(record, **terminal()))
