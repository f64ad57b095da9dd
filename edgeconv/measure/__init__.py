"""Measurements of models: size, latency, memory, accuracy."""
