"""A runtime that runs nothing and always gives the same: for tests of code that uses edgeconv.

    fake                         any model "runs"
    fake:slow=3                  three times slower
    fake:failing=NAME.tflite     that model does not load
    fake:gone=2                  the device is gone after two timings
    fake:slow=3&gone=2           both

Times come from the model's size, and their noise from its hash. Outputs come from a hash of the
samples, changed a little by a hash of the model: the same samples always give the same outputs, and
different models similar ones.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import msgspec

from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
from edgeconv.runtimes.runner import run_batches
from edgeconv.runtimes.tensors import raw, signature_of
from edgeconv.types import Environment, RuntimeChoice, Signature, TensorSpec, Timing
from edgeconv.types.decoding import ready
from edgeconv.types.errors import ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray


# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
_VERSION = "1"
# Per byte of weights, and per invoke.
_US_PER_BYTE = 0.001
_OVERHEAD_US = 50.0
_NOISE = 0.02
# The difference between two models' outputs, as a fraction of the outputs' range.
_APART = 0.01


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated faults of the device: see the module's options."""

    slow: float = 1.0
    failing: str = ""
    gone: int | None = None


OPTIONS = frozenset(Fault.__struct_fields__)
HAS_LOCATION = False


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[Fake]:
    """The runtime. Raises `UsageError` for options that it does not have."""
    fault = _fault(choice.options)
    settings.on_progress("the runtime is fake: nothing runs, times and outputs are invented")
    yield Fake(fault, str(choice))


def _fault(options: Mapping[str, str]) -> Fault:
    try:
        return msgspec.convert(options, ready(Fault), strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the runtime fake: {error}", hint="as in fake:slow=3") from error


class Fake:
    """See `edgeconv.runtimes.interface.Runtime`."""

    has_times = True
    gpu = ""
    has_pace = True
    sessions = 2

    def __init__(self, fault: Fault, host: str) -> None:
        self.environment = Environment(
            machine="fake",
            cpu="fake",
            cores=1,
            system="fake",
            python="",
            tools={"fake": _VERSION},
            host=host,
        )
        self._fault = fault
        self._timed = 0

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Invented times of `timing.repeats` invokes. Raises `ToolFailed` for a simulated fault."""
        import numpy as np

        raw(inputs, self._load(model).inputs)
        if self._fault.gone is not None and self._timed >= self._fault.gone:
            raise ToolFailed(
                f"{model.file.name}: the fake device is gone",
                hint="remove gone= from the runtime's options",
            )
        self._timed += 1
        data = model.file.read_bytes()
        typical_us = (_OVERHEAD_US + len(data) * _US_PER_BYTE * model.batch) * self._fault.slow
        noise = np.random.default_rng(_seed(data)).exponential(_NOISE, timing.repeats)
        return Timed(
            runtime="fake",
            version=_VERSION,
            load_us=10 * typical_us,
            first_us=2 * typical_us,
            samples_us=tuple((typical_us * (1 + noise)).tolist()),
            warmup=timing.warmup,
            starts_us=tuple((np.arange(timing.repeats) * timing.every_seconds * 1e6).tolist()),
            memory_bytes=2 * len(data),
        )

    def start(self, model: Model) -> FakeSession:
        """A session that invents outputs."""
        return FakeSession(model, self._load(model))

    def _load(self, model: Model) -> Signature:
        if self._fault.failing == model.file.name:
            raise ToolFailed(
                f"{model.file.name} does not load in fake",
                hint="remove failing= from the runtime's options",
            )
        return signature_of(model)


class FakeSession:
    """See `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, model: Model, signature: Signature) -> None:
        self._batch, self._outputs = model.batch, signature.outputs
        self._model = model.file.read_bytes()

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Outputs of the model's shapes and dtypes."""
        return run_batches(self._invented_outputs, inputs, self._batch)

    def close(self) -> None:
        """Nothing is open."""

    def _invented_outputs(self, batch: Arrays) -> dict[str, NDArray[np.generic]]:
        import numpy as np

        count = len(next(iter(batch.values())))
        samples = [
            b"".join(
                name.encode() + value[index].tobytes() for name, value in sorted(batch.items())
            )
            for index in range(count)
        ]
        outputs = {}
        for spec in self._outputs:
            shape = tuple(max(size, 1) for size in spec.shape)
            if spec.shape[:1] in ((-1,), (count,)):
                each = [_values(spec, shape[1:], sample, self._model) for sample in samples]
                outputs[spec.name] = np.stack(each)
            else:
                # Without a batch, as a scalar.
                outputs[spec.name] = _values(spec, shape, samples[0], self._model)
        return outputs


def _values(
    spec: TensorSpec, shape: tuple[int, ...], sample: bytes, model: bytes
) -> NDArray[np.generic]:
    import numpy as np

    name = spec.name.encode()
    common = np.random.default_rng(_seed(name, sample)).uniform(0, 1, shape)
    own = np.random.default_rng(_seed(name, sample, model)).uniform(0, 1, shape)
    values = common + _APART * (own - 0.5)
    dtype = np.dtype("float32" if spec.scale else spec.dtype)
    # Integers are mostly indices, which must be valid.
    return np.asarray(values if dtype.kind == "f" else values >= 0.5, dtype)


def _seed(*parts: bytes) -> int:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return int.from_bytes(digest.digest()[:8], "little")
