"""`edgeconv embed`: a published model into an app's or firmware's project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.cli.command import Call, verb_command
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
    formatter.write_text("What each target takes with --option NAME=VALUE:")
    for target in EMBED_TARGETS:
        if options := embed_target(target).OPTIONS:
            rows = [(f"{name}=", option.shown) for name, option in options.items()]
            with formatter.section(target):
                formatter.write_dl(rows)


@verb_command("embed", epilog=_epilog)
def command(call: Call) -> None:
    """Write what TARGET needs of ARTIFACT into a directory of your project.

    ARTIFACT is a .tflite that `edgeconv convert` published, with its manifest beside it, or the
    directory that it is in; or any other .tflite, of which only what is in the file is known.
    The model, accessors with its names, shapes, scales and labels, golden
    vectors and a self-test are written; what is up to date is left alone, and no file that
    edgeconv did not write is touched.
    """
    from edgeconv.embedding.embedding import embed_or_keep
    from edgeconv.embedding.plan import noted

    quiet = call.shown.quiet
    with progress(quiet=quiet) as on_progress:
        done = embed_or_keep(call.request, on_progress)
    note = done.request.check_note
    if note and (not quiet or note.startswith("warning")):
        echo(note, err=True)
    if call.shown.as_json:
        echo_json(noted(done.request, done.embedded))
    elif not quiet:
        for line in _lines(done):
            echo(line)


def _lines(done: EmbedResult) -> Iterator[str]:
    embedded = done.embedded
    word = "wrote" if done.is_new else "up to date:"
    yield f"{word} {embedded.name} for {embedded.target} in {done.request.directory}"
    yield from (f"  {file.path}" for file in embedded.files)
    yield from (f"note: {note}" for note in embedded.notes)
    if line := _saving(done):
        yield line


def _saving(done: EmbedResult) -> str:
    """What was saved; or the command that saves, where a note of the target says that one does."""
    from edgeconv.embedding.savings import saving_notes

    published, given = done.request.published, done.request.options
    options = embed_target(done.request.target).OPTIONS
    is_micro = "micro" in options and given.get("micro", options["micro"].default) == "yes"
    if done.saving:
        return f"remade: {done.saving}"
    if is_micro and saving_notes(published.artifact, published.model):
        from edgeconv.embedding.remake import remake_command

        return f"next: --remake, or {remake_command(published)}"
    return ""
