"""README.md of this folder: the corpus by family, and what was seen of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpus import Case

_TITLES = {
    "operator": "SavedModel, an operator that its signature runs",
    "place": "SavedModel, an operator elsewhere: functions, loops over data, initializers, savers",
    "keras-2 Lambda": ".keras of Keras 2, a Lambda layer of a function of any module",
    "TFOpLambda h5": ".h5, a function of TensorFlow called with constants",
    "TFOpLambda keras": ".keras of Keras 2, a function of TensorFlow called with constants",
    "keras-2 layer h5": ".h5, operators, class methods, bytecode",
    "keras-2 layer keras": ".keras of Keras 2, operators, class methods, bytecode",
    "keras-3": ".keras of Keras 3, what it names",
    "vocabulary h5": ".h5, a vocabulary that is a path",
    "vocabulary keras-2": ".keras of Keras 2, a vocabulary that is a path",
    "vocabulary keras-3": ".keras of Keras 3, a vocabulary that is a path",
    "HDF5 h5": ".h5, weights in other files",
    "HDF5 keras-2": ".keras of Keras 2, weights in other files",
    "HDF5 keras-3": ".keras of Keras 3, weights in other files",
    "files": "SavedModel, assets and links that lead out",
    "archive": ".keras, entries that lead out",
    "tflite": ".tflite, operators of TensorFlow",
    "bomb": "Small files that stand for huge ones",
}
_HEAD = """# Hostile models

`corpus.py` writes them, none is stored. Each reads a file of its own in the home of whoever runs
edgeconv, writes beside the project, connects, or starts a program. The scan refuses all of them
(`test_corpus.py`). `test_watched.py` then takes the scan away, in a process of its own, and watches
with strace what `edgeconv convert` and `edgeconv doctor` do with all, and every other command that
takes a model with some: with the sandbox switched off, and with the sandbox alone.

This page is written by that test (`EDGECONV_WRITE_GOLDEN=1 pytest -m slow tests/hostile`).

| family | models | refused by the scan | reach out without walls | get out of the sandbox alone |
|---|---|---|---|---|
"""
_IDLE = """
What TensorFlow and Keras do not do by themselves is in the corpus all the same, since another
version may:

| model | why nothing comes of it |
|---|---|
"""


class Row(NamedTuple):
    """How many models of a family did what they try: without walls, and in the sandbox."""

    cases: int
    refused: int
    works: int
    escapes: int


def table(
    cases: Sequence[Case],
    refused: frozenset[str],
    works: frozenset[str],
    escapes: frozenset[str],
) -> str:
    """The page; the sets have the `id`s of cases."""
    rows: dict[str, Row] = {}
    for case in cases:
        row = rows.get(case.family, Row(0, 0, 0, 0))
        seen = (case.id in refused, case.id in works, case.id in escapes)
        rows[case.family] = Row(row.cases + 1, *(a + b for a, b in zip(row[1:], seen, strict=True)))
    rows["all"] = Row(*map(sum, zip(*rows.values(), strict=True)))
    lines = [
        f"| {_TITLES.get(name, name)} | {' | '.join(map(str, row))} |" for name, row in rows.items()
    ]
    return _HEAD + "\n".join(lines) + "\n" + _IDLE + "\n".join(_idle(cases)) + "\n"


def _idle(cases: Sequence[Case]) -> list[str]:
    names: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        if case.idle and case.family != "bomb":
            names.setdefault((case.family, case.idle), []).append(case.name)
    return [f"| {family}: {', '.join(listed)} | {why} |" for (family, why), listed in names.items()]


def counted(page: str) -> Mapping[str, int]:
    """How many models a page says there are, by family."""
    titles = {title: name for name, title in _TITLES.items()}
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {titles[row[0]]: int(row[1]) for row in cells if row[0] in titles}
