"""How the outputs of other kernels are said to differ."""

import numpy as np
from wording import says

from edgeconv.measure.bench import difference
from edgeconv.types import TensorSpec


def test_equal_values_and_nans_are_identical():
    values = {"y": np.array([[1.0, np.nan], [2.0, 3.0]], np.float32)}
    text = difference(values, {"y": values["y"].copy()})
    says(text)


def test_a_quantized_output_differs_in_levels_and_a_float_one_in_its_unit():
    here = {"q": np.array([[0.5, 1.0]], np.float32), "y": np.array([[1.0]], np.float32)}
    there = {"q": np.array([[0.5, 2.0]], np.float32), "y": np.array([[1.25]], np.float32)}
    specs = [TensorSpec(name="q", shape=(1, 2), dtype="int8", scale=(0.5,), zero_point=(0,))]
    says(difference(there, here, specs))
