import csv
import math
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_example as example
import verdict_example
from commands import captured
from wording import fails

from edgeconv import plugins
from edgeconv.reporting.trackers import csv_file, runs, tensorboard
from edgeconv.types import Check, Checked, Report
from edgeconv.types.errors import InputRefused, OutputRefused, UsageError

CHECKED = Checked(config="edgeconv.toml", checks=(Check(name="digits", verdict=example.verdict()),))
REPORTS = {"digits": example.report()}


def named(name: str) -> tuple[Checked, dict[str, Report]]:
    model = msgspec.structs.replace(example.measurement("int8"), name=name)
    report = msgspec.structs.replace(example.report(), measurements=(model,), baseline=None)
    return verdict_example.named(name), {name: report}


def test_a_run_is_a_model_with_its_verdict_and_the_numbers_that_are_known():
    found = {run.model: run for run in runs(CHECKED, REPORTS)}
    assert list(found)[:2] == ["digits_cnn", "digits_cnn-float32"]
    int8 = found["digits_cnn-int8"]
    assert (int8.check, int8.verdict, int8.texts["recipe"]) == ("digits", "ok", "int8")
    assert int8.numbers["size_bytes"] == 46_872
    assert int8.numbers["metric_f1"] == 0.97192
    assert int8.numbers["limits_broken"] == 0
    assert found["digits_cnn-int16x8"].verdict == "over"
    assert found["digits_cnn-int16x8"].numbers["limits_broken"] == 1
    assert "accuracy" not in found["digits_cnn-dynamic"].numbers
    assert found["digits_cnn-dynamic"].verdict == ""


def test_what_is_no_number_is_not_logged_and_neither_is_a_check_without_a_report():
    model = msgspec.structs.replace(example.measurement("int8"), size_ratio=math.nan)
    report = msgspec.structs.replace(example.report(), measurements=(model,), baseline=None)
    (run,) = runs(CHECKED, {"digits": report, "other": report})
    assert "size_ratio" not in run.numbers
    assert list(runs(CHECKED, {})) == []


@pytest.mark.parametrize("name", plugins.TRACKERS)
def test_every_tracker_can_track(name):
    assert callable(plugins.tracker(name).track)


# CSV


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_line_a_model_and_the_next_check_adds_its_own(tmp_path):
    path = tmp_path / "new" / "log.csv"
    csv_file.track(CHECKED, REPORTS, str(path))
    first = path.read_text(encoding="utf-8")
    csv_file.track(CHECKED, REPORTS, str(path))
    assert path.read_text(encoding="utf-8").startswith(first)
    found = lines(path)
    assert len(found) == 16
    row = next(row for row in found if row["recipe"] == "int8")
    assert (row["check"], row["verdict"], row["size_bytes"]) == ("digits", "ok", "46872")
    assert float(row["accuracy"]) == 350 / 360
    assert row["further metrics"] == "f1=0.97192"
    assert row["time"].endswith("+00:00")


def test_a_csv_file_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n")
    with fails(InputRefused):
        csv_file.track(CHECKED, REPORTS, str(path))
    assert path.read_text() == "a,b\n1,2\n"


def test_a_full_disk_leaves_the_lines_of_a_csv_file_whole(tiny_disk):
    path = tiny_disk / "log.csv"
    csv_file.track(CHECKED, REPORTS, str(path))
    before = path.read_bytes()
    (tiny_disk / "rest").write_bytes(b"x" * (64 * 1024 - (len(before) // 4096 + 1) * 4096))
    with fails(OutputRefused):
        csv_file.track(CHECKED, REPORTS, str(path))
    assert path.read_bytes() == before
    assert sorted(p.name for p in tiny_disk.iterdir()) == ["log.csv", "rest"]


def test_a_csv_file_that_cannot_be_written_is_refused(tmp_path):
    with fails(OutputRefused):
        csv_file.track(CHECKED, REPORTS, str(tmp_path))


@pytest.mark.parametrize("name", verdict_example.HOSTILE, ids=repr)
def test_a_name_is_one_cell_of_a_csv_file_and_no_formula(name, tmp_path):
    csv_file.track(*named(name), str(tmp_path / "log.csv"))
    (row,) = lines(tmp_path / "log.csv")
    assert None not in row
    assert not row["model"].startswith(("=", "+", "-", "@"))
    assert row["role"] == "artifact"


# TensorBoard


READ = """
import json, sys, types
# What TensorBoard looks for to do without TensorFlow.
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import (
    api_pb2, backend_context, get_experiment, list_session_groups,
)

multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
provider = data_provider.MultiplexerDataProvider(multiplexer, sys.argv[1])
context = backend_context.Context(TBContext(logdir=sys.argv[1], data_provider=provider))
request = RequestContext()
experiment = get_experiment.Handler(
    request, context, "", api_pb2.GetExperimentRequest()
).run()
query = api_pb2.ListSessionGroupsRequest(
    allowed_statuses=[api_pb2.STATUS_SUCCESS],
    start_index=0, slice_size=100,
    col_params=[api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos],
)
groups = list_session_groups.Handler(
    request, context, "", query
).run().session_groups
print(json.dumps([
    {
        "hparams": {key: value.string_value for key, value in group.hparams.items()},
        "metrics": {each.name.tag: each.value for each in group.metric_values},
    }
    for group in groups
]))
"""


def read(directory: Path) -> list[dict[str, Any]]:
    """What TensorBoard's own HParams plugin finds."""
    done = captured([sys.executable, "-W", "ignore", "-c", READ, str(directory)])
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return found


def test_tensorboard_reads_every_model_with_its_hyperparameters_and_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    tensorboard.track(CHECKED, REPORTS, str(tmp_path))
    tensorboard.track(CHECKED, REPORTS, str(tmp_path))
    found = read(tmp_path)
    assert len(found) == 16
    int8 = next(each for each in found if each["hparams"].get("recipe") == "int8")
    assert int8["hparams"]["model"] == "digits_cnn-int8"
    assert int8["hparams"]["machine"] == "build-7"
    assert int8["metrics"]["size_bytes"] == 46_872
    assert int8["metrics"]["limits_broken"] == 0
    assert int8["metrics"]["accuracy"] == pytest.approx(350 / 360)


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "/etc", *verdict_example.HOSTILE])
def test_no_name_leads_out_of_the_directory(name, tmp_path):
    place = tmp_path / "a" / "logs"
    tensorboard.track(*named(name), str(place))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    assert len(files[0].relative_to(place).parts) == 4
    assert ".." not in files[0].parts


# MLflow


def test_mlflow_that_is_not_installed_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with fails(UsageError):
        plugins.tracker("mlflow").track(CHECKED, REPORTS, "mlruns")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["{}/mlruns", "sqlite:///{}/mlflow.db"])
def test_mlflow_has_a_run_a_check_and_one_a_model_below_it(place, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is an extra: edgeconv[mlflow]")
    if place.startswith("sqlite"):
        pytest.importorskip("sqlalchemy", reason="the extra edgeconv[mlflow] has no databases")
    # Beside a database, files go to the current directory.
    monkeypatch.chdir(tmp_path)
    # MLflow keeps its file store, but for those who ask for it.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = place.format(tmp_path)
    checked, reports = named(verdict_example.HOSTILE[1])
    both = Checked(config="edgeconv.toml", checks=CHECKED.checks + checked.checks)
    plugins.tracker("mlflow").track(both, REPORTS | reports, place)
    client = mlflow.tracking.MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name("edgeconv")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 2 + 8 + 1
    assert {run.info.status for run in found} == {"FINISHED"}
    parent = next(run for run in found if run.info.run_name == "digits")
    assert parent.data.tags["edgeconv.verdict"] == "fail"
    assert parent.data.metrics["limits_broken"] == 1
    int8 = next(run for run in found if run.info.run_name == "digits_cnn-int8")
    assert int8.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert int8.data.metrics["size_bytes"] == 46_872
    assert int8.data.params["recipe"] == "int8"
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert files == {"verdict.json", "verdict.md"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["http://127.0.0.1:9", "nonsense://x"])
def test_an_mlflow_that_does_not_answer_is_refused(place, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is an extra: edgeconv[mlflow]")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(OutputRefused, match="refused the runs"):
        plugins.tracker("mlflow").track(CHECKED, REPORTS, place)
