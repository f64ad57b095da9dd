"""What each of TensorFlow's operators can touch, read from operators.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

Reach = Literal["computes", "state", "saver", "asset", "outside", "never"]


class Family(NamedTuple):
    """Operators of one kind: what they can touch, and why that is so."""

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


def is_allowed_attribute(operator: str, attribute: str, value: str) -> bool:
    """Whether an attribute has a value that leads nowhere outside."""
    allowed = ATTRIBUTES.get((operator, attribute))
    if allowed is None or value in allowed:
        return True
    # What follows is the content itself.
    return _INLINE in allowed and value.startswith(_INLINE)
