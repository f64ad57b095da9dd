"""`tune`, the cheapest artifact that keeps its accuracy within a budget; `sweep`, models, recipes,
runtimes and data measured cell by cell by several processes; and what runs on Ray.
"""
