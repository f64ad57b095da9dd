"""A function of the user, `package.module:function`, in a child process."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
import time
import traceback
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.errors import EdgeconvError, InputRefused, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import TracebackType

_LARGEST_LOG_BYTES = 16 << 20
_LOG_CHECK_S = 0.2
_LONGEST_CHARACTERS = 500


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
            if not _is_part_of(error.name, module):
                raise
            raise no_module(directory, str(error.name)) from error
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


def _is_part_of(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


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


def _ignore_caches(directory: str) -> None:
    """Import modules in `directory` from their source alone; what is installed, as ever."""
    installed = tuple(set(sysconfig.get_paths().values()))

    def hook(path: str) -> FileFinder:
        if not path.startswith(directory) or path.startswith(installed):
            raise ImportError
        return FileFinder(
            path,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (_FromSource, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def _keep_log_small() -> None:
    """Empty the log of this process each time it has grown large."""
    while True:
        time.sleep(_LOG_CHECK_S)
        # What is written on goes where it would have gone, and the hole before takes no space.
        if os.fstat(1).st_blocks * 512 > _LARGEST_LOG_BYTES:
            os.ftruncate(1, 0)


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
        traceback.print_exception(kind, error, trace)
        if isinstance(error, SystemExit):
            raise InputRefused(
                f"{self._what} called exit({error.code!r}){self._where(error, trace)}",
                hint=f"let {self._code} return instead",
            ) from error
        last = " ".join(traceback.format_exception_only(kind, error)[-1].split())[
            :_LONGEST_CHARACTERS
        ]
        raise InputRefused(
            f"{self._what} failed: {last}{self._where(error, trace)}",
            hint=f"correct {self._code}, or run it alone to see more",
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
