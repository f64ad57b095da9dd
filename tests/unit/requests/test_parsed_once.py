"""A text is parsed once, where it comes in; what follows gets the value."""

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from package_sources import SOURCES
from sources import opened_samples
from wording import fails

from edgeconv import data
from edgeconv.data.location import located, parse_source
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.config.tables import Table, read_config
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.request import request_of
from edgeconv.requests.table import called, parsed
from edgeconv.runtimes.choice import parse_choice
from edgeconv.types import DataSource, Measuring, MetricChoice, RuntimeChoice, TensorSpec
from edgeconv.types.errors import UsageError

# Where texts come in: options and tables; the SOURCEs of `init`; manifests of published files.
EDGES = {
    "parse_source": {"cli/init.py", "embedding/plan.py", "requests/texts.py"},
    "parse_preprocessing": {"requests/texts.py"},
    "parse_rule": {"requests/texts.py"},
    "parse_choice": {"requests/texts.py"},
    "parse_metric": {"requests/texts.py"},
    "parse_target_runtime": {"requests/texts.py"},
    # The runtime of a manifest is a text too.
    "recorded_target": {"embedding/remake.py"},
}
X = (TensorSpec(name="x", shape=(-1, 2), dtype="float32"),)


def users(name: str) -> Iterator[str]:
    for source in SOURCES:
        if name in source.text:
            for node in ast.walk(source.tree):
                if name in (getattr(node, "id", ""), getattr(node, "attr", "")):
                    yield source.name


@pytest.mark.parametrize("name", EDGES)
def test_texts_are_parsed_where_they_come_in_and_nowhere_else(name):
    assert set(users(name)) == EDGES[name]


@pytest.mark.parametrize(
    "text",
    [
        "a.npz",
        "npz:a.zip?x=images&labels=y",
        "./a:b.npz",
        "package.module:function",
        "function:m:f?a=b=c",
        "directory?classes=c.txt",
        "tfds:mnist/3.0.1?split=test[:10%]",
        "t-*.tfrecord.gz?spec=s.toml",
    ],
)
def test_a_source_has_the_text_that_was_typed(text):
    source = parse_source(text)
    assert str(source) == text
    assert parse_source(str(source)) == source


def test_a_directory_that_is_not_there_yet_is_a_source_and_its_kind_is_found_later(tmp_path):
    source = parse_source(f"{tmp_path}/photos?classes=c.txt")
    assert source.kind == ""
    with fails(UsageError):
        located(source)
    (tmp_path / "photos/cats").mkdir(parents=True)
    (tmp_path / "photos/cats/1.png").touch()
    assert located(source).kind == "images"
    assert str(located(source)) == str(source)


def test_a_call_in_python_hands_the_very_value_on(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    source = parse_source(str(tmp_path / "x.npy"))
    request = called(ConvertRequest, ("m",), {"to": "int8", "calibration": {"": source}})
    assert request.calibration[""] is source
    assert request.inputs().sources == (source,)
    with data.opened_samples(request.calibration[""], X) as opened:
        assert (opened.count, opened.text) == (3, str(tmp_path / "x.npy"))


def test_python_the_command_line_and_a_configuration_give_the_same_source(tmp_path):
    text = "images:photos?classes=c.txt"
    value = DataSource(
        kind="images", location="photos", options={"classes": "c.txt"}, names_kind=True
    )
    typed: dict[str, Any] = {"model": "m", "to": "int8", "training": text}
    assert request_of(ConvertRequest, typed).training == value
    assert called(ConvertRequest, (), typed).training == value
    assert called(ConvertRequest, (), typed | {"training": value}).training is value
    assert called(ConvertRequest, (), typed | {"calibration": {"k": text}}).calibration == {
        "k": value
    }
    config = tmp_path / "edgeconv.toml"
    config.write_text(f'[convert]\nto = "int8"\ntraining = "{text}"\n', encoding="utf-8")
    table = Table(read_config(config), "convert", None)
    request = table.request(ConvertRequest, {"model": "m"})
    assert request.training.location == str(tmp_path / "photos")
    assert request.training.options == {"classes": str(tmp_path / "c.txt")}


def test_a_wrong_source_in_a_configuration_has_its_line(tmp_path):
    config = tmp_path / "edgeconv.toml"
    config.write_text('[convert]\nto = "int8"\ncalibration = "sklern:digits"\n', encoding="utf-8")
    table = Table(read_config(config), "convert", None)
    with fails(UsageError):
        table.request(ConvertRequest, {"model": "m"})


def test_an_empty_source_is_refused_and_never_random_samples():
    with fails(UsageError):
        called(ConvertRequest, ("m",), {"to": "int8", "training": ""})


def test_a_source_is_parsed_once_for_a_whole_reading(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    texts: list[str] = []

    def counting(text: str) -> DataSource:
        texts.append(text)
        return parse_source(text)

    monkeypatch.setattr("sources.parse_source", counting)
    monkeypatch.setattr("edgeconv.data.location.parse_source", counting)
    with opened_samples(str(tmp_path / "x.npy"), X) as opened:
        opened.take(np.arange(2))
    assert texts == [str(tmp_path / "x.npy")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("litert", RuntimeChoice(name="litert")),
        ("tflite-runtime==2.14.0", RuntimeChoice(name="tflite-runtime", version="2.14.0")),
        ("web:/usr/bin/chromium", RuntimeChoice(name="web", location="/usr/bin/chromium")),
        (
            "ssh:me@board:22?config=c",
            RuntimeChoice(name="ssh", location="me@board:22", options={"config": "c"}),
        ),
        ("fake:slow=3&gone=2", RuntimeChoice(name="fake", options={"slow": "3", "gone": "2"})),
        (
            "tfserving:http://h:8501/v1/models/m?x=1",
            RuntimeChoice(name="tfserving", location="http://h:8501/v1/models/m?x=1"),
        ),
    ],
)
def test_a_runtime_is_a_value_with_its_options(text, value):
    assert parse_choice(text) == value
    assert str(value) == text
    request = request_of(BenchRequest, {"models": ("m",), "runtime": (text,)})
    assert request.measuring.runtimes == (value,)
    assert request.words() == ("m", "--runtime", text)


@pytest.mark.parametrize(
    "text", ["sssh:host", "ssh:host?port=3", "ssh:host?config", "adb==3", "litert=="]
)
def test_a_wrong_runtime_is_refused_before_anything_runs(text):
    with fails(UsageError):
        request_of(BenchRequest, {"models": ("m",), "runtime": (text,)})


def test_a_metric_is_a_name_or_a_function_of_a_module():
    request = request_of(BenchRequest, {"models": ("m",), "metric": ("accuracy", "mine:score")})
    assert request.measuring.metrics == (MetricChoice("top1"), MetricChoice("score", "mine"))
    assert request.words() == ("m", "--metric", "top1", "--metric", "mine:score")
    assert request.settings() == {"metric": ("top1", "mine:score")}
    for text in ("top7", "mine:"):
        with fails(UsageError):
            request_of(BenchRequest, {"models": ("m",), "metric": (text,)})


def test_texts_in_what_python_gives_mean_what_they_mean_on_a_command_line():
    measuring: Any = Measuring(
        metrics=("mae",), runtimes=("tflite-runtime==2.14.0", RuntimeChoice(name="litert"))
    )
    own = BenchRequest(models=("m",), data="a.npz", measuring=measuring)
    for request in (
        called(BenchRequest, (["m"],), {"data": "a.npz", "measuring": measuring}),
        parsed(own),
    ):
        assert request.data == parse_source("a.npz")
        assert request.measuring.metrics == (MetricChoice("mae"),)
        assert [str(each) for each in request.measuring.runtimes] == [
            "tflite-runtime==2.14.0",
            "litert",
        ]
    assert parsed(request) is request
