"""What `embed --target android` wrote, compiled by kotlinc and run on the JVM.

Android's classes and the signatures of the Interpreter are stubs in tests/kotlin_stubs; behind the
Interpreter runs LiteRT, in Python. The Gradle plugin is compiled against the signatures that it
uses of Gradle and of the Android Gradle plugin; the actions of its tasks run, without Gradle.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from embed_models import HOSTILE, float_tiny, hostile_tiny, int8_tiny, published, tree
from embed_updates import model
from embed_web_models import fixed_float_model, three_inputs_model, uint8_model
from places import KOTLIN_STUBS, SUPPORT
from tiny_tflite import BIASES, WEIGHTS, Graph, packed

from edgeconv import embed
from edgeconv.types import Preprocessing

Run = Callable[..., list[str]]

pytestmark = pytest.mark.slow
COMPILER = "kotlin-compiler@2.4.20"
STEPS = Preprocessing(scale=2.0, mean=(1.0, 2.0, 3.0, 4.0), std=(0.5,))
LABELS = ('a "b"\\', "$x ${y}", HOSTILE.replace("\n", " "))


@pytest.fixture(scope="module")
def kotlinc(tmp_path_factory) -> Path:
    """The directory of the Kotlin compiler, which npm has."""
    for program in ("npm", "java"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program} here, which the Kotlin compiler needs")
    directory = tmp_path_factory.mktemp("kotlin")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", COMPILER]
    done = captured(command, cwd=directory)
    if done.returncode:
        pytest.skip(f"the Kotlin compiler cannot be installed here: {done.stderr[-200:]}")
    return directory / "node_modules" / "kotlin-compiler"


def bool_and_wide_model() -> bytes:
    """not = a < b in bool; n + n in int64, s + s in int16, without any signature."""
    graph = Graph()
    a = graph.tensor("a", (1, 3), "float32")
    b = graph.tensor("b", (1, 3), "float32")
    n = graph.tensor("n", (1, 2), "int64")
    less, wide = graph.tensor("less", (1, 3), "bool"), graph.tensor("wide", (1, 2), "int64")
    graph.operator("LESS", [a, b], [less])
    graph.operator("ADD", [n, n], [wide])
    return packed(graph.model([b, n, a], [wide, less]))


@pytest.fixture(scope="module")
def embedded(tmp_path_factory) -> Path:
    """A directory of embeddings, by symbol."""
    to, models = tmp_path_factory.mktemp("embedded"), tmp_path_factory.mktemp("models")
    labels = models / "labels.txt"
    labels.write_text("\n".join(LABELS), encoding="utf-8")
    artifacts = {
        "levels": int8_tiny(models / "levels"),
        "floats": float_tiny(models / "floats", preprocessing={"": STEPS}),
        "object": hostile_tiny(models / "object"),
        "bytes": published(models / "bytes", uint8_model()),
        "order": published(models / "order", three_inputs_model()),
        "plain": published(models / "plain", fixed_float_model(), recipe="float32"),
        "wide": published(models / "wide", bool_and_wide_model(), recipe="float32"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(models / "cache"))
        for symbol, artifact in artifacts.items():
            given = str(labels) if symbol == "floats" else ""
            options = {"plugin": "yes"} if symbol == "levels" else {}
            embed(artifact, "android", to / symbol, symbol=symbol, labels=given, option=options)
    return to


@pytest.fixture(scope="module")
def run(kotlinc, embedded, tmp_path_factory) -> Run:
    """Compile all that was generated, warnings being errors, and give what runs it."""
    jar = tmp_path_factory.mktemp("classes") / "all.jar"
    generated = [*embedded.glob("*/src/**/*.kt"), *embedded.glob("levels/gradle-plugin/**/*.kt")]
    receiver = "plugin:org.jetbrains.kotlin.samWithReceiver:annotation"
    compiler = [
        # For half a minute of work the JVM's second compiler costs more than it gives.
        *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-cp", str(kotlinc / "lib" / "kotlin-compiler.jar")),
        *("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-reflect", "-Werror"),
        *("-kotlin-home", str(kotlinc), "-jvm-target", "11", "-Xexplicit-api=strict"),
        f"-Xplugin={kotlinc / 'lib' / 'sam-with-receiver-compiler-plugin.jar'}",
        *("-P", f"{receiver}=org.gradle.api.HasImplicitReceiver", "-d", str(jar)),
        *map(str, [*sorted(generated), *sorted(KOTLIN_STUBS.glob("*.kt"))]),
    ]
    done = captured(compiler)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""

    def ran(symbol: str, *arguments: str, stdin: str = "", check: bool = True) -> list[str]:
        path = os.pathsep.join([str(jar), str(kotlinc / "lib" / "kotlin-stdlib.jar")])
        java = [
            *("java", "-XX:TieredStopAtLevel=1", "-cp", path, f"-Dembedded={embedded / symbol}"),
            *(f"-Dpython={sys.executable}", f"-Dinterpreter={SUPPORT / 'interpreter_process.py'}"),
            *("harness.HarnessKt", *map(str, arguments)),
        ]
        found = captured(java, input=stdin)
        assert found.returncode == 0 or not check, found.stderr
        return (found.stdout if check else found.stderr).splitlines()

    return ran


PASSED = ["passed anotherModelIsRefused", "passed answersAsLiteRtDid"]


@pytest.mark.parametrize(
    ("symbol", "test"),
    [
        ("levels", "edgeconv.levels.LevelsTest"),
        ("floats", "edgeconv.floats.FloatsTest"),
        ("object", "edgeconv.object_.ObjectTest"),
        ("bytes", "edgeconv.bytes.BytesTest"),
        ("order", "edgeconv.order.OrderTest"),
        ("plain", "edgeconv.plain.PlainTest"),
        ("wide", "edgeconv.wide.WideTest"),
    ],
)
def test_the_generated_test_passes_on_litert(run, symbol, test):
    assert run(symbol, "tests", test) == PASSED


def test_the_generated_test_fails_for_a_model_that_was_changed_after_embedding(run, embedded):
    model = embedded / "levels" / "src" / "main" / "assets" / "levels.tflite"
    content = model.read_bytes()
    try:
        model.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
        said = run("levels", "tests", "edgeconv.levels.LevelsTest", check=False)
    finally:
        model.write_bytes(content)
    message = "levels.tflite is not the model that this code was made for: run edgeconv embed again"
    assert any(message in line for line in said)


def test_typed_arrays_of_levels_are_quantised_run_and_dequantised(run):
    values = ["0.24", "0.25", "0.75", "-1.0", "1e9", "-1e9", "NaN", "62.9"]
    lines = run("levels", "levels", stdin="\n".join(values))
    # scale 0.5, zero point -3; ties to even.
    assert lines[0] == "-3 -3 -1 -5 127 -128 -128 123"
    assert lines[1] == "0.0 0.0 1.0 -1.0 65.0 -62.5 -62.5 63.0"
    real = np.array([0.0, 0.0, 1.0, -1.0]) @ WEIGHTS.T.astype(float) + BIASES * 2 * 0.5
    expected = np.rint(real / 64.0) + 5
    assert np.abs(np.array(lines[2].split(), float) - expected).max() <= 1
    assert np.array(lines[3].split(), float) == pytest.approx(
        (np.array(lines[2].split(), float) - 5) * 64.0
    )


def test_typed_arrays_of_unsigned_bytes(run):
    levels, back, scores = run("bytes", "bytes")
    # scale 0.5, zero point 128.
    assert levels == "0 128 255 255"
    assert back == "-64.0 0.0 63.5 63.5"
    assert np.array(scores.split(), float) == pytest.approx([-100.0, 0.0, 127.0, 127.0], abs=1)


def test_typed_arrays_are_in_the_order_of_the_signature(run):
    assert run("order", "order") == ["-8 10", "11.0 22.0 33.0"]


def test_typed_arrays_of_64_bits_and_booleans_without_a_signature(run):
    assert run("wide", "wide") == [f"{1 << 41} -2", "true false true"]


def test_floats_are_normalised_and_run_and_labels_are_what_the_file_says(run):
    lines = run("floats", "floats")
    normal = (np.arange(4) * 2.0 - np.arange(1, 5)) / 0.5
    assert np.array(lines[0].split(), float) == pytest.approx(normal)
    answer = normal @ WEIGHTS.T.astype(float) + BIASES
    assert np.array(lines[1].split(), float) == pytest.approx(answer)
    assert np.array(lines[2].split(), float) == pytest.approx(BIASES)
    assert lines[3] == str([label.encode().hex() for label in LABELS]).replace("'", "")
    assert lines[4] == "scale=2&mean=1,2,3,4&std=0.5"


def test_wrong_answers_and_wrong_arrays_are_said(run):
    differs, short, missing, size = run("floats", "broken")
    assert differs.startswith("vector 1: y[0] is ")
    assert "may lie between them" in differs
    assert short.startswith("floats_golden.bin has 3 bytes, not ")
    assert missing.startswith("java.io.FileNotFoundException")
    assert size == "x takes 4 values, not 5"


def test_an_asset_that_was_compressed_says_what_the_build_file_lacks(run):
    assert run("floats", "compressed") == [
        "java.lang.IllegalStateException: floats.tflite is compressed: "
        'androidResources { noCompress += "tflite" } in the app\'s build file'
    ]


def test_a_model_that_came_later_runs_in_the_place_of_the_embedded_one(run, tmp_path, embedded):
    update = tmp_path / "update.tflite"
    update.write_bytes(model(weights=-WEIGHTS))
    sha256 = hashlib.sha256(update.read_bytes()).hexdigest()
    record = json.loads((embedded / "levels" / "edgeconv-embedded.json").read_text())
    known = record["interface_id"]
    # (W (0, 0, 0, 1) + b) / 64, with the weights the other way round.
    expected = " ".join(str(int(v)) for v in np.rint((BIASES - WEIGHTS[:, 3]) / 64.0) + 5)
    assert run("levels", "update", update, known, sha256) == [expected]
    assert run("levels", "update", update, known, "00") == [
        "the model is not the one that was announced"
    ]
    assert run("levels", "update", update, "0", sha256) == [
        "the model has another interface than this code was made for"
    ]


def test_the_tasks_of_the_gradle_plugin_convert_and_embed(run, tmp_path):
    edgeconv = Path(sys.executable).parent / "edgeconv"
    source = float_tiny(tmp_path / "source")
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    # What a build with another recipe left behind is not what is embedded.
    int8 = int8_tiny(tmp_path / "converted")
    run("floats", "build", str(edgeconv), str(source), str(tmp_path))
    assert not int8.exists()
    assert sorted(tree(tmp_path / "kotlin")) == ["com/example/built/Built.kt"]
    assert sorted(tree(tmp_path / "assets")) == ["built.tflite"]
    written = tree(tmp_path / "embedded")
    assert "build.gradle.kts" not in written
    assert written["src/main/assets/built.tflite"] == tree(tmp_path / "assets")["built.tflite"]
