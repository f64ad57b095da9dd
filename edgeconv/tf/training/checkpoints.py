"""What a training resumes from: model, optimizer and progress, together.

Only the chief's checkpoints are kept. The other members of a cluster have to save as well, because
variables are gathered from all of them, and delete theirs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from edgeconv.system.processes.tasks import report_progress
from edgeconv.system.store import scratch_directory
from edgeconv.tf.lazy import tf
from edgeconv.tf.training.loops import MetricSums
from edgeconv.tf.training.strategies import is_lost_member
from edgeconv.types import CHECKPOINT_KEPT, Epoch
from edgeconv.types.decoding import ready
from edgeconv.types.errors import InputRefused, OutputRefused
from edgeconv.types.words import first_line

_KEPT = 2
_BEST = "best-"
_MARK = "shared"
_NEXT = (
    "choose another --checkpoint-dir, or remove this one to start again; to resume it, "
    "give the options that it was started with"
)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a training has come: `epochs` are over, and `steps` of the next one.

    `sums` and `seconds` cover these steps. `identity` has to be the same to resume.
    `best_epoch` counts from 1; its weights are stored separately. `stopped` is why it ended early.
    """

    identity: dict[str, str]
    epochs: tuple[Epoch, ...] = ()
    steps: int = 0
    sums: MetricSums = MetricSums()
    seconds: float = 0.0
    best_epoch: int = 0
    stopped: str = ""
    resumed_at: tuple[int, ...] = ()


def refuse_elsewhere(last: str, directory: str) -> None:
    """Raise `InputRefused` if a directory's file `checkpoint` names one that is not in it."""
    if last.rpartition("/")[0] != directory.rstrip("/"):
        raise InputRefused(
            f"{directory} says that its checkpoint is {last}, which is not in it",
            hint="copy the checkpoint into the directory, or remove its file `checkpoint`",
        )


class Checkpoints:
    """The checkpoints of a training in `directory`, which may be remote."""

    def __init__(self, directory: str, model: Any, optimizer: Any, *, is_chief: bool) -> None:
        self._directory, self._is_chief = directory, is_chief
        self._state = _state()
        self._tracked = tf.train.Checkpoint(model=model, optimizer=optimizer, progress=self._state)
        self._weights = tf.train.Checkpoint(model=model)
        # It is created at its first use. In `fit`, that would be in the strategy's scope, where
        # all members of a cluster have to create a variable, and only the chief counts.
        _ = self._tracked.save_counter
        self._manager = tf.train.CheckpointManager(self._tracked, directory, max_to_keep=_KEPT)

    def save(self, progress: Progress) -> None:
        """Keep a checkpoint. Raises `OutputRefused` if it cannot be written."""
        self._state.progress = progress
        self._write(self._tracked, self._manager.save)
        if self._is_chief:
            self._forget_best_but(progress.best_epoch)
            report_progress(CHECKPOINT_KEPT)

    def save_best(self, epoch: int) -> None:
        """Keep the model's weights of this epoch, the best so far.

        Earlier ones are kept until there is a checkpoint that names these. Raises `OutputRefused`.
        """
        self._write(self._weights, lambda: self._weights.write(self._best(epoch)))

    def restore_best(self, epoch: int) -> None:
        """Give the model the weights of this epoch. Raises `InputRefused` if they are gone."""
        try:
            self._weights.read(self._best(epoch)).assert_existing_objects_matched()
        except (AssertionError, tf.errors.OpError) as error:
            raise InputRefused(
                f"the weights of the best epoch cannot be read: {first_line(error)}",
                hint="in a cluster, give a --checkpoint-dir that all members share",
            ) from error

    def mark(self) -> None:
        """Leave a file in the directory for all who share it. Raises `OutputRefused`."""
        try:
            tf.io.gfile.makedirs(self._directory)
            with tf.io.gfile.GFile(f"{self._directory}/{_MARK}", "w") as file:
                file.write("")
        except tf.errors.OpError as error:
            raise self._unwritable(error) from error

    def is_marked(self) -> bool:
        """Whether the file of `mark` is there."""
        return bool(tf.io.gfile.exists(f"{self._directory}/{_MARK}"))

    def restore(self, identity: dict[str, str]) -> Progress | None:
        """Resume from the last checkpoint; None if there is none.

        Raises `InputRefused` for one of another model or other data, or that does not load.
        """
        last = tf.train.latest_checkpoint(self._directory)
        if last is None:
            state = tf.train.get_checkpoint_state(self._directory)
            if state is not None:
                raise InputRefused(
                    f"the checkpoint {state.model_checkpoint_path} cannot be resumed: one of its "
                    "files is missing",
                    hint=_NEXT,
                )
            return None
        refuse_elsewhere(last, self._directory)
        # The progress is read first: it says whether the checkpoint is of this model.
        probe = _state()
        with _resuming(last):
            tf.train.Checkpoint(progress=probe).restore(last).expect_partial()
        _refuse_other(last, probe.progress, identity)
        with _resuming(last):
            self._tracked.restore(last).assert_existing_objects_matched()
        restored: Progress = self._state.progress
        return restored

    def _best(self, epoch: int) -> str:
        return f"{self._directory}/{_BEST}{epoch}"

    def _forget_best_but(self, epoch: int) -> None:
        for path in tf.io.gfile.glob(f"{self._directory}/{_BEST}*"):
            if path.rpartition("/")[2].startswith(f"{_BEST}{epoch}."):
                continue
            # TensorFlow writes into a directory first, which a killed run leaves.
            is_directory = tf.io.gfile.isdir(path)
            (tf.io.gfile.rmtree if is_directory else tf.io.gfile.remove)(path)

    def _write(self, kept: Any, as_chief: Callable[[], object]) -> None:
        if not self._is_chief:
            with scratch_directory() as scratch:
                kept.write(f"{scratch}/thrown-away")
            return
        try:
            as_chief()
        except tf.errors.OpError as error:
            if is_lost_member(error):
                raise
            raise self._unwritable(error) from error

    def _unwritable(self, error: Any) -> OutputRefused:
        return OutputRefused(
            f"cannot write a checkpoint to {self._directory}: {error.message}",
            hint="free some space, or choose another directory with --checkpoint-dir",
        )


def forget_checkpoints(directory: str) -> None:
    """Remove the checkpoints of a finished training."""
    # The state goes first: one that names files that are gone could not be resumed.
    state = f"{directory}/checkpoint"
    if tf.io.gfile.exists(state):
        tf.io.gfile.remove(state)
    tf.io.gfile.rmtree(directory)


def _state() -> Any:
    """A trackable that holds a `Progress`, which is written together with the weights."""

    class State(tf.train.experimental.PythonState):  # type: ignore[misc]
        """Stored as JSON."""

        progress: Progress | None = None

        def serialize(self) -> bytes:
            return msgspec.json.encode(self.progress)

        def deserialize(self, string_value: bytes) -> None:
            self.progress = msgspec.json.decode(string_value, type=ready(Progress))

    return State()


@contextlib.contextmanager
def _resuming(last: str) -> Iterator[None]:
    # TensorFlow's reader raises IndexError for a file that is too short.
    failures = (ValueError, AssertionError, IndexError, msgspec.DecodeError, tf.errors.OpError)
    try:
        yield
    except failures as error:
        raise InputRefused(
            f"the checkpoint {last} cannot be resumed: {first_line(error)}", hint=_NEXT
        ) from error


def _refuse_other(where: str, progress: Progress | None, identity: dict[str, str]) -> None:
    if progress is None:
        raise InputRefused(f"{where} is not a checkpoint of edgeconv", hint=_NEXT)
    names = sorted({*progress.identity, *identity})
    other = [
        f"{name}: {progress.identity.get(name, 'none')} there, {identity.get(name, 'none')} here"
        for name in names
        if progress.identity.get(name) != identity.get(name)
    ]
    if other:
        raise InputRefused(
            f"the checkpoint {where} is of another training: {'; '.join(other)}", hint=_NEXT
        )
