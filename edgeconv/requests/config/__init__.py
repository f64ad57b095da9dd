"""The configuration file: models, data, recipes, runtimes and budgets in one place."""
