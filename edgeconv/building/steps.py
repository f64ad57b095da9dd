"""One model of a build: converted and embedded, unless all is as it was."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.building.stamp import fresh, stamp_file, write_stamp
from edgeconv.conversion.convert import convert
from edgeconv.conversion.plan import REVISION
from edgeconv.embedding.embedding import perform
from edgeconv.embedding.plan import RECORD, embedded_already, is_torn, plan_of
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

    `converting` publishes the artifacts, and `embedding` puts the one of its recipe ("" for the
    only one) into a directory. `inputs` are the files that both name. `config` is the file that
    they are in; it is no input: what it says of this model is in the requests, and of the rest
    nothing depends. `location` is the line of the model, `table` that of its [embed]. `accepted`
    has the hashes of the files that the lock accepted of the model, None where it is not locked;
    of a locked one every other file has to be checked, as with `require_check`.
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
        """The hash of what is asked, of where all of it is, and of the tools' versions."""
        convert, embed = self.converting, self.embedding
        places = [*map(str, self.inputs.roots), convert.directory, embed.directory]
        return hash_of(
            "build", REVISION, convert.key(), embed.key(), embed.recipe, places, tool_versions()
        )

    @property
    def stamp_file(self) -> Path:
        """Where it is noted that the step was done."""
        return stamp_file(str(self.config.resolve()), self.name)


def do_step(step: BuildStep, *, on_progress: Callable[[str], None] = lambda _: None) -> Built:
    """Do the step where anything that it depends on changed since it was done.

    Any number of builds may do the same step at once: one does it, the others wait and find it
    done. Raises an `EdgeconvError` where it cannot be done; what was there before is then as it
    was.
    """
    found = _done_before(step)
    if found is not None:
        return found
    with _turn(step, on_progress):
        return _done_before(step) or _done_now(step, on_progress)


def _done_before(step: BuildStep) -> Built | None:
    """The step as it was done, where nothing changed since; None where it is to be done."""
    stamp = fresh(step.stamp_file, step.key)
    if stamp is None or is_torn(step.directory):
        return None
    model = next(one for one in stamp.published if one.path.endswith(".tflite"))
    note = _check_note(step, Path(model.path), model.sha256)
    return _built(
        step,
        stamp.embedded,
        [*(state.path for state in stamp.inputs), *_verdict(Path(model.path))],
        (state.path for state in stamp.outputs),
        is_new=False,
        note=note,
    )


def _verdict(model: Path) -> list[str]:
    """The verdict of a file, where there is one: the next one is a reason to build again."""
    place = verdict_file(model.absolute())
    return [str(place)] if place.is_file() else []


def _check_note(step: BuildStep, model: Path, sha256: str) -> str:
    """What there is to say of the last check of a file. Raises as `require_passed`."""
    is_unknown = step.accepted is not None and sha256 not in step.accepted
    is_required = step.embedding.require_check or is_unknown
    return require_passed(model, sha256, is_required=is_required)


def _done_now(step: BuildStep, on_progress: Callable[[str], None]) -> Built:
    began_ns = time.time_ns()
    conversion = convert(step.converting)
    artifact = _chosen(step, conversion)
    model = Path(conversion.directory) / artifact.file
    note = _check_note(step, model, artifact.sha256)
    asked = msgspec.structs.replace(step.embedding, artifact=str(model))
    try:
        request = plan_of(asked)
    except EdgeconvError as error:
        error.location = error.location or step.table
        raise
    already = embedded_already(request)
    # A SOURCE that runs code came this far only where its user allowed it.
    embedded = already or perform(
        request, allow_code=True, allowance=asked.allowance, on_progress=on_progress
    )
    directory = request.directory.absolute()
    outputs = [directory / RECORD, *(directory / one.path for one in embedded.files)]
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
    return _built(
        step,
        embedded,
        [*map(str, inputs), *_verdict(model)],
        map(str, sorted(outputs)),
        is_new=already is None,
        note=note,
    )


@contextlib.contextmanager
def _turn(step: BuildStep, on_progress: Callable[[str], None]) -> Iterator[None]:
    """Wait for other builds of the step; where there is no place for a lock, all do it at once.

    That is no harm: what they publish has locks of its own.
    """
    place = step.stamp_file
    waiting = f"waiting for another build of {step.name}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OutputRefused):
            writable_directory(place.parent)
            lock = locked(place.with_suffix(".lock"), on_wait=lambda: on_progress(waiting))
            stack.enter_context(lock)
        yield


def _chosen(step: BuildStep, conversion: Conversion) -> Artifact:
    """The artifact to embed. Raises `ToolFailed` where it failed, `UsageError` for several."""
    for failure in conversion.failures:
        if step.embedding.recipe in ("", failure.recipe):
            raise ToolFailed(f"{failure.recipe}: {failure.message}", hint=failure.hint)
    found = [one for one in conversion.artifacts if step.embedding.recipe in ("", one.recipe.name)]
    if len(found) == 1:
        return found[0]
    made = ", ".join(one.recipe.name for one in conversion.artifacts)
    if not found:
        raise UsageError(
            f"not converted to {step.embedding.recipe}, which is to be embedded",
            hint=f"`to` of [convert] has {made}",
        )
    raise UsageError(
        f"converted to {made}, of which one can be embedded",
        hint='name it: recipe = "int8" in [embed]',
    )


def _built(
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
