"""A runtime on a cluster: the same answers, part by part, by many workers of Ray.

A session here is only a name for a model. Each part goes to an idle worker, which loads the model
where it has not yet. So models never hold cores against one another, and a lost worker costs the
part that it ran. Times are of a node that has nothing else to do, or of the device.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from edgeconv.errors import UsageError
from edgeconv.processes.sandbox.walls import is_required
from edgeconv.runtimes.cluster_worker import OpeningChoice, SentModel
from edgeconv.runtimes.leases import device_name, is_device
from edgeconv.store.hashes import sha256_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.crew import Crew, Crews
    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
    from edgeconv.types import RuntimeChoice, Timing

# Those of processors, in environments that every node has or makes.
_ABLE = ("litert", "tensorflow", "tflite-micro", "tflite-runtime")


def refuse_choice(choice: RuntimeChoice) -> None:
    """Raise `UsageError` for a runtime that is of one machine, or a device without a name."""
    if is_device(choice) and not choice.location:
        raise UsageError(
            f"{choice} may be a different device on each node", hint=f"name it: {choice}:SERIAL"
        )
    if choice.name not in _ABLE and not is_device(choice):
        raise UsageError(
            f"the runtime {choice} does not run on a cluster's nodes",
            hint=f"remove --on, or choose one of {', '.join(_ABLE)}, or a device",
        )


class ClusteredRuntime:
    """See `edgeconv.runtimes.interface.Runtime`. Its workers are those of `crews`."""

    gpu = ""
    has_pace = False

    def __init__(
        self, crews: Crews, choice: RuntimeChoice, settings: RuntimeSettings, *, is_timed: bool
    ) -> None:
        """Raises as the runtime of `choice` does on the first node, and `ToolFailed`."""
        self._opening = OpeningChoice(
            choice=choice,
            threads=settings.threads,
            accelerator=settings.accelerator,
            python=settings.python,
            binary=settings.binary,
            allowance=settings.allowance,
            is_confined=is_required(),
        )
        self._crews, self._device, self._is_timed = crews, device_name(choice), is_timed
        self.sessions = 1 if self._device else crews.cores
        self._contents: dict[str, Any] = {}
        self._lock = threading.Lock()
        opened = self._timing_crew().opened(self._opening)
        self.environment, self.has_times = opened.environment, opened.has_times
        # See `edgeconv.runtimes.local.LocalRuntime`.
        self.is_present_litert = opened.is_present_litert

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model in a new process of the node or device. Raises `ToolFailed`."""
        sent, content = self._sent(model)
        batch = {name: array[: model.batch] for name, array in inputs.items()}
        timed: Timed = self._timing_crew().ask(
            sent.name,
            self._opening,
            lambda worker: worker.time.remote(self._opening, sent, content, batch, timing),
        )
        return timed

    def start(self, model: Model) -> ClusteredSession:
        """Load the model in a worker. Raises `ToolFailed`."""
        sent, content = self._sent(model)
        self.crew().ask(
            sent.name,
            self._opening,
            lambda worker: worker.load.remote(self._opening, sent, content),
        )
        return ClusteredSession(self, self._opening, sent, content)

    def crew(self) -> Crew:
        """The workers that give outputs."""
        return self._crews.of_device(self._device) if self._device else self._crews.of_cores()

    def _timing_crew(self) -> Crew:
        """The workers for `time`: those of devices do both."""
        return self.crew() if self._device or not self._is_timed else self._crews.of_a_node()

    def _sent(self, model: Model) -> tuple[SentModel, Any]:
        """A model by its content, and that in the object store, into which it is put once."""
        import numpy as np

        sha256 = sha256_file(model.file)
        with self._lock:
            if sha256 not in self._contents:
                content = np.frombuffer(model.file.read_bytes(), np.uint8)
                self._contents[sha256] = self._crews.ray.put(content)
        sent = SentModel(
            sha256=sha256, name=model.file.name, signature=model.signature, batch=model.batch
        )
        return sent, self._contents[sha256]


class ClusteredSession:
    """See `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(
        self, runtime: ClusteredRuntime, opening: OpeningChoice, sent: SentModel, content: Any
    ) -> None:
        self._runtime, self._opening, self._sent, self._content = runtime, opening, sent, content

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, (n, ...), by whichever worker is idle. Raises `ToolFailed`."""
        arrays = dict(inputs)
        opening, sent, content = self._opening, self._sent, self._content
        outputs: dict[str, NDArray[np.generic]] = self._runtime.crew().ask(
            sent.name, opening, lambda worker: worker.run.remote(opening, sent, content, arrays)
        )
        return outputs

    def close(self) -> None:
        """Nothing: the workers keep few models, and end with the run."""
