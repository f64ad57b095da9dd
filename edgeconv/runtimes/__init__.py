"""Where a model runs: runner.py is the one file that runs it, the rest starts it somewhere."""
