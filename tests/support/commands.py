"""Every command that takes a model, as it is run on a hostile one."""

from __future__ import annotations

_SHORT = ("--timeout-s", "60")
_QAT = ("--training", "x.npz", "--qat-epochs", "1", "--qat-target", "model")
_BENCH = ("--rounds", "1", "--repeats", "2", "--seconds", "0.1", "--warmup-seconds", "0")

COMMANDS: dict[str, tuple[str, ...]] = {
    "convert": ("convert", "{model}", "--to", "float32", "-o", "out", *_SHORT),
    "qat": (
        "convert",
        "{model}",
        "--to",
        "qat",
        "--calibration",
        "x.npz",
        *_QAT,
        "-o",
        "out",
        *_SHORT,
    ),
    "doctor": ("doctor", "{model}", "x.npz", *_SHORT),
    "bench": ("bench", "fine.tflite", "--baseline", "{model}", "--data", "x.npz", *_BENCH, *_SHORT),
    "debug": ("debug", "{model}", "--to", "int8", "--calibration", "x.npz", *_SHORT),
    "tune": ("tune", "{model}", "--data", "x.npz", "--max-drop", "0.1", "-o", "out", *_SHORT),
    "check": ("check", *_SHORT),
    "build": ("build", *_SHORT),
    "inspect": ("inspect", "{model}"),
    "init": ("init", "{model}", "-o", "out/edgeconv.toml"),
    "scan": ("scan", "{model}"),
    "verify": ("verify", ".", "--source", "{model}"),
}
# They start nothing that could be confined otherwise than it is.
WITHOUT_SANDBOX_OPTION = ("inspect", "init", "scan", "verify")
