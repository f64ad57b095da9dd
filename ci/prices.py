"""The price list of CONTRIBUTING.md: lines of Python for each room, and how many it may have.

    python ci/prices.py            print what is over its price; exit code 1 if anything is
    python ci/prices.py --write    write today's lines into the table; prices are raised by hand
    python ci/prices.py --set      a new list: today's lines and 2 % more

A price is raised in the commit that needs it, which says why. The total stays: another price falls.
"""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- prices -->\n", "<!-- /prices -->\n"
HEAD = "| room | lines | price | lines of tests | price |\n|---|---:|---:|---:|---:|\n"
TOTAL = "**all**"
_SLACK = 1.02
# Two verbs have a folder of tests each.
_PLUGIN_OF = {"sweeping": "scale", "tuning": "scale"}
# Room, lines of code, their price, lines of tests, their price.
Row = tuple[int, int, int, int]


def counted() -> dict[str, tuple[int, int]]:
    """The lines of code and of tests of each room, by its name; of the files that git has."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "edgeconv", "models", "tests", "benchmarks/coverage"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    code: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name.endswith(".py") and path.is_file():
            is_test, room = room_of(name)
            (tests if is_test else code)[room] += path.read_bytes().count(b"\n")
    return {room: (code[room], tests[room]) for room in sorted({*code, *tests})}


def room_of(name: str) -> tuple[bool, str]:
    """Whether a file is a test, and the room whose price it has."""
    parts = name.split("/")
    if parts[0] == "benchmarks":
        return True, "benchmarks/coverage"
    is_test = parts[0] == "tests"
    if is_test and parts[1] != "unit":
        return True, f"tests/{parts[1]}" if len(parts) > 2 else "tests"
    inside = parts[2 if is_test else 1 :]
    if parts[0] == "models" or inside[0] == "models":
        return is_test, "models"
    if len(inside) < 2:
        return is_test, "edgeconv"
    if inside[0] == "plugins" and len(inside) > 2:
        return is_test, f"plugins/{_PLUGIN_OF.get(inside[1], inside[1])}"
    return is_test, inside[0]


def prices(text: str) -> dict[str, Row]:
    """The rows of a page by room, the total among them."""
    rows = {}
    for line in text.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]:
        room, *numbers = (cell.strip().replace(",", "") for cell in line.strip("|").split("|"))
        code, price, tests, price_of_tests = map(int, numbers)
        rows[room] = (code, price, tests, price_of_tests)
    return rows


def over(now: dict[str, tuple[int, int]], rows: dict[str, Row]) -> list[str]:
    """What is over its price, or has none, a line each."""
    found = [f"{room} has no price" for room in now if room not in rows]
    found += [
        f"{room} is in the list, and has no file" for room in rows if room not in (*now, TOTAL)
    ]
    for room, (code, tests) in now.items():
        _, price, _, price_of_tests = rows.get(room, (0, code, 0, tests))
        if code > price:
            found.append(f"{room}: {code:,} lines of code, its price is {price:,}")
        if tests > price_of_tests:
            found.append(f"{room}: {tests:,} lines of tests, their price is {price_of_tests:,}")
    sums = [sum(row[at] for room, row in rows.items() if room != TOTAL) for at in (1, 3)]
    for sum_, most in zip(sums, (rows[TOTAL][1], rows[TOTAL][3]), strict=True):
        if sum_ > most:
            found.append(f"the prices are {sum_:,} lines together, {most:,} are allowed")
    return found


def written(now: dict[str, tuple[int, int]], rows: dict[str, Row]) -> str:
    """The table, with the total last."""
    every = {
        room: (code, rows[room][1], tests, rows[room][3]) for room, (code, tests) in now.items()
    }
    code, tests = (sum(pair[at] for pair in now.values()) for at in (0, 1))
    every[TOTAL] = (code, rows[TOTAL][1], tests, rows[TOTAL][3])
    lines = (f"| {room} | {' | '.join(f'{n:,}' for n in row)} |\n" for room, row in every.items())
    return HEAD + "".join(lines)


def new(now: dict[str, tuple[int, int]]) -> dict[str, Row]:
    """Prices of today's lines and 2 % more."""
    rows: dict[str, Row] = {}
    for room, (code, tests) in now.items():
        rows[room] = (code, math.ceil(code * _SLACK), tests, math.ceil(tests * _SLACK))
    columns = list(zip(*rows.values(), strict=True))
    code, price, tests, price_of_tests = map(sum, columns)
    return {**rows, TOTAL: (code, price, tests, price_of_tests)}


def main(arguments: list[str]) -> int:
    """Read or write the table; the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    now = counted()
    rows = new(now) if arguments == ["--set"] else prices(text)
    if arguments in (["--set"], ["--write"]):
        head, _, rest = text.partition(BEGIN)
        table = written(now, rows)
        PAGE.write_text(f"{head}{BEGIN}{table}{END}{rest.partition(END)[2]}", encoding="utf-8")
    found = over(now, rows)
    print("\n".join(found) or "every room is within its price")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
