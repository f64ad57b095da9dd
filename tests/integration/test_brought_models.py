"""Models as people have them: open sizes, integers, odd ends, old formats, layers of their own."""

from pathlib import Path

import numpy as np
import pytest
from edge_models import Lite, Made, only

from edgeconv import convert
from edgeconv.types.errors import InputRefused


@pytest.fixture(autouse=True)
def _cache(folder, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))


def samples(root: Path, name: str) -> dict[str, np.ndarray]:
    return dict(np.load(root / f"{name}.npz"))


# Sizes that stay open


@pytest.fixture(scope="module")
def spatial(brought, folder) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))
        source = str(brought / "spatial.npz")
        return Made(
            convert(
                brought / "spatial", out=folder / "sp", to=["float32", "int8"], calibration=source
            )
        )


@pytest.mark.parametrize(("recipe", "tolerance"), [("float32", 1e-5), ("int8", 0.15)])
def test_an_image_of_open_size_answers_as_in_tensorflow(recipe, tolerance, spatial, brought):
    trained = np.load(brought / "spatial.answers.npz")["output_0"]
    made = only(Lite(spatial.file(recipe)).run(**samples(brought, "spatial")))
    assert np.abs(made - trained).max() < tolerance * np.abs(trained).max()


def test_an_integer_model_is_right_at_another_size_than_it_was_calibrated_at(spatial):
    """The float model, whose sizes are open too, is the judge of both."""
    errors = {}
    for size in ((24, 20), (40, 33)):
        image = np.random.default_rng(31).uniform(0, 1, (6, *size, 3)).astype(np.float32)
        exact, made = (
            only(Lite(spatial.file(recipe)).run(image=image)) for recipe in ("float32", "int8")
        )
        assert made.shape == exact.shape == (6, 5)
        errors[size] = np.abs(made - exact).max() / np.abs(exact).max()
    assert errors[40, 33] < min(0.2, 1.5 * errors[24, 20])


def test_open_sizes_are_in_the_file_and_in_its_notes(spatial):
    for recipe in ("float32", "int8"):
        artifact = spatial[recipe]
        assert artifact.signature.inputs[0].shape == (-1, -1, -1, 3)
        assert any(
            note.startswith("input 'image' keeps its dynamic shape [?, ?, ?, 3]")
            for note in artifact.notes
        )
        assert artifact.ladder == ()


def test_a_shape_that_the_samples_do_not_have_is_refused(brought, tmp_path):
    with pytest.raises(InputRefused) as caught:
        convert(
            brought / "spatial",
            out=tmp_path / "out",
            to=["int8"],
            calibration=str(brought / "spatial.npz"),
            shape={"image": (1, 32, 32, 3)},
        )
    assert "has shape (24, 24, 20, 3), the model takes (n, 32, 32, 3)" in caught.value.message


# Inputs and outputs of every kind


@pytest.mark.slow
def test_integers_masks_and_floats_go_in_and_out_by_name(loops, tmp_path):
    rng = np.random.default_rng(33)
    arrays = {
        "zeta": rng.standard_normal((12, 3), np.float32),
        "alpha": rng.integers(-4, 4, (12, 5)),
        "mid": rng.integers(0, 2, (12, 3)).astype(bool),
    }
    # In another order than the model's own, and that of the alphabet.
    np.savez(tmp_path / "all.npz", **{name: arrays[name] for name in ("mid", "zeta", "alpha")})
    made = Made(
        convert(
            loops / "kinds",
            out=tmp_path / "out",
            to=["float32"],
            calibration=str(tmp_path / "all.npz"),
        )
    )
    answers = Lite(made.file("float32")).run(**arrays)
    np.testing.assert_array_equal(answers["a"], ((arrays["alpha"] * 2 + 1) * 2 + 1) * 2 + 1)
    np.testing.assert_array_equal(answers["m"], ~arrays["mid"])
    signs = np.where(arrays["mid"], 2.0, -1.0).astype(np.float32)
    np.testing.assert_allclose(answers["b"], arrays["zeta"] * signs**2, rtol=1e-6)
    types = {spec.name: spec.dtype for spec in made["float32"].signature.inputs}
    assert types == {"zeta": "float32", "alpha": "int64", "mid": "bool"}


@pytest.mark.slow
def test_integers_are_no_booleans_and_may_have_another_width(loops, tmp_path):
    np.savez(
        tmp_path / "bad.npz",
        zeta=np.zeros((9, 3), np.float32),
        alpha=np.zeros((9, 5), np.int32),
        mid=np.zeros((9, 3), np.uint8),
    )
    with pytest.raises(InputRefused) as caught:
        convert(
            loops / "kinds",
            out=tmp_path / "out",
            to=["float32"],
            calibration=str(tmp_path / "bad.npz"),
        )
    assert "input 'mid' is uint8, the model takes bool" in caught.value.message


def test_a_model_that_computes_with_texts_is_refused(brought, tmp_path):
    with pytest.raises(InputRefused, match="does not have: StringLength"):
        convert(brought / "text", out=tmp_path / "out", to=["float32"])
    assert not (tmp_path / "out").exists()


# What they were made with


@pytest.mark.parametrize("name", ["session", "session_resource", "custom", "defaults"])
def test_it_answers_as_it_did_in_tensorflow(name, brought, tmp_path):
    """Of TensorFlow 1 with both kinds of variables, of a layer of one's own, with defaults."""
    made = Made(convert(brought / name, out=tmp_path / "out", to=["float32"]))
    trained = only(dict(np.load(brought / f"{name}.answers.npz")))
    answers = only(Lite(made.file("float32")).run(**samples(brought, name)))
    np.testing.assert_allclose(answers, trained, rtol=1e-5, atol=1e-6)


def test_a_stateful_layer_carries_its_state_as_in_tensorflow(brought, tmp_path):
    """Verified over samples that follow each other, so in order, from one fresh start."""
    made = Made(convert(brought / "stateful", out=tmp_path / "out", to=["float32"]))
    artifact = made["float32"]
    assert artifact.ladder == ()
    (warning,) = artifact.verification.warnings
    assert warning.startswith("ASSIGN_VARIABLE keeps its state between invokes")
    steps = samples(brought, "stateful")["steps"]
    lite = Lite(made.file("float32"))
    assert not np.allclose(only(lite.run(steps=steps[:1])), only(lite.run(steps=steps[:1])))
