"""The rows of the table for the models beside the checkout."""

from functools import partial

from benchmarks.coverage import arch_shared
from benchmarks.coverage.architecture import Architecture

_QUANTIZED = "it is quantised already"
_CUSTOM = "its operators are custom ones, which no runtime here has"


def trained() -> dict[str, Architecture]:
    """Models that others trained with older Keras versions, or converted long ago."""
    table = {}
    for name, width in (("keypoint", 42), ("point_history", 32)):
        build = partial(arch_shared.hand_gesture, name=name, width=width)
        table[f"hand gesture {name}"] = Architecture(build, "shared .hdf5")
        old = partial(build, suffix=".tflite")
        table[f"hand gesture {name} before TensorFlow 2.4"] = Architecture(old, "shared .tflite")
    for name in ("fer2013_mini_XCEPTION.102-0.66", "tiny_XCEPTION_KDEF"):
        build = partial(arch_shared.mini_xception, name=name)
        table[name] = Architecture(build, "shared .hdf5")
    return table


def serving() -> dict[str, Architecture]:
    """SavedModels of TensorFlow Serving's tests, and .tflite files of the same."""
    half, version = "saved_model_half_plus_two", "00000123/model.tflite"
    tflites = {
        f"{half}_tflite": _serving(f"{half}_tflite/{version}", ".tflite"),
        f"{half}_tflite_with_sigdef": _serving(
            f"{half}_tflite_with_sigdef/{version}", ".tflite", argument="tflite_input"
        ),
        "parse_example_tflite": _serving(f"parse_example_tflite/{version}", ".tflite", _CUSTOM),
    }
    return {
        "matrix_half_plus_two": _serving("matrix_half_plus_two", shape=(3, 3)),
        f"{half}_tf2_cpu": _serving(
            f"{half}_tf2_cpu", shape=(), options=("--signature", "serving_default")
        ),
        f"{half}_cpu": _serving(f"{half}_cpu", options=("--signature", "serving_default")),
        f"{half}_2_versions": _serving(
            f"{half}_2_versions", options=("--signature", "serving_default")
        ),
        "saved_model_counter": _serving(
            "saved_model_counter",
            refusal="it counts in a variable, and its input has no shape",
            shape=(),
            argument="delta",
            options=("--signature", "incr_counter_by"),
        ),
        "saved_model_half_plus_three": _serving(
            "saved_model_half_plus_three",
            refusal="its input is one number, with no dimension for samples",
            shape=(),
            options=("--signature", "serving_default"),
        ),
        **tflites,
    }


def _serving(
    path: str,
    kind: str = "SavedModel",
    refusal: str = "",
    *,
    shape: tuple[int, ...] = (1,),
    argument: str = "x",
    options: tuple[str, ...] = (),
) -> Architecture:
    build = partial(arch_shared.serving, name=path, shape=shape, argument=argument)
    return Architecture(build, f"shared {kind}", options, refusal)


def micro() -> dict[str, Architecture]:
    """The .tflite files of TensorFlow Lite Micro; most cannot be a source."""
    refused = {
        "hello_world__models__hello_world_int8": ((1,), _QUANTIZED),
        "mnist_lstm__trained_lstm_int8": ((28, 28), _QUANTIZED),
        "dtln__dtln_noise_suppression": ((1, 257), _QUANTIZED),
        "micro_speech__models__micro_speech_quantized": ((1960,), _QUANTIZED),
        "models__keyword_scrambled": ((96,), _QUANTIZED),
        "models__keyword_scrambled_8bit": ((96,), _QUANTIZED),
        "models__person_detect": ((96, 96, 1), _QUANTIZED),
        "models__person_detect_vela": ((96, 96, 1), _QUANTIZED),
    }
    table = {
        "hello_world_float": Architecture(arch_shared.hello_world, "shared .tflite"),
        "trained_lstm": Architecture(arch_shared.mnist_lstm, "shared .tflite"),
    }
    for name in ("audio_preprocessor_float", "audio_preprocessor_int8"):
        build = partial(arch_shared.audio, name=name)
        table[name] = Architecture(build, "shared .tflite", refusal=_CUSTOM)
    for name, (shape, why) in refused.items():
        build = partial(arch_shared.micro, name=name, shape=shape)
        table[name.rpartition("__")[2]] = Architecture(build, "shared .tflite", refusal=why)
    return table
