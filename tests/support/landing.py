"""Which of the slow tests and of the measurements a landing runs.

A landing has a number: how many commits lead to it. The slow tests are dealt out into parts that
take equally long, of which the number chooses one, so that as many landings as there are parts run
all of them. Of what is `long` it runs a sample, drawn by the number among the tests whose time is
known: one that nobody has timed may take an hour, and is left to the night. The times are in
durations.json, which `pytest --keep-durations` writes.
"""

import heapq
import json
import math
import random
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from places import TESTS

DURATIONS = TESTS / "durations.json"
# Seconds of tests, of two workers: a part takes five minutes at most, and a sample two.
PART_S, SAMPLE_S = 540.0, 240.0
# Where the number is, for tests that repeat something, and how often they then do so.
LANDING_VARIABLE = "EDGECONV_TESTS_LANDING"
IN_A_LANDING = 5
# Of a slow test that nobody has timed yet.
_UNKNOWN_S = 30.0


class Landing(NamedTuple):
    """The tests of a landing, by their ids, and what to say of them."""

    slow: frozenset[str]
    long: frozenset[str]
    # What each of the slow ones stays together with.
    units: Mapping[str, str]
    about: str


def landing_of(
    number: int,
    slow: Iterable[str],
    long: Iterable[str],
    durations_s: Mapping[str, float],
    groups: Mapping[str, str] = MappingProxyType({}),
) -> Landing:
    """What the landing of that number runs, of all the slow and the long tests.

    `groups` has the tests that stay together wherever they are, each with the name of its group.
    """
    units = units_of(slow, durations_s, groups)
    parts = parts_of(units, durations_s)
    part = parts[number % len(parts)]
    sample = sample_of(long, durations_s, number)
    untimed = set(long) - durations_s.keys()
    about = (
        f"landing {number}: part {number % len(parts) + 1} of {len(parts)} of the slow tests "
        f"({len(part)}, {_sum(part, durations_s):.0f} s); of the long ones "
        f"{len(sample)} of {len(set(long))} ({_sum(sample, durations_s):.0f} s), seed {number}; "
        f"{len(untimed)} are left out, since their time is not known"
    )
    return Landing(part, sample, {test: units[test] for test in part}, about)


def parts_of(units: Mapping[str, str], durations_s: Mapping[str, float]) -> list[frozenset[str]]:
    """Tests, each with its unit, in as few parts of `PART_S` as there may be, each about as long.

    The longest units come first, each into what is the shortest part so far.
    """
    members: dict[str, list[str]] = {}
    for test, unit in units.items():
        members.setdefault(unit, []).append(test)
    took_s = {unit: _sum(tests, durations_s) for unit, tests in members.items()}
    count = max(1, math.ceil(sum(took_s.values()) / PART_S))
    heap: list[tuple[float, int, list[str]]] = [(0.0, number, []) for number in range(count)]
    for unit in sorted(members, key=lambda name: (-took_s[name], name)):
        taken_s, number, part = heap[0]
        part.extend(members[unit])
        heapq.heapreplace(heap, (taken_s + took_s[unit], number, part))
    return [frozenset(part) for _, _, part in sorted(heap, key=lambda entry: entry[1])]


def units_of(
    tests: Iterable[str],
    durations_s: Mapping[str, float],
    groups: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """What each test shares fixtures with: its group, its file if that is short, or nothing."""
    of_file: dict[str, list[str]] = {}
    for test in sorted(set(tests)):
        of_file.setdefault(test.partition("::")[0], []).append(test)
    units = {}
    for file, members in of_file.items():
        is_short = _sum(members, durations_s) <= PART_S / 2
        units |= {test: file if is_short else groups.get(test, test) for test in members}
    return units


def sample_of(tests: Iterable[str], durations_s: Mapping[str, float], seed: int) -> frozenset[str]:
    """Tests of known time in a random order, as many as `SAMPLE_S` has room for."""
    drawn, left_s = [], SAMPLE_S
    shuffled = sorted(set(tests) & durations_s.keys())
    random.Random(seed).shuffle(shuffled)
    for test in shuffled:
        if durations_s[test] <= left_s:
            drawn.append(test)
            left_s -= durations_s[test]
    return frozenset(drawn)


def read_durations() -> dict[str, float]:
    """Seconds by the id of a test."""
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return found


def write_durations(durations_s: Mapping[str, float]) -> None:
    """Keep these times, and those that were known of other tests."""
    known = {**read_durations(), **{test: round(took, 1) for test, took in durations_s.items()}}
    DURATIONS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _sum(tests: Iterable[str], durations_s: Mapping[str, float]) -> float:
    return sum(durations_s.get(test, _UNKNOWN_S) for test in tests)
