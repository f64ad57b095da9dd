"""The text of a first edgeconv.toml, from what is known of a model without running it."""

from collections.abc import Iterator, Sequence

import msgspec

from edgeconv.reporting.units import plain
from edgeconv.requests.config.file import LONGEST_NAME
from edgeconv.requests.config.tables import options_of
from edgeconv.system.store.toml_file import toml_header, toml_value
from edgeconv.types import LIMIT_KINDS, GateStatistics, Inspection, Signature, TensorSpec
from edgeconv.types.words import SERVING_DEFAULT

_KINDS = {
    "saved_model": "SavedModel",
    "keras": "Keras file",
    "hdf5": "Keras HDF5 file",
    "tflite": ".tflite",
}
# Smaller files are mostly not weights, so recipes hardly change their size.
_SMALL_BYTES = 100_000
_SIZE_RATIOS = {"float16": 0.6, "int8": 0.4}
_DROPS = (0.01, 0.02, 0.03, 0.05, 0.1)
# The share of answers that differ from the trained model's, without and with int8.
_DIFFER, _DIFFER_INT8 = 0.01, 0.05
_FLOATS = frozenset({"float16", "float32", "float64"})
_UNKNOWN_TYPES = frozenset({"object", "resource", "variant"})


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that the file is written from; paths and SOURCEs as it will have them.

    `signatures` are those that can be converted, empty where they are not known (a Keras file that
    does not declare its inputs).
    `samples` is the number in `data`, 0 where it is not known.
    """

    inspection: Inspection
    signatures: tuple[Signature, ...]
    source: str
    checkpoint: str = ""
    data: str = ""
    samples: int = 0
    calibration: str = ""

    @property
    def signature(self) -> Signature | None:
        """The signature to convert."""
        default = [each for each in self.signatures if each.key == SERVING_DEFAULT]
        return next(iter((*default, *self.signatures)), None)

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes that are possible with these inputs and data."""
        inputs = self.signature.inputs if self.signature else ()
        if any(tensor.dtype in _UNKNOWN_TYPES for tensor in inputs):
            return ("float32",)
        return ("float32", "float16", "dynamic", *(("int8",) if self.calibration else ()))


def config_text(start: Start) -> str:
    """The file, which `load_config` takes."""
    parts = (_head(), _model(start), _convert(start), _bench(start), _budget(start), _check())
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _head() -> Iterator[str]:
    yield "# What `edgeconv check` converts, measures and checks; see docs/config.md."
    yield "# Paths are relative to this file's folder. `edgeconv config show` prints values and"
    yield "# their origins, `edgeconv config schema` a schema for editors."


def _model(start: Start) -> Iterator[str]:
    model = start.inspection.model
    yield toml_header(("model", model.name[:LONGEST_NAME]))
    yield f"# A {_KINDS[model.kind]}, {model.size_bytes:,} bytes."
    for note in model.notes:
        yield f"# {plain(note)}"
    if not start.signatures:
        yield "# The inputs and outputs of this Keras file are known once it is loaded."
    for signature in start.signatures:
        yield f"# signature {plain(signature.key) or '(without a name)'}"
        for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
            yield from (f"#   {side} {_tensor(tensor)}" for tensor in tensors)
    yield f"source = {toml_value(start.source)}"
    yield "# The checkpoint that it was exported from, which is measured too:"
    yield _optional("checkpoint", start.checkpoint, "model.keras")
    yield "# The slice of each test sample, such as a country or a camera, one on each line:"
    yield '# slices = "slices.txt"'


def _convert(start: Start) -> Iterator[str]:
    yield "[convert]"
    yield "# float32, float16, dynamic, weight-only-int8, int8, int16x8; or all; 4 bits:"
    yield "# weight-only-int4 and int8x4; or qat, which trains. int8, int16x8, int8x4 need samples."
    yield f"to = {toml_value(start.recipes)}"
    yield "# A few hundred typical samples; see docs/data.md."
    yield _optional("calibration", start.calibration, "calibration.npz")
    yield "# The preprocessing of each stored sample; `edgeconv doctor MODEL DATA` finds it."
    yield '# preprocess = "scale=1/127.5&mean=1"'
    yield from _signature_lines(start)
    yield from _shape_lines(start)
    if start.signature and all(tensor.dtype in _FLOATS for tensor in start.signature.inputs):
        yield "# Integer inputs and outputs of the full-integer recipes:"
        yield '# io = ["int8"]'
    yield "# Without post-training methods, which are tried where they are needed; docs/methods.md:"
    yield '# methods = "none"'
    yield "# The runtime of your app, where the files are verified too:"
    yield '# target-runtime = "tflite-runtime==2.14.0"'


def _signature_lines(start: Start) -> Iterator[str]:
    if len(start.signatures) > 1 and start.signature:
        keys = ", ".join(plain(signature.key) for signature in start.signatures)
        yield f"# One or several of {keys}, in one file; or all."
        yield f"signature = {toml_value([start.signature.key])}"


def _shape_lines(start: Start) -> Iterator[str]:
    inputs = start.signature.inputs if start.signature else ()
    if any(tensor.shape[:1] == (-1,) for tensor in inputs):
        yield "# The batch is open; this fixes it:"
        yield "# batch = 1"
    inner = [tensor for tensor in inputs if -1 in tensor.shape[1:]]
    if inner:
        yield "# Further dimensions are open (?); some devices need them fixed:"
        yield f"# shape = {toml_value([_shape(tensor) for tensor in inner])}"


def _bench(start: Start) -> Iterator[str]:
    yield "[bench]"
    yield "# Samples with labels, used neither for training nor for calibration. Without them no"
    yield "# accuracy is measured, and a limit on it does not hold."
    yield _optional("data", start.data, "test.npz")
    yield '# metric = "top1"'
    yield '# runtime = "litert"'


def _budget(start: Start) -> Iterator[str]:
    is_small = start.inspection.model.size_bytes < _SMALL_BYTES
    yield "# A broken limit, or one whose number is missing, makes `edgeconv check` exit with 1."
    yield "[budget]"
    drop = decidable_drop(start.samples, start.recipes) if start.samples else _DROPS[0]
    limit: object = drop
    if start.samples:
        lower = [each for each in _DROPS if drop is None or each < drop][-1:]
        counts = ((each, _needed(each, start.recipes)) for each in lower)
        needs = [f"{limit:g} needs {count:,}" for limit, count in counts if count]
        can = f"can decide a limit of {drop:g}" if drop else "are too few to decide a limit"
        said = "; ".join([can, *needs])
        yield f"# {start.samples:,} test samples {said}; see docs/gate-statistics.md."
    if drop is None:
        limit = {"limit": _DROPS[-1], "severity": "warn"}
    yield from _limit("max-accuracy-drop", limit, active=bool(start.data))
    yield from _limit("max-class-drop", 0.05, active=False)
    yield from _limit("max-size-ratio", 1.5 if is_small else 1.1, active=True)
    yield from _limit("max-latency-ratio", {"limit": 1.2, "severity": "warn"}, active=False)
    yield from _limit("oldest-runtime", "2.14.0", active=False)
    for recipe, ratio in _SIZE_RATIOS.items():
        if recipe in start.recipes and not is_small:
            yield ""
            yield toml_header(("budget", "recipe", recipe))
            yield f"max-size-ratio = {ratio}"


def decidable_drop(samples: int, recipes: Sequence[str]) -> float | None:
    """The smallest usual limit that these samples can decide for these recipes, or None."""
    enough = ((limit, _needed(limit, recipes)) for limit in _DROPS)
    return next((limit for limit, needed in enough if needed and needed <= samples), None)


def _needed(limit: float, recipes: Sequence[str]) -> int | None:
    """How many samples decide a limit: each file is compared with the trained model and the lock.

    None where no number is enough.
    """
    from edgeconv.gate.budget import levels_of
    from edgeconv.statistics.drop import enough_pairs

    levels = levels_of(GateStatistics()).shared(2 * len(recipes) + 1)
    differ = _DIFFER_INT8 if "int8" in recipes else _DIFFER
    return enough_pairs(differ, limit, levels)


def _check() -> Iterator[str]:
    yield "[check]"
    for key, leaf in options_of("check").items():
        if key in ("confidence", "method", "inconclusive"):
            choices = f" One of {', '.join(leaf.choices)}." if leaf.choices else ""
            yield f"# {leaf.option.help}{choices}"
            yield f"# {key} = {toml_value(leaf.raw_default)}"
    yield "# Also text, json, sarif, and the formats of GitHub and GitLab:"
    yield '# output = ["junit=build/junit.xml"]'


def _limit(name: str, value: object, *, active: bool) -> Iterator[str]:
    yield f"# {LIMIT_KINDS[name].words}"
    yield f"{'' if active else '# '}{name} = {toml_value(value)}"


def _optional(key: str, value: str, example: str) -> str:
    return f"{key} = {toml_value(value)}" if value else f"# {key} = {toml_value(example)}"


def _tensor(tensor: TensorSpec) -> str:
    return f"{plain(tensor.name)}: {plain(tensor.dtype)} {tensor.shape_text}"


def _shape(tensor: TensorSpec) -> str:
    sizes = "x".join("?" if size < 0 else str(size) for size in tensor.shape)
    return f"{tensor.name}={sizes}"
