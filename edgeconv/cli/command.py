"""A click command out of a request: its options, what a configuration adds, and the call.

Everything on the command line can stand in edgeconv.toml, in the table of its command: the keys
are the long options. What is typed wins. The file is the one of the current directory, or that
of `--config`. Where a command is about the model of a [model.NAME], its own tables hold.
"""

from __future__ import annotations

from contextlib import nullcontext
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from edgeconv.cli.progress import progress
from edgeconv.config.reach import Granted
from edgeconv.config.tables import Table, model_of, options_of, read_config
from edgeconv.config.user import allowed_by
from edgeconv.requests.option import Leaf, MissingOption, leaves_of
from edgeconv.requests.table import VERBS
from edgeconv.requests.texts import SANDBOX_MODE, TEXT
from edgeconv.verbs import Verb, sandboxed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from edgeconv.config import Config
    from edgeconv.processes.sandbox import Mode

# They run commands that may be told to run code.
_RUN_OTHERS = ("check", "build")
_NUMBERS: dict[str, Any] = {"whole": click.INT, "number": click.FLOAT, "flag": click.BOOL}


class Call(NamedTuple):
    """What a command was called with: its request, what to print, and the configuration.

    `is_named`: the file was typed, and not found. `model` names the [model.NAME] whose tables
    hold, "" for the general ones. `typed` are the words.
    """

    verb: Verb[Any]
    request: Any
    shown: Any
    config: Config | None
    is_named: bool
    model: str
    typed: tuple[str, ...]
    # What `check` and `build` are asked besides.
    of_config: dict[str, Any]

    def done(self, *, keep: bool = False) -> Any:
        """What the verb gives, its progress told; all lines of it are to be kept with `keep`."""
        with progress(quiet=getattr(self.shown, "quiet", True), keep=keep) as on_progress:
            return self.verb(self.request, on_progress=on_progress)


class VerbCommand(click.Command):
    """The command of a verb, whose options a configuration may give."""

    def __init__(
        self,
        name: str,
        function: Callable[[Call], int | None],
        around: Callable[[None], AbstractContextManager[None]] = nullcontext,
        epilog: Callable[[click.HelpFormatter], None] = lambda _: None,
    ) -> None:
        self._entry = VERBS[name]
        self._function = function
        self._around = around
        self._epilog = epilog
        leaves = (*leaves_of(self._entry.kind), *leaves_of(self._entry.printing))
        self._leaves = {leaf.key: leaf for leaf in leaves}
        params = [_parameter(leaf) for leaf in leaves]
        super().__init__(
            name,
            params=[*params, *_further(name)],
            help=function.__doc__,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Make the request, with the values of the configuration. Raises an `EdgeconvError`."""
        words = tuple(args)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            with self._around(None):
                ctx.obj = self._called(ctx, words)
        return rest

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """What else a command has to say."""
        self._epilog(formatter)

    def _called(self, ctx: click.Context, words: tuple[str, ...]) -> Call:
        typed = {
            key: ctx.params[_parameter_name(leaf)]
            for key, leaf in self._leaves.items()
            if ctx.get_parameter_source(_parameter_name(leaf)) == ParameterSource.COMMANDLINE
        }
        named = ctx.params["config_file"]
        config = _config(named)
        # Unlike Path.resolve, it takes a link that leads to itself.
        places = [Path(realpath(each)) for each in self._subjects(typed) if "\0" not in each]
        model = model_of(config, places) if config else ""
        allow, any_code = ctx.params.get("allow", ()), bool(ctx.params.get("allow_code"))
        granted = Granted(allowed=allowed_by(allow), any_code=any_code)
        table = Table(config, self.name or "", granted, model=model)
        try:
            request, shown = table.both(self._entry.kind, self._entry.printing, typed)
        except MissingOption as error:
            param = next(p for p in self.params if p.name == _parameter_name(error.leaf))
            raise click.MissingParameter(ctx=ctx, param=param) from error
        return Call(
            verb=Verb[Any](self.name or ""),
            request=request,
            shown=shown,
            config=config,
            is_named=named is not None,
            model=model,
            typed=words,
            of_config={
                "config": str(config.path) if config else None,
                "allow": allow,
                "any_code": any_code,
                "by_table": False,
            },
        )

    def _subjects(self, typed: Mapping[str, Any]) -> Iterator[str]:
        for key, leaf in self._leaves.items():
            value = typed.get(key)
            if leaf.option.is_subject and value:
                yield from (value,) if isinstance(value, str) else value

    def invoke(self, ctx: click.Context) -> None:
        """Do it, and end with the exit code."""
        with sandboxed(getattr(ctx.obj.request, "sandbox", None)):
            ctx.exit(self._function(ctx.obj) or 0)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in groups, those that concern a call as such at last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        own = {_parameter_name(leaf): leaf.option.group for leaf in self._leaves.values()}
        for param in self.get_params(ctx):
            is_option = isinstance(param, click.Option)
            if is_option and (record := param.get_help_record(ctx)) is not None:
                groups.setdefault(own.get(param.name or "", ""), []).append(record)
        last = groups.pop("", [])
        for group, records in (*groups.items(), ("Options", last)):
            with formatter.section(group):
                formatter.write_dl(records)


def verb_command(
    name: str, **further: Any
) -> Callable[[Callable[[Call], int | None]], VerbCommand]:
    """The command of a verb; its function prints what came of it, and gives the exit code.

    `around` is what its errors go through, `epilog` adds to its help.
    """
    return lambda function: VerbCommand(name, function, **further)


def _hold(ctx: click.Context, _: click.Parameter, mode: Mode | None) -> None:
    if not ctx.resilient_parsing:
        ctx.with_resource(sandboxed(mode))


def sandbox_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--sandbox, of a command that is no verb of a configuration."""
    leaf = next(leaf for leaf in leaves_of(VERBS["inspect"].kind) if leaf.key == "sandbox")
    option = click.option(
        "--sandbox",
        type=_type(leaf),
        metavar=leaf.option.metavar,
        help=leaf.option.help,
        expose_value=False,
        callback=_hold,
    )
    return option(function)


class _Option(click.Option):
    """An option that a configuration may give: that it is not typed is no error yet."""

    def value_is_missing(self, value: Any) -> bool:  # noqa: ARG002
        return False


class _Argument(click.Argument):
    def value_is_missing(self, value: Any) -> bool:  # noqa: ARG002
        return False


def _parameter_name(leaf: Leaf) -> str:
    return "_".join(leaf.path)


def _parameter(leaf: Leaf) -> click.Parameter:
    option = leaf.option
    if option.is_argument:
        return _Argument(
            [_parameter_name(leaf)],
            required=leaf.is_required,
            metavar=option.metavar or leaf.path[-1].upper() + ("..." if leaf.several else ""),
            type=_type(leaf),
            nargs=-1 if leaf.several else 1,
            shell_complete=_completer(leaf),
        )
    default = None if leaf.several else leaf.raw_default
    is_said = default is not None and default is not False and default != ""
    return _Option(
        [*([f"-{option.short}"] if option.short else []), f"--{leaf.key}", _parameter_name(leaf)],
        type=_type(leaf),
        is_flag=leaf.takes == "flag",
        multiple=leaf.several,
        default=default,
        show_default=option.is_shown and is_said,
        required=leaf.is_required,
        metavar=option.metavar or None,
        help=option.help or None,
        shell_complete=_completer(leaf),
    )


def _type(leaf: Leaf) -> Any:
    option = leaf.option
    if leaf.takes == "choice" or leaf.text is SANDBOX_MODE:
        return click.Choice(leaf.choices)
    if option.least is None and option.most is None:
        return _NUMBERS.get(leaf.takes, click.STRING)
    kind: Any = click.IntRange if leaf.takes == "whole" else click.FloatRange
    low = option.least if option.least is None or leaf.takes == "number" else int(option.least)
    return kind(low, option.most, min_open=option.is_above, max_open=option.is_below)


def _completer(leaf: Leaf) -> Callable[..., Any] | None:
    """What completes words, several of them with commas, or the names of files."""
    if leaf.option.words:

        def words(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
            before, comma, begun = incomplete.rpartition(",")
            known = leaf.option.words
            return [f"{before}{comma}{word}" for word in known if word.startswith(begun)]

        return words
    if leaf.text.is_file:
        from click.shell_completion import CompletionItem

        return lambda _ctx, _param, incomplete: [CompletionItem(incomplete, type="file")]
    return None


def _config(typed: str | None) -> Config | None:
    """The configuration that is typed, or that of the current directory."""
    from edgeconv.config import find_config

    path = Path(typed) if typed is not None else find_config(Path())
    return read_config(path) if path else None


def _further(name: str) -> Iterator[click.Option]:
    """The options about the configuration: what it may name, and where it is."""
    kinds = [leaf.text for leaf in options_of(name).values()]
    if name in _RUN_OTHERS or any(kind.may_run_code for kind in kinds):
        yield click.Option(
            ["--allow-code"],
            is_flag=True,
            help="Run code that the configuration names; what is typed here runs anyway.",
        )
    if any(kind is not TEXT for kind in kinds):
        yield click.Option(
            ["--allow"],
            multiple=True,
            metavar="KIND=VALUE",
            help="Let the configuration name this, which is not inside its project: "
            "directory=PATH, code=SHA256, program=PATH, runtime=NAME, tracker=KIND:PLACE or "
            "address=URL; see docs/security.md. Repeatable.",
        )
    yield click.Option(
        ["--config", "config_file"],
        metavar="FILE",
        help="Take what is not given here from this file. [default: edgeconv.toml, or "
        "pyproject.toml with [tool.edgeconv]; see docs/config.md]",
    )
