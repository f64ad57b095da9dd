"""Every verb by name: its request, what its command prints, and the function that does it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET


class Printing(Request, frozen=True, kw_only=True):
    """How a command says what it does, and what came of it."""

    quiet: QUIET = False
    as_json: JSON = False


class Entry(NamedTuple):
    """A verb, each of its parts as MODULE:NAME, imported when it is first used.

    `shown` are the further options of the verb's command, which are about what is printed. `tells`:
    the function says what it is doing.
    """

    request: str
    function: str
    shown: str = "edgeconv.requests.table:Printing"
    tells: bool = True

    @property
    def kind(self) -> type[Request]:
        """What the verb is asked."""
        found: type[Request] = named(self.request)
        return found

    @property
    def printing(self) -> type[Request]:
        """The further options of its command."""
        found: type[Request] = named(self.shown)
        return found


def named(text: str) -> Any:
    """What MODULE:NAME names."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


_LOOKING = "edgeconv.requests.looking"
# In the order of the commands; each has a table of its name in edgeconv.toml.
VERBS = {
    "demo": Entry(f"{_LOOKING}:DemoRequest", "edgeconv.gate.demo:demonstrate"),
    "train": Entry("edgeconv.requests.train:TrainRequest", "edgeconv.training.baseline:train"),
    "convert": Entry(
        "edgeconv.requests.convert:ConvertRequest", "edgeconv.conversion.convert:convert"
    ),
    "tune": Entry("edgeconv.requests.tune:TuneRequest", "edgeconv.tuning.flow:tune"),
    "bench": Entry("edgeconv.requests.bench:BenchRequest", "edgeconv.measure.bench:bench"),
    "report": Entry(
        f"{_LOOKING}:ReportRequest",
        "edgeconv.gate.report:report",
        f"{_LOOKING}:ReportPrinting",
        tells=False,
    ),
    "compare": Entry(
        f"{_LOOKING}:CompareRequest",
        "edgeconv.measure.compare:compare",
        f"{_LOOKING}:ComparePrinting",
        tells=False,
    ),
    "check": Entry("edgeconv.requests.check:CheckRequest", "edgeconv.gate.check:check"),
    "embed": Entry("edgeconv.requests.embed:EmbedRequest", "edgeconv.embedding.embedding:embed"),
    "build": Entry(
        "edgeconv.requests.check:BuildRequest",
        "edgeconv.building.build:build",
        "edgeconv.requests.check:BuildPrinting",
    ),
    "doctor": Entry(
        f"{_LOOKING}:DoctorRequest", "edgeconv.measure.preprocessing_search.doctor:doctor"
    ),
    "debug": Entry(
        f"{_LOOKING}:DebugRequest",
        "edgeconv.measure.layers.debug:debug",
        f"{_LOOKING}:DebugPrinting",
    ),
    "inspect": Entry(
        f"{_LOOKING}:InspectRequest",
        "edgeconv.source.scanning.inspecting:inspect",
        f"{_LOOKING}:InspectPrinting",
        tells=False,
    ),
    "visualize": Entry(
        f"{_LOOKING}:VisualizeRequest",
        "edgeconv.cli.visualize:visualize",
        "edgeconv.requests.request:Nothing",
        tells=False,
    ),
}
