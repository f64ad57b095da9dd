"""edgeconv cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from edgeconv.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.store.leftovers import CachePart

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


def _size(text: str) -> int:
    """A size in bytes, as of 5GB."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise click.BadParameter(f"{text!r} is not a size; for example 500MB or 5GB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


@click.group("cache")
def command() -> None:
    """Show and remove what edgeconv leaves on this machine.

    That is the cache, in $EDGECONV_CACHE_DIR or the user's cache directory, and temporary files of
    current and killed runs. The key of a cache entry is the hash of its inputs, so checkouts and
    machines can share it.
    """


@command.command("show")
def show() -> None:
    """Show the cache's path, and the size of each part."""
    from edgeconv.store import cache_directory
    from edgeconv.store.leftovers import parts

    echo(f"{cache_directory()}")
    _echo(parts(), "nothing is stored")


@command.command("clear")
@click.argument("names", nargs=-1, metavar="[PART]...")
def clear(names: tuple[str, ...]) -> None:
    """Remove everything, or only the named parts that `cache show` lists.

    The user's state directory is kept: the key, which seals other caches too, and notes of which
    models were converted here, by which `bench` trusts their manifests.
    """
    from edgeconv.store import leftovers
    from edgeconv.store.seals import state_directory

    _echo(leftovers.clear(names), "nothing was stored")
    if not names and state_directory().exists():
        echo(f"kept: {state_directory()}, the key of the cache and notes of what was converted")


def _echo(parts: Sequence[CachePart], none: str) -> None:
    from edgeconv.reporting.units import size

    for part in parts:
        echo(f"  {part.name}: {part.count}, {size(part.size_bytes)}: {part.text}")
    total = sum(part.size_bytes for part in parts)
    echo(f"{size(total)} in all" if parts else none)


@command.command("prune")
@click.option(
    "--max-size",
    type=_size,
    default="5GB",
    show_default=True,
    help="Remove the least recently used entries until the rest is at most this large.",
)
def prune(max_size: int) -> None:
    """Make the cache smaller. Entries of the last hour are kept."""
    from edgeconv.reporting.units import size
    from edgeconv.store import cache_directory, pruning

    taken = pruning.prune(cache_directory(), max_size)
    left = sum(entry.size_bytes for entry in pruning.entries(cache_directory()))
    gone = sum(entry.size_bytes for entry in taken)
    echo(f"{len(taken)} entries removed, {size(gone)}; {size(left)} left")
    if left > max_size:
        echo("the rest was used within the last hour, and may be in use")
