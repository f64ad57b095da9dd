"""A .tflite in a viewer, with the errors of its layers."""

import math
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_example as example
import tiny_tflite
from click.testing import CliRunner
from wording import says

from edgeconv.cli.verbs import visualize as command
from edgeconv.model.tflite.summary import layers_of_graphs
from edgeconv.reporting.layers import node_data
from edgeconv.system.store import sha256_file
from edgeconv.types import LayerError, OperatorTime, Profile, Report
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

ERROR = LayerError(
    layer="y", tensor="y", operator="FULLY_CONNECTED", samples=4, snr_db=31.5, max_error=0.1
)
TIMES = Profile(
    total_us=5.0,
    operators=(
        OperatorTime(
            index=0, operator="FULLY_CONNECTED", layer="y", tensor="y", delegate="", mean_us=4.0
        ),
    ),
)


@pytest.fixture
def model(tmp_path) -> Path:
    file = tmp_path / "int8.tflite"
    file.write_bytes(tiny_tflite.packed(tiny_tflite.int8_model()))
    return file


@pytest.fixture
def report(model, tmp_path) -> Path:
    row = msgspec.structs.replace(
        example.measurement("int8"), sha256=sha256_file(model), layer_errors=(ERROR,), profile=TIMES
    )
    path = tmp_path / "report.json"
    whole: Report = msgspec.structs.replace(example.report(), measurements=(row,))
    path.write_bytes(msgspec.json.encode(whole))
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_errors_of_the_layers_are_written_by_graph_and_tensor(model, report, tmp_path):
    done = run(model, "--report", report, "-o", tmp_path / "layers.json")
    assert done.exit_code == 0, done.exception
    (graph,) = msgspec.json.decode((tmp_path / "layers.json").read_bytes()).items()
    assert graph[0] == "main"
    assert graph[1]["results"] == {"y": {"value": 31.5}}
    assert [stop["stop"] for stop in graph[1]["gradient"]] == [0.0, 0.5, 1.0]


def test_the_times_of_the_layers_can_be_shown_instead(model, report, tmp_path):
    done = run(model, "--report", report, "--show", "times", "-o", tmp_path / "layers.json")
    assert done.exit_code == 0
    data = msgspec.json.decode((tmp_path / "layers.json").read_bytes())["main"]
    assert data["results"] == {"y": {"value": 4.0}}
    assert data["gradient"][2]["bgColor"] == "#d73a31"


def test_values_that_are_no_numbers_are_left_out_and_exact_ones_leave_room_for_colours():
    errors = [
        msgspec.structs.replace(ERROR, layer=name, tensor=name, snr_db=value)
        for name, value in (("a", math.nan), ("b", 200.0), ("c", 12.0), ("elsewhere", 3.0))
    ]
    row = msgspec.structs.replace(example.measurement("int8"), layer_errors=tuple(errors))
    data = node_data(row, {"main": {"a", "b", "c"}, "other": {"d"}}, "errors")
    assert data is not None
    found = msgspec.json.decode(data)
    assert {graph: each["results"] for graph, each in found.items()} == {
        "main": {"b": {"value": 100.0}, "c": {"value": 12.0}}
    }
    assert node_data(row, {"main": {"x"}}, "errors") is None


def test_a_graph_without_a_name_is_called_main():
    made = tiny_tflite.int8_model()
    made.subgraphs[0].name = None
    assert layers_of_graphs(tiny_tflite.packed(made), where="m") == {"main": frozenset({"y"})}


def test_a_report_of_another_model_or_without_layers_is_refused(model, report, tmp_path):
    other = tmp_path / "other.tflite"
    other.write_bytes(tiny_tflite.packed(tiny_tflite.float_model()))
    refused = run(other, "--report", report, "-o", tmp_path / "x.json")
    assert isinstance(refused.exception, InputRefused)
    says(refused.exception)
    whole = msgspec.json.decode(report.read_bytes(), type=Report)
    row = msgspec.structs.replace(whole.measurements[0], layer_errors=())
    report.write_bytes(msgspec.json.encode(msgspec.structs.replace(whole, measurements=(row,))))
    refused = run(model, "--report", report, "-o", tmp_path / "x.json")
    says(refused.exception)
    assert not (tmp_path / "x.json").exists()


def test_node_data_without_a_report_is_a_usage_error(model, tmp_path):
    assert isinstance(run(model, "-o", tmp_path / "x.json").exception, UsageError)


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path) -> Path:
    """No viewer is found, but for what is put into the folder that comes back."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def put(folder: Path, name: str, code: str) -> None:
    """A program that runs Python code with its arguments."""
    program = folder / name
    program.write_text(f"#!{sys.executable}\nimport sys\n{code}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_viewer_it_says_how_to_install_one(model):
    error = run(model).exception
    assert isinstance(error, UsageError)
    says(error)
    says(run(model, "--viewer", "netron").exception)


def test_model_explorer_gets_the_model_and_the_node_data(
    model, report, nothing_installed, tmp_path
):
    seen = tmp_path / "seen.txt"
    said = "sys.argv[1] + ' ' + sys.argv[2] + open(sys.argv[3]).read()"
    code = f"open({str(seen)!r}, 'w').write({said})"
    put(nothing_installed, "model-explorer", code)
    done = run(model, "--report", report)
    assert done.exit_code == 0, done.exception
    text = seen.read_text(encoding="utf-8")
    assert text.startswith(f"{model} --node_data_paths")
    assert '"value": 31.5' in text


def test_netron_gets_the_model_alone_and_says_so(model, report, nothing_installed, tmp_path):
    seen = tmp_path / "seen.txt"
    put(nothing_installed, "netron", f"open({str(seen)!r}, 'w').write(repr(sys.argv[1:]))")
    done = run(model, "--report", report)
    assert done.exit_code == 0, done.exception
    assert seen.read_text(encoding="utf-8") == repr([str(model)])
    assert "without the errors of the layers" in done.stdout


def test_a_viewer_that_fails_is_an_error(model, nothing_installed):
    put(nothing_installed, "netron", "sys.exit(3)")
    error = run(model).exception
    assert isinstance(error, ToolFailed)
    says(error)


def test_a_path_that_model_explorer_takes_for_two_is_refused(model, nothing_installed):
    put(nothing_installed, "model-explorer", "")
    renamed = model.with_name("a,b.tflite")
    model.rename(renamed)
    says(run(renamed).exception)
