"""`edgeconv cmake-dir`: where CMake finds edgeconv."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("cmake-dir")
@click.option("--litert", is_flag=True, help="LiteRT's shared library instead.")
def command(*, litert: bool) -> None:
    """Print the directory of edgeconvConfig.cmake, for find_package(edgeconv).

    As in: cmake -S . -B build -Dedgeconv_DIR=$(edgeconv cmake-dir)
    """
    if litert:
        from edgeconv.runtimes.c_api import library_path

        click.echo(str(library_path()))
    else:
        import edgeconv

        click.echo(str(Path(edgeconv.__file__).parent / "cmake"))
