"""The target `ios`: what is written, parsed and refused; its script really runs.

No Swift compiler can be had here: the Swift files are parsed by tree-sitter's grammar, and no more.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import captured
from embed_models import HOSTILE, float_tiny, hostile_tiny, int8_tiny, tree
from embed_syntax import mistakes
from wording import fails

from edgeconv import embed
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused

SCRIPT = "Xcode/tiny.sh"
MODEL = "Sources/TinyModel/Resources/tiny.tflite"


def test_the_package_the_tests_and_the_script_are_written(tmp_path):
    artifact = int8_tiny(tmp_path / "model")
    embedded = embed(artifact, "ios", tmp_path / "app")
    files = tree(tmp_path / "app")
    assert sorted(files) == [
        "Package.swift",
        "Sources/TinyModel/Resources/tiny.tflite",
        "Sources/TinyModel/Tiny.swift",
        "Sources/TinyModel/TinyRunners.swift",
        "Tests/TinyModelTests/Resources/tiny_golden.bin",
        "Tests/TinyModelTests/TinyTests.swift",
        "Xcode/tiny.sh",
        "Xcode/tiny_inputs.xcfilelist",
        "Xcode/tiny_outputs.xcfilelist",
        "edgeconv-embedded.json",
    ]
    assert files[MODEL] == artifact.read_bytes()
    assert f'sha256 = "{embedded.model_sha256}"' in files["Sources/TinyModel/Tiny.swift"].decode()
    assert embedded.notes[1].endswith(
        "TensorFlowLiteSwift has no int8, so the Swift code is for LiteRT"
    )


def test_what_package_swift_names_is_there(tmp_path):
    embed(int8_tiny(tmp_path / "model"), "ios", tmp_path / "app")
    said = (tmp_path / "app" / "Package.swift").read_text()
    for kind, folder in (("target", "Sources"), ("testTarget", "Tests")):
        (target,) = re.findall(rf"\.{kind}\(\s*name: \"(\w+)\"", said)
        assert (tmp_path / "app" / folder / target).is_dir()
    for folder, resource in zip(
        ("Sources/TinyModel", "Tests/TinyModelTests"),
        re.findall(r'\.copy\("([^"]+)"\)', said),
        strict=True,
    ):
        assert (tmp_path / "app" / folder / resource).is_file()


@pytest.mark.parametrize("make", [int8_tiny, float_tiny, hostile_tiny])
def test_every_file_of_swift_parses(tmp_path, make):
    labels = tmp_path / "labels.txt"
    labels.write_text('"\\(x)"\n#"b"#\n*/é\n', encoding="utf-8")
    given = "" if make is int8_tiny else labels
    embed(make(tmp_path / "model"), "ios", tmp_path / "app", symbol="guard", labels=given)
    files = sorted((tmp_path / "app").rglob("*.swift"))
    assert [file.name for file in files] == [
        "Package.swift",
        "Guard.swift",
        "GuardRunners.swift",
        "GuardTests.swift",
    ]
    for file in files:
        assert mistakes(file, "tree_sitter_swift") == []
        assert file.read_text().isascii()


def test_names_and_constants_are_those_of_the_manifest(tmp_path):
    steps = Preprocessing(scale=2.0, mean=(1.0, 2.0), std=(0.5,))
    artifact = float_tiny(tmp_path / "model", preprocessing={"": steps}, name=HOSTILE)
    embed(artifact, "ios", tmp_path / "app", symbol="tiny")
    code = (tmp_path / "app" / "Sources/TinyModel/Tiny.swift").read_text()
    assert r"""name = "in\u{22}put'\u{5c}\u{a}*/ ${x} \u{5c}(y)""" in code
    assert "let mean: [Float] = [1.0, 2.0]" in code
    assert "let deviation: [Float] = [0.5]" in code
    assert "stored * 2.0 - mean" in code
    int8 = int8_tiny(tmp_path / "int8")
    embed(int8, "ios", tmp_path / "levels", symbol="tiny")
    code = (tmp_path / "levels" / "Sources/TinyModel/Tiny.swift").read_text()
    assert code.index("scale: Float = 0.5") < code.index("scale: Float = 64.0")
    assert code.index("zeroPoint = -3") < code.index("zeroPoint = 5")


def test_a_model_without_int8_ends_gets_code_for_tensorflowliteswift_too(tmp_path):
    embed(float_tiny(tmp_path / "float"), "ios", tmp_path / "app", option={"runtime": "LiteRT"})
    runners = (tmp_path / "app" / "Sources/TinyModel/TinyRunners.swift").read_text()
    assert "#elseif canImport(TensorFlowLite)" in runners
    embed(int8_tiny(tmp_path / "int8"), "ios", tmp_path / "levels")
    runners = (tmp_path / "levels" / "Sources/TinyModel/TinyRunners.swift").read_text()
    assert "TensorFlowLite" not in runners


def test_the_package_can_depend_on_tensorflowlite(tmp_path):
    options = {"runtime": "TensorFlowLite"}
    embed(float_tiny(tmp_path / "float"), "ios", tmp_path / "app", option=options)
    said = (tmp_path / "app" / "Package.swift").read_text()
    assert '.product(name: "TensorFlowLite", package: "LiteRT")' in said
    with fails(InputRefused):
        embed(int8_tiny(tmp_path / "int8"), "ios", tmp_path / "levels", option=options)


def expanded(file: Path, settings: dict[str, str]) -> list[str]:
    """The paths of an .xcfilelist, as Xcode gives them to the sandbox."""
    lines = file.read_text().splitlines()
    return [re.sub(r"\$\((\w+)\)", lambda m: settings[m.group(1)], line) for line in lines]


@pytest.fixture
def phase(tmp_path) -> tuple[Path, dict[str, str]]:
    """A tree with nothing in it but what the script declares to read, and its build settings."""
    embed(int8_tiny(tmp_path / "model"), "ios", tmp_path / "app")
    source, product = tmp_path / "only declared", tmp_path / "Build Products"
    settings = {
        "TINY_EMBEDDED": str(source),
        "TARGET_BUILD_DIR": str(product),
        "UNLOCALIZED_RESOURCES_FOLDER_PATH": "App.app",
    }
    from_app = {**settings, "TINY_EMBEDDED": str(tmp_path / "app")}
    inputs = tmp_path / "app" / "Xcode" / "tiny_inputs.xcfilelist"
    for original, copy in zip(expanded(inputs, from_app), expanded(inputs, settings), strict=True):
        Path(copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(original, copy)
    (product / "App.app").mkdir(parents=True)
    return source, settings


def ran(source: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(source / SCRIPT)]
    environment = {"PATH": os.environ["PATH"], **settings}
    return captured(command, env=environment)


def test_the_script_reads_and_writes_only_what_the_lists_declare(tmp_path, phase):
    source, settings = phase
    before = tree(source)
    done = ran(source, settings)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tree(source) == before
    outputs = expanded(tmp_path / "app" / "Xcode" / "tiny_outputs.xcfilelist", settings)
    written = tree(tmp_path / "Build Products")
    assert [str(tmp_path / "Build Products" / name) for name in written] == outputs
    assert list(written.values()) == [(tmp_path / "model" / "tiny.int8.tflite").read_bytes()]


def test_the_script_names_a_model_that_changed_as_an_ide_reads_it(tmp_path, phase):
    source, settings = phase
    content = (source / MODEL).read_bytes()
    (source / MODEL).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = ran(source, settings)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{source / MODEL}:1: error: this is not the model")
    assert tree(tmp_path / "Build Products") == {}


def test_the_script_names_a_model_that_is_missing(phase):
    source, settings = phase
    (source / MODEL).unlink()
    done = ran(source, settings)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{source / MODEL}:1: error: the model is not there")


@pytest.mark.parametrize("make", [int8_tiny, float_tiny, hostile_tiny])
def test_whatever_the_swift_code_says_of_a_tensor_is_declared(tmp_path, make):
    """No compiler looks at it here, so at least no name is wrong."""
    embed(make(tmp_path / "model"), "ios", tmp_path / "app", symbol="tiny")
    code = "".join(file.read_text() for file in sorted((tmp_path / "app").rglob("*.swift")))
    declared = {
        name: set(re.findall(r"static (?:let|func) (\w+)", body))
        for name, body in re.findall(r"public enum (\w+) \{(.*?)\n  \}", code, re.DOTALL)
    }
    said = re.findall(r"\b((?:In|Out)put[A-Z0-9]\w*)\.(\w+)", code)
    assert len(said) >= 8
    assert all(member in declared[name] for name, member in said)
    properties = set(re.findall(r"public (?:var|let) (\w+): \[", code))
    assert set(re.findall(r"\binputs\.(\w+)\.withUnsafeBytes", code)) <= properties
