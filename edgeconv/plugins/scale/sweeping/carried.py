"""Jobs for nodes without this machine's files: those below the current directory go along.

The node has a copy of the file tree with what the job reads, and works in its copy of the current
directory. The results and artifacts come back when the job ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from edgeconv.data.code import custom_files, is_path
from edgeconv.plugins.scale.cluster import returned_directory, sent_directory
from edgeconv.plugins.scale.sweeping.jobs import JobDone, SweepJob, run_job
from edgeconv.requests.texts import source_reach
from edgeconv.system.store.files import publish_bytes, writable_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.requests.request import Request


class CarriedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as it is on the machine that sends it."""

    job: SweepJob


def run_carried(carried: CarriedJob) -> JobDone:
    """On a node: `jobs.run_job` on the files that were sent. The results go back as files."""
    job = carried.job
    work, results = sent_directory() / _in_tree(job.work), returned_directory()
    work.mkdir(parents=True, exist_ok=True)
    results.mkdir()

    def there(directory: str | None) -> str:
        return str(results / Path(directory or "").relative_to(job.results))

    converting = job.converting and replace(
        job.converting, directory=there(job.converting.directory)
    )
    tuning = job.tuning and replace(job.tuning, directory=there(job.tuning.directory))
    moved = replace(job, work=str(work), results=str(results), converting=converting, tuning=tuning)
    return run_job(moved)


def carried_files(job: SweepJob) -> dict[str, Path]:
    """What a job reads by a relative path, or as code: each file by its path in the copied tree.

    What has an absolute path must be there on the nodes.
    """
    return {_in_tree(os.path.normpath(file.absolute())): file for file in _files_of(job)}


def keep_returned(files: Mapping[str, bytes], directory: Path) -> None:
    """Publish what came back into the directory of the results. Raises `OutputRefused`."""
    # A result names its artifact, which has to be there first.
    for name in sorted(files, key=lambda name: (name.startswith("cells/"), name)):
        writable_directory((directory / name).parent)
        publish_bytes(files[name], directory / name)


def _in_tree(path: str) -> str:
    return Path(path).relative_to(Path(path).anchor).as_posix()


def _files_of(job: SweepJob) -> Iterator[Path]:
    requests: tuple[Request | None, ...] = (job.converting, job.tuning, job.measuring)
    for request in filter(None, requests):
        reads = request.inputs()
        for path in reads.paths:
            # The files of custom objects have absolute paths, and are called by their module.
            yield from _here(path) if path.suffix == ".py" else _files(str(path))
        for source in reads.sources:
            for reach in source_reach(source):
                yield from _code(reach.text) if reach.sort == "code" else _files(reach.text)
    for metric in job.measuring.measuring.metrics:
        if metric.module:
            yield from _code(metric.module)


def _code(text: str) -> Iterator[Path]:
    """The files of a module with what it imports, without installed packages."""
    module = text if is_path(text) else text.partition(":")[0]
    for file in custom_files(module, str(Path.cwd())):
        yield from _here(file)


def _here(file: Path) -> Iterator[Path]:
    if file.absolute().is_relative_to(Path.cwd()):
        yield file


def _files(text: str) -> Iterator[Path]:
    path = Path(text)
    if path.is_absolute():
        return
    for match in [path] if path.exists() else Path().glob(text):
        for file in match.rglob("*") if match.is_dir() else (match,):
            if file.is_file():
                yield file
