"""`convert` with methods, rules and weights of 4 bits: the files, the manifest, the refusals."""

import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from loaded_modules import IDLE, RUN, loaded_by
from tiny_tflite import float_model, packed
from two_dense import FIRST, two_dense

from edgeconv.cli import run
from edgeconv.model.tflite.summary import tensor_specs
from edgeconv.types import Artifact, LayerRule

USAGE = 2


@pytest.fixture
def convert(tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Runs `edgeconv convert` on the tiny dense model; returns the exit code and what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path("tiny.tflite").write_bytes(two_dense())
    samples = np.random.default_rng(4).gamma(1.0, size=(120, 8)).astype(np.float32)
    np.savez("samples.npz", x=samples)
    np.savez("few.npz", x=samples[:20])

    def converted(*arguments: str, data: str = "samples.npz") -> tuple[int, str]:
        words = ["convert", "-qv", "tiny.tflite", "-o", "out", "--calibration", data, *arguments]
        code = run(words)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return converted


def one_dense() -> bytes:
    """A dense layer of 4 to 3, called as the other model's."""
    return packed(float_model(signature=("serving_default", ["x"], ["y"])))


def manifest(recipe: str) -> Artifact:
    return msgspec.json.decode(Path(f"out/tiny.{recipe}.json").read_bytes(), type=Artifact)


def model(recipe: str) -> bytes:
    return Path(f"out/tiny.{recipe}.tflite").read_bytes()


def test_weights_of_4_bits_come_with_the_methods_that_do_good(convert):
    code, said = convert("--to", "int8x4")
    assert code == 0, said
    artifact = manifest("int8x4")
    record = artifact.post_training
    assert artifact.recipe.methods == ("auto",)
    assert record.methods
    assert (record.four_bit, record.eight_bit) == (("dense",), ("dense_1[0]",))
    # Half of those that are held back decide it.
    assert record.held_back == 34
    assert "gained " in said
    assert "on 34 samples held back from calibration" in said
    assert "post-training methods: " + ", ".join(record.methods) in said
    chosen = artifact.verification.outputs[0].snr_db
    assert convert("--to", "int8x4", "--methods", "none")[0] == 0
    record = manifest("int8x4").post_training
    assert record.methods == ()
    assert manifest("int8x4").verification.outputs[0].snr_db < chosen


def test_a_light_layer_of_a_4_bit_recipe_keeps_8_bits_until_a_rule_says_otherwise(convert):
    code, said = convert("--to", "int8x4", "--methods", "none")
    assert code == 0, said
    artifact = manifest("int8x4")
    assert artifact.post_training.eight_bit == ("dense_1[0]",)
    assert "weights of 8 bits in 1 layer, which costs next to nothing: dense_1[0]" in said
    specs = tensor_specs(model("int8x4"), where="it")
    assert (specs["a/w"].dtype, specs["b/w"].dtype) == ("int4", "int8")
    kept_bytes, kept_db = artifact.size_bytes, artifact.verification.outputs[0].snr_db
    code, said = convert("--to", "int8x4", "--methods", "none", "--layer", "*=int4")
    assert (code, "up to date" in said, "of 8 bits" in said) == (0, False, False)
    specs = tensor_specs(model("int8x4"), where="it")
    assert (specs["a/w"].dtype, specs["b/w"].dtype) == ("int4", "int4")
    undone = manifest("int8x4")
    assert kept_bytes <= 1.02 * undone.size_bytes
    assert kept_db > undone.verification.outputs[0].snr_db


def test_the_same_again_is_up_to_date_and_with_other_methods_it_is_not(convert):
    asked = ("--to", "int8", "--methods", "bias-correction")
    assert "up to date" not in convert(*asked)[1]
    first = model("int8")
    assert "up to date" in convert(*asked)[1]
    again = ("convert", "tiny.tflite", "-o", "out", "--calibration", "samples.npz", *asked)
    assert loaded_by(RUN, *again, of=IDLE) == set()
    code, said = convert("--to", "int8", "--methods", "rounding,bias-correction")
    assert (code, "up to date" in said) == (0, False)
    assert model("int8") != first


def test_several_recipes_of_one_run_have_their_own_methods(convert):
    code, said = convert("--to", "float16,int8,weight-only-int4", "--methods", "rounding")
    assert code == 0, said
    assert manifest("float16").post_training is None
    for name in ("int8", "weight-only-int4"):
        record = manifest(name).post_training
        assert record.methods == ("rounding",)


def test_rules_for_layers_reach_the_file_and_the_manifest(convert):
    code, said = convert("--to", "int8", "--layer", "*dense_1*=float32", "--layer", f"{FIRST}=int4")
    assert code == 0, said
    specs = tensor_specs(model("int8"), where="it")
    assert (specs["a/w"].dtype, specs["b/w"].dtype) == ("int4", "float32")
    artifact = manifest("int8")
    assert artifact.recipe.layers == (
        LayerRule(pattern="*dense_1*", precision="float32"),
        LayerRule(pattern=FIRST, precision="int4"),
    )
    assert artifact.float_operators == ("FULLY_CONNECTED",)
    assert "layer rules: " in said


def test_equalization_that_does_not_apply_says_so_and_changes_nothing(convert):
    Path("tiny.tflite").write_bytes(one_dense())
    np.savez("samples.npz", x=np.random.default_rng(5).normal(size=(60, 4)).astype(np.float32))
    assert convert("--to", "int8")[0] == 0
    plain = model("int8")
    code, said = convert("--to", "int8", "--methods", "equalization")
    assert code == 0, said
    assert "equalization does not apply" in said
    assert any("equalization does not apply" in each for each in manifest("int8").details)
    assert model("int8") == plain


def test_equalization_that_applies_changes_the_weights_and_says_how_many(convert):
    assert convert("--to", "int8")[0] == 0
    plain = model("int8")
    code, said = convert("--to", "int8", "--methods", "equalization")
    assert code == 0, said
    assert "1 pairs of layers were equalized" in said
    assert model("int8") != plain


def test_the_configuration_takes_methods_and_rules(convert):
    Path("edgeconv.toml").write_text(
        '[convert]\nmethods = ["bias-correction"]\nlayer = ["*dense_1*=int16x8"]\n'
    )
    code, said = convert("--to", "int8")
    assert code == 0, said
    assert manifest("int8").recipe.methods == ("bias-correction",)
    assert manifest("int8").recipe.layers[0].precision == "int16x8"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ("--layer", "FULLY_CONNECTED=int4", "--layer", "*dense_1*=float32"),
            ("'FULLY_CONNECTED=int4'", "'*dense_1*=float32'", "dense_1[0]"),
        ),
        (("--layer", "CONV_2D=int4"), ("no layer fits the pattern 'CONV_2D'",)),
        (("--layer", "ADD=int4"), ("none of its 1 layers can have weights of 4 bits",)),
        (("--methods", "auto,rounding"), ("auto stands alone",)),
        (("--methods", "adaround"), ("unknown method 'adaround'", "rounding")),
        (("--calibration-range", "histogram"), ("histogram",)),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(convert, arguments, parts):
    code, said = convert("--to", "int8", *arguments)
    assert code == USAGE, said
    for part in parts:
        assert part in said
    assert not Path("out").exists() or not list(Path("out").iterdir())


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--methods", "rounding"), ("rounding needs at least 32 calibration samples", "are 18")),
        (("--calibration-range", "kl"), ("kl needs at least 32 calibration samples", "are 18")),
    ],
)
def test_too_few_samples_say_how_many_are_wanted(convert, arguments, parts):
    code, said = convert("--to", "int8", *arguments, data="few.npz")
    assert code == USAGE, said
    for part in parts:
        assert part in said


@pytest.mark.parametrize("options", [("--methods", "auto"), ("--calibration-range", "auto"), ()])
def test_too_few_samples_for_auto_give_the_plain_file_and_a_note(convert, options):
    code, printed = convert("--to", "int8", *options, data="few.npz")
    assert code == 0, printed
    assert "no post-training methods were tried: 18 calibration samples" in printed
    assert manifest("int8").post_training is None
    automatic = model("int8")
    assert convert("--to", "int8", "--methods", "none", data="few.npz")[0] == 0
    assert model("int8") == automatic


def test_named_methods_without_samples_name_the_option_and_the_way_without(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path("tiny.tflite").write_bytes(two_dense())
    command = ["convert", "-q", "tiny.tflite", "--to", "weight-only-int4"]
    assert run([*command, "--methods", "rounding"]) == USAGE
    said = capsys.readouterr().err
    assert "calibration samples are needed for weight-only-int4" in said
    assert "convert tiny.tflite --to weight-only-int4 --calibration train.npz" in said
    assert "--methods none" in said
    assert run(command) == 0
    assert "methods were tried: there are no calibration samples" in capsys.readouterr().out


def test_the_second_engine_is_not_asked_for_what_it_does_not_have(convert):
    for more in (("--methods", "equalization"), ("--layer", "ADD=float32"), ()):
        recipe = "int8" if more else "int8x4"
        code, said = convert("--to", recipe, "--engine", "tflite", *more)
        assert code in (USAGE, 4), said
        assert "TFLiteConverter" in said


def test_a_screen_has_a_line_a_recipe_and_a_failure_is_told_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tiny.tflite").write_bytes(two_dense())
    samples = np.random.default_rng(4).gamma(1.0, size=(120, 8)).astype(np.float32)
    np.savez("samples.npz", x=samples)
    six = "float32,float16,dynamic,int8,int16x8,weight-only-int4"
    words = ["convert", "-q", "tiny.tflite", "-o", "out", "--calibration", "samples.npz"]
    assert run([*words, "--to", six]) == 0
    brief = capsys.readouterr()
    # Below a row is what needs attention: files of so small a model are larger than float32.
    lines = brief.out.splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) <= 12
    assert brief.err == ""
    assert run([*words, "--to", six, "-v"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(lines)
    assert run([*words, "--to", "float32,int8", "--min-snr-db", "199"]) != 0
    failed = capsys.readouterr()
    assert failed.out.count("failed") == 2
    assert failed.err.count("error: ") == 1
    assert "199" not in failed.out
