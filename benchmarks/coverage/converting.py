"""One architecture through `edgeconv convert`, as a user would run it, to cells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from benchmarks.coverage.results import Cell
from edgeconv.model.tflite.operators import BRIDGES
from edgeconv.types import RECIPE_NAMES, Artifact, Conversion, Failure, LadderStep

if TYPE_CHECKING:
    from benchmarks.coverage.architecture import Architecture


Answer = TypeVar("Answer")

TIMEOUT_S = 1800.0
# What edgeconv's exit codes stand for, where no recipe got as far as an error of its own.
_CLASS_BY_EXIT_CODE = {2: "UsageError", 3: "InputRefused", 4: "ToolFailed"}


class Built(NamedTuple):
    """An architecture built: its model, its samples, and the directory to work in."""

    architecture: Architecture
    model: Path
    directory: Path

    @property
    def samples(self) -> dict[str, Path]:
        """The files of samples by signature, "" for the only one."""
        names = self.architecture.samples
        return {key: self.directory / f"{name}.npz" for key, name in names.items()}


class Ended(NamedTuple):
    """A run of `edgeconv convert`: `conversion` is None where it ended without one."""

    exit_code: int
    conversion: Conversion | None
    error: str


def build(name: str, architecture: Architecture, directory: Path) -> Built:
    """Build in a process of its own. Raises `CalledProcessError` with its log's end."""
    made = _python(["-m", "benchmarks.coverage.build", name, str(directory)], directory)
    if made.returncode:
        raise subprocess.CalledProcessError(made.returncode, name, made.stdout, made.stderr[-3000:])
    return Built(architecture, Path(made.stdout.splitlines()[-1]), directory)


def convert_all(built: Built) -> tuple[list[Cell], dict[str, Path]]:
    """A cell for every recipe, and the files of those that converted."""
    out = built.directory / "out"
    ended = _run(built, out)
    cells = cells_of(ended, RECIPE_NAMES, out)
    artifacts = ended.conversion.artifacts if ended.conversion else ()
    files = {artifact.recipe.name: out / artifact.file for artifact in artifacts}
    return [_without_places(cells[recipe], built) for recipe in RECIPE_NAMES], files


def edgeconv_json(
    arguments: Sequence[str], built: Built, kind: type[Answer]
) -> tuple[Answer | None, str, bool]:
    """What edgeconv answers, its error, and whether it ended without an error of its own."""
    done = _python(["-m", "edgeconv", *arguments, "--json", "-q"], built.directory)
    try:
        return msgspec.json.decode(done.stdout, type=kind), "", False
    except msgspec.DecodeError:
        is_known = done.returncode in _CLASS_BY_EXIT_CODE and "Traceback" not in done.stderr
        is_internal = "internal error" in done.stderr
        return None, done.stderr.strip()[-700:], is_internal or not is_known


def _run(built: Built, out: Path) -> Ended:
    options = ["--to", ",".join(RECIPE_NAMES), "--json", "-q", *built.architecture.options]
    for key, file in built.samples.items():
        options += ["--calibration", f"{key}={file}" if key else str(file)]
    done = _python(
        ["-m", "edgeconv", "convert", str(built.model), "-o", str(out), *options], built.directory
    )
    try:
        conversion = msgspec.json.decode(done.stdout, type=Conversion)
    except msgspec.DecodeError:
        conversion = None
    return Ended(done.returncode, conversion, done.stderr)


def _python(arguments: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Python on `arguments`, with a cache and temporary files under `directory`."""
    temporary = directory / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "EDGECONV_CACHE_DIR": str((directory / "cache").resolve()),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command,
            cwd=temporary,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, -signal.SIGKILL, "", f"no answer within {TIMEOUT_S:.0f} s"
        )


def cells_of(ended: Ended, recipes: Iterable[str], out: Path) -> dict[str, Cell]:
    """A cell for each of `recipes`: nothing that was asked for goes unmentioned."""
    artifacts = {a.recipe.name: a for a in ended.conversion.artifacts} if ended.conversion else {}
    failures = {f.recipe: f for f in ended.conversion.failures} if ended.conversion else {}
    cells = {}
    for recipe in recipes:
        if recipe in artifacts:
            cells[recipe] = _converted(artifacts[recipe], out)
        elif recipe in failures:
            cells[recipe] = _failed(failures[recipe])
        else:
            cells[recipe] = _ended_early(recipe, ended)
    return cells


def _converted(artifact: Artifact, out: Path) -> Cell:
    file = out / artifact.file
    fallback = silent_fallback(artifact, file)
    ratios = [error.snr_db for error in artifact.verification.outputs]
    return Cell(
        recipe=artifact.recipe.name,
        outcome="fallback" if fallback else "converted",
        message=fallback,
        snr_db=min(ratios, default=None),
        engine=artifact.engine,
        notes=(*artifact.notes, *artifact.verification.warnings),
        ladder=tuple(map(_step, artifact.ladder)),
        float_operators=artifact.float_operators if artifact.recipe.full_integer else (),
        float_weight_share=round(float_weight_share(file.read_bytes()), 4),
        size_bytes=artifact.size_bytes,
    )


def _step(step: LadderStep) -> str:
    return f"{step.attempt} ({step.failed.splitlines()[0]})" if step.failed else step.attempt


def _failed(failure: Failure) -> Cell:
    return Cell(
        recipe=failure.recipe, outcome="refused", error=failure.error, message=failure.message
    )


def _ended_early(recipe: str, ended: Ended) -> Cell:
    error = _CLASS_BY_EXIT_CODE.get(ended.exit_code, "")
    message = ended.error.strip().removeprefix("error: ")
    if error and message and "Traceback (most recent call last)" not in message:
        return Cell(recipe=recipe, outcome="refused", error=error, message=message)
    if ended.conversion is not None:
        return Cell(recipe=recipe, outcome="fallback", message="neither made nor mentioned")
    how = f"ended with exit code {ended.exit_code}"
    return Cell(recipe=recipe, outcome="crash", message=f"{how}\n{message[-3000:]}".strip())


def _without_places(cell: Cell, built: Built) -> Cell:
    """The cell without the names of this machine's directories."""

    def clean(text: str) -> str:
        text = text.replace(str(built.directory) + "/", "").replace(str(built.directory), ".")
        return text.replace(str(built.model.parent) + "/", "")

    return msgspec.structs.replace(
        cell,
        message=clean(cell.message),
        notes=tuple(map(clean, cell.notes)),
        ladder=tuple(map(clean, cell.ladder)),
    )


# Is a file what was asked for? Read from the file itself, by LiteRT's own schema.
# edgeconv's reading of a file is not asked: it is what is in question.

# A full-integer file without any float operator has next to no float constants: some feed
# the QUANTIZE operator that makes integers of them.
_MOST_FLOAT_SHARE = 0.5
_SAID_TO_BE_FLOAT = ("nothing was quantized", "nothing became float16")


def float_weight_share(content: bytes) -> float:
    """The fraction of a model's constant numbers that are stored as float32.

    Constants of 32 bits or more that are no floats (biases, shapes, indices) do not count;
    0 where there are no others.
    """
    from ai_edge_litert.schema_py_generated import ModelT, TensorType

    narrow = {TensorType.INT4, TensorType.INT8, TensorType.UINT8, TensorType.INT16}
    kinds = {TensorType.FLOAT32, TensorType.FLOAT16, *narrow}
    model = ModelT.InitFromPackedBuf(content, 0)
    elements: Counter[int] = Counter()
    seen = set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.type in kinds and tensor.buffer not in seen and _is_constant(model, tensor):
                seen.add(tensor.buffer)
                elements[tensor.type] += _elements(tensor)
    return elements[TensorType.FLOAT32] / elements.total() if elements else 0.0


def _is_constant(model: Any, tensor: Any) -> bool:
    buffer = model.buffers[tensor.buffer]
    # A quantiser can put large constants behind the flatbuffer proper, by offset.
    return bool(buffer.offset) or (buffer.data is not None and len(buffer.data) > 0)


def _elements(tensor: Any) -> int:
    count = 1
    for length in () if tensor.shape is None else tensor.shape:
        count *= int(length)
    return count


def silent_fallback(artifact: Artifact, file: Path) -> str:
    """What makes the file something else than was asked for, unsaid; "" where nothing does."""
    recipe, share = artifact.recipe, float_weight_share(file.read_bytes())
    if recipe.full_integer:
        said = {each.name for each in artifact.left_in_float} | BRIDGES
        unsaid = sorted(set(artifact.float_operators) - said)
        if unsaid:
            return f"computes in float: {', '.join(unsaid)}"
        # With operators left in float by name their weights may be all there are.
        most = 0.999 if artifact.float_operators else _MOST_FLOAT_SHARE
        return f"{share:.0%} of the weights are float32" if share > most else ""
    told = (*artifact.notes, *artifact.verification.warnings)
    is_said = any(said in text for said in _SAID_TO_BE_FLOAT for text in told)
    if recipe.name == "float32" or share < 1 or is_said:
        return ""
    return f"every weight is float32, and the manifest does not say so: {recipe.name}"
