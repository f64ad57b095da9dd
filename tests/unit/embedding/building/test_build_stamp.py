"""The stamp of a build: what it takes for unchanged, and what it never does."""

import os
import time
from pathlib import Path

import pytest
from embed_models import tree

from edgeconv.data import parse_source
from edgeconv.embedding import build as stamps
from edgeconv.embedding.build import inputs, read_fresh, stamp_file, write_stamp
from edgeconv.types import Embedded

EMBEDDED = Embedded(target="c", name="n", symbol="s", key="k", model_sha256="m", files=())
LONG_AGO_NS = 10**18


class Project:
    """Files of each sort that a stamp knows, and a stamp of them."""

    def __init__(self, root: Path) -> None:
        self.source, self.data = root / "model.keras", root / "data"
        self.published, self.output = root / "model.tflite", root / "out.c"
        self.data.mkdir(parents=True)
        for path in (self.source, self.data / "a", self.published, self.output):
            path.write_bytes(b"content")
        self.place = stamp_file("test")

    def note(self, key: str = "key", *, began_ns: int | None = None) -> None:
        """Write the stamp, of a step that began now, and long after the last change."""
        write_stamp(
            self.place,
            key,
            inputs=inputs([self.source, self.data], []).files(),
            published=[self.published],
            outputs=[self.output],
            embedded=EMBEDDED,
            began_ns=began_ns or time.time_ns() + 10**9,
        )

    @property
    def is_fresh(self) -> bool:
        return read_fresh(self.place, "key") is not None


@pytest.fixture
def project(tmp_path) -> Project:
    made = Project(tmp_path / "project")
    made.note()
    return made


@pytest.fixture
def hashed(monkeypatch) -> list[str]:
    """The names of the files that are read."""
    names: list[str] = []
    compute = stamps.sha256_file

    def recording(path: Path) -> str:
        names.append(path.name)
        return compute(path)

    monkeypatch.setattr(stamps, "sha256_file", recording)
    return names


def test_what_is_as_it_was_is_fresh_and_not_read(project, hashed):
    found = read_fresh(project.place, "key")
    assert found.embedded == EMBEDDED
    assert [Path(state.path).name for state in found.inputs] == ["data", "a", "model.keras"]
    assert hashed == []


def test_another_key_is_stale(project):
    assert read_fresh(project.place, "other") is None


@pytest.mark.parametrize("name", ["model.keras", "data/a", "model.tflite", "out.c"])
@pytest.mark.parametrize("content", [b"another", b"longer than it was", b""])
def test_other_content_is_stale_of_any_file(project, name, content):
    (project.source.parent / name).write_bytes(content)
    assert not project.is_fresh


@pytest.mark.parametrize("name", ["model.keras", "data/a", "model.tflite", "out.c"])
def test_a_file_that_has_gone_is_stale(project, name):
    (project.source.parent / name).unlink()
    assert not project.is_fresh


def test_other_content_of_the_same_size_and_time_is_stale(project):
    """As an archive gives it whose files all have one time."""
    os.utime(project.source, ns=(LONG_AGO_NS, LONG_AGO_NS))
    project.note()
    project.source.write_bytes(b"tnetnoc")
    os.utime(project.source, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert not project.is_fresh


def test_an_older_file_moved_into_place_is_stale(project, tmp_path):
    older = tmp_path / "older"
    older.write_bytes(b"tnetnoc")
    os.utime(older, ns=(LONG_AGO_NS, LONG_AGO_NS))
    older.replace(project.source)
    assert not project.is_fresh


def test_a_new_file_in_a_directory_is_stale_and_so_is_one_renamed(project):
    (project.data / "b").write_bytes(b"")
    assert not project.is_fresh
    (project.data / "b").unlink()
    assert project.is_fresh
    (project.data / "a").rename(project.data / "A")
    assert not project.is_fresh


def test_a_file_in_the_place_of_a_directory_is_stale_and_the_other_way_round(project):
    project.source.unlink()
    project.source.mkdir()
    assert not project.is_fresh


def test_what_is_only_touched_is_read_once_and_noted_anew(project, hashed):
    os.utime(project.source)
    os.utime(project.output, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert project.is_fresh
    assert sorted(hashed) == ["model.keras", "out.c"]
    assert project.is_fresh
    assert len(hashed) == 2


def test_an_input_that_changed_during_the_step_is_not_noted(project):
    before = project.place.read_bytes()
    began_ns = time.time_ns()
    time.sleep(0.05)
    project.source.write_bytes(b"changed")
    # A copy that keeps an old time does not hide it.
    os.utime(project.source, ns=(LONG_AGO_NS, LONG_AGO_NS))
    project.note(began_ns=began_ns)
    assert project.place.read_bytes() == before
    assert not project.is_fresh


def test_an_output_that_the_step_wrote_is_noted(project):
    time.sleep(0.05)
    began_ns = time.time_ns()
    project.output.write_bytes(b"new")
    project.published.write_bytes(b"new")
    project.note(began_ns=began_ns)
    assert project.is_fresh


def test_a_file_that_went_during_the_step_is_not_noted(project):
    project.place.unlink()
    project.output.unlink()
    project.note()
    assert not project.place.exists()


@pytest.mark.parametrize("part", [0, 1, 20, 300])
def test_a_torn_stamp_is_none(project, part):
    project.place.write_bytes(project.place.read_bytes()[:part])
    assert not project.is_fresh
    project.note()
    assert project.is_fresh


@pytest.mark.parametrize("content", [b"{}", b"[1]", b"\xff\xfe", b"[" * 10_000, b'{"format": 2}'])
def test_a_stamp_of_another_sort_is_none(project, content):
    project.place.write_bytes(content)
    assert not project.is_fresh


def test_a_directory_in_its_place_is_no_stamp_and_no_error(project):
    project.place.unlink()
    project.place.mkdir()
    assert not project.is_fresh
    project.note()
    assert not project.is_fresh


def test_a_cache_that_cannot_be_written_costs_only_the_stamp(project, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "file" / "cache"))
    project.place = stamp_file("test")
    project.note()
    assert not project.is_fresh


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_stamp_that_cannot_be_renewed_is_fresh_all_the_same(project):
    project.place.parent.chmod(0o500)
    try:
        os.utime(project.source)
        assert project.is_fresh
    finally:
        project.place.parent.chmod(0o700)


def test_nothing_is_left_beside_the_stamp(project):
    os.utime(project.source)
    assert project.is_fresh
    assert list(tree(project.place.parent)) == [project.place.name]


def test_a_link_to_a_directory_is_looked_into_and_one_back_is_not(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "v").write_bytes(b"")
    model = tmp_path / "model"
    model.mkdir()
    (model / "variables").symlink_to(tmp_path / "store")
    (model / "self").symlink_to(model)
    (model / "gone").symlink_to(tmp_path / "nowhere")
    names = [str(path.relative_to(tmp_path)) for path in inputs([model], []).files()]
    assert names == ["model", "model/variables", "model/variables/v"]


def test_the_files_of_sources_are_found_with_those_in_their_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.npy", "y.npy", "r-1.tfrecord", "r-2.tfrecord", "spec.toml"):
        (tmp_path / name).write_bytes(b"")
    sources = ["x.npy?labels=y.npy", "tfrecord:r-*.tfrecord?spec=spec.toml", "none.npz?a=b"]
    found = inputs([], [parse_source(source) for source in sources])
    names = [path.relative_to(tmp_path).as_posix() for path in found.files()]
    # The folder of a glob, because another file may come to match it.
    everything = [".", "none.npz", "r-1.tfrecord", "r-2.tfrecord", "spec.toml", "x.npy", "y.npy"]
    assert names == everything
    assert found.are_all


@pytest.mark.parametrize("source", ["samples:calibration", "function:a.b:c", "sklearn:digits"])
def test_what_reads_no_file_is_never_all_that_counts(source):
    found = inputs([], [parse_source(source)])
    assert found.files() == ()
    assert not found.are_all


def test_a_source_that_is_not_understood_is_watched_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert inputs([], [parse_source("data.unknown?x=y")]).files() == (tmp_path / "data.unknown",)
