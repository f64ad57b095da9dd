"""The models of a configuration that a verb is about, and the requests for each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgeconv.requests.config.file import MODEL_KEYS, Config, ModelTable
from edgeconv.requests.config.reach import Granted, NotAllowed, find_config, refusal
from edgeconv.requests.config.tables import Table, options_of, read_config
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.request import MissingOption, Request, leaves_of, put, spread, value_at
from edgeconv.requests.texts import Reach
from edgeconv.system.store.files import also_reading
from edgeconv.system.store.user import allowed_by
from edgeconv.types.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgeconv.requests.check import BuildRequest, CheckRequest
    from edgeconv.system.store.toml_file import Key

Kind = TypeVar("Kind", bound="Request")
Settled = TypeVar("Settled", "CheckRequest", "BuildRequest")
_EXAMPLES = {"to": '"int8"', "target": '"android"', "out": '"app"'}


class NoConfig(UsageError):
    """There is no configuration where one is needed."""

    def __init__(self) -> None:
        super().__init__(
            "there is no edgeconv.toml here, and no pyproject.toml with [tool.edgeconv]",
            hint="write one with `edgeconv init MODEL`, or name it with --config",
        )


def settled(request: Settled, verb: str) -> Settled:
    """A request, with the values of the verb's table for the fields that have their defaults.

    Raises `UsageError`, with the line, for a value that is wrong.
    """
    if not request.by_table or (path := _config_path(request.config)) is None:
        return request
    table = Table(read_config(path), verb, granted_by(request))
    written, values = table.values(), dict[tuple[str, ...], Any]()
    for leaf in leaves_of(type(request)):
        if leaf.key in written and value_at(request, leaf.path) == leaf.default:
            values |= spread(leaf, leaf.value(written[leaf.key], values))
    return put(type(request), {**values, ("by_table",): False}, request)


def granted_by(request: CheckRequest | BuildRequest) -> Granted:
    """What a request allows the configuration. Raises `UsageError`."""
    return Granted(allowed=allowed_by(request.allow), any_code=request.any_code)


class Chosen:
    """A configuration, what it is allowed, and how everything runs.

    Without `config`, the request's is read, or the one in the current directory. Raises
    `UsageError`.
    """

    def __init__(self, request: CheckRequest | BuildRequest, config: Config | None = None) -> None:
        self.config = config or _read(request.config)
        models = self.config.models.values()
        named = [path for model in models for key in MODEL_KEYS if (path := getattr(model, key))]
        also_reading((self.config.path, *map(Path, named)))
        self.granted = granted_by(request)
        self._execution = request.execution.typed()

    def models(self, names: Sequence[str]) -> tuple[ModelTable, ...]:
        """The models of these names, all where none is named. Raises `UsageError`."""
        models = self.config.models
        if not models:
            raise UsageError(
                f"{self.config.path} has no model", hint='add [model.NAME] with source = "PATH"'
            )
        for name in names:
            if name not in models:
                raise unknown_name("model", name, models)
        chosen = tuple(model for name, model in models.items() if name in names or not names)
        for model in chosen:
            self._refuse_paths(model)
        return chosen

    def within_project(self, path: Path, what: str, *key: str) -> Path:
        """The path. Raises `NotAllowed`, with the line of `key`, if it leads out of the project."""
        self._refuse_elsewhere(Reach("path", str(path)), what, key)
        return path

    def _refuse_elsewhere(self, reach: Reach, what: str, key: Key) -> None:
        if refused := refusal(reach, self.config.path, self.granted):
            error = self.config.written.error(key, f"{what} {refused.message}", refused.hint)
            raise NotAllowed(error.message, hint=error.hint, location=error.location)

    def _refuse_paths(self, model: ModelTable) -> None:
        for key in MODEL_KEYS:
            if path := getattr(model, key):
                what = f"{key} of model {model.name!r}"
                self._refuse_elsewhere(Reach("tree", path), what, ("model", model.name, key))

    def request(
        self, kind: type[Kind], verb: str, model: ModelTable, values: Mapping[str, Any]
    ) -> Kind:
        """The request of a verb for a model: `values`, by the options' keys, and its table.

        Raises `UsageError`, with the line, also for an option that is missing.
        """
        known = options_of(verb).keys() | {"trust-model"}
        overrides = {key: value for key, value in self._execution.items() if key in known}
        table = Table(self.config, verb, self.granted, model=model.name)
        try:
            settled = table.request(kind, {**overrides, **values})
        except MissingOption as error:
            key = error.leaf.key
            raise UsageError(
                f"{model.name}: [{verb}] has no `{key}`",
                hint=f"add {key} = {_EXAMPLES[key]}" if key in _EXAMPLES else "",
                location=self.config.origin("model", model.name, verb),
            ) from error
        also_reading(settled.roots())
        return settled

    def converting(self, model: ModelTable) -> ConvertRequest:
        """The model's conversion, by default to NAME.tflites in the configuration's folder."""
        values = {"model": model.source, "out": str(self._published(model))}
        return self.request(ConvertRequest, "convert", model, values)

    def published(self) -> list[Path]:
        """The directories of the conversions of all models whose tables are complete."""
        directories = []
        for model in self.config.models.values():
            with contextlib.suppress(UsageError):
                directories.append(Path(self.converting(model).directory or ""))
        return directories

    def _published(self, model: ModelTable) -> Path:
        directory = self.directory(model, "convert")
        default = self.config.folder / f"{model.name}.tflites"
        what = f"the directory of model {model.name!r}"
        return directory or self.within_project(default, what, "model", model.name)

    def directory(self, model: ModelTable, verb: str) -> Path | None:
        """`out` of a verb's table; of a general one, a folder for each of several models."""
        out = Table(self.config, verb, self.granted, model=model.name).values().get("out")
        if out is None:
            return None
        is_own = self.config.key(verb, "out", model=model.name)[0] == "model"
        is_alone = is_own or len(self.config.models) == 1
        return Path(out.value) if is_alone else Path(out.value, model.name)


def _config_path(named: str | None) -> Path | None:
    return Path(named) if named is not None else find_config(Path())


def _read(named: str | None) -> Config:
    if (path := _config_path(named)) is None:
        raise NoConfig
    return read_config(path)
