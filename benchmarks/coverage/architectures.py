"""The architectures of the coverage table: what each is called, and what builds it.

A builder takes an empty directory, writes a model and `calibration.npz` there (or samples
for a model that stands elsewhere), and returns the model's path. It imports TensorFlow or
Keras when it is called; this module imports neither.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.coverage import (
    arch_applications,
    arch_modules,
    arch_opened,
    arch_recurrent,
    arch_sequence,
    arch_sequential,
    arch_tables,
    arch_vision,
    shared_rows,
)
from benchmarks.coverage.architecture import Architecture

_LIBRARIES = ("keras", "tf_keras")
_FORMATS = {"saved_model": "SavedModel", "keras": ".keras", "h5": ".h5"}


def _applications() -> dict[str, Architecture]:
    # Each application in both Keras; every format somewhere.
    kinds = {("tf_keras", "ResNet50"): "h5", ("keras", "MobileNetV2"): "saved_model"}
    table = {}
    for library, usual in (("tf_keras", "saved_model"), ("keras", "keras")):
        for name in arch_applications.SIZES:
            kind = kinds.get((library, name), usual)
            build = partial(arch_applications.application, library=library, name=name, kind=kind)
            table[f"{name} ({library})"] = Architecture(build, f"{library} {_FORMATS[kind]}")
    return table


def _recurrent() -> dict[str, Architecture]:
    formats = [(library, kind) for library in ("tf_keras", "keras") for kind in _FORMATS]
    table = {}
    for layer in ("LSTM", "GRU", "Bidirectional", "ConvLSTM2D"):
        for library, kind in formats:
            if kind == "h5" and (library == "keras" or layer != "LSTM"):
                continue
            table[f"{layer} ({library} {_FORMATS[kind]})"] = _recurrent_row(layer, library, kind)
    for layer in ("SimpleRNN", "stacked", "GRU over time", "masked"):
        name = f"{layer} LSTM" if layer in {"stacked", "masked"} else layer
        table[name] = _recurrent_row(layer, "tf_keras", "saved_model")
    table["stateful LSTM"] = Architecture(arch_recurrent.stateful, "tf_keras SavedModel")
    table["LSTM of any length"] = Architecture(arch_recurrent.unknown_length, "tf_keras SavedModel")
    return table


def _recurrent_row(layer: str, library: str, kind: str) -> Architecture:
    build = partial(arch_recurrent.recurrent, library=library, layer=layer, kind=kind)
    return Architecture(build, f"{library} {_FORMATS[kind]}")


def _sequences() -> dict[str, Architecture]:
    table = {"Conv1D": Architecture(arch_sequence.conv1d, "tf_keras SavedModel")}
    for name, build in (
        ("WaveNet", arch_sequence.wavenet),
        ("transformer encoder", arch_sequence.transformer),
    ):
        for library, kind in (("tf_keras", "saved_model"), ("keras", "keras")):
            made = partial(build, library=library, kind=kind)
            table[f"{name} ({library})"] = Architecture(made, f"{library} {_FORMATS[kind]}")
    return table | {
        "token transformer": Architecture(arch_sequence.token_transformer, "keras .keras"),
        "tiny BERT": Architecture(arch_sequence.bert, "keras_hub SavedModel", needs="keras_hub"),
        "embedding bag": Architecture(arch_sequence.embedding_bag, "tf_keras .h5"),
        "integer features": Architecture(arch_sequence.integer_features, "keras SavedModel"),
    }


def _sequential() -> dict[str, Architecture]:
    # Every architecture that is a chain; the commonest two in every format.
    layers = {"masked": "masked LSTM", "stacked": "stacked LSTM"}
    recurrent: dict[str, Callable[..., Path]] = {
        layers.get(layer, layer): partial(arch_recurrent.recurrent, layer=layer)
        for layer in (
            "LSTM",
            "GRU",
            "Bidirectional",
            "ConvLSTM2D",
            "SimpleRNN",
            "stacked",
            "masked",
            "GRU over time",
        )
    }
    chains: dict[str, Callable[..., Path]] = {
        "small CNN": arch_vision.small_cnn,
        **recurrent,
        "stateful LSTM": arch_recurrent.stateful,
        "LSTM of any length": arch_recurrent.unknown_length,
        "Conv1D": arch_sequence.conv1d,
        "embedding bag": arch_sequence.embedding_bag,
        "Conv3D": arch_vision.conv3d,
        "separable and grouped": arch_vision.separable_and_grouped,
        "depthwise only": arch_vision.depthwise_only,
        "parametric activations": arch_vision.parametric_activations,
        "upsampling": arch_vision.upsampling,
        "autoencoder": arch_vision.autoencoder,
        "any image size": arch_vision.dynamic_size,
    }
    usual = ["keras keras"]
    formats = {
        "small CNN": [f"{library} {kind}" for library in _LIBRARIES for kind in _FORMATS],
        "LSTM": [f"{library} {kind}" for library in _LIBRARIES for kind in _FORMATS],
        "GRU": ["keras keras", "keras h5", "tf_keras keras"],
        "Bidirectional": ["keras keras", "tf_keras h5"],
        "SimpleRNN": ["keras h5"],
        "masked LSTM": ["tf_keras keras"],
        "Conv1D": ["keras h5"],
        "Conv3D": ["keras saved_model"],
        "separable and grouped": ["tf_keras h5"],
        "upsampling": ["tf_keras keras"],
        "any image size": ["keras h5"],
    }
    table = {}
    for name, build in chains.items():
        for library, kind in map(str.split, formats.get(name, usual)):
            title = f"{name}: Sequential ({library} {_FORMATS[kind]})"
            table[title] = _sequential_row(build, library, kind)
    for library in _LIBRARIES:
        title = f"LSTM: Sequential without an Input ({library} .keras)"
        table[title] = _sequential_row(recurrent["LSTM"], library, "keras", from_call=True)
    return table


def _sequential_row(
    build: Callable[..., Path], library: str, kind: str, *, from_call: bool = False
) -> Architecture:
    twin = partial(
        arch_sequential.sequential, build=build, library=library, kind=kind, from_call=from_call
    )
    return Architecture(twin, f"{library} {_FORMATS[kind]}")


def _several_outputs() -> dict[str, Architecture]:
    return {
        "outputs in a dictionary": Architecture(
            partial(arch_vision.multi_output, library="keras", kind="keras"), "keras .keras"
        ),
        "outputs in a list (keras)": Architecture(
            partial(arch_sequential.several_outputs, library="keras", kind="keras"), "keras .keras"
        ),
        "outputs in a list (tf_keras)": Architecture(
            partial(arch_sequential.several_outputs, library="tf_keras", kind="h5"), "tf_keras .h5"
        ),
    }


def _vision() -> dict[str, Architecture]:
    dynamic = arch_vision.dynamic_size
    return {
        "small CNN": Architecture(arch_vision.small_cnn, "tf_keras .keras"),
        "separable and grouped": Architecture(
            arch_vision.separable_and_grouped, "keras SavedModel"
        ),
        "depthwise only": Architecture(arch_vision.depthwise_only, "tf_keras .h5"),
        "squeeze-excite and hard swish": Architecture(
            arch_vision.squeeze_excite, "tf_keras SavedModel"
        ),
        "parametric activations": Architecture(
            arch_vision.parametric_activations, "tf_keras SavedModel"
        ),
        "U-Net": Architecture(arch_vision.unet, "keras .keras"),
        "upsampling": Architecture(arch_vision.upsampling, "tf_keras SavedModel"),
        "autoencoder": Architecture(arch_vision.autoencoder, "tf_keras SavedModel"),
        "siamese": Architecture(arch_vision.siamese, "keras SavedModel"),
        "multi-output": Architecture(arch_vision.multi_output, "tf_keras SavedModel"),
        "any image size (tf_keras)": Architecture(
            partial(dynamic, library="tf_keras", kind="saved_model"), "tf_keras SavedModel"
        ),
        "any image size (keras)": Architecture(
            partial(dynamic, library="keras", kind="keras"), "keras .keras"
        ),
        "Conv3D": Architecture(arch_vision.conv3d, "tf_keras SavedModel"),
        "MLP mixer": Architecture(arch_vision.mixer, "keras .keras"),
        "tiny vision transformer": Architecture(arch_vision.vision_transformer, "keras SavedModel"),
    }


def _modules() -> dict[str, Architecture]:
    custom = arch_modules.custom_layer
    module = "tf.Module SavedModel"
    return {
        "residual MLP": Architecture(arch_modules.residual_mlp, "tf_keras .h5"),
        "custom layer (tf_keras)": Architecture(
            partial(custom, library="tf_keras"), "tf_keras SavedModel"
        ),
        "custom layer (keras)": Architecture(partial(custom, library="keras"), "keras SavedModel"),
        "plain module": Architecture(arch_modules.plain_module, module),
        "while loop": Architecture(arch_modules.while_loop, module),
        "condition": Architecture(arch_modules.condition, module),
        "one of two signatures": Architecture(
            arch_modules.several_signatures,
            module,
            ("--signature", "encode"),
            samples={"": "encode"},
        ),
        "two signatures in one file": Architecture(
            arch_modules.several_signatures,
            module,
            ("--signature", "all"),
            samples={"encode": "encode", "decode": "decode"},
        ),
        "TensorFlow 1": Architecture(arch_modules.tensorflow_1, "TF1 SavedModel"),
        "matrix inverse": Architecture(
            arch_modules.select_tensorflow,
            module,
            refusal="its operator MatrixInverse runs with Select-TF only",
        ),
    }


def _opened() -> dict[str, Architecture]:
    option = ("--custom-objects", arch_opened.MODULE)
    custom = arch_opened.custom_objects
    return {
        "custom objects (keras)": Architecture(
            partial(custom, library="keras", kind="keras"), "keras .keras", option
        ),
        "custom objects (tf_keras)": Architecture(
            partial(custom, library="tf_keras", kind="h5"), "tf_keras .h5", option
        ),
        "generator of any size": Architecture(arch_opened.generator, "Keras 2 .h5"),
        "TensorFlow 1 (other tag)": Architecture(
            arch_opened.other_tag, "TF1 SavedModel", ("--tag", "infer")
        ),
    }


def _tables() -> dict[str, Architecture]:
    return {
        "strings": Architecture(arch_tables.strings, "keras SavedModel"),
        "strings (tf_keras)": Architecture(arch_tables.strings_in_tf_keras, "tf_keras SavedModel"),
        "strings (.keras)": Architecture(arch_tables.strings_in_a_keras_file, "keras .keras"),
        "strings and floats": Architecture(arch_tables.strings_and_floats, "keras SavedModel"),
        "integer lookup": Architecture(arch_tables.whole_numbers, "keras SavedModel"),
        "hashed strings": Architecture(
            arch_tables.hashed_strings,
            "keras SavedModel",
            refusal="its operator StringToHashBucketFast runs with Select-TF only",
        ),
    }


ARCHITECTURES: dict[str, Architecture] = {
    **_applications(),
    **_recurrent(),
    **_sequences(),
    **_vision(),
    **_several_outputs(),
    **_sequential(),
    **_modules(),
    **_opened(),
    **_tables(),
    **shared_rows.trained(),
    **shared_rows.serving(),
    **shared_rows.micro(),
}
