"""Plots as static SVG, drawn by vl-convert from the Vega-Lite specifications in charts/.

The page gets no script, font or address of Vega. Plots are 400 units wide, which can be read on a
phone, and take their colors from the page's style sheet.
"""

import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import vl_convert
from markupsafe import Markup

from edgeconv.types.decoding import ready
from edgeconv.types.errors import ToolFailed

# A row of a data set, or a part of a specification.
Fields = dict[str, Any]

_CHARTS = Path(__file__).with_name("charts")
_MARK = re.compile(
    r'<(\w+) aria-label="([^"]*)" role="[^"]*" aria-roledescription="[^"]*"(.*?)(/?)>'
)
# Numbers in these attributes are rounded; text of models in other attributes is not changed.
_TAG = re.compile(r'(?<= )(?:d|transform|[xy]2?|width|height)="[^"]*"(?=[^<>]*>)')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?e-\d+|-?\d+\.\d+")
_LEAST, _MOST = 1e-6, 1e15
# The engine in vl-convert reserves this much, uses little of it, and aborts without it.
_ADDRESS_SPACE_BYTES = 72 * 2**30


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A chart, its data, and its description for screen readers.

    `chart` names a specification in charts/; `axes` are changes of its encodings. Text of models is
    only data or a title, never part of an expression. `rows`: the row of the table of models for
    each mark with a tooltip, in order.
    """

    chart: str
    title: str
    description: str
    data: Mapping[str, list[Fields]]
    axes: Mapping[str, Fields] = field(default_factory=dict)
    rows: tuple[int, ...] = ()

    @property
    def spec(self) -> Fields:
        """The whole specification."""
        spec = {**_read(self.chart), "config": _read("theme"), "datasets": self.data}
        for channel, changes in self.axes.items():
            spec["encoding"][channel] |= changes
        return spec


def drawable(value: float) -> bool:
    """Whether a size or time can be drawn on a logarithmic axis."""
    return _LEAST < value < _MOST


def draw_svg(plot: Plot | None, key: str) -> Markup | None:
    """An SVG element, None without a plot; `key` makes its ids unique.

    The description of a mark becomes its tooltip. Raises `ToolFailed` if the process may not
    have the address space that drawing needs.
    """
    if plot is None:
        return None
    view, body = _svg(msgspec.json.encode(plot.spec).decode())
    rows = iter(plot.rows)
    return Markup(
        '<svg viewBox="{view}" role="img" aria-labelledby="{key}-title {key}-desc">'
        '<title id="{key}-title">{title}</title><desc id="{key}-desc">{description}</desc>{body}'
    ).format(
        view=view,
        key=key,
        title=plot.title,
        description=plot.description,
        body=Markup(_MARK.sub(lambda mark: _with_tooltip(mark, rows), body)),
    )


@lru_cache(maxsize=64)
def _svg(spec: str) -> tuple[str, str]:
    """The view box and the content; cached, for a report may be written more than once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE_BYTES:
        raise ToolFailed(
            f"the plots of the HTML report need {_ADDRESS_SPACE_BYTES >> 30} GiB of address space, "
            f"and this process is limited to {limit >> 30} GiB",
            hint="lift the limit (ulimit -v unlimited), or write the report as text or Markdown",
        )
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    # The last digit of a number depends on when the engine compiled what computes it.
    svg = _TAG.sub(lambda tag: _NUMBER.sub(lambda n: f"{round(float(n[0]), 2):g}", tag[0]), svg)
    _, view, body = re.split(r'viewBox="([^"]*)">', svg, maxsplit=1)
    return view, body


def _with_tooltip(mark: re.Match[str], rows: Iterator[int]) -> str:
    name, tooltip, attributes, is_empty = mark.groups()
    row = next(rows, None)
    linked = "" if row is None else f' data-row="{row}"'
    end = f"</{name}>" if is_empty else ""
    return f"<{name}{linked}{attributes}><title>{tooltip}</title>{end}"


def _read(chart: str) -> Fields:
    spec = msgspec.json.decode((_CHARTS / f"{chart}.json").read_bytes(), type=ready(Fields))
    if base := spec.pop("base", None):
        general = _read(base)
        spec["encoding"] |= general["encoding"]
        spec["layer"] = general["layer"] + spec["layer"]
        spec = {**general, **spec}
    return spec
