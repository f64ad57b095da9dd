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
        `source.open_samples` preprocesses and checks. Before it allocates memory, it checks the
        size with `edgeconv.data.arrays`.

One that runs a user's code also has `RUNS_CODE = True` and `returned(location, allowance)`, which
runs the code in another child, and whose result `read` takes as `answer`.

`opened_samples` is how the rest of edgeconv gets samples: it reads them in a child, in which
`source.open_samples` runs. `identity` only hashes files, and so needs none.

Nothing here imports numpy until samples are really read.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.data.checks import LabelUse as LabelUse
    from edgeconv.data.evaluation import (
        check_whole_batches as check_whole_batches,
        chosen_indices as chosen_indices,
        seeded_choice as seeded_choice,
        split_calibration as split_calibration,
        synthetic_inputs as synthetic_inputs,
        synthetic_samples as synthetic_samples,
    )
    from edgeconv.data.location import (
        identity as identity,
        parse_source as parse_source,
        runs_code as runs_code,
    )
    from edgeconv.data.preprocessing import parse_preprocessing as parse_preprocessing
    from edgeconv.data.reader import opened_samples as opened_samples
    from edgeconv.data.samples import (
        Samples as Samples,
        SamplesHash as SamplesHash,
        batch_size as batch_size,
        input_ranges as input_ranges,
        read_samples as read_samples,
        set_suspicions as set_suspicions,
        sha256_samples as sha256_samples,
        write_samples as write_samples,
    )


_MODULES = {
    "checks": ("LabelUse",),
    "evaluation": (
        *("check_whole_batches", "chosen_indices", "seeded_choice", "split_calibration"),
        *("synthetic_inputs", "synthetic_samples"),
    ),
    "location": ("identity", "parse_source", "runs_code"),
    "preprocessing": ("describe", "parse_preprocessing"),
    "reader": ("opened_samples",),
    "samples": (
        *("Samples", "SamplesHash", "batch_size", "input_ranges", "read_samples"),
        *("set_suspicions", "sha256_samples", "write_samples"),
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"edgeconv.data.{module}"), name)
    raise AttributeError(f"module 'edgeconv.data' has no attribute {name!r}")
