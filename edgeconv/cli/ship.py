"""`edgeconv embed` and `edgeconv build`: a published model into a project."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_json, progress
from edgeconv.plugins import EMBED_TARGETS, embed_target
from edgeconv.requests.config.chosen import NoConfig
from edgeconv.types.errors import EdgeconvError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edgeconv.embedding.embedding import EmbedResult
    from edgeconv.requests.check import BuildRequest
    from edgeconv.types import Built


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
        "edgeconv embed model.tflites/model.int8.tflite --target c -o firmware/model",
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
    from edgeconv.reporting.pages import text_of

    embedded = result.embedded
    word = "wrote" if result.is_new else "up to date:"
    heading = f"{word} {embedded.name} for {embedded.target} in {result.request.directory}"
    yield from text_of(embedded, heading=heading).splitlines()
    if line := _saving(result):
        yield line


def _saving(result: EmbedResult) -> str:
    """What converting again saved; or the command that would save it."""
    from edgeconv.embedding.micro import options_that_save, saving_notes

    published, chosen = result.request.published, result.request.options
    options = embed_target(result.request.target).OPTIONS
    is_micro = "micro" in options and chosen.get("micro", options["micro"].default) == "yes"
    if result.saving:
        return f"remade: {result.saving}"
    can_save = is_micro and options_that_save(published.artifact, published.model)
    if can_save and saving_notes(published.artifact, published.model):
        from edgeconv.embedding.remake import remake_command

        return f"next: --remake, or {remake_command(published)}"
    return ""


POLL_SECONDS = 0.3
# Without the current directory, whose modules -m and -c would import.
_BUILD = "import sys; sys.path[:] = filter(None, sys.path); import edgeconv.cli as c; c.main()"
_OWN = frozenset({"--watch", "--json", "--list-outputs"})


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
        location = error.location
        if call is not None and call.config is not None:
            # The file is read by its absolute path; here it is as it was named.
            line = location.rpartition(":")[2] or str(call.config.line("model", model))
            location = f"{call.config.path}:{line}"
        _complain(location, error, model)
        raise click.exceptions.Exit(error.exit_code) from error


@verb_command("build", around=complaints)
def build(call: CommandCall) -> None:
    """Convert every model of edgeconv.toml that has an [embed] table, and embed it.

    If nothing changed, it prints nothing and ends at once: only files with a new time are read. An
    error is one line in the form that compilers use, FILE:LINE: error: what is wrong.
    """
    from edgeconv.embedding.build import build_step, finish, make_steps

    request, shown = replace(call.request, **call.of_config), call.shown
    if shown.watch:
        _watch(call, request)
    with complaints(call), progress(quiet=not shown.verbose) as on_progress:
        results = []
        for step in make_steps(request):
            with complaints(call, step.name):
                results.append(build_step(step, on_progress))
            _print_notes(call, results[-1])
        finish(request, results)
    _show(results, call)


def _watch(call: CommandCall, request: BuildRequest) -> None:
    with complaints(call):
        if call.config is None:
            raise NoConfig
        if "--watch" not in call.typed:
            # Each build of the watch would watch, and never end.
            raise UsageError(
                "watch of [build] can only be typed, as --watch",
                location=call.config.origin("build", "watch"),
            )
        watch(request, call.config.path, call.typed)


def _print_notes(call: CommandCall, result: Built) -> None:
    if result.is_new and not call.shown.quiet:
        assert call.config is not None
        location = f"{call.config.path}:{call.config.line('model', result.name)}"
        for note in result.notes:
            level, _, text = note.partition(": ")
            echo(f"{location}: {level}: {result.name}: {text}", err=True)


def _complain(location: str, error: EdgeconvError, model: str = "") -> None:
    """FILE:LINE: error: MESSAGE, and what next as a note."""
    file, _, line = location.rpartition(":")
    # The file is read by its absolute path, and printed as it was named.
    message = error.message.replace(str(Path(file).absolute()), file)
    message = message.removeprefix(f"{file}, line {line}: ")
    words = " ".join((*([f"{model}:"] if model else ()), *message.split()))
    echo(f"{location}: error: {words}", err=True)
    if error.hint:
        echo(f"{location}: note: next: {' '.join(error.hint.split())}", err=True)


def _show(built: Sequence[Built], call: CommandCall) -> None:
    if call.shown.as_json:
        echo_json(built)
        return
    for result in built:
        if call.shown.list_outputs:
            for path in result.outputs:
                echo(path)
        elif result.is_new and not call.shown.quiet:
            # Not before: a build in which nothing changed loads little.
            from edgeconv.reporting.pages import text_of

            echo(text_of(replace(result, notes=())))


# --watch


def watch(request: BuildRequest, config: Path, typed: Sequence[str]) -> NoReturn:
    """Build, and again after every change, until it is interrupted.

    Each build is a process, which reads the current configuration. Its inputs are polled, which
    works on every file system.
    """
    words = [word for word in typed if word not in _OWN]
    command = [sys.executable, "-c", _BUILD, "build", *words, "--json"]
    while True:
        # Before the build: what changes while it runs is built again.
        before = _times({config.absolute(), *_inputs(request)})
        _run(command)
        while _times(before) == before:
            time.sleep(POLL_SECONDS)


def _inputs(request: BuildRequest) -> set[Path]:
    """The current inputs of the configuration; none where it has an error."""
    from edgeconv.embedding.build import make_steps

    try:
        return {path for step in make_steps(request) for path in step.inputs.files()}
    except (EdgeconvError, OSError):
        return set()


def _run(command: list[str]) -> None:
    """Build, and print the results. Errors go to stderr as they come."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            # It ends its own children.
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        echo("waiting for a change", err=True)
        return
    for result in json.loads(output):
        if result["is_new"]:
            echo(f"built {result['name']} in {result['directory']}")


def _times(paths: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """The times of the last change of each file, None for one that is missing."""
    times: dict[Path, tuple[int, int] | None] = {}
    for path in paths:
        try:
            state = path.stat()
            times[path] = (state.st_mtime_ns, state.st_ctime_ns)
        except OSError:
            times[path] = None
    return times
