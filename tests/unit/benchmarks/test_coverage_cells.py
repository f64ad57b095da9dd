"""From what edgeconv answered to cells, without TensorFlow."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from places import ROOT
from tiny_tflite import float_model, int8_model, packed, packed_with_weights_outside

from benchmarks.coverage.__main__ import main
from benchmarks.coverage.architectures import ARCHITECTURES
from benchmarks.coverage.converting import (
    Ended,
    cells_of,
    float_weight_share,
    silent_fallback,
)
from benchmarks.coverage.drawn import images, rows, series, tokens, videos
from benchmarks.coverage.results import Cell, Row, file_of, read_row, read_rows, write_row
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import (
    RECIPE_NAMES,
    Artifact,
    Conversion,
    Failure,
    FloatOperators,
    OutputError,
    Recipe,
    Signature,
    Verification,
)


def error_of(output: str, snr_db: float) -> OutputError:
    return OutputError(
        output=output,
        snr_db=snr_db,
        max_abs_error=0.1,
        rms_error=0.05,
        rms_reference=1.0,
        cosine=0.99,
    )


def artifact(
    recipe: Recipe, *, warnings: tuple[str, ...] = (), floats: tuple[str, ...] = ()
) -> Artifact:
    return Artifact(
        name="m",
        file=f"{recipe.name}.tflite",
        key="k",
        sha256="s",
        size_bytes=12,
        source_path="m",
        source_kind="saved_model",
        source_sha256="s",
        recipe=recipe,
        engine="tflite",
        signatures=(Signature(key="serving_default", inputs=(), outputs=()),),
        operators=(),
        quantized_weight_share=1.0,
        float16_weight_share=0.0,
        float_operators=floats,
        verification=Verification(
            reference="r",
            samples=8,
            synthetic=False,
            runtime="LiteRT",
            outputs=(error_of("a", 40.5), error_of("b", 12.5)),
            warnings=warnings,
        ),
        notes=("noted",),
    )


def recipe(name: str) -> Recipe:
    return make_recipes([name])[0]


def test_a_file_gives_its_worst_output_and_its_notes(tmp_path):
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    made = artifact(recipe("int8"), warnings=("doubt",))
    ended = Ended(0, Conversion(directory=str(tmp_path), artifacts=(made,)), "")
    cell = cells_of(ended, ["int8"], tmp_path)["int8"]
    assert (cell.outcome, cell.snr_db, cell.engine) == ("converted", 12.5, "tflite")
    assert cell.notes == ("noted", "doubt")
    assert cell.float_weight_share == 0


def test_a_failure_is_a_refusal_of_its_class_and_an_exit_without_one_is_by_its_code(tmp_path):
    failure = Failure(recipe="int8", error="VerificationFailed", message="too far")
    ended = Ended(4, Conversion(directory="d", artifacts=(), failures=(failure,)), "")
    cell = cells_of(ended, ["int8"], tmp_path)["int8"]
    assert (cell.outcome, cell.error, cell.message) == ("refused", "VerificationFailed", "too far")
    refused = cells_of(Ended(3, None, "error: no\n  next: this\n"), RECIPE_NAMES, tmp_path)
    assert list(refused) == list(RECIPE_NAMES)
    assert {(c.error, c.message) for c in refused.values()} == {
        ("InputRefused", "no\n  next: this")
    }
    assert all(c.is_known_refusal for c in refused.values())


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (-11, ""),
        (-9, "error: something"),
        (1, "error: a limit"),
        (0, ""),
        (3, ""),
        (4, "Traceback (most recent call last):\n  …\nKeyError: 'x'"),
    ],
)
def test_a_signal_a_traceback_and_silence_are_crashes(code, error, tmp_path):
    cells = cells_of(Ended(code, None, error), ["int8", "dynamic"], tmp_path)
    assert [cell.outcome for cell in cells.values()] == ["crash", "crash"]


def test_a_recipe_that_is_neither_made_nor_mentioned_is_a_silent_fallback(tmp_path):
    ended = Ended(0, Conversion(directory="d", artifacts=()), "")
    assert cells_of(ended, ["int8"], tmp_path)["int8"].outcome == "fallback"


def test_float_weights_are_counted_wherever_they_are_stored():
    assert float_weight_share(packed(float_model())) == 1.0
    assert float_weight_share(packed_with_weights_outside(float_model())) == 1.0
    assert float_weight_share(packed(int8_model())) == 0.0


def test_an_int8_file_with_float_weights_or_operators_is_a_fallback(tmp_path):
    file = tmp_path / "m.tflite"
    file.write_bytes(packed(float_model()))
    made = artifact(recipe("int8"))
    assert "100% of the weights are float32" in silent_fallback(made, file)
    file.write_bytes(packed(int8_model()))
    assert silent_fallback(made, file) == ""
    floats = artifact(recipe("int8"), floats=("ELU", "NEG"))
    left = tuple(
        FloatOperators(name=name, count=1, layers=("a",), reason="no kernel")
        for name in ("ELU", "NEG")
    )
    said = msgspec.structs.replace(floats, left_in_float=left[1:])
    assert silent_fallback(said, file) == "computes in float: ELU"
    assert silent_fallback(msgspec.structs.replace(floats, left_in_float=left), file) == ""


def test_a_dynamic_file_that_is_the_float_model_must_say_so(tmp_path):
    file = tmp_path / "m.tflite"
    file.write_bytes(packed(float_model()))
    assert silent_fallback(artifact(recipe("dynamic")), file)
    said = artifact(recipe("dynamic"), warnings=("nothing was quantized: it is float32",))
    assert silent_fallback(said, file) == ""
    assert silent_fallback(artifact(recipe("float32")), file) == ""


def test_a_row_comes_back_from_its_file_in_the_table_s_order(tmp_path):
    cell = Cell(recipe="int8", outcome="converted", snr_db=3.5, old_runtime="")
    first = Row(architecture="LSTM (tf_keras .h5)", source="s", state="1", cells=(cell,))
    second = Row(architecture="U-Net", source="s", state="1", skipped="why")
    for row in (second, first):
        write_row(tmp_path, row)
    names = [first.architecture, "not run", second.architecture]
    assert read_rows(tmp_path, names) == [first, second]
    assert read_row(tmp_path, "not run") is None
    assert file_of(tmp_path, first.architecture).name == "LSTM-tf-keras-.h5.json"


def test_no_two_architectures_share_a_file(tmp_path):
    assert len({file_of(tmp_path, name) for name in ARCHITECTURES}) == len(ARCHITECTURES)


def test_an_unknown_architecture_ends_with_2(tmp_path, capsys):
    assert main(["--results", str(tmp_path), "--only", "small CNN,LSMT"]) == 2
    assert "LSMT" in capsys.readouterr().err


def test_the_table_s_process_imports_no_tensorflow():
    code = (
        "import sys, benchmarks.coverage.__main__; "
        "print([m for m in ('tensorflow', 'keras', 'tf_keras') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_samples_are_the_same_every_time_and_differ_from_each_other():
    for draw in (
        lambda: images(6, 16, 20),
        lambda: videos(6, 3, 8, 8),
        lambda: series(6, 12, 4),
        lambda: rows(6, 5),
        lambda: tokens(6, 10, 50),
    ):
        drawn = draw()
        assert np.array_equal(drawn, draw())
        means = drawn.reshape(6, -1).mean(axis=1)
        assert len(np.unique(means)) == 6
    assert images(6, 16, 20).shape == (6, 16, 20, 3)
    assert tokens(6, 10, 50).max() < 50
