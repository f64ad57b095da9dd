"""What a file needs less space for: tables that are used twice, and constants of one number."""

import numpy as np

from edgeconv import convert

ZOO = "keras_zoo:small_files"


def test_a_table_that_is_used_twice_is_stored_once(models, tmp_path):
    np.savez(
        tmp_path / "ids.npz", ids=np.random.default_rng(1).integers(0, 2000, (80, 12), "int32")
    )
    recipes = ["float32", "float16", "dynamic", "weight-only-int8", "int8"]
    made = convert(
        str(models / "tied"),
        out=str(tmp_path / "out"),
        to=recipes,
        calibration=str(tmp_path / "ids.npz"),
    )
    sizes = {each.recipe.name: each.size_bytes for each in made.artifacts}
    assert sizes["float16"] < 0.51 * sizes["float32"]
    for name in ("dynamic", "weight-only-int8", "int8"):
        assert sizes[name] < 0.31 * sizes["float32"]
    for each in made.artifacts:
        assert each.verification.outputs[0].snr_db > 30
    assert made["int8"].float_operators == ()


def test_a_constant_of_one_number_takes_no_space(models, tmp_path):
    random = np.random.default_rng(1)
    np.savez(tmp_path / "x.npz", x=random.normal(size=(40, 256, 128)).astype(np.float32))
    made = convert(
        str(models / "ones"),
        out=str(tmp_path / "out"),
        to=["float32", "dynamic", "int8"],
        calibration=str(tmp_path / "x.npz"),
    )
    assert made.failures == ()
    for each in made.artifacts:
        assert each.size_bytes < 10_000
        # The step of its int8 output is a sixth of the deviation.
        assert each.verification.outputs[0].snr_db > 20


def test_a_note_says_that_a_fixed_batch_makes_dilated_convolutions_smaller(models, tmp_path):
    model = str(models / "dilated.keras")
    (open_batch,) = convert(model, out=str(tmp_path / "open"), to=["float32"]).artifacts
    assert any("--batch 1" in each for each in open_batch.notes)
    (fixed,) = convert(model, out=str(tmp_path / "fixed"), to=["float32"], batch=1).artifacts
    assert fixed.size_bytes < 0.9 * open_batch.size_bytes
    assert not any("--batch 1" in each for each in fixed.notes)
