"""What somebody else put into the cache does not count, whatever hash is beside it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fault_injection import Fault, Run, require_tracing, traced
from tiny_tflite import float_model, packed
from wording import fails

import edgeconv
from edgeconv.system.store import (
    Cache,
    cache,
    cache_directory,
    publish_sealed,
    read_sealed,
    seal,
    seal_directory,
    sealed_directory,
    sha256_file,
    sha256_tree,
)
from edgeconv.types.errors import OutputRefused, UsageError

STAGE, KEY, OTHER = "float", "1" * 64, "2" * 64
SECRET = "a secret of the CI system"


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    monkeypatch.setattr(cache, "_warned", [])


@pytest.fixture
def root(tmp_path) -> Path:
    file = tmp_path / "graph"
    file.write_bytes(b"graph")
    Cache(tmp_path / "cache").keep(STAGE, KEY, {"graph": file})
    return tmp_path / "cache"


def forge(entry: Path, name: str, content: bytes) -> None:
    """Another content, under the best seal that one can make who does not have the key."""
    (entry / "content" / name).write_bytes(content)
    tree = sha256_tree(entry / "content")
    (entry / "sha256").write_text(tree)
    (entry / "seal").write_text(tree + hashlib.sha256(tree.encode()).hexdigest())


def test_an_entry_that_was_forged_with_its_hash_is_absent_and_made_again(root, tmp_path):
    forge(root / STAGE / KEY, "graph", b"hostile")
    said: list[str] = []
    found = Cache(root, said.append)
    assert found.find(STAGE, KEY) is None
    assert found.find(STAGE, KEY) is None
    assert len(said) == 1
    assert "another key" in said[0]
    assert "\n" not in said[0]
    found.keep(STAGE, KEY, {"graph": tmp_path / "graph"})
    entry = found.find(STAGE, KEY)
    assert entry is not None
    assert (entry / "graph").read_bytes() == b"graph"


def test_an_entry_is_not_found_under_the_key_or_stage_of_another(root):
    (root / STAGE / KEY).rename(root / STAGE / OTHER)
    assert Cache(root).find(STAGE, OTHER) is None
    (root / STAGE).rename(root / "artifact")
    (root / "artifact" / OTHER).rename(root / "artifact" / KEY)
    assert Cache(root).find("artifact", KEY) is None
    (root / "artifact").rename(root / STAGE)
    assert Cache(root).find(STAGE, KEY) is not None


def test_an_entry_of_edgeconv_before_seals_is_made_again(root, tmp_path):
    entry = root / STAGE / KEY
    (entry / "seal").unlink()
    (entry / "sha256").write_text(sha256_tree(entry / "content"))
    assert Cache(root).find(STAGE, KEY) is None
    Cache(root).keep(STAGE, KEY, {"graph": tmp_path / "graph"})
    assert Cache(root).find(STAGE, KEY) is not None


@pytest.mark.parametrize("text", ["", "0" * 64, "é" * 128, "\0" * 9])
def test_a_seal_that_is_none_is_no_fault(root, text):
    (root / STAGE / KEY / "seal").write_text(text)
    assert Cache(root).find(STAGE, KEY) is None


def test_machines_with_the_same_key_share_a_cache_and_others_do_not(tmp_path, monkeypatch):
    file = tmp_path / "graph"
    file.write_bytes(b"graph")
    monkeypatch.setenv("EDGECONV_CACHE_KEY", SECRET)
    Cache(tmp_path / "cache").keep(STAGE, KEY, {"graph": file})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert Cache(tmp_path / "cache").find(STAGE, KEY) is not None
    # A job that a fork starts gets an empty one.
    for other in ("", SECRET + "!"):
        monkeypatch.setenv("EDGECONV_CACHE_KEY", other)
        assert Cache(tmp_path / "cache").find(STAGE, KEY) is None
    monkeypatch.setenv("EDGECONV_CACHE_KEY", "secret")
    with fails(UsageError):
        Cache(tmp_path / "cache").find(STAGE, KEY)


def test_the_key_is_private_outside_of_the_cache_and_one_however_many_make_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = "from edgeconv.system.store import seal; print(seal('x'))"
    command = [sys.executable, "-c", code]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    seals = {process.communicate()[0] for process in racing}
    assert len(seals) == 1
    assert seals == {f"{seal('x')}\n"}
    (file,) = (tmp_path / "state").rglob("*key*")
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    assert not cache_directory().exists()


def test_killed_at_any_call_that_makes_the_key_it_leaves_a_whole_key_or_none(tmp_path):
    require_tracing(tmp_path)
    state = tmp_path / "state"
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    code = "import edgeconv.system.store; print(edgeconv.system.store.seal('x'))"

    def run(at: int = 0) -> Run:
        shutil.rmtree(state, ignore_errors=True)
        fault = Fault([state], at)
        command = [sys.executable, "-c", code]
        return traced(command, cwd=tmp_path / "work", environment=environment, fault=fault)

    calls = run().calls
    assert any(call.startswith("link") for call in calls)
    for number in range(1, len(calls) + 1):
        assert run(number).was_killed
        kept = [path.read_bytes() for path in state.rglob("cache-key")]
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        (file,) = (state / "edgeconv").iterdir()
        assert kept in ([], [file.read_bytes()])


def test_a_key_that_others_can_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = "from edgeconv.system.store import seal; seal('x')"
    subprocess.run([sys.executable, "-c", code], check=True)
    (file,) = (tmp_path / "state").rglob("*key*")
    file.chmod(0o644)
    with fails(OutputRefused):
        seal("x")


@pytest.mark.parametrize("size_bytes", [0, 31, 33])
def test_a_key_file_of_the_wrong_length_is_a_warning_once(tmp_path, monkeypatch, root, size_bytes):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "state" / "edgeconv" / "cache-key"
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_bytes(b"k" * size_bytes)
    warnings = []
    for _ in range(2):
        assert Cache(root, warnings.append).find(STAGE, KEY) is None
    (warning,) = warnings
    assert f"{file} has {size_bytes} bytes instead of 32; remove that file" in warning


def test_where_no_key_can_be_kept_nothing_in_the_cache_counts_later(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    code = "from edgeconv.system.store import seal; print(seal('x'), seal('x'))"
    command = [sys.executable, "-c", code]
    said = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    (first, same), (other, _) = (one.stdout.split() for one in said)
    assert first == same != other


def test_a_sealed_file_is_read_as_what_it_was_sealed_and_unchanged_only(tmp_path):
    place = tmp_path / "stamp"
    publish_sealed(b"a\nb", place, "stamp", "1")
    assert read_sealed(place, "stamp", "1") == b"a\nb"
    assert read_sealed(place, "stamp", "2") is None
    assert read_sealed(tmp_path / "none", "stamp", "1") is None
    sealed = place.read_bytes()
    for changed in (
        sealed + b"c",
        sealed[1:],
        b"",
        b"a\nb",
        hashlib.sha256(b"c").digest() + b"\nc",
    ):
        place.write_bytes(changed)
        assert read_sealed(place, "stamp", "1") is None


@pytest.fixture
def programs(tmp_path) -> Path:
    directory = tmp_path / "venv"
    (directory / "lib").mkdir(parents=True)
    (directory / "lib" / "module.py").write_text("1")
    (directory / "python").symlink_to("/usr/bin/python3")
    seal_directory(directory, tmp_path / "marker", b"data")
    return directory


def change(directory: Path, how: str) -> None:
    module = directory / "lib" / "module.py"
    before = module.stat()
    if how == "content":
        module.write_text("2")
        # As whoever unpacks an archive can do.
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif how == "file":
        (directory / "lib" / "sitecustomize.py").write_text("evil")
    elif how == "link":
        (directory / "python").unlink()
        (directory / "python").symlink_to("/tmp/evil")
    else:
        module.unlink()


@pytest.mark.parametrize("how", ["content", "file", "link", "gone"])
def test_a_directory_of_programs_counts_as_long_as_nothing_in_it_changed(programs, how):
    marker = programs.parent / "marker"
    assert sealed_directory(programs, marker) == b"data"
    change(programs, how)
    assert sealed_directory(programs, marker) is None


def test_one_that_was_restored_with_its_contents_counts_and_is_not_read_again(
    programs, monkeypatch
):
    marker = programs.parent / "marker"
    module = programs / "lib" / "module.py"
    content = module.read_bytes()
    module.unlink()
    module.write_bytes(content)
    assert sealed_directory(programs, marker) == b"data"
    monkeypatch.setattr("edgeconv.system.store.seals.sha256_file", None)
    assert sealed_directory(programs, marker) == b"data"
    moved = programs.rename(programs.with_name("elsewhere"))
    assert sealed_directory(moved, marker) is None


@pytest.fixture
def model(tmp_path) -> Path:
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(float_model(signature=("serving_default", ["x"], ["y"]))))
    return file


def converted(model: Path, directory: Path) -> tuple[Path, list[str]]:
    said: list[str] = []
    done = edgeconv.convert(model, out=directory, to=["float32"], on_progress=said.append)
    return directory / done.artifacts[0].file, said


def test_a_forged_artifact_in_the_cache_is_never_published(model, tmp_path, monkeypatch):
    good, _ = converted(model, tmp_path / "first")
    (entry,) = (cache_directory() / "artifact").iterdir()
    hostile = packed(float_model(names=("evil", "evil")))
    manifest = json.loads((entry / "content" / "manifest.json").read_text())
    manifest |= {"sha256": hashlib.sha256(hostile).hexdigest(), "size_bytes": len(hostile)}
    (entry / "content" / "manifest.json").write_text(json.dumps(manifest))
    forge(entry, "model.tflite", hostile)
    again, said = converted(model, tmp_path / "second")
    assert again.read_bytes() == good.read_bytes()
    assert any("another key" in line for line in said)
    assert "verifying float32 against the trained model" in said
    # And what was made again is what the next one finds.
    _, said = converted(model, tmp_path / "third")
    assert said == []


def test_a_foreign_file_is_published_where_the_manifest_promises_its_hash(
    model, tmp_path, monkeypatch
):
    good, _ = converted(model, tmp_path / "out")
    content = good.read_bytes()
    manifest = good.with_suffix(".json").read_bytes()
    monkeypatch.setenv("EDGECONV_CACHE_KEY", SECRET)
    good.unlink()
    restored, said = converted(model, tmp_path / "out")
    assert restored.read_bytes() == content
    assert not any("verifying" in line for line in said)
    assert restored.with_suffix(".json").read_bytes() == manifest
    # Not another file, nor through a link.
    (entry,) = (cache_directory() / "artifact").iterdir()
    for forged in ("content", "link"):
        good.unlink()
        file = entry / "content" / "model.tflite"
        file.unlink()
        if forged == "link":
            file.symlink_to(model)
        else:
            file.write_bytes(b"hostile")
        made, said = converted(model, tmp_path / "out")
        assert sha256_file(made) == hashlib.sha256(content).hexdigest()
        assert any("verifying" in line for line in said)
        monkeypatch.setenv("EDGECONV_CACHE_KEY", SECRET + forged)
        (entry,) = (cache_directory() / "artifact").iterdir()
