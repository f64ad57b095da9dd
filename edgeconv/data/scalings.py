"""The scales that models are trained with: `doctor` tries them, and suspect samples are tried in
them.
"""

from __future__ import annotations

from typing import NamedTuple

# Of ImageNet's pixels in 0 to 1, as torchvision and Keras's mode "torch" have them.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Of ImageNet's pixels in 0 to 255, as Caffe and Keras's mode "caffe" have it. In RGB too.
_CAFFE_MEAN = (123.68, 116.779, 103.939)


class Scaling(NamedTuple):
    """What values in 0 to 1 become: (x * span - mean) / std. `mean`, `std` in RGB order."""

    name: str
    span: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = ()

    def after(self, other: Scaling) -> Scaling:
        """What values in the `other` scale, which has one mean and no deviation, become by this."""
        factor = self.span / other.span
        mean = tuple(round(value - other.mean[0] * factor, 6) for value in self.mean)
        return Scaling(self.name, factor, mean, self.std)

    @property
    def steps(self) -> str:
        """The steps of `--preprocess` that do it: "scale=1/127.5&mean=1"."""
        inverse = 1 / self.span
        scale = f"{self.span:g}" if inverse <= 2 else f"1/{inverse:g}"
        parts = [f"scale={scale}"] if self.span != 1 else []
        parts += [f"mean={_listed(self.mean)}"] if any(self.mean) else []
        return "&".join([*parts, *([f"std={_listed(self.std)}"] if self.std else [])])


EVERYTHING = (Scaling("0 to 1", 1.0), Scaling("−1 to 1", 2.0, (1.0,)))
WAVES = (Scaling("−1 to 1", 2.0, (1.0,)),)
PIXELS = (*EVERYTHING, Scaling("0 to 255", 255.0))
COLORS = (
    *PIXELS,
    Scaling("ImageNet mean and deviation", 1.0, _IMAGENET_MEAN, _IMAGENET_STD),
    Scaling("Caffe mean", 255.0, _CAFFE_MEAN),
)


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
