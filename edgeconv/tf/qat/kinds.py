"""How quantization treats a layer of tf_keras: by the operators that it becomes."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

# "kernel": has weights to quantize. "affine": a factor and an offset per channel. "value": one
# operator with a new range. "same": its outputs are values of its inputs, whose range stays.
# "noise": acts in training only. "fixed": has a known range. "float": has no integer form.
KindName = Literal["kernel", "affine", "value", "same", "noise", "fixed", "float"]


class LayerKind(NamedTuple):
    """The kind of a layer, and for "float" the reason."""

    name: KindName
    reason: str = ""


_KERNEL = frozenset(
    {
        *("Conv1D", "Conv2D", "Conv1DTranspose", "Conv2DTranspose", "Dense", "Embedding"),
        *("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
    }
)
BATCH_NORMALIZATIONS = frozenset(
    {"BatchNormalization", "SyncBatchNormalization", "FreezableBatchNormalization"}
)
_AFFINE = frozenset({*BATCH_NORMALIZATIONS, "Rescaling", "Normalization"})
_VALUE = frozenset(
    {
        *("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Concatenate", "Dot"),
        *("GlobalAveragePooling1D", "GlobalAveragePooling2D", "LeakyReLU", "PReLU", "ReLU"),
    }
)
_SAME = frozenset(
    {
        *("Flatten", "Reshape", "Permute", "RepeatVector", "MaxPooling1D", "MaxPooling2D"),
        *("AveragePooling1D", "AveragePooling2D", "GlobalMaxPooling1D", "GlobalMaxPooling2D"),
        *(
            "Cropping1D",
            "Cropping2D",
            "ZeroPadding1D",
            "ZeroPadding2D",
            "UpSampling1D",
            "UpSampling2D",
        ),
        *("Resizing", "CenterCrop", "RandomCrop", "RandomFlip", "RandomTranslation"),
        *("RandomRotation", "RandomZoom", "RandomHeight", "RandomWidth", "RandomContrast"),
        *("RandomBrightness", "SlicingOpLambda"),
    }
)
# In training they widen the ranges beyond those at inference: a dropout of one half doubles values.
_NOISE = frozenset(
    {
        *("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout"),
        *("GaussianDropout", "GaussianNoise", "ActivityRegularization"),
    }
)
_ACTIVATIONS: dict[str, KindName] = {
    "linear": "same",
    **dict.fromkeys(("relu", "relu6", "swish", "silu", "gelu", "leaky_relu"), "value"),
    **dict.fromkeys(("softmax", "sigmoid", "tanh"), "fixed"),
}
# TensorFlow's functions, by their names in a functional model of tf_keras.
_FUNCTIONS: dict[str, KindName] = {
    **dict.fromkeys(("__operators__.add", "math.add", "math.subtract", "math.multiply"), "value"),
    **dict.fromkeys(("nn.relu", "nn.relu6", "nn.silu", "nn.gelu", "nn.leaky_relu"), "value"),
    **dict.fromkeys(("math.reduce_mean", "concat", "linalg.matmul"), "value"),
    **dict.fromkeys(("math.sigmoid", "math.tanh", "nn.sigmoid", "nn.tanh", "nn.softmax"), "fixed"),
    **dict.fromkeys(("reshape", "transpose", "squeeze", "expand_dims", "pad", "tile"), "same"),
    **dict.fromkeys(("__operators__.getitem", "slice", "strided_slice", "split"), "same"),
    **dict.fromkeys(("math.reduce_max", "nn.max_pool", "identity", "stop_gradient"), "same"),
}
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
    if name == "TFOpLambda":
        return _known(_FUNCTIONS, layer.symbol, "the function")
    if name == "Softmax":
        return LayerKind("fixed")
    if name == "ReLU" and layer.threshold:
        return LayerKind("float", "it has a threshold")
    for names, kind in _BY_CLASS:
        if name in names:
            return LayerKind(kind)
    return LayerKind("float", _WITHOUT_INTEGER_FORM.get(name) or _reason(name))


def kind_of_activation(name: str) -> LayerKind:
    """How quantization treats an activation, by its name in tf_keras."""
    return _known(_ACTIVATIONS, name, "the activation")


_BY_CLASS: tuple[tuple[frozenset[str], KindName], ...] = (
    (_KERNEL, "kernel"),
    (_AFFINE, "affine"),
    (_VALUE, "value"),
    (_SAME, "same"),
    (_NOISE, "noise"),
)


def _known(table: dict[str, KindName], name: str, what: str) -> LayerKind:
    if name in table:
        return LayerKind(table[name])
    return LayerKind("float", f"the converter has no integer operator for {what} {name!r}")


def _reason(name: str) -> str:
    if name in _RECURRENT:
        return "its loop over time has ranges at each step, which tfmot does not see"
    return f"the converter has no integer operator for {name}"


def class_name(layer: Any) -> str:
    """The name of a layer's class."""
    return type(layer).__name__


def activation_of(layer: Any) -> str:
    """The name of a layer's activation function, "linear" where it has none."""
    function = getattr(layer, "activation", None)
    return "linear" if function is None else str(getattr(function, "__name__", function))


def is_rectifier(layer: Any) -> bool:
    """Whether a layer is a ReLU that integer operators contain: up to 1, 6 or no bound."""
    if class_name(layer) == "Activation":
        return activation_of(layer) in ("relu", "relu6")
    if class_name(layer) == "TFOpLambda":
        return layer.symbol in ("nn.relu", "nn.relu6")
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
