"""edgeconv build."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_json
from edgeconv.cli.progress import progress
from edgeconv.config.chosen import NoConfig
from edgeconv.errors import EdgeconvError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.requests.check import BuildRequest
    from edgeconv.types import Built


@contextlib.contextmanager
def complaints(call: CommandCall | None, model: str = "") -> Iterator[None]:
    """An error ends the build with one line that IDEs understand."""
    try:
        yield
    except EdgeconvError as error:
        if call is None and not error.location:
            raise
        if call is not None and call.config is None:
            raise
        place = error.location
        if call is not None and call.config is not None:
            # The file is read by its absolute path; here it is as it was named.
            line = place.rpartition(":")[2] or str(call.config.line("model", model))
            place = f"{call.config.path}:{line}"
        _complain(place, error, model)
        raise click.exceptions.Exit(error.exit_code) from error


@verb_command("build", around=complaints)
def command(call: CommandCall) -> None:
    """Convert every model of edgeconv.toml that has an [embed] table, and embed it.

    Quiet where nothing changed, and done at once: nothing is loaded, and only what has another
    time is read. An error is one line, as compilers write it, FILE:LINE: error: what is wrong.
    """
    from edgeconv.building.build import build_step, finish, make_steps

    asked, shown = replace(call.request, **call.of_config), call.shown
    if shown.watch:
        _watch(call, asked)
    with complaints(call), progress(quiet=not shown.verbose) as on_progress:
        done = []
        for step in make_steps(asked):
            with complaints(call, step.name):
                done.append(build_step(step, on_progress))
            _tell(call, done[-1])
        finish(asked, done)
    _show(done, call)


def _watch(call: CommandCall, asked: BuildRequest) -> None:
    from edgeconv.cli.watching import watch

    with complaints(call):
        if call.config is None:
            raise NoConfig
        if "--watch" not in call.typed:
            # Each build of the watch would watch, and never end.
            raise UsageError(
                "watch of [build] can only be typed, as --watch",
                location=call.config.origin("build", "watch"),
            )
        watch(asked, call.config.path, call.typed)


def _tell(call: CommandCall, done: Built) -> None:
    if done.is_new and not call.shown.quiet:
        assert call.config is not None
        place = f"{call.config.path}:{call.config.line('model', done.name)}"
        for note in done.notes:
            level, _, text = note.partition(": ")
            echo(f"{place}: {level}: {done.name}: {text}", err=True)


def _complain(place: str, error: EdgeconvError, model: str = "") -> None:
    """FILE:LINE: error: MESSAGE, and what next as a note."""
    file, _, line = place.rpartition(":")
    # It is read by its absolute path, and said as it was named.
    message = error.message.replace(str(Path(file).absolute()), file)
    message = message.removeprefix(f"{file}, line {line}: ")
    words = " ".join((*([f"{model}:"] if model else ()), *message.split()))
    echo(f"{place}: error: {words}", err=True)
    if error.hint:
        echo(f"{place}: note: next: {' '.join(error.hint.split())}", err=True)


def _show(built: Sequence[Built], call: CommandCall) -> None:
    if call.shown.as_json:
        echo_json(built)
        return
    for one in built:
        if call.shown.list_outputs:
            for path in one.outputs:
                echo(path)
        elif one.is_new and not call.shown.quiet:
            embedded = one.embedded
            echo(
                f"built {one.name} for {embedded.target} in {one.directory}: "
                f"{len(embedded.files)} files"
            )
