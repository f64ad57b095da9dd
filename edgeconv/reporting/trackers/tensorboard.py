"""TensorBoard's HParams: one run a model, its texts as hyperparameters, and its numbers.

The event files are written without TensorFlow and TensorBoard: a TFRecord file of `Event` messages,
in which the plugin finds its data by name.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from edgeconv.data.records import framed
from edgeconv.reporting import units
from edgeconv.reporting.trackers import TrackedRun, now, runs
from edgeconv.system.store import publish_bytes, writable_directory
from edgeconv.types.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from edgeconv.reporting.trackers.tensorboard_pb2 import HParamsPluginData, Summary
    from edgeconv.types import Checked, Report

# See edgeconv.reporting.trackers.
WRITES_FILES_ONLY = True
# Of TensorBoard's Status and DataClass, and of TensorFlow's DataType.
_SUCCESS, _TENSOR_CLASS, _FLOAT = 1, 2, 1


def refuse(location: str) -> None:
    """Raise `OutputRefused` if the directory `location` is not writable."""
    writable_directory(Path(location).absolute())


def track(checked: Checked, reports: Mapping[str, Report], location: str) -> None:
    """Write a directory for each model below `location`. Raises `OutputRefused`."""
    when = now()
    for run in runs(checked, reports):
        directory = _directory(Path(location), run, when)
        writable_directory(directory.absolute())
        host = quote(socket.gethostname(), safe="")
        name = f"events.out.tfevents.{int(when.timestamp())}.{host}.{os.getpid()}.0"
        publish_bytes(b"".join(map(framed, _events(run, directory.name, when))), directory / name)


def _directory(top: Path, run: TrackedRun, when: datetime) -> Path:
    """CHECK/MODEL/TIME below `top`, with a number where it exists; no name leads out of it."""
    # A name of dots would lead out.
    parts = (quote(units.plain(name), safe=" ") for name in (run.check, run.model))
    below = top.joinpath(*(part if part.strip(".") else f"_{part}" for part in parts))
    if link := next((each for each in (below.parent, below) if each.is_symlink()), None):
        # A checkout may contain one that leads anywhere.
        raise OutputRefused(f"cannot write in {link}: it is a symbolic link", hint="remove it")
    stamp = when.strftime("%Y%m%dT%H%M%SZ")
    number = 2
    directory = below / stamp
    while directory.exists():
        directory = below / f"{stamp}-{number}"
        number += 1
    return directory


def _events(run: TrackedRun, session: str, when: datetime) -> Iterator[bytes]:
    from google.protobuf.struct_pb2 import Value

    from edgeconv.reporting.trackers.tensorboard_pb2 import (
        Event,
        HParamsPluginData,
        SessionEndInfo,
        SessionStartInfo,
        Summary,
    )

    seconds = when.timestamp()
    texts = {"check": run.check, "model": run.model, **run.texts}
    start = SessionStartInfo(
        hparams={key: Value(string_value=units.plain(text)) for key, text in texts.items() if text},
        group_name=f"{units.plain(run.check)}/{units.plain(run.model)} {session}",
        start_time_secs=seconds,
    )
    end = SessionEndInfo(status=_SUCCESS, end_time_secs=seconds)
    values = [
        _of_plugin("_hparams_/session_start_info", HParamsPluginData(session_start_info=start)),
        *(
            Summary.Value(tag=units.plain(name), simple_value=value)
            for name, value in run.numbers.items()
        ),
        _of_plugin("_hparams_/session_end_info", HParamsPluginData(session_end_info=end)),
    ]
    yield Event(wall_time=seconds, file_version="brain.Event:2").SerializeToString()
    for value in values:
        yield Event(wall_time=seconds, summary=Summary(value=[value])).SerializeToString()


def _of_plugin(tag: str, data: HParamsPluginData) -> Summary.Value:
    """Data of the HParams plugin, with the tensor that TensorBoard needs in each summary."""
    from edgeconv.reporting.trackers.tensorboard_pb2 import (
        Summary,
        SummaryMetadata,
        TensorProto,
        TensorShapeProto,
    )

    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    return Summary.Value(
        tag=tag,
        metadata=SummaryMetadata(plugin_data=plugin, data_class=_TENSOR_CLASS),
        tensor=TensorProto(dtype=_FLOAT, tensor_shape=shape, float_val=[0.0]),
    )
