"""How much memory the data may take, known before it is taken."""

from __future__ import annotations

import os

from edgeconv.types.errors import InputRefused

# The most that is ever decoded at once, on any machine.
LARGEST_BYTES = 16 << 30
# Zeros are packed 1000 to 1; real samples stay far below this.
_MOST_RATIO = 100
_RATIO_MATTERS_BYTES = 1 << 30

_limit_bytes = 0


def limit_to(memory_bytes: int) -> None:
    """Tell what this process may use, 0 for no limit; see `workers.Allowance`."""
    global _limit_bytes
    _limit_bytes = memory_bytes


def room_bytes() -> int:
    """How much decoded samples may take: as much as the process may use, or the machine has."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(_limit_bytes or machine, LARGEST_BYTES)


def refuse_larger(what: str, needed_bytes: int, hint: str) -> None:
    """Raise `InputRefused` where decoding `what` needs more than there is room for.

    `hint` is how to need less.
    """
    room = room_bytes()
    if needed_bytes <= room:
        return
    raise InputRefused(
        f"{what} would take {needed_bytes:,} bytes of memory, and {room:,} is the most",
        hint=f"{hint}, or raise --memory-limit-mib" if room == _limit_bytes else hint,
    )


def refuse_bomb(what: str, packed_bytes: int, unpacked_bytes: int) -> None:
    """Raise `InputRefused` for data that is packed more densely than samples are.

    From a GiB on: less does no harm.
    """
    if unpacked_bytes > max(_RATIO_MATTERS_BYTES, _MOST_RATIO * packed_bytes):
        raise InputRefused(
            f"{what} has {packed_bytes:,} bytes and would unpack to {unpacked_bytes:,}, more than "
            f"{_MOST_RATIO} times as much",
            hint="no real samples are packed so densely; store them uncompressed if these are",
        )
