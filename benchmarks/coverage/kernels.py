"""Every architecture by every recipe in other kernels: the GPU delegate, and tflite-micro.

    python -m benchmarks.coverage.kernels --results DIR [--only NAME,NAME] [--largest BYTES]
    python -m benchmarks.coverage.kernels --results DIR --render > kernels.md

A row is a file in DIR, and one that is there is kept. It has what `edgeconv bench` says of the
files that `edgeconv convert` makes, and what `convert --target-runtime gpu` publishes. The batch is
fixed to 1, as in an app, where the model allows it.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.coverage.architectures import ARCHITECTURES
from benchmarks.coverage.converting import Built, build, convert_all, edgeconv_json
from benchmarks.coverage.kernel_rows import (
    GPU,
    KERNELS,
    KernelRow,
    kernel_cell,
    read_rows,
    write_row,
)
from benchmarks.coverage.page import kernels_page
from edgeconv.system.store import tool_versions
from edgeconv.types import Conversion, Report

# Times are not in the table.
_QUICK = shlex.split("--rounds 1 --warmup 1 --repeats 1 --seconds 0.001 --warmup-seconds 0")


def main(arguments: Sequence[str]) -> int:
    """0 where edgeconv crashed on no row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("kernel_results"))
    parser.add_argument("--only", metavar="NAME,NAME", help="these architectures alone")
    parser.add_argument("--largest", type=int, help="float32 files of more bytes are left out")
    parser.add_argument("--render", action="store_true", help="print the page")
    options = parser.parse_args(arguments)
    ought = [name for name, each in ARCHITECTURES.items() if not each.refusal]
    if options.render:
        print(kernels_page(read_rows(options.results, ought), ought), end="")
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernels-cache-") as cache:
        for name in options.only.split(",") if options.only else ought:
            if not read_rows(options.results, [name]):
                row = make_row(name, options.largest, Path(cache))
                if row is not None:
                    write_row(options.results, row)
                    print(row.in_short(), flush=True)
    return 1 if any(row.is_crash for row in read_rows(options.results, ought)) else 0


def make_row(name: str, largest_bytes: int | None, cache: Path) -> KernelRow | None:
    """Build, convert, and run in every kernel; None where the float32 file is too large.

    `cache` is for all rows, which share its environments.
    """
    architecture = ARCHITECTURES[name]
    row = KernelRow(architecture=name, source=architecture.source, tools=dict(tool_versions()))
    if why := architecture.missing():
        return msgspec.structs.replace(row, failed=why)
    with tempfile.TemporaryDirectory(prefix="kernels-") as directory:
        Path(directory, "cache").symlink_to(cache)
        started_s = time.monotonic()
        try:
            built = build(name, architecture, Path(directory))
        except subprocess.CalledProcessError as error:
            return msgspec.structs.replace(row, failed=error.stderr.strip()[-300:])
        built, files = _converted(built)
        floating = files.get("float32")
        if floating is None:
            return msgspec.structs.replace(row, failed="no float32 file was made")
        if largest_bytes is not None and floating.stat().st_size > largest_bytes:
            return None
        row = _published(_measured(row, built, floating.parent), built)
        return msgspec.structs.replace(row, seconds=round(time.monotonic() - started_s, 1))


def _converted(built: Built) -> tuple[Built, dict[str, Path]]:
    """The files by recipe, with a batch of 1 where the model takes it; and how they were built."""
    options = (*built.architecture.options, "--batch", "1")
    fixed = built._replace(architecture=built.architecture._replace(options=options))
    _, files = convert_all(fixed)
    if "float32" in files:
        return fixed, files
    return built, convert_all(built)[1]


def _measured(row: KernelRow, built: Built, files: Path) -> KernelRow:
    """The row with every file of the directory `files` in every kernel."""
    key, samples = next(iter(built.samples.items()))
    signature = ["--signature", key] if key else []
    runtimes = [word for each in KERNELS for word in ("--runtime", each)]
    report, error, is_crash = edgeconv_json(
        [
            *("bench", str(files), *runtimes, *signature, "--data", str(samples), *_QUICK),
            *_opening(built.architecture.options),
        ],
        built,
        Report,
    )
    if report is None:
        return msgspec.structs.replace(row, failed=error, is_crash=is_crash)
    here = {m.recipe: m for m in report.measurements if m.measured_in == "litert"}
    cells = [
        kernel_cell(each, here.get(each.recipe))
        for each in report.measurements
        if each.measured_in in KERNELS and each.recipe is not None
    ]
    count = report.data.samples if report.data else 0
    return msgspec.structs.replace(row, cells=tuple(cells), samples=count)


def _opening(options: Sequence[str]) -> tuple[str, ...]:
    """Those of `convert`'s options without which the trained model cannot be opened."""
    return tuple(
        word
        for option, value in zip(options[::2], options[1::2], strict=True)
        if option in ("--custom-objects", "--tag")
        for word in (option, value)
    )


def _published(row: KernelRow, built: Built) -> KernelRow:
    """The row with the recipes that are published for the GPU delegate."""
    samples = [
        word
        for key, file in built.samples.items()
        for word in ("--calibration", f"{key}={file}" if key else str(file))
    ]
    out = built.directory / "for-gpu"
    conversion, error, is_crash = edgeconv_json(
        [
            *("convert", str(built.model), "-o", str(out), "--to", "all"),
            *("--target-runtime", GPU, *samples, *built.architecture.options),
        ],
        built,
        Conversion,
    )
    if conversion is None:
        is_crash = is_crash or row.is_crash
        return msgspec.structs.replace(row, failed=row.failed or error, is_crash=is_crash)
    published = tuple(artifact.recipe.name for artifact in conversion.artifacts)
    row = msgspec.structs.replace(row, published=published)
    if row.doubtful:
        again = _measured(msgspec.structs.replace(row, cells=()), built, out)
        wrong = tuple(recipe for recipe in row.doubtful if again.is_bad(recipe))
        row = msgspec.structs.replace(row, wrongly_published=wrong)
    return row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
