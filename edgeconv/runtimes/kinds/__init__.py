"""The runtimes, a module each; edgeconv/runtimes/interface.py says what is in it."""
