"""`edgeconv config`, `cache` and `cmake-dir`, which need no request."""

import re
from pathlib import Path

import click

from edgeconv.cli import COMMANDS
from edgeconv.cli.printing import echo, echo_json, echo_text
from edgeconv.reporting.units import size
from edgeconv.requests.config.file import Config
from edgeconv.requests.config.reach import find_config
from edgeconv.requests.config.shown import Resolved, config_schema
from edgeconv.requests.config.tables import read_config
from edgeconv.requests.table import TABLES
from edgeconv.system.store.cache import cache_directory, entries, prune
from edgeconv.types.errors import UsageError


@click.group("config")
def config() -> None:
    """Show the resolved configuration, or the JSON Schema of the file."""


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of edgeconv.toml, which gives editors completion."""
    echo_text(config_schema(COMMANDS).decode())


@config.command("show")
@click.argument("commands", nargs=-1, type=click.Choice(tuple(TABLES)))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file. [default: edgeconv.toml, or pyproject.toml with [tool.edgeconv]]",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
def show(commands: tuple[str, ...], config_file: Path | None, *, as_json: bool) -> None:
    """Print every value that applies, with its origin: the file's line, or the default.

    What the project may not name without your permission is marked as refused; see
    docs/security.md. With COMMANDS, only their tables are shown. Paths are relative to the current
    directory. The output is TOML; a model shows only the values that differ from the general ones.
    """
    resolved = Resolved(_config(config_file), commands)
    if as_json:
        echo_json(resolved.document())
    else:
        for line in resolved.lines():
            echo(line)


def _config(path: Path | None) -> Config:
    file = path or find_config(Path())
    if file is None:
        raise UsageError(
            "there is no configuration here",
            hint="write one with `edgeconv init MODEL`, or name it with --config",
        )
    return read_config(file)


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


def _size(text: str) -> int:
    """A size in bytes, as of 5GB."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise click.BadParameter(f"{text!r} is not a size; for example 500MB or 5GB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


@click.group("cache")
def cache() -> None:
    """Show the cache, and make it smaller.

    It is in $EDGECONV_CACHE_DIR or the user's cache directory. The key of an entry is
    the hash of its inputs, so checkouts and machines can share it.
    """


@cache.command("show")
def _show() -> None:
    """Show the cache's path, and how many entries it has of each kind."""
    echo(f"{cache_directory()}")
    sizes: dict[str, list[int]] = {}
    for entry in entries(cache_directory()):
        sizes.setdefault(entry.stage, []).append(entry.size_bytes)
    for stage, each in sorted(sizes.items()):
        echo(f"  {stage}: {len(each)}, {size(sum(each))}")
    total = sum(sum(each) for each in sizes.values())
    echo(f"{size(total)} in all" if sizes else "nothing is stored")


@cache.command("prune")
@click.option(
    "--max-size",
    type=_size,
    default="5GB",
    show_default=True,
    help="Remove the least recently used entries until the rest is at most this large.",
)
def _prune(max_size: int) -> None:
    """Make the cache smaller. Entries of the last hour are kept."""
    taken = prune(cache_directory(), max_size)
    left = sum(entry.size_bytes for entry in entries(cache_directory()))
    gone = sum(entry.size_bytes for entry in taken)
    echo(f"{len(taken)} entries removed, {size(gone)}; {size(left)} left")
    if left > max_size:
        echo("the rest was used within the last hour, and may be in use")


@click.command("cmake-dir")
@click.option("--litert", is_flag=True, help="LiteRT's shared library instead.")
def cmake_dir(*, litert: bool) -> None:
    """Print the directory of edgeconvConfig.cmake, for find_package(edgeconv).

    As in: cmake -S . -B build -Dedgeconv_DIR=$(edgeconv cmake-dir)
    """
    if litert:
        from edgeconv.runtimes.c_api import library_path

        echo(str(library_path()))
    else:
        import edgeconv

        echo(str(Path(edgeconv.__file__).parent / "cmake"))
