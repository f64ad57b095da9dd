"""The names that Keras 3 and tf_keras give a meaning to in the configuration of a model.

tests/integration/test_keras_names.py writes the list, and holds it against the installed ones.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from edgeconv.types.errors import InputRefused
from edgeconv.types.words import quoted

# A list of this length is read better as text.
# ruff: noqa: SIM905

KERAS_NAMES = frozenset(
    (
        "AbstractRNNCell Activation ActivityRegularization AdaptiveAveragePooling1D "
        "AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D "
        "AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AddLoss AddMetric AdditiveAttention "
        "AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D AveragePooling2D "
        "AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BaseRandomLayer BatchNormalization "
        "BatchNormalizationBase BatchNormalizationV1 BatchNormalizationV2 Bidirectional "
        "CategoryEncoding CenterCrop ClassMethod Concatenate Constant ConstantV2 Constraint "
        "ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D "
        "Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D "
        "Convolution1DTranspose Convolution2D Convolution2DTranspose Convolution3D "
        "Convolution3DTranspose Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM CutMix "
        "Dense DenseFeatures DepthwiseConv1D DepthwiseConv2D DeviceWrapper Discretization Dot "
        "Dropout DropoutWrapper ELU EinsumDense Embedding Equalization Flatten Functional GRU "
        "GRUCell GRUCellV1 GRUCellV2 GRUV1 GRUV2 GaussianDropout GaussianNoise "
        "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalAvgPool1D "
        "GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D "
        "GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GlorotNormal GlorotNormalV2 "
        "GlorotUniform GlorotUniformV2 GroupNormalization GroupedQueryAttention HashedCrossing "
        "Hashing HeNormal HeNormalV2 HeUniform HeUniformV2 Identity IdentityInitializer "
        "IdentityV2 IndexLookup Initializer Input InputLayer InputSpec InstanceMethod "
        "InstanceProperty IntegerLookup L1 L1L2 L2 LSTM LSTMCell LSTMCellV1 LSTMCellV2 LSTMV1 "
        "LSTMV2 Lambda Layer LayerNormalization LeakyReLU LecunNormal LecunNormalV2 "
        "LecunUniform LecunUniformV2 LinearModel LocallyConnected1D LocallyConnected2D Masking "
        "MaxNorm MaxNumBoundingBoxes MaxPool1D MaxPool2D MaxPool3D MaxPooling1D MaxPooling2D "
        "MaxPooling3D Maximum MelSpectrogram MinMaxNorm Minimum MixUp Model MultiHeadAttention "
        "Multiply NonNeg Normalization Ones OnesV2 Orthogonal OrthogonalInitializer "
        "OrthogonalRegularizer OrthogonalV2 PReLU Permute Pipeline RMSNormalization RNN "
        "RadialConstraint RandAugment RandomBrightness RandomColorDegeneration "
        "RandomColorJitter RandomContrast RandomCrop RandomElasticTransform RandomErasing "
        "RandomFlip RandomGaussianBlur RandomGrayscale RandomHeight RandomHue RandomInvert "
        "RandomNormal RandomNormalV2 RandomPerspective RandomPosterization RandomRotation "
        "RandomSaturation RandomSharpness RandomShear RandomTranslation RandomUniform "
        "RandomUniformV2 RandomWidth RandomZoom ReLU Regularizer RepeatVector Rescaling Reshape "
        "ResidualWrapper Resizing ReversibleEmbedding STFT STFTInitializer STFTSpectrogram "
        "SeparableConv1D SeparableConv2D SeparableConvolution1D SeparableConvolution2D "
        "SequenceFeatures Sequential SimpleRNN SimpleRNNCell SlicingOpLambda Softmax "
        "Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization "
        "StackedRNNCells StringLookup Subtract SyncBatchNormalization TFOpLambda "
        "TensorFlowOpLayer TextVectorization ThresholdedReLU TimeDistributed TruncatedNormal "
        "TruncatedNormalV2 UnitNorm UnitNormalization UpSampling1D UpSampling2D UpSampling3D "
        "VarianceScaling VarianceScalingV2 WideDeepModel Wrapper ZeroPadding1D ZeroPadding2D "
        "ZeroPadding3D Zeros ZerosV2 _RNNCellWrapper add average celu concatenate constant "
        "constraint dot elu exponential gelu glorot_normal glorot_normalV2 glorot_uniform "
        "glorot_uniformV2 glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh he_normal "
        "he_normalV2 he_uniform he_uniformV2 identity initializer keras_export l1 l1_l2 l1l2 l2 "
        "leaky_relu lecun_normal lecun_normalV2 lecun_uniform lecun_uniformV2 linear "
        "log_sigmoid log_softmax max_norm maximum maxnorm min_max_norm minimum mish multiply "
        "non_neg nonneg normal one ones orthogonal orthogonal_regularizer radial_constraint "
        "random_normal random_uniform regularizer relu relu6 selu sigmoid silu soft_shrink "
        "softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus stft "
        "subtract swish tanh tanh_shrink threshold truncated_normal uniform unit_norm unitnorm "
        "variance_scaling zero zeros "
    ).split()
)


# The classes and functions in the configuration of a Keras file that are not Keras's own.

_KERAS = frozenset({"keras", "tf_keras"})
# Keras imports them where they are installed.
_FAMILY = frozenset({"keras_hub", "keras_cv", "keras_nlp"})
# Names that are neither classes nor functions of a user.
_PLAIN = frozenset({"Policy", "PolicyV1", "TypeSpec", "TensorShape", "CompositeTensor"})
# No loader of edgeconv reads these parts: a model is opened without its optimizer and losses.
_NOT_READ = frozenset({"compile_config", "build_config"})
_ACTIVATIONS = frozenset({"activation", "recurrent_activation"})
_FUNCTION = "function"


def unknown_classes(config: dict[str, Any], *, imports_any: bool = False) -> tuple[str, ...]:
    """The names of classes and functions in `config` that neither Keras 3 nor tf_keras has.

    A registered one is written PACKAGE>NAME. `imports_any`: the loader imports any installed
    module, as that of tf_keras for .keras files does.
    """
    return tuple(sorted(set(_unknown(config, imports_any=imports_any))))


def _unknown(config: dict[str, Any], *, imports_any: bool) -> Iterator[str]:
    waiting: list[Any] = [config]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += [value for key, value in node.items() if key not in _NOT_READ]
            if isinstance(node.get("class_name"), str) and "config" in node:
                yield from _of_object(node, imports_any=imports_any)
            names = (node.get(key) for key in _ACTIVATIONS)
            yield from (n for n in names if isinstance(n, str) and n not in KERAS_NAMES)


def _of_object(node: dict[str, Any], *, imports_any: bool) -> Iterator[str]:
    """The name of the class or function of a serialized object, if Keras does not have it."""
    name = node["config"] if node["class_name"] == _FUNCTION else node["class_name"]
    if not isinstance(name, str) or name.startswith("__") or name in _PLAIN:
        return
    registered = node.get("registered_name")
    module = node.get("module")
    if isinstance(module, str):
        package = module.split(".")[0]
        is_keras = package in _KERAS or (module == "builtins" and name in KERAS_NAMES)
        if is_keras or ((package in _FAMILY or imports_any) and is_installed(package)):
            return
    elif name in KERAS_NAMES and not registered:
        return
    is_registered = isinstance(registered, str) and registered not in ("", _FUNCTION)
    yield str(registered) if is_registered else name


_SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def is_usable(name: str, has_weights: bool) -> bool:
    """Whether TensorFlow accepts the name of a layer."""
    # Within the scope of a model, a name may begin with any of these characters; the names of
    # variables have no such scope.
    return bool(_SCOPE.fullmatch(name if has_weights else f"within{name}"))


def unusable_names(where: str, names: Sequence[str]) -> InputRefused:
    """The error for names of layers that Keras 3 accepts and TensorFlow does not."""
    return InputRefused(
        f"{where}: TensorFlow does not accept these names of layers: {quoted(names)}",
        hint="give each a name of ASCII letters, digits and _ that begins with a letter",
    )


def is_installed(package: str) -> bool:
    """Whether a child, which does not search the current directory, finds a package."""
    if package in ("builtins", "__main__"):
        return False
    here = Path.cwd()
    paths = [path for path in sys.path if path and Path(path).absolute() != here]
    return PathFinder.find_spec(package, paths) is not None
