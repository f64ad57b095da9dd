"""From the float graph to quantised ones: recipes, calibration, verification."""
