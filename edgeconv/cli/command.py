"""The click command of a request: its options, what a configuration adds, its help, the call.

All options can be given in edgeconv.toml too, in the table of their command, with the long options
as keys. What is typed wins. The file is named by `--config`, or in the current directory. A command
that is about the model of a [model.NAME] takes the tables of that model.
"""

from __future__ import annotations

import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from os.path import realpath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click
from click.core import ParameterSource

from edgeconv.cli.printing import echo, echo_json, echo_page, echo_text, progress, terminal
from edgeconv.requests.config.reach import Granted
from edgeconv.requests.config.tables import Table, model_of, options_of, read_config
from edgeconv.requests.request import Group, Leaf, MissingOption, leaves_of, request_of
from edgeconv.requests.table import TABLES, VERBS, VerbEntry, named, sandboxed
from edgeconv.requests.texts import SANDBOX_MODE, TEXT
from edgeconv.system.store.files import reading
from edgeconv.system.store.user import allowed_by
from edgeconv.types.errors import UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edgeconv.requests.config.file import Config
    from edgeconv.types.execution import SandboxMode

# They run other verbs, which may run code.
_RUN_OTHERS = ("check", "build", "sweep")
_NUMBERS: dict[str, Any] = {"whole": click.INT, "number": click.FLOAT, "flag": click.BOOL}
_METAVARS = {"whole": "N", "number": "NUMBER"}
_HELP_COLUMNS = 100
# A note of a help text that its short form has too, such as [default: 3].
_NOTE = r"(?<=\[)default: [^\];]*|required(?=\])"


class CommandCall(NamedTuple):
    """A call of a command: its request, what to print, and the configuration.

    `is_named`: the configuration was typed. `model` names the [model.NAME] whose tables apply, ""
    for the general ones. `typed` are the words. `of_config` are the fields of a `ConfigRequest`.
    """

    entry: VerbEntry
    request: Any
    shown: Any
    config: Config | None
    is_named: bool
    model: str
    typed: tuple[str, ...]
    of_config: dict[str, Any]

    def do(self, request: Any, on_progress: Callable[[str], None] = lambda _: None) -> Any:
        """The verb's result for a request."""
        further = {"on_progress": on_progress} if self.entry.tells else {}
        return named(self.entry.function)(request, **further)

    def run(self, *, keep: bool = False) -> Any:
        """The verb's result. Its progress is printed; with `keep` every line of it stays."""
        with progress(quiet=getattr(self.shown, "quiet", True), keep=keep) as on_progress:
            return self.do(self.request, on_progress)

    def printed(self, *, keep: bool = False, **options: Any) -> Any:
        """The verb's result, printed as JSON or as its page."""
        from edgeconv.reporting.pages import text_of

        result = self.run(keep=keep)
        if self.shown.as_json:
            echo_json(result)
        elif result is not None:
            echo_page(text_of(result, **options, **terminal()))
        return result


class VerbCommand(click.Command):
    """The command of a verb, whose options a configuration may give."""

    def __init__(
        self,
        name: str,
        function: Callable[[CommandCall], int | None],
        around: Callable[[None], AbstractContextManager[None]] = nullcontext,
        epilog: Callable[[click.HelpFormatter], None] = lambda _: None,
        examples: Sequence[str] = (),
        brief: str = "",
    ) -> None:
        self._entry = VERBS[name]
        self._function = function
        self._around = around
        self._epilog = epilog
        self._examples = examples
        self.brief = (*brief.split(), "quiet", "json", "config", "help-all")
        super().__init__(
            name, help=function.__doc__, context_settings={"help_option_names": ["-h", "--help"]}
        )
        # Most commands are in one module: only the one that is called needs its options.
        del self.params

    @cached_property
    def _leaves(self) -> dict[str, Leaf]:
        leaves = (*leaves_of(self._entry.kind), *leaves_of(self._entry.printing))
        return {leaf.key: leaf for leaf in leaves}

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The options, which are made of the request's fields when they are first needed."""
        params = [*map(_parameter, self._leaves.values()), *_further(self.name or "")]
        return [*params, _help_all()] if self._examples else params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Make the request, with the values of the configuration. Raises an `EdgeconvError`."""
        words = tuple(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if not ctx.resilient_parsing:
            with self._around(None):
                ctx.obj = self._called(ctx, words)
        return rest

    def get_help(self, ctx: click.Context) -> str:
        """The page of --help: plain text of at most 100 columns, on a terminal or not."""
        columns = shutil.get_terminal_size((_HELP_COLUMNS, 0)).columns
        formatter = click.HelpFormatter(width=min(columns, _HELP_COLUMNS))
        self.format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, and the options by group: the common ones, or all with --help-all."""
        if self._examples:
            with formatter.section("Examples"):
                for example in self._examples:
                    formatter.write(f"  {example}\n")
        is_brief = self._is_brief(ctx)
        groups: dict[Group, list[tuple[str, str]]] = {group: [] for group in get_args(Group)}
        by_name = {_parameter_name(leaf): leaf.option for leaf in self._leaves.values()}
        for param in self.get_params(ctx):
            option = by_name.get(param.name or "")
            is_rare = param.opts[-1].removeprefix("--") not in self.brief
            if isinstance(param, click.Argument) or (is_brief and is_rare):
                continue
            names, text = param.get_help_record(ctx) or ("", "")
            group: Group = option.group if option else ""
            groups[group].append((names, _brief(text) if is_brief else text))
        last = groups.pop("")
        for title, records in (*groups.items(), ("Options", last)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What a command adds to its full help."""
        if not self._is_brief(ctx):
            self._epilog(formatter)

    def _is_brief(self, ctx: click.Context) -> bool:
        return bool(self._examples) and _help_all.__name__ not in ctx.meta

    def _called(self, ctx: click.Context, words: tuple[str, ...]) -> CommandCall:
        typed = {
            key: ctx.params[_parameter_name(leaf)]
            for key, leaf in self._leaves.items()
            if ctx.get_parameter_source(_parameter_name(leaf)) == ParameterSource.COMMANDLINE
        }
        named = ctx.params.get("config_file")
        config = _config(named) if self.name in TABLES else None
        # Unlike Path.resolve, it takes a link that leads to itself.
        paths = [Path(realpath(each)) for each in self._subjects(typed) if "\0" not in each]
        model = model_of(config, paths) if config else ""
        allow, any_code = ctx.params.get("allow", ()), bool(ctx.params.get("allow_code"))
        granted = Granted(allowed=allowed_by(allow), any_code=any_code)
        table = Table(config, self.name or "", granted, model=model)
        written = table.values(frozenset(typed))
        of_table: Any = {"written": written, "blame": table.blamed}
        try:
            request = request_of(self._entry.kind, typed, runs_code=True, **of_table)
            shown = request_of(self._entry.printing, typed, **of_table)
        except MissingOption as error:
            what = f"{error.hint}; " if error.hint else ""
            hint = f"{what}`edgeconv {self.name} --help` shows what it needs"
            raise UsageError(error.message, hint=hint) from error
        # A file that nobody typed may be about another model, whose samples are not this one's.
        if config and written and paths and not (model or named or getattr(shown, "quiet", False)):
            gives = f"its [{self.name}] gives {listed(written)}"
            echo(f"note: {config.path} does not name this model; {gives}", err=True)
        return CommandCall(
            entry=self._entry,
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
            if leaf.text.is_subject and value:
                yield from (value,) if isinstance(value, str) else value

    def invoke(self, ctx: click.Context) -> None:
        """Do it, and end with the exit code."""
        call: CommandCall = ctx.obj
        read = (*call.request.roots(), *([call.config.path] if call.config else []))
        with sandboxed(getattr(call.request, "sandbox", None)), reading(read):
            ctx.exit(self._function(ctx.obj) or 0)


def verb_command(
    name: str, **further: Any
) -> Callable[[Callable[[CommandCall], int | None]], VerbCommand]:
    """The command of a verb; its function prints the result, and returns the exit code.

    `around` handles its errors, `epilog` adds to its help, and `examples` are command lines. With
    them --help shows only the options that are named in `brief`, each with its first sentence.
    """
    return lambda function: VerbCommand(name, function, **further)


def result_command(
    name: str,
    *,
    keep: bool = False,
    shows: Sequence[str] = (),
    page: Mapping[str, Any] = MappingProxyType({}),
    **further: Any,
) -> Callable[[Callable[[CommandCall, Any], int | None]], VerbCommand]:
    """The command of a verb whose result is printed, which its function gets too.

    `shows` are the options that the page takes, and `page` what else it is given.
    """

    def command(function: Callable[[CommandCall, Any], int | None]) -> VerbCommand:
        @wraps(function)
        def after(call: CommandCall) -> int | None:
            options = {name: getattr(call.shown, name) for name in shows}
            return function(call, call.printed(keep=keep, **options, **page))

        return VerbCommand(name, after, **further)

    return command


def _brief(text: str) -> str:
    """The first sentence of an option's help, and its notes in brackets."""
    sentence, _, rest = text.partition(". ")
    sentence, _, own = sentence.partition("  [")
    notes = [f"[{note}]" for note in re.findall(_NOTE, f"[{own}] {rest}")]
    return " ".join([sentence.removesuffix("."), *notes])


def _help_all() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[_help_all.__name__] = True
            echo_text(f"{ctx.get_help()}\n")
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show all options, and exit.",
    )


def _hold(ctx: click.Context, _: click.Parameter, mode: SandboxMode | None) -> None:
    if not ctx.resilient_parsing:
        ctx.with_resource(sandboxed(mode))


def sandbox_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--sandbox, for a command without a request."""
    leaf = next(leaf for leaf in leaves_of(VERBS["inspect"].kind) if leaf.key == "sandbox")
    option = click.option(
        "--sandbox",
        type=_type(leaf),
        metavar=leaf.metavar,
        help=leaf.option.help,
        expose_value=False,
        callback=_hold,
    )
    return option(function)


class _ConfigurableOption(click.Option):
    """An option that a configuration may give: without being typed it is not yet missing.

    What is typed twice is one list where it `joins`, and otherwise the last, as usual.
    """

    def __init__(self, *args: Any, joins: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._joins = joins

    def value_is_missing(self, value: Any) -> bool:  # noqa: ARG002
        return False

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if self.is_flag or self.multiple:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append")

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        value, source = super().consume_value(ctx, opts)
        typed = opts.get(self.name or "")
        if self.multiple or not isinstance(typed, list):
            return value, source
        return ",".join(typed) if self._joins else typed[-1], source


class _ConfigurableArgument(click.Argument):
    def value_is_missing(self, value: Any) -> bool:  # noqa: ARG002
        return False


def _parameter_name(leaf: Leaf) -> str:
    return "_".join(leaf.path)


def _parameter(leaf: Leaf) -> click.Parameter:
    option = leaf.option
    if option.is_argument:
        return _ConfigurableArgument(
            [_parameter_name(leaf)],
            required=leaf.is_required,
            metavar=option.metavar or leaf.path[-1].upper() + ("..." if leaf.several else ""),
            type=_type(leaf),
            nargs=-1 if leaf.several else 1,
            shell_complete=_completer(leaf),
        )
    default = None if leaf.several else leaf.raw_default
    has_default = default is not None and default is not False and default != ""
    return _ConfigurableOption(
        [*([f"-{option.short}"] if option.short else []), f"--{leaf.key}", _parameter_name(leaf)],
        type=_type(leaf),
        is_flag=leaf.takes == "flag",
        multiple=leaf.several,
        joins=leaf.text.is_list,
        default=default,
        show_default=option.is_shown and has_default,
        required=leaf.is_required,
        metavar=leaf.metavar or _METAVARS.get(leaf.takes),
        help=option.help or None,
        shell_complete=_completer(leaf),
    )


def _type(leaf: Leaf) -> Any:
    if leaf.takes == "choice" or leaf.text is SANDBOX_MODE:
        return click.Choice(leaf.choices)
    low, high = leaf.ends
    if low is None and high is None:
        return _NUMBERS.get(leaf.takes, click.STRING)
    bounds = leaf.option.bounds
    kind: Any = click.IntRange if leaf.takes == "whole" else click.FloatRange
    return kind(low, high, min_open=bounds.gt is not None, max_open=bounds.lt is not None)


def _completer(leaf: Leaf) -> Callable[..., Any] | None:
    """The completion of words, also of several with commas, or of the names of files."""
    if leaf.option.words:

        def words(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
            before, comma, begun = incomplete.rpartition(",")
            known = leaf.option.words
            return [f"{before}{comma}{word}" for word in known if word.startswith(begun)]

        return words
    if leaf.text.is_file:

        def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
            from click.shell_completion import CompletionItem

            return [CompletionItem(incomplete, type="file")]

        return files
    return None


def _config(typed: str | None) -> Config | None:
    """The configuration that is typed, or the one in the current directory."""
    from edgeconv.requests.config.reach import find_config

    path = Path(typed) if typed is not None else find_config(Path())
    return read_config(path) if path else None


def _further(name: str) -> Iterator[click.Option]:
    """The options about the configuration: what it may name, and its file."""
    if name not in TABLES:
        return
    kinds = [leaf.text for leaf in options_of(name).values()]
    if name in _RUN_OTHERS or any(kind.may_run_code for kind in kinds):
        yield click.Option(
            ["--allow-code"],
            is_flag=True,
            help="Run code that the configuration names. Code that is typed here always runs.",
        )
    if any(kind is not TEXT for kind in kinds):
        yield click.Option(
            ["--allow"],
            multiple=True,
            metavar="KIND=VALUE",
            help="Let the configuration name this outside its project. KIND=VALUE: directory=PATH, "
            "code=SHA256, program=PATH, runtime=NAME, tracker=KIND:PLACE or address=URL; see "
            "docs/security.md. Repeatable.",
        )
    yield click.Option(
        ["--config", "config_file"],
        metavar="FILE",
        help="The configuration. Options that are not typed come from it; see docs/config.md. "
        "[default: edgeconv.toml, or pyproject.toml with tool.edgeconv]",
    )
