"""The gate: what was measured held against a budget and against what was accepted."""
