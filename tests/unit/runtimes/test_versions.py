"""The versions of a runtime: how they are typed, and which ones pip's index has."""

import os
import time
from pathlib import Path

import pytest
from started import starts
from wording import fails

from edgeconv.runtimes.choice import index_versions, matching_versions, parse_versions
from edgeconv.system.store import cache_directory
from edgeconv.types.errors import ToolFailed, UsageError


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A directory that is pip's only index, with four versions of LiteRT, which it only lists."""
    for version in ("2.0.0", "2.0.3", "2.1.0", "2.10.0rc1"):
        (tmp_path / f"ai_edge_litert-{version}-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("litert>=2.0", "litert>=2.0"),
        (" litert >= 2.0 ", "litert>=2.0"),
        ("tflite-runtime~=2.5", "tflite-runtime~=2.5"),
        ("tensorflow==2.15.*", "tensorflow==2.15.*"),
    ],
)
def test_a_runtime_and_a_specifier_are_read_and_written(text, again):
    assert str(parse_versions(text)) == again
    assert parse_versions(again) == parse_versions(text)


@pytest.mark.parametrize(
    "text",
    [
        "litert",
        "litert>=",
        "litert>=new",
        "litert=>2.0",
        "litrt>=2.0",
        "tflite-micro>=0",
        ">=2.0",
        "",
    ],
)
def test_what_is_no_specifier_is_refused(text):
    with fails(UsageError):
        parse_versions(text)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("text", "versions"),
    [("litert>=2.0", ["2.0.0", "2.0.3", "2.1.0"]), ("litert>2.0.0,!=2.1.0", ["2.0.3"])],
)
def test_the_versions_of_the_index_that_match_come_oldest_first(text, versions):
    matching = matching_versions(parse_versions(text))
    assert [str(each) for each in matching] == [f"litert=={version}" for version in versions]


@pytest.mark.usefixtures("index")
def test_where_none_matches_those_of_the_index_are_named():
    with fails(UsageError):
        matching_versions(parse_versions("litert>=9"))


def test_an_index_without_the_package_is_a_failure_that_says_what_to_check(index):
    for wheel in index.iterdir():
        wheel.unlink()
    with pytest.raises(ToolFailed, match="ai-edge-litert ended with exit code 1"):
        matching_versions(parse_versions("litert>=2"))


def test_the_index_is_asked_once_a_day(index):
    first = index_versions("litert")
    (index / "ai_edge_litert-2.2.0-py3-none-any.whl").touch()
    with starts() as started:
        assert index_versions("litert") == first
    assert not started
    (note,) = (cache_directory() / "versions").iterdir()
    day_before = time.time() - 90_000
    os.utime(note, (day_before, day_before))
    assert set(index_versions("litert")) == {*first, "2.2.0"}


def test_a_list_of_versions_that_somebody_else_wrote_is_not_taken(index):
    first = index_versions("litert")
    (note,) = (cache_directory() / "versions").iterdir()
    note.write_bytes(note.read_bytes().replace(b"2.0.3", b"9.0.3"))
    assert index_versions("litert") == first
    assert index.is_dir()


def test_another_index_has_its_own_list(index, monkeypatch):
    first = index_versions("litert")
    other = index / "other"
    other.mkdir()
    (other / "ai_edge_litert-3.0.0-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(other))
    assert index_versions("litert") == ["3.0.0"]
    assert "3.0.0" not in first
