"""Logs of what was measured and judged, kept where a team compares its runs.

A tracker is a module with two functions. `refuse(place)` raises, before anything is measured, what
can be known of `place`, what `--track KIND:PLACE` says after the colon: `UsageError` where the
tracker's library is not installed, `OutputRefused` where nothing can be written.
`track(checked, reports, place)` logs one run for every model that was measured, `reports` by the
name of its check, and raises `OutputRefused` where it cannot. Its line is in
`edgeconv.plugins.TRACKERS`. With `WRITES_FILES_ONLY = True` it does no more than write at the path
`place`, which a project may then name.
"""
