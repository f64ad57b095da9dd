"""`edgeconv config`: the configuration as it is understood, and its JSON Schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeconv.cli import COMMANDS
from edgeconv.cli.printing import echo, echo_json, echo_text
from edgeconv.requests.config.resolved import Resolved
from edgeconv.requests.config.tables import read_config
from edgeconv.requests.table import TABLES

if TYPE_CHECKING:
    from edgeconv.requests.config import Config


@click.group("config")
def config() -> None:
    """Show the resolved configuration, or the JSON Schema of the file."""


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of edgeconv.toml, which gives editors completion."""
    from edgeconv.requests.config.schema import config_schema

    echo_text(config_schema(COMMANDS).decode())


@config.command("show")
@click.argument("commands", nargs=-1, type=click.Choice(tuple(TABLES)))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file. [default: edgeconv.toml, or pyproject.toml with [tool.edgeconv]]",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON document.")
def show(commands: tuple[str, ...], config_file: Path | None, *, as_json: bool) -> None:
    """Print every value that applies, with its origin: the file's line, or the default.

    What the project may not name without your permission is marked as refused; see
    docs/security.md. With COMMANDS, only their tables are shown. Paths are relative to the current
    directory. The output is TOML; a model shows only the values that differ from the general ones.
    """
    resolved = Resolved(_config(config_file), commands)
    if as_json:
        echo_json(resolved.document())
    else:
        for line in resolved.lines():
            echo(line)


def _config(path: Path | None) -> Config:
    from edgeconv.requests.config import find_config
    from edgeconv.types.errors import UsageError

    file = path or find_config(Path())
    if file is None:
        raise UsageError(
            "there is no configuration here",
            hint="write one with `edgeconv init MODEL`, or name it with --config",
        )
    return read_config(file)
