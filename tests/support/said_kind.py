"""The command `edgeconv`, which also prints the type of its error."""

import sys

from edgeconv import cli

echo_error = cli.echo_error


def echo_with_kind(error: Exception) -> None:
    sys.stderr.write(f"kind: {type(error).__name__}\n")
    echo_error(error)


cli.echo_error = echo_with_kind
cli.main()
