"""From the float graph to quantized ones: recipes, calibration, verification."""
