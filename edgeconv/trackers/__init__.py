"""Logs of what was measured and judged, kept where a team compares its runs.

A tracker is a module with `track(checked, reports, place)`: it logs one run for every model that
was measured, `reports` by the name of its check, to `place`, what `--track KIND:PLACE` says after
the colon. It raises `OutputRefused` where it cannot, and `UsageError` where its library is not
installed. Its line is in `edgeconv.plugins.TRACKERS`.
"""
