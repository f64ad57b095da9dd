"""What a model would touch when it is loaded and run, found without TensorFlow and before that.

It is an allow-list: what nobody has looked at is refused. Nothing of a model is imported or run.
"""

from edgeconv.source.scanning.refusing import admit_model, refuse_findings, trusted_models
from edgeconv.source.scanning.scanner import scan

__all__ = ["admit_model", "refuse_findings", "scan", "trusted_models"]
