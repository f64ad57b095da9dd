"""Code of the user: a function, `package.module:function`, run in a child process, and classes.

The user's own Keras classes are `MODULE` or `MODULE:NAME`, and are found without importing them.
MODULE is a dotted name that Python finds from a directory or among what is installed, or the path
of a file, `./my_layers.py`.
"""

import ast
import contextlib
import os
import re
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from edgeconv.system.processes.failures import log_traceback, what_failed
from edgeconv.system.store.files import sha256_file, sha256_tree
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import EdgeconvError, InputRefused, UsageError, unknown_name

_LARGEST_LOG_BYTES = 16 << 20
_LOG_CHECK_S = 0.2
_LOG_END_BYTES = 1 << 16
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


@contextlib.contextmanager
def users_code(directory: str) -> Iterator[None]:
    """In a child, for the block: in `directory`, which is first on the path, and without input."""
    os.chdir(directory)
    sys.path.insert(0, directory)
    _ignore_caches(directory)
    # Fd 0 is the tie to the parent: a function that reads its input finds the end of it.
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        sys.stdin = nothing
        threading.Thread(target=_keep_log_small, daemon=True).start()
        yield


def users_function(module: str, name: str, directory: str) -> Any:
    """The function, its module imported.

    Raises `UsageError` for one that does not exist, `InputRefused` where the import fails.
    """
    what = f"{module}:{name}"
    with Blamed(f"{module} (imported for {what})", directory):
        try:
            target: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise no_module(directory, error.name) from error
    for part in name.split("."):
        if not hasattr(target, part):
            known = [n for n in dir(target) if callable(getattr(target, n)) and n[0] != "_"]
            raise unknown_name(f"function in {module}", name, known)
        target = getattr(target, part)
    if not callable(target):
        raise UsageError(f"{what} is a {type(target).__name__}, not a function")
    return target


def refuse_missing_module(module: str, directory: str) -> None:
    """Raise `InputRefused` where Python would not find a module, looking in `directory` first.

    Nothing is imported. A directory without code in it, which Python takes for a package, is none.
    """
    parts = module.split(".")
    search: Sequence[str] | None = None
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = None if search else PathFinder.find_spec(name, [directory])
        spec = spec or _find_spec(name, search)
        is_last = count == len(parts)
        if spec is None or (spec.origin is None and is_last):
            raise no_module(directory, name)
        search = spec.submodule_search_locations
        if search is None and not is_last:
            raise no_module(directory, ".".join(parts[: count + 1]))


def _find_spec(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    specs = (finder.find_spec(name, search) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def no_module(search_path: str, missing: str) -> InputRefused:
    """The refusal of a module that is neither in the directory `search_path` nor installed."""
    directory = Path(search_path, *missing.split(".")[:-1])
    here = [path.stem for path in directory.glob("*") if path.is_dir() or path.suffix == ".py"]
    close = get_close_matches(missing.rpartition(".")[2], here, n=1)
    suggestion = f"did you mean {close[0]!r}? " if close else ""
    return InputRefused(
        f"there is no module {missing!r} in {search_path}, nor is one installed",
        hint=f"{suggestion}run edgeconv in the directory that has it, or set PYTHONPATH",
    )


class _FromSource(SourceFileLoader):
    """Compiles the source that was reviewed; its __pycache__ may hold something else."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"{path} is compiled anew")


class _Finder:
    """Finds the modules of a directory that cannot be listed: in a sandbox, some can be read."""

    _KINDS = (
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_FromSource, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, _: object = None) -> ModuleSpec | None:
        base = Path(self._path, name.rpartition(".")[2])
        for stem in (base / "__init__", base):
            within = [str(base)] if stem != base else None
            for loader, suffixes in self._KINDS:
                for file in (f"{stem}{suffix}" for suffix in suffixes):
                    if Path(file).is_file():
                        own = loader(name, file)
                        return spec_from_file_location(
                            name, file, loader=own, submodule_search_locations=within
                        )
        if not base.is_dir():
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(base)]
        return spec


def _ignore_caches(directory: str) -> None:
    """Import modules in `directory` from their source alone; what is installed, as ever."""
    installed = tuple(set(sysconfig.get_paths().values()))

    def hook(path: str) -> _Finder:
        is_own = path.startswith(directory) or _is_closed(path)
        if not is_own or path.startswith(installed):
            raise ImportError
        return _Finder(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def _is_closed(directory: str) -> bool:
    try:
        os.scandir(directory).close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _keep_log_small() -> None:
    """Drop all but the end of this process's log each time it has grown large."""
    while True:
        time.sleep(_LOG_CHECK_S)
        # What is written on goes where it would have gone, and the hole before takes no space.
        if os.fstat(1).st_blocks * 512 > _LARGEST_LOG_BYTES:
            begin = os.fstat(1).st_size - _LOG_END_BYTES
            end = os.pread(1, _LOG_END_BYTES, begin)
            os.ftruncate(1, 0)
            os.pwrite(1, end, begin)


class Blamed:
    """Turns any exception in the block into an `InputRefused` that says what and where.

    The user's code may raise anything, its own exit too. `directory` has the user's files;
    edgeconv's own errors pass through.
    """

    def __init__(self, what: str, directory: str, *, code: str = "the function") -> None:
        self._what = what
        self._directory = directory
        self._code = code

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, EdgeconvError):
            return
        # The whole of it goes to the log.
        log_traceback(error)
        if isinstance(error, SystemExit):
            raise InputRefused(
                f"{self._what} called exit({error.code!r}){self._where(error, trace)}",
                hint=f"let {self._code} return instead",
            ) from error
        hint = f"correct {self._code}, or run it alone to see more"
        if isinstance(error, PermissionError):
            hint = "it runs in a sandbox; docs/security.md says what it may read and write there"
        raise InputRefused(
            f"{self._what} failed: {what_failed(error)}{self._where(error, trace)}", hint=hint
        ) from error

    def _where(self, error: BaseException, trace: TracebackType | None) -> str:
        """Where: the last line that is the user's own, else the last."""
        if isinstance(error, SyntaxError):
            return f" ({error.filename}:{error.lineno})"
        frames = traceback.extract_tb(trace)
        # The first is the line here that called it.
        own = [frame for frame in frames[1:] if frame.filename.startswith(self._directory)]
        shown = (own or frames[1:])[-1:]
        return "".join(f" ({frame.filename}:{frame.lineno})" for frame in shown)


class CustomModule(NamedTuple):
    """A module of the user's: `file` is its source, `root` the directory it is imported from.

    `name` is the class in it, "" for all that it defines.
    """

    root: Path
    module: str
    file: Path
    name: str


def is_path(text: str) -> bool:
    """Whether a text names the file of a module, and not its dotted name."""
    module = text.partition(":")[0]
    return module.endswith(".py") or "/" in module


def find_custom(text: str, directory: str) -> CustomModule:
    """The module that a text names, first in `directory`.

    Raises `UsageError` for a text of another form, `InputRefused` where there is no such module.
    """
    module, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
    if not module or (colon and not _NAME.fullmatch(name)):
        raise UsageError(
            f"--custom-objects {text!r} does not name a module or a class in one",
            hint="MODULE or MODULE:NAME, as in my_layers or ./my_layers.py:AttentionPool",
        )
    if is_path(text):
        return _of_file(Path(directory, module).absolute(), name)
    if not _NAME.fullmatch(module):
        raise UsageError(f"--custom-objects {text!r}: {module!r} is not the name of a module")
    return _of_name(module, directory, name)


def custom_files(text: str, directory: str) -> tuple[Path, ...]:
    """The source files that decide what a text names: its module, and its imports in that root.

    Raises as `find_custom`.
    """
    return tuple(file for _, file in _files(find_custom(text, directory)))


def readable_code(text: str, directory: str) -> Iterator[Path]:
    """What must be readable to import what a text names: files, and directories of packages.

    Raises as `find_custom`.
    """
    custom = find_custom(text, directory)
    for _, file in _files(custom):
        yield custom.root / file.relative_to(custom.root).parts[0]


def custom_hash(modules: Iterable[CustomModule]) -> str:
    """The hash of the modules, and of what they import that lies in the same place."""
    return hash_of(
        [
            (m.module, m.name, sorted((name, sha256_file(file)) for name, file in _files(m)))
            for m in modules
        ]
    )


def shadows(root: Path) -> list[tuple[str, str]]:
    """The modules in `root` that come before installed ones of their names, with their hashes.

    Code that is imported from there gets them, whether it names them or not.
    """
    shadowing = []
    for name in sorted({entry.name.partition(".")[0] for entry in root.iterdir()}):
        spec = PathFinder.find_spec(name, [str(root)]) if name.isidentifier() else None
        if spec is None or spec.origin is None or PathFinder.find_spec(name, sys.path) is None:
            continue
        file = Path(spec.origin)
        is_package = spec.submodule_search_locations is not None
        shadowing.append((name, sha256_tree(file.parent) if is_package else sha256_file(file)))
    return shadowing


def _of_file(path: Path, name: str) -> CustomModule:
    if not path.is_file():
        raise InputRefused(f"--custom-objects: there is no file {path}", hint="check the path")
    if not path.stem.isidentifier():
        name = re.sub(r"\W", "_", path.stem)
        raise InputRefused(
            f"{path} cannot be imported: {path.stem!r} is not the name of a module",
            hint=f"rename it, for instance to {name}.py",
        )
    # A file in a package is imported as part of it.
    root, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return CustomModule(root, ".".join(parts), path, name)


def _of_name(module: str, directory: str, name: str) -> CustomModule:
    search = [directory, *sys.path]
    file = _source_of(module, search)
    if file is None:
        raise no_module(directory, module)
    depth = len(module.split(".")) + (file.stem == "__init__") - 1
    return CustomModule(file.parents[depth], module, file, name)


def _source_of(module: str, search: list[str]) -> Path | None:
    """The source file of a dotted name; no package is imported."""
    directories = search
    parts = module.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), directories)
        if spec is None:
            return None
        directories = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


def _files(custom: CustomModule) -> Iterator[tuple[str, Path]]:
    """The module's file, and those that it imports from the same root, directly or not.

    Of what is installed, only the same package is the user's.
    """
    top = custom.module.split(".")[0]
    is_installed = str(custom.root) in sysconfig.get_paths().values()
    waiting, visited = [*_with_packages(custom.module)], set[str]()
    while waiting:
        module = waiting.pop()
        if module in visited or (is_installed and module.split(".")[0] != top):
            continue
        visited.add(module)
        file = _source_of(module, [str(custom.root)])
        if file is None:
            continue
        # Also a compiled one, which decides what is run.
        yield module, file
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        for imported in _imported(file, package):
            waiting += _with_packages(imported)


def _with_packages(module: str) -> Iterator[str]:
    """A dotted name, and each package that is imported before it."""
    parts = module.split(".")
    return (".".join(parts[: index + 1]) for index in range(len(parts)))


def _imported(file: Path, package: str) -> Iterator[str]:
    """Every module that a file may import, by dotted name; nothing where it has no syntax."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The import gives the reason.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            yield from (part for part in (base, *(f"{base}.{a.name}" for a in node.names)) if part)
