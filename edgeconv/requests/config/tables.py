"""The tables of a configuration as requests: values are checked, errors have their line.

The keys of a table are the long options of the command that it is called after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgeconv.requests.config.reach import Granted, NotAllowed, refusal
from edgeconv.requests.request import Leaf, Parsed, Refused, Request, leaves_of, request_of
from edgeconv.requests.table import TABLES
from edgeconv.system.store.toml_file import Key, shown
from edgeconv.types.errors import EdgeconvError, InputRefused, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.requests.config.file import Config
    from edgeconv.requests.texts import Reach

Kind = TypeVar("Kind", bound=Request)


class OptionNames(Mapping[str, tuple[str, ...]]):
    """The keys of each table, whose request is imported when they are used."""

    def __getitem__(self, verb: str) -> tuple[str, ...]:
        return tuple(options_of(verb))

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)


def options_of(verb: str) -> dict[str, Leaf]:
    """The options of a verb and of its command that a configuration may give, by their keys."""
    entry = TABLES[verb]
    leaves = (*leaves_of(entry.kind), *leaves_of(entry.printing))
    return {
        leaf.key: leaf for leaf in leaves if not (leaf.option.is_argument or leaf.option.is_typed)
    }


def read_config(path: Path) -> Config:
    """The configuration in a file. Raises `UsageError`, with the line."""
    # Where there is none, what reads one is not imported.
    from edgeconv.requests.config.file import load_config

    return load_config(path, OptionNames())


class Table:
    """The options that a configuration has for a verb, and for a model, if one is named.

    What the project may not name and is not `granted` raises `NotAllowed`; with None, only for
    display, nothing is refused.
    """

    def __init__(
        self, config: Config | None, verb: str, granted: Granted | None, *, model: str = ""
    ) -> None:
        self._config = config
        self._verb = verb
        self._granted = granted
        self._model = model

    def values(self, typed: Collection[str] = ()) -> dict[str, Any]:
        """The values, with texts as `Parsed`. Raises `UsageError`, with file and line.

        The keys in `typed`, which come from the user, are left out.
        """
        refused = self.refused() if typed else {}
        values = self._implied() | {
            key: self._value(leaf, raw)
            for key, leaf, raw in self._written()
            if not (key in typed and key in refused)
        }
        return {key: value for key, value in values.items() if key not in typed}

    def _implied(self) -> dict[str, Any]:
        """That of [convert] where [bench] names an NPU, as `tune` does: floats do not run there."""
        is_for_npu = self._verb == "convert" and self._tables.get("bench", {}).get("npu")
        return {"full-integer": True} if is_for_npu else {}

    def origin(self, key: str) -> Key:
        """The key of the file that a value is from."""
        assert self._config is not None
        is_written = key in self._tables.get(self._verb, {})
        at = (self._verb, key) if is_written else ("bench", "npu")
        return self._config.key(*at, model=self._model)

    def refused(self) -> dict[str, NotAllowed]:
        """The errors of `values` for what is not allowed, by key."""
        errors = {}
        for key, leaf, raw in self._written():
            try:
                self._value(leaf, raw)
            except NotAllowed as error:
                errors[key] = error
        return errors

    def request(self, kind: type[Kind], typed: Mapping[str, Any]) -> Kind:
        """The verb's request: from `typed`, and the table.

        Raises as `request_of`, with file and line for a value of the table.
        """
        written = self.values(typed.keys())
        return request_of(kind, typed, runs_code=True, written=written, blame=self.blamed)

    def _written(self) -> Iterator[tuple[str, Leaf, Any]]:
        written = self._tables.get(self._verb, {})
        options = options_of(self._verb) if written else {}
        yield from ((key, options[key], raw) for key, raw in written.items())

    @property
    def _tables(self) -> Mapping[str, Mapping[str, Any]]:
        config = self._config
        if config is None:
            return {}
        return config.models[self._model].tables if self._model else config.tables

    def _value(self, leaf: Leaf, raw: Any) -> Any:
        try:
            if leaf.several:
                each = raw if isinstance(raw, list) else [raw]
                return [self._item(leaf, item) for item in each]
            return self._item(leaf, leaf.joined(raw))
        except (Refused, NotAllowed) as error:
            raise self.blamed(leaf.key, error) from error

    def _item(self, leaf: Leaf, raw: Any) -> Any:
        leaf.refuse(raw)
        if not isinstance(raw, str) or leaf.takes == "choice":
            return raw
        if "\0" in raw:
            raise Refused(f"has a character that no text may have: {shown(raw)}")
        assert self._config is not None
        try:
            value = leaf.text.within(leaf.text.parse(raw), self._config.folder)
            self._refuse(leaf.text.reaches(value))
        except NotAllowed:
            raise
        except (UsageError, InputRefused) as error:
            raise Refused(f"is not understood: {error.message}", hint=error.hint) from error
        except OSError as error:
            raise Refused(f"is not understood: {error.strerror}") from error
        return Parsed(value)

    def _refuse(self, reaches: Iterable[Reach]) -> None:
        if self._granted is None or self._config is None:
            return
        for reach in reaches:
            if refused := refusal(reach, self._config.path, self._granted):
                raise NotAllowed(refused.message, hint=refused.hint)

    def blamed(self, key: str, error: EdgeconvError) -> EdgeconvError:
        """The error with the value's file and line."""
        config = self._config
        assert config is not None
        goes_on = isinstance(error, Refused | NotAllowed)
        message = error.message if goes_on else f"is not understood: {error.message}"
        path = config.key(self._verb, key, model=self._model)
        name = f"{key} of {config.written.header(*path[:-1])}" if path[:-1] else path[-1]
        where = config.written.error(path, f"{name} {message}", error.hint)
        kind = UsageError if isinstance(error, Refused) else type(error)
        return kind(where.message, hint=where.hint, location=where.location)


def model_of(config: Config, paths: Sequence[Path]) -> str:
    """The one model that all paths belong to, or "". Raises `UsageError`."""
    names = {_model_at(config, path) for path in paths}
    return names.pop() if len(names) == 1 else ""


def _model_at(config: Config, path: Path) -> str:
    """The model that a path is the source of, or that alone publishes where it is.

    Raises `UsageError` where two models have the same source.
    """
    models = config.models.items()
    sources = [name for name, model in models if path == Path(realpath(model.source))]
    if len(sources) > 1:
        raise UsageError(
            f"{path} is the source of several models of {config.path}: {listed(sources)}",
            hint="`edgeconv check` takes each with its settings",
        )
    names = sources or [name for name in config.models if _published(config, name, path)]
    return names[0] if len(names) == 1 else ""


def _published(config: Config, model: str, path: Path) -> bool:
    """Whether a path is the directory of the model's artifacts, or in it."""
    out = config.models[model].tables.get("convert", {}).get("out", f"{model}.tflites")
    if not isinstance(out, str) or "\0" in out:
        return False
    directory = Path(realpath(config.folder / out))
    # `edgeconv check` gives each of several models a folder in a general one.
    return any(each == path or each in path.parents for each in (directory, directory / model))
