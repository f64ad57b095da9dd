"""What the verbs find that look into a model: a scan, a preprocessing, layers, a difference."""

from typing import Literal

from edgeconv.types.checks import Severity
from edgeconv.types.conversion import (
    CalibrationRecord,
    LayerRule,
    Methods,
    OutputError,
    PostTraining,
    Precision,
    Recipe,
    RecipeName,
    SharedScale,
)
from edgeconv.types.measurement import Accuracy
from edgeconv.types.model import FrozenStruct, Result, SourceKind, TensorSpec
from edgeconv.types.samples import DataIdentity

FindingKind = Literal[
    "operator", "path", "asset", "checkpoint", "device", "function", "class", "structure"
]


class ScanFinding(FrozenStruct, kw_only=True, frozen=True):
    """Something in a model that loading or running it should not meet.

    `where` is the place in the model (a node, a layer, a file of it), `what` is there, `why` is
    what it could do. `count` places of the model have the same; `where` is the first. A model
    with an "error" is refused; a "warn" is only told.
    """

    kind: FindingKind
    where: str
    what: str
    why: str
    severity: Severity = "error"
    count: int = 1


class Scan(Result, kw_only=True, frozen=True):
    """What the scan says of one model. `sha256` is the hash that `trusted` lists name."""

    path: str
    kind: SourceKind
    sha256: str
    findings: tuple[ScanFinding, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether no command loads the model unless it is trusted."""
        return any(finding.severity == "error" for finding in self.findings)


class Trial(FrozenStruct, kw_only=True, frozen=True):
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


class Diagnosis(Result, kw_only=True, frozen=True):
    """Which preprocessing a model was trained with, as far as some labeled samples tell.

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


# A smaller gain may be a loss on other samples.
LEAST_GAIN_DB = 0.5


class Sensitivity(FrozenStruct, kw_only=True, frozen=True):
    """What one layer alone costs: it has this precision, and all others are in float.

    `layer` is its short name, as in a `LayerRule`; `weights` counts the numbers of its largest
    constant. `snr_db` is the lowest signal-to-noise ratio of the model's outputs against the float
    model, in decibels, within ±200.
    """

    layer: str
    operator: str
    weights: int
    precision: Precision
    snr_db: float


class DebuggedLayer(FrozenStruct, kw_only=True, frozen=True):
    """One layer of a float graph, and the effect of its precision in the quantized file.

    `layer` is its short name, and `tensor` the name of its first output tensor. `position` is its
    number in the graph, from 1. `weight_bytes` is what its largest constant takes in `precision`.
    `alone_snr_db` is the lowest signal-to-noise ratio of the model's outputs when this layer alone
    is quantized; None where it runs in float, or does not run so. `inside_snr_db` is that of the
    layer's own output in the quantized file, with the errors of the layers before it; None where
    the file has no tensor of that name and shape.
    """

    layer: str
    operator: str
    position: int
    weights: int
    weight_bytes: int
    precision: Precision
    alone_snr_db: float | None = None
    inside_snr_db: float | None = None
    tensor: str = ""


class LayerFix(FrozenStruct, kw_only=True, frozen=True):
    """A change that was tried, and the file that it gave.

    It is one of these: `rules` for the worst layers; `methods`, with what they chose in
    `post_training`; or another `recipe` without methods. `snr_db` is the lowest signal-to-noise
    ratio of the outputs, in decibels.
    """

    rules: tuple[LayerRule, ...] = ()
    methods: Methods = ()
    recipe: RecipeName | None = None
    snr_db: float
    size_bytes: int
    post_training: PostTraining | None = None


class Debugged(Result, kw_only=True, frozen=True):
    """Which layers of a model lose most by a recipe, and what helps.

    `outputs` is how far each output of the quantized model is from the float32 model's, `snr_db`
    the lowest of their signal-to-noise ratios, and like all the others here it is over the same
    `samples` of those that calibrated. `layers` has the costliest first, by `alone_snr_db`.
    `fixes` are all that were tried, in order; `post_training` says which ranges and
    methods the file has.
    """

    format: Literal[1] = 1
    model: str
    signature: str
    recipe: Recipe
    calibration: CalibrationRecord
    samples: int
    runtime: str
    float_size_bytes: int
    size_bytes: int
    outputs: tuple[OutputError, ...] = ()
    snr_db: float
    layers: tuple[DebuggedLayer, ...]
    fixes: tuple[LayerFix, ...] = ()
    post_training: PostTraining | None = None
    shared_scales: tuple[SharedScale, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def helpful(self) -> tuple[LayerFix, ...]:
        """The fixes worth having, the best first, and those with another recipe after the others.

        Each makes the outputs clearly better than the file does as it is. Of those with the same
        recipe, each is also clearly better than all whose files are as small or smaller.
        """
        helpful: list[LayerFix] = []
        best_db = self.snr_db
        for fix in sorted(self.fixes, key=lambda each: (each.size_bytes, -each.snr_db)):
            if fix.recipe is None and fix.snr_db >= best_db + LEAST_GAIN_DB:
                helpful.append(fix)
                best_db = fix.snr_db
        others = [fix for fix in self.fixes if fix.recipe is not None]
        better = [fix for fix in others if fix.snr_db >= self.snr_db + LEAST_GAIN_DB]
        return (*reversed(helpful), *sorted(better, key=lambda each: -each.snr_db))


class NumberChange(FrozenStruct, kw_only=True, frozen=True):
    """A number before and after; None where it was not measured.

    `quantity` is the field of a measurement, with its unit in the name, or "metric:NAME".
    `interval` is the 95 % interval of after minus before, where samples could be paired, and of
    a median time where both were taken in several rounds.
    """

    quantity: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None


class OperatorChange(FrozenStruct, kw_only=True, frozen=True):
    """How often an operator is in a graph, at a version, before and after."""

    operator: str
    version: int
    before: int
    after: int


class TensorChange(FrozenStruct, kw_only=True, frozen=True):
    """A tensor whose type, shape, scale or zero point is another one; None where it is not there.

    `role`: it is an input, an output, or inside the graph.
    """

    role: Literal["input", "output", "inside"]
    before: TensorSpec | None
    after: TensorSpec | None


class FlipCount(FrozenStruct, kw_only=True, frozen=True):
    """Samples whose class is another one: what it was, what it is, and some of their indices."""

    label: int | None
    before: int
    after: int
    samples: tuple[int, ...]


class ModelDifference(FrozenStruct, kw_only=True, frozen=True):
    """One model before and after; equal numbers and tensors are left out.

    `same_file` says that both have the same content. `fixed` and `broken` count the samples
    that became right and wrong, None where both are not known for the same samples.
    """

    before: str
    after: str
    same_file: bool
    numbers: tuple[NumberChange, ...] = ()
    operators: tuple[OperatorChange, ...] = ()
    tensors: tuple[TensorChange, ...] = ()
    fixed: int | None = None
    broken: int | None = None
    flips: tuple[FlipCount, ...] = ()


class Difference(Result, kw_only=True, frozen=True):
    """All that changed between two reports, or between two .tflite files.

    `refused` says what was not compared, and why. `only_before` and `only_after` are the models
    that only one of them has.
    """

    format: Literal[1] = 1
    before: str
    after: str
    models: tuple[ModelDifference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
