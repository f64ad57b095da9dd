"""The functional graph of a Keras 3 or tf_keras model, walked node by node into nested models."""

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from edgeconv.tf.keras_io import graph_of, inputs_of
from edgeconv.tf.lazy import tf
from edgeconv.tf.qat.kinds import (
    activation_of,
    class_name,
    is_channelwise_norm,
    is_rectifier,
    operation_of,
)
from edgeconv.types.errors import InputRefused


class LayerUse(NamedTuple):
    """One use of a layer or operation in a model.

    `path` is its name after the names of the nested models that it is in. `args` and `kwargs` are
    the call's, without `training` and None; `outputs` are the symbolic tensors of its results in
    the walked model. `frozen`: it, or a model it is in, is called with training=False;
    `always_trains`: with training=True.
    """

    operation: Any
    path: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Any, ...]
    frozen: bool
    always_trains: bool


def walk(
    graph: Any,
    inputs: Sequence[Any],
    apply: Callable[[LayerUse], Any],
    *,
    path: tuple[str, ...] = (),
    frozen: bool = False,
) -> list[Any]:
    """The outputs of a graph for `inputs`, where `apply` computes the results of each use.

    The values may be tensors, arrays or symbolic tensors of another framework. Nested models are
    walked where they are used; a node is visited before those that take its results. Raises
    `InputRefused` for a nested model that is called with more than its inputs.
    """
    values = {id(tensor): value for tensor, value in zip(graph.inputs, inputs, strict=True)}

    def filled(argument: Any) -> Any:
        return tf.nest.map_structure(lambda leaf: values.get(id(leaf), leaf), argument)

    by_depth = graph._nodes_by_depth
    for node in (node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]):
        if node.is_input:
            continue
        operation, args, kwargs, outputs = _parts(node)
        kwargs = filled(kwargs)
        training = kwargs.pop("training", None)
        use = LayerUse(
            operation=operation,
            path=(*path, operation.name),
            args=tuple(filled(args)),
            kwargs={key: value for key, value in kwargs.items() if value is not None},
            outputs=outputs,
            frozen=training is False or (frozen and training is None),
            always_trains=training is True,
        )
        inner = graph_of(operation)
        if inner is None:
            results = tf.nest.flatten(apply(use))
        else:
            if use.args[1:] or use.kwargs.keys() - {"inputs"}:
                raise InputRefused(
                    f"the nested model {'/'.join(use.path)!r} is called with its own mask",
                    hint="call it without a mask; or convert the model without quantization-aware "
                    "training (--to int8)",
                )
            tensors = _flat_inputs(inner, use.args[0] if use.args else use.kwargs["inputs"])
            results = walk(inner, tensors, apply, path=use.path, frozen=use.frozen)
        values.update((id(tensor), value) for tensor, value in zip(outputs, results, strict=True))
    return [values[id(tensor)] for tensor in graph.outputs]


def _parts(node: Any) -> tuple[Any, Any, dict[str, Any], tuple[Any, ...]]:
    if hasattr(node, "arguments"):
        return node.operation, node.arguments.args, _chosen_kwargs(node), tuple(node.outputs)
    return node.layer, node.call_args, node.call_kwargs, tuple(tf.nest.flatten(node.outputs))


def _chosen_kwargs(node: Any) -> dict[str, Any]:
    """The keyword arguments that the model's author passed to a layer of Keras 3.

    Keras stores others as well: defaults of `training`, and the masks that come with tensors. A
    training=True does not count: a model that serves overrules it.
    """
    kwargs = dict(node.arguments.kwargs)
    if "training" in kwargs:
        default = inspect.signature(node.operation.call).parameters.get("training")
        if kwargs["training"] is True or (default and kwargs["training"] is default.default):
            del kwargs["training"]
    leaves = tf.nest.flatten((node.arguments.args, kwargs))
    masks = [getattr(leaf, "_keras_mask", None) for leaf in leaves]
    carried = [mask for mask in masks if mask is not None]
    for key in [key for key in kwargs if key.endswith("mask")]:
        own = [mask for mask in tf.nest.flatten(kwargs[key]) if mask is not None]
        if all(any(_same(mask, other) for other in carried) for mask in own):
            del kwargs[key]
    return kwargs


def _same(tensor: Any, other: Any) -> bool:
    """Whether two symbolic tensors of Keras 3 are the same operations of the same tensors.

    In a loaded model, a stored mask is another tensor than the one that the loading computed.
    """
    if tensor is other:
        return True
    if not (hasattr(tensor, "_keras_history") and hasattr(other, "_keras_history")):
        return isinstance(tensor, (int, float)) and tensor == other
    first, second = tensor._keras_history.operation, other._keras_history.operation
    if type(first) is not type(second) or not type(first).__module__.startswith("keras.src.ops."):
        return False
    nodes = (
        first._inbound_nodes[tensor._keras_history.node_index],
        second._inbound_nodes[other._keras_history.node_index],
    )
    arguments = [tf.nest.flatten((node.arguments.args, node.arguments.kwargs)) for node in nodes]
    return len(arguments[0]) == len(arguments[1]) and all(map(_same, *arguments))


def _flat_inputs(graph: Any, values: Any) -> list[Any]:
    """The values that a nested model is called with, in the order of its inputs."""
    structure = getattr(graph, "_inputs_struct", getattr(graph, "_nested_inputs", None))
    if isinstance(values, dict) and not isinstance(structure, dict):
        return [values[name] for name in inputs_of(graph)]
    return list(tf.nest.flatten(values))


_TFMOT_ACTIVATIONS = frozenset(
    {"relu", "swish", "gelu", "relu6", "linear", "softmax", "sigmoid", "tanh"}
)
# Whether an operation is the swish, by its name.
_HARD = {"hardsigmoid": False, "hardsilu": True, "hardswish": True}
_SIX = 6.0
_THREE = 3.0


class Uses:
    """All uses of layers in a model, by who takes their outputs."""

    def __init__(self, model: Any) -> None:
        self.in_order: list[LayerUse] = []
        self.calls: Counter[str] = Counter()
        self._takers: dict[int, list[LayerUse]] = {}
        self._first_taken: dict[int, Any] = {}
        outputs = walk(model, model.inputs, self._note)
        self._leaving = {id(tensor) for tensor in outputs}

    def _note(self, use: LayerUse) -> Any:
        self.in_order.append(use)
        self.calls[use.operation.name] += 1
        self._first_taken[id(use.outputs[0])] = use.args[0] if use.args else None
        for tensor in tf.nest.flatten((use.args, use.kwargs)):
            self._takers.setdefault(id(tensor), []).append(use)
        return use.outputs

    def follower(self, use: LayerUse) -> LayerUse | None:
        """The only use that takes the output of a use; None for others, or a model's output."""
        if len(use.outputs) != 1 or id(use.outputs[0]) in self._leaving:
            return None
        takers = self._takers.get(id(use.outputs[0]), [])
        return takers[0] if len(takers) == 1 else None

    def norm_after(self, use: LayerUse) -> LayerUse | None:
        """The use of a channelwise batch normalization that is part of a layer's operator.

        In a tower that several inputs share, it follows that layer wherever this is used, and
        nothing else.
        """
        same = [each for each in self.in_order if each.operation is use.operation]
        followers = [self.follower(each) for each in same]
        after = self.follower(use)
        if after is None or not is_channelwise_norm(after.operation):
            return None
        norms = [each for each in followers if each and each.operation is after.operation]
        is_whole = len(norms) == len(followers) == self.calls[after.operation.name]
        return after if is_whole else None

    def taken(self, use: LayerUse) -> Any:
        """The model's own tensor that is the first argument of a use."""
        return self._first_taken[id(use.outputs[0])]


class Hard(NamedTuple):
    """A hard sigmoid, min(max(x + 3, 0), 6) / 6, or where `swish` that times x."""

    uses: Sequence[LayerUse]
    swish: bool


def hard_chain(uses: Uses, use: LayerUse) -> Hard | None:
    """The hard sigmoid or hard swish that begins with a use, in any spelling."""
    if operation_of(use.operation) in _HARD:
        return Hard([use], swish=_HARD[operation_of(use.operation)])
    if not _is_affine(use, 1.0, _THREE):
        return None
    clip = uses.follower(use)
    if clip is None or not _is_relu6(clip.operation):
        return None
    sixth = uses.follower(clip)
    if sixth is None or not _is_affine(sixth, 1 / _SIX, 0.0):
        return None
    product = uses.follower(sixth)
    if product is not None and _is_product_with_input(uses, use, product):
        return Hard([use, clip, sixth, product], swish=True)
    return Hard([use, clip, sixth], swish=False)


def _is_product_with_input(uses: Uses, use: LayerUse, product: LayerUse) -> bool:
    if operation_of(product.operation) != "multiply":
        return False
    factors = list(product.args[0])
    return len(factors) == 2 and any(factor is uses.taken(use) for factor in factors)


def _is_affine(use: LayerUse, factor: float, offset: float) -> bool:
    """Whether a use multiplies by this number and adds that one."""
    layer = use.operation
    if class_name(layer) != "Rescaling":
        return False
    values = (layer.scale, layer.offset)
    close = functools.partial(math.isclose, rel_tol=1e-6, abs_tol=1e-9)
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == 2 and all(map(close, numbers, (factor, offset)))


def _is_relu6(layer: Any) -> bool:
    if not is_rectifier(layer):
        return False
    if class_name(layer) == "ReLU":
        return bool(layer.max_value == _SIX)
    return activation_of(layer) == "relu6"


def known_to_tfmot(layer: Any) -> bool:
    """Whether tfmot's default 8-bit scheme has a config for a layer."""
    from tensorflow_model_optimization.python.core.quantization.keras.default_8bit import (
        default_8bit_quantize_registry,
    )

    if class_name(layer) == "Activation":
        return activation_of(layer) in _TFMOT_ACTIVATIONS
    # Its transforms split them.
    if class_name(layer) in ("SeparableConv1D", "SeparableConv2D"):
        return True
    return bool(default_8bit_quantize_registry.Default8BitQuantizeRegistry().supports(layer))
