"""The target `zephyr`: a module of Zephyr, and a sample that is a self-test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embed.c_files import BYTES_OPTION, c_files, c_values
from edgeconv.embed.micro import MICRO_OPTION, micro_files, micro_notes, micro_values, wants_micro
from edgeconv.embed.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embed.interface import Embedding

OPTIONS = {**BYTES_OPTION, **MICRO_OPTION}
_SAMPLE = "samples/self_test"


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embed.interface`."""
    sources = {**c_files(embedding), **micro_files(embedding)}
    values = {
        **c_values(embedding),
        "sources": sorted(name for name in sources if name.endswith(".c")),
    }
    written: dict[str, bytes | Path] = {
        **{f"src/{name}": content for name, content in sources.items()},
        "CMakeLists.txt": render("zephyr_lists.j2", **values),
        "Kconfig": render("zephyr_kconfig.j2", **values),
        "zephyr/module.yml": render("zephyr_module.j2", **values),
    }
    if wants_micro(embedding):
        written |= {
            f"{_SAMPLE}/CMakeLists.txt": render("zephyr_sample_lists.j2", **values),
            f"{_SAMPLE}/prj.conf": render("zephyr_sample_config.j2", **values),
            f"{_SAMPLE}/src/main.cpp": render("zephyr_sample_main.j2", **micro_values(embedding)),
        }
    return written


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embed.interface`."""
    return micro_notes(embedding)
