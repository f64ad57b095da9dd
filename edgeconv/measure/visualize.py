"""A .tflite in Model Explorer or Netron, with the errors or times of its layers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgeconv.system.processes.sandbox import environment_of
from edgeconv.system.store import publish_bytes, refuse_inputs, scratch_directory
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.reporting.layers import Shown
    from edgeconv.requests.looking import VisualizeRequest
    from edgeconv.types import Measurement, Report

Viewer = Literal["model-explorer", "netron"]
# The command, and the module that a Python runs as it.
_VIEWERS: dict[Viewer, str] = {"model-explorer": "model_explorer", "netron": "netron"}
_MEASURED_BY: dict[Shown, str] = {"errors": "--layers", "times": "--profile"}
_INSTALL = "pip install ai-edge-model-explorer (shows errors by layer), or pip install netron"


def visualize(
    request: VisualizeRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> None:
    """Open a .tflite until the viewer ends, or write the node data that Model Explorer shows.

    `on_progress` gets each line that the viewer prints. Raises an `EdgeconvError`.
    """
    from edgeconv.model.source import load

    refuse_inputs([Path(request.target)] if request.target else [])
    model = Path(request.model)
    sha256 = load(model).sha256
    report = Path(request.report_file) if request.report_file else None
    data = _node_data(model, sha256, report, request.shown) if report else None
    if request.target is not None:
        if data is None:
            raise UsageError("node data is made from a report", hint="give one with --report")
        publish_bytes(data, Path(request.target).absolute())
        on_progress(f"node data: {request.target}")
        return
    _open(model, data, *_viewer(request.viewer), on_progress)


def _node_data(model: Path, sha256: str, report_file: Path, shown: Shown) -> bytes:
    """The node data of this very model. Raises `InputRefused` where the report has none."""
    from edgeconv.model.tflite.summary import layers_of_graphs
    from edgeconv.reporting.files import read_report
    from edgeconv.reporting.layers import node_data

    report = read_report(report_file)
    measured = _measured(report, sha256, model, report_file)
    data = node_data(measured, layers_of_graphs(model.read_bytes(), where=str(model)), shown)
    if data is None:
        raise InputRefused(
            f"{report_file} has no {shown} by layer of {measured.name}",
            hint=f"measure them with edgeconv bench {_MEASURED_BY[shown]}",
        )
    return data


def _measured(report: Report, sha256: str, model: Path, report_file: Path) -> Measurement:

    measured = next((row for row in report.measurements if row.sha256 == sha256), None)
    if measured is None:
        names = listed(row.name for row in report.measurements) or "none"
        raise InputRefused(
            f"{report_file} has no measurement of this {model.name}; it has {names}",
            hint="measure this file: files are identified by their content",
        )
    return measured


def _viewer(choice: Viewer | None) -> tuple[Viewer, list[str]]:
    """A viewer that is installed and how to start it. Raises `UsageError`."""
    import importlib.util

    for name in (choice,) if choice else _VIEWERS:
        if importlib.util.find_spec(_VIEWERS[name]):
            return name, [sys.executable, "-m", _VIEWERS[name]]
        if program := shutil.which(name):
            return name, [program]
    missing = f"{choice} is" if choice else "neither Model Explorer nor Netron is"
    raise UsageError(f"{missing} installed", hint=_INSTALL)


def _open(
    model: Path,
    data: bytes | None,
    viewer: Viewer,
    start: list[str],
    on_progress: Callable[[str], None],
) -> None:
    """Run the viewer until it ends. Raises `ToolFailed` where it fails."""
    path = str(model.absolute())
    if viewer == "model-explorer" and "," in path:
        raise InputRefused(f"Model Explorer takes {path} for two files", hint="remove the comma")
    if data and viewer == "netron":
        on_progress("Netron shows the graph alone, without the errors of the layers")
    with scratch_directory() as scratch:
        arguments = [path]
        if data and viewer == "model-explorer":
            file = Path(scratch, "layers.json")
            file.write_bytes(data)
            arguments += ["--node_data_paths", str(file)]
        # In another directory: Python would import a module of that name from the current one.
        code = _run([*start, *arguments], Path(scratch), on_progress)
    if code:
        raise ToolFailed(f"{viewer} ended with exit code {code}")


def _run(command: list[str], directory: Path, on_progress: Callable[[str], None]) -> int:
    """Run a program there, and return its exit code."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=environment_of("programs"),
        cwd=directory,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            on_progress(line.rstrip("\n"))
    return process.returncode
