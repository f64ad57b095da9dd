from __future__ import annotations

import compileall
import itertools
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from forking import close_place, forked_children, open_place
from hypothesis import HealthCheck, settings
from places import ROOT, TESTS

from edgeconv.embedding import plan
from edgeconv.embedding.interface import LITERT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What tests need that not every machine has, by folder, module or fixture. Where it is not there
# they skip, and say why.
NEEDS = {
    "tensorflow": {"integration", "coverage"},
    "browser": {"test_embed_web_page", "test_report_browser", "test_runtime_web"},
    "compiler": {
        "test_build_tools",
        "test_embed_bazel_build",
        "test_embed_c",
        "test_embed_cmake",
        "test_embed_kotlin",
        "test_embed_updates",
    },
    # A package index, to install from.
    "network": {
        "old_runtime",
        "test_bench_versions",
        "test_embed_bazel_build",
        "test_embed_in_tflite_micro",
        "test_embed_kotlin",
        "test_embed_python",
        "test_embed_web_page",
        "test_runtime_web",
        "test_tflite_metadata_reader",
    },
    "root": {"read_only", "tiny_disk"},
}
# Of tests/integration: what drives other programs only.
WITHOUT = {
    "test_build_tools",
    "test_embed_bazel_build",
    "test_embed_c",
    "test_embed_cmake",
    "test_embed_kotlin",
    "test_embed_updates",
    "test_embed_web_page",
    "test_environments",
    "test_report_browser",
    "test_runtime_web",
    "test_spoken_recordings",
    "test_tune",
}
# Modules of tests/unit that take ten seconds and more of a processor each, and so are not `fast`.
LONG = {
    "test_contributing",
    "test_data_bombs",
    "test_evidence",
    "test_members",
    "test_site",
}

# Tests of how children are started, confined, limited and ended: folders and modules.
STARTED = {"processes", "hostile", "test_runtime_web", "test_train_on_ray"}


_CACHES = itertools.count()

# How fast the machine is, and what else it does, is nothing that a test is about.
settings.register_profile("edgeconv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgeconv")


@pytest.fixture(autouse=True, scope="session")
def _forked_children() -> Iterator[None]:
    """Children are forks of a process that has imported what they import; see forking.py."""
    with forked_children():
        yield


@pytest.fixture(autouse=True, scope="module")
def _started_where_that_is_tested(
    request: pytest.FixtureRequest, _forked_children: None
) -> Iterator[None]:
    with forked_children(not STARTED & {request.path.stem, *request.path.parent.parts}):
        yield


@pytest.fixture
def started_children() -> Iterator[None]:
    """Of a test that looks at its children: each is started, as those of users are."""
    with forked_children(False):
        yield


@pytest.fixture(autouse=True)
def _cache_of_its_own(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test reads or writes the user's cache, or another test's."""
    if "tmp_path" in request.fixturenames:
        cache = request.getfixturevalue("tmp_path") / "cache"
    else:
        # Thousands of tests need no directory, which takes longer to make than most of them.
        cache = tmp_path_factory.getbasetemp() / "caches" / str(next(_CACHES))
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))


@pytest.fixture(autouse=True, scope="session")
def _settings_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's settings, notes and key; what a module converts is noted."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        patch.delenv("EDGECONV_CACHE_KEY", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def _golden_vectors_of_litert() -> Iterator[None]:
    """The default, tflite-micro, has an environment that tests do without if they do not name it.

    Where edgeconv is a process, its default is tested.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MICRO", LITERT)
        yield


@pytest.fixture(autouse=True, scope="session")
def _hang_up_ends_a_process() -> Iterator[None]:
    """Also under `nohup`, whose children ignore it, and those that tests start with them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: each child would, where Python is told to keep nothing."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "edgeconv", quiet=2)
        open_place()
    # xdist takes files as they come, of which the long ones are first, and not by how many tests.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        close_place()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is fast is in tests/unit: -m fast imports nothing else, which takes as long."""
    is_elsewhere = collection_path.parent == TESTS and collection_path.name != "unit"
    is_fast_only = config.getoption("markexpr") == "fast"
    return (is_fast_only and (is_elsewhere or collection_path.stem in LONG)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what each test needs; leave out what takes minutes, unless -m asks for it."""
    for item in items:
        names = {item.path.stem, item.path.parent.name, *getattr(item, "fixturenames", ())}
        for mark, needed_by in NEEDS.items():
            if names & needed_by and not (mark == "tensorflow" and item.path.stem in WITHOUT):
                item.add_marker(mark)
        needs = any(map(item.get_closest_marker, (*NEEDS, "slow")))
        if "unit" in item.path.parts and item.path.stem not in LONG and not needs:
            item.add_marker("fast")
    # Whatever is short fills up what the long ones leave.
    items.sort(key=lambda item: "unit" in item.path.parts)
    if "slow" in config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
