"""Measurements and what is judged by them: size, latency, memory, accuracy, the gate."""
