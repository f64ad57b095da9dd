"""`edgeconv scan` of SavedModels of 100 MB, as whole processes.

    python -m benchmarks.scan [--repeats 10]

ResNet50 with its weights in `variables/`, and the same model with them in the graph itself, which
is then 98 MB to look at. In turn with `edgeconv --version`, which is what starting takes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.convert import PEERS, run_python
from benchmarks.measuring import Contender, in_rounds, median_wall, write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.repeats)
    print(write_result("scan", result).read_text(encoding="utf-8"))


def measure(scratch: Path, repeats: int) -> dict[str, object]:
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(scratch / "cache")}
    run_python(PEERS / "make_large.py", scratch, environment=environment)
    own = (sys.executable, "-m", "edgeconv")
    contenders = {"start": Contender("start", (*own, "--version"), environment)}
    for name in ("variables", "constants"):
        command = (*own, "scan", str(scratch / name))
        contenders[name] = Contender(name, command, environment)
    in_rounds(list(contenders.values()), repeats)
    start = median_wall(contenders["start"])
    return {
        "model": "ResNet50, tf_keras.applications, random weights",
        "repeats": repeats,
        "size_bytes": {name: _size_bytes(scratch / name) for name in ("variables", "constants")},
        "scan_s": {
            name: round(median_wall(contenders[name]), 3) for name in ("variables", "constants")
        },
        "beyond_start_s": {
            name: round(median_wall(contenders[name]) - start, 3)
            for name in ("variables", "constants")
        },
        "contenders": {one.name: one.record() for one in contenders.values()},
    }


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
