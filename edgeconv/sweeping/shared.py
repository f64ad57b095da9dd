"""Jobs for nodes that have no path in common: files and results travel through a shared cache.

The cache has blobs by the hash of their content, and an entry for each cell by its key. A node
builds the current directory anew, of what a job reads, and stores each result once it is there. So
a lost node costs the cells that it ran, and another machine goes on with what there is.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from edgeconv.data.custom import custom_files, is_path
from edgeconv.errors import UsageError
from edgeconv.processes.tasks import task_directory
from edgeconv.requests.paths import source_reach
from edgeconv.store.blobs import Blobs
from edgeconv.sweeping.jobs import JobDone, SweepJob, do_job
from edgeconv.sweeping.results import Results
from edgeconv.types import CellResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeconv.requests.request import Request

_FROM_HERE = "run it in a directory that contains all models and data, and name them relative to it"


class SharedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, the cache's URL, and the hash of each file that it reads by its path."""

    job: SweepJob
    cache: str
    files: dict[str, str]


class SharedCell(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of a cell: its result, and the hashes of its artifact's files by their paths."""

    result: CellResult
    files: dict[str, str] = {}


class SharedResults(Results):
    """Results of a directory, each stored in the cache as well."""

    def __init__(self, directory: Path, cache: Blobs) -> None:
        super().__init__(directory)
        self.cache = cache

    def write(self, result: CellResult) -> None:
        """Keep a result, and store it with its artifact. Raises `OutputRefused`, `ToolFailed`."""
        super().write(result)
        files = {}
        for path in _of_artifact(self.directory, result.file):
            files[path.relative_to(self.directory).as_posix()] = self.cache.put(path)
        entry = SharedCell(result=result, files=files)
        self.cache.write(_entry(result.key), msgspec.json.encode(entry))

    def read(self, key: str) -> CellResult | None:
        """A cell's result, fetched with its artifact where only the cache has it; or None.

        Raises as `Blobs.get`.
        """
        return super().read(key) or self._fetched(key)

    def remove(self, key: str) -> None:
        """Forget a result, in the cache too. Raises `ToolFailed`."""
        super().remove(key)
        self.cache.remove(_entry(key))

    def _fetched(self, key: str) -> CellResult | None:
        content = self.cache.read(_entry(key))
        if content is None:
            return None
        entry = msgspec.json.decode(content, type=SharedCell)
        if entry.result.key != key:
            return None
        for name, digest in entry.files.items():
            self.cache.get(digest, self.directory / _inside(name))
        super().write(entry.result)
        return entry.result


def shared_job(job: SweepJob, cache: Blobs) -> SharedJob:
    """The job with all that it reads in the cache.

    Raises `UsageError` for what is not below the current directory, and `ToolFailed`.
    """
    files = {name: cache.put(Path(name)) for name in sorted({*_files_of(job)})}
    return SharedJob(job=job, cache=cache.url, files=files)


def run_shared(shared: SharedJob) -> JobDone:
    """On a node: fetch what the job reads, run it there, and store the result of each cell.

    Raises as `jobs.do_job`, and `ToolFailed` where the cache does not answer.
    """
    cache = Blobs(shared.cache)
    work, results = task_directory() / "work", task_directory() / "results"
    results.mkdir()
    for name, digest in shared.files.items():
        cache.get(digest, work / _inside(name))
    job = _moved(shared.job, work, results)
    return do_job(job, SharedResults(results, cache))


def _moved(job: SweepJob, work: Path, results: Path) -> SweepJob:
    """The job with its directories on this node."""

    def there(directory: str | None) -> str:
        return str(results / Path(directory or "").relative_to(job.results))

    converting = job.converting and replace(
        job.converting, directory=there(job.converting.directory)
    )
    tuning = job.tuning and replace(job.tuning, directory=there(job.tuning.directory))
    return replace(job, work=str(work), results=str(results), converting=converting, tuning=tuning)


def _files_of(job: SweepJob) -> Iterator[str]:
    """The files that a job reads, by their paths from the current directory."""
    requests: tuple[Request | None, ...] = (job.converting, job.tuning, job.measuring)
    for request in filter(None, requests):
        reads = request.inputs()
        for path in reads.paths:
            # The files of custom objects, which are called by their module.
            yield from _here([path]) if path.suffix == ".py" else _files(str(path))
        for source in reads.sources:
            for reach in source_reach(source):
                yield from _code(reach.text) if reach.sort == "code" else _files(reach.text)
    for metric in job.measuring.measuring.metrics:
        if metric.module:
            yield from _code(metric.module)


def _code(text: str) -> Iterator[str]:
    """The files of a module with what it imports, without installed packages."""
    module = text if is_path(text) else text.partition(":")[0]
    return _here(custom_files(module, str(Path.cwd())))


def _here(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        if file.absolute().is_relative_to(Path.cwd()):
            yield str(file.absolute().relative_to(Path.cwd()))


def _files(text: str) -> Iterator[str]:
    _inside(text)
    matches = [Path(text)] if Path(text).exists() else [*Path().glob(text)]
    if not matches:
        raise UsageError(
            f"{text} is not a file on this machine that a node could get", hint=_FROM_HERE
        )
    for match in matches:
        for path in match.rglob("*") if match.is_dir() else (match,):
            if path.is_file():
                yield str(path)


def _inside(name: str) -> Path:
    """A path below a directory. Raises `UsageError` for one that leads out of it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"{name} is not below the current directory", hint=_FROM_HERE)
    return path


def _of_artifact(directory: Path, file: str) -> list[Path]:
    """The artifact of a result and what is published with it, called as it is."""
    if not file:
        return []
    artifact = directory / file
    return sorted(artifact.parent.glob(f"{glob.escape(artifact.stem)}.*"))


def _entry(key: str) -> str:
    return f"cells/{key[:2]}/{key}.json"
