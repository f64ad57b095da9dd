"""What the layers of a float graph give on the samples: the same for every file made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.quantize.refine.moments import layer_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.quantize.refine.layers import RefinableLayer
    from edgeconv.quantize.refine.moments import Geometry
    from edgeconv.quantize.refine.running import SampleRun

    Values = NDArray[np.float32]
    # The operator, whether its rows are for means, and how many samples there are.
    Key = tuple[int, bool, int]

# What is kept of one graph; other layers are computed again for each file.
_MOST_BYTES = 2**28


class KeptOutputs:
    """Outputs of layers that are kept, up to a size."""

    def __init__(self) -> None:
        self._parts: dict[Key, tuple[Values, ...] | None] = {}
        self._size_bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._parts

    def __getitem__(self, key: Key) -> tuple[Values, ...] | None:
        return self._parts[key]

    def keep(self, key: Key, parts: tuple[Values, ...] | None) -> None:
        """Keep them, if there is room."""
        size_bytes = sum(part.nbytes for part in parts or ())
        if self._size_bytes + size_bytes <= _MOST_BYTES:
            self._parts[key] = parts
            self._size_bytes += size_bytes


class FloatOutputs:
    """The outputs of a float graph's layers, before bias and activation, on `samples` samples.

    `run` brings the graph from one of the operators `numbers` to the next, wherever these outputs
    are not among the `kept` ones.
    """

    def __init__(
        self, run: SampleRun, numbers: Sequence[int], samples: int, kept: KeptOutputs
    ) -> None:
        self._run = run
        self._numbers = numbers
        self._samples = samples
        self._kept = kept

    def of(
        self,
        layer: RefinableLayer,
        geometry: Geometry,
        weights: NDArray[np.float64],
        *,
        means: bool,
    ) -> tuple[Values, ...] | None:
        """Rows of a layer's outputs, (groups, rows, channels), a part of the samples at a time.

        `weights` are the layer's, (groups, channels, d), and `means` says if the rows are few, for
        means. None where no sample decides the layer's input.
        """
        key = (layer.floating.number, means, self._samples)
        if key in self._kept:
            return self._kept[key]
        self._advance(layer.floating.number)
        inputs = self._run.quantity(layer.floating.source)
        parts = None
        if inputs is not None:
            parts = tuple(layer_outputs(inputs, geometry, weights, means=means))
        self._kept.keep(key, parts)
        return parts

    def _advance(self, number: int) -> None:
        # In the same steps wherever they start: a longer piece of the graph may round otherwise.
        for each in self._numbers:
            if self._run.position < each < number:
                self._run.advance(each)
        self._run.advance(number)
