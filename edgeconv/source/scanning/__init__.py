"""What a model would access when it is loaded and run, found without loading it.

It is an allow-list: what is not on it is refused.
"""

from edgeconv.source.scanning.refusing import admit_model, refuse_findings, trusted_models
from edgeconv.source.scanning.scanner import scan

__all__ = ["admit_model", "refuse_findings", "scan", "trusted_models"]
