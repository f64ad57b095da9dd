"""Quantization-aware training: a Keras model opened flat, annotated, trained and exported."""
