"""How many small faults in a room of the package its fast tests notice.

    .venv-dev/bin/python ci/faults.py store statistics [--count 200] [--seed 0] [--jobs 2]

One fault at a time is put into a copy of the checkout: a comparison is turned around, a constant is
changed, or a statement is dropped. Then `tests/unit/ROOM` runs until the first failure, or for
three times as long as it takes without a fault. A line of JSON for each room says how many were
noticed; a line for each that was not says where it is, on standard error.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise)


class Fault(NamedTuple):
    """The bytes `start` to `end` of a file become `text`."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file with the fault in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def faults_in(path: Path) -> list[Fault]:
    """Each fault that a file can have; nothing in annotations and docstrings."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in runs_in(ast.parse(source)):
        text = changed(node)
        if text is not None:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            found.append(Fault(path.relative_to(ROOT), node.lineno, start, end, text))
    return found


def runs_in(tree: ast.Module) -> list[ast.stmt | ast.expr]:
    """Statements and expressions inside functions, without what only a type checker reads."""
    found: list[ast.stmt | ast.expr] = []

    def visit(node: ast.AST, *, inside: bool) -> None:
        if inside and isinstance(node, (ast.stmt, ast.expr)):
            found.append(node)
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    visit(child, inside=inside or is_function)

    visit(tree, inside=False)
    return found


def changed(node: ast.stmt | ast.expr) -> str | None:
    """The text of a node with a fault, None if it can have none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
        return f"({ast.unparse(turned)})"
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return "pass" if isinstance(node, DROPPED) and not is_docstring else None


def noticed(copy: Path, room: str, limit_s: float | None = None) -> bool:
    """Whether the fast tests of a room fail in a copy of the checkout, or take too long."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "fast", "-p", "no:cacheprovider"]
    variables = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [*command, f"tests/unit/{room}"],
            cwd=copy,
            env=variables,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


def copied(to: Path) -> Path:
    """What git has of the checkout, with what was changed since."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def measured(room: str, count: int, seed: int, copies: list[Path]) -> dict[str, object]:
    """How many of `count` random faults in a room are noticed."""
    began = time.monotonic()
    if noticed(copies[0], room):
        raise SystemExit(f"{room}: its tests fail without a fault")
    limit_s = 3 * (time.monotonic() - began) + 10
    paths = sorted((ROOT / "edgeconv" / room).rglob("*.py"))
    possible = [fault for path in paths for fault in faults_in(path)]
    drawn = random.Random(f"{seed} {room}").sample(possible, min(count, len(possible)))
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def is_noticed(fault: Fault) -> bool:
        copy = free.get()
        file = copy / fault.path
        source = file.read_bytes()
        try:
            file.write_bytes(fault.applied(source))
            return noticed(copy, room, limit_s)
        finally:
            file.write_bytes(source)
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        results = list(pool.map(is_noticed, drawn))
    for fault, was in zip(drawn, results, strict=True):
        if not was:
            print(f"{fault.path}:{fault.line}: {fault.text}", file=sys.stderr)
    share = round(sum(results) / len(results), 3)
    return {"room": room, "faults": len(results), "noticed": sum(results), "share": share}


def main() -> None:
    """Measure the rooms that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="+", metavar="ROOM")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copies = [copied(Path(scratch, str(number))) for number in range(given.jobs)]
        for room in given.rooms:
            print(json.dumps(measured(room, given.count, given.seed, copies)), flush=True)


if __name__ == "__main__":
    main()
