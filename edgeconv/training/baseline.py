"""`train`: a baseline model, trained in one process or in a cluster of them."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.code import readable_code
from edgeconv.models.archives import keras_datasets
from edgeconv.plugins import BASELINE_MODELS, member_hosts
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import (
    owned,
    refuse_pointer,
    refuse_pointers_in,
    scratch_directory,
    writable_directory,
)
from edgeconv.tf.export import is_remote
from edgeconv.tf.training.member import TrainJob, train_member
from edgeconv.tf.training.modules import refuse_missing
from edgeconv.training.members import ProcessSettings, clusters_of, is_chief, launch, workers_of
from edgeconv.types import LOCAL_STRATEGIES, Distribution, Training, TrainingRecord
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from edgeconv.requests.training import TrainRequest

# Vertex AI sets them for a custom job.
_MODEL_DIR, _CHECKPOINT_DIR = "AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR"
_TENSORBOARD_DIR = "AIP_TENSORBOARD_LOG_DIR"
_CHECKPOINTS = ".checkpoints"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "1"}


class TrainingPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of a training; each may be remote, such as gs://bucket/name.

    `exact`: the model goes into `directory` itself. `forget`: the checkpoints are removed in the
    end. `tensorboard` may be None.
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

    A killed training resumes from its last checkpoint. Returns the record, or None in a member of
    a cluster that is not its chief. Raises an `EdgeconvError`.
    """
    training = request.training
    refuse_options(training)
    refuse_missing(training.module)
    _refuse_data(training)
    if request.on is not None:
        member_hosts().refuse_unplaceable(request.on, training.distribution)
    clusters = clusters_of(training.distribution)
    paths = _paths(training, request.directory, request.checkpoints, request.tensorboard)
    access = _access(training, paths, exports=is_chief(clusters))
    own = _own(paths, on_progress) if is_chief(clusters) else contextlib.nullcontext()
    with own, _created(access.writes), scratch_directory() as scratch:
        result = launch(
            clusters,
            train_member,
            functools.partial(_job, training, paths, workers_of(clusters)),
            training.distribution,
            ProcessSettings(
                label="training",
                scratch=scratch,
                access=access,
                allowance=request.allowance,
                environment=_ENVIRONMENT,
                on_progress=on_progress,
                on=request.on,
            ),
        )
    return result.record if result else None


def _access(training: Training, paths: TrainingPaths, *, exports: bool) -> Access:
    """What a training may touch; a user's module may run any code."""
    own = paths.directory if paths.exact else f"{paths.directory}/{training.name}"
    exported = (own, paths.tensorboard) if exports else ()
    written = [path for path in (*exported, paths.checkpoints) if path]
    data = [training.data] if training.data else []
    is_ours = training.module in BASELINE_MODELS
    remote = any(map(is_remote, (*written, *data)))
    return Access(
        profile=("cluster" if remote else "training") if is_ours else "code",
        reads=(
            *(Path(path).absolute() for path in data if not is_remote(path)),
            # Keras stores downloaded data sets there.
            *(() if data else (keras_datasets(),)),
            *(
                path
                for text in training.custom_objects
                for path in readable_code(text, str(Path.cwd()))
            ),
        ),
        writes=tuple(Path(path) for path in written if not is_remote(path)),
    )


@contextlib.contextmanager
def _created(directories: tuple[Path, ...]) -> Iterator[None]:
    """A block in which directories exist; new ones that stay empty are removed after it."""
    created: list[Path] = []
    for directory in directories:
        new = [each for each in (directory, *directory.parents) if not each.exists()]
        writable_directory(directory)
        created += reversed(new)
    try:
        yield
    finally:
        for directory in reversed(created):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _refuse_data(training: Training) -> None:
    """Raise `InputRefused` for missing data; a user's module may take any text, not only paths."""
    if training.data is None or is_remote(training.data):
        return
    path = Path(training.data)
    if path.is_dir():
        refuse_pointers_in(path)
    elif training.module in BASELINE_MODELS and not path.exists():
        raise InputRefused(f"--data {path} does not exist", hint="check the path")
    refuse_pointer(path)


def _job(training: Training, paths: TrainingPaths, workers: int, chief: bool) -> TrainJob:
    return TrainJob(
        **msgspec.structs.asdict(paths),
        training=training,
        work=str(Path.cwd()),
        workers=workers,
        is_chief=chief,
    )


def _paths(
    training: Training, directory: str | None, checkpoints: str | None, tensorboard: str | None
) -> TrainingPaths:
    model_dir = os.environ.get(_MODEL_DIR)
    exact = directory is None and bool(model_dir)
    root = _absolute(directory or model_dir or ".")
    kept = checkpoints or os.environ.get(_CHECKPOINT_DIR)
    logs = tensorboard or os.environ.get(_TENSORBOARD_DIR)
    # Checkpoints that are removed in the end have their lock next to them.
    own = root if exact else f"{root}/{training.name}"
    temporary = f"{own}/{_CHECKPOINTS}" if is_remote(own) else f"{own}/{_CHECKPOINTS}/current"
    return TrainingPaths(
        directory=root,
        exact=exact,
        checkpoints=_absolute(kept) if kept else temporary,
        forget=not kept,
        tensorboard=_absolute(logs) if logs else None,
    )


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_remote(path) else str(Path(path).absolute())


def _own(paths: TrainingPaths, on_progress: Callable[[str], None]) -> AbstractContextManager[None]:
    """Lock the checkpoints, and refuse early what cannot be written."""
    if not is_remote(paths.directory):
        _refuse_unwritable(Path(paths.directory))
    if is_remote(paths.checkpoints):
        return contextlib.nullcontext()
    waiting = f"waiting for another training that keeps its checkpoints in {paths.checkpoints}"
    directory = Path(paths.checkpoints)
    return owned(
        directory.parent if paths.forget else directory,
        on_wait=lambda: on_progress(waiting),
        passing=paths.forget,
    )


def _refuse_unwritable(directory: Path) -> None:
    """Raise `OutputRefused` where nothing can be written; `directory` is not created."""
    for existing in (directory, *directory.parents):
        # `exists` raises for a name that is too long.
        with contextlib.suppress(OSError):
            if existing.exists():
                writable_directory(existing)
                return


def refuse_options(training: Training) -> None:
    """Raise `UsageError` for options that exclude each other, and a module without a name."""
    if not training.name:
        raise UsageError(
            f"{training.module!r} is not a model module",
            hint="give a name, or a file ending in .py",
        )
    _refuse_idle(training.distribution)
    coordinated = training.distribution.strategy == "parameter-server"
    if coordinated and training.loop == "fit" and training.checkpoint_steps is not None:
        raise UsageError(
            "--checkpoint-steps: under ParameterServerStrategy, Keras's fit reports only at the "
            "end of an epoch",
            hint="remove --checkpoint-steps, or choose --loop custom",
        )
    if training.patience is not None and not training.validation_fraction:
        raise UsageError(
            "--patience needs validation samples", hint="add --validation-fraction 0.1"
        )


def _refuse_idle(distribution: Distribution) -> None:
    strategy = distribution.strategy
    clusters = strategy in ("multiworker", "parameter-server")
    local = strategy in LOCAL_STRATEGIES
    idle = {
        "--devices": not local and bool(distribution.devices or distribution.device_count),
        "--cross-device-ops": strategy != "mirrored" and distribution.cross_device_ops != "auto",
        "--communication": strategy != "multiworker" and distribution.communication != "auto",
        "--tpu": strategy != "tpu" and bool(distribution.tpu),
        "--workers": not clusters and bool(distribution.workers),
        "--servers": strategy != "parameter-server" and bool(distribution.servers),
    }
    for option, is_idle in idle.items():
        if is_idle:
            raise UsageError(
                f"{option} has no effect with --strategy {strategy}", hint=f"remove {option}"
            )
    if distribution.servers and not distribution.workers:
        raise UsageError(
            "--servers needs --workers", hint="add --workers; without it, TF_CONFIG names servers"
        )
    count = distribution.device_count or len(distribution.devices)
    if strategy == "none" and count > 1:
        raise UsageError(
            f"--strategy none trains on one device, not on {count}",
            hint="choose --strategy mirrored",
        )
