"""Ranges of activations narrower than minimum and maximum."""
