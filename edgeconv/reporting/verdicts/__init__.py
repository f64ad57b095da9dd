"""The verdicts of the gate in the formats of terminals, CI systems and tools.

A format is a function here and a line in `FORMATS`. Each imports little: a verdict from the cache
is shown at once.
"""

from importlib import import_module
from typing import Any

from edgeconv.types.errors import unknown_name
from edgeconv.types import Checked


_HERE = "edgeconv.reporting.verdicts"
FORMATS = {
    "text": f"{_HERE}.terminal:render_text",
    "json": f"{_HERE}.machine:render_json",
    "junit": f"{_HERE}.machine:render_junit",
    "sarif": f"{_HERE}.machine:render_sarif",
    "github-annotations": f"{_HERE}.github:render_annotations",
    "github-summary": f"{_HERE}.github:render_summary",
    "github-comment": f"{_HERE}.github:render_comment",
    "gitlab-codequality": f"{_HERE}.machine:render_code_quality",
    "gitlab-metrics": f"{_HERE}.machine:render_metrics",
}


def render(checked: Checked, name: str, **of_text: Any) -> str:
    """The checks in a format of `FORMATS`, ending with a newline unless it is empty.

    `of_text` are the options of `render_text`. All names are harmless in the format.
    Raises `UsageError` for an unknown format.
    """
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    module, _, function = FORMATS[name].partition(":")
    of_format = getattr(import_module(module), function)
    rendered: str = of_format(checked, **(of_text if name == "text" else {}))
    return rendered
