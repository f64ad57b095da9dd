"""Golden vectors: samples, and a runtime's outputs for them, as raw bytes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from edgeconv.data import LabelUse, Samples, batch_size, opened_samples, synthetic_samples
from edgeconv.data.evaluation import seeded_choice
from edgeconv.data.location import located
from edgeconv.embedding.accessors import LIMITS
from edgeconv.embedding.interface import LITERT, MICRO, Golden, Tolerance, Vector
from edgeconv.model.tflite.summary import output_steps
from edgeconv.runtimes.choice import open_runtime
from edgeconv.runtimes.interface import Model, Runtime, RuntimeSettings
from edgeconv.runtimes.runner import batches, join_batches
from edgeconv.runtimes.tensors import quantized, raw
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, RuntimeChoice, Signature, TensorSpec
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.embedding.plan import EmbedPlan, Published

    Array = NDArray[np.generic]

_SEED = 7
# A kernel of another processor may round one value the other way.
_STEPS = 1
# A share of the largest output, for sums in another order, and activations quantized at run time.
_FLOAT_SHARE, _DYNAMIC_SHARE = 1e-4, 3e-2
_FLOAT_ABSOLUTE = 1e-5
# Kernels of one model differ in the rounding of each layer; what they compute wrong is far off.
_ROOM_OF_KERNELS = 4
# A model is least sure of synthetic samples: for an int8 classifier of digits, tflite-runtime 2.14
# differs by more than eight levels on some of 300 such, and by at most two on 300 real ones.
_ROOM_IF_SYNTHETIC = 4


class GoldenRun:
    """Samples of a model, and its raw outputs: arrays (invokes * batch, *shape) by name."""

    def __init__(self, inputs: dict[str, Array], outputs: dict[str, Array], batch: int) -> None:
        self.inputs, self.outputs, self.batch = inputs, outputs, batch

    @property
    def count(self) -> int:
        """How many invokes."""
        return len(next(iter(self.inputs.values()))) // self.batch

    def shapes(self, signature: Signature) -> dict[str, tuple[int, ...]]:
        """The shape of each input in one invoke."""
        return {
            spec.name: self._of_invoke(spec, self.inputs[spec.name], 0).shape
            for spec in signature.inputs
        }

    def output_shapes(self, signature: Signature) -> dict[str, tuple[int, ...]]:
        """The shape of each output in one invoke."""
        return {
            spec.name: self._of_invoke(spec, self.outputs[spec.name], 0).shape
            for spec in signature.outputs
        }

    def bytes_of(self, spec: TensorSpec, array: Array, index: int) -> bytes:
        """The little-endian bytes of one invoke."""
        part = np.ascontiguousarray(self._of_invoke(spec, array, index))
        return part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()

    def _of_invoke(self, spec: TensorSpec, array: Array, index: int) -> Array:
        """One invoke of an input or output (n, *shape), as the model has it."""
        start = index * self.batch
        # A tensor without a batch dimension is there once for each sample.
        is_whole = array.ndim > len(spec.shape)
        return array[start] if is_whole else array[start : start + self.batch]


def run_samples(
    plan: EmbedPlan,
    samples: Samples,
    allowance: Allowance,
    *,
    afresh: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> GoldenRun:
    """Run `samples` in the kernels that are planned; `afresh` in a new child for each invoke.

    Raises `ToolFailed` where that fails or gives something else than LiteRT, and as the runtime
    does where it cannot be had.
    """
    runs = [
        _run_in(each, plan, samples, allowance, afresh=afresh, on_progress=on_progress)
        for each in dict.fromkeys((plan.kernels, LITERT))
    ]
    if plan.kernels != LITERT:
        with _litert_named(plan.kernels):
            _refuse_other_answers(runs[0], runs[1], plan)
    return runs[0]


def _run_in(
    kernels: str,
    plan: EmbedPlan,
    samples: Samples,
    allowance: Allowance,
    *,
    afresh: bool,
    on_progress: Callable[[str], None],
) -> GoldenRun:
    signature = plan.signature
    is_stacked = any(
        samples.arrays[spec.name].ndim > len(spec.shape) for spec in signature.inputs if spec.shape
    )
    batch = 1 if is_stacked else batch_size(signature.inputs)
    inputs = dict(raw(samples.arrays, signature.inputs))
    with scratch_directory() as scratch, _litert_named(kernels):
        settings = RuntimeSettings(
            scratch=scratch, threads=1, allowance=allowance, on_progress=on_progress
        )
        model = Model(file=plan.published.model, signature=signature.key or None, batch=batch)
        with open_runtime(RuntimeChoice(name=kernels), settings) as runtime:
            parts = batches(inputs, batch) if afresh else [inputs]
            runs = [(_run(runtime, model, part), len(next(iter(part.values())))) for part in parts]
            raw_outputs = join_batches([run for run, _ in runs], [count for _, count in runs])
    outputs = {spec.name: quantized(raw_outputs[spec.name], spec) for spec in signature.outputs}
    return GoldenRun(inputs, outputs, batch)


@contextlib.contextmanager
def _litert_named(kernels: str) -> Iterator[None]:
    """Where other kernels cannot be had, or do not run the model, the hint names LiteRT's."""
    try:
        yield
    except EdgeconvError as error:
        if kernels != LITERT:
            other = "take LiteRT's outputs, with a tolerance: --option golden=litert"
            error.hint = f"{error.hint}; or {other}" if error.hint else other
        raise


def _run(runtime: Runtime, model: Model, inputs: dict[str, Array]) -> dict[str, Array]:
    with contextlib.closing(runtime.start(model)) as session:
        return session.run(inputs)


def golden_samples(
    plan: EmbedPlan, *, allow_code: bool, allowance: Allowance
) -> tuple[Samples, tuple[str, ...]]:
    """The samples of the planned invokes, and the names of their classes where the data has any.

    They are chosen from the data by a fixed seed, and prepared as the manifest says; synthetic
    without data. Raises `InputRefused` for data that do not fit the model.
    """
    # As samples have them: float32 where the model is quantized.
    inputs = tuple(
        replace(spec, dtype="float32", scale=(), zero_point=()) if spec.scale else spec
        for spec in plan.signature.inputs
    )
    data = plan.data
    count = plan.vectors * batch_size(inputs)
    if not data:
        return synthetic_samples(inputs, count, _SEED), ()
    with opened_samples(
        data,
        inputs,
        preprocessing=plan.published.artifact.preprocessing,
        allow_code=allow_code,
        labels=LabelUse(
            needs="if classes", outputs=tuple(spec.name for spec in plan.signature.outputs)
        ),
        allowance=allowance,
    ) as opened:
        batch = batch_size(opened.inputs)
        count = min(plan.vectors * batch, opened.count // batch * batch)
        if not count:
            raise InputRefused(f"{data} has fewer samples than one batch of the model")
        return seeded_choice(opened, count), opened.class_names


def golden(run: GoldenRun, plan: EmbedPlan) -> Golden:
    """The vectors of a run, and how much the outputs of other runtimes may differ."""
    published, signature, data = plan.published, plan.signature, plan.data
    room = 1 if data else _ROOM_IF_SYNTHETIC
    steps = output_steps(published.model.read_bytes(), signature.key)

    def tolerance(spec: TensorSpec) -> Tolerance:
        values, step = run.outputs[spec.name], steps.get(spec.name, 0.0)
        exact = _no_level(values, step) if plan.kernels == MICRO else None
        return exact or _tolerance(spec, values, step, published, room)

    return Golden(
        vectors=tuple(_vector(run, signature, index) for index in range(run.count)),
        tolerances=tuple(map(tolerance, signature.outputs)),
        source=located(data).kind if data else "synthetic",
        kernels=plan.kernels,
    )


def _refuse_other_answers(run: GoldenRun, here: GoldenRun, plan: EmbedPlan) -> None:
    """Raise `ToolFailed` for kernels that compute something else than LiteRT: `here` is its run.

    Golden vectors of such kernels would have a self-test pass on them.
    """
    published, signature = plan.published, plan.signature
    steps = output_steps(published.model.read_bytes(), signature.key)
    for spec in signature.outputs:
        values, expected = run.outputs[spec.name], here.outputs[spec.name]
        allowed = _tolerance(
            spec, expected, steps.get(spec.name, 0.0), published, _ROOM_IF_SYNTHETIC
        )
        largest = _largest_difference(values, expected)
        if largest > _ROOM_OF_KERNELS * max(allowed.steps, allowed.absolute):
            raise ToolFailed(
                f"{plan.kernels} computes different results than LiteRT: output {spec.name!r} "
                f"differs by {largest:.3g}",
                hint="convert with --batch 1 and --target-runtime tflite-micro, which finds "
                "a file that its kernels compute correctly",
            )


def _largest_difference(values: Array, expected: Array) -> float:
    if values.shape != expected.shape:
        return math.inf
    if values.dtype.kind not in "iuf":
        return 0.0 if np.array_equal(values, expected) else math.inf
    a, b = (np.asarray(array, np.float64) for array in (values, expected))
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(apart, nan=math.inf).max(initial=0.0))


def _no_level(values: Array, step: float) -> Tolerance | None:
    """The tolerance that lets no integer differ; None for floats that no integer is behind."""
    if values.dtype.kind != "f":
        return Tolerance()
    return Tolerance(absolute=step / 4) if step else None


def _vector(run: GoldenRun, signature: Signature, index: int) -> Vector:
    return Vector(
        inputs=tuple(run.bytes_of(spec, run.inputs[spec.name], index) for spec in signature.inputs),
        outputs=tuple(
            run.bytes_of(spec, run.outputs[spec.name], index) for spec in signature.outputs
        ),
    )


def _tolerance(
    spec: TensorSpec, values: Array, step: float, published: Published, room: int
) -> Tolerance:
    """How much the output of another runtime may differ.

    One level of an output's integers, or twice the largest error of the quantization, as verified,
    where that is more: two implementations that differ as much from the float model differ at most
    twice as much from each other. A float may differ by a share of the largest output too. For
    integers the tolerance is multiplied by `room`.
    """
    apart = 2 * _own_error(spec.name, published)
    if values.dtype.kind != "f":
        if not spec.scale or spec.dtype not in LIMITS:
            return Tolerance()
        return Tolerance(steps=room * max(_STEPS, round(apart / spec.scale[0])))
    dynamic = published.artifact.recipe.name == "dynamic"
    # Infinities and NaN must be equal.
    finite = np.abs(values.astype(np.float64)[np.isfinite(values)])
    largest = float(np.max(finite, initial=0.0))
    share = (_DYNAMIC_SHARE if dynamic else _FLOAT_SHARE) * largest
    return Tolerance(absolute=_FLOAT_ABSOLUTE + max(share, room * step, room * apart))


def _own_error(output: str, published: Published) -> float:
    """The largest error of an output against the float model, 0 for a float model itself."""
    artifact = published.artifact
    if artifact.recipe.name == "float32":
        return 0.0
    errors = [
        error.max_abs_error for error in artifact.verification.outputs if error.output == output
    ]
    return max(filter(math.isfinite, errors), default=0.0)
