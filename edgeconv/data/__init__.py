"""Samples for calibration and evaluation: from a SOURCE on the command line to checked arrays.

A SOURCE is `kind:location?option=value&option=value`; see `edgeconv.data.location`. A kind
is one module, named in `edgeconv.plugins.SAMPLE_SOURCES`, with three things in it:

    OPTIONS: frozenset[str]
        The options the kind takes. Every other option is a renaming,
        MODEL_INPUT=ARRAY, and is dealt with outside the kind.
    identity(location, options) -> str
        The hash of the content that `read` would read. Imports no numpy, because an
        up-to-date `convert` asks for nothing else.
    read(location, options, array_names) -> Arrays
        The arrays of these names, None for all, and the labels, as they are stored. A kind
        never casts, scales or drops anything, and does not know the model:
        `load.open_samples` preprocesses and checks. Before it allocates memory, it checks the
        size with `edgeconv.data.memory`.

One that runs a user's code also has `RUNS_CODE = True` and `returned(location, allowance)`, which
runs the code in another child, and whose result `read` takes as `answer`.

`opened_samples` is how the rest of edgeconv gets samples: it reads them in a child, in which
`load.open_samples` runs. `identity` only hashes files, and so needs none.

Nothing here imports numpy until samples are really read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.data.handover import read_samples, write_samples
    from edgeconv.data.location import identity, parse_source, runs_code
    from edgeconv.data.plausibility import input_ranges, set_suspicions
    from edgeconv.data.preprocessing import parse_preprocessing
    from edgeconv.data.reader import opened_samples
    from edgeconv.data.samples import (
        Samples,
        SamplesHash,
        batch_size,
        check_whole_batches,
        sha256_samples,
    )
    from edgeconv.data.split import chosen_indices, seeded_choice, split_calibration
    from edgeconv.data.synthetic import synthetic_samples

__all__ = [
    "Samples",
    "SamplesHash",
    "batch_size",
    "check_whole_batches",
    "chosen_indices",
    "identity",
    "input_ranges",
    "opened_samples",
    "parse_preprocessing",
    "parse_source",
    "read_samples",
    "runs_code",
    "seeded_choice",
    "set_suspicions",
    "sha256_samples",
    "split_calibration",
    "synthetic_samples",
    "write_samples",
]

_MODULES = {
    "handover": ("read_samples", "write_samples"),
    "location": ("identity", "parse_source", "runs_code"),
    "plausibility": ("input_ranges", "set_suspicions"),
    "preprocessing": ("describe", "parse_preprocessing"),
    "reader": ("opened_samples",),
    "samples": ("Samples", "SamplesHash", "batch_size", "check_whole_batches", "sha256_samples"),
    "split": ("chosen_indices", "seeded_choice", "split_calibration"),
    "synthetic": ("synthetic_samples",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"edgeconv.data.{module}"), name)
    raise AttributeError(f"module 'edgeconv.data' has no attribute {name!r}")
