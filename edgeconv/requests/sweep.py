"""The request of `sweep`."""

from __future__ import annotations

from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import EXECUTED, Placed, Sandboxed
from edgeconv.requests.texts import PATH, TREE
from edgeconv.types import Execution

_THREADS = Option("Execution", "Threads of each process.", least=1)


class SweepRequest(Request, frozen=True, kw_only=True):
    """The file of a sweep: models, recipes, runtimes and data, combined to cells.

    What `directory` (None: NAME.sweep in the current one) has of an earlier run is kept; a cell
    that failed is repeated only with `retry_failed`, and with `resume` a run without any earlier
    result is refused. Up to `jobs` processes work at once, None: as cores and memory allow; `on` is
    the cluster, None: processes of this machine, and `shared_cache` what nodes exchange files
    through. With `status` nothing runs. `allow` and `any_code`: what the file may name outside its
    project, as in `--allow` and `--allow-code`.
    """

    file: Annotated[str, Option(is_argument=True, text=PATH, metavar="FILE")]
    directory: Annotated[
        str | None,
        Option(
            "Output",
            "Directory for the results, which a later run continues. [default: NAME.sweep]",
            name="out",
            short="o",
            text=PATH,
            is_output=True,
            is_common=True,
        ),
    ] = None
    jobs: Annotated[
        int | None,
        Option(
            "Execution",
            "Processes at once, at most. [default: as cores and memory allow]",
            least=1,
            is_common=True,
        ),
    ] = None
    on: Placed = None
    shared_cache: Annotated[
        str | None,
        Option(
            "Execution",
            "With --on: a directory, or a URL such as s3://bucket/name, through which models, data "
            "and results travel. [default: the nodes have the paths of this machine]",
            text=TREE,
            is_typed=True,
            is_output=True,
            metavar="URL",
        ),
    ] = None
    status: Annotated[
        bool,
        Option(
            "Input",
            "Show which cells are done, failed and missing. Nothing runs.",
            is_typed=True,
            is_common=True,
        ),
    ] = False
    resume: Annotated[
        bool,
        Option(
            "Input",
            "Continue an earlier run, as a sweep always does, but refuse if it left no result.",
            is_typed=True,
        ),
    ] = False
    retry_failed: Annotated[
        bool,
        Option("Input", "Run the cells that failed again.", is_typed=True, is_common=True),
    ] = False
    allow: tuple[str, ...] = ()
    any_code: bool = False
    execution: Annotated[Execution, Within(**{**EXECUTED.options, "threads": _THREADS})] = (
        Execution(threads=1)
    )
    sandbox: Sandboxed = None
