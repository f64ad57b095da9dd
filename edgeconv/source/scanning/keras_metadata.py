"""What tf_keras writes beside a SavedModel, from which it makes layers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.source.scanning.keras_config import scan_config
from edgeconv.source.wire import MalformedWire, messages

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.source.scanning.findings import Findings

_NODES = 1


def scan_keras_metadata(
    path: Path, findings: Findings, known: frozenset[str], *, is_read: bool
) -> None:
    """Look at the layers in a keras_metadata.pb.

    Custom classes are common there, and the SavedModel holds what they compute. The layers are made
    again (`is_read`) only where the model is trained on. Raises `OSError`.
    """
    from google.protobuf.message import DecodeError

    from edgeconv.source.scanning.nodes_pb2 import SavedObject

    data = path.read_bytes()
    try:
        for start, stop in messages(data, 0, len(data), _NODES):
            node = SavedObject.FromString(data[start:stop])
            held = msgspec.json.decode(node.metadata) if node.metadata else {}
            where = f"{path.name}:{node.node_path}"
            scan_config(held, findings, known, where=where, is_read=is_read)
    except (MalformedWire, DecodeError, msgspec.DecodeError, RecursionError) as error:
        what = f"layers that cannot be read: {error}"
        findings.add("structure", path.name, what, "may be anything", is_error=is_read)
