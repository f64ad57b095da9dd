"""What a sweep consists of: its cells, each with the hash of all that decides it, and its jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from edgeconv import data
from edgeconv.data.code import custom_hash, find_custom
from edgeconv.model import source
from edgeconv.plugins.scale.sweep_file import DATA_KEYS, SweepFile, SweepRecipe, read_sweep
from edgeconv.plugins.scale.sweep_jobs import JobCell, Processor, SweepJob, processor_here
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.config.file import Config
from edgeconv.requests.config.reach import Granted
from edgeconv.requests.config.tables import Table
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.request import MissingOption
from edgeconv.requests.tune import SweepRequest, TuneRequest
from edgeconv.runtimes.choice import device_name, is_device
from edgeconv.system.store import also_reading, hash_of, tool_versions
from edgeconv.system.store.toml_file import Key
from edgeconv.system.store.user import allowed_by
from edgeconv.types import CALIBRATED, DataSource, Execution, Opening, RuntimeChoice
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed, UsageError
from edgeconv.types.words import listed

FindProcessor = Callable[[SweepFile, Sequence[RuntimeChoice]], Processor]

# Counts up when results of before are to be measured again.
REVISION = 2
_DIGITS = 16
Kind = TypeVar("Kind", ConvertRequest, TuneRequest, BenchRequest)


class PlannedCell(NamedTuple):
    """A cell: the texts of its model, recipe, runtime and data set, and its key."""

    key: str
    model: str
    recipe: str
    runtime: str
    data: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What tells it from the other cells of the sweep."""
        return self.model, self.data, self.recipe, self.runtime


class SweepPlan(NamedTuple):
    """All cells in the order of the file, and the jobs that measure all of them."""

    file: SweepFile
    cells: tuple[PlannedCell, ...]
    jobs: tuple[SweepJob, ...]

    def missing(self, known: Collection[str]) -> Iterator[SweepJob]:
        """The jobs of the cells whose keys are not known, each key once.

        Models of the same content, as copies are, share their cells.
        """
        taken = set(known)
        for job in self.jobs:
            cells = tuple(cell for cell in job.cells if cell.key not in taken)
            taken.update(cell.key for cell in cells)
            if cells:
                recipes = tuple(dict.fromkeys(cell.recipe for cell in cells))
                request = job.converting and replace(job.converting, to=recipes)
                yield replace(job, cells=cells, converting=request)


def make_plan(
    request: SweepRequest,
    directory: Path,
    on_progress: Callable[[str], None],
    processor: FindProcessor = processor_here,
) -> SweepPlan:
    """The cells and jobs of a sweep with results in `directory`.

    Models and data are hashed. `processor` is called where times are measured: they are of it.
    Raises `UsageError` and `InputRefused`, with the line.
    """
    granted = Granted(allowed=allowed_by(request.allow), any_code=request.any_code)
    file = read_sweep(Path(request.file), granted)
    hashes = _Hashes(request.execution)
    cells: list[PlannedCell] = []
    jobs: list[SweepJob] = []
    for model, path in file.models.items():
        on_progress(f"reading {model}")
        with _blamed(file, ("models",), model):
            source.identify(path)
        for name in file.data_of(model):
            requests = VerbRequests(request, file, model, name)
            with _blamed(file, ("data", name) if name else ("models",), model):
                combination = _Combination(requests, granted, hashes, file, processor)
                planned = tuple(combination.jobs(directory))
            jobs += planned
            cells += [
                PlannedCell(cell.key, model, cell.recipe, str(cell.runtime), name)
                for job in planned
                for cell in job.cells
            ]
    return SweepPlan(file, tuple(cells), tuple(jobs))


@contextlib.contextmanager
def _blamed(file: SweepFile, key: Key, model: str) -> Iterator[None]:
    """An error without a line gets the line of `key`."""
    try:
        yield
    except EdgeconvError as error:
        if error.location:
            raise
        where = file.written.error(key, f"{model}: {error.message}", "")
        error.location = where.location
        raise error.with_message(where.message) from error


class _Hashes:
    """Content hashes, each computed once in a run."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._data: dict[str, str] = {}

    def model(self, request: ConvertRequest | TuneRequest) -> str:
        """The hash of a model, and of the code that it is opened with."""
        opened = source.identify(request.model, request.opening, allow_code=True)
        return hash_of(opened.sha256, opened.opening.code_sha256)

    def data(self, each: DataSource | None) -> str:
        """The hash of what a SOURCE reads, "" without one."""
        if each is None:
            return ""
        text = str(each)
        if text not in self._data:
            try:
                known = data.identity(each, allow_code=True, allowance=self._execution.allowance)
            except (InputRefused, ToolFailed) as error:
                if not data.runs_code(each):
                    raise
                # Code of the user's fails again in its cells, which have the reason.
                known = hash_of(text, type(error).__name__)
            self._data[text] = known
        return self._data[text]


class _Combination:
    """One model on one data set."""

    def __init__(
        self,
        requests: VerbRequests,
        granted: Granted,
        hashes: _Hashes,
        file: SweepFile,
        processor: FindProcessor,
    ) -> None:
        self._requests, self._granted, self._hashes, self._file = requests, granted, hashes, file
        self._processor = processor

    def jobs(self, directory: Path) -> Iterator[SweepJob]:
        """One job for all recipes of `convert`, and one for each search in each runtime.

        Each device has its own.
        """
        names = [each.text for each in self._file.recipes if each.options is None]
        searches = [each for each in self._file.recipes if each.options is not None]
        measuring = self._requests.measuring(self._file.runtimes, self._granted)
        runtimes = measuring.measuring.runtimes
        if unfit := [str(each) for each in runtimes if each.name == "tfserving"]:
            raise UsageError(f"{unfit[0]} runs trained models, not .tflite files", hint="remove it")
        blank = SweepJob(
            name=self._requests.name,
            cells=(),
            measuring=measuring,
            results=str(directory),
            work=str(Path.cwd()),
        )
        for together in _by_device(runtimes) if names else ():
            converting = self._requests.converting(names, self._granted)
            _refuse_uncalibrated(names, converting)
            decided = self._decided(converting)
            pairs = [(recipe, runtime) for recipe in names for runtime in together]
            yield replace(
                blank,
                cells=tuple(self._cell(decided, *pair, measuring) for pair in pairs),
                converting=replace(converting, directory=_files(directory, decided)),
                measuring=_opened(measuring, converting.opening),
            )
        for recipe in searches:
            for runtime in runtimes:
                tuning = self._requests.tuning(recipe, runtime, self._granted)
                decided = self._decided(tuning)
                yield replace(
                    blank,
                    cells=(self._cell(decided, recipe.text, runtime, measuring),),
                    tuning=replace(tuning, directory=_files(directory, decided)),
                    measuring=_opened(measuring, tuning.opening),
                )

    def _decided(self, request: ConvertRequest | TuneRequest) -> str:
        """The hash of what decides the files, but for the recipe of `convert`."""
        settings = request.settings()
        if isinstance(request, ConvertRequest):
            del settings["to"]
        sources = [self._hashes.data(each) for each in request.inputs().sources]
        return hash_of(REVISION, self._hashes.model(request), settings, sources, tool_versions())

    def _cell(
        self, decided: str, recipe: str, runtime: RuntimeChoice, measuring: BenchRequest
    ) -> JobCell:
        settings = {k: each for k, each in measuring.settings().items() if k != "runtime"}
        chosen = measuring.measuring
        is_of_nodes = chosen.is_timed and not is_device(runtime)
        machine = self._processor(self._file, chosen.runtimes) if is_of_nodes else ()
        code = [_code_hash(each.module) for each in chosen.metrics if each.module]
        samples = self._hashes.data(measuring.data)
        key = hash_of("cell", decided, recipe, str(runtime), settings, samples, code, machine)
        return JobCell(key=key, recipe=recipe, runtime=runtime)


def _refuse_uncalibrated(recipes: Sequence[str], request: ConvertRequest) -> None:
    """Raise `UsageError` where recipes calibrate without samples: all cells of the job would fail.

    So it is refused before anything runs.
    """
    needy = [name for name in recipes if name in CALIBRATED]
    if needy and not (request.calibration or request.training):
        raise UsageError(
            f"calibration samples are needed for {listed(needy)}",
            hint='add calibration = "train.npz" to [data.NAME] or [model.PATTERN], with a few '
            "hundred training samples; float16 and dynamic need none",
        )


def _by_device(runtimes: Sequence[RuntimeChoice]) -> list[tuple[RuntimeChoice, ...]]:
    """The runtimes that are on no device, then the runtimes of each device."""
    names = sorted({device_name(runtime) for runtime in runtimes})
    return [tuple(each for each in runtimes if device_name(each) == name) for name in names]


def _files(directory: Path, decided: str) -> str:
    return str(directory / "files" / decided[:_DIGITS])


def _opened(measuring: BenchRequest, opening: Opening) -> BenchRequest:
    """The measurement, with the custom objects that the model is converted with."""
    is_own = bool(measuring.opening.custom_objects)
    return measuring if is_own else replace(measuring, opening=opening)


def _code_hash(module: str) -> str:
    return custom_hash([find_custom(module, str(Path.cwd()))])


class PlacedConfig(Config, frozen=True, kw_only=True):
    """The tables of a sweep's file as a configuration.

    `lines` says where the option of a verb is written that is not in the verb's table.
    """

    lines: dict[tuple[str, str], Key] = msgspec.field(default_factory=dict)

    def key(self, command: str, name: str, *, model: str = "") -> Key:
        """The key of an option's value."""
        return self.lines.get((command, name)) or super().key(command, name, model=model)


class VerbRequests:
    """The requests for one model on one data set. All raise `UsageError`, with the line."""

    def __init__(self, request: SweepRequest, file: SweepFile, model: str, data: str) -> None:
        self.name = f"{model} on {data}" if data else model
        self._execution = replace(request.execution, allow_code=True)
        self._sandbox = request.sandbox
        self._path = file.models[model]
        self._config = _config(file, model, data)
        self._is_timed = file.is_timed

    def converting(self, recipes: Sequence[str], granted: Granted) -> ConvertRequest:
        """To convert by some recipes; where to is not set yet."""
        typed = {"model": self._path, "to": ",".join(recipes)}
        return self._settled(self._request(ConvertRequest, "convert", typed, granted))

    def tuning(self, recipe: SweepRecipe, runtime: RuntimeChoice, granted: Granted) -> TuneRequest:
        """To search for a runtime; where to is not set yet."""
        typed = {"model": self._path, **(recipe.options or {})}
        return replace(
            self._settled(self._request(TuneRequest, "tune", typed, granted)), runtime=runtime
        )

    def measuring(self, runtimes: Sequence[str], granted: Granted) -> BenchRequest:
        """To measure in some runtimes; the files are not set yet."""
        # They are written once for all models, and may name what the project must not.
        config = replace(
            self._config, tables={"bench": {**self._table("bench"), "runtime": list(runtimes)}}
        )
        request = Table(config, "bench", granted).request(
            BenchRequest, {"models": (self._path,), "baseline": self._path}
        )
        measuring = replace(request.measuring, is_timed=self._is_timed)
        return self._settled(replace(request, measuring=measuring))

    def _table(self, verb: str) -> dict[str, Any]:
        return self._config.tables.get(verb, {})

    def _request(
        self, kind: type[Kind], verb: str, typed: dict[str, Any], granted: Granted
    ) -> Kind:
        try:
            return Table(self._config, verb, granted).request(kind, typed)
        except MissingOption as error:
            hint = 'add [data.NAME] with source = "test.npz?labels=y"'
            message = f"{verb} of {self._path} needs {error.leaf.key}"
            where = self._config.written.error(("recipes",), message, hint)
            raise UsageError(where.message, hint=hint, location=where.location) from error

    def _settled(self, request: Kind) -> Kind:
        also_reading(request.roots())
        return replace(request, execution=self._execution, sandbox=self._sandbox)


def _config(file: SweepFile, model: str, data: str) -> PlacedConfig:
    written = file.written
    lines: dict[tuple[str, str], Key] = {
        (verb, option): key
        for verb in ("convert", "tune", "bench")
        for option, key in file.options(model, verb).items()
    }
    for name, key in file.sources(model, data).items():
        lines |= dict.fromkeys(DATA_KEYS[name].items(), key)
    tables: dict[str, dict[str, Any]] = {}
    for (verb, option), key in lines.items():
        tables.setdefault(verb, {})[option] = written.table(*key[:-1])[key[-1]]
    lines["bench", "runtime"] = ("runtimes",)
    return PlacedConfig(written=written, tables=tables, lines=lines)
