"""The targets of `embed`, one module each; edgeconv/embedding/interface.py says what one has."""
