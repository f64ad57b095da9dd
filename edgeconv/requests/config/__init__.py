"""The configuration file: models, data, recipes, runtimes and budgets in one place.

Names are imported when they are first used: every command looks for a configuration, and to import
the reader takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.requests.config.file import Config, ModelTable, limited, load_config
    from edgeconv.requests.config.reach import FILE_NAME, find_config

__all__ = ["FILE_NAME", "Config", "ModelTable", "find_config", "limited", "load_config"]
_OF_PROJECT = ("FILE_NAME", "find_config")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgeconv.requests.config' has no attribute {name!r}")
    module = "reach" if name in _OF_PROJECT else "file"
    return getattr(import_module(f"edgeconv.requests.config.{module}"), name)
