"""What of a folder is evidence, by names and first bytes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.reading import Root, head_within

RECORD = "edgeconv-embedded.json"
LOCK = "edgeconv.lock"
REPORT = "report.json"
PAGE = "report.html"
VERDICT = ".verdict.json"
SIGNATURE = "model.sig"
# More than any project has; each costs microseconds.
_MOST_ENTRIES = 200_000
# Those that are opened.
_MOST_DOCUMENTS = 5_000
_DEEPEST = 64
_HEAD_BYTES = 120
_REPORT_HEAD = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"title":')
_MANIFEST_HEAD = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"name":')


@dataclass
class EvidenceFiles:
    """What was found at one PATH: `root` is the directory that all of it has to lie in.

    `links` are directories that are symbolic links, into which nobody looked.
    """

    given: Path
    root: Root
    models: list[Path] = field(default_factory=list)
    manifests: list[Path] = field(default_factory=list)
    verdicts: list[Path] = field(default_factory=list)
    reports: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    locks: list[Path] = field(default_factory=list)
    signatures: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """How many files say something of a model, or are one."""
        lists = (self.models, self.manifests, self.verdicts, self.reports, self.pages)
        return sum(map(len, (*lists, self.records, self.locks, self.signatures)))


def find(given: Path) -> EvidenceFiles:
    """What is at a PATH: of a directory all that is below it, of a file what belongs to it.

    Raises `InputRefused` for a path that is not there, or a directory of too many files.
    """
    try:
        is_directory = given.is_dir()
        is_there = is_directory or os.path.lexists(given)
    except (OSError, ValueError) as error:
        raise InputRefused(f"{given!s} cannot be read: {error}") from error
    if not is_there:
        raise InputRefused(f"{given} does not exist", hint="give what convert or embed wrote")
    found = EvidenceFiles(given=given, root=Root(given if is_directory else given.parent))
    if is_directory:
        paths = _walked(given, found)
    elif given.name == RECORD:
        paths = [given]
    else:
        paths = _family(given)
    for path in sorted(paths):
        _sort_in(path, found)
    if not is_directory and not found.documents:
        raise InputRefused(
            f"{given} is nothing that edgeconv can verify",
            hint="give a .tflite, its manifest, a report, a lock, or a folder of these",
        )
    return found


def _family(given: Path) -> list[Path]:
    """A file and what lies beside it that is about it."""
    model = given.with_name(given.name.removesuffix(VERDICT) + ".tflite")
    if not given.name.endswith(VERDICT):
        model = given.with_suffix(".tflite") if given.suffix == ".json" else given
    if model.suffix != ".tflite" or not (model == given or os.path.lexists(model)):
        return [given]
    beside = (model.with_suffix(".json"), model.with_suffix(VERDICT), model.parent / REPORT)
    family = [model, *beside, Path(f"{model}.sig")]
    return [path for path in family if os.path.lexists(path)]


def _walked(top: Path, found: EvidenceFiles) -> list[Path]:
    """All files below a directory. Links to directories are not followed."""
    paths: list[Path] = []
    entries, folders = 0, [(top, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    entries += 1
                    if entries > _MOST_ENTRIES or depth > _DEEPEST:
                        raise _too_much(top)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((Path(entry.path), depth + 1))
                    elif entry.is_symlink() and entry.is_dir():
                        found.links.append(Path(entry.path))
                    # A folder may stand in the place of a file.
                    if entry.name.endswith((".tflite", ".json", ".sig", ".html", ".lock")):
                        paths.append(Path(entry.path))
        except OSError as error:
            raise InputRefused(f"{folder} cannot be read: {error.strerror}") from error
    if len(paths) > _MOST_DOCUMENTS:
        raise _too_much(top)
    return paths


def _too_much(top: Path) -> InputRefused:
    return InputRefused(
        f"{top} has more files than any folder of published models",
        hint="give the folders that edgeconv convert, bench and embed wrote, each by its name",
    )


def _sort_in(path: Path, found: EvidenceFiles) -> None:
    name = path.name
    kinds = {RECORD: found.records, LOCK: found.locks, PAGE: found.pages, REPORT: found.reports}
    if name in kinds:
        kinds[name].append(path)
    elif name.endswith(VERDICT):
        found.verdicts.append(path)
    elif name.endswith(".tflite"):
        found.models.append(path)
    elif name == SIGNATURE or name.endswith(".tflite.sig"):
        found.signatures.append(path)
    elif name.endswith(".json") and os.path.lexists(path.with_suffix(".tflite")):
        found.manifests.append(path)
    elif name.endswith(".json") and (head := _head(found.root, path)):
        if _REPORT_HEAD.match(head):
            found.reports.append(path)
        elif _MANIFEST_HEAD.match(head):
            found.manifests.append(path)


def _head(root: Root, path: Path) -> bytes:
    try:
        return head_within(root, path, _HEAD_BYTES)
    except InputRefused:
        return b""
