"""Whether emulated kernels give the bits of those of this processor, as notes of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.runtimes.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from edgeconv.measure.models import MeasuredModel
    from edgeconv.types import TensorSpec

    Outputs = Mapping[str, NDArray[np.generic]]


def identity_notes(models: Sequence[MeasuredModel]) -> tuple[str, ...]:
    """A note for each emulated row whose file ran in this environment's LiteRT too."""
    here = {
        _file(model): model
        for model in models
        if isinstance(model.runtime, LocalRuntime) and model.runtime.is_present_litert
    }
    emulated = [m for m in models if isinstance(m.runtime, LocalRuntime) and m.runtime.is_emulated]
    pairs = [(there, here.get(_file(there))) for there in emulated]
    return tuple(
        f"{there.name}: {difference(there.outputs, native.outputs, _outputs_of(there))}"
        for there, native in pairs
        if native is not None and there.outputs and native.outputs
    )


def difference(there: Outputs, here: Outputs, specs: Sequence[TensorSpec] = ()) -> str:
    """How the outputs of other kernels, (n, ...) by name, differ from those of this processor.

    Of quantized outputs, which have a scale in `specs`, the largest difference is in levels.
    """
    scales = {spec.name: spec.scale[0] for spec in specs if len(spec.scale) == 1}
    names = [name for name in there if name in here and there[name].shape == here[name].shape]
    count = sum(there[name].size for name in names)
    differing, texts = 0, []
    for name in names:
        a, b = (np.asarray(side[name]) for side in (there, here))
        is_equal = (a == b) | ((a != a) & (b != b))
        if is_equal.all():
            continue
        differing += int((~is_equal).sum())
        if np.issubdtype(a.dtype, np.number):
            largest = float(np.abs(a.astype(np.float64) - b.astype(np.float64))[~is_equal].max())
            scale = scales.get(name)
            texts.append(f"{largest / scale:.0f} levels" if scale else f"{largest:.2g}")
    if not differing:
        return f"identical to this processor's, bit for bit, in all {count:,} values"
    most = f"; the largest difference is {', '.join(texts)}" if texts else ""
    return f"{differing:,} of {count:,} values differ from this processor's{most}"


def _file(model: MeasuredModel) -> str:
    return str(model.model_file.file) if model.model_file else ""


def _outputs_of(model: MeasuredModel) -> tuple[TensorSpec, ...]:
    return model.model_file.signature.outputs if model.model_file else ()
