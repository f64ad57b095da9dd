"""What a model would access when it is loaded and run, found without loading it.

It is an allow-list: what is not on it is refused.
"""

from edgeconv.model.source.scanning.refusing import (
    admit_model as admit_model,
    loadable as loadable,
    scan as scan,
    trusted_models as trusted_models,
)
