"""The answers of models in versions of a runtime, kept in the cache.

Only answers are kept: what crashed or did not load may have failed for want of memory or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv import data
from edgeconv.data.handover import sample_files
from edgeconv.measure.machine import environment
from edgeconv.store import (
    Cache,
    cache_directory,
    hash_of,
    scratch_directory,
    sha256_file,
    tool_versions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.runtimes.interface import Model
    from edgeconv.types import TargetRuntime

    Outputs = Mapping[str, NDArray[np.generic]]

_STAGE = "answers"
# Larger ones, such as images of a segmentation, are computed again.
_MOST_BYTES = 16 << 20


class KeptAnswers:
    """The kept answers of `models`, by name, on the first samples of a bench."""

    def __init__(self, run: BenchRun, models: Mapping[str, Model]) -> None:
        self.models = models
        self._cache = Cache(cache_directory() if run.execution.use_cache else None, run.on_progress)
        samples = data.SamplesHash()
        samples.update(run.samples.first)
        self._shared = (
            *(samples.hexdigest(), run.measuring.threads, run.measuring.accelerator),
            *(tool_versions()["edgeconv"], environment().cpu),
        )
        self._files = {name: sha256_file(model.file) for name, model in models.items()}

    def find(self, name: str, version: TargetRuntime) -> Outputs | None:
        """The outputs of a model, arrays (samples, *shape) by name; None where they are not kept.

        Raises `OutputRefused` where the cache cannot be read.
        """
        entry = self._cache.find(_STAGE, self._key(name, version))
        if entry is None:
            return None
        files = sample_files(entry / _STAGE)
        return {output: np.load(file, allow_pickle=False) for output, file in files.items()}

    def keep(self, name: str, version: TargetRuntime, outputs: Outputs) -> None:
        """Keep the outputs of a model. Raises `OutputRefused`."""
        if sum(array.nbytes for array in outputs.values()) > _MOST_BYTES:
            return
        with scratch_directory() as scratch:
            data.write_samples(data.Samples(dict(outputs), None, str(version)), scratch / _STAGE)
            self._cache.keep(_STAGE, self._key(name, version), {_STAGE: scratch / _STAGE})

    def _key(self, name: str, version: TargetRuntime) -> str:
        model = self.models[name]
        return hash_of(self._files[name], model.signature, model.batch, str(version), *self._shared)
