"""Float models that `benchmarks.quality` trains in addition to those in `models/`."""
