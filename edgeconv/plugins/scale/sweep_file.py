"""sweep.toml: models by patterns, recipes, runtimes and data sets, and the options of the verbs.

Its tables [convert], [bench], [tune] and [budget] are those of edgeconv.toml, for all models;
[model.PATTERN.bench] and so on are for those that fit a pattern.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import msgspec

from edgeconv.requests.config.file import merged, read_budget
from edgeconv.requests.config.reach import Granted, refusal
from edgeconv.requests.request import Leaf, Refused, leaves_of
from edgeconv.requests.table import VERBS
from edgeconv.requests.texts import Reach
from edgeconv.requests.tune import TuneRequest
from edgeconv.system.store.toml_file import Key, TomlFile, read_toml, shown
from edgeconv.types import EVERY_RECIPE, RECIPE_NAMES, Budget, SweepGate
from edgeconv.types.errors import UsageError
from edgeconv.types.words import listed

_KEYS = ("models", "recipes", "runtimes", "timing", "gate")
_TABLES = ("data", "model", "convert", "bench", "tune", "budget")
GATES: tuple[str, ...] = get_args(SweepGate)
# What a sweep sets itself, by verb.
_SET_HERE = {
    "convert": {"to", "out", "calibration", "preprocess"},
    "bench": {"data", "out", "runtime", "baseline", "title", "preprocess"},
    "tune": {"data", "out", "runtime", "calibration", "preprocess"},
}
# The keys of a [data.NAME], and what they are for each verb.
DATA_KEYS: dict[str, dict[str, str]] = {
    "source": {"bench": "data", "tune": "data"},
    "calibration": {"convert": "calibration", "tune": "calibration"},
    "preprocess": {"convert": "preprocess", "tune": "preprocess"},
}
# A sweep for a file that does not exist.
_SMALLEST = 'write it: models = ["models/*.keras"] and recipes = ["float32"] are enough'
_OF_SAMPLES = ("calibration", "preprocess")
_MODEL_KEYS = ("data", *_OF_SAMPLES, *_SET_HERE, "budget")
_TUNE = re.compile(r"tune\s*\((.*)\)")
_FORM = "as in tune(max-drop=0.005, objective=size)"


class SweepFile(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep.toml: what to combine, and the tables with the options of the verbs.

    `models` are paths from the current directory by their names, which are paths from the file's
    folder. `data` are the names of the data sets, "" alone where there is none.
    """

    written: TomlFile
    models: dict[str, str]
    recipes: tuple[SweepRecipe, ...]
    runtimes: tuple[str, ...]
    data: tuple[str, ...]
    is_timed: bool
    gate: SweepGate
    budget: Budget

    def data_of(self, model: str) -> tuple[str, ...]:
        """The names of a model's data sets."""
        own = self._own(model)
        return _names(self.written, (*own, "data"), self.data) if own else self.data

    def sources(self, model: str, data: str) -> dict[str, Key]:
        """Where the SOURCEs and the preprocessing of a model and a data set are, by their keys."""
        own, general = self._own(model), ("data", data)
        named: dict[str, Key] = {name: (*general, name) for name in DATA_KEYS}
        keys = {name: key for name, key in named.items() if self.written.has(*key)}
        for name in _OF_SAMPLES:
            if own and self.written.has(*own, name):
                keys[name] = (*own, name)
        return keys

    def options(self, model: str, verb: str) -> dict[str, Key]:
        """Where the options of a verb are written that a model has, by their names."""
        return {
            name: (*owner, verb, name)
            for owner in ((), self._own(model))
            for name in self.written.table(*owner, verb)
        }

    def budget_of(self, model: str) -> Budget:
        """The limits of a model: the general ones, and its own, which replace those."""
        own = self._own(model)
        return (
            merged(self.budget, read_budget(self.written, *own, "budget")) if own else self.budget
        )

    def _own(self, model: str) -> Key:
        """The last [model.PATTERN] that fits a model; () if none does."""
        fitting = [each for each in self.written.table("model") if fnmatchcase(model, each)]
        return ("model", fitting[-1]) if fitting else ()


def read_sweep(path: Path, granted: Granted) -> SweepFile:
    """The file of a sweep. Raises `UsageError`, with the line, for what is wrong in it."""
    file = read_toml(path, hint=_SMALLEST)
    for name in file.content:
        if name not in (*_KEYS, *_TABLES):
            file.unknown("key", (name,), (*_KEYS, *_TABLES))
    patterns: list[Key] = [("model", pattern) for pattern in file.table("model")]
    for owner in ((), *patterns):
        _refuse_unknown_options(file, owner)
    for name in file.table("data"):
        _refuse_others(file, ("data", name), tuple(DATA_KEYS))
        if not file.has("data", name, "source"):
            hint = 'as in source = "test.npz?labels=y"'
            raise file.error(("data", name), f"{file.header('data', name)} has no source", hint)
    models = _models(file, granted)
    for key in patterns:
        _refuse_others(file, key, _MODEL_KEYS)
        read_budget(file, *key, "budget")
        if not any(fnmatchcase(name, key[-1]) for name in models):
            hint = f"the models are {listed(models)}"
            raise file.error(key, f"{file.header(*key)} matches no model", hint)
    data = tuple(file.table("data")) or ("",)
    sweep = SweepFile(
        written=file,
        models=models,
        recipes=_recipes(file),
        runtimes=_texts(file, "runtimes", default=("litert",)),
        data=data,
        is_timed=_choice(file, "timing", (False, True)),
        gate=_choice(file, "gate", GATES),
        budget=read_budget(file, "budget"),
    )
    for name in models:
        sweep.data_of(name)
    return sweep


def _refuse_unknown_options(file: TomlFile, owner: Key) -> None:
    """Refuse, in the tables of verbs that are at `owner`, what is not an option, or set here."""
    for verb, own in _SET_HERE.items():
        known = [
            leaf.key
            for leaf in leaves_of(VERBS[verb].kind)
            if not (leaf.option.is_argument or leaf.option.is_typed or leaf.key in own)
        ]
        for name in file.table(*owner, verb):
            where = (*owner, verb, name)
            if name in own:
                header = file.header(*owner, verb)
                raise file.error(where, f"{name} of {header} is set by the sweep", "remove it")
            if name not in known or name == "sandbox":
                file.unknown(f"option of `edgeconv {verb}`:", where, known)


def _refuse_others(file: TomlFile, key: Key, known: Sequence[str]) -> None:
    for name in file.table(*key):
        if name not in known:
            file.unknown("key", (*key, name), known)


def _texts(file: TomlFile, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The texts of an array, of which none is empty or there twice."""
    value = file.content.get(name, list(default))
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise file.error((name,), f"{name} must be a list of texts, not {shown(value)}", "")
    if not value:
        raise file.error((name,), f"{name} is empty, so there are no cells", _EXAMPLES[name])
    for each in value:
        if value.count(each) > 1:
            raise file.error((name,), f"{name} has {shown(each)} twice", "remove one of them")
        if not each.isprintable():
            raise file.error((name,), f"{name} has {shown(each)}", "use printable characters only")
    return tuple(value)


_EXAMPLES = {
    "models": 'as in models = ["models/*.keras"]',
    "recipes": 'as in recipes = ["float32", "int8", "tune(max-drop=0.005)"]',
    "runtimes": 'as in runtimes = ["litert", "tflite-micro"]',
}


def _choice(file: TomlFile, name: str, known: Sequence[Any]) -> Any:
    """One of the known values, the first where none is written."""
    value = file.content.get(name, known[0])
    if value not in known or type(value) is not type(known[0]):
        words = listed(str(each).lower() for each in known)
        raise file.error((name,), f"{name} must be one of {words}, not {shown(value)}", "")
    return value


def _names(file: TomlFile, key: Key, known: Sequence[str]) -> tuple[str, ...]:
    """The names of data sets at a key, all where it is not written."""
    value = file.table(*key[:-1]).get(key[-1], list(known))
    if not isinstance(value, list) or not value or len({*map(str, value)}) < len(value):
        raise file.error(key, f"data must be a list of data sets, not {shown(value)}", "")
    for name in value:
        if name not in known:
            hint = f"known: {listed(known)}" if known != ("",) else "add [data.NAME] with source"
            raise file.error(key, f"there is no data set {shown(name)}", hint)
    return tuple(value)


def _recipes(file: TomlFile) -> tuple[SweepRecipe, ...]:
    texts = _texts(file, "recipes")
    names = [name for text in texts for name in (RECIPE_NAMES if text == "all" else (text,))]
    recipes = tuple(parse_recipe(name, file) for name in names)
    for recipe in recipes:
        if recipes.count(recipe) > 1:
            raise file.error(("recipes",), f"recipes has {recipe.text} twice", "remove one of them")
    return recipes


def _models(file: TomlFile, granted: Granted) -> dict[str, str]:
    """The paths of the models by their names, sorted."""
    models: dict[str, str] = {}
    for pattern in _texts(file, "models"):
        matches = sorted(_matches(file, pattern, granted))
        if not matches:
            hint = f"give a path or a glob, relative to {file.path.absolute().parent}"
            raise file.error(("models",), f"no model matches {shown(pattern)}", hint)
        models |= {name: str(file.path.parent / name) for name in matches}
    return dict(sorted(models.items()))


def _matches(file: TomlFile, pattern: str, granted: Granted) -> Iterator[str]:
    for name in glob.glob(pattern, root_dir=file.path.parent, recursive=True):  # noqa: PTH207
        if not name.isprintable():
            message = f"a model that {shown(pattern)} matches has the name {shown(name)}"
            raise file.error(("models",), message, "rename it: printable characters only")
        reach = Reach("tree", str(file.path.parent / name))
        if refused := refusal(reach, file.path, granted):
            raise file.error(("models",), f"models {refused.message}", refused.hint)
        yield Path(name).as_posix()


class SweepRecipe(msgspec.Struct, frozen=True):
    """A recipe by its text; `options` of `tune` are by their keys, None for `convert`."""

    text: str
    options: dict[str, Any] | None = None


def parse_recipe(text: str, file: TomlFile) -> SweepRecipe:
    """The recipe that a text names. Raises `UsageError`, with the line."""
    call = _TUNE.fullmatch(text.strip())
    if call is None:
        if text not in EVERY_RECIPE:
            hint = f"{', '.join(EVERY_RECIPE)}, all, or a search, {_FORM}"
            raise file.error(("recipes",), f"unknown recipe {shown(text)}", hint)
        return SweepRecipe(text)
    options: dict[str, Any] = {}
    known = {leaf.key: leaf for leaf in leaves_of(TuneRequest) if leaf.decides and not leaf.several}
    for part in filter(None, (each.strip() for each in call[1].split(","))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (equals and value) or name not in known or name in options:
            hint = f"{_FORM}; its options are {', '.join(known)}"
            raise file.error(("recipes",), f"{shown(text)}: {shown(part)} is not an option", hint)
        options[name] = _value(known[name], value, text, file)
    if "max-drop" not in options:
        raise file.error(("recipes",), f"{shown(text)} has no max-drop", _FORM)
    words = ", ".join(f"{name}={options[name]}" for name in sorted(options))
    return SweepRecipe(f"tune({words})", options)


def _value(leaf: Leaf, text: str, recipe: str, file: TomlFile) -> Any:
    try:
        numbers: dict[str, Any] = {"number": float, "whole": int}
        raw = numbers.get(leaf.takes, str)(text)
        leaf.value(raw)
    except ValueError:
        problem, hint = f"must be a number, not {shown(text)}", _FORM
    except Refused as error:
        problem, hint = error.message, error.hint or _FORM
    except UsageError as error:
        problem, hint = f"is not understood: {error.message}", error.hint
    else:
        return raw
    raise file.error(("recipes",), f"{leaf.key} of {shown(recipe)} {problem}", hint)
