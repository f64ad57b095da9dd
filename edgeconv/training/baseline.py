"""`train`: a baseline model, trained in one process or in a cluster of them."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.custom import find_custom
from edgeconv.errors import InputRefused
from edgeconv.models.archives import keras_datasets
from edgeconv.plugins import BASELINE_MODELS
from edgeconv.processes.sandbox import Access
from edgeconv.store import (
    owned,
    refuse_pointer,
    refuse_pointers_in,
    scratch_directory,
    writable_directory,
)
from edgeconv.tf.export import is_remote
from edgeconv.tf.training.member import TrainJob, train_member
from edgeconv.tf.training.modules import refuse_missing
from edgeconv.tf.training.options import refuse_options
from edgeconv.training.launch import clusters_of, is_chief, launch, workers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from edgeconv.requests.train import TrainRequest
    from edgeconv.types import Training, TrainingRecord


# What Vertex AI tells a custom job.
_MODEL_DIR, _CHECKPOINT_DIR = "AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR"
_TENSORBOARD_DIR = "AIP_TENSORBOARD_LOG_DIR"
_CHECKPOINTS = ".checkpoints"
# Its log is for those who look for a fault.
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "1"}


class TrainingPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where a training keeps things; each may be remote, as gs://bucket/name.

    `exact`: the model goes into `directory` itself. `forget`: the checkpoints are removed in
    the end. `tensorboard` of None: nothing is written there.
    """

    directory: str
    exact: bool
    checkpoints: str
    forget: bool
    tensorboard: str | None


def train(
    request: TrainRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> TrainingRecord | None:
    """Train a baseline, evaluate it and export it as the next version of a SavedModel.

    What was killed goes on from its last checkpoint. Comes back with the record, or, as a
    member of a cluster that is not its chief, with None. Raises an `EdgeconvError`.
    """
    asked = request.training
    refuse_options(asked)
    refuse_missing(asked.module)
    _refuse_data(asked)
    for text in asked.custom_objects:
        # Found now, so that a name that is wrong ends it before any process starts.
        find_custom(text, str(Path.cwd()))
    clusters = clusters_of(asked.distribution)
    places = _places(asked, request.directory, request.checkpoints, request.tensorboard)
    access = _access(asked, places, exports=is_chief(clusters))
    own = _own(places, on_progress) if is_chief(clusters) else contextlib.nullcontext()
    with own, _made(access.writes), scratch_directory() as scratch:
        done = launch(
            clusters,
            train_member,
            functools.partial(_job, asked, places, workers_of(clusters)),
            distribution=asked.distribution,
            label="training",
            scratch=scratch,
            access=access,
            allowance=request.allowance,
            environment=_ENVIRONMENT,
            on_progress=on_progress,
        )
    return done.record if done else None


def _access(training: Training, places: TrainingPaths, *, exports: bool) -> Access:
    """What a training may touch; the module of a user's is a program of theirs."""
    own = places.directory if places.exact else f"{places.directory}/{training.name}"
    exported = (own, places.tensorboard) if exports else ()
    kept = [place for place in (*exported, places.checkpoints) if place]
    given = [training.data] if training.data else []
    is_ours = training.module in BASELINE_MODELS
    remote = any(map(is_remote, (*kept, *given)))
    return Access(
        profile=("cluster" if remote else "training") if is_ours else "code",
        reads=(
            *(Path(place).absolute() for place in given if not is_remote(place)),
            # Where Keras keeps data sets that it has downloaded.
            *(() if given else (keras_datasets(),)),
            *((Path.cwd(),) if training.custom_objects else ()),
        ),
        writes=tuple(Path(place) for place in kept if not is_remote(place)),
    )


@contextlib.contextmanager
def _made(directories: tuple[Path, ...]) -> Iterator[None]:
    """For the block, directories that are there; of these, what stays empty is gone after it."""
    made: list[Path] = []
    for directory in directories:
        new = [each for each in (directory, *directory.parents) if not each.exists()]
        writable_directory(directory)
        made += reversed(new)
    try:
        yield
    finally:
        for directory in reversed(made):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _refuse_data(training: Training) -> None:
    """Raise `InputRefused` for data that is not there, as far as that can be known.

    A module of a user's may take any text for a place.
    """
    if training.data is None or is_remote(training.data):
        return
    place = Path(training.data)
    if place.is_dir():
        refuse_pointers_in(place)
    elif training.module in BASELINE_MODELS and not place.exists():
        raise InputRefused(f"--data {place} does not exist", hint="check the path")
    refuse_pointer(place)


def _job(training: Training, places: TrainingPaths, workers: int, chief: bool) -> TrainJob:
    return TrainJob(
        training=training,
        directory=places.directory,
        exact=places.exact,
        checkpoints=places.checkpoints,
        forget=places.forget,
        tensorboard=places.tensorboard,
        work=str(Path.cwd()),
        workers=workers,
        is_chief=chief,
    )


def _places(
    training: Training, directory: str | None, checkpoints: str | None, tensorboard: str | None
) -> TrainingPaths:
    given = os.environ.get(_MODEL_DIR)
    exact = directory is None and bool(given)
    place = _absolute(directory or given or ".")
    kept = checkpoints or os.environ.get(_CHECKPOINT_DIR)
    own = place if exact else f"{place}/{training.name}"
    logs = tensorboard or os.environ.get(_TENSORBOARD_DIR)
    return TrainingPaths(
        directory=place,
        exact=exact,
        checkpoints=_absolute(kept) if kept else _passing(own),
        forget=not kept,
        tensorboard=_absolute(logs) if logs else None,
    )


def _passing(own: str) -> str:
    """Where checkpoints are that are removed in the end; the lock, if there is one, is beside."""
    return f"{own}/{_CHECKPOINTS}" if is_remote(own) else f"{own}/{_CHECKPOINTS}/current"


def _absolute(place: str) -> str:
    return place.rstrip("/") if is_remote(place) else str(Path(place).absolute())


def _own(places: TrainingPaths, on_progress: Callable[[str], None]) -> AbstractContextManager[None]:
    """Let no other training use the checkpoints; and find out early what cannot be written."""
    if not is_remote(places.directory):
        _refuse_unwritable(Path(places.directory))
    if is_remote(places.checkpoints):
        return contextlib.nullcontext()
    waiting = f"waiting for another training that keeps its checkpoints in {places.checkpoints}"
    directory = Path(places.checkpoints)
    return owned(
        directory.parent if places.forget else directory,
        on_wait=lambda: on_progress(waiting),
        passing=places.forget,
    )


def _refuse_unwritable(directory: Path) -> None:
    """Raise `OutputRefused` where nothing can be written; `directory` is not made for that."""
    for there in (directory, *directory.parents):
        # Asking can fail too, for a name that is too long.
        with contextlib.suppress(OSError):
            if there.exists():
                writable_directory(there)
                return
