"""The verbs as callables: `edgeconv.NAME`, which the command of that name calls too."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgeconv.requests.request import called, parsed
from edgeconv.requests.table import VERBS, named

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types.execution import SandboxMode

Result = TypeVar("Result")


class Verb(Generic[Result]):
    """A verb. Its arguments are the fields of its request, in their order or by name.

    A text means what it means on a command line, and None is the default. A single argument may be
    the request. `on_progress` is called with a line for each step.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._entry = VERBS[name]

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{named(self._entry.function).__doc__}\n\n{self._entry.kind.__doc__}"

    @property
    def __signature__(self) -> inspect.Signature:
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        fields = self._entry.kind.__struct_fields__
        on_progress = inspect.Parameter("on_progress", inspect.Parameter.KEYWORD_ONLY)
        parameters = [inspect.Parameter(each, either) for each in fields]
        return inspect.Signature([*parameters, on_progress])

    def __repr__(self) -> str:
        return f"edgeconv.{self.__name__}"

    def __call__(
        self, *fields: Any, on_progress: Callable[[str], None] = lambda _: None, **by_name: Any
    ) -> Result:
        """The verb's result. Raises an `EdgeconvError`."""
        kind = self._entry.kind
        is_request = len(fields) == 1 and not by_name and isinstance(fields[0], kind)
        request: Any = parsed(fields[0]) if is_request else called(kind, fields, by_name)
        progress = {"on_progress": on_progress} if self._entry.tells else {}
        with sandboxed(getattr(request, "sandbox", None)):
            result: Result = named(self._entry.function)(request, **progress)
        return result


def sandboxed(mode: SandboxMode | None) -> AbstractContextManager[None]:
    """For the block, the sandbox of children; None takes the user's configuration."""
    from edgeconv.processes.sandbox import using
    from edgeconv.store.user import read_user_config

    if mode is None and (mode := read_user_config().sandbox) == "auto":
        return nullcontext()
    return using(mode)
