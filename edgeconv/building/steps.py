"""One model of a build: converted and embedded, unless nothing changed."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.building.stamp import read_fresh, stamp_file, write_stamp
from edgeconv.conversion.convert import convert
from edgeconv.conversion.plan import REVISION
from edgeconv.embedding.embedding import perform
from edgeconv.embedding.plan import RECORD, embedded_already, is_torn, plan_embed
from edgeconv.errors import EdgeconvError, OutputRefused, ToolFailed, UsageError
from edgeconv.reporting.last_check import require_passed, verdict_file
from edgeconv.store import hash_of, locked, tool_versions, writable_directory
from edgeconv.types import Built

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from edgeconv.building.inputs import Inputs
    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.requests.embed import EmbedRequest
    from edgeconv.types import Artifact, Conversion, Embedded


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
    note = _check_note(step, Path(model.path), model.sha256)
    return _result(
        step,
        stamp.embedded,
        [*(state.path for state in stamp.inputs), *_verdict(Path(model.path))],
        (state.path for state in stamp.outputs),
        is_new=False,
        note=note,
    )


def _verdict(model: Path) -> list[str]:
    """The verdict of a file, if any: another one is a reason to build again."""
    path = verdict_file(model.absolute())
    return [str(path)] if path.is_file() else []


def _check_note(step: BuildStep, model: Path, sha256: str) -> str:
    is_unknown = step.accepted is not None and sha256 not in step.accepted
    is_required = step.embedding.require_check or is_unknown
    return require_passed(model, sha256, is_required=is_required)


def _do(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    began_ns = time.time_ns()
    conversion = convert(step.converting)
    artifact = _choose(step, conversion)
    model = Path(conversion.directory) / artifact.file
    note = _check_note(step, model, artifact.sha256)
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
        note=note,
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
    note: str,
) -> Built:
    return Built(
        name=step.name,
        is_new=is_new,
        directory=str(step.directory.absolute()),
        embedded=embedded,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        notes=(note,) if note else (),
    )
