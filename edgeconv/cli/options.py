"""Options that several commands share, and the values they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click
from click.types import StringParamType

from edgeconv.cli.printing import echo_text
from edgeconv.cli.values import CUSTOM_OBJECTS, SANDBOX_MODE, TEXT, UserOption
from edgeconv.escaping import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.sandbox import Mode
    from edgeconv.types import Allowance, Execution, Opening


class Terminal(TypedDict):
    """The width in cells (None: no limit) and whether ANSI colours are understood."""

    width: int | None
    color: bool


NO_LIMIT = float("inf")
_DEFAULT = click.core.ParameterSource.DEFAULT


def allowance_options(timeout_s: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What the children of a command may use; an infinite time is no limit."""
    default = "none" if timeout_s == NO_LIMIT else timeout_s
    options = (
        click.option(
            "--timeout-s",
            type=click.FloatRange(0, min_open=True),
            default=timeout_s,
            help=f"Wall-clock limit of each child process, in seconds. [default: {default}]",
        ),
        click.option(
            "--memory-limit-mib",
            type=click.IntRange(0),
            default=0,
            help="Resident-memory limit of each child process, in MiB; 0: none.",
        ),
        SANDBOX,
    )

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _sandboxed(ctx: click.Context, param: click.Parameter, value: Mode) -> None:
    """Hold the children of the command to it, or to what the user's own configuration says."""
    if ctx.resilient_parsing:
        return
    if ctx.get_parameter_source(param.name or "") == _DEFAULT:
        from edgeconv.config.user import read_user_config

        value = read_user_config().sandbox
        if value == "auto":
            return
    from edgeconv.sandbox import using

    ctx.with_resource(using(value))


SANDBOX = click.option(
    "--sandbox",
    type=SANDBOX_MODE,
    metavar="[auto|required|off]",
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_sandboxed,
    help="Whether models and data are read in a sandbox: where there is one, or else not at all "
    "(exit code 4), or never; see docs/security.md.",
)
_THREADS = click.option(
    "--threads", type=click.IntRange(1), default=None, help="Threads; default: cores."
)
_NO_CACHE = click.option("--no-cache", is_flag=True, help="Neither read nor write the stage cache.")
_PRINTING = (
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


def allowance(options: Mapping[str, Any]) -> Allowance:
    """The values of `allowance_options` as one."""
    from edgeconv.types import Allowance

    return Allowance(
        timeout_s=options["timeout_s"], memory_bytes=options["memory_limit_mib"] * 2**20
    )


TAG = click.option(
    "--tag",
    "tags",
    type=TEXT,
    default="",
    metavar="TAGS",
    help="The graph of a SavedModel with exactly these tags, comma-separated. [default: serve]",
)
CUSTOM = click.option(
    "--custom-objects",
    "custom_objects",
    type=CUSTOM_OBJECTS,
    multiple=True,
    metavar="MODULE[:NAME]",
    help="The module that defines the layers and functions of a Keras file, by dotted name or as "
    "./FILE.py; with :NAME only that one. It is imported. Repeatable.",
)


def opening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of what opening a trained model takes besides the file."""
    return CUSTOM(TAG(command))


def opening(options: Mapping[str, Any]) -> Opening:
    """The values of `opening_options` as one."""
    from edgeconv.types import Opening

    return Opening(
        tags=tuple(comma_list(options["tags"])),
        custom_objects=tuple(options.get("custom_objects", ())),
    )


class _Sha256(StringParamType):
    name = "SHA256"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from edgeconv.store.hashes import is_sha256

        if not is_sha256(value):
            self.fail(
                f"{value!r} is not a sha256: 64 digits, as `edgeconv scan` shows it", param, ctx
            )
        return str(value)


_TRUST = click.option(
    "--trust-model",
    "trusted",
    cls=UserOption,
    type=_Sha256(),
    multiple=True,
    help="Load the model with this content although the scan refuses it; see docs/security.md. "
    "Repeatable, and never taken from a configuration.",
)


def execution_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that runs models."""
    return _THREADS(allowance_options(3600.0)(_NO_CACHE(_TRUST(printing_options(command)))))


def printing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a command says what it does and what it gave."""
    for option in reversed(_PRINTING):
        command = option(command)
    return command


def execution(options: Mapping[str, Any]) -> Execution:
    """The values of `execution_options` as one."""
    import os

    from edgeconv.types import Execution

    return Execution(
        threads=options["threads"] or os.cpu_count() or 1,
        # A SOURCE typed on the command line may run the code that it names.
        allow_code=True,
        allowance=allowance(options),
        use_cache=not options["no_cache"],
        trusted=tuple(options["trusted"]),
    )


def echo_json(noun: Any) -> None:
    """Print a noun as one JSON document."""
    import msgspec

    try:
        encoded = msgspec.json.encode(noun)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(encodable(msgspec.to_builtins(noun)))
    echo_text(f"{msgspec.json.format(encoded, indent=2).decode()}\n")


def comma_list(text: str) -> list[str]:
    """The parts of a comma-separated option."""
    return [part.strip() for part in text.split(",") if part.strip()]


def terminal() -> Terminal:
    """How wide and colourful text on stdout may be; a file or a pipe has no limits."""
    import shutil
    import sys

    if not sys.stdout.isatty():
        return {"width": None, "color": False}
    return {"width": shutil.get_terminal_size().columns, "color": True}
