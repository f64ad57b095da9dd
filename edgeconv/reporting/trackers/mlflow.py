"""MLflow: one run for each check, with a child run for each model.

The library is the optional extra `mlflow`. Its global state is not changed: the client gets a URI,
and no run becomes active.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from edgeconv.reporting import units
from edgeconv.reporting.trackers import TrackedRun, now, runs
from edgeconv.reporting.verdicts import render
from edgeconv.types import Check, Checked, Report
from edgeconv.types.errors import OutputRefused, UsageError

EXPERIMENT = "edgeconv"
# What MLflow takes in a name, and how long a text may be.
_NOT_IN_A_NAME = re.compile(r"[^\w\-. /]", re.ASCII)
_MOST_IN_A_NAME = 250
_MOST_IN_A_TEXT = 5000


def refuse(location: str) -> None:  # noqa: ARG001
    """Raise `UsageError` where MLflow is not installed; the server is not contacted yet."""
    if find_spec("mlflow") is None:
        raise _not_installed("there is no module mlflow")


def track(checked: Checked, reports: Mapping[str, Report], location: str) -> None:
    """Log to the tracking URI `location`, in the experiment `EXPERIMENT`.

    Raises `UsageError` where MLflow is not installed, `OutputRefused` if it refuses.
    """
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise _not_installed(str(error)) from error
    try:
        client = MlflowClient(tracking_uri=location)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
        tracked = list(runs(checked, reports))
        for check in checked.checks:
            _log_check(client, experiment, check, checked.config, tracked)
    except (MlflowException, OSError) as error:
        raise OutputRefused(
            f"MLflow at {location} refused the runs: {units.plain_line(str(error))}",
            hint="it must be a tracking URI, such as sqlite:///mlflow.db or http://host:5000",
        ) from error


def _not_installed(why: str) -> UsageError:
    return UsageError(f"--track mlflow needs MLflow: {why}", hint="pip install 'edgeconv[mlflow]'")


def _log_check(
    client: Any, experiment: str, check: Check, config: str, tracked: list[TrackedRun]
) -> None:
    name = _text(check.name)
    verdict = "pass" if check.verdict.ok else "fail"
    tags = {"edgeconv.config": _text(config), "edgeconv.verdict": verdict}
    parent = client.create_run(experiment, tags=tags, run_name=name).info.run_id
    broken = sum(not finding.ok for finding in check.verdict.findings)
    _log_numbers(client, parent, {"limits_broken": float(broken)})
    alone = Checked(config=config, checks=(check,))
    client.log_text(parent, render(alone, "json"), "verdict.json")
    client.log_text(parent, render(alone, "github-summary"), "verdict.md")
    for run in tracked:
        if run.check == check.name:
            _log_model(client, experiment, parent, run)
    client.set_terminated(parent)


def _log_model(client: Any, experiment: str, parent: str, run: TrackedRun) -> None:
    tags = {"mlflow.parentRunId": parent, "edgeconv.verdict": run.verdict or "no limit"}
    child = client.create_run(experiment, tags=tags, run_name=_text(run.model)).info.run_id
    for name, text in run.texts.items():
        if text:
            client.log_param(child, name, _text(text))
    _log_numbers(client, child, run.numbers)
    client.set_terminated(child)


def _log_numbers(client: Any, run: str, numbers: Mapping[str, float]) -> None:
    milliseconds = int(now().timestamp() * 1000)
    for name, value in numbers.items():
        key = _NOT_IN_A_NAME.sub("_", name)[:_MOST_IN_A_NAME]
        client.log_metric(run, key, value, timestamp=milliseconds)


def _text(text: str) -> str:
    return units.plain(text)[:_MOST_IN_A_TEXT]
