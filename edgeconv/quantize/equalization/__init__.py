"""Cross-layer equalization: the channels of two layers scaled alike, in the float graph."""
