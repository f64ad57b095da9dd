"""`edgeconv cmake-dir`: where CMake finds edgeconv."""

from __future__ import annotations

from pathlib import Path

import click

from edgeconv.cli.printing import echo


@click.command("cmake-dir")
@click.option("--litert", is_flag=True, help="LiteRT's shared library instead.")
def command(*, litert: bool) -> None:
    """Print the directory of edgeconvConfig.cmake, for find_package(edgeconv).

    As in: cmake -S . -B build -Dedgeconv_DIR=$(edgeconv cmake-dir)
    """
    if litert:
        from edgeconv.runtimes.c_api import library_path

        echo(str(library_path()))
    else:
        import edgeconv

        echo(str(Path(edgeconv.__file__).parent / "cmake"))
