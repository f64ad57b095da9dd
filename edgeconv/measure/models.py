"""The models of one bench in their runtimes, and what was measured of each so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeconv.data.rows import RowsFile
from edgeconv.errors import InputRefused, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.errors import EdgeconvError
    from edgeconv.measure.model_files import ModelFile
    from edgeconv.runtimes.interface import Model, Runtime, Timed


@dataclass(eq=False)
class MeasuredModel:
    """One model in one runtime: what was measured of it, and the error that ended that.

    `name` is the row's. `model_file` is None for the trained model; where a server runs it,
    `batched` is that model with many samples an invoke, and `batched_us` their times.
    """

    name: str
    model: Model
    runtime: Runtime
    model_file: ModelFile | None = None
    timed: list[Timed] = field(default_factory=list)
    outputs: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    error: EdgeconvError | None = None
    batched: Model | None = None
    batched_us: tuple[float, ...] = ()


class OutputFiles:
    """The outputs of one model over `count` samples, in files of a new directory."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._count = count
        self._files: dict[str, RowsFile] | None = None

    def begin(self, outputs: Mapping[str, NDArray[np.generic]], samples: int) -> None:
        """Make the files, for outputs like these of `samples` samples.

        An output without one row for each sample is left out.
        """
        each = {n: a for n, a in outputs.items() if a.shape[:1] == (samples,)}
        self._files = {
            name: RowsFile(self._directory / f"{index}.npy", self._count, array)
            for index, (name, array) in enumerate(each.items())
        }

    @property
    def is_begun(self) -> bool:
        """Whether the files are there."""
        return self._files is not None

    def put(self, start: int, outputs: Mapping[str, NDArray[np.generic]], samples: int) -> None:
        """Keep the outputs of the samples from `start` on. Raises `ToolFailed`."""
        assert self._files is not None
        for name, file in self._files.items():
            array = outputs.get(name)
            if array is None or len(array) != samples:
                raise ToolFailed(f"the output {name!r} is missing for samples {start} and after")
            try:
                file.write(start, array)
            except InputRefused as error:
                raise ToolFailed(f"the output {name!r} has {error.message}") from error

    def close(self) -> dict[str, NDArray[np.generic]]:
        """The outputs by name, (count, ...), mapped from the files."""
        import numpy as np

        for file in (self._files or {}).values():
            file.close()
        return {
            name: np.load(file.path, mmap_mode="r") for name, file in (self._files or {}).items()
        }
