"""Cross-layer equalisation: the channels of two layers scaled alike, in the float graph."""
