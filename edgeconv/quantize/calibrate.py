"""Activation ranges of a float graph over calibration samples, in one pass.

The ranges are true minima and maxima unless an exponential moving average is asked
for: the quantiser's own default is the average, which clips (Jacob et al. 2018,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", section 3.1, propose it for training, where ranges drift; after training
they do not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

# No activation of a working model is this large; a scale made from it says nothing.
MAX_MAGNITUDE = 1e15
_INT32_MAX = 2**31 - 1


class Feed:
    """Samples as the calibrator wants them: re-iterable, of known length, one batch each.

    `arrays` are by input name, (n, *sample) each.
    """

    def __init__(self, arrays: dict[str, NDArray[np.generic]], batch: int) -> None:
        self._arrays = arrays
        self._batch = batch
        self._count = len(next(iter(arrays.values()))) // batch

    @property
    def samples(self) -> int:
        """How many samples there are, in whole batches."""
        return self._count * self._batch

    def parted(self, held_back: int) -> tuple[Feed, Feed]:
        """All but the last `held_back` samples, and those, in whole batches.

        Each has one batch at least.
        """
        batches = min(max(1, held_back // self._batch), self._count - 1)
        end = (self._count - batches) * self._batch
        return (
            Feed({name: array[:end] for name, array in self._arrays.items()}, self._batch),
            Feed({name: array[end:] for name, array in self._arrays.items()}, self._batch),
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of a batch of each input."""
        return {name: (self._batch, *array.shape[1:]) for name, array in self._arrays.items()}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        import numpy as np

        from edgeconv.data.strings import as_tensorflow_takes

        for index in range(self._count):
            part = slice(index * self._batch, (index + 1) * self._batch)
            batch = as_tensorflow_takes({name: a[part] for name, a in self._arrays.items()})
            yield {name: np.ascontiguousarray(value) for name, value in batch.items()}


def activation_ranges(
    float_model: bytes,
    feeds: dict[str, Feed],
    *,
    calibration_range: Literal["minmax", "ema"],
    threads: int,
) -> dict[str, Any]:
    """The range of every activation tensor by name: {"min": array, "max": array}.

    `feeds` has the samples by signature. The runtime's own profiler
    collects the ranges in C++. Raises `InputRefused` for a range that is not finite
    or implausibly large.
    """
    from ai_edge_quantizer import calibrator, recipe, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    update = {"minmax": qsv_utils.min_max_update, "ema": qsv_utils.moving_average_update}
    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe.static_wi8_ai8())
    runner = calibrator.Calibrator(
        float_model,
        num_threads=threads,
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        qsv_update_func=update[calibration_range],
    )
    runner.calibrate(feeds, manager)
    ranges: dict[str, Any] = runner.get_model_qsvs()
    _refuse_senseless(ranges)
    return ranges


def _refuse_senseless(ranges: dict[str, Any]) -> None:
    import numpy as np

    for name, limits in ranges.items():
        values: Sequence[float] = [
            float(v) for bound in ("min", "max") for v in np.ravel(limits[bound])
        ]
        if not np.isfinite(values).all() or max(map(abs, values)) > MAX_MAGNITUDE:
            raise InputRefused(
                f"calibration gives tensor {name!r} the range {min(values):g} … {max(values):g}",
                hint="look for samples that the model was not made for, or a layer that overflows",
            )


def widened(
    ranges: dict[str, Any], bounds: dict[str, float], *, bits: int
) -> tuple[dict[str, Any], list[str]]:
    """`ranges` with those made wide enough that the runtime can express the tensor's bound.

    A kernel with a fused RELU6 computes 6 / scale as an int32, and refuses a model in which
    that overflows: a layer that hardly ever fires, as in an untrained network. `bounds`
    (of `edgeconv.tflite.activation_bounds`) has the bound by tensor name. Returns the
    ranges, and the names of those that were widened.
    """
    import numpy as np

    levels = 2 ** (bits - 1) - 1 if bits == 16 else 2**bits - 1
    wide, names = dict(ranges), []
    for name, bound in bounds.items():
        # Twice the least, so that rounding of the scale to float32 cannot undo it.
        least = 2 * bound * levels / _INT32_MAX
        limits = ranges.get(name)
        if limits and float(np.max(limits["max"]) - min(0.0, np.min(limits["min"]))) < least:
            wide[name] = {**limits, "max": np.maximum(limits["max"], least)}
            names.append(name)
    return wide, names
