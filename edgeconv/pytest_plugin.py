"""The pytest plugin: a team's own tests hold their artifacts to limits, as the gate does.

    def test_int8_is_as_good(edgeconv_artifact):
        edgeconv_artifact("mnist", "int8").assert_within(max_accuracy_drop=0.01)

The models are those of edgeconv.toml. What did not change is neither converted nor measured
again. pytest loads this module in every run, so it imports nothing until a test asks for it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from edgeconv.errors import UsageError
    from edgeconv.gate.jobs import ModelJob
    from edgeconv.gate.project import Project
    from edgeconv.types import Budget, Check, Measurement, Report


class EdgeconvWarning(UserWarning):
    """A limit does not hold, where the configuration says that this is a warning."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the configuration is, and whether it may run code."""
    group = parser.getgroup("edgeconv", "edgeconv: models held to limits")
    group.addoption(
        "--edgeconv-config",
        metavar="FILE",
        help="The configuration of edgeconv_artifact. [default: edgeconv.toml, or pyproject.toml "
        "with [tool.edgeconv], of the current directory, else of pytest's root directory]",
    )
    group.addoption(
        "--edgeconv-allow-code",
        action="store_true",
        help="Run code that the configuration names.",
    )


@pytest.fixture(scope="session")
def edgeconv_artifact(pytestconfig: pytest.Config) -> Callable[[str, str], EdgeconvArtifact]:
    """`edgeconv_artifact(model, recipe)`: an artifact of edgeconv.toml, to be held to limits."""
    opened: list[Project] = []

    def artifact(model: str, recipe: str) -> EdgeconvArtifact:
        __tracebackhide__ = True
        with _readable():
            if not opened:
                opened.append(_opened(pytestconfig))
            return EdgeconvArtifact(opened[0], model, recipe)

    return artifact


def _opened(pytestconfig: pytest.Config) -> Project:
    from edgeconv.config import find_config
    from edgeconv.config.chosen import settled
    from edgeconv.errors import UsageError
    from edgeconv.gate.project import Project
    from edgeconv.requests.check import CheckRequest

    here = pytestconfig.invocation_params.dir
    named = pytestconfig.getoption("--edgeconv-config")
    root = pytestconfig.rootpath
    file = here / str(named) if named else find_config(here) or find_config(root)
    if file is None:
        raise UsageError(
            f"there is no edgeconv.toml in {root}, and no pyproject.toml with [tool.edgeconv]",
            hint="write one with `edgeconv init MODEL`, or name another",
        )
    any_code = bool(pytestconfig.getoption("--edgeconv-allow-code"))
    asked = settled(CheckRequest(config=str(file), any_code=any_code), "check")
    return Project(asked, lambda _: None)


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Other processes wait, as those of pytest-xdist: together they would disturb each other."""
    from edgeconv.store import cache_directory, owned

    with owned(cache_directory() / "projects", passing=True):
        yield


def _path(project: Project, job: ModelJob, recipe: str) -> Path:
    """The published file. Raises `ToolFailed` where there is none."""
    from edgeconv.errors import ToolFailed

    with _turn():
        done = project.checking.published(job)
    for one in done.artifacts:
        if one.recipe.name == recipe:
            return Path(done.directory).absolute() / one.file
    failed = (one.message for one in done.failures if one.recipe == recipe)
    raise ToolFailed(f"{job.name} was not converted to {recipe}: {'; '.join(failed)}")


class EdgeconvArtifact:
    """One published .tflite of a model of the configuration, and what was measured of it.

    Each `assert_…` is judged by the statistics of `edgeconv check`, beside the trained baseline
    and, where the model is in the lock, beside that. Limits are inclusive; accuracies and drops
    are fractions. A number that is missing or not certain enough fails.
    """

    def __init__(self, project: Project, model: str, recipe: str) -> None:
        self.model, self.recipe = model, recipe
        self._project = project
        (self._job,) = project.jobs([model])
        measured = (row for row in self.report.measurements if row.role == "artifact")
        rows = [row.recipe for row in measured if row.recipe]
        if recipe not in rows:
            from edgeconv.errors import unknown_name

            raise unknown_name(f"recipe of model {model!r}", recipe, rows)

    @property
    def report(self) -> Report:
        """Everything that was measured of the model, beside its baseline."""
        with _turn():
            return self._project.checking.report(self._job)

    @property
    def measurement(self) -> Measurement:
        """What was measured of this artifact; in the first runtime, if there are several."""
        return next(row for row in self.report.measurements if row.recipe == self.recipe)

    @cached_property
    def path(self) -> Path:
        """The file. Fails the test where the conversion gave none."""
        __tracebackhide__ = True
        with _readable():
            return _path(self._project, self._job, self.recipe)

    def assert_within(self, **limits: float | str | Collection[str]) -> None:
        """Any limits of a budget by their names, as `max_accuracy_drop=0.01, min_accuracy=0.9`.

        Raises `AssertionError` where one does not hold, with what was measured.
        """
        __tracebackhide__ = True
        with _readable():
            check = self._check(_budget(self.recipe, limits))
        _judge(check)

    def _check(self, budget: Budget) -> Check:
        with _turn():
            return self._project.checking.check(replace(self._job, budget=budget))

    def assert_within_budget(self) -> None:
        """What the configuration's budget says of this artifact."""
        __tracebackhide__ = True
        with _readable():
            from msgspec import structs

            from edgeconv.errors import UsageError
            from edgeconv.types import Budget, Limits

            given = self._job.budget.limits(self.recipe)
            if not given:
                raise UsageError(f"the budget of {self.model!r} has no limit for {self.recipe}")
            values = {name.replace("-", "_"): limit for name, limit in given.items()}
            own = structs.replace(Limits(), **values)
            check = self._check(Budget(recipe={self.recipe: own}))
        _judge(check)


def _budget(recipe: str, limits: dict[str, float | str | Collection[str]]) -> Budget:
    """The budget of these limits alone, each an error. Raises `UsageError`."""
    from msgspec import structs

    from edgeconv.errors import UsageError, unknown_name
    from edgeconv.types import Budget, Limit, Limits, OperatorsLimit, RuntimeLimit

    if not limits:
        raise UsageError("no limit to hold the artifact to", hint="as in max_accuracy_drop=0.01")
    found: dict[str, Limit | OperatorsLimit | RuntimeLimit] = {}
    for name, value in limits.items():
        if name not in Limits.__struct_fields__:
            raise unknown_name("limit", name, Limits.__struct_fields__)
        if name == "oldest_runtime":
            found[name] = RuntimeLimit(limit=_text(name, value))
        elif name == "allowed_operators":
            found[name] = OperatorsLimit(limit=_names(name, value))
        else:
            found[name] = Limit(limit=_number(name, value))
    return Budget(recipe={recipe: structs.replace(Limits(), **found)})


def _number(name: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, int | float) and is_number and math.isfinite(value) and value >= 0:
        return value
    raise _refused(name, "a finite number of 0 or more", value)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise _refused(name, 'a text such as "2.14.0"', value)


def _names(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple | set | frozenset):
        names = [one for one in value if isinstance(one, str)]
        if len(names) == len(value):
            return tuple(names)
    raise _refused(name, "a list of names", value)


def _refused(name: str, wanted: str, value: object) -> UsageError:
    from edgeconv.errors import UsageError

    return UsageError(f"{name} must be {wanted}, not {value!r}")


def _judge(check: Check) -> None:
    """Fail or warn, as the check says, with what people need to know of it."""
    __tracebackhide__ = True
    from edgeconv.reporting.limits import sentence
    from edgeconv.reporting.verdicts import render
    from edgeconv.types import Checked

    if not check.verdict.ok:
        raise AssertionError("\n" + render(Checked(checks=(check,)), "text").rstrip())
    for finding in check.verdict.findings:
        if finding.outcome != "passed":
            warnings.warn(sentence(finding), EdgeconvWarning, stacklevel=3)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What edgeconv refuses is a failed test with its message, without edgeconv's own lines."""
    __tracebackhide__ = True
    from edgeconv.errors import EdgeconvError

    try:
        yield
    except EdgeconvError as error:
        raise pytest.fail.Exception(f"edgeconv: {error}", pytrace=False) from None
