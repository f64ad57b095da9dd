"""A published model into a project of an app or of firmware: `embed` and its targets.

`embedding` is the verb, `plan` the checked request, `published` the model. `golden` makes the
vectors of the self-test, `accessors` the facts of inputs and outputs, `writing` writes the files. A
target is a module in `targets/`, described by `interface`; `c_files` is shared by targets in C.
"""
