"""`scan` and `verify` as verbs: their requests, and what no configuration may change."""

import inspect
from pathlib import Path

import pytest
from tiny_tflite import float_model, packed
from wording import fails

import edgeconv
from edgeconv.cli import command_named
from edgeconv.requests.config.tables import OptionNames
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.looking import ScanRequest, VerifyRequest
from edgeconv.requests.request import leaves_of
from edgeconv.requests.table import called
from edgeconv.types.errors import UsageError


@pytest.fixture
def model(tmp_path) -> Path:
    file = tmp_path / "net.tflite"
    file.write_bytes(packed(float_model()))
    return file


def test_a_scan_takes_a_path_or_a_request(model):
    scan = edgeconv.scan(model)
    assert scan == edgeconv.scan(path=str(model)) == edgeconv.scan(ScanRequest(path=str(model)))
    assert (scan.findings, scan.kind) == ((), "tflite")


def test_verify_takes_paths_one_after_another_or_a_list():
    for fields in (("a", Path("b")), (["a", "b"],)):
        request = called(VerifyRequest, fields, {"require": ["report"], "source": "m"})
        assert request.paths == ("a", "b")
        assert (request.require, request.source) == (("report",), "m")
    assert called(VerifyRequest, (), {"paths": "a"}).paths == ("a",)


def test_every_option_of_theirs_is_a_field_and_none_is_in_a_configuration():
    for name, kind in (("scan", ScanRequest), ("verify", VerifyRequest)):
        options = {param.name for param in command_named(name).params}
        assert {"_".join(leaf.path) for leaf in leaves_of(kind)} <= options
        assert name not in OptionNames()
        signature = inspect.signature(getattr(edgeconv, name))
        assert {leaf.word for leaf in leaves_of(kind)} < set(signature.parameters)


def test_the_words_of_a_request_are_those_of_its_command():
    request = VerifyRequest(paths=("a",), require=("lock",))
    assert request.words() == ("a", "--require", "lock")
    assert {str(path) for path in request.inputs().paths} == {"a"}
    converting = ConvertRequest(model="m", to=("int8",), input_type="int8", output_type="uint8")
    sides = ("--io", "input=int8", "--io", "output=uint8")
    assert converting.words() == ("m", "--to", "int8", *sides)


def test_without_a_path_it_is_refused_in_python_too():
    with fails(UsageError):
        edgeconv.verify()
