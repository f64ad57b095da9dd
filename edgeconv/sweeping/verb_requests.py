"""The requests of `convert`, `tune` and `bench` for a model and a data set of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from edgeconv.config.file import Config
from edgeconv.config.tables import Table
from edgeconv.errors import UsageError
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.option import MissingOption
from edgeconv.requests.tune import TuneRequest
from edgeconv.sweeping.file import DATA_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.config.reach import Granted
    from edgeconv.requests.sweep import SweepRequest
    from edgeconv.store.toml_text import Key
    from edgeconv.sweeping.file import SweepFile
    from edgeconv.sweeping.recipes import SweepRecipe
    from edgeconv.types import RuntimeChoice


Kind = TypeVar("Kind", ConvertRequest, TuneRequest, BenchRequest)


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
