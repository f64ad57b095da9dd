"""The verb `tune`: the cheapest artifact that keeps its accuracy within a budget.

`search` proposes recipes and `chances` estimates what a trial is worth, both without any file or
process. `samples` splits the samples, `evaluator` runs models on them, `trials` makes and keeps
one trial after another, and `flow` is the whole on one screen.
"""
