"""A step of an app's build: the models of a configuration, converted and embedded where stale."""
