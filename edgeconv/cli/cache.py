"""edgeconv cache."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


def _size(text: str) -> int:
    """A size in bytes, as of 5GB."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise click.BadParameter(f"{text!r} is no size; as in 500MB or 5GB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


@click.group("cache")
def command() -> None:
    """Show what earlier runs left to be used again, or make it smaller.

    The cache is in $EDGECONV_CACHE_DIR, else in the user's cache directory. Its entries are known
    by the hash of all that went into them, so several checkouts and machines may share it.
    """


@command.command("show")
def show() -> None:
    """Show where the cache is, and how large what it has is."""
    from edgeconv.report.units import size
    from edgeconv.store import cache_directory
    from edgeconv.store.pruning import entries, size_bytes

    root = cache_directory()
    found = entries(root)
    click.echo(f"{root}")
    for stage in sorted({entry.stage for entry in found}):
        sizes = [entry.size_bytes for entry in found if entry.stage == stage]
        click.echo(f"  {stage}: {len(sizes)} entries, {size(sum(sizes))}")
    stages = {entry.stage for entry in found}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if path.is_dir() and path.name not in stages:
            click.echo(f"  {path.name}: {size(size_bytes(path))}, not pruned")


@command.command("prune")
@click.option(
    "--max-size",
    type=_size,
    default="5GB",
    show_default=True,
    help="Take entries away, the one not used for longest first, until the rest is no larger.",
)
def prune(max_size: int) -> None:
    """Make the cache smaller. What was used within the last hour stays."""
    from edgeconv.report.units import size
    from edgeconv.store import cache_directory, pruning

    taken = pruning.prune(cache_directory(), max_size)
    left = sum(entry.size_bytes for entry in pruning.entries(cache_directory()))
    gone = sum(entry.size_bytes for entry in taken)
    click.echo(f"{len(taken)} entries taken away, {size(gone)}; {size(left)} left")
    if left > max_size:
        click.echo("what is left was used within the last hour, and may be in use")
