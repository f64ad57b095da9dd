"""Trackers: logs of measurements and verdicts, where a team compares its runs.

A tracker is a module with two functions and a line in `edgeconv.plugins.TRACKERS`.
`refuse(location)` raises, before anything is measured, `UsageError` where the tracker's library is
not installed, and `OutputRefused` where nothing can be written at `location`, which is what follows
the colon of `--track`. `track(checked, reports, location)` logs one run for every measured model,
`reports` by the name of its check, and raises `OutputRefused` where it cannot. A project may name
the location of a tracker with `WRITES_FILES_ONLY = True`, which only writes files there.
"""
