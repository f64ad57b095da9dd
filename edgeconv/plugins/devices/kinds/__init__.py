"""The runtimes of devices, a module each; edgeconv/runtimes/interface.py says what is in it."""
