"""Continue as a script in an Arm Python under QEMU: one file, the standard library only.

    python emulated.py QEMU ROOT SCRIPT ARGUMENT...

ROOT is a directory that edgeconv/runtimes/emulation.py made, with QEMU's view of the system: the
Python, its libraries, and an Arm /proc/cpuinfo, without which kernels are chosen for this
processor.
"""

import os
import sys
from pathlib import Path

# As in ROOT/proc/cpuinfo. QEMU's own has matrix instructions that few devices have, and whose
# kernels give other integers than on x86.
_PROCESSOR = "neoverse-n1"


def emulated_command(qemu: str, root: Path, arguments: list[str]) -> list[str]:
    """The command of a script and its arguments in the Python of `root`."""
    # Debian has those of numpy where its linker's cache names them.
    libraries = [
        path.parent
        for library in ("blas", "lapack")
        for path in sorted((root / "usr" / "lib").glob(f"*/{library}/lib{library}.so.3"))
    ]
    packages = (root / "packages", root / "usr" / "lib" / "python3" / "dist-packages")
    variables = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": ":".join(map(str, packages)),
        # The directory is sealed.
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
    }
    settings = [text for name, value in variables.items() for text in ("-E", f"{name}={value}")]
    python = str(root / "usr" / "bin" / "python3.11")
    processor = ["-cpu", _PROCESSOR] if "aarch64" in Path(qemu).name else []
    return [qemu, *processor, "-L", str(root), *settings, python, *arguments]


if __name__ == "__main__":
    command = emulated_command(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    os.execv(command[0], command)
