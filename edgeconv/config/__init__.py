"""The configuration file: models, data, recipes, runtimes and budgets in one place."""

from edgeconv.config.file import (
    FILE_NAME,
    Config,
    ModelTable,
    find_config,
    limited,
    load_config,
)

__all__ = [
    "FILE_NAME",
    "Config",
    "ModelTable",
    "find_config",
    "limited",
    "load_config",
]
