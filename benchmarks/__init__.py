"""Side-by-side measurements against peers. Each module is a command: python -m benchmarks.NAME."""
