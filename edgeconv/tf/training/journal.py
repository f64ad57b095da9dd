"""TensorBoard's event files, written without TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.types import Epoch


class TensorBoardLog:
    """One scalar a metric and epoch under `directory`/train and /validation; None: nothing."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}

    def epoch(self, number: int, epoch: Epoch) -> None:
        """Write the metrics of an epoch, counted from 1. Raises `OutputRefused`."""
        scalars = {**epoch.metrics, "samples_per_second": epoch.samples_per_second}
        self._write("train", number, scalars)
        if epoch.validation:
            self._write("validation", number, epoch.validation)

    def _write(self, run: str, number: int, scalars: Mapping[str, float]) -> None:
        import tensorflow as tf

        if self._directory is None:
            return
        try:
            if run not in self._writers:
                self._writers[run] = tf.summary.create_file_writer(f"{self._directory}/{run}")
            with self._writers[run].as_default():
                for name, value in scalars.items():
                    tf.summary.write(name, value, step=number, metadata=_scalar())
            self._writers[run].flush()
        except tf.errors.OpError as error:
            raise OutputRefused(
                f"cannot write TensorBoard's files to {self._directory}: {error.message}",
                hint="choose another place with --tensorboard-dir",
            ) from error


def _scalar() -> Any:
    """What tells TensorBoard that a value is a scalar."""
    from tensorflow.core.framework.summary_pb2 import SummaryMetadata

    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
