"""What a row of the coverage table is made from."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.coverage.arch_shared import SHARED


class Architecture(NamedTuple):
    """One row of the table.

    `source` is what the model is saved as, and by what. `options` are further ones of
    `edgeconv convert`. `samples` are the names of its samples' files by signature, "" for the
    only one. `refusal` says why it would be wrong to convert this model; it is ""
    for one that ought to convert. `needs` is a module without which it cannot be built.
    """

    build: Callable[[Path], Path]
    source: str
    options: tuple[str, ...] = ()
    refusal: str = ""
    needs: str = ""
    samples: Mapping[str, str] = MappingProxyType({"": "calibration"})

    def missing(self) -> str:
        """Why it cannot be built here; "" where it can."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if self.source.startswith("shared") and not SHARED.is_dir():
            return "the data sets are not beside the checkout"
        return ""
