"""The gate: measurements checked against a budget and the lock."""
