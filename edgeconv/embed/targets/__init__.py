"""The targets of `embed`, one module each; edgeconv/embed/interface.py says what one has."""
