"""How a model is trained: on what, by which loop, and what came of it."""

from typing import Literal

from edgeconv.types.model import FrozenStruct, Result

StrategyName = Literal[
    "none", "mirrored", "central-storage", "multiworker", "parameter-server", "tpu"
]
LoopName = Literal["fit", "custom"]
CrossDeviceOps = Literal["auto", "nccl", "hierarchical-copy", "reduction-to-one"]
Communication = Literal["auto", "ring", "nccl"]
QatTarget = Literal["labels", "model"]
LayerTreatment = Literal["quantized", "quantized with a config of edgeconv's", "float"]

# The progress line of a child that has met the other members of its cluster.
CONNECTED = "connected"
# What the chief reports after each checkpoint.
CHECKPOINT_KEPT = "checkpoint kept"
# Those that train in one process.
LOCAL_STRATEGIES: frozenset[StrategyName] = frozenset({"none", "mirrored", "central-storage"})


class Distribution(FrozenStruct, kw_only=True, frozen=True):
    """What a training runs on.

    `devices`: names such as "GPU:0" or "CPU:1", or none and `device_count` of the GPUs there
    are, or of logical CPU devices where there are none. With neither, mirrored and
    central-storage take all GPUs or two logical CPU devices. `workers` and `servers` are local
    processes to start, 0 where TF_CONFIG says what the cluster is. `tpu` is the name or
    address of a TPU, "" for the one of this machine. `connect_timeout_s`: how long to wait for
    the other members of a cluster.
    """

    strategy: StrategyName = "mirrored"
    devices: tuple[str, ...] = ()
    device_count: int = 0
    workers: int = 0
    servers: int = 0
    cross_device_ops: CrossDeviceOps = "auto"
    communication: Communication = "auto"
    tpu: str = ""
    gpu_memory_growth: bool = False
    gpu_memory_limit_mib: int = 0
    connect_timeout_s: float = 300.0


class Training(FrozenStruct, kw_only=True, frozen=True):
    """The training of a baseline model.

    `module`: a baseline model of edgeconv, a file ending in .py, or a dotted name of Python's.
    `data` is handed to it, None: its own place. Of the numbers, None takes the module's own.
    `steps_per_epoch` of None: an epoch is one pass over the training samples. A checkpoint is
    kept every `checkpoint_steps` steps, and after each epoch. `validation_fraction` of the
    training samples are kept apart; then the best epoch is kept, and the training ends after
    `patience` epochs without a better one. `custom_objects` are MODULE or MODULE:NAME, whose
    classes the module's own loading of Keras files is to know.
    """

    module: str
    data: str | None = None
    loop: LoopName = "fit"
    epochs: int | None = None
    steps_per_epoch: int | None = None
    checkpoint_steps: int | None = None
    global_batch: int | None = None
    learning_rate: float | None = None
    validation_fraction: float = 0.0
    patience: int | None = None
    seed: int = 0
    distribution: Distribution = Distribution()
    custom_objects: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the model goes by: the module's last part, or the file's name without .py."""
        if self.module.endswith(".py"):
            return self.module.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
        return self.module.rpartition(".")[2]


class Epoch(FrozenStruct, kw_only=True, frozen=True):
    """One epoch: its metrics, on the training samples and (`validation`) on those kept apart.

    `loss` is one of the metrics. `samples` is how many were trained on, `seconds` the time of
    the steps alone; an epoch that was resumed has the sum of its parts.
    """

    metrics: dict[str, float]
    validation: dict[str, float] = {}
    samples: int
    seconds: float

    @property
    def samples_per_second(self) -> float:
        """The throughput; 0 where no time was measured."""
        return self.samples / self.seconds if self.seconds else 0.0


class TrainingRecord(Result, kw_only=True, frozen=True):
    """How a model was trained, and what came of it.

    `strategy` is the name of TensorFlow's class. `seconds` is the time of the epochs' steps,
    `wall_seconds` that of everything (of the last run, where it was resumed). `resumed_at` are
    the steps at which a run took up what one before it had left. `best_epoch` counts from 1;
    0: the last one was kept. `stopped` says why the training ended before its last epoch.
    `test_metrics` are of the exported model.
    """

    format: Literal[1] = 1
    model: str
    strategy: str
    loop: LoopName
    replicas: int
    workers: int = 1
    devices: tuple[str, ...] = ()
    cross_device_ops: str = ""
    global_batch: int
    steps_per_epoch: int
    learning_rate: float
    seed: int
    epochs: tuple[Epoch, ...]
    best_epoch: int = 0
    stopped: str = ""
    resumed_at: tuple[int, ...] = ()
    train_samples: int
    validation_samples: int = 0
    test_samples: int = 0
    test_metrics: dict[str, float] = {}
    seconds: float
    wall_seconds: float
    saved_model: str = ""
    keras_file: str = ""
    tools: dict[str, str] = {}

    @property
    def samples_per_second(self) -> float:
        """The throughput over all epochs; 0 where no time was measured."""
        samples = sum(epoch.samples for epoch in self.epochs)
        return samples / self.seconds if self.seconds else 0.0


class Qat(FrozenStruct, kw_only=True, frozen=True):
    """How quantization-aware training is done.

    `target`: what the outputs are trained to be, the samples' labels or what the float model
    answers. `layers`: names or patterns (`fnmatch`) of those to quantize, none for all.
    `warmup_steps` only find ranges, before the weights change. From epoch `freeze_batch_norm_after`
    on, batch normalization no longer follows its batches; 0: it never does, None: always.
    `patience`: epochs without a better validation result after which it ends, None: it does not.
    """

    target: QatTarget = "labels"
    epochs: int = 5
    learning_rate: float = 1e-4
    global_batch: int = 32
    seed: int = 0
    layers: tuple[str, ...] = ()
    warmup_steps: int = 20
    freeze_batch_norm_after: int | None = 1
    validation_fraction: float = 0.1
    patience: int | None = None
    distribution: Distribution = Distribution(strategy="none")


class TreatedLayer(FrozenStruct, kw_only=True, frozen=True):
    """What became of a layer in quantization-aware training, and why it was left float."""

    name: str
    kind: str
    treatment: LayerTreatment
    reason: str = ""


class Validated(FrozenStruct, kw_only=True, frozen=True):
    """Accuracies on the samples that no training has seen, of the float model and the artifact.

    `metric` is "accuracy", the share of right classes; "explained_variance" of the labels, where
    these are values; or "mean_score", the mean of both over several outputs. `drop` is the float
    model's minus the artifact's, `interval` the 95 % interval of that.
    """

    samples: int
    float_accuracy: float
    accuracy: float
    drop: float
    interval: tuple[float, float]
    metric: str = "accuracy"


class QatRecord(FrozenStruct, kw_only=True, frozen=True):
    """The quantization-aware training behind an artifact.

    `source` is the SOURCE of the labeled samples, `equalized` the pairs of layers between which
    channels of very different ranges were brought to like ones beforehand, `rebuilt` whether a
    Keras 3 model was rebuilt in tf_keras, and `rebuilt_max_abs_error` how far the two were apart on
    real samples. `losses` are those of the outputs, by their names in Keras; of an output without
    labels it is the error from the float model's. `validated` is None where there are no labels.
    `seconds` is the time of the whole, loading included.
    """

    settings: Qat
    source: str
    training: TrainingRecord
    losses: dict[str, str] = {}
    layers: tuple[TreatedLayer, ...] = ()
    equalized: tuple[tuple[str, str], ...] = ()
    rebuilt: bool = False
    rebuilt_max_abs_error: float = 0.0
    validated: Validated | None = None
    seconds: float
