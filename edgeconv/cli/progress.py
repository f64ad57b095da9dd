"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(*, quiet: bool, keep: bool = False) -> Iterator[Callable[[str], None]]:
    """A function to tell what is being done.

    On a terminal the last line is replaced, unless all are to `keep`.
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty() and not keep:
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda line: status.update(line.replace("[", "\\["))
    else:
        yield lambda line: click.echo(line, err=True)
