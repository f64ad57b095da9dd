"""Float models that `benchmarks.quality` trains besides those in `models/`; made for measuring."""
