"""What `edgeconv config` prints: the values that hold, and the schema that editors take."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from json_schemas import jsonschema
from places import ROOT

from edgeconv.cli import COMMANDS, run
from edgeconv.requests.config.shown import config_schema
from edgeconv.requests.config.tables import options_of, read_config
from edgeconv.requests.table import TABLES
from edgeconv.types import LIMIT_FIELDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = ROOT / "docs/schemas/edgeconv.json"
TEXT = """\
[model.mnist]
source = "models/mnist/1"
[model.mnist.convert]
calibration = "calib.npz"
[model.mnist.budget]
max-accuracy-drop = 0.005
[convert]
to = ["float32", "int8"]
[budget]
max-accuracy-drop = 0.01
max-latency-ratio = 1.2
[budget.recipe.int8]
max-size-ratio = { limit = 0.3, severity = "warn" }
[check]
confidence = 0.9
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("edgeconv.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["config", *words]) == 0
    return capsys.readouterr().out


def test_every_value_is_shown_with_the_line_it_is_from_or_as_the_default(capsys):
    lines = [" ".join(line.split()) for line in said(capsys, "show").splitlines()]
    assert lines[0] == "[model.mnist]"
    for line in (
        'source = "models/mnist/1" # edgeconv.toml:2',
        'calibration = ["calib.npz"] # edgeconv.toml:4',
        'max-accuracy-drop = { limit = 0.005, severity = "error" } # edgeconv.toml:6',
        'to = "float32,int8" # edgeconv.toml:8',
        'max-latency-ratio = { limit = 1.2, severity = "warn" } # edgeconv.toml:11',
        'max-size-ratio = { limit = 0.3, severity = "warn" } # edgeconv.toml:13',
        "confidence = 0.9 # edgeconv.toml:15",
        'engine = "auto" # default',
        "rounds = 3 # default",
    ):
        assert line in lines
    # The model has the general value of `to`, which is not said again.
    assert [line.split(" = ")[0] for line in lines].count("to") == 1


def test_what_is_shown_is_a_configuration_that_says_the_same(capsys):
    shown = said(capsys, "show")
    before = read_config(Path("edgeconv.toml"))
    Path("edgeconv.toml").write_text(shown, encoding="utf-8")
    after = read_config(Path("edgeconv.toml"))
    assert after.models["mnist"].source == before.models["mnist"].source
    assert after.models["mnist"].budget.limits("int8") == before.models["mnist"].budget.limits(
        "int8"
    )
    again = said(capsys, "show")
    values = [line.split("#")[0].rstrip() for line in again.splitlines()]
    assert values == [line.split("#")[0].rstrip() for line in shown.splitlines()]


def test_as_json_there_is_everything_by_model(capsys):
    document = json.loads(said(capsys, "show", "--json"))
    assert document["file"] == "edgeconv.toml"
    mnist = document["model"]["mnist"]
    assert mnist["source"] == {"value": "models/mnist/1", "from": "edgeconv.toml:2"}
    assert mnist["convert"]["to"] == {"value": "float32,int8", "from": "edgeconv.toml:8"}
    assert mnist["bench"]["rounds"] == {"value": 3, "from": "default"}
    limit = {"value": {"limit": 0.3, "severity": "warn"}, "from": "edgeconv.toml:13"}
    assert mnist["budget"]["recipe"]["int8"]["max-size-ratio"] == limit
    assert document["budget"]["max-accuracy-drop"]["from"] == "edgeconv.toml:10"


def test_a_limit_of_a_runtime_is_in_the_table_of_that_runtime(capsys):
    text = "[budget.runtime.web]\nmax-latency-ratio = 2\n"
    Path("edgeconv.toml").write_text(f"{text}[model.m]\nsource = 'm'\n", encoding="utf-8")
    shown = tomllib.loads(said(capsys, "show"))
    document = json.loads(said(capsys, "show", "--json"))
    limit = {"limit": 2.0, "severity": "warn"}
    for of_toml, of_json in ((shown, document), (shown["model"]["m"], document["model"]["m"])):
        assert of_toml["budget"]["runtime"]["web"]["max-latency-ratio"] == limit
        found = of_json["budget"]["runtime"]["web"]["max-latency-ratio"]
        assert found == {"value": limit, "from": "edgeconv.toml:2"}


def test_only_the_tables_that_are_asked_for_are_shown(capsys):
    shown = tomllib.loads(said(capsys, "show", "bench"))
    assert set(shown) == {"model", "bench"}
    assert set(json.loads(said(capsys, "show", "doctor", "--json"))) == {"file", "model", "doctor"}
    assert run(["config", "show", "dance"]) == 2


def test_a_value_that_is_refused_is_refused_when_it_is_shown(capsys):
    Path("edgeconv.toml").write_text("[model.m]\nsource = 'm'\n[model.m.bench]\nrounds = 0\n")
    assert run(["config", "show"]) == 2
    assert "edgeconv.toml, line 4: rounds of [model.m.bench] is refused" in capsys.readouterr().err


def test_code_is_shown_and_not_run(capsys):
    Path("edgeconv.toml").write_text('[bench]\ndata = "module.name:load"\n')
    assert tomllib.loads(said(capsys, "show"))["bench"]["data"] == "module.name:load"


def test_what_cannot_be_seen_is_escaped(capsys):
    text = 'a\u202eb\u001b[31m"\\\n#é😀'
    quoted = json.dumps(text, ensure_ascii=False)
    Path("edgeconv.toml").write_text(f"[bench]\ntitle = {quoted}\n", encoding="utf-8")
    shown = said(capsys, "show")
    assert all(line.isprintable() for line in shown.splitlines())
    assert tomllib.loads(shown)["bench"]["title"] == text


def test_a_directory_without_a_configuration_says_how_to_get_one(capsys):
    Path("edgeconv.toml").unlink()
    assert run(["config", "show"]) == 2
    assert "edgeconv init" in capsys.readouterr().err


# The schema


def schema() -> Any:
    return json.loads(config_schema(COMMANDS))


def test_the_published_schema_is_that_of_the_commands(capsys):
    assert config_schema(COMMANDS) == SCHEMA.read_bytes(), "edgeconv config schema > docs/schemas/…"
    assert said(capsys, "schema").encode() == config_schema(COMMANDS)
    jsonschema.Draft7Validator.check_schema(schema())


def test_every_option_is_in_it_with_its_help_and_default():
    definitions = schema()["definitions"]
    for name in TABLES:
        options = options_of(name)
        assert set(definitions[name]["properties"]) == set(options)
        for key, option in options.items():
            assert option.option.help in definitions[name]["properties"][key].get("description", "")
    rounds = definitions["bench"]["properties"]["rounds"]
    assert (rounds["type"], rounds["minimum"], rounds["default"]) == ("integer", 1, 3)
    engine = definitions["convert"]["properties"]["engine"]
    assert engine["enum"] == ["auto", "litert", "tflite"]
    assert set(definitions["limits"]["properties"]) == set(LIMIT_FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "[bench]\nmetric = 'top5'\nlayers = true\n",
        "[budget]\noldest-runtime = '2.14'\nallowed-operators = ['ADD']\nmin-output-snr-db = -1\n",
        "[budget]\nallowed-operators = { limit = ['ADD'], severity = 'warn' }\n",
    ],
)
def test_what_is_read_is_valid_by_the_schema(text, here):
    Path("edgeconv.toml").write_text(text, encoding="utf-8")
    read_config(here / "edgeconv.toml")
    jsonschema.validate(tomllib.loads(text), schema())


@pytest.mark.parametrize(
    "text",
    [
        "[budgte]\n",
        "[budget]\nmax-size = 1\n",
        "[budget]\nmax-accuracy-drop = 2\n",
        "[budget]\nmax-size-ratio = 0\n",
        "[budget]\noldest-runtime = 'new'\n",
        "[budget]\nallowed-operators = []\n",
        "[budget]\nmin-accuracy = { severity = 'warn' }\n",
        "[budget]\nmin-accuracy = { limit = 1, severity = 'fatal' }\n",
        "[budget.recipe.int18]\nmin-accuracy = 1\n",
        "[model.m]\n",
        "[model.'a/b']\nsource = 'm'\n",
        "[model.m]\nsource = ''\n",
        "[bench]\nround = 1\n",
        "[bench]\nrounds = 0\n",
        "[bench]\nrounds = '1'\n",
        "[bench]\nlayers = 1\n",
        "[bench]\naccelerator = 'gpu'\n",
        "[check]\nupdate = true\n",
        "[convert]\nto = [1]\n",
    ],
)
def test_what_is_refused_is_not_valid_by_the_schema_either(text, here):
    Path("edgeconv.toml").write_text(text, encoding="utf-8")
    assert run(["config", "show"]) == 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), schema())
