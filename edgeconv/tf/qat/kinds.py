"""How quantization treats a layer of tf_keras: by the operators that it becomes."""

from typing import Any, Literal, NamedTuple

# "kernel": has weights to quantize. "affine": a factor and an offset per channel. "value": one
# operator with a new range. "same": its outputs are values of its inputs, whose range stays.
# "noise": acts in training only. "fixed": has a known range. "float": has no integer form.
KindName = Literal["kernel", "affine", "value", "same", "noise", "fixed", "float"]


class LayerKind(NamedTuple):
    """The kind of a layer, and for "float" the reason."""

    name: KindName
    reason: str = ""


BATCH_NORMALIZATIONS = frozenset(
    {"BatchNormalization", "SyncBatchNormalization", "FreezableBatchNormalization"}
)
# By `plain_name`: classes of layers, activations, and operations of Keras 3 and TensorFlow.
_KINDS: dict[str, KindName] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv1dtranspose", "conv2dtranspose"), "kernel"),
    **dict.fromkeys(("depthwiseconv1d", "depthwiseconv2d", "dense", "embedding"), "kernel"),
    **dict.fromkeys(("separableconv1d", "separableconv2d"), "kernel"),
    **dict.fromkeys((name.lower() for name in BATCH_NORMALIZATIONS), "affine"),
    **dict.fromkeys(("rescaling", "normalization"), "affine"),
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum", "where"), "value"),
    **dict.fromkeys(("absolute", "abs", "clip", "clipbyvalue", "hardtanh", "padv2"), "value"),
    **dict.fromkeys(("relu", "relu6", "leakyrelu", "prelu", "gelu", "silu", "swish"), "value"),
    **dict.fromkeys(("mean", "globalaveragepooling1d", "globalaveragepooling2d"), "value"),
    **dict.fromkeys(("sum", "matmul", "dot", "concatenate", "concat", "stack"), "value"),
    **dict.fromkeys(("sigmoid", "tanh", "softmax", "softmaxv2"), "fixed"),
    **dict.fromkeys(("linear", "stopgradient", "flatten", "reshape", "squeeze"), "same"),
    **dict.fromkeys(("expanddims", "permute", "transpose", "swapaxes"), "same"),
    **dict.fromkeys(("getitem", "slice", "stridedslice", "split", "unstack"), "same"),
    **dict.fromkeys(("pad", "zeropadding1d", "zeropadding2d", "cropping1d", "cropping2d"), "same"),
    **dict.fromkeys(("tile", "repeatvector", "upsampling1d", "upsampling2d"), "same"),
    **dict.fromkeys(("max", "amax", "min", "amin", "maxpooling1d", "maxpooling2d"), "same"),
    **dict.fromkeys(("maxpool", "globalmaxpooling1d", "globalmaxpooling2d"), "same"),
    **dict.fromkeys(("avgpool", "averagepool", "averagepooling1d", "averagepooling2d"), "same"),
    **dict.fromkeys(("resizing", "centercrop", "randomcrop", "randomflip"), "same"),
    **dict.fromkeys(("randomtranslation", "randomrotation", "randomzoom", "randomheight"), "same"),
    **dict.fromkeys(("randomwidth", "randomcontrast", "randombrightness"), "same"),
    # In training they widen the ranges: a dropout of one half doubles values.
    **dict.fromkeys(("dropout", "spatialdropout1d", "spatialdropout2d"), "noise"),
    **dict.fromkeys(("spatialdropout3d", "alphadropout", "gaussiandropout"), "noise"),
    **dict.fromkeys(("gaussiannoise", "activityregularization"), "noise"),
}
# What an operation can be: for the others, the annotation looks into a layer.
_OF_OPERATIONS = ("value", "same", "fixed")
_RECURRENT = frozenset({"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM2D"})
_WITHOUT_INTEGER_FORM = {
    "ELU": "the converter does not quantize ELU",
    "Lambda": "its function is not known",
    "LayerNormalization": "its mean and variance need more than 8 bits",
    "Average": "the range between its sum and its division is not known",
}


def kind_of(layer: Any) -> LayerKind:
    """How quantization treats a layer."""
    name = class_name(layer)
    if type(layer).__module__.split(".")[0] not in ("tf_keras", "keras", "edgeconv"):
        return LayerKind("float", "its class is not one of Keras's own")
    if getattr(layer, "data_format", None) == "channels_first":
        return LayerKind("float", "its channels come first")
    if name == "Activation":
        return kind_of_activation(activation_of(layer))
    if name == "OpLayer":
        return _kind_of_operation(layer)
    if name == "ReLU" and layer.threshold:
        return LayerKind("float", "it has a threshold")
    kind = _KINDS.get(plain_name(name))
    return LayerKind(kind) if kind else LayerKind("float", _reason(name))


def kind_of_activation(name: str) -> LayerKind:
    """How quantization treats an activation, by its name in tf_keras."""
    return _known(name, "the activation")


def _kind_of_operation(layer: Any) -> LayerKind:
    outputs = layer.output if isinstance(layer.output, (list, tuple)) else [layer.output]
    if not any(tensor.dtype.is_floating for tensor in outputs):
        # Such as a shape or a mask.
        return LayerKind("same")
    return _known(layer.symbol, "the operation")


def plain_name(symbol: str) -> str:
    """The name of an operation, spelled alike for Keras 3's classes and TensorFlow's functions."""
    return symbol.rpartition(".")[2].removeprefix("reduce_").replace("_", "").lower()


def _known(name: str, what: str) -> LayerKind:
    kind = _KINDS.get(plain_name(name))
    if kind in _OF_OPERATIONS:
        return LayerKind(kind)
    return LayerKind("float", f"the converter has no integer operator for {what} {name!r}")


def _reason(name: str) -> str:
    if name in _RECURRENT:
        return "its loop over time has ranges at each step, which tfmot does not see"
    default = f"the converter has no integer operator for {name}"
    return _WITHOUT_INTEGER_FORM.get(name, default)


def class_name(layer: Any) -> str:
    """The name of a layer's class."""
    return type(layer).__name__


def operation_of(layer: Any) -> str:
    """The `plain_name` of the operation that a layer calls, or of a layer's class."""
    return plain_name(getattr(layer, "symbol", "") or class_name(layer))


def shown_kind(layer: Any) -> str:
    """The class of a layer, or the operation that it calls, as reports name it."""
    return getattr(layer, "symbol", "") or class_name(layer)


def activation_of(layer: Any) -> str:
    """The name of a layer's activation function, "linear" where it has none."""
    function = getattr(layer, "activation", None)
    return "linear" if function is None else str(getattr(function, "__name__", function))


def is_rectifier(layer: Any) -> bool:
    """Whether a layer is a ReLU that integer operators contain: up to 1, 6 or no bound."""
    if class_name(layer) == "Activation":
        return activation_of(layer) in ("relu", "relu6")
    if class_name(layer) != "ReLU" or layer.negative_slope or layer.threshold:
        return False
    return layer.max_value is None or float(layer.max_value) in (1.0, 6.0)


def is_channelwise_norm(layer: Any) -> bool:
    """Whether a layer is a batch normalization over the last dimension."""
    if class_name(layer) not in BATCH_NORMALIZATIONS:
        return False
    axes = list(layer.axis) if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    return axes in ([-1], [layer.input_spec.ndim - 1])


def is_softmax(layer: Any) -> bool:
    """Whether a layer is a softmax over the last dimension."""
    if class_name(layer) == "Softmax":
        return bool(layer.axis == -1)
    return class_name(layer) == "Activation" and activation_of(layer) == "softmax"
