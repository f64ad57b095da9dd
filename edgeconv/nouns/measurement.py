"""What was measured, and how it is judged."""

from __future__ import annotations

from typing import Literal

from edgeconv.nouns.conversion import Artifact, RecipeName
from edgeconv.nouns.model import Noun
from edgeconv.nouns.samples import DataIdentity
from edgeconv.nouns.training import TrainingRecord


class Latency(Noun, kw_only=True, frozen=True):
    """Raw invoke times in a fresh process, batch `batch`, in microseconds.

    `rounds_us` holds one tuple of samples per process; the processes of all the
    artifacts were run in turn. `load_us` and `first_us` are kept apart, one a round.
    """

    rounds_us: tuple[tuple[float, ...], ...]
    load_us: tuple[float, ...]
    first_us: tuple[float, ...]
    threads: int
    batch: int
    p50_us: float
    p90_us: float


class Accuracy(Noun, kw_only=True, frozen=True):
    """Top-1 accuracy over labelled samples, with the answer to each of them.

    `correct` is one character a sample, "1" right and "0" wrong, in the order of
    the data set, so that two measurements of the same samples can be paired.
    """

    metric: Literal["top1"] = "top1"
    value: float
    samples: int
    correct: str


class Measurement(Noun, kw_only=True, frozen=True):
    """What was measured of one model: an artifact, or the trained baseline.

    `accuracy_drop` is baseline minus this model, and `accuracy_drop_interval` the 95 % interval
    of that, paired by sample; `latency_ratio` is this model over the float32 .tflite,
    `size_ratio` this model over the baseline on disk; `fixed` and `broken` count the samples
    that changed from wrong to right and back. `peak_memory_bytes` is the growth of the peak
    resident set over the bare runtime; of a baseline in TensorFlow it is the whole process.
    None means that it was not measured, never that it was good. `error` is set, and
    the rest None, where the model did not run.
    """

    name: str
    role: Literal["baseline", "artifact"]
    runtime: str
    sha256: str
    size_bytes: int
    gzip_size_bytes: int | None = None
    recipe: RecipeName | None = None
    latency: Latency | None = None
    peak_memory_bytes: int | None = None
    accuracy: Accuracy | None = None
    size_ratio: float | None = None
    latency_ratio: float | None = None
    accuracy_drop: float | None = None
    accuracy_drop_interval: tuple[float, float] | None = None
    fixed: int | None = None
    broken: int | None = None
    error: str = ""


class Comparison(Noun, kw_only=True, frozen=True):
    """Two artifacts by their accuracy on the same samples.

    `difference` is the accuracy of `model` minus that of `other`, `interval` its 95 % interval;
    `fixed` and `broken` count the samples that `model` alone has right, and wrong.
    """

    model: str
    other: str
    difference: float
    interval: tuple[float, float]
    fixed: int
    broken: int


class Environment(Noun, kw_only=True, frozen=True):
    """The machine and the versions that the measurements belong to."""

    machine: str
    cpu: str
    cores: int
    system: str
    python: str
    tools: dict[str, str]


class Trial(Noun, kw_only=True, frozen=True):
    """One preprocessing, and how often the model is right with it.

    `preprocess` is the text that `--preprocess` takes. `interval` is the 95 % interval of the
    accuracy; `fits` says that the model works with it, and no other was shown to be better.
    `is_current` marks what is used now.
    """

    name: str
    preprocess: str
    accuracy: Accuracy
    interval: tuple[float, float]
    fits: bool
    is_current: bool = False


class Diagnosis(Noun, kw_only=True, frozen=True):
    """Which preprocessing a model was trained with, as far as some labelled samples tell.

    They are `data.samples` of the `available` ones.
    `data.preprocessing` is what is used now, `data.sha256` of the samples with it.
    `stored_dtype`, `stored_limits` are of the samples as they are stored. `classes` is the
    number of scores in the output, which are `scores`: "probabilities" add up to 1,
    "sigmoids" are in 0 to 1 and do not, and all else are "logits". The model's class is the
    label plus `label_offset`. `guessing` is the share of the commonest label, and `chance` how
    probable so good a best trial would be if the model only guessed. `trials` has the
    likeliest first: by accuracy, but a usual one before what was computed from these samples.
    """

    format: Literal[1] = 1
    model: str
    runtime: str
    data: DataIdentity
    available: int
    stored_dtype: str
    stored_limits: tuple[float, float]
    classes: int
    scores: Literal["probabilities", "sigmoids", "logits"]
    label_offset: int
    guessing: float
    chance: float
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> tuple[Trial, ...]:
        """The trials that fit, the likeliest first: one is clear, of several none is."""
        return tuple(trial for trial in self.trials if trial.fits)

    @property
    def ok(self) -> bool:
        """Whether there is a fit."""
        return bool(self.fits)


class Finding(Noun, kw_only=True, frozen=True):
    """One limit held against one number. A number that is missing or NaN never passes."""

    model: str
    limit: str
    allowed: float
    actual: float | None
    ok: bool


class Verdict(Noun, kw_only=True, frozen=True):
    """Every limit of a budget held against a report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is a finding, and every one holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)


class Report(Noun, kw_only=True, frozen=True):
    """A set of measurements made together, beside the baseline they are judged by."""

    format: Literal[1] = 1
    title: str
    environment: Environment
    data: DataIdentity | None
    baseline: Measurement | None
    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...] = ()
    training: TrainingRecord | None = None
    artifacts: tuple[Artifact, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()


class Limits(Noun, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The limits a budget may set; all are inclusive maxima but `min-accuracy`."""

    max_size_bytes: float | None = None
    max_gzip_size_bytes: float | None = None
    max_size_ratio: float | None = None
    max_latency_p50_us: float | None = None
    max_latency_ratio: float | None = None
    max_peak_memory_bytes: float | None = None
    max_accuracy_drop: float | None = None
    min_accuracy: float | None = None


class Budget(Noun, kw_only=True, frozen=True):
    """Limits for every artifact, and further ones by recipe name.

    As TOML: a table `[budget]` for all, and `[budget.recipe.NAME]` for one recipe.
    """

    every: Limits = Limits()
    recipe: dict[str, Limits] = {}
