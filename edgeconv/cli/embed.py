"""`edgeconv embed`: a published model into an app's or firmware's project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeconv.cli.configured import Configured
from edgeconv.cli.options import allowance, allowance_options, echo_json, printing_options
from edgeconv.cli.printing import echo
from edgeconv.cli.values import PLACE, SOURCE, TEXT, one_of
from edgeconv.plugins import EMBED_TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.embedding.request import Request
    from edgeconv.types import Embedded


class _Embed(Configured):
    """A command whose help has the options of every target too."""

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        from edgeconv.plugins import embed_target

        formatter.write_paragraph()
        formatter.write_text("What each target takes with --option NAME=VALUE:")
        for target in EMBED_TARGETS:
            if options := embed_target(target).OPTIONS:
                rows = [(f"{name}=", option.shown) for name, option in options.items()]
                with formatter.section(target):
                    formatter.write_dl(rows)


@click.command("embed", cls=_Embed)
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--target",
    type=TEXT,
    required=True,
    metavar="TARGET",
    shell_complete=one_of(EMBED_TARGETS),
    help=", ".join(EMBED_TARGETS) + ".",
)
@click.option(
    "-o", "--out", "directory", required=True, type=click.Path(path_type=Path), help="Where to."
)
@click.option(
    "--recipe",
    type=TEXT,
    default="",
    metavar="RECIPE",
    help="Which one, where ARTIFACT is a directory with several: int8, float16, ….",
)
@click.option(
    "--symbol", type=TEXT, default="", help="How all names begin. [default: the model's name]"
)
@click.option(
    "--signature", type=TEXT, default="", help="The signature to call, if there are several."
)
@click.option(
    "--data",
    type=SOURCE,
    default="",
    metavar="SOURCE",
    help="Samples for the golden vectors of the self-test; see docs/data.md. [default: made up]",
)
@click.option(
    "--vectors", type=click.IntRange(1), default=2, show_default=True, help="How many of them."
)
@click.option(
    "--labels",
    type=PLACE,
    default="",
    metavar="FILE",
    help="The names of the classes, one a line, UTF-8.",
)
@click.option(
    "--option",
    "options",
    type=TEXT,
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the target, see below. Repeatable.",
)
@click.option(
    "--depfile",
    type=click.Path(path_type=Path),
    help="Write what the result depends on, for make and ninja.",
)
@click.option(
    "--depfile-target", type=TEXT, default="", help="What to call the result in the depfile."
)
@click.option(
    "--require-check",
    is_flag=True,
    help="Refuse what `edgeconv check` never judged. What it rejected is refused in any case.",
)
@click.option(
    "--bom",
    is_flag=True,
    help="Write SYMBOL.cdx.json too, a bill of materials (CycloneDX) with a card of the model.",
)
@click.option(
    "--report",
    type=PLACE,
    default="",
    metavar="FILE",
    help="A report.json, for the metrics in it. [default: the one beside ARTIFACT, if it is there]",
)
@click.option(
    "--remake",
    is_flag=True,
    help="For microcontrollers: convert the model again first, from its manifest, with a batch of "
    "1 and integer inputs and outputs, embed that, and say what it saves.",
)
@allowance_options(600.0)
@printing_options
@click.pass_context
def command(ctx: click.Context, /, directory: Path, **options: Any) -> None:
    """Write what TARGET needs of ARTIFACT into a directory of your project.

    ARTIFACT is a .tflite that `edgeconv convert` published, with its manifest beside it, or the
    directory that it is in; or any other .tflite, of which only what is in the file is known.
    The model, accessors with its names, shapes, scales and labels, golden
    vectors and a self-test are written; what is up to date is left alone, and no file that
    edgeconv did not write is touched.
    """
    from edgeconv.cli.progress import progress
    from edgeconv.embedding.embedding import perform
    from edgeconv.embedding.request import embedded_already, noted

    saving = ""
    with progress(quiet=options["quiet"]) as on_progress:
        request = request_of(ctx)
        if options["remake"]:
            ctx.params["artifact"], saving = _remade(request, on_progress)
            request = request_of(ctx)
        if request.check_note and (
            not options["quiet"] or request.check_note.startswith("warning")
        ):
            echo(request.check_note, err=True)
        embedded = embedded_already(request)
        is_new = embedded is None
        embedded = embedded or perform(
            request, allow_code=True, allowance=allowance(options), on_progress=on_progress
        )
    if options["depfile"]:
        _write_depfile(request, options["depfile"], options["depfile_target"])
    if options["as_json"]:
        echo_json(noted(request, embedded))
    elif not options["quiet"]:
        _show(embedded, directory, is_new=is_new)
        _show_saving(request, saving)


def request_of(ctx: click.Context) -> Request:
    """What a context of the command asks for, checked. Raises an `EdgeconvError`."""
    from edgeconv.embedding.published import published_file
    from edgeconv.embedding.request import make_request

    options = ctx.params
    return make_request(
        published_file(options["artifact"], options["recipe"]),
        options["target"],
        options["directory"],
        symbol=options["symbol"],
        signature=options["signature"],
        data=options["data"],
        labels=options["labels"],
        vectors=options["vectors"],
        options=_named_values(options["options"]),
        # A SOURCE typed on the command line may run the code that it names; one of a
        # configuration came this far only where that was allowed.
        allow_code=True,
        require_check=options["require_check"],
        allowance=allowance(options),
        bom=options["bom"],
        report=options["report"],
    )


def _remade(request: Request, on_progress: Callable[[str], None]) -> tuple[Path, str]:
    """The model to embed instead, and what it saves. Raises an `EdgeconvError`."""
    from edgeconv.cli.remaking import remake
    from edgeconv.errors import UsageError
    from edgeconv.plugins import embed_target

    if "micro" not in embed_target(request.target).OPTIONS:
        raise UsageError(
            f"--remake is for microcontrollers, and {request.target} is not for these",
            hint="convert with --batch 1, or --io int8, yourself",
        )
    return remake(request.published, on_progress)


def _named_values(texts: tuple[str, ...]) -> dict[str, str]:
    """The target's options. Raises `UsageError` for one without a value, or given twice."""
    from edgeconv.errors import UsageError

    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text}: not of the form NAME=VALUE")
        if name in given:
            raise UsageError(f"--option {name} is given twice")
        given[name] = value
    return given


def _write_depfile(request: Request, depfile: Path, result: str) -> None:
    from edgeconv.embedding.depfile import dependencies, make_rule
    from edgeconv.store import publish_bytes

    target = result or str((request.directory / "edgeconv-embedded.json").absolute())
    publish_bytes(make_rule(target, dependencies(request)), depfile)


def _show_saving(request: Request, saving: str) -> None:
    """What was saved; or the command that saves, where a note of the target says that one does."""
    from edgeconv.embedding.savings import saving_notes
    from edgeconv.plugins import embed_target

    published = request.published
    options = embed_target(request.target).OPTIONS
    is_micro = (
        "micro" in options and request.options.get("micro", options["micro"].default) == "yes"
    )
    if saving:
        echo(f"remade: {saving}")
    elif is_micro and saving_notes(published.artifact, published.model):
        from edgeconv.cli.remaking import remake_command

        echo(f"next: --remake, or {remake_command(published)}")


def _show(embedded: Embedded, directory: Path, *, is_new: bool) -> None:
    word = "wrote" if is_new else "up to date:"
    echo(f"{word} {embedded.name} for {embedded.target} in {directory}")
    for file in embedded.files:
        echo(f"  {file.path}")
    for note in embedded.notes:
        echo(f"note: {note}")
