"""`edgeconv debug`: what each layer costs, what helps, and how it is told."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from debug_models import FIRST as FIRST_WEIGHTS
from debug_models import KEY, SAMPLES, two_dense
from golden_files import assert_golden
from tiny_tflite import Graph, int8_model, packed

from edgeconv import cli, convert, debug
from edgeconv.cli.verbs import debug as command
from edgeconv.model.tflite import float_layers
from edgeconv.quantize.debugging import layer_precisions, worst_first
from edgeconv.reporting.pages import text_of
from edgeconv.requests.recipes import make_recipes, parse_rule
from edgeconv.types import (
    CalibrationRecord,
    Debugged,
    DebuggedLayer,
    Execution,
    LayerFix,
    LayerRule,
    OutputError,
    PostTraining,
    Recipe,
)

FIRST, SECOND = "net/first;net/Relu", "net/second"


def layer(name: str, alone: float | None, **changes: Any) -> DebuggedLayer:
    whole = DebuggedLayer(
        layer=name,
        operator="CONV_2D",
        position=1,
        weights=16384,
        weight_bytes=16384,
        precision="int8",
        alone_snr_db=alone,
        inside_snr_db=28.25,
    )
    return msgspec.structs.replace(whole, **changes)


def fix(snr_db: float, size_bytes: int, *rules: str) -> LayerFix:
    return LayerFix(rules=tuple(map(parse_rule, rules)), snr_db=snr_db, size_bytes=size_bytes)


def debugged(**changes: Any) -> Debugged:
    whole = Debugged(
        model="models/flowers.keras",
        signature=KEY,
        recipe=Recipe(name="int8"),
        calibration=CalibrationRecord(
            signature=KEY, source="photos.npz", samples=492, sha256="0" * 64, range="minmax"
        ),
        samples=32,
        runtime="ai-edge-litert 2.3.0",
        float_size_bytes=865912,
        size_bytes=301200,
        outputs=(
            OutputError(
                output="scores",
                snr_db=18.04,
                max_abs_error=0.143,
                rms_error=0.031,
                rms_reference=0.42,
                cosine=0.991,
                argmax_agreement=0.9375,
                span=(0.0, 0.99),
                varies_by=0.98,
                step=1 / 256,
                samples=32,
            ),
        ),
        snr_db=18.04,
        layers=(
            layer("conv", 19.1),
            layer(
                "block_2/depthwise",
                25.0,
                operator="DEPTHWISE_CONV_2D",
                weights=288,
                weight_bytes=288,
            ),
            layer("add", 31.25, operator="ADD", weights=0, weight_bytes=0),
            layer("block_7/project", 60.0, inside_snr_db=None),
            layer("flatten", None, precision="float32", operator="RESHAPE", weights=0),
        ),
        fixes=(
            fix(20.5, 301232, "conv=int16x8"),
            fix(19.0, 301264, "conv=int16x8", "add=int16x8"),
            fix(23.75, 350000, "conv=float32"),
        ),
    )
    return msgspec.structs.replace(whole, **changes)


EXAMPLES = (
    debugged(),
    debugged(
        fixes=(fix(18.1, 301232, "add=float32"),),
        notes=("one word more",),
        post_training=PostTraining(calibration_range="mse", methods=("rounding",)),
        recipe=Recipe(name="int8x4", methods=("auto",)),
    ),
    debugged(layers=(), fixes=(), recipe=Recipe(name="weight-only-int8")),
    debugged(
        snr_db=10.6,
        fixes=(
            LayerFix(
                methods=("auto",),
                post_training=PostTraining(
                    calibration_range="minmax", methods=("equalization", "bias-correction")
                ),
                snr_db=22.0,
                size_bytes=301200,
            ),
            fix(13.6, 300000, "add=int16x8"),
            fix(12.0, 301264, "block_2/depthwise=float32"),
            LayerFix(recipe="int16x8", snr_db=40.0, size_bytes=305000),
        ),
    ),
)


@pytest.mark.parametrize(("width", "name"), [(None, "wide"), (80, "80"), (40, "40")])
def test_what_was_debugged_looks_as_it_did(width, name):
    shown = [text_of(each, top=3, width=width) for each in EXAMPLES]
    assert_golden(f"debugged_{name}.txt", "\n\n\n".join(shown) + "\n")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_line_is_wider_than_asked_and_the_rule_to_use_is_there(width):
    text = text_of(EXAMPLES[0], top=20, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "--layerconv=int16x8" in re.sub(r"\s", "", text)


def test_a_hostile_name_is_shown_harmlessly_and_quoted_for_the_shell():
    hostile = "[bold]x[/]\x1b[31m' \n"
    one = debugged(
        layers=(layer(hostile, 10.0),),
        fixes=(
            LayerFix(
                rules=(LayerRule(pattern="it's $(x)", precision="int8"),), snr_db=30.0, size_bytes=1
            ),
        ),
        model=hostile,
        notes=(hostile,),
    )
    text = text_of(one, top=20)
    assert text.count(r"[bold]x[/]\u001b[31m' \n") == 3
    assert "\x1b" not in text
    (line,) = (line for line in text.splitlines() if "--layer" in line)
    assert shlex.split(line) == ["--layer", "it's $(x)=int8"]


def test_the_shares_are_of_the_error_of_all_layers():
    text = text_of(debugged(layers=(layer("a", 10.0), layer("b", 20.0))), top=1)
    (line,) = (line for line in text.splitlines() if line.startswith("a "))
    assert "91 %" in line
    assert "1 layer more, which cost less: --top 2" in text


def test_what_helps_is_clearly_better_and_nothing_smaller_is_as_good():
    slight, small, worse, large, largest = (
        fix(18.4, 301220, "a=int8"),
        fix(20.5, 301232, "b=int8"),
        fix(20.9, 301264, "c=int8"),
        fix(25.0, 400000, "d=int8"),
        fix(24.0, 500000, "e=int8"),
    )
    assert debugged(fixes=(largest, large, worse, slight, small)).helpful == (large, small)


def test_another_recipe_comes_last_and_hides_no_fix_of_the_same_one():
    other = LayerFix(recipe="int16x8", snr_db=40.0, size_bytes=1000)
    useless = LayerFix(recipe="float16", snr_db=18.2, size_bytes=1000)
    rule = fix(20.5, 301232, "b=int8")
    assert debugged(fixes=(other, useless, rule)).helpful == (rule, other)


def test_the_worst_layer_is_first_and_those_in_float_are_last():
    layers = (layer("a", None), layer("b", 30.0), layer("c", -4.0), layer("d", 30.0))
    layers = (*layers[:3], msgspec.structs.replace(layers[3], inside_snr_db=1.0))
    assert [each.layer for each in worst_first(layers)] == ["c", "d", "b", "a"]


def test_the_rules_that_were_tried_name_their_layers_shortly_and_alone(model, source):
    (plain,) = make_recipes(["int8"], methods=["none"])
    found = debug(model, source, to=plain, execution=Execution(threads=1))
    patterns = {rule.pattern for fix in found.fixes for rule in fix.rules}
    assert patterns == {"second"}
    assert {each.layer: each.tensor for each in found.layers} == {
        "first": FIRST,
        "second": SECOND,
        "cos": "net/cos",
    }


def test_a_rule_that_leaves_no_weights_in_integers_is_not_tried(tmp_path, source):
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32", dynamic=True)
    stored = graph.tensor("w", FIRST_WEIGHTS.shape, "float32", data=FIRST_WEIGHTS)
    dense = graph.computed("dense", (1, 6), "FULLY_CONNECTED", [x, stored, -1], dynamic=True)
    out = graph.computed("relu", (1, 6), "RELU", [dense], dynamic=True)
    path = tmp_path / "model.tflite"
    path.write_bytes(packed(graph.model([x], [out], signature=(KEY, ["x"], ["y"]))))
    (plain,) = make_recipes(["int8"], methods=["none"])
    found = debug(path, source, to=plain, execution=Execution(threads=1))
    rules = {(rule.pattern, rule.precision) for fix in found.fixes for rule in fix.rules}
    assert ("dense", "int16x8") in rules
    assert ("dense", "float32") not in rules


@pytest.mark.parametrize(
    ("name", "rules", "given"),
    [
        ("int8", [], ("int8", "int8", "int8")),
        ("int8", ["COS=float32"], ("int8", "float32", "int8")),
        ("int8", ["FULLY_CONNECTED=int4"], ("int4", "int8", "int4")),
        ("int16x8", ["net/first*=int8"], ("int8", "int16x8", "int16x8")),
        ("int8x4", ["net/second=int8"], ("int4", "int8", "int8")),
        ("weight-only-int4", [], ("int4", "float32", "int8")),
        ("weight-only-int4", ["net/second=int4"], ("int4", "float32", "int4")),
        ("dynamic", [], ("int8", "float32", "int8")),
        ("float16", ["net/second=float32"], ("float16", "float32", "float32")),
    ],
)
def test_the_precision_of_a_layer_is_that_of_its_rule_or_the_recipes(name, rules, given):
    (recipe,) = make_recipes([name], methods=None, layers=[parse_rule(rule) for rule in rules])
    data = two_dense(cosine=True)
    found = layer_precisions(float_layers(data), recipe, len(data))
    assert tuple(found.values()) == given
    assert tuple(found) == (FIRST, "net/cos", SECOND)


@pytest.fixture
def model(tmp_path) -> Path:
    file = tmp_path / "net.tflite"
    file.write_bytes(two_dense(cosine=True))
    return file


@pytest.fixture
def source(tmp_path) -> str:
    np.savez(tmp_path / "samples.npz", x=np.tile(SAMPLES, (2, 1)))
    return str(tmp_path / "samples.npz")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(each) for each in (*arguments, "--threads", 1)])


def test_the_command_names_the_worst_layer_and_a_rule_that_helps(model, source):
    done = run(model, "--calibration", source, "--to", "weight-only-int4", "--methods", "none")
    assert done.exit_code == 0, done.output
    rows = [line.split()[0] for line in done.stdout.splitlines() if "FULLY_CONNECTED" in line]
    assert rows == ["first", "second"]
    assert "--layer first=int8" in done.stdout
    assert "1 layer in float, or not measurable alone" in done.stdout
    assert "trying int8 for first" in done.stderr


def test_the_rule_that_helps_gives_the_file_that_was_measured(model, source):
    found = debug(
        model,
        source,
        to=make_recipes(["weight-only-int4"], methods=["none"])[0],
        execution=Execution(threads=1),
    )
    best = found.helpful[0]
    assert best.rules == (LayerRule(pattern="first", precision="int8"),)
    (with_rule,) = make_recipes(["weight-only-int4"], methods=["none"], layers=best.rules)
    again = debug(model, source, to=with_rule, execution=Execution(threads=1))
    assert (again.snr_db, again.size_bytes) == (best.snr_db, best.size_bytes)
    assert again.snr_db > found.snr_db + 3


def far_from_zero(tmp_path: Path) -> tuple[Path, str]:
    """A dense layer whose inputs have large means, so that rounding its weights shifts y."""
    rng = np.random.default_rng(5)
    graph = Graph()
    x = graph.tensor("x", (1, 64), "float32", dynamic=True)
    weights = graph.tensor(
        "w", (4, 64), "float32", data=rng.normal(size=(4, 64)).astype(np.float32)
    )
    bias = graph.tensor("b", (4,), "float32", data=np.zeros(4, np.float32))
    y = graph.computed("net/dense", (1, 4), "FULLY_CONNECTED", [x, weights, bias], dynamic=True)
    file = tmp_path / "shifted.tflite"
    file.write_bytes(packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"]))))
    samples = 10 + rng.normal(scale=0.1, size=(120, 64))
    np.savez(tmp_path / "far.npz", x=samples.astype(np.float32))
    return file, str(tmp_path / "far.npz")


def test_the_methods_that_help_most_come_first_with_their_figure(tmp_path):
    file, source = far_from_zero(tmp_path)
    done = run(file, "--calibration", source, "--to", "weight-only-int8", "--methods", "none")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if "these help, the best first" in line)
    assert lines[first + 2].strip().startswith("--methods auto  # bias-correction")
    gain = re.search(r"dB \(\+([\d.]+) dB\), [+−]\d+ B:", lines[first + 1])
    assert float(gain[1]) > 10


def test_the_figure_of_the_methods_is_that_of_the_file_that_convert_makes(tmp_path):
    file, source = far_from_zero(tmp_path)
    plain, auto = (
        make_recipes(["weight-only-int8"], methods=[name])[0] for name in ("none", "auto")
    )
    found = debug(file, source, to=plain, execution=Execution(threads=1))
    again = debug(file, source, to=auto, execution=Execution(threads=1))
    best = found.helpful[0]
    assert best.methods == ("auto",)
    assert best.post_training.methods == again.post_training.methods == ("bias-correction",)
    assert (best.snr_db, best.size_bytes) == (again.snr_db, again.size_bytes)
    assert not any(fix.methods for fix in again.fixes)


def test_too_few_samples_for_the_methods_are_noted_and_the_rest_is_tried(model, source):
    (plain,) = make_recipes(["int8"], methods=["none"])
    found = debug(model, source, to=plain, samples=12, execution=Execution(threads=1))
    assert any("no post-training methods were tried" in note for note in found.notes)
    assert not any(fix.methods for fix in found.fixes)
    assert any(fix.rules for fix in found.fixes)
    assert any(fix.recipe == "int16x8" for fix in found.fixes)


def test_json_has_every_layer_and_its_own_error_in_the_file(model, source):
    done = run(model, "--calibration", source, "--json", "-q", "--samples", 60, "--top", 1)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    read = msgspec.json.decode(done.stdout, type=Debugged)
    assert [each.layer for each in read.layers][-1] == "cos"
    by_name = {each.layer: each for each in read.layers}
    assert (by_name["first"].inside_snr_db or 0) > 30
    assert (read.calibration.samples, read.samples) == (60, 32)
    assert (by_name["first"].weights, by_name["first"].weight_bytes) == (48, 48)
    assert by_name["cos"].precision == "float32"
    assert read.size_bytes > 0
    assert "alone_snr_db" in json.loads(done.stdout)["layers"][0]


def test_a_file_that_convert_would_refuse_is_debugged(tmp_path, source):
    file = tmp_path / "net.tflite"
    file.write_bytes(two_dense())
    (recipe,) = make_recipes(["int8"], min_snr_db=60, methods=["none"])
    refused = convert(file, out=tmp_path / "out", to=[recipe], calibration=source)
    assert [failure.error for failure in refused.failures] == ["VerificationFailed"]
    assert debug(file, source, to=recipe).snr_db < 60


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{model}"], 2, "missing option --calibration"),
        (["gone", "--calibration", "{source}"], 3, "gone does not exist"),
        (["{model}", "--calibration", "gone.npz"], 3, "gone.npz does not exist"),
        (["{model}", "--calibration", "{source}", "--samples", "0"], 2, "range x>=1"),
        (["{model}", "--calibration", "{source}", "--signature", "x"], 2, "serving_default"),
        (["{model}", "--calibration", "{source}", "--signature", "all"], 2, "one signature"),
        (["{model}", "--calibration", "{source}", "--to", "float32"], 2, "nothing to debug"),
        (["{model}", "--calibration", "{source}", "--to", "qat"], 2, "qat trains"),
        (["{model}", "--calibration", "{source}", "--to", "int9"], 2, "did you mean 'int8'"),
        (["{model}", "--calibration", "{source}", "--to", "int8,dynamic"], 2, "one recipe at a"),
        (["{model}", "--calibration", "{source}", "--layer", "nt/first=int8"], 2, "no layer fits"),
        (["{quantised}", "--calibration", "{source}"], 3, "quantized already"),
        (["--help"], 0, "Show which layers of MODEL lose most"),
    ],
)
def test_the_program_ends_with_the_documented_exit_code_and_loads_no_tensorflow(
    arguments, code, says, model, source, tmp_path, monkeypatch, capsys
):
    quantised = tmp_path / "quantised.tflite"
    quantised.write_bytes(packed(int8_model()))
    given = [each.format(model=model, source=source, quantised=quantised) for each in arguments]
    monkeypatch.chdir(tmp_path)
    # Another test may have loaded it.
    was_loaded = "tensorflow" in sys.modules
    assert cli.run(["debug", *given]) == code
    assert ("tensorflow" in sys.modules) is was_loaded
    assert says in " ".join("".join(capsys.readouterr()).split())
