"""TensorBoard's HParams: one run a model, with what it is as hyperparameters and its numbers.

The event files are written without TensorFlow and without TensorBoard: a TFRecord file of
`Event` messages, in which the plugin finds its own data by name. The numbers of the fields are
those of event.proto, summary.proto and TensorBoard's plugins/hparams/plugin_data.proto.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from edgeconv.data.records import framed
from edgeconv.errors import OutputRefused
from edgeconv.messages import message_class
from edgeconv.reporting import units
from edgeconv.store import publish_bytes, writable_directory
from edgeconv.trackers.runs import now, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from edgeconv.trackers.runs import Run
    from edgeconv.types import Checked, Report

# See edgeconv.messages.
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Event": {
        "wall_time": (1, "double"),
        "step": (2, "int64"),
        "file_version": (3, "string"),
        "summary": (5, "Summary"),
    },
    "Summary": {"value": (1, "SummaryValue*")},
    "SummaryValue": {
        "tag": (1, "string"),
        "simple_value": (2, "float"),
        "tensor": (8, "TensorProto"),
        "metadata": (9, "SummaryMetadata"),
    },
    "SummaryMetadata": {"plugin_data": (1, "PluginData"), "data_class": (4, "int32")},
    "PluginData": {"plugin_name": (1, "string"), "content": (2, "bytes")},
    "TensorProto": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShapeProto"),
        "float_val": (5, "float*"),
    },
    "TensorShapeProto": {"dim": (2, "Dim*")},
    "Dim": {"size": (1, "int64")},
}
HPARAMS: dict[str, dict[str, tuple[int, str]]] = {
    "HParamsPluginData": {
        "version": (1, "int32"),
        "session_start_info": (3, "SessionStartInfo"),
        "session_end_info": (4, "SessionEndInfo"),
    },
    "SessionStartInfo": {
        "hparams": (1, "HParamEntry*"),
        "group_name": (4, "string"),
        "start_time_secs": (5, "double"),
    },
    "HParamEntry": {"key": (1, "string"), "value": (2, "Value")},
    "Value": {"number_value": (2, "double"), "string_value": (3, "string")},
    "SessionEndInfo": {"status": (1, "int32"), "end_time_secs": (2, "double")},
}
# See edgeconv.trackers.
WRITES_FILES_ONLY = True
_SUCCESS = 1
_TENSOR_CLASS = 2
_FLOAT = 1


def refuse(place: str) -> None:
    """Raise `OutputRefused` where nothing can be written in the directory `place`."""
    writable_directory(Path(place).absolute())


def track(checked: Checked, reports: Mapping[str, Report], place: str) -> None:
    """Write one run for every model, in a directory of its own, below the directory `place`.

    Raises `OutputRefused`.
    """
    when = now()
    for run in runs(checked, reports):
        directory = _directory(Path(place), run, when)
        writable_directory(directory.absolute())
        host = quote(socket.gethostname(), safe="")
        name = f"events.out.tfevents.{int(when.timestamp())}.{host}.{os.getpid()}.0"
        publish_bytes(b"".join(map(framed, _events(run, directory.name, when))), directory / name)


def _directory(place: Path, run: Run, when: datetime) -> Path:
    """CHECK/MODEL/TIME below `place`, counted on where it is there; names go nowhere else."""
    # A name of dots alone would be a way out, and "%" is left to what quoting makes.
    parts = (quote(units.plain(name), safe=" ") for name in (run.check, run.model))
    below = place.joinpath(*(part if part.strip(".") else f"_{part}" for part in parts))
    if link := next((each for each in (below.parent, below) if each.is_symlink()), None):
        # It may be a checkout's, and lead to anything.
        raise OutputRefused(f"cannot write in {link}: it is a symbolic link", hint="remove it")
    stamp = when.strftime("%Y%m%dT%H%M%SZ")
    number = 2
    directory = below / stamp
    while directory.exists():
        directory = below / f"{stamp}-{number}"
        number += 1
    return directory


def _events(run: Run, session: str, when: datetime) -> Iterator[bytes]:
    event = message_class(MESSAGES, "Event")
    seconds = when.timestamp()

    def made(**fields: Any) -> bytes:
        found: bytes = event(wall_time=seconds, **fields).SerializeToString()
        return found

    yield made(file_version="brain.Event:2")
    hparams = {"check": run.check, "model": run.model, **run.texts}
    start = {
        "hparams": [
            {"key": key, "value": {"string_value": units.plain(text)}}
            for key, text in hparams.items()
            if text
        ],
        "group_name": f"{units.plain(run.check)}/{units.plain(run.model)} {session}",
        "start_time_secs": seconds,
    }
    yield made(summary=_plugin("_hparams_/session_start_info", session_start_info=start))
    for name, value in run.numbers.items():
        yield made(summary={"value": [{"tag": units.plain(name), "simple_value": value}]})
    end = {"status": _SUCCESS, "end_time_secs": seconds}
    yield made(summary=_plugin("_hparams_/session_end_info", session_end_info=end))


def _plugin(tag: str, **data: Any) -> dict[str, Any]:
    """A summary for the HParams plugin, with the tensor that TensorBoard wants in each."""
    content = message_class(HPARAMS, "HParamsPluginData")(version=0, **data).SerializeToString()
    value = {
        "tag": tag,
        "metadata": {
            "plugin_data": {"plugin_name": "hparams", "content": content},
            "data_class": _TENSOR_CLASS,
        },
        "tensor": {
            "dtype": _FLOAT,
            "tensor_shape": {"dim": [{"size": 1}]},
            "float_val": [0.0],
        },
    }
    return {"value": [value]}
