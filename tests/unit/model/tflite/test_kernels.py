"""The table of integer kernels, and its part in the documentation.

Set EDGECONV_WRITE_GOLDEN=1 to write the documentation's lists anew. That the kernels are right is
tested in tests/unit/quantize/test_rewritten.py.
"""

import os
import textwrap

import pytest
from places import ROOT
from single_operators import CASES

from edgeconv.model.tflite.kernels import KERNELS, has_kernel

PAGE = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- kernels -->\n", "<!-- /kernels -->\n"


def lists() -> str:
    """The operators without a right kernel of integers, as the documentation has them."""
    replaced = [name for name, kernel in sorted(KERNELS.items()) if kernel.instead]
    left = [name for name in replaced if KERNELS[name].stays_float]
    others = [name for name in replaced if name not in left]
    lines = []
    for title, names in (("Replaced", others), ("Left in float", left)):
        text = f"{title}: {', '.join(f'`{name}`' for name in names)}."
        lines += [*textwrap.wrap(text, 118, initial_indent="- ", subsequent_indent="  ")]
    return "\n".join(lines) + "\n"


def test_the_documentation_has_the_lists():
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("EDGECONV_WRITE_GOLDEN"):
        PAGE.write_text(before + BEGIN + lists() + END + after, encoding="utf-8")
        return
    assert written == lists()


def test_every_operator_that_is_replaced_or_quantized_here_is_measured():
    ours = {name for name, kernel in KERNELS.items() if kernel.scales != "litert-quantizer"}
    replaced = {name for name, kernel in KERNELS.items() if kernel.instead}
    # They move values as EXPAND_DIMS does; or end in FLOOR, which is measured.
    elsewhere = {"BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "FLOOR_DIV", "FLOOR_MOD"}
    unlike = {"ARG_MIN", "FILL", "ONE_HOT", "SPLIT_V", "TOPK_V2"}
    float_only = {name for name, kernel in KERNELS.items() if kernel.stays_float}
    assert (ours | replaced) - CASES.keys() == elsewhere | unlike | float_only


@pytest.mark.parametrize("name", ["NEG", "FLOOR_MOD", "DIV"])
def test_a_kernel_that_computes_something_else_is_none(name):
    assert KERNELS[name].trap
    assert not has_kernel(name, "int8")


def test_an_unknown_operator_has_no_kernel():
    assert not has_kernel("SIN", "int8")
