"""The targets of `embed`, one module each; see edgeconv/embedding/interface.py."""
