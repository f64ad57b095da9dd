"""The pytest plugin: a team's tests check their artifacts against limits, as the gate does.

    def test_int8_is_as_good(edgeconv_artifact):
        edgeconv_artifact("mnist", "int8").assert_within(max_accuracy_drop=0.01)

The models are in edgeconv.toml. Unchanged ones are neither converted nor measured again.
pytest loads this module in every run, so it imports nothing before a test needs it.
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

    from edgeconv.gate.check import Project
    from edgeconv.gate.jobs import ModelJob
    from edgeconv.types import Budget, Check, Measurement, Report, Value
    from edgeconv.types.errors import UsageError


class EdgeconvWarning(UserWarning):
    """A limit with the severity "warn" does not hold."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options: the configuration, and whether it may run code."""
    group = parser.getgroup("edgeconv", "edgeconv: limits of models")
    group.addoption(
        "--edgeconv-config",
        metavar="FILE",
        help="The configuration of edgeconv_artifact. [default: edgeconv.toml, or pyproject.toml "
        "with [tool.edgeconv], of the current directory, else of pytest's root directory]",
    )
    group.addoption(
        "--edgeconv-allow-code", action="store_true", help="Run code that the configuration names."
    )


@pytest.fixture(scope="session")
def edgeconv_artifact(pytestconfig: pytest.Config) -> Callable[[str, str], EdgeconvArtifact]:
    """`edgeconv_artifact(model, recipe)`: an artifact of edgeconv.toml, to check its limits."""
    projects: list[Project] = []

    def artifact(model: str, recipe: str) -> EdgeconvArtifact:
        __tracebackhide__ = True
        with _errors_as_failures():
            if not projects:
                projects.append(_open_project(pytestconfig))
            return EdgeconvArtifact(projects[0], model, recipe)

    return artifact


def _open_project(pytestconfig: pytest.Config) -> Project:
    from edgeconv.gate.check import Project
    from edgeconv.requests.check import CheckRequest
    from edgeconv.requests.config.chosen import settled
    from edgeconv.requests.config.reach import find_config
    from edgeconv.types.errors import UsageError

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
    request = settled(CheckRequest(config=str(file), any_code=any_code), "check")
    return Project(request, lambda _: None)


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Make other processes, such as pytest-xdist's, wait: they would disturb the measurements."""
    from edgeconv.system.store import cache_directory, owned

    with owned(cache_directory() / "projects", passing=True):
        yield


def _path(project: Project, job: ModelJob, recipe: str) -> Path:
    from edgeconv.types.errors import ToolFailed

    with _turn():
        conversion = project.checking.published(job)
    for artifact in conversion.artifacts:
        if artifact.recipe.name == recipe:
            return Path(conversion.directory).absolute() / artifact.file
    reasons = (failure.message for failure in conversion.failures if failure.recipe == recipe)
    raise ToolFailed(f"{job.name} was not converted to {recipe}: {'; '.join(reasons)}")


class EdgeconvArtifact:
    """A published .tflite of a model of the configuration, with its measurements.

    Each `assert_…` uses the statistics of `edgeconv check`, against the trained baseline and, for
    a locked model, against the lock. Limits are inclusive; accuracies and drops are fractions.
    Missing and inconclusive numbers fail.
    """

    def __init__(self, project: Project, model: str, recipe: str) -> None:
        self.model, self.recipe = model, recipe
        self._project = project
        (job,) = project.jobs([model])
        # A test names its limits: none is on versions of a runtime, or on the trained model.
        self._job = replace(job, versions=None, guards_trained=False)
        measured = (row for row in self.report.measurements if row.role == "artifact")
        rows = [row.recipe for row in measured if row.recipe]
        if recipe not in rows:
            from edgeconv.types.errors import unknown_name

            raise unknown_name(f"recipe of model {model!r}", recipe, rows)

    @property
    def report(self) -> Report:
        """All measurements of the model and its baseline."""
        with _turn():
            return self._project.checking.report(self._job)

    @property
    def measurement(self) -> Measurement:
        """The measurements of this artifact, in the first runtime."""
        return next(row for row in self.report.measurements if row.recipe == self.recipe)

    @cached_property
    def path(self) -> Path:
        """The file. Fails the test if it could not be converted."""
        __tracebackhide__ = True
        with _errors_as_failures():
            return _path(self._project, self._job, self.recipe)

    def assert_within(self, **limits: float | str | Collection[str]) -> None:
        """Check limits of a budget by their names, as `max_accuracy_drop=0.01, min_accuracy=0.9`.

        Raises `AssertionError`, with the measurements, where one does not hold.
        """
        __tracebackhide__ = True
        with _errors_as_failures():
            check = self._check(_budget(self.recipe, limits))
        _fail_or_warn(check)

    def _check(self, budget: Budget) -> Check:
        with _turn():
            return self._project.checking.check(replace(self._job, budget=budget))

    def assert_within_budget(self) -> None:
        """Check the budget of the configuration for this artifact."""
        __tracebackhide__ = True
        with _errors_as_failures():
            from msgspec import structs

            from edgeconv.types import LIMIT_FIELDS, Budget, Limits
            from edgeconv.types.errors import UsageError

            limits = self._job.budget.limits(self.recipe)
            if not limits:
                raise UsageError(f"the budget of {self.model!r} has no limit for {self.recipe}")
            values = {LIMIT_FIELDS[name]: limit for name, limit in limits.items()}
            own = structs.replace(Limits(), **values)
            check = self._check(Budget(recipe={self.recipe: own}))
        _fail_or_warn(check)


def _budget(recipe: str, limits: dict[str, float | str | Collection[str]]) -> Budget:
    """A budget of only these limits, each an error. Raises `UsageError`."""
    from msgspec import structs

    from edgeconv.types import LIMIT_FIELDS, LIMIT_KINDS, Budget, Limits
    from edgeconv.types.errors import UsageError, unknown_name

    if not limits:
        raise UsageError("give a limit to check", hint="as in max_accuracy_drop=0.01")
    kinds = {field: LIMIT_KINDS[name] for name, field in LIMIT_FIELDS.items()}
    parsed = {}
    for field, value in limits.items():
        if field not in kinds:
            raise unknown_name("limit", field, list(kinds))
        read = {"release": _text, "operators": _names}.get(kinds[field].unit, _number)
        parsed[field] = kinds[field].limit(read(field, value), "error")
    return Budget(recipe={recipe: structs.replace(Limits(), **parsed)})


def _number(name: str, value: object) -> Value:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return value
    raise _refusal(name, "a finite number of 0 or more", value)


def _text(name: str, value: object) -> Value:
    if isinstance(value, str):
        return value
    raise _refusal(name, 'a text such as "2.14.0"', value)


def _names(name: str, value: object) -> Value:
    if isinstance(value, list | tuple | set | frozenset):
        names = [name for name in value if isinstance(name, str)]
        if len(names) == len(value):
            return tuple(names)
    raise _refusal(name, "a list of names", value)


def _refusal(name: str, expected: str, value: object) -> UsageError:
    from edgeconv.types.errors import UsageError

    return UsageError(f"{name} must be {expected}, not {value!r}")


def _fail_or_warn(check: Check) -> None:
    __tracebackhide__ = True
    from edgeconv.reporting.limits import sentence
    from edgeconv.reporting.verdicts import render
    from edgeconv.types import Checked

    if not check.verdict.ok:
        # Its first line is what pytest's summary has of it.
        raise AssertionError(render(Checked(checks=(check,)), "text").rstrip())
    for finding in check.verdict.findings:
        if finding.outcome != "passed":
            warnings.warn(sentence(finding), EdgeconvWarning, stacklevel=3)


@contextlib.contextmanager
def _errors_as_failures() -> Iterator[None]:
    """Errors of edgeconv fail the test with their message, without a traceback."""
    __tracebackhide__ = True
    from edgeconv.types.errors import EdgeconvError

    try:
        yield
    except EdgeconvError as error:
        raise pytest.fail.Exception(f"edgeconv: {error}", pytrace=False) from None
