"""The models of a configuration as jobs for the gate: what `convert` and `bench` are to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from click.core import ParameterSource

from edgeconv.cli.chosen import Chosen, explained
from edgeconv.cli.config_values import options_of
from edgeconv.cli.options import execution
from edgeconv.gate import lock
from edgeconv.gate.accepting import parse_accepted, refuse_without_update
from edgeconv.gate.flow import Checking
from edgeconv.gate.jobs import Extent, Job
from edgeconv.types import Judging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import click

    from edgeconv.config.file import ModelTable
    from edgeconv.types import Budget, Conversion, Report

_BENCH, _CONVERT = "bench", "convert"
# These change no result, or are places: what is there counts by its content.
_NO_SETTINGS = frozenset(
    (
        *("model", "models", "artifact", "directory", "calibrations", "data_source", "data"),
        *("baseline", "training", "labels", "depfile", "depfile_target", "title"),
        *("quiet", "as_json", "no_cache", "threads", "timeout_s", "memory_limit_mib"),
    )
)


class Jobs:
    """The jobs of a configuration, and the options that the command line has for all of them."""

    def __init__(self, ctx: click.Context, on_progress: Callable[[str], None]) -> None:
        self._chosen = Chosen(ctx)
        self.config = self._chosen.config
        self._on_progress = on_progress

    def named(self, names: Sequence[str]) -> tuple[Job, ...]:
        """The jobs of these models, of all where none is named. Raises `UsageError`."""
        return tuple(self._job(model) for model in self._chosen.models(names))

    def report_directory(self, name: str) -> Path | None:
        """Where the report of a model goes, where `out` of [bench] says so."""
        return self._chosen.directory(self.config.models[name], _BENCH)

    def lock_place(self, given: str | None) -> Path:
        """Where the lock is: as `given`, or beside the configuration."""
        beside = self.config.folder / lock.FILE_NAME
        return Path(given) if given else self._chosen.within_project(beside, "the lock")

    def _job(self, model: ModelTable) -> Job:
        converting = None
        if (ready := self._ready_made(model)) is None:
            with explained(self.config, model, _CONVERT):
                converting = self._chosen.converting(model)
        # For its options: the files are known when they are made.
        with explained(self.config, model, _BENCH):
            measuring = self._chosen.context(model, _BENCH, ["--", model.source])
        options = measuring.params

        def convert() -> Conversion:
            from edgeconv.cli.convert import convert_of

            if converting is None:
                assert ready is not None
                return ready
            return convert_of(converting, self._on_progress)

        def bench(files: Sequence[Path], extent: Extent, baseline: str = "") -> Report:
            from edgeconv.cli.bench import bench_of

            other = baseline or options["baseline"]
            words = [
                *(("--baseline", baseline) if baseline else ()),
                *_metrics(options["metrics"], extent.metrics),
                *(_opening_words(converting) if converting and not other else ()),
                *("--", *map(str, files)),
            ]
            context = self._chosen.context(model, _BENCH, words)
            return bench_of(context, self._on_progress, is_timed=extent.is_timed)

        def bench_checkpoint(files: Sequence[Path], extent: Extent) -> Report:
            return bench(files, extent, model.checkpoint)

        return Job(
            name=model.name,
            source=model.source,
            budget=_of_recipe(model.budget, ready) if ready else model.budget,
            convert=convert,
            bench=bench,
            settings={
                **({_CONVERT: settings(converting)} if converting else {}),
                _BENCH: settings(measuring),
            },
            bench_checkpoint=bench_checkpoint if model.checkpoint else None,
            checkpoint=model.checkpoint,
            baseline=options["baseline"] or "",
            calibration=_calibration(converting) if converting else (),
            training=converting.params["training"] if converting else "",
            test=options["data_source"] or "",
            slices=model.slices,
        )

    def _ready_made(self, model: ModelTable) -> Conversion | None:
        """The source of a model itself, where it is quantized already; None for any other.

        Raises `UsageError` for options that would convert it.
        """
        from edgeconv.errors import InputRefused
        from edgeconv.source import ready_made
        from edgeconv.types import Conversion

        if not model.source.lower().endswith(".tflite"):
            return None
        try:
            found = ready_made(model.source)
        except InputRefused:
            return None  # The conversion says what is wrong with it.
        if found.recipe.name in ("float32", "float16"):
            return None
        own = ("model", model.name, _CONVERT)
        if self.config.written.has(*own):
            raise self.config.written.error(
                own,
                f"model {model.name!r} is quantized already, so nothing is converted",
                "remove this table, or name the float model as its source",
            )
        return Conversion(directory=str(Path(model.source).parent), artifacts=(found,))


def _of_recipe(budget: Budget, ready: Conversion) -> Budget:
    """The limits for what is there, without those of recipes that nothing is converted to."""
    made = {one.recipe.name for one in ready.artifacts}
    fitting = {name: limits for name, limits in budget.recipe.items() if name in made}
    return msgspec.structs.replace(budget, recipe=fitting)


def _metrics(configured: Sequence[str], locked: Sequence[str]) -> list[str]:
    """The options that measure the locked metrics too, after the configured one; mostly none."""
    first = tuple(configured) or ("top1",)
    further = [name for name in locked if name not in first]
    return [word for name in (*first, *further) for word in ("--metric", name)] if further else []


def settings(context: click.Context) -> dict[str, Any]:
    """The options that decide a result and are not at their default, as plain values; no place."""
    from edgeconv.data.preprocessing import describe, parse_preprocessing

    found = {}
    for key, option in options_of(context.command).items():
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name not in _NO_SETTINGS and source != ParameterSource.DEFAULT:
            found[key] = context.params[name]
    if found.get("preprocess"):
        # It may be a file.
        found["preprocess"] = describe(parse_preprocessing(found["preprocess"]))
    return found


def checking_of(
    ctx: click.Context, jobs: Jobs, on_progress: Callable[[str], None]
) -> tuple[Checking, Path]:
    """How the models are judged and run, by the options of `check`; and the place of the lock.

    Raises `InputRefused` for a lock that cannot be read, `UsageError` for losses to be accepted
    that there cannot be.
    """
    options = ctx.params
    refuse_without_update(options["accept_drops"], updates=options["update"])
    place = jobs.lock_place(options["lock"])
    accepted = lock.read(place) if place.exists() or place.is_symlink() else None
    checking = Checking(
        judging=judging_of(ctx),
        execution=execution(options),
        locked=accepted.models if accepted else {},
        has_lock=accepted is not None,
        accepting=options["update"],
        accepted_drops=parse_accepted(options["accept_drops"], jobs.config.models),
        on_progress=on_progress,
    )
    return checking, place


def judging_of(ctx: click.Context) -> Judging:
    """The options of `check` that say how to judge."""
    return Judging(**{name: ctx.params[name] for name in Judging.__struct_fields__})


def _opening_words(converting: click.Context) -> list[str]:
    """How the conversion opens the trained model, as words for measuring it."""
    custom = converting.params["custom_objects"]
    return [word for text in custom for word in ("--custom-objects", text)]


def _calibration(context: click.Context) -> tuple[str, ...]:
    from edgeconv.requests.convert import by_signature

    keys: Any = {("signature",): context.params["signatures"]}
    sources = by_signature(context.params["calibrations"], keys)
    return tuple(text for _, text in sorted(sources.items()))
