"""`edgeconv embed`: a published model into an app's or firmware's project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_json
from edgeconv.cli.progress import progress
from edgeconv.plugins import EMBED_TARGETS, embed_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

    from edgeconv.embedding.embedding import EmbedResult


def _epilog(formatter: click.HelpFormatter) -> None:
    """The options of every target."""
    formatter.write_paragraph()
    formatter.write_text("The options of each target, for --option NAME=VALUE:")
    for target in EMBED_TARGETS:
        if options := embed_target(target).OPTIONS:
            rows = [(f"{name}=", option.shown) for name, option in options.items()]
            with formatter.section(target):
                formatter.write_dl(rows)


@verb_command(
    "embed",
    epilog=_epilog,
    examples=(
        "edgeconv embed model.tflites/int8.tflite --target c -o firmware/model",
        "edgeconv embed model.tflites/ --recipe int8 --target android -o app/src/main",
        "edgeconv embed int8.tflite --target cmake -o model --data test.npz --labels names.txt",
    ),
    brief="target out recipe symbol data vectors labels option require-check remake",
)
def embed(call: CommandCall) -> None:
    """Write ARTIFACT, as the files that TARGET needs, into a directory of your project.

    ARTIFACT is a .tflite that `edgeconv convert` published, next to its manifest, or the directory
    that it is in; or any other .tflite. The files are the model, accessors with its names, shapes,
    scales and labels, golden vectors and a self-test. Files that are up to date are kept, and files
    that edgeconv did not write are never changed.
    """
    from edgeconv.embedding.embedding import embed_or_keep
    from edgeconv.embedding.plan import noted

    quiet = call.shown.quiet
    with progress(quiet=quiet) as on_progress:
        result = embed_or_keep(call.request, on_progress)
    note = result.request.check_note
    if note and (not quiet or note.startswith("warning")):
        echo(note, err=True)
    if call.shown.as_json:
        echo_json(noted(result.request, result.embedded))
    elif not quiet:
        for line in _lines(result):
            echo(line)


def _lines(result: EmbedResult) -> Iterator[str]:
    embedded = result.embedded
    word = "wrote" if result.is_new else "up to date:"
    yield f"{word} {embedded.name} for {embedded.target} in {result.request.directory}"
    yield from (f"  {file.path}" for file in embedded.files)
    yield from (f"note: {note}" for note in embedded.notes)
    if line := _saving(result):
        yield line


def _saving(result: EmbedResult) -> str:
    """What converting again saved; or the command that would save it."""
    from edgeconv.embedding.micro import saving_notes

    published, chosen = result.request.published, result.request.options
    options = embed_target(result.request.target).OPTIONS
    is_micro = "micro" in options and chosen.get("micro", options["micro"].default) == "yes"
    if result.saving:
        return f"remade: {result.saving}"
    if is_micro and saving_notes(published.artifact, published.model):
        from edgeconv.embedding.remake import remake_command

        return f"next: --remake, or {remake_command(published)}"
    return ""
