"""TensorBoard's event files, written without TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.errors import OutputRefused
from edgeconv.tf.lazy import tf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.types import Epoch


class TensorBoardLog:
    """Scalars per metric and epoch under `directory`/train and /validation; None writes nothing."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}

    def write(self, number: int, epoch: Epoch) -> None:
        """Write the metrics of an epoch, counted from 1. Raises `OutputRefused`."""
        if self._directory is None:
            return
        scalars = {**epoch.metrics, "samples_per_second": epoch.samples_per_second}
        try:
            self._write("train", number, scalars)
            self._write("validation", number, epoch.validation)
        except tf.errors.OpError as error:
            raise OutputRefused(
                f"cannot write TensorBoard's files to {self._directory}: {error.message}",
                hint="choose another directory with --tensorboard-dir",
            ) from error

    def _write(self, run: str, number: int, scalars: Mapping[str, float]) -> None:
        from tensorflow.core.framework.summary_pb2 import SummaryMetadata

        if not scalars:
            return
        # It tells TensorBoard that a value is a scalar.
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        if run not in self._writers:
            self._writers[run] = tf.summary.create_file_writer(f"{self._directory}/{run}")
        with self._writers[run].as_default():
            for name, value in scalars.items():
                tf.summary.write(name, value, step=number, metadata=plugin)
        self._writers[run].flush()
