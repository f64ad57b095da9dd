"""Kernels with many zeros, or with few distinct values, before quantization-aware training.

Both fine-tune the float model and restore the structure of the kernels after each step. That is
done outside of the step, the same on all replicas, and so works under every strategy; tfmot's
wrappers assign within the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgeconv.tf.lazy import tf, tf_keras
from edgeconv.tf.qat.convolutions import times_channels
from edgeconv.tf.qat.flat import set_names
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import class_name, is_channelwise_norm
from edgeconv.tf.qat.uses import Uses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.tf.qat.graph import LayerUse

# A depthwise kernel has few numbers, and each of them counts; tfmot skips it too.
_KERNELS = {
    **dict.fromkeys(("Dense", "Conv1D", "Conv2D", "Conv1DTranspose", "Conv2DTranspose"), "kernel"),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), "pointwise_kernel"),
}
# The share of the steps in which zeros are added; in the rest the other weights adapt.
_RAMP = 0.75
_MASKS = 100
_LLOYD_STEPS = 100


class KernelConstraint(Protocol):
    """A structure that fine-tuning imposes on the kernels of a model."""

    def prepare(self, model: Any) -> None:
        """Called before each epoch, and where a training is resumed."""

    def at_step(self, step: int, model: Any) -> None:
        """Called after each step, counted from 1 through the whole training."""


def float_copy(model: Any, *, for_clusters: bool = False) -> Any:
    """A copy of a flat model to fine-tune, created in the scope of its strategy.

    `for_clusters` changes the signs of channels, in kernel and batch normalization, until no factor
    is negative: folding such a factor doubles the number of distinct weights.
    """
    copy = tf_keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    set_names(copy, model.input_names, model.output_names)
    if for_clusters:
        _make_factors_positive(copy)
    return copy


def _make_factors_positive(model: Any) -> None:
    uses = Uses(model)

    def turn(use: LayerUse) -> Any:
        layer, after = use.operation, uses.follower(use)
        # Those into which a batch normalization is folded.
        folds = class_name(layer) in ("Conv1D", "Conv2D") and uses.calls[layer.name] == 1
        if not folds or after is None or not is_channelwise_norm(after.operation):
            return use.outputs
        norm = after.operation
        if norm.gamma is not None:
            signs = np.where(norm.gamma.numpy() < 0, -1.0, 1.0).astype(np.float32)
            layer.kernel.assign(times_channels(layer.kernel.numpy(), signs, class_name(layer)))
            for weight in (*([layer.bias] if layer.use_bias else []), norm.gamma, norm.moving_mean):
                weight.assign(weight.numpy() * signs)
        return use.outputs

    walk(model, model.inputs, turn)


class Pruning:
    """A share of zeros in each kernel, where its numbers are smallest.

    The share rises to `share` along a cubic over the first three quarters of `steps` (Zhu and
    Gupta 2017, "To prune, or not to prune", equation 1).
    """

    def __init__(self, share: float, steps: int) -> None:
        self._share, self._ramp_steps = share, max(int(steps * _RAMP), 1)
        self._every = max(self._ramp_steps // _MASKS, 1)
        self._masks: dict[str, Any] = {}

    def share_at(self, step: int) -> float:
        """The share of zeros after a step."""
        left = max(1.0 - step / self._ramp_steps, 0.0)
        return self._share * (1.0 - left**3)

    def prepare(self, model: Any) -> None:
        """See `KernelConstraint`."""

    def at_step(self, step: int, model: Any) -> None:
        """See `KernelConstraint`."""
        ramping = step <= self._ramp_steps and (step % self._every == 0)
        anew = ramping or step == self._ramp_steps or not self._masks
        for name, kernel in kernels_of(model).items():
            if anew:
                self._masks[name] = tf.constant(_largest(kernel.numpy(), self.share_at(step)))
            kernel.assign(kernel * self._masks[name])


def _largest(kernel: NDArray[Any], share: float) -> NDArray[Any]:
    """A mask with 0 for the share of a kernel's numbers that are smallest, and 1 elsewhere."""
    count = round(share * kernel.size)
    mask = np.ones(kernel.size, kernel.dtype)
    mask[np.argsort(np.abs(kernel).reshape(-1), kind="stable")[:count]] = 0
    return mask.reshape(kernel.shape)


class Clustering:
    """At most `clusters` distinct numbers in each kernel, found by k-means.

    Which numbers share a value is decided before the first step; the shared values are trained,
    each by the mean of its gradients (Han, Mao and Dally 2016, "Deep compression", section 3).
    With `keep_zeros`, zero is one of them.
    """

    def __init__(self, clusters: int, *, keep_zeros: bool = False) -> None:
        self._clusters, self._keep_zeros = clusters, keep_zeros
        self._assigned: dict[str, tuple[Any, int]] = {}
        self._masks: dict[str, Any] = {}

    def prepare(self, model: Any) -> None:
        """See `KernelConstraint`."""
        if not self._assigned:
            for name, kernel in kernels_of(model).items():
                self._assign(name, kernel.numpy())
            self.at_step(0, model)

    def _assign(self, name: str, kernel: NDArray[Any]) -> None:
        flat = kernel.reshape(-1)
        values, assigned = np.unique(flat, return_inverse=True)
        zeros = flat == 0 if self._keep_zeros else np.zeros(flat.shape, bool)
        if len(values) > self._clusters:
            # Otherwise the training is resumed, and has its clusters.
            others = assign_clusters(flat[~zeros], self._clusters - bool(zeros.any()))
            assigned = np.zeros(flat.shape, np.int32)
            assigned[~zeros] = others + bool(zeros.any())
        self._assigned[name] = tf.constant(assigned.astype(np.int32)), int(assigned.max()) + 1
        self._masks[name] = tf.constant((~zeros).astype(kernel.dtype).reshape(kernel.shape))

    def at_step(self, step: int, model: Any) -> None:  # noqa: ARG002
        """See `KernelConstraint`."""
        for name, kernel in kernels_of(model).items():
            assigned, count = self._assigned[name]
            means = tf.math.unsorted_segment_mean(tf.reshape(kernel, [-1]), assigned, count)
            shared = tf.reshape(tf.gather(means, assigned), kernel.shape)
            kernel.assign(shared * self._masks[name])


def assign_clusters(values: NDArray[Any], clusters: int) -> NDArray[Any]:
    """Which of at most `clusters` clusters each number of `values`, (n,), belongs to: int32 (n,).

    Lloyd's algorithm, from centers spread evenly between the smallest and the largest number, which
    keeps the large ones apart (Han, Mao and Dally 2016, section 3.2). Clusters are numbered by
    their centers, without gaps.
    """
    if not len(values):
        return np.zeros(0, np.int32)
    centers = np.linspace(values.min(), values.max(), clusters, dtype=np.float64)
    nearest = np.zeros(len(values), np.int64)
    for _ in range(_LLOYD_STEPS):
        nearest = np.searchsorted((centers[1:] + centers[:-1]) / 2, values)
        sizes = np.bincount(nearest, minlength=len(centers))
        sums = np.bincount(nearest, weights=values, minlength=len(centers))
        moved = sums[sizes > 0] / sizes[sizes > 0]
        if len(moved) == len(centers) and np.allclose(moved, centers, rtol=1e-7, atol=0.0):
            break
        centers = moved
    return np.unique(nearest, return_inverse=True)[1].astype(np.int32)


def kernels_of(model: Any) -> dict[str, Any]:
    """The kernels that are pruned and clustered, as variables by the name of their layer."""
    return {
        layer.name: getattr(layer, _KERNELS[class_name(layer)])
        for layer in model.layers
        if class_name(layer) in _KERNELS
    }
