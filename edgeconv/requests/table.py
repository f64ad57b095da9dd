"""Every verb by name: its request, what its command prints, and the function that does it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET


class Printing(Request, frozen=True, kw_only=True):
    """What a command prints of its progress and its result."""

    quiet: QUIET = False
    as_json: JSON = False


class VerbEntry(NamedTuple):
    """A verb, each of its parts as MODULE:NAME, imported when it is first used.

    `shown` has the options about what the verb's command prints. `tells`: the function takes
    `on_progress`. Without `has_table` no configuration changes it.
    """

    request: str
    function: str
    shown: str = "edgeconv.requests.table:Printing"
    tells: bool = True
    has_table: bool = True

    @property
    def kind(self) -> type[Request]:
        """The verb's request."""
        kind: type[Request] = named(self.request)
        return kind

    @property
    def printing(self) -> type[Request]:
        """The options about what its command prints."""
        kind: type[Request] = named(self.shown)
        return kind


def named(text: str) -> Any:
    """What MODULE:NAME names."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


_LOOKING = "edgeconv.requests.looking"
# In the order of the commands; those with a table have one of their name in edgeconv.toml.
VERBS = {
    "demo": VerbEntry(f"{_LOOKING}:DemoRequest", "edgeconv.gate.demo:demonstrate"),
    "train": VerbEntry("edgeconv.requests.train:TrainRequest", "edgeconv.training.baseline:train"),
    "convert": VerbEntry(
        "edgeconv.requests.convert:ConvertRequest", "edgeconv.conversion.convert:convert"
    ),
    "tune": VerbEntry("edgeconv.requests.tune:TuneRequest", "edgeconv.tuning.flow:tune"),
    "bench": VerbEntry("edgeconv.requests.bench:BenchRequest", "edgeconv.measure.bench:bench"),
    "sweep": VerbEntry("edgeconv.requests.sweep:SweepRequest", "edgeconv.sweeping.flow:sweep"),
    "report": VerbEntry(
        f"{_LOOKING}:ReportRequest",
        "edgeconv.gate.report:report",
        f"{_LOOKING}:ReportPrinting",
        tells=False,
    ),
    "compare": VerbEntry(
        f"{_LOOKING}:CompareRequest",
        "edgeconv.measure.compare:compare",
        f"{_LOOKING}:ComparePrinting",
        tells=False,
    ),
    "check": VerbEntry("edgeconv.requests.check:CheckRequest", "edgeconv.gate.check:check"),
    "embed": VerbEntry(
        "edgeconv.requests.embed:EmbedRequest", "edgeconv.embedding.embedding:embed"
    ),
    "build": VerbEntry(
        "edgeconv.requests.check:BuildRequest",
        "edgeconv.building.build:build",
        "edgeconv.requests.check:BuildPrinting",
    ),
    "doctor": VerbEntry(
        f"{_LOOKING}:DoctorRequest", "edgeconv.measure.preprocessing_search.doctor:doctor"
    ),
    "debug": VerbEntry(
        f"{_LOOKING}:DebugRequest",
        "edgeconv.measure.layers.debug:debug",
        f"{_LOOKING}:DebugPrinting",
    ),
    "inspect": VerbEntry(
        f"{_LOOKING}:InspectRequest",
        "edgeconv.source.loading:inspect",
        f"{_LOOKING}:JsonPrinting",
        tells=False,
    ),
    "scan": VerbEntry(
        f"{_LOOKING}:ScanRequest",
        "edgeconv.source.scanning:scan",
        f"{_LOOKING}:ScanPrinting",
        tells=False,
        has_table=False,
    ),
    "verify": VerbEntry(
        "edgeconv.requests.verify:VerifyRequest",
        "edgeconv.gate.evidence:verify",
        "edgeconv.requests.verify:VerifyPrinting",
        tells=False,
        has_table=False,
    ),
    "worker": VerbEntry(
        "edgeconv.requests.worker:WorkerRequest",
        "edgeconv.sweeping.worker:worker",
        "edgeconv.requests.request:Nothing",
        has_table=False,
    ),
    "visualize": VerbEntry(
        f"{_LOOKING}:VisualizeRequest",
        "edgeconv.measure.layers.visualize:visualize",
        "edgeconv.requests.request:Nothing",
    ),
}
# Those that a configuration has a table for.
TABLES = {name: entry for name, entry in VERBS.items() if entry.has_table}
