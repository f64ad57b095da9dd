"""What each of TensorFlow's operators can access, read from operators.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

from edgeconv.source.wire import MalformedWire, fields

Reach = Literal["computes", "state", "saver", "asset", "outside", "never"]


class Family(NamedTuple):
    """Operators of one kind: what they can access, and why."""

    reach: Reach
    name: str
    reason: str


@cache
def families() -> dict[str, Family]:
    """The family of every operator that TensorFlow registers, by the operator's name."""
    known: dict[str, Family] = {}
    family = None
    text = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            reach, _, rest = line[1:].partition("] ")
            name, _, reason = rest.partition(": ")
            family = Family(cast("Reach", reach), name, reason)
        elif family is not None and not line.startswith("#"):
            known.update(dict.fromkeys(line.split(), family))
    return known


# Attributes of allowed operators that TensorFlow would follow: the values they may start with.
ATTRIBUTES: dict[tuple[str, str], tuple[str, ...]] = {
    # Else a file is written.
    ("PrintV2", "output_stream"): ("stdout", "stderr", "log(info)", "log(warning)", "log(error)"),
    # Else a file of descriptors is read.
    ("DecodeProtoV2", "descriptor_source"): ("", "local://", "bytes://"),
    ("EncodeProto", "descriptor_source"): ("", "local://", "bytes://"),
    # Else a file of words is read.
    ("FixedUnigramCandidateSampler", "vocab_file"): ("",),
}
_INLINE = "bytes://"
# Operators with the settings of a session (a ConfigProto) for the function that they call.
SETTINGS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
SETTINGS_ATTRIBUTE = "config_proto"
# Its fields, by number, that stay in this process: devices, threads, graph optimization. Those of
# other machines (device_filters, rpc_options, cluster_def) and names of thread pools are not among
# them. Experimental ones are only switches and numbers of the optimizer: others name executors,
# services of a cluster, ports, and a directory to write to (tf2xla_dump_dir).
_PLAIN_SETTINGS = frozenset({1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 15, 17, 18})
_EXPERIMENTAL = 16
_PLAIN_EXPERIMENTAL = frozenset({*range(4, 11), *range(12, 19), 21, 22, 24, 26, 31, 33, 34, 36})


def is_allowed_attribute(operator: str, attribute: str, value: str) -> bool:
    """Whether an attribute has a value that accesses nothing outside."""
    allowed = ATTRIBUTES.get((operator, attribute))
    if allowed is None or value in allowed:
        return True
    # The content follows.
    return _INLINE in allowed and value.startswith(_INLINE)


def strange_settings(packed: bytes) -> str:
    """The setting of a call that leads out of this process, or ""."""
    try:
        for field in fields(packed, 0, len(packed)):
            if field.number == _EXPERIMENTAL and field.is_message:
                inside = fields(packed, field.content, field.stop)
                numbers = {f.number for f in inside} - _PLAIN_EXPERIMENTAL
                if numbers:
                    return f"experimental setting {min(numbers)}"
            elif field.number not in _PLAIN_SETTINGS:
                return f"setting {field.number}"
    except MalformedWire as error:
        return str(error)
    return ""
