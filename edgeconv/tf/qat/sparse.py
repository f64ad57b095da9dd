"""Kernels with many zeros, or with few different numbers, before quantization-aware training.

Both are fine-tuning of the float model in which, after each step, the kernels are put back to
what they are to be. That is done from outside of the step, alike on all replicas, so that it
works under every strategy; tfmot's own wrappers assign within the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from edgeconv.tf.qat.convolutions import times_channels
from edgeconv.tf.qat.flat import name_ends
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import class_name, is_channelwise_norm
from edgeconv.tf.qat.uses import Uses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.tf.qat.graph import LayerUse

# A depthwise kernel has few numbers, and each of them counts; so tfmot leaves it alone too.
_KERNELS = {
    **dict.fromkeys(("Dense", "Conv1D", "Conv2D", "Conv1DTranspose", "Conv2DTranspose"), "kernel"),
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), "pointwise_kernel"),
}
# The share of the steps in which the zeros are made; in the rest the others adapt to them.
_RAMP = 0.75
_MASKS = 100
_LLOYD_STEPS = 100


class KernelConstraint(Protocol):
    """What a fine-tuning brings into the kernels of a model, and holds there."""

    def prepare(self, model: Any) -> None:
        """To be called before each epoch, and where a training is taken up again."""

    def at_step(self, step: int, model: Any) -> None:
        """To be called after each step, counted from 1 through the whole training."""


def float_copy(model: Any, *, for_clusters: bool = False) -> Any:
    """A copy to fine-tune of a flat model, to be made in the scope of its strategy.

    `for_clusters` turns the signs of channels around, in kernel and batch normalization, so
    that no factor is negative: it would double the number of different weights when folded.
    """
    import tf_keras

    copy = tf_keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    name_ends(copy, model.input_names, model.output_names)
    if for_clusters:
        _make_factors_positive(copy)
    return copy


def _make_factors_positive(model: Any) -> None:
    import numpy as np

    uses = Uses(model)

    def turn(use: LayerUse) -> Any:
        layer, after = use.operation, uses.follower(use)
        folds = class_name(layer) in _TURNED and uses.calls[layer.name] == 1
        if folds and after is not None and is_channelwise_norm(after.operation):
            norm = after.operation
            if norm.gamma is not None:
                signs = np.where(norm.gamma.numpy() < 0, -1.0, 1.0).astype(np.float32)
                _turn(layer, norm, signs)
        return use.outputs

    walk(model, model.inputs, turn)


# Those into which a batch normalization is folded.
_TURNED = frozenset({"Conv1D", "Conv2D"})


def _turn(layer: Any, norm: Any, signs: NDArray[Any]) -> None:
    layer.kernel.assign(times_channels(layer.kernel.numpy(), signs, class_name(layer)))
    if layer.use_bias:
        layer.bias.assign(layer.bias.numpy() * signs)
    norm.gamma.assign(norm.gamma.numpy() * signs)
    norm.moving_mean.assign(norm.moving_mean.numpy() * signs)


class Pruning:
    """A share of zeros in each kernel, where its numbers are smallest.

    The share rises to `share` along a cubic over the first three quarters of `steps` (Zhu and
    Gupta 2017, "To prune, or not to prune", equation 1), and then stays as it is.
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
        import tensorflow as tf

        ramping = step <= self._ramp_steps and (step % self._every == 0)
        anew = ramping or step == self._ramp_steps or not self._masks
        for name, kernel in kernels_of(model).items():
            if anew:
                self._masks[name] = tf.constant(_largest(kernel.numpy(), self.share_at(step)))
            kernel.assign(kernel * self._masks[name])


def _largest(kernel: NDArray[Any], share: float) -> NDArray[Any]:
    """1 where a kernel is to stay and 0 where it is not, `share` of it, its smallest numbers."""
    import numpy as np

    count = round(share * kernel.size)
    mask = np.ones(kernel.size, kernel.dtype)
    mask[np.argsort(np.abs(kernel).reshape(-1), kind="stable")[:count]] = 0
    return mask.reshape(kernel.shape)


class Clustering:
    """At most `clusters` different numbers in each kernel, found by k-means.

    Which number shares its value with which is settled before the first step; the shared values
    are trained, each by the mean of its gradients (Han, Mao and Dally 2016, "Deep compression",
    section 3). With `keep_zeros`, zero is one of them and stays it.
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
        import numpy as np
        import tensorflow as tf

        flat = kernel.reshape(-1)
        values, assigned = np.unique(flat, return_inverse=True)
        zeros = flat == 0 if self._keep_zeros else np.zeros(flat.shape, bool)
        if len(values) > self._clusters:
            # Else it is taken up again, and has its clusters.
            others = clustered(flat[~zeros], self._clusters - bool(zeros.any()))
            assigned = np.zeros(flat.shape, np.int32)
            assigned[~zeros] = others + bool(zeros.any())
        self._assigned[name] = tf.constant(assigned.astype(np.int32)), int(assigned.max()) + 1
        self._masks[name] = tf.constant((~zeros).astype(kernel.dtype).reshape(kernel.shape))

    def at_step(self, step: int, model: Any) -> None:  # noqa: ARG002
        """See `KernelConstraint`."""
        import tensorflow as tf

        for name, kernel in kernels_of(model).items():
            assigned, count = self._assigned[name]
            means = tf.math.unsorted_segment_mean(tf.reshape(kernel, [-1]), assigned, count)
            shared = tf.reshape(tf.gather(means, assigned), kernel.shape)
            kernel.assign(shared * self._masks[name])


def clustered(values: NDArray[Any], clusters: int) -> NDArray[Any]:
    """Which of at most `clusters` clusters each of some numbers, (n,), belongs to, int (n,).

    Lloyd's algorithm, from centers spread evenly between the least and the largest number,
    which keeps the large ones apart (Han, Mao and Dally 2016, section 3.2). Clusters are
    numbered upwards, without gaps.
    """
    import numpy as np

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
    found = {}
    for layer in model.layers:
        attribute = _KERNELS.get(class_name(layer))
        if attribute is not None:
            found[layer.name] = getattr(layer, attribute)
    return found


def sparsity(model: Any) -> float:
    """The share of zeros in the kernels of a float model; 0 where there are none."""
    import numpy as np

    kernels = [kernel.numpy() for kernel in kernels_of(model).values()]
    size = sum(kernel.size for kernel in kernels)
    return sum(int(np.sum(kernel == 0)) for kernel in kernels) / size if size else 0.0


def distinct_weights(model: Any) -> int:
    """The largest number of different weights that a kernel of a float model has."""
    import numpy as np

    return max((len(np.unique(one.numpy())) for one in kernels_of(model).values()), default=0)
