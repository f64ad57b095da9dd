"""A sweep: models, recipes, runtimes and data, measured cell by cell by several processes."""
