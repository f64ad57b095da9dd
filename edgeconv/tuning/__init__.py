"""The verb `tune`: the cheapest artifact that keeps its accuracy within a budget.

`search` proposes recipes and `chances` says what a trial is worth, both without any file or
process. `parts` takes the samples apart, `judge` runs models on them, `trials` makes one
trial after the other and keeps them, and `flow` is the whole on one screen.
"""
