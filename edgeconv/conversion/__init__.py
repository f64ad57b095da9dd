"""The verb `convert`: `convert.py` is the whole of it on one screen.

    plan ─► prepare ─► session ─► verify ─► target ─► publish

`ladder` has the ways to try a model that does not convert, and `climb` goes up it. `prepare` has
the float32 .tflite, the samples and the trained model's outputs, from which a `session` makes
recipes.
"""
