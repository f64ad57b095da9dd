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

    That is the cache, in $EDGECONV_CACHE_DIR or else in the user's cache directory, and temporary
    files of runs that are at work or were killed. Entries of the cache are known by the hash of
    all that went into them, so several checkouts and machines may share it.
    """


@command.command("show")
def show() -> None:
    """Show where it is, and how large each part is."""
    from edgeconv.store import cache_directory
    from edgeconv.store.leftovers import parts

    echo(f"{cache_directory()}")
    _echo(parts(), "nothing is there")


@command.command("clear")
@click.argument("names", nargs=-1, metavar="[PART]...")
def clear(names: tuple[str, ...]) -> None:
    """Remove everything, or the parts that are named as `cache show` names them."""
    from edgeconv.store import leftovers

    _echo(leftovers.clear(names), "nothing was there")


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
    help="Remove entries, the one not used for longest first, until the rest is no larger.",
)
def prune(max_size: int) -> None:
    """Make the cache smaller. What was used within the last hour stays; so do other parts."""
    from edgeconv.reporting.units import size
    from edgeconv.store import cache_directory, pruning

    taken = pruning.prune(cache_directory(), max_size)
    left = sum(entry.size_bytes for entry in pruning.entries(cache_directory()))
    gone = sum(entry.size_bytes for entry in taken)
    echo(f"{len(taken)} entries removed, {size(gone)}; {size(left)} left")
    if left > max_size:
        echo("what is left was used within the last hour, and may be in use")
