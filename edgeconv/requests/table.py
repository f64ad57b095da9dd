"""Every verb by name: its request, what its command prints, and the function that does it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET


class Printing(Request, frozen=True, kw_only=True):
    """How a command says what it does, and what came of it."""

    quiet: QUIET = False
    as_json: JSON = False


class Entry(NamedTuple):
    """A verb, each of its parts as MODULE:NAME, imported when it is first used.

    `shown` are the further options of the verb's command, which are about what is printed.
    """

    request: str
    function: str
    shown: str = "edgeconv.requests.table:Printing"

    @property
    def kind(self) -> type[Request]:
        """What the verb is asked."""
        found: type[Request] = named(self.request)
        return found

    @property
    def printing(self) -> type[Request]:
        """The further options of its command."""
        found: type[Request] = named(self.shown)
        return found


def named(text: str) -> Any:
    """What MODULE:NAME names."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


_R = "edgeconv.requests"
VERBS = {
    "convert": Entry(f"{_R}.convert:ConvertRequest", "edgeconv.conversion.convert:convert"),
    "bench": Entry(f"{_R}.bench:BenchRequest", "edgeconv.measure.bench:bench"),
}
