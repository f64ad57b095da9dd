"""The extensions, one line each: a name and its module, which is imported when it is first used.

Those in folders here are plug-ins: no room imports them, so what they do is reached by this table.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

SAMPLE_SOURCES = {
    "csv": "edgeconv.data.kinds.csv_file",
    "function": "edgeconv.data.kinds.function",
    "images": "edgeconv.data.kinds.images",
    "npy": "edgeconv.data.kinds.npy",
    "npz": "edgeconv.data.kinds.npz",
    "parquet": "edgeconv.data.kinds.parquet",
    "sklearn": "edgeconv.data.kinds.sklearn_bundled",
    "tfds": "edgeconv.data.kinds.tfds",
    "tfrecord": "edgeconv.data.kinds.tfrecord",
    "wavs": "edgeconv.data.kinds.wavs",
}
BASELINE_MODELS = {
    "bert_mlm": "edgeconv.models.bert_mlm",
    "cifar_mobilenet": "edgeconv.models.cifar_mobilenet",
    "digits_cnn": "edgeconv.models.digits_cnn",
    "mnist_cnn": "edgeconv.models.mnist_cnn",
    "spoken_digits": "edgeconv.models.spoken_digits",
}
# Each runs .tflite files, but for "tfserving" and "tensorflow" without a version, which run the
# trained model. The module and what it is called with are in edgeconv/runtimes/interface.py.
RUNTIMES = {
    "adb": "edgeconv.plugins.devices.adb",
    "arm64": "edgeconv.plugins.devices.kernels",
    "armv7": "edgeconv.plugins.devices.kernels",
    "fake": "edgeconv.runtimes.kinds.fake",
    "gpu": "edgeconv.plugins.devices.gpu",
    "litert": "edgeconv.runtimes.kinds.python",
    "ssh": "edgeconv.plugins.devices.ssh",
    "tensorflow": "edgeconv.runtimes.kinds.python",
    "tflite-micro": "edgeconv.plugins.devices.kernels",
    "tflite-runtime": "edgeconv.runtimes.kinds.python",
    "tfserving": "edgeconv.plugins.devices.tfserving",
    "web": "edgeconv.plugins.devices.web",
}
# How well outputs fit labels, or a reference's outputs: a `Metric` of measure/metrics/scores.py.
METRICS = {
    "auc": "edgeconv.measure.metrics.classes:AUC",
    "detection_agreement": "edgeconv.measure.metrics.agreement:DETECTION",
    "f1": "edgeconv.measure.metrics.classes:F1",
    "mae": "edgeconv.measure.metrics.classes:MAE",
    "masked_accuracy": "edgeconv.measure.metrics.classes:MASKED_ACCURACY",
    "mse": "edgeconv.measure.metrics.classes:MSE",
    "perplexity": "edgeconv.measure.metrics.classes:PERPLEXITY",
    "top1": "edgeconv.measure.metrics.classes:TOP1",
    "top5": "edgeconv.measure.metrics.classes:TOP5",
}
# Other names of metrics.
METRIC_ALIASES = {"accuracy": "top1"}
# What a published model is embedded in; edgeconv/embedding/interface.py says what a module has.
EMBED_TARGETS = {
    "android": "edgeconv.embedding.targets.android",
    "arduino": "edgeconv.embedding.targets.arduino",
    "bazel": "edgeconv.embedding.targets.bazel",
    "c": "edgeconv.embedding.targets.c",
    "cmake": "edgeconv.embedding.targets.cmake",
    "ios": "edgeconv.embedding.targets.ios",
    "python": "edgeconv.embedding.targets.python",
    "web": "edgeconv.embedding.targets.web",
    "zephyr": "edgeconv.embedding.targets.zephyr",
}

# Compiles for NPUs, and estimates what they take.
NPU_COMPILER = "edgeconv.plugins.devices.vela"
# Places the members of a training on the nodes of a cluster, as in `train --on ray`.
MEMBER_HOSTS = "edgeconv.plugins.scale.training_on_ray"

# Where a check can be logged; edgeconv/reporting/trackers/__init__.py says what a module has.
TRACKERS = {
    "csv": "edgeconv.reporting.trackers.csv_file",
    "mlflow": "edgeconv.reporting.trackers.mlflow",
    "tensorboard": "edgeconv.reporting.trackers.tensorboard",
}


def sample_source(kind: str) -> ModuleType:
    """The module that reads samples of this kind. Raises `UsageError` for an unknown one."""
    return import_module(_module(SAMPLE_SOURCES, "data kind", kind))


def baseline_model(name: str) -> ModuleType:
    """The module of a baseline model. Raises `UsageError` for an unknown name."""
    return import_module(_module(BASELINE_MODELS, "baseline model", name))


def runtime_module(name: str) -> ModuleType:
    """The module of a runtime. Raises `UsageError` for an unknown name."""
    return import_module(_module(RUNTIMES, "runtime", name))


def metric(name: str) -> Any:
    """The `Metric` of that name. Raises `UsageError` for an unknown one."""
    module, _, attribute = _module(METRICS, "metric", name).partition(":")
    return getattr(import_module(module), attribute)


def npu_compiler() -> ModuleType:
    """The module that compiles for NPUs."""
    return import_module(NPU_COMPILER)


def member_hosts() -> ModuleType:
    """The module that runs the members of a training on other machines."""
    return import_module(MEMBER_HOSTS)


def tracker(name: str) -> ModuleType:
    """The module of a tracker. Raises `UsageError` for an unknown name."""
    return import_module(_module(TRACKERS, "tracker", name))


def embed_target(name: str) -> ModuleType:
    """The module of a target of `embed`. Raises `UsageError` for an unknown name."""
    return import_module(_module(EMBED_TARGETS, "target", name))


def _module(table: Mapping[str, str], kind: str, name: str) -> str:
    if name not in table:
        from edgeconv.types.errors import unknown_name

        raise unknown_name(kind, name, table)
    return table[name]
