"""The command line: text in, one verb, text out. The only folder that prints or exits."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeconv.cli.printing import echo, echo_error, echo_text, escaped_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types.errors import EdgeconvError

# By what they are for, with one line each, so that --help imports no command.
_GROUPS = {
    "Convert": {
        "init": "Write a commented edgeconv.toml by looking at a model.",
        "demo": "Train, convert, measure and check a small model: the whole job, in a minute.",
        "train": "Train a baseline under a distribution strategy and export it.",
        "convert": "Convert a trained model to verified .tflite files.",
        "tune": "Find the smallest or fastest file that keeps its accuracy within a budget.",
    },
    "Measure": {
        "bench": "Measure size, latency, memory and accuracy, compared with the baseline.",
        "sweep": "Measure many models, recipes, runtimes and data sets, cell by cell.",
        "report": "Render measurements as a page, a table, Markdown, JSON or CSV.",
        "compare": "Show what changed between two reports or two .tflite files.",
        "check": "Check every model of edgeconv.toml against its budget; "
        "exit 1 if a limit is broken.",
    },
    "Ship": {
        "embed": "Write a published model, with accessors and a self-test, into a project.",
        "build": "Convert and embed every model of edgeconv.toml where anything changed.",
        "verify": "Verify published files against their manifests, verdicts and locks.",
        "cmake-dir": "Print where CMake finds edgeconv, for find_package(edgeconv).",
    },
    "Look into": {
        "inspect": "Show what is in a model file, without running it.",
        "scan": "Show what models would touch if they were loaded; exit 1 if any is refused.",
        "doctor": "Find the preprocessing that a model was trained with; exit 1 if none fits.",
        "debug": "Show which layers lose most when a model is quantized, and which rules help.",
        "visualize": "Open a .tflite in Model Explorer or Netron, with the error of each layer.",
    },
    "Keep house": {
        "config": "Show the resolved configuration and the source of each value, or its schema.",
        "cache": "Show the cache, and make it smaller.",
    },
}
COMMANDS = {name: line for group in _GROUPS.values() for name, line in group.items()}
INTERRUPTED = 130
# The exit code of a shell for SIGPIPE. Not 0: the verdict of `check` must not become a pass because
# nobody reads it.
READER_GONE = 141
FAULT = 4
# The others are in edgeconv/cli/verbs.py.
_MODULES = {
    "init": "init",
    **dict.fromkeys(("embed", "build"), "ship"),
    **dict.fromkeys(("config", "cache", "cmake-dir"), "house"),
}


def command_named(name: str) -> click.Command:
    """One of `COMMANDS`, its module imported."""
    module = import_module(f"edgeconv.cli.{_MODULES.get(name, 'verbs')}")
    command: click.Command = getattr(module, name.replace("-", "_"))
    return command


class _Commands(click.Group):
    """Imports a command's module when the command is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return command_named(cmd_name)
        if ctx.resilient_parsing or cmd_name.startswith("-"):
            return None
        from edgeconv.types.errors import unknown_name

        raise unknown_name("command", cmd_name, COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, lines in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, help="Show the versions of edgeconv and its tools.")
@click.option("--json", "as_json", is_flag=True, help="With --version: as JSON.")
@click.pass_context
def cli(ctx: click.Context, /, *, version: bool, as_json: bool) -> None:
    """A trained model in, a verified set of .tflite files out.

    Exit codes: 0 done, 1 a limit is broken, 2 usage or configuration, 3 input refused, 4 a tool
    failed or a result did not pass verification, 130 interrupted.
    """
    if version:
        _print_version(as_json=as_json)
        ctx.exit()
    if as_json:
        raise click.UsageError("--json before a command is for --version only")
    if ctx.invoked_subcommand is None:
        echo_text(f"{ctx.get_help()}\n", err=True)
        ctx.exit(2)


def _print_version(*, as_json: bool) -> None:
    from edgeconv.system.processes.sandbox import available
    from edgeconv.system.store.tools import tool_versions

    versions = dict(tool_versions())
    sandbox = str(available())
    if as_json:
        import msgspec

        echo_text(f"{msgspec.json.encode({**versions, 'sandbox': sandbox}).decode()}\n")
        return
    own = versions.pop("edgeconv")
    others = ", ".join(f"{name} {version}" for name, version in versions.items())
    echo(f"edgeconv {own} ({others})")
    echo(f"sandbox: {sandbox}")


def main(args: Sequence[str] | None = None) -> None:
    """The console script. Every error ends in one message on stderr and its exit code."""
    _open_closed_streams()
    sys.excepthook = _report_fault
    if sys.platform == "win32":
        echo_text("error: edgeconv does not run on Windows\n  next: use it in WSL 2\n", err=True)
        sys.exit(2)
    sys.exit(run(args))


def _open_closed_streams() -> None:
    """Give closed standard streams the null device.

    Else the next file that is opened would get the number, and a library's output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _report_fault(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Report a fault of edgeconv: Python's exit code would mean a broken limit."""
    del kind, trace
    import tempfile

    from edgeconv.system.processes.failures import internal_error, traceback_of, with_traceback

    with escaped_output():
        try:
            with tempfile.NamedTemporaryFile("w", errors="replace") as log:
                log.write(traceback_of(error))
                log.flush()
                name = f"internal-{os.getpid()}"
                echo_error(with_traceback(internal_error(error), Path(log.name), name))
        except OSError:
            echo_text(traceback_of(error), err=True)
    sys.exit(FAULT)


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    with escaped_output():
        return _run(args)


def _run(args: Sequence[str] | None) -> int:
    from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed
    from edgeconv.system.processes.signals import end_on_signals

    end_on_signals()
    try:
        code: Any = cli.main(args=args, prog_name="edgeconv", standalone_mode=False)
    except EdgeconvError as error:
        echo_error(error)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        echo_error(_usage_error(error))
        return 2
    except UnicodeEncodeError as error:
        # Names of files are bytes; manifests, reports and requests to children are JSON.
        echo_error(InputRefused(f"{error.object} is not UTF-8", hint="rename the file"))
        return InputRefused.exit_code
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        return INTERRUPTED
    except SystemExit as ended:
        # click ends so when the reader, such as `head`, has gone; with 0, after a completion.
        return READER_GONE if ended.code else 0
    except OSError as error:
        # Such as a full disk.
        echo(f"error: {error}", err=True)
        _discard_output()
        return ToolFailed.exit_code
    return code if isinstance(code, int) else 0


def _usage_error(error: click.ClickException) -> EdgeconvError:
    """An error of click's in the form of ours."""
    from edgeconv.types.errors import UsageError

    message = error.format_message().strip().removesuffix(".")
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option {error.option_name}"
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        name = error.param.opts[-1] if error.param else ""
        option = name if name.startswith("-") else name.upper()
        message = f"{option}: {error.message.rstrip('.')}" if option else message
    else:
        message = message[:1].lower() + message[1:]
    close = getattr(error, "possibilities", None) or ()
    suggestion = f"did you mean {' or '.join(close)}? " if close else ""
    if "unexpected extra argument" in message:
        suggestion = "several values of an option have commas, as in --to int8,float16; "
    context = getattr(error, "ctx", None)
    typed = getattr(error, "option_name", "").lstrip("-")
    for each in context.command.params if context else ():
        if isinstance(each, click.Argument) and typed and each.name == typed:
            suggestion = f"{typed.upper()} is typed without --{typed}; "
    command = context.command_path if context else "edgeconv"
    return UsageError(message, hint=f"{suggestion}`{command} --help` shows the usage")


def _discard_output() -> None:
    # Python writes at the end what could not be written before, and would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
