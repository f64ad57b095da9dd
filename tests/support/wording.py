"""What edgeconv says, held against one file for all tests: tests/golden/wording.txt.

    with fails(InputRefused):
        load(path)
    says(report.warnings)

The whole text of each error (its type, message, hint and location) and of all else that a test
gives to `says` is kept under the id of the test. EDGECONV_WRITE_GOLDEN=1 writes what the tests of
the run said, and leaves the others; read the difference before you keep it.
"""

import difflib
import fcntl
import functools
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from places import GOLDEN, ROOT

from edgeconv.types.errors import EdgeconvError

WORDING = GOLDEN / "wording.txt"
# The ids of the tests that were collected, of each file that was collected whole.
COLLECTED = pytest.StashKey[dict[str, set[str]]]()
_IS_WRITTEN = bool(os.environ.get("EDGECONV_WRITE_GOLDEN"))
# What is of the run, and what Python and its packages say in other words in each version.
_FOREIGN = (
    (r"(?<=is not a numpy array: ).*", "REASON"),
    (r"maximum recursion depth exceeded( (while|in) [\w ]+)?|TOML inline arrays.*", "TOO DEEP"),
    (r"Exceeds the limit \(4300.*", "TOO LONG"),
    (r"0x[0-9a-f]{8,}", "ADDRESS"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "TIME"),
    (r"(127\.0\.0\.1:|localhost:|\bport )\d{5}", r"\1PORT"),
    (r"\(process \d+\)", "(process N)"),
    # Of temporary files and logs.
    (r"(internal-\w+-|edgeconv-new-|add_one-)[a-z0-9_]{8}\b", r"\1X"),
    (r"(?<=-)\d+(?=\.log)", "X"),
    # A path that is cut, where depends on how long it is.
    (r"'(/|TMP)[^' ]*…", "'TMP…"),
)
# Of the test that runs, and of all tests of this process that passed.
_said: list[str] | None = None
_by_test: dict[str, str] = {}


@contextmanager
def fails(kind: type[BaseException]) -> Iterator[Any]:
    """Something raises an error of this type, which says what it said before."""
    with pytest.raises(kind) as caught:
        yield caught
    says(caught.value)


def says(*texts: object) -> None:
    """The texts are what they were before: strings, errors, or several of them."""
    if _said is None:
        raise RuntimeError("only the function of a test says something, and no fixture")
    for text in texts:
        if isinstance(text, Iterable) and not isinstance(text, str):
            says(*text)
        elif isinstance(text, BaseException):
            location = isinstance(text, EdgeconvError) and text.location
            at = f"\n  at: {location}" if location else ""
            _said.append(f"{type(text).__name__}: {text}{at}")
        else:
            _said.append(str(text))


def rendered(said: Iterable[str]) -> str:
    """The paragraph of a test. What is said several times in a row is there once."""
    page = ""
    for text, times in groupby(said):
        count = len([*times])
        first, *others = (text.rstrip("\n") or "(nothing)").split("\n")
        page += f"    {f'{count} × ' if count > 1 else ''}{first}\n"
        page += "".join(f"      {line}\n" if line else "\n" for line in others)
    return page


def independent(text: str, tmp_path: Path | None, base: Path) -> str:
    """A text without what the machine, the place and the run put into it."""
    own = [(str(tmp_path), "TMP"), (tmp_path.name, "TMP")] if tmp_path else []
    for place, name in (*own, *_known()):
        text = text.replace(place, name)
    roots = rf"{re.escape(str(base))}(?:/popen-gw\d+)?(?:/caches)?|{tempfile.gettempdir()}|/tmp"
    for found, name in (*_FOREIGN, (rf"(?:{roots})/[\w.-]+", "TMP")):
        text = re.sub(found, name, text, flags=re.MULTILINE)
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


@functools.cache
def _known() -> list[tuple[str, str]]:
    """What differs from machine to machine, the longest first."""
    packages = ("edgeconv", "ai_edge_litert")
    known = {
        str(ROOT): "ROOT",
        f"{Path.home()}/": "HOME/",
        f"py{sys.version_info.major}{sys.version_info.minor}": "pyVERSION",
        **{f"{each} {metadata.version(each)}": f"{each} VERSION" for each in packages},
    }
    return sorted(known.items(), key=lambda each: -len(each[0]))


def _name_of(item: pytest.Item) -> str:
    # xdist puts the group behind.
    name = re.sub(r"@(tests/.*|[a-z ]+)$", "", item.nodeid)
    test, _, parameters = name.partition("[")
    if len(parameters) < 90:
        return name
    return f"{test}[{parameters[:60]}… {hashlib.sha256(parameters.encode()).hexdigest()[:8]}]"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Compare what a test said, once it has passed."""
    global _said
    outer, said = _said, []
    _said = said
    try:
        result = yield
    finally:
        _said = outer
    base = pyfuncitem.config._tmp_path_factory.getbasetemp()
    base = base.parent if base.name.startswith("popen-") else base
    tmp_path = pyfuncitem.funcargs.get("tmp_path")
    now = rendered(independent(text, tmp_path, base) for text in said)
    _by_test[test := _name_of(pyfuncitem)] = now
    before = _kept().get(test, "")
    if now != before and not _IS_WRITTEN:
        changed = "".join(difflib.ndiff(before.splitlines(True), now.splitlines(True)))
        pytest.fail(f"{WORDING.name} (EDGECONV_WRITE_GOLDEN=1 writes it):\n{changed}", False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Any:
    collected = config.stash[COLLECTED] = {}
    if not config.getoption("lf", default=False) and not any(
        "::" in argument for argument in config.args
    ):
        for item in items:
            collected.setdefault(item.nodeid.partition("::")[0], set()).add(_name_of(item))
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was said; the processes of xdist do so one after the other."""
    if _IS_WRITTEN and _by_test:
        with WORDING.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            texts = read(file.read()) | _by_test
            left = {*texts} - {*gone(texts, session.config.stash.get(COLLECTED, {}))}
            file.seek(0)
            file.truncate()
            file.write(written({test: texts[test] for test in left}))


def gone(texts: Iterable[str], collected: dict[str, set[str]]) -> list[str]:
    """The ids of tests that are not there any more."""
    return [test for test in texts if not _is_there(test, collected)]


def _is_there(test: str, collected: dict[str, set[str]]) -> bool:
    file, *_, name = test.partition("[")[0].split("::")
    path = ROOT / file
    is_defined = path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")
    return is_defined and (file not in collected or test in collected[file])


def read(page: str) -> dict[str, str]:
    """The paragraphs of the file by the id of their test."""
    texts: dict[str, str] = {}
    file = test = ""
    for line in page.splitlines(keepends=True):
        if line.startswith("    ") or line == "\n":
            texts[test] += line
        elif line.startswith("  "):
            test = f"{file}::{line.strip()}"
            texts[test] = ""
        else:
            file = line.strip()
    return texts


def written(texts: dict[str, str]) -> str:
    """The file: a line for each file of tests and each test, and what the test said."""
    page = ""
    tests = sorted([*test.split("::", 1), text] for test, text in texts.items() if text)
    for file, those in groupby(tests, key=lambda each: each[0]):
        page += f"{file}\n" + "".join(f"  {name}\n{text}" for _, name, text in those)
    return page


@functools.cache
def _kept() -> dict[str, str]:
    return read(WORDING.read_text(encoding="utf-8"))
