"""Annotated models compute what their files will, layer by layer of many kinds.

The models, and how each is annotated and converted, are in qat_zoo.py.
"""

import msgspec
import pytest
from forking import output_of
from places import SUPPORT
from qat_zoo import Result

pytestmark = pytest.mark.slow

PARTLY_FLOAT = {"recurrent", "elu", "selected", "unlike_columns"}
CONFIG_OF_OURS = "quantized with a config of edgeconv's"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("qat")
    output_of(SUPPORT / "qat_zoo.py", root)
    return msgspec.json.decode((root / "results.json").read_bytes(), type=dict[str, Result])


def test_the_emulation_is_close_to_the_float_model_and_the_file_to_the_emulation(results):
    assert len(results) == 21
    # Where ranges meet, as at a maximum of two, the file rounds once more.
    far = {
        name: one
        for name, one in results.items()
        if not (one.snr_db > 25 and one.file_steps <= 4 and one.file_rms_steps <= 1)
    }
    assert far == {}


def test_nothing_computes_in_float(results):
    for name in results.keys() - PARTLY_FLOAT:
        assert results[name].doubt == "", name
        assert "float" not in {each.treatment for each in results[name].layers.values()}, name


def test_a_convolution_its_batch_normalisation_and_its_relu_are_one_operator(results):
    assert results["mobile"].operators == {
        "QUANTIZE": 1,
        # The input's scaling.
        "MUL": 1,
        # The depthwise one and the first half of the separable one.
        "DEPTHWISE_CONV_2D": 2,
        "CONV_2D": 3,
        # That of the scaling, and the layer.
        "ADD": 2,
        "MEAN": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
        "DEQUANTIZE": 1,
    }


def test_layers_say_who_knew_how_to_quantise_them(results):
    layers = results["mobile"].layers
    ours = {name for name, one in layers.items() if one.treatment == CONFIG_OF_OURS}
    assert ours == {"rescaling"}
    assert {one.treatment for name, one in layers.items() if name not in ours} == {"quantized"}
    assert "Conv1D" in {
        one.kind for one in results["sequence"].layers.values() if one.treatment == CONFIG_OF_OURS
    }


def test_what_acts_in_training_only_is_left_out_and_said_so(results):
    assert results["mobile"].layers["dropout"].reason.startswith("left out")


def test_inputs_and_outputs_keep_their_names(results):
    assert (results["mobile"].inputs, results["mobile"].outputs) == (("image",), ("probs",))
    assert (results["shared"].inputs, results["shared"].outputs) == (("a", "b"), ("y",))


def test_a_hard_swish_is_one_operator_however_it_was_written(results):
    operators = results["hard_swish"].operators
    assert operators["HARD_SWISH"] == 2
    assert not {"MUL", "ADD", "RELU6"} & operators.keys()


def test_a_batch_normalisation_without_a_convolution_before_it_is_one_operator(results):
    assert results["before_norm"].operators["DEPTHWISE_CONV_2D"] == 2
    assert not {"MUL", "ADD"} & results["before_norm"].operators.keys()


def test_one_after_a_dense_layer_goes_into_its_kernel(results):
    # The one after an activation cannot.
    assert results["dense"].operators["FULLY_CONNECTED"] == 3
    assert results["dense"].operators["DEPTHWISE_CONV_2D"] == 1


def test_a_tower_that_inputs_share_has_its_batch_normalisations_in_its_kernels(results):
    operators = results["tower"].operators
    assert (operators["CONV_2D"], operators["DEPTHWISE_CONV_2D"]) == (2, 2)
    assert operators["FULLY_CONNECTED"] == 2
    assert not {"MUL", "ADD"} & operators.keys()
    # With a normalization of their own, two uses are two kernels.
    assert results["half_shared"].operators["DEPTHWISE_CONV_2D"] == 2


def test_a_number_times_a_tensor_plus_a_number_are_their_operators(results):
    operators = results["scaled"].operators
    assert (operators["MUL"], operators["ADD"], operators["FULLY_CONNECTED"]) == (1, 1, 2)
    assert "DEPTHWISE_CONV_2D" not in operators


def test_an_operation_is_called_as_it_is(results):
    operators = results["operations"].operators
    called = {"ABS", "MINIMUM", "PACK", "SELECT_V2", "SUM", "BATCH_MATMUL"}
    assert called < operators.keys()


def test_columns_of_different_range_are_normalised_in_float(results):
    norm = results["unlike_columns"].layers["norm"]
    assert norm.treatment == "float"
    assert "differ too much in range" in norm.reason
    assert "FULLY_CONNECTED" in results["unlike_columns"].operators


def test_a_dilated_convolution_is_one_operator(results):
    assert not {"SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"} & results["dilated"].operators.keys()
    assert "SPACE_TO_BATCH_ND" not in results["sequence"].operators


def test_layers_without_an_integer_form_are_named_with_the_reason(results):
    layers = results["recurrent"].layers
    assert {name for name, one in layers.items() if one.treatment == "float"} == {"norm", "gru"}
    assert "loop over time" in layers["gru"].reason
    assert layers["dense"].treatment == "quantized"
    assert "'elu'" in results["elu"].layers["elu"].reason


def test_only_the_layers_asked_for_are_quantised(results):
    treated = {name: one.treatment for name, one in results["selected"].layers.items()}
    assert treated == {
        "first": "float",
        "second": "quantized",
        "flat": "quantized",
        "head": "quantized",
    }
