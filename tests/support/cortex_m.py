"""Runs a program of Cortex-M4 in an emulator, for tests; in a Python that has the package unicorn.

cortex_m.py PROGRAM STREAM: the entry of PROGRAM, an ELF file below 1 MiB, gets the address and size
of each file of STREAM, in turn, and writes what it has to say, ended by 0, where r2 points to. Each
file ends where memory does, so that a look beyond its end is an error.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from unicorn import UC_ARCH_ARM, UC_MODE_MCLASS, UC_MODE_THUMB, Uc
from unicorn.arm_const import (
    UC_ARM_REG_LR,
    UC_ARM_REG_R0,
    UC_ARM_REG_R1,
    UC_ARM_REG_R2,
    UC_ARM_REG_SP,
    UC_CPU_ARM_CORTEX_M4,
)

FLASH, RAM, FILES_END, STOP = 0, 0x20000000, 0x30010000, 0xF0000
PAGE, FLASH_SIZE = 0x10000, 0x100000
MOST_INSTRUCTIONS = 20_000_000


def loaded(machine: Uc, program: bytes) -> int:
    """Put the segments of an ELF file where they belong, and give its entry."""
    entry, headers = struct.unpack_from("<II", program, 24)
    size, count = struct.unpack_from("<HH", program, 42)
    for place in range(headers, headers + size * count, size):
        kind, start, address, _, length = struct.unpack_from("<5I", program, place)
        if kind == 1:
            machine.mem_write(address, program[start : start + length])
    return int(entry)


def answers(program: bytes, stream: bytes) -> list[str]:
    """What the program says of each file."""
    machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
    machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M4)
    machine.mem_map(FLASH, FLASH_SIZE)
    for start in (RAM, FILES_END - PAGE):
        machine.mem_map(start, PAGE)
    entry = loaded(machine, program)
    found, place = [], 0
    while place < len(stream):
        (size,) = struct.unpack_from("<I", stream, place)
        machine.mem_write(FILES_END - size, stream[place + 4 : place + 4 + size])
        place += 4 + size
        registers = {
            UC_ARM_REG_R0: FILES_END - size,
            UC_ARM_REG_R1: size,
            UC_ARM_REG_R2: RAM,
            UC_ARM_REG_SP: RAM + PAGE,
            UC_ARM_REG_LR: STOP | 1,
        }
        for register, value in registers.items():
            machine.reg_write(register, value)
        machine.emu_start(entry | 1, STOP, count=MOST_INSTRUCTIONS)
        said = bytes(machine.mem_read(RAM, PAGE // 2))
        found.append(said[: said.index(0)].decode("utf-8", "replace"))
    return found


if __name__ == "__main__":
    print(json.dumps(answers(*(Path(name).read_bytes() for name in sys.argv[1:]))))
