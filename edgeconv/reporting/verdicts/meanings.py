"""What each limit of a budget is, and what to do where it does not hold."""

from __future__ import annotations

_ACCURACY = (
    "Look at the stages to see where it was lost: in the trained model, or in the quantised file "
    "alone; then at the calibration data and at a recipe that loses less, as int16x8 or qat."
)
_SIZE = "Take a recipe with smaller weights, or raise the limit."
_TIME = "Time on a quiet machine again before anything else, and look at the profile of `bench`."
_UNKNOWN = ("A limit of the budget.", "See the documentation of `edgeconv check`.")

MEANINGS = {
    "max-size-bytes": ("The size of the file.", _SIZE),
    "max-gzip-size-bytes": ("The size of the file, compressed by gzip.", _SIZE),
    "max-size-ratio": ("The size of the file over that of the trained model.", _SIZE),
    "max-latency-p50-us": ("The median time of one invoke.", _TIME),
    "max-latency-ratio": ("The median time over that of the float32 .tflite.", _TIME),
    "max-peak-memory-bytes": (
        "The growth of the peak memory over the bare runtime.",
        "Look at the largest tensors with `edgeconv inspect`.",
    ),
    "max-arena-bytes": (
        "The memory that the tensors of the graph need.",
        "Look at the largest tensors with `edgeconv inspect`.",
    ),
    "max-accuracy-drop": ("How much lower the accuracy is, in points.", _ACCURACY),
    "max-relative-accuracy-drop": (
        "How much lower the accuracy is, as a share of the accuracy before.",
        _ACCURACY,
    ),
    "min-accuracy": ("The accuracy.", _ACCURACY),
    "max-class-drop": ("How much lower the accuracy is on the class that lost most.", _ACCURACY),
    "max-slice-drop": ("How much lower the accuracy is on the slice that lost most.", _ACCURACY),
    "max-flip-rate": ("The share of samples that are given another class.", _ACCURACY),
    "min-output-snr-db": ("The signal-to-noise ratio of the worst output.", _ACCURACY),
    "oldest-runtime": (
        "The TFLite runtime that the model must still run on.",
        "Convert with --target-runtime, which looks for a form that runs there.",
    ),
    "allowed-operators": (
        "The operators that the model may have.",
        "Change the model, or allow the operator where the target has it.",
    ),
}


def meaning(limit: str) -> tuple[str, str]:
    """What a limit is, and what to do where it does not hold."""
    return MEANINGS.get(limit.replace("_", "-"), _UNKNOWN)
