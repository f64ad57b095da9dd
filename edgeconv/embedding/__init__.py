"""A published model into a project of an app or of firmware: `embed` and its targets.

`embedding` is the verb, `request` what it is to do, `published` the model it takes;
`golden` makes the vectors that a self-test compares with, `accessors` what every language says of
the model's inputs and outputs, `writing` puts the files in place. A target is a module in
`targets/`; `interface` says what it has. `c_files` is what the targets in C have in common.
"""
