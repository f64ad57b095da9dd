"""edgeconv build."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from edgeconv.cli.configured import Configured, origin_of
from edgeconv.cli.options import echo_json, execution_options
from edgeconv.cli.printing import echo
from edgeconv.cli.progress import progress
from edgeconv.cli.values import PLACE, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.building.steps import Step
    from edgeconv.errors import EdgeconvError
    from edgeconv.types import Built


class _Build(Configured):
    """A command whose errors are in the form that IDEs pick up, those of the file too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from edgeconv.errors import EdgeconvError

        try:
            return super().parse_args(ctx, args)
        except EdgeconvError as error:
            if not error.place:
                raise
            _complain(error.place, error)
            ctx.exit(error.exit_code)


@click.command("build", cls=_Build)
@click.option(
    "--model",
    "names",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Build this model of the configuration only. Repeatable. [default: all with [embed]]",
)
@click.option(
    "--depfile",
    type=PLACE,
    metavar="FILE",
    help="Write what the files were made from, as a rule for make and ninja.",
)
@click.option(
    "--depfile-target",
    type=TEXT,
    default="",
    metavar="TARGET",
    help="What the rule is for. [default: the record of the first model's files]",
)
@click.option("--list-outputs", is_flag=True, help="Print every file that was made, a line each.")
@click.option("--watch", is_flag=True, help="Build again whenever something changes, until Ctrl-C.")
@click.option("--verbose", is_flag=True, help="Say what is being done, on stderr.")
@execution_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Convert every model of edgeconv.toml that has an [embed] table, and embed it.

    Quiet where nothing changed, and done at once: nothing is loaded, and only what has another
    time is read. An error is one line, as compilers write it, FILE:LINE: error: what is wrong.
    """
    if options["watch"]:
        _watch(ctx, options)
    depfile = Path(options["depfile"]).absolute() if options["depfile"] else None
    with _complaints(ctx):
        from edgeconv.cli.build_steps import at_home, make_steps

        with at_home(ctx) as chosen, progress(quiet=not options["verbose"]) as on_progress:
            steps = make_steps(chosen, options["names"], options)
            built = [_built(ctx, step, on_progress) for step in steps]
            config = chosen.config.path.absolute()
        if depfile:
            _write_depfile(depfile, options["depfile_target"], built, config)
    _show(built, options)


def _watch(ctx: click.Context, options: dict[str, Any]) -> NoReturn:
    from edgeconv.cli.watching import watch
    from edgeconv.errors import UsageError

    config = origin_of(ctx).config
    if config and ctx.get_parameter_source("watch") == ParameterSource.DEFAULT_MAP:
        # Each build of the watch would watch, and never end.
        with _complaints(ctx):
            raise UsageError(
                "watch of [build] can only be typed, as --watch",
                place=config.origin("build", "watch"),
            )
    with _complaints(ctx):
        watch(ctx, options)


def _built(ctx: click.Context, step: Step, on_progress: Callable[[str], None]) -> Built:
    from edgeconv.building.steps import build

    on_progress(f"building {step.name}")
    with _complaints(ctx, step.name):
        built = build(step, on_progress=on_progress)
    if built.is_new and not ctx.params["quiet"]:
        for note in built.notes:
            level, _, text = note.partition(": ")
            echo(f"{_place(ctx, step.name)}: {level}: {step.name}: {text}", err=True)
    return built


def _place(ctx: click.Context, model: str, line: str = "") -> str:
    """FILE:LINE of a model's table, or of a line; the file as it was named."""
    config = origin_of(ctx).config
    assert config is not None
    return f"{config.path}:{line or config.line('model', model)}"


@contextlib.contextmanager
def _complaints(ctx: click.Context, model: str = "") -> Iterator[None]:
    """An error ends the build with one line that IDEs understand."""
    from edgeconv.errors import EdgeconvError

    try:
        yield
    except EdgeconvError as error:
        if origin_of(ctx).config is None:
            raise
        _, _, line = error.place.rpartition(":")
        # The file may have been read in its own folder; here it is as it was named.
        _complain(_place(ctx, model, line), error, model)
        ctx.exit(error.exit_code)


def _complain(place: str, error: EdgeconvError, model: str = "") -> None:
    """FILE:LINE: error: MESSAGE, and what next as a note."""
    file, _, line = place.rpartition(":")
    message = error.message
    for name in (file, Path(file).name):
        message = message.removeprefix(f"{name}, line {line}: ")
    said = " ".join((*([f"{model}:"] if model else ()), *message.split()))
    echo(f"{place}: error: {said}", err=True)
    if error.hint:
        echo(f"{place}: note: next: {' '.join(error.hint.split())}", err=True)


def _write_depfile(depfile: Path, target: str, built: Sequence[Built], config: Path) -> None:
    from edgeconv.embedding.depfile import make_rule
    from edgeconv.embedding.request import RECORD
    from edgeconv.store import publish_bytes

    inputs = {Path(path) for one in built for path in one.inputs} | {config}
    target = target or str(Path(built[0].directory, RECORD))
    publish_bytes(make_rule(target, sorted(inputs)), depfile)


def _show(built: Sequence[Built], options: dict[str, Any]) -> None:
    if options["as_json"]:
        echo_json(built)
        return
    for one in built:
        if options["list_outputs"]:
            for path in one.outputs:
                echo(path)
        elif one.is_new and not options["quiet"]:
            embedded = one.embedded
            echo(
                f"built {one.name} for {embedded.target} in {one.directory}: "
                f"{len(embedded.files)} files"
            )
