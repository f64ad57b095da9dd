"""The bill of materials beside an embedded model: CycloneDX, valid by its own schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import report_example
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from embed_models import int8_tiny, published
from tiny_tflite import float_model, packed

import edgeconv
from edgeconv import embed
from edgeconv.cli import run
from edgeconv.errors import InputRefused, UsageError
from edgeconv.reporting.files import write_report
from edgeconv.reporting.last_check import write_last_check
from edgeconv.store import sha256_file
from edgeconv.tflite.metadata import ModelMetadata, license_of, with_metadata
from edgeconv.types import Accuracy, Check, Finding, StageState, Verdict

if TYPE_CHECKING:
    from pathlib import Path


def check_valid(content: bytes) -> dict[str, Any]:
    """The document, which the strict schema of CycloneDX takes."""
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode())
    assert wrong is None, wrong
    document: dict[str, Any] = json.loads(content)
    return document


def measured(model: Path, directory: Path) -> Path:
    """A report in which this model was measured: right on 90 of 100 samples."""
    report = report_example.report()
    accuracy = Accuracy(value=0.9, samples=100, correct="1" * 90 + "0" * 10)
    row = msgspec.structs.replace(
        report.measurements[0],
        sha256=sha256_file(model),
        accuracy=accuracy,
        accuracy_drop=0.02,
        accuracy_drop_interval=(-0.01, 0.05),
    )
    directory.mkdir(exist_ok=True)
    return write_report(msgspec.structs.replace(report, measurements=(row,)), directory)[0]


def properties(holder: dict[str, Any]) -> dict[str, str]:
    return {one["name"].removeprefix("edgeconv:"): one["value"] for one in holder["properties"]}


def test_it_has_the_model_its_source_and_what_is_known_of_it(tmp_path: Path) -> None:
    model = int8_tiny(tmp_path / "m")
    manifest = json.loads(model.with_suffix(".json").read_bytes())
    manifest["source_sha256"] = "5" * 64
    model.with_suffix(".json").write_text(json.dumps(manifest))
    embed(model, "c", tmp_path / "out", bom=True)
    document = check_valid((tmp_path / "out/tiny.cdx.json").read_bytes())
    component = document["metadata"]["component"]
    assert component["type"] == "machine-learning-model"
    assert component["hashes"] == [{"alg": "SHA-256", "content": sha256_file(model)}]
    (source,) = component["pedigree"]["ancestors"]
    assert properties(source)["kind"] == "keras"
    assert source["hashes"] == [{"alg": "SHA-256", "content": "5" * 64}]
    assert properties(component["modelCard"])["recipe"] == "int8"
    assert properties(component)["check"] == "none"
    assert str(tmp_path) not in json.dumps(document)
    assert "quantitativeAnalysis" not in component["modelCard"]


def test_it_has_metrics_with_their_intervals_datasets_and_the_verdict(tmp_path: Path) -> None:
    model = int8_tiny(tmp_path / "m")
    report = measured(model, tmp_path / "r")
    sha256 = sha256_file(model)
    finding = Finding(
        model="int8", limit="max-size-bytes", allowed=9000.0, actual=1152, outcome="passed"
    )
    check = Check(
        name="tiny",
        verdict=Verdict(findings=(finding,)),
        stages=(StageState(stage="quantised", model="int8", changed=None, sha256=sha256),),
    )
    write_last_check(check, model, sha256)
    embed(model, "c", tmp_path / "out", bom=True, report=report)
    component = check_valid((tmp_path / "out/tiny.cdx.json").read_bytes())["metadata"]["component"]
    analysis = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    metrics = {one["type"]: one for one in analysis}
    assert metrics["top1"]["value"] == "0.9"
    # Wilson's interval of 90 of 100.
    bounds = metrics["top1"]["confidenceInterval"]
    assert float(bounds["lowerBound"]) == pytest.approx(0.8256, abs=1e-4)
    assert float(bounds["upperBound"]) == pytest.approx(0.9448, abs=1e-4)
    drop = metrics["top1 drop from the trained model"]
    assert drop["confidenceInterval"] == {"lowerBound": "-0.01", "upperBound": "0.05"}
    (data,) = component["modelCard"]["modelParameters"]["datasets"]
    assert data["name"] == "test"
    facts = properties(component)
    assert facts["check"] == "passed"
    assert facts["limit:max-size-bytes"] == "passed: 1152.0 of 9000.0"
    assert facts["report-sha256"] == sha256_file(report)


def test_the_same_gives_the_same_bytes_and_another_verdict_writes_it_anew(tmp_path: Path) -> None:
    model = int8_tiny(tmp_path / "m")
    first = embed(model, "c", tmp_path / "one", bom=True)
    other = embed(int8_tiny(tmp_path / "n"), "c", tmp_path / "two", bom=True)
    assert first == other
    assert (tmp_path / "one/tiny.cdx.json").read_bytes() == (
        tmp_path / "two/tiny.cdx.json"
    ).read_bytes()
    measured(model, model.parent)
    again = embed(model, "c", tmp_path / "one", bom=True)
    assert again.key != first.key
    assert b"performanceMetrics" in (tmp_path / "one/tiny.cdx.json").read_bytes()
    without = embed(model, "c", tmp_path / "one")
    assert not (tmp_path / "one/tiny.cdx.json").exists()
    assert without.key not in (first.key, again.key)


def test_verify_finds_a_bill_of_materials_that_was_changed(tmp_path: Path) -> None:
    embed(int8_tiny(tmp_path / "m"), "c", tmp_path / "out", bom=True)
    assert edgeconv.verify(tmp_path / "out").ok
    bill = tmp_path / "out/tiny.cdx.json"
    bill.write_bytes(bill.read_bytes().replace(b'"int8"', b'"int9"', 1))
    assert not edgeconv.verify(tmp_path / "out").ok


def test_the_command_takes_it_and_refuses_a_report_of_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = int8_tiny(tmp_path / "m")
    arguments = ["embed", str(model), "--target", "c", "-o", str(tmp_path / "out")]
    assert run([*arguments, "--bom"]) == 0
    assert "  tiny.cdx.json\n" in capsys.readouterr().out
    other = write_report(report_example.report(), tmp_path)[0]
    with pytest.raises(InputRefused, match="did not measure"):
        embed(model, "c", tmp_path / "out", bom=True, report=other)
    with pytest.raises(UsageError, match="for the bill of materials"):
        embed(model, "c", tmp_path / "out", report=other)
    assert run([*arguments, "--report", str(other)]) == 2


def test_the_license_is_that_of_the_metadata(tmp_path: Path) -> None:
    content = with_license("Apache-2.0\nand what follows")
    assert license_of(content) == "Apache-2.0"
    model = published(tmp_path / "m", content, recipe="float32")
    embed(model, "c", tmp_path / "out", bom=True, options={"micro": "no"})
    component = check_valid((tmp_path / "out/tiny.cdx.json").read_bytes())["metadata"]["component"]
    assert component["licenses"] == [{"license": {"name": "Apache-2.0"}}]


def test_a_model_without_a_license_or_with_damaged_metadata_has_none() -> None:
    assert license_of(packed(float_model())) == ""
    plain = with_metadata(
        packed(float_model()), ModelMetadata(name="m", description="", inputs=(), outputs=()), {}
    )
    assert license_of(plain) == ""
    content = with_license("MIT")
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        license_of(bytes(changed))
    assert license_of(b"") == license_of(content[:40]) == ""


def with_license(text: str) -> bytes:
    """A model whose metadata, of the standard schema, names a license."""
    import flatbuffers
    from ai_edge_litert.schema_py_generated import BufferT, MetadataT

    from edgeconv.tflite.flatbuffer import serialize

    builder = flatbuffers.Builder()
    said = builder.CreateString(text)
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(5, said, 0)
    builder.Finish(builder.EndObject(), b"M001")
    model = float_model()
    model.buffers.append(BufferT(data=list(builder.Output())))
    model.metadata = [MetadataT(name="TFLITE_METADATA", buffer=len(model.buffers) - 1)]
    return serialize(model)
