"""Calls of verbs in Python: what is in memory as files, and the signature that Python shows.

An object is known by the modules of its classes, and does itself what its library can do: nothing
here imports Keras, TensorFlow or pandas. The files are there until the call of the verb ends.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import inspect
import json
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec
from msgspec.structs import replace

from edgeconv.requests.request import ALLOW_CODE, Leaf, leaves_of
from edgeconv.system.store import publish_all, scratch_directory, writable_directory
from edgeconv.types import Budget, DataSource
from edgeconv.types.errors import EdgeconvError, InputRefused
from edgeconv.types.words import first_line, quoted

if TYPE_CHECKING:
    from edgeconv.data.handover import ArrayFiles


# What a model's own `save` and `export` raise; nothing else is called in the same block.
_KERAS_ERRORS = (
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError, OSError, ImportError),
    NotImplementedError,
)
_KERAS = ("keras", "tf_keras")
_LOADING = "edgeconv.model.source.loading"
_COMMAND = re.compile("edgeconv [a-z]|(?:bench|check|embed) --|on the command line")
# An option, and its value where that cannot be the next word of the sentence.
_TYPED = re.compile(r"(?<!\S)(--[a-z][a-z0-9-]*)(?: ('[^']*'|[^\s=]+=[^\s;,]+|[A-Z]{2,}\b|\d+))?")
# Held back to verify with, beyond the samples that calibrate.
_HELD_BACK = 64


class InMemory:
    """The files of one call's values, in a directory that goes with `stack`."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._count = 0
        self.model: Path | None = None
        # What messages say in place of a temporary path, and errors in place of one that goes.
        self._names: dict[str, str] = {}
        self._gone_with_errors = ""

    def filed(self, leaf: Leaf, value: Any, arguments: Mapping[str, Any]) -> Any:
        """An option's value: what is in memory as a path or a SOURCE. Raises `InputRefused`."""
        if leaf.text.holds == "model":
            if leaf.several and isinstance(value, list | tuple):
                return [self._model(leaf.word, each, arguments) for each in value]
            return self._model(leaf.word, value, arguments)
        if leaf.text.holds != "samples":
            return value
        if leaf.several and _is_by_key(value):
            return {key: self._samples(leaf.word, each, arguments) for key, each in value.items()}
        source = self._samples(leaf.word, value, arguments)
        return {"": source} if leaf.several and isinstance(source, DataSource) else source

    @property
    def name(self) -> str:
        """The name of the model, "" without one."""
        return self.model.stem if self.model else ""

    @contextlib.contextmanager
    def beside(self, out: str) -> Iterator[str | None]:
        """For the block, a model from memory as a file in `out`, whose manifests name it.

        It stays there unless the block raises, and replaces an older one. None without such a
        model, or without `out`.
        """
        if self.model is None or not out:
            yield None
            return
        directory = Path(out)
        path = directory / self.model.name
        with contextlib.ExitStack() as undo:
            if not directory.exists():
                undo.callback(_remove_empty, directory)
            if not path.exists():
                undo.callback(_remove, path)
            writable_directory(directory.absolute())
            if self.model.is_dir():
                _remove(path)
                shutil.copytree(self.model, path)
            elif not (path.is_file() and filecmp.cmp(path, self.model, shallow=False)):
                publish_all({path: self.model})
            self._gone_with_errors = str(path.absolute())
            self._names[self._gone_with_errors] = self._names[str(self.model)]
            yield str(path)
            del self._names[self._gone_with_errors]
            undo.pop_all()

    @contextlib.contextmanager
    def named(self, leaves: Iterable[Leaf] = ()) -> Iterator[None]:
        """For the block, errors name the arguments and not their temporary files.

        Their hints do not name options either; messages may quote what was given.
        """
        try:
            yield
        except EdgeconvError as error:
            error.hint = as_arguments(error.hint, leaves)
            for path, name in self._names.items():
                error.message = error.message.replace(path, name)
                error.hint = error.hint.replace(path, name)
            raise

    def shown(self, value: Any) -> Any:
        """A result that names the arguments and not their temporary files."""
        if isinstance(value, str):
            for path, name in self._names.items():
                if path != self._gone_with_errors:
                    value = value.replace(path, f"{name} (in memory)")
            return value
        if isinstance(value, tuple) and value and isinstance(value[0], str | msgspec.Struct):
            return tuple(map(self.shown, value))
        if not isinstance(value, msgspec.Struct) or not self._names:
            return value
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        new = {name: self.shown(each) for name, each in fields}
        changed = {name: each for name, each in new.items() if each != getattr(value, name)}
        return replace(value, **changed) if changed else value

    def _place(self) -> Path:
        """A new directory."""
        if not self._count:
            self._root = self._stack.enter_context(scratch_directory())
        self._count += 1
        place = self._root / str(self._count)
        place.mkdir()
        return place

    # Models

    def _model(self, word: str, value: Any, arguments: Mapping[str, Any]) -> Any:
        if isinstance(value, str | os.PathLike):
            return value
        if not _is_of(value, *_KERAS) or not hasattr(value, "save"):
            raise InputRefused(
                f"{word} has the type {type(value).__name__}, neither a Keras model nor a path",
                hint="give a Keras 3 or tf_keras model, or the path of a model; a tf.Module is "
                "exported with tf.saved_model.save(module, 'DIR', signatures=...)",
            )
        name = re.sub(r"[^\w.-]+", "_", str(value.name)).strip("._-") or "model"
        path = self._place() / f"{name}.keras"
        saved = self._saved(word, value, path, takes_code=bool(arguments.get("custom_objects")))
        self._names[str(saved)] = f"{word} {name!r}"
        if word == "model":
            self.model = saved
        return str(saved)

    def _saved(self, word: str, model: Any, path: Path, *, takes_code: bool) -> Path:
        """The model as a Keras file; with layers of its own, as a SavedModel, which has no code."""
        failed = _failed(model.save, path)
        if not failed:
            _make_steady(path)
            inspection = import_module(_LOADING).inspect_model(path, count=False)
            if inspection.never_called:
                raise InputRefused(
                    f"{word}: {model.name!r} was never called, so its input shape is not known",
                    hint="call it on a batch of samples, or begin it with an Input",
                )
            own = [*inspection.unknown_classes]
            own += [each.name for each in inspection.operators if each.name == "Lambda"]
            if takes_code or not own:
                return path
            failed = f"only its code knows {quoted(own)}"
        directory = path.with_suffix("")
        quiet = {"verbose": False} if _takes(model.export, "verbose") else {}
        with _in_inference(model):
            not_exported = _failed(model.export, str(directory), **quiet)
        if not_exported:
            raise InputRefused(
                f"{word}: {model.name!r} can neither be saved ({failed}) nor exported as a "
                f"SavedModel: {not_exported}",
                hint="call it on a batch of samples once; or save it yourself, for example with "
                "tf.saved_model.save(model, 'DIR', signatures=...), and give 'DIR'",
            )
        return directory

    # Samples

    def _samples(self, word: str, value: Any, arguments: Mapping[str, Any]) -> Any:
        if isinstance(value, str | os.PathLike | DataSource):
            return value
        from edgeconv.data.handover import ArrayFiles

        if inspect.isroutine(value):
            # As TFLiteConverter takes it: a function that gives batches.
            value = value()
        inputs, labels = _split(word, value)
        if _is_table(inputs) and not isinstance(labels, Mapping):
            return self._table(word, inputs, labels)
        files = ArrayFiles(word, self._place())
        kind = _kind(inputs)
        if labels is None and _is_batches(inputs):
            kind = "list of batches" if kind == "list" else kind
            self._drain(files, word, inputs, _limit(word, arguments))
        else:
            files.add(inputs, labels)
        path, options = files.close()
        return self._source("npz", path, options, f"{word} ({kind})")

    def _source(self, kind: str, path: Path, options: dict[str, str], held: str) -> DataSource:
        self._names[str(path)] = held
        return DataSource(kind=kind, location=str(path), options=options, held=held)

    def _drain(self, files: ArrayFiles, word: str, batches: Any, most: int | None) -> None:
        """Write batch after batch, until there are `most` samples."""
        # As a tf.data.Dataset says it.
        if most is None and hasattr(batches, "cardinality") and int(batches.cardinality()) == -1:
            raise InputRefused(
                f"{word}: the data set has no end", hint=f"{word}=dataset.take(100), for example"
            )
        for batch in _each(batches):
            given = tuple(batch) if isinstance(batch, list) and not _is_numbers(batch) else batch
            inputs, labels = _split(word, given)
            files.add(inputs, labels, most=most)
            if most is not None and files.count >= most:
                return
        if not files.count:
            raise InputRefused(
                f"{word}: the {_kind(batches)} gave no batch",
                hint="a generator gives its batches only once; make it anew",
            )

    def _table(self, word: str, table: Any, labels: Any) -> DataSource:
        """A DataFrame as a .csv: a column for each input, or all of them for the only one."""
        columns = [str(name) for name in table.columns]
        if not columns or not len(table):
            raise InputRefused(f"{word}: the DataFrame has the shape {table.shape}: no samples")
        if len(set(columns)) < len(columns) or any(isinstance(n, tuple) for n in table.columns):
            raise InputRefused(
                f"{word}: the columns of the DataFrame do not have names of their own",
                hint="each column needs another name, as a text",
            )
        table = table.astype({n: "int8" for n in table.columns if table[n].dtype.kind == "b"})
        options = {}
        if labels is not None:
            name = next(n for n in ("labels", "labels_", "labels__") if n not in columns)
            values = _as_column(word, labels, len(table))
            table = table.assign(**{name: values})
            options = {"labels": name}
        path = self._place() / "table.csv"
        table.to_csv(path, index=False)
        return self._source("csv", path, options, f"{word} (DataFrame)")


def as_arguments(text: str, leaves: Iterable[Leaf] | None = None) -> str:
    """A text with `preprocess='scale=2'` for `--preprocess 'scale=2'`; a command stays one.

    The options are those of `leaves`, None for those of every verb.
    """
    if "--" not in text:
        return text
    if leaves is None:
        entries = import_module("edgeconv.requests.table").VERBS.values()
        leaves = (leaf for entry in entries for leaf in leaves_of(entry.kind))
    words = {leaf.shown: leaf.word for leaf in leaves if not leaf.option.is_argument}

    def argument(found: re.Match[str]) -> str:
        word, value = words.get(found[1]), found[2]
        if word is None or not value:
            return f"`{word}`" if word else found[0]
        is_written = value[0] == "'" or value.isupper() or value.isdecimal()
        return f"{word}={value}" if is_written else f"{word}={value!r}"

    return text if _COMMAND.search(text) else _TYPED.sub(argument, text)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _as_column(word: str, labels: Any, count: int) -> Any:
    import numpy as np

    values = np.asarray(labels)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (count,):
        raise InputRefused(
            f"{word}: the labels have the shape {values.shape}, and there are {count} rows",
            hint="give one label for each row",
        )
    return values


def _limit(word: str, arguments: Mapping[str, Any]) -> int | None:
    """How many samples of a stream are used at most, None for all."""
    count = arguments.get("samples")
    if not isinstance(count, int) or word == "training":
        return None
    if word == "calibration":
        return None if "data" in arguments else count + _HELD_BACK
    return count


def _split(word: str, value: Any) -> tuple[Any, Any]:
    """The inputs and the labels of (samples, labels), or of samples alone."""
    if not isinstance(value, tuple):
        return value, None
    if len(value) not in (1, 2):
        raise InputRefused(
            f"{word} is a tuple of {len(value)}, not (samples, labels)",
            hint="several inputs are a dictionary by their names, and weights are left out",
        )
    return value[0], value[1] if len(value) == 2 else None


def _is_of(value: Any, *packages: str) -> bool:
    """Whether a class of the value is from one of the packages, which are not imported."""
    return any(kind.__module__.split(".")[0] in packages for kind in type(value).__mro__)


def _is_table(value: Any) -> bool:
    return _is_of(value, "pandas") and hasattr(value, "to_csv") and hasattr(value, "columns")


def _is_numbers(value: Any) -> bool:
    """Whether a list, nested or not, begins with a number or a text."""
    while isinstance(value, list | tuple) and len(value):
        value = value[0]
    return isinstance(value, int | float | str | bytes)


def _is_batches(value: Any) -> bool:
    """Whether it gives batches one after another, and is no array itself."""
    if isinstance(value, list):
        return not _is_numbers(value) and bool(value)
    if hasattr(value, "__array__") or isinstance(value, Mapping | str | bytes):
        return False
    return isinstance(value, Iterable) or _has_items(value)


def _has_items(value: Any) -> bool:
    """As keras.utils.Sequence has: batches by number."""
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _each(batches: Any) -> Iterator[Any]:
    if _has_items(batches) and not isinstance(batches, list) and not hasattr(batches, "take"):
        return (batches[number] for number in range(len(batches)))
    return iter(batches)


def _is_by_key(value: Any) -> bool:
    """Whether a dictionary has samples by signature, and not arrays by input."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and not any(
            hasattr(each, "__array__") or (isinstance(each, list) and _is_numbers(each))
            for each in value.values()
        )
    )


def _kind(value: Any) -> str:
    """The name of a type as its users know it, such as Dataset for every data set."""
    name = type(value).__name__
    return "Dataset" if name.endswith("Dataset") else name


def _failed(write: Any, *arguments: Any, **options: Any) -> str:
    """Why a model's `save` or `export` failed, "" where it did not; its warnings are not ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(*arguments, **options)
    except _KERAS_ERRORS as error:
        return first_line(error)
    return ""


@contextlib.contextmanager
def _in_inference(model: Any) -> Iterator[None]:
    """For the block, a call of the model is that of `predict`.

    `export` calls it without a word on training, and layers whose `call` has training=True by
    default then train. `predict` says training=False to a model of tf_keras, and to one of Keras 3
    whose `call` takes it.
    """
    if not (_is_of(model, "tf_keras") or _takes(model.call, "training")):
        yield
        return
    vars(model)["__call__"] = functools.partial(model.__call__, training=False)
    try:
        yield
    finally:
        del vars(model)["__call__"]


def _takes(function: Any, name: str) -> bool:
    return name in inspect.signature(function).parameters


def _make_steady(path: Path) -> None:
    """Give a Keras file no times and no training: the same model has the same bytes.

    The arguments of `compile` may be the user's code, which no conversion needs.
    """
    unsteady: dict[str, dict[str, Any]] = {
        "metadata.json": {"date_saved": ""},
        "config.json": {"compile_config": None},
    }
    steady = path.with_suffix(".steady")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(steady, "w") as new:
        for member in sorted(old.namelist()):
            info = zipfile.ZipInfo(member)
            with old.open(member) as source, new.open(info, "w", force_zip64=True) as target:
                if member in unsteady:
                    target.write(json.dumps(json.load(source) | unsteady[member]).encode())
                else:
                    shutil.copyfileobj(source, target, 1 << 20)
    steady.replace(path)


_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NONE = inspect.Parameter.empty
_PATH = "str | PathLike[str]"
# By what an option holds, or takes; the names are explained in edgeconv/__init__.pyi.
_TYPES = {"model": "Model", "samples": "Samples", "flag": "bool", "whole": "int", "number": "float"}


def signature_of(
    kind: type[msgspec.Struct],
    positional: Sequence[str],
    others: Sequence[str],
    needed: Mapping[str, Any],
) -> inspect.Signature:
    """The signature of a verb: what must be given, the other options, values of several.

    `positional` are the words that are taken by position, and `others` those that are no option.
    `needed` has further arguments that must be given (None), or have another default.
    """
    leaves = {leaf.word: leaf for leaf in leaves_of(kind)}
    required = [word for word, default in needed.items() if default is None]
    order = [word for word in positional if word not in needed] + required
    found = [_parameter(leaves[word], _EITHER) for word in order]
    if found and leaves[order[0]].option.takes_rest:
        several = inspect.Parameter.VAR_POSITIONAL
        found = [found[0].replace(kind=several, default=_NONE, annotation=_PATH)]
    found = [each.replace(default=_NONE) if each.name in required else each for each in found]
    for word, leaf in leaves.items():
        if word not in order:
            each = _parameter(leaf, _BY_NAME)
            found.append(each.replace(default=needed[word]) if word in needed else each)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for word in (word for word in others if word not in leaves):
        is_flag = word == ALLOW_CODE or fields[word].type is bool
        text = "bool" if is_flag else f"{_field_text(fields[word].type)} | None"
        found.append(
            inspect.Parameter(word, _BY_NAME, default=False if is_flag else None, annotation=text)
        )
    told = "Callable[[str], None] | None"
    found.append(inspect.Parameter("on_progress", _BY_NAME, default=None, annotation=told))
    return inspect.Signature(found)


def _parameter(leaf: Leaf, kind: Any) -> inspect.Parameter:
    default = _NONE if leaf.is_required else leaf.raw_default
    default = None if default == () else default
    text = type_text(leaf) + (" | None" if default is None else "")
    return inspect.Parameter(leaf.word, kind, default=default, annotation=text)


def type_text(leaf: Leaf) -> str:
    """The type of an option's value in Python: what is typed for it, or its value itself."""
    plain = _PATH if leaf.text.is_path else "str"
    one = _TYPES.get(leaf.text.holds) or _TYPES.get(leaf.takes, plain)
    if leaf.choices:
        one = f"Literal[{', '.join(map(repr, leaf.choices))}]"
    values = () if leaf.text.holds == "samples" else _structs(leaf.declared)
    one = " | ".join([one, *(each.__name__ for each in values)])
    if leaf.text.holds == "samples":
        return f"{one} | Mapping[str, {one}]" if leaf.several else one
    one = f"{one} | Mapping[str, Any]" if get_origin(leaf.declared) is dict else one
    return f"{one} | Sequence[{one}]" if leaf.several or leaf.text.is_list else one


def _field_text(type_: Any) -> str:
    """The type of a field that is no option."""
    structs = _structs(type_)
    if structs == (Budget,):
        return "Budget | Mapping[str, Any]"
    if structs:
        return structs[0].__name__
    return "str" if str(type_).startswith("str") else "Sequence[str]"


def _structs(type_: Any) -> tuple[type[msgspec.Struct], ...]:
    """The values that a type may be."""
    if isinstance(type_, type) and not get_args(type_):
        return (type_,) if issubclass(type_, msgspec.Struct) else ()
    return tuple(dict.fromkeys(each for arg in get_args(type_) for each in _structs(arg)))
