"""`edgeconv scan` of SavedModels of 100 MB, as whole processes.

    python -m benchmarks.scan [--repeats 10] [--conversions 3]

ResNet50 with its weights in `variables/`, and the same model with them in the graph itself, which
is then 98 MB to look at. In turn with `edgeconv --version`, which is what starting takes.

And the copy that is loaded in place of a model: a process that scans and copies one, in turn with
one that only scans it, as for a model that is trusted; as a share of a conversion to float32.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.convert import PEERS, run_python
from benchmarks.measuring import Contender, in_rounds, median_wall, write_result

_COPIED = (
    *("variables", "constants", "mobilenet", "mobilenet.keras", "mobilenet.h5"),
    *("digits.keras", "module"),
)
_LOAD = """
import sys, tempfile
from pathlib import Path
from edgeconv.model.source import identify
from edgeconv.model.source.scanning import loadable
model = identify(sys.argv[1])
with tempfile.TemporaryDirectory() as scratch:
    trusted = [model.sha256] if sys.argv[2] == "trusted" else []
    loadable(model, Path(scratch) / "copy", trusted=trusted)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--conversions", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.repeats, options.conversions)
    print(write_result("scan", result).read_text(encoding="utf-8"))


def measure(scratch: Path, repeats: int, conversions: int) -> dict[str, object]:
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
        "model": "ResNet50 and MobileNetV2 of tf_keras.applications, a small CNN, a tf.Module",
        "repeats": repeats,
        "size_bytes": {name: _size_bytes(scratch / name) for name in ("variables", "constants")},
        "scan_s": {
            name: round(median_wall(contenders[name]), 3) for name in ("variables", "constants")
        },
        "beyond_start_s": {
            name: round(median_wall(contenders[name]) - start, 3)
            for name in ("variables", "constants")
        },
        "copy": _copies(scratch, repeats, conversions, environment),
        "contenders": {one.name: one.record() for one in contenders.values()},
    }


def _copies(
    scratch: Path, repeats: int, conversions: int, environment: dict[str, str]
) -> dict[str, object]:
    """Seconds of the copy of each model, and its share of a conversion to float32."""
    result: dict[str, object] = {}
    own = (sys.executable, "-m", "edgeconv", "convert")
    for name in _COPIED:
        model, out = str(scratch / name), scratch / "out"
        ways = [
            Contender(way, (sys.executable, "-c", _LOAD, model, way), environment, has_memory=False)
            for way in ("copied", "trusted")
        ]
        in_rounds(ways, repeats)
        uncached = {**environment, "EDGECONV_CACHE_DIR": str(scratch / "no-cache")}
        words = (*own, model, "--to", "float32", "-o", str(out))

        def clean(out: Path = out) -> None:
            for path in (out, scratch / "no-cache"):
                shutil.rmtree(path, ignore_errors=True)

        conversion = Contender("convert", words, uncached, clean, has_memory=False)
        in_rounds([conversion], conversions)
        copy_s = median_wall(ways[0]) - median_wall(ways[1])
        convert_s = median_wall(conversion)
        result[name] = {
            "copy_s": round(copy_s, 3),
            "convert_s": round(convert_s, 1),
            "share": round(copy_s / convert_s, 4),
        }
    return result


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
