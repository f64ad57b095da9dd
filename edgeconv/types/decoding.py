"""Types that several threads may decode at once."""

import threading
from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")

_lock = threading.Lock()
_ready: set[object] = set()


def ready(kind: type[Kind]) -> type[Kind]:
    """The type itself, once msgspec knows its fields.

    msgspec 0.22 looks at the fields of a struct when it first decodes one, and crashes the process
    if another thread decodes such a struct in the meantime.
    """
    if kind not in _ready:
        with _lock:
            msgspec.json.Decoder(kind)
        _ready.add(kind)
    return kind
