"""`edgeconv scan`: what it prints, in each format, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from json_schemas import jsonschema
from msgspec import convert
from places import SCHEMAS
from tiny_saved_model import block, write_plain, write_saved_model
from tiny_tflite import float_model, packed
from wording import says

from edgeconv import scan
from edgeconv.cli import run
from edgeconv.types import Scan

SARIF = jsonschema.Draft4Validator(
    json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text("utf-8"))
)
# A name in a file is anybody's: one that clears the terminal, and is a link to a reader of SARIF.
NAME = "evil\x1b[2J[link](http://example.org){0}"


@pytest.fixture
def fine(tmp_path) -> Path:
    return write_plain(tmp_path / "fine")


@pytest.fixture
def hostile(tmp_path) -> Path:
    nodes = b"".join(block(1, block(1, NAME + str(n)) + block(2, "WriteFile")) for n in range(3))
    graph = block(2, nodes)
    return write_saved_model(tmp_path / "hostile", block(1, block(4, "serve")) + graph)


def test_it_ends_with_0_where_nothing_is_refused_and_with_1_where_a_model_is(fine, hostile, capsys):
    assert run(["scan", str(fine)]) == 0
    assert "nothing that reaches outside" in capsys.readouterr().out
    assert run(["scan", str(fine), str(hostile)]) == 1
    printed = capsys.readouterr().out
    assert "FAIL  operator WriteFile: writes a file that the graph names" in printed
    assert "and 2 more places" in printed
    assert "\x1b" not in printed


def test_a_path_that_is_not_a_model_ends_with_3_and_the_others_are_shown(fine, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("no model")
    assert run(["scan", str(tmp_path / "text.txt"), str(tmp_path / "nothing"), str(fine)]) == 3
    printed = capsys.readouterr()
    assert "fine" in printed.out
    says(printed.err)


def test_json_is_the_nouns(hostile, capsys):
    for words in (["--json"], ["--format", "json"]):
        assert run(["scan", *words, str(hostile)]) == 1
        assert convert(json.loads(capsys.readouterr().out), list[Scan]) == [scan(hostile)]


def test_sarif_is_sarif_and_no_name_in_it_is_a_link(hostile, fine, capsys, monkeypatch):
    monkeypatch.chdir(hostile.parent)
    assert run(["scan", "--format", "sarif", str(hostile), str(fine)]) == 1
    document = json.loads(capsys.readouterr().out)
    SARIF.validate(document)
    (result,) = document["runs"][0]["results"]
    assert result["ruleId"] == "scan/operator"
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "hostile/saved_model.pb", "uriBaseId": "%SRCROOT%"}
    assert "[link]" not in result["message"]["text"].replace("\\[link\\]", "")
    assert "\x1b" not in json.dumps(document)


def test_a_custom_operator_of_a_tflite_is_told_and_refuses_nothing(tmp_path, capsys):
    model = float_model()
    model.operatorCodes[0].builtinCode = model.operatorCodes[0].deprecatedBuiltinCode = 32
    model.operatorCodes[0].customCode = "MyOperator"
    (tmp_path / "m.tflite").write_bytes(packed(model))
    assert run(["scan", str(tmp_path / "m.tflite")]) == 0
    assert "warn  custom operator MyOperator" in capsys.readouterr().out


def test_a_result_of_the_verb_shows_itself(hostile):
    assert "operator WriteFile" in repr(scan(hostile))
    assert "operator WriteFile" in scan(hostile)._repr_html_()


def test_no_configuration_of_a_project_changes_it(hostile, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for text in ('[scan]\nformat = "json"\n', "not TOML", '[model.a]\nsource = "hostile"\n'):
        Path("edgeconv.toml").write_text(text)
        assert run(["scan", str(hostile)]) == 1
        assert capsys.readouterr().out.startswith(str(hostile))
    assert run(["scan", str(hostile), "--config", "edgeconv.toml"]) == 2


def test_a_graph_of_100_mb_of_constants_is_looked_at_without_tensorflow_and_little_memory(tmp_path):
    constant = block(2, "Const") + block(
        5, block(1, "value") + block(2, block(8, block(4, bytes(2**20))))
    )
    nodes = b"".join(block(1, block(1, f"c{n}") + constant) for n in range(100))
    model = write_saved_model(tmp_path / "big", block(2, nodes))
    code = f"import edgeconv; assert not edgeconv.scan({str(model)!r}).findings"
    program = (
        "import re, sys, time\n"
        "start = time.process_time()\n"
        f"{code}\n"
        "print(time.process_time() - start)\n"
        # Not getrusage: that begins with the peak of the parent.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "assert not {'tensorflow', 'numpy', 'ai_edge_litert'} & {*sys.modules}\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu_s, peak_kib = map(float, done.stdout.split())
    assert cpu_s < 1
    # The file's own pages, which are mapped, and some.
    assert peak_kib < 300 * 1024
