"""The target `zephyr`: a module of Zephyr, and a sample that is a self-test."""

from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import C_OPTIONS, c_files, c_values, is_of_self_test
from edgeconv.embedding.interface import NPU_OPTION, Embedding, TargetOption
from edgeconv.embedding.micro import (
    MICRO_OPTION,
    micro_files,
    micro_notes,
    micro_values,
    wants_micro,
)
from edgeconv.types.errors import UsageError

notes = micro_notes
OPTIONS = {
    **C_OPTIONS,
    **MICRO_OPTION,
    **NPU_OPTION,
    "depends": TargetOption(
        help="what the Kconfig symbol depends on, an expression of Kconfig without CONFIG_",
        # Symbols, numbers, y, m and n, strings, and operators.
        pattern=r'(?:[A-Z0-9_!&|()=<>ymnx ]|"[A-Za-z0-9_./ -]*")*',
        example="TENSORFLOW_LITE_MICRO && FPU",
    ),
}
_SAMPLE = "samples/self_test"


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    sources = {**c_files(embedding), **micro_files(embedding)}
    _check_parentheses(embedding.options["depends"])
    in_c = sorted(name for name in sources if name.endswith(".c"))
    values = {
        **c_values(embedding),
        "depends": embedding.options["depends"],
        "sources": [name for name in in_c if not is_of_self_test(name, embedding.symbol)],
        "test_sources": [name for name in in_c if is_of_self_test(name, embedding.symbol)],
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


def _check_parentheses(expression: str) -> None:
    open_ = 0
    for sign in expression:
        open_ += (sign == "(") - (sign == ")")
        if open_ < 0:
            break
    if open_:
        raise UsageError(
            f"--option depends={expression}: its parentheses do not match",
            hint=f"as in depends={OPTIONS['depends'].example}",
        )
