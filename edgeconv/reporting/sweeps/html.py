"""A sweep as one HTML file: every column sorts, and a text filters; without network."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.html import page_environment
from edgeconv.reporting.sweeps.page import counts, measured
from edgeconv.reporting.tables import Cell, Heading, Line, PageTable, number

if TYPE_CHECKING:
    from edgeconv.types import SweepCell, Swept

_TEXTS = ("Model", "Data", "Recipe", "Runtime", "State")
_NUMBERS = ("Size", "p50", "Value", "Drop", "SNR")
_CAPTION = "Every cell, worst first. A click on a heading sorts; “Pareto”: no other cell of the "
_CAPTION += "model, data set and runtime is smaller (or faster, with times) and loses less."


def render_sweep(sweep: Swept) -> str:
    """The whole page. No text of a sweep becomes markup, script or style in it."""
    environment = page_environment()
    assert environment.loader is not None
    parts = [
        environment.loader.get_source(environment, name)[0]
        for name in ("script.js.j2", "filter.js.j2")
    ]
    script = Markup("".join(parts))
    return environment.get_template("sweep.html.j2").render(
        title=sweep.title,
        counts=counts(sweep),
        removed=sweep.removed,
        cells=_table(sweep),
        script=script,
        # By this the page's security policy allows its one script.
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )


def _table(sweep: Swept) -> PageTable:
    texts = tuple(Heading(text=name, is_text=True) for name in _TEXTS)
    numbers = tuple(Heading(text=name) for name in _NUMBERS)
    remark = Heading(text="Reason or change", is_text=True)
    return PageTable(
        name="cells",
        caption=_CAPTION,
        headings=(*texts, *numbers, remark),
        lines=tuple(map(_line, sweep.cells)),
        is_sortable=True,
    )


def _line(cell: SweepCell) -> Line:
    state = "Pareto" if cell.on_front else cell.state
    names = (cell.model, cell.data or units.ABSENT, cell.recipe, cell.runtime)
    mark = "ok" if cell.on_front else {"failed": "over", "missing": "warn"}.get(cell.state)
    keys = (cell.size_bytes, cell.latency_us, cell.value, cell.drop, cell.snr_db)
    remark = cell.reason or cell.change or units.ABSENT
    under = f"next: {cell.hint}" if cell.hint else ""
    return Line(
        cells=(
            *(Cell(text=name, key=name) for name in names),
            Cell(text=state, key=state, kind=f"mark {mark}" if mark else ""),
            *(number(text, key) for text, key in zip(measured(cell), keys, strict=True)),
            Cell(text=remark, under=under, key=remark),
        ),
    )
