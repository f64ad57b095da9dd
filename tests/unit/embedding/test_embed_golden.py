import msgspec
import numpy as np
import pytest
from embed_models import float_tiny, int8_tiny, planned, published
from tiny_tflite import BIASES, WEIGHTS, Graph, packed
from wording import fails

from edgeconv.embedding.embedding import make_embedding
from edgeconv.embedding.golden import GoldenRun, _refuse_other_answers, golden_samples, run_samples
from edgeconv.types import Allowance, OutputError, Preprocessing, Verification
from edgeconv.types.errors import InputRefused, ToolFailed


def embedding(file, tmp_path, **options):
    return make_embedding(planned(file, "c", tmp_path / "out", **options))


def arrays(parts, dtype):
    return [np.frombuffer(part, dtype) for part in parts]


def test_a_golden_vector_is_what_the_model_computes(tmp_path):
    made = embedding(float_tiny(tmp_path), tmp_path, vectors=3)
    assert len(made.golden.vectors) == 3
    assert made.golden.source == "synthetic"
    assert made.inputs[0].fixed == (1, 4)
    assert made.inputs[0].is_open
    for vector in made.golden.vectors:
        (x,), (y,) = arrays(vector.inputs, "<f4"), arrays(vector.outputs, "<f4")
        np.testing.assert_allclose(y, WEIGHTS @ x + BIASES, rtol=1e-5)
    assert made.golden.vectors[0] != made.golden.vectors[1]


def test_integers_are_levels_and_may_differ_by_a_few(tmp_path):
    made = embedding(int8_tiny(tmp_path), tmp_path, vectors=2)
    for vector in made.golden.vectors:
        (x,), (y,) = arrays(vector.inputs, "i1"), arrays(vector.outputs, "i1")
        value = (WEIGHTS.astype(float) @ ((x + 3) * 0.5) + BIASES) / 64 + 5
        assert np.abs(y - value).max() <= 0.51
    assert made.golden.tolerances[0].steps == 4
    assert (made.outputs[0].scale, made.outputs[0].zero_point) == (64.0, 5)


def test_outputs_that_are_no_numbers_loosen_no_tolerance(tmp_path):
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("LOG", [x], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    file = published(tmp_path / "m", packed(model), recipe="float32")
    np.savez(tmp_path / "d.npz", x=np.array([[-1, 0, 1, np.e]], np.float32))
    made = embedding(file, tmp_path, data=str(tmp_path / "d.npz"), vectors=1)
    (y_given,) = arrays(made.golden.vectors[0].outputs, "<f4")
    np.testing.assert_allclose(y_given, [np.nan, -np.inf, 0, 1], atol=1e-6)
    assert made.golden.tolerances[0].absolute == pytest.approx(1.1e-4, rel=1e-3)


def test_samples_are_prepared_as_the_manifest_says(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.full((4, 4), 200, np.uint8))
    file = float_tiny(tmp_path / "m", preprocessing={"": Preprocessing(scale=0.01, mean=(1.0,))})
    made = embedding(file, tmp_path, data=str(tmp_path / "d.npz"), vectors=9)
    # There are no more samples than four, and the text says no path.
    assert len(made.golden.vectors) == 4
    assert made.golden.source == "npz"
    (x,) = arrays(made.golden.vectors[0].inputs, "<f4")
    np.testing.assert_allclose(x, 1.0, rtol=1e-6)
    assert made.inputs[0].preprocessing == Preprocessing(scale=0.01, mean=(1.0,))


def test_the_same_request_gives_the_same_vectors(tmp_path):
    file = float_tiny(tmp_path)
    assert embedding(file, tmp_path).golden == embedding(file, tmp_path).golden


def relu(directory, batch):
    """RELU of so many samples at once."""
    graph = Graph()
    x = graph.tensor("x", (batch, 3), "float32")
    y = graph.computed("y", (batch, 3), "RELU", [x])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    return published(directory, packed(model), recipe="float32")


def test_a_fixed_batch_is_one_vector(tmp_path):
    made = embedding(relu(tmp_path, 2), tmp_path, vectors=3)
    assert [len(vector.inputs[0]) for vector in made.golden.vectors] == [24] * 3
    for vector in made.golden.vectors:
        (x_values,), (y_values,) = arrays(vector.inputs, "<f4"), arrays(vector.outputs, "<f4")
        np.testing.assert_array_equal(y_values, np.maximum(x_values, 0))


def test_too_few_samples_for_one_batch_are_refused(tmp_path):
    file = relu(tmp_path / "m", 4)
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 3), np.float32))
    with fails(InputRefused):
        embedding(file, tmp_path, data=str(tmp_path / "d.npz"))


def test_labels_of_the_data_are_those_of_the_output(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\n")
    made = embedding(int8_tiny(tmp_path), tmp_path, labels=labels)
    assert made.labels == ("a", "b", "c")
    assert made.labeled == 0
    assert embedding(int8_tiny(tmp_path), tmp_path).labeled is None


def test_where_quantisation_cost_more_than_a_step_twice_that_is_allowed(tmp_path):
    error = OutputError(
        output="y", snr_db=30.0, max_abs_error=160.0, rms_error=1.0, rms_reference=1.0, cosine=1.0
    )
    checked = Verification(
        reference="float", samples=1, synthetic=False, runtime="litert", outputs=(error,)
    )
    made = embedding(int8_tiny(tmp_path / "i", verification=checked), tmp_path)
    assert made.golden.tolerances[0].steps == 4 * 5
    np.savez(tmp_path / "d.npz", x=np.ones((3, 4), np.float32))
    data = str(tmp_path / "d.npz")
    made = embedding(int8_tiny(tmp_path / "i", verification=checked), tmp_path, data=data)
    assert made.golden.tolerances[0].steps == 5
    assert embedding(int8_tiny(tmp_path), tmp_path, data=data).golden.tolerances[0].steps == 1
    plain = embedding(float_tiny(tmp_path / "f", verification=checked), tmp_path)
    assert plain.golden.tolerances[0].absolute < 0.1


def test_a_dynamic_model_is_held_less_exactly(tmp_path):
    file = float_tiny(tmp_path)
    strict = embedding(file, tmp_path).golden.tolerances[0].absolute
    manifest = file.with_suffix(".json")
    content = msgspec.json.decode(manifest.read_bytes())
    content["recipe"]["name"] = "dynamic"
    manifest.write_bytes(msgspec.json.encode(content))
    loose = embedding(file, tmp_path).golden.tolerances[0].absolute
    assert 100 < loose / strict < 400


@pytest.mark.parametrize("make", [float_tiny, int8_tiny])
def test_kernels_that_compute_something_else_give_no_golden_vectors(tmp_path, make):
    plan = planned(make(tmp_path), "c", tmp_path / "out")
    samples, _ = golden_samples(plan, allow_code=False, allowance=Allowance())
    here = run_samples(plan, samples, Allowance())
    (name, values), *_ = here.outputs.items()
    step = 1 if values.dtype.kind == "i" else np.float32(1e-6)
    near = GoldenRun(here.inputs, {name: values + step}, here.batch)
    _refuse_other_answers(near, here, plan)
    for wrong in (values[:, :1], values * 0 + 90, values + np.float32(np.nan)):
        far = GoldenRun(here.inputs, {name: wrong}, here.batch)
        with fails(ToolFailed):
            _refuse_other_answers(far, here, plan)
