"""A step of an app's build: the models of a configuration, converted and embedded where stale.

`stamp` says at once whether anything changed, `inputs` what there is to look at, `steps` does what
is to be done.
"""
