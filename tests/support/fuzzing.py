"""Runs harnesses with atheris: python tests/support/fuzzing.py NAME… [--inputs N] [--found DIR].

Without names, all of them. Each runs in a process of its own, and prints a line of JSON: inputs
run, coverage (features that libFuzzer counts in edgeconv), the slowest input in seconds of this
process's time, peak memory. What fails is written to DIR as a file, and the exit code is 1.
"""

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import atheris
from places import TESTS

_MOST_SECONDS = 2.0
# A hang: far more wall-clock time than a busy machine adds to the seconds above.
_HANG_S = 20
_MOST_MEMORY_MIB = 1024
# No input of some kilobytes is to take a tenth of what a process may have.
_MOST_MORE_MIB = 100
_INPUTS = 20_000
_FROM_A_SEED = 0.2


class _Watched:
    """A target that counts its inputs and knows the slowest; a slow one is a failure."""

    def __init__(self, target, name: str, inputs: int) -> None:
        self._target, self._name, self._inputs = target, name, inputs
        self._count = 0
        self._slowest_s = 0.0
        self._refused = 0

    def __call__(self, data: bytes) -> None:
        from edgeconv.types.errors import EdgeconvError

        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin_s = time.process_time()
        try:
            self._target(data)
        except EdgeconvError:
            self._refused += 1
        took_s = time.process_time() - begin_s
        self._slowest_s = max(self._slowest_s, took_s)
        self._count += 1
        more_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        if more_kib > _MOST_MORE_MIB * 1024:
            raise MemoryError(f"{more_kib // 1024} MiB more for {len(data)} bytes")
        if took_s > _MOST_SECONDS:
            raise TimeoutError(f"{took_s:.1f} s for {len(data)} bytes")
        if self._count == self._inputs:
            self._report()

    def _report(self) -> None:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        line = {
            "harness": self._name,
            "inputs": self._count,
            "refused": self._refused,
            "slowest_s": round(self._slowest_s, 3),
            "peak_memory_mib": peak_mib,
        }
        print(json.dumps(line), flush=True)


def _fuzz(harness, given: argparse.Namespace, directory: Path) -> None:
    """Never returns: the engine ends the process."""
    name = harness.name
    # Some of edgeconv is imported only when it is called.
    with atheris.instrument_imports(include=["edgeconv"]):
        target = _Watched(harness.open(_made(directory / "scratch")), name, given.inputs)
        corpus = _made(directory / "corpus")
        kept = sorted((TESTS / "fuzz" / "kept" / name).glob("*"))
        contents = [*harness.seeds(), *(file.read_bytes() for file in kept)]
        for number, content in enumerate(contents):
            (corpus / f"seed-{number}").write_bytes(content)
        # As the tests: what warns, raises.
        warnings.simplefilter("error")
        arguments = [
            name,
            str(corpus),
            f"-runs={given.inputs}",
            f"-seed={given.seed}",
            f"-max_len={max(harness.longest_bytes, *map(len, contents))}",
            f"-timeout={_HANG_S}",
            "-rss_limit_mb=0",
            f"-artifact_prefix={given.found}/{name}-",
        ]
        mutator = _mutator(harness.mutate or _changed, contents)
        atheris.Setup(arguments, target, custom_mutator=mutator)
        _limit_memory()
        atheris.Fuzz()


def _limit_memory() -> None:
    """Too much is an error where it is asked for, which the engine can tell the input of."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _MOST_MEMORY_MIB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _mutator(mutate, contents: list[bytes]):
    """The mutator with the engine's interface.

    It begins with a seed now and then: where a parser is C, which no coverage is known of, the
    engine takes all inputs for equal, and keeps the shortest.
    """

    def change(piece: bytes) -> bytes:
        return bytes(atheris.Mutate(piece or b"\0", len(piece) + 16))

    def run(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        begin = rng.choice(contents) if rng.random() < _FROM_A_SEED else data
        changed = mutate(begin, rng, change)
        return changed if len(changed) <= most else data[:most]

    return run


def _changed(data: bytes, _: random.Random, change) -> bytes:
    return change(data)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _in_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Runs each harness in a child; 1 where one of them failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--inputs", type=int, default=_INPUTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=Path("found"))
    given = parser.parse_args()
    with atheris.instrument_imports(include=["edgeconv"]):
        from harnesses import HARNESSES

    failed = False
    given.found.mkdir(parents=True, exist_ok=True)
    for name in given.names or HARNESSES:
        with tempfile.TemporaryDirectory(dir=_in_memory()) as place:
            child = os.fork()
            if not child:
                _fuzz(HARNESSES[name], given, Path(place))
            _, status = os.waitpid(child, 0)
        failed |= status != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
