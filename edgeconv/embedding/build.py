"""The verb `build`: the models of a configuration, converted and embedded where stale.

A step is one model and what it is embedded in; a stamp says what its files were made from.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from edgeconv.conversion.convert import convert
from edgeconv.conversion.plan import REVISION
from edgeconv.data.location import NO_FILES, roots_of
from edgeconv.embedding.embedding import make_rule, perform, with_content
from edgeconv.embedding.plan import RECORD, embedded_already, is_torn, plan_embed
from edgeconv.reporting.files import require_passed, verdict_file
from edgeconv.requests.check import BuildRequest
from edgeconv.requests.config.chosen import Chosen, NoConfig, settled
from edgeconv.requests.config.file import ModelTable
from edgeconv.requests.config.lock import FILE_NAME, accepted_hashes
from edgeconv.requests.config.reach import find_config
from edgeconv.requests.config.tables import read_config
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.embed import EmbedRequest
from edgeconv.requests.texts import path_within
from edgeconv.system.store import (
    cache_directory,
    hash_of,
    locked,
    publish_bytes,
    publish_sealed,
    read_sealed,
    refuse_inputs,
    sha256_file,
    tool_versions,
    writable_directory,
)
from edgeconv.system.store.notes import CLOCK_STEP_NS
from edgeconv.types import Artifact, Built, Conversion, DataSource, Embedded, FileState, Stamp
from edgeconv.types.decoding import ready
from edgeconv.types.errors import EdgeconvError, OutputRefused, ToolFailed, UsageError


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """What a build does for one model.

    `converting` publishes the artifacts, and `embedding` embeds that of its recipe ("" for the
    only one). `inputs` are the files that both read. `config` is the configuration; it is not an
    input, because the requests have all of it that matters. `location` is the line of the model,
    `table` that of its [embed]. `accepted` are the hashes of the model's files in the lock, None
    where it is not locked; any other file of a locked model must be checked, as with
    `require_check`.
    """

    name: str
    config: Path
    converting: ConvertRequest
    embedding: EmbedRequest
    inputs: Inputs
    location: str = ""
    table: str = ""
    accepted: Collection[str] | None = None

    @property
    def directory(self) -> Path:
        """Where the model is embedded."""
        return Path(self.embedding.directory)

    @property
    def key(self) -> str:
        """The hash of the requests, their paths, and the versions of the tools."""
        convert, embed = self.converting, self.embedding
        paths = [*map(str, self.inputs.roots), convert.directory, embed.directory]
        return hash_of(
            "build", REVISION, convert.key(), embed.key(), embed.recipe, paths, tool_versions()
        )

    @property
    def stamp_file(self) -> Path:
        """The path of the stamp."""
        return stamp_file(str(self.config.resolve()), self.name)


def do_step(step: BuildStep, *, on_progress: Callable[[str], None] = lambda _: None) -> Built:
    """Do the step if anything that it depends on changed.

    Of concurrent builds, one does the step and the others wait for it. Raises an `EdgeconvError`
    where it cannot be done; earlier outputs are then unchanged.
    """
    built = _up_to_date(step)
    if built is not None:
        return built
    with _turn(step, on_progress):
        return _up_to_date(step) or _do(step, on_progress)


def _up_to_date(step: BuildStep) -> Built | None:
    """The earlier result of the step, None if anything changed."""
    stamp = read_fresh(step.stamp_file, step.key)
    if stamp is None or is_torn(step.directory):
        return None
    model = next(state for state in stamp.published if state.path.endswith(".tflite"))
    notes = _check_notes(step, Path(model.path), model.sha256)
    return _result(
        step,
        stamp.embedded,
        [*(state.path for state in stamp.inputs), *_verdict(Path(model.path))],
        (state.path for state in stamp.outputs),
        is_new=False,
        notes=notes,
    )


def _verdict(model: Path) -> list[str]:
    """The verdict of a file, if any: another one is a reason to build again."""
    path = verdict_file(model.absolute())
    return [str(path)] if path.is_file() else []


def _check_notes(step: BuildStep, model: Path, sha256: str) -> tuple[str, ...]:
    is_unknown = step.accepted is not None and sha256 not in step.accepted
    is_required = step.embedding.require_check or is_unknown
    note = require_passed(model, sha256, is_required=is_required)
    return (note,) if note else ()


def _do(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    began_ns = time.time_ns()
    conversion = convert(step.converting)
    artifact = _choose(step, conversion)
    model = Path(conversion.directory) / artifact.file
    notes = (*conversion.notes, *_check_notes(step, model, artifact.sha256))
    embedding = msgspec.structs.replace(step.embedding, artifact=str(model))
    try:
        request = plan_embed(embedding)
    except EdgeconvError as error:
        error.location = error.location or step.table
        raise
    already = embedded_already(request)
    # A SOURCE that runs code was refused before, unless the user allowed it.
    embedded = already or perform(
        request, allow_code=True, allowance=embedding.allowance, on_progress=on_progress
    )
    directory = request.directory.absolute()
    outputs = [directory / RECORD, *(directory / file.path for file in embedded.files)]
    inputs = step.inputs.files()
    if step.inputs.are_all:
        write_stamp(
            step.stamp_file,
            step.key,
            inputs=inputs,
            published=(request.published.model.absolute(), request.published.manifest.absolute()),
            outputs=outputs,
            embedded=embedded,
            began_ns=began_ns,
        )
    return _result(
        step,
        embedded,
        [*map(str, inputs), *_verdict(model)],
        map(str, sorted(outputs)),
        is_new=already is None,
        notes=notes,
    )


@contextlib.contextmanager
def _turn(step: BuildStep, on_progress: Callable[[str], None]) -> Iterator[None]:
    """Wait for other builds of the step.

    Where no lock can be written, builds run at once: what they publish has its own locks.
    """
    stamp = step.stamp_file
    waiting = f"waiting for another build of {step.name}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OutputRefused):
            writable_directory(stamp.parent)
            lock = locked(stamp.with_suffix(".lock"), on_wait=lambda: on_progress(waiting))
            stack.enter_context(lock)
        yield


def _choose(step: BuildStep, conversion: Conversion) -> Artifact:
    """The artifact to embed. Raises `ToolFailed` where it failed, `UsageError` for several."""
    for failure in conversion.failures:
        if step.embedding.recipe in ("", failure.recipe):
            raise ToolFailed(f"{failure.recipe}: {failure.message}", hint=failure.hint)
    recipe = step.embedding.recipe
    fitting = [a for a in conversion.artifacts if recipe in ("", a.recipe.name)]
    if len(fitting) == 1:
        return fitting[0]
    recipes = ", ".join(artifact.recipe.name for artifact in conversion.artifacts)
    if not fitting:
        raise UsageError(
            f"not converted to {recipe}, which is to be embedded",
            hint=f"`to` of [convert] has {recipes}",
        )
    raise UsageError(
        f"converted to {recipes}, of which only one can be embedded",
        hint='name it: recipe = "int8" in [embed]',
    )


def _result(
    step: BuildStep,
    embedded: Embedded,
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    is_new: bool,
    notes: tuple[str, ...],
) -> Built:
    return Built(
        name=step.name,
        is_new=is_new,
        directory=str(step.directory.absolute()),
        embedded=embedded,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        notes=notes,
    )


# The input files of a build step, as its configuration names them.
#
# The manifest may name those of another checkout, because the cache is shared.


class Inputs(NamedTuple):
    """Absolute files, globs and directories, which may be missing.

    `are_all`: with the options and tools, they determine the result of the step.
    """

    roots: tuple[Path, ...]
    are_all: bool

    def files(self) -> tuple[Path, ...]:
        """The files and directories at and below the roots, sorted."""
        return tuple(sorted({file for root in self.roots for file in with_content(root)}))


def inputs(paths: Iterable[Path], sources: Iterable[DataSource]) -> Inputs:
    """The paths, and those that the SOURCEs read. A wrong SOURCE is refused when it is read."""
    chosen = tuple(sources)
    roots = [*paths, *(root for source in chosen for root in roots_of(source))]
    are_all = not any(source.kind in NO_FILES for source in chosen)
    return Inputs(roots=tuple(dict.fromkeys(map(Path.absolute, roots))), are_all=are_all)


# Stamps of build steps, which show what changed since, mostly without reading files.

BUILDS = "builds"


def stamp_file(*identity: str) -> Path:
    """The path of the stamp of a step in the cache, by what identifies it on this machine."""
    return cache_directory() / BUILDS / f"{hash_of(*identity)}.json"


def read_fresh(path: Path, key: str) -> Stamp | None:
    """The stamp, if it has this key and every file is unchanged; else None.

    A file with the same size and times is not read. Where only the times differ, as after a
    checkout, it is read, and the stamp is updated.
    """
    try:
        stamp = msgspec.json.decode(read_sealed(path, path.name) or b"", type=ready(Stamp))
    except (msgspec.DecodeError, RecursionError):
        return None
    if stamp.key != key:
        return None
    current = [_current_states(states) for states in (stamp.inputs, stamp.published, stamp.outputs)]
    if None in current:
        return None
    inputs, published, outputs = (states or () for states in current)
    renewed = msgspec.structs.replace(stamp, inputs=inputs, published=published, outputs=outputs)
    if renewed != stamp:
        _write(renewed, path)
    return renewed


def write_stamp(
    path: Path,
    key: str,
    *,
    inputs: Iterable[Path],
    published: Iterable[Path],
    outputs: Iterable[Path],
    embedded: Embedded,
    began_ns: int,
) -> None:
    """Write the stamp of a finished step that began at `began_ns` (Unix time).

    No stamp is written if an input changed since then, or if the cache cannot be written.
    """
    try:
        stamp = Stamp(
            key=key,
            inputs=_states(inputs),
            published=_states(published),
            outputs=_states(outputs),
            embedded=embedded,
        )
    except OSError:
        return
    if all(state.ctime_ns < began_ns - CLOCK_STEP_NS for state in stamp.inputs):
        _write(stamp, path)


def _write(stamp: Stamp, path: Path) -> None:
    with contextlib.suppress(OutputRefused):
        writable_directory(path.parent)
        publish_sealed(msgspec.json.encode(stamp), path, path.name)


def _current_states(states: Iterable[FileState]) -> tuple[FileState, ...] | None:
    """The states with the current times; None where any content changed."""
    current = []
    for state in states:
        now = _current_state(state)
        if now is None:
            return None
        current.append(now)
    return tuple(current)


def _current_state(state: FileState) -> FileState | None:
    path = Path(state.path)
    try:
        status = path.stat()
        size = 0 if path.is_dir() else status.st_size
        if size != state.size_bytes:
            return None
        if (status.st_mtime_ns, status.st_ctime_ns) == (state.mtime_ns, state.ctime_ns):
            return state
        now = _state(path)
    except OSError:
        return None
    return now if now.sha256 == state.sha256 else None


def _states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    return tuple(_state(path) for path in sorted(paths))


def _state(path: Path) -> FileState:
    # The times first: a file that changes while it is read gets later ones.
    status = path.stat()
    is_directory = path.is_dir()
    return FileState(
        path=str(path),
        size_bytes=0 if is_directory else status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        sha256=_names_hash(path) if is_directory else sha256_file(path),
    )


def _names_hash(directory: Path) -> str:
    # Names of files are not always UTF-8.
    return hash_of(*sorted(ascii(path.name) for path in directory.iterdir()))


EMBED, CONVERT = "embed", "convert"


def build(
    request: BuildRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[Built, ...]:
    """Convert and embed each model of the request where anything changed.

    Raises an `EdgeconvError`, whose `location` is a line of the configuration, for the first model
    that cannot be built.
    """
    request = settled(request, "build")
    steps = make_steps(request)
    return finish(request, [build_step(step, on_progress) for step in steps])


def build_step(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    """Do a step. Raises an `EdgeconvError` with the line of the model."""
    on_progress(f"building {step.name}")
    try:
        return do_step(step, on_progress=on_progress)
    except EdgeconvError as error:
        error.location = error.location or step.location
        raise


def finish(request: BuildRequest, built: Sequence[Built]) -> tuple[Built, ...]:
    """The models that were built; writes the depfile of the request."""
    if request.depfile:
        config = str(_config(request))
        inputs = {Path(path) for model in built for path in (*model.inputs, config)}
        target = request.depfile_target or str(Path(built[0].directory, RECORD))
        publish_bytes(make_rule(target, sorted(inputs)), Path(request.depfile).absolute())
    return tuple(built)


def make_steps(request: BuildRequest) -> list[BuildStep]:
    """A step for each named model, by default for all with [embed].

    All paths are absolute, so the keys do not depend on the working directory. Raises
    `UsageError`, with the line, for a model that cannot be built, and for two models in one
    directory.
    """
    chosen = Chosen(request, read_config(_config(request)))
    models = _models_to_embed(chosen, request.names)
    _refuse_shared(chosen)
    steps = [_step(chosen, model) for model in models]
    if request.depfile:
        refuse_inputs([Path(request.depfile)])
    for step in steps:
        _refuse_inside(chosen, step)
    return steps


def _config(request: BuildRequest) -> Path:
    file = Path(request.config) if request.config is not None else find_config(Path())
    if file is None:
        raise NoConfig()
    # Not resolved: the keys do not depend on where a link leads.
    return Path(os.path.abspath(file))  # noqa: PTH100


def _models_to_embed(chosen: Chosen, names: Sequence[str]) -> list[ModelTable]:
    models = chosen.models(names)
    without = [model.name for model in models if not model.tables.get(EMBED)]
    if names and without:
        raise _no_table(chosen, without[0], f"{without[0]} has no [embed] table")
    if len(without) == len(models):
        raise _no_table(chosen, models[0].name, "no model has an [embed] table")
    return [model for model in models if model.name not in without]


def _no_table(chosen: Chosen, name: str, message: str) -> UsageError:
    return UsageError(
        f"{message}, so there is nothing to build",
        hint=f'add [model.{name}.embed] with target = "android" and out = "app"',
        location=chosen.config.origin("model", name),
    )


def _refuse_shared(chosen: Chosen) -> None:
    """Raise `UsageError` for two models that are written into one directory."""
    for verb in (EMBED, CONVERT):
        taken: dict[str, str] = {}
        for model in chosen.config.models.values():
            directory = _own_directory(chosen, model, verb)
            if not directory or not model.tables.get(EMBED):
                continue
            other = taken.setdefault(directory, model.name)
            if other != model.name:
                raise UsageError(
                    f"models {other} and {model.name} have the same `out` of [{verb}], {directory}",
                    hint="give each model its own directory",
                    location=chosen.config.origin("model", model.name, verb, "out"),
                )


def _own_directory(chosen: Chosen, model: ModelTable, verb: str) -> str:
    """Where a verb writes for a model; "" where the model's table does not name it."""
    config = chosen.config
    out = model.tables.get(verb, {}).get("out")
    # A general `out` gets a folder for each model.
    is_own = config.key(verb, "out", model=model.name)[0] == "model"
    if not is_own or not isinstance(out, str) or "\0" in out:
        return ""
    return os.path.realpath(path_within(out, config.folder))


def _refuse_inside(chosen: Chosen, step: BuildStep) -> None:
    """Raise `UsageError` for outputs inside an input, which would never be up to date."""
    for path in step.inputs.roots:
        if path == step.directory or path in step.directory.parents:
            raise UsageError(
                f"{step.name} would be embedded in {step.directory}, inside its input {path}",
                hint="choose another `out`",
                location=chosen.config.origin("model", step.name, EMBED, "out"),
            )


def _step(chosen: Chosen, model: ModelTable) -> BuildStep:
    table = chosen.config.origin("model", model.name, EMBED)
    converting = chosen.converting(model)
    directory = chosen.directory(model, EMBED)
    fields = {"artifact": model.source, **({"out": str(directory)} if directory else {})}
    embedding = chosen.request(EmbedRequest, EMBED, model, fields)
    if embedding.remake:
        raise UsageError(
            "remake of [embed] is for `edgeconv embed`; a build always converts",
            hint='set it in [convert]: io = "int8" and batch = 1',
            location=table,
        )
    return BuildStep(
        name=model.name,
        config=chosen.config.path,
        converting=converting,
        embedding=embedding,
        inputs=_inputs(converting, embedding),
        location=chosen.config.origin("model", model.name),
        table=table,
        accepted=_accepted_hashes(chosen, model),
    )


def _accepted_hashes(chosen: Chosen, model: ModelTable) -> frozenset[str] | None:
    name = model.tables.get("check", {}).get("lock")
    folder = chosen.config.folder
    path = Path(path_within(name, folder)) if isinstance(name, str) else folder / FILE_NAME
    return accepted_hashes(chosen.within_project(path, "the lock"), model.name)


def _inputs(converting: ConvertRequest, embedding: EmbedRequest) -> Inputs:
    """The files that the requests read; the artifact is an intermediate file."""
    reads = [converting.inputs(), replace(embedding, artifact="").inputs()]
    return inputs(
        [path for each in reads for path in each.paths],
        [source for each in reads for source in each.sources],
    )
