"""Data sets read in a child: the same samples and errors as here, within limits, and no traces."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_records import encoded, example, write_records
from scipy.io import wavfile
from sources import open_samples, opened_samples
from wording import fails

from edgeconv.data import SamplesHash, parse_preprocessing, read_samples, sha256_samples
from edgeconv.data.location import parse_source, readable_of
from edgeconv.data.reader import PartJob, write_part
from edgeconv.data.samples import mapped
from edgeconv.data.source import LocalDataSet
from edgeconv.system.processes.workers import poll_until
from edgeconv.types import Allowance, TensorSpec
from edgeconv.types.errors import (
    InputRefused,
    UsageError,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

RNG = np.random.default_rng(7)
COUNT = 9
X = TensorSpec(name="x", shape=(-1, 4), dtype="float32")
PICTURE = TensorSpec(name="x", shape=(-1, 5, 5, 3), dtype="float32")
CLIP = TensorSpec(name="x", shape=(-1, 30), dtype="float32")
WORDS = TensorSpec(name="x", shape=(-1, 1), dtype="string")
MIB = 1 << 20


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """The current directory, and beside it the one for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def values() -> Any:
    return RNG.normal(size=(COUNT, 4)).astype(np.float32)


def npz() -> str:
    np.savez_compressed("a.npz", x=values(), y=np.arange(COUNT) % 3)
    return "a.npz?labels=y"


def npy() -> str:
    np.save("a.npy", values())
    return "a.npy"


def table() -> dict[str, Any]:
    names = ["rose", "daisy", "tulip"]
    return {f"f{i}": values()[:, i] for i in range(4)} | {
        "kind": [names[i % 3] for i in range(COUNT)]
    }


def csv() -> str:
    columns = table()
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path("a.csv").write_text("\n".join(lines), encoding="utf-8")
    return "a.csv?labels=kind"


def parquet() -> str:
    pq.write_table(pa.table(table()), "a.parquet")
    return "a.parquet?labels=kind"


def words() -> str:
    pq.write_table(pa.table({"x": [f"word {i % 4}" for i in range(COUNT)]}), "w.parquet")
    return "w.parquet"


def pictures() -> str:
    for index in range(COUNT):
        folder = Path("pictures", f"class {index % 3}")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = RNG.integers(0, 256, (5 + index, 6, 3), np.uint8)
        (folder / f"{index}.png").write_bytes(encoded(pixels))
    return "pictures"


def clips() -> str:
    Path("clips").mkdir()
    for index in range(COUNT):
        audio = RNG.integers(-99, 99, 20 + index).astype(np.int16)
        wavfile.write(f"clips/{index % 2}_{index}.wav", 8000, audio)
    return "wavs:clips?labels=prefix"


def records() -> str:
    text = '[features.x]\nencoding = "png"\n[features.y]\ndtype = "int64"\n'
    Path("spec.toml").write_text(text, encoding="utf-8")
    rows = [
        example(x=encoded(RNG.integers(0, 256, (5, 5, 3), np.uint8)), y=np.int64(index % 2))
        for index in range(COUNT)
    ]
    write_records(Path("a.tfrecord-00000-of-00001"), *rows)
    return "a.tfrecord-*?spec=spec.toml&labels=y"


def function() -> str:
    Path("mydata.py").write_text(
        "import numpy as np\ndef load():\n    print('hello')\n"
        f"    return np.ones(({COUNT}, 4), np.float32), np.arange({COUNT})\n",
        encoding="utf-8",
    )
    return "mydata:load"


SOURCES: list[tuple[Callable[[], str], TensorSpec, str]] = [
    (npz, X, "none"),
    (npy, X, "scale=1/3"),
    (csv, X, "none"),
    (parquet, X, "mean=1"),
    (words, WORDS, "none"),
    (pictures, PICTURE, "resize=5x5&scale=1/255"),
    (clips, CLIP, "length=30&scale=1/99"),
    (records, PICTURE, "scale=1/255"),
    (lambda: "sklearn:iris", X, "none"),
    (function, X, "none"),
]


@pytest.mark.parametrize(("make", "spec", "steps"), SOURCES)
def test_a_child_gives_what_is_read_here(make, spec, steps, place):
    source = make()
    preprocessing = parse_preprocessing(steps)
    here = open_samples(source, (spec,), preprocessing=preprocessing, allow_code=True)
    with opened_samples(source, (spec,), preprocessing=preprocessing, allow_code=True) as there:
        assert (there.count, there.class_names) == (here.count, here.class_names)
        assert (there.text, there.is_text) == (here.text, here.is_text)
        assert_equal(there.labels, here.labels)
        every = np.arange(here.count)
        assert read(there, every) == read(here, every)
        chosen = np.array([7, 2, 5])
        assert read(there, chosen) == read(here, chosen)
        assert read(there.only(chosen), every[:2]) == read(here.only(chosen), every[:2])
        stored, expected = there.stored(chosen)["x"], here.stored(chosen)["x"]
        assert all(map(np.array_equal, stored, expected))
        written = there.write(chosen, place / "written")
        assert sha256_samples(written) == sha256_samples(here.take(chosen))
        assert sha256_samples(read_samples(place / "written")) == sha256_samples(written)
    assert list((place.parent / "tmp").iterdir()) == []


def read(data: LocalDataSet, indices: Any) -> tuple[Any, ...]:
    """Everything of the samples, at once and in parts, and the hash of what is stored."""
    digest = SamplesHash()
    parts = list(data.chunks(indices, 4, digest))
    whole = data.take(indices)
    joined = np.concatenate([part.arrays["x"] for part in parts])
    assert joined.tobytes() == whole.arrays["x"].tobytes()
    labels = None if whole.labels is None else whole.labels.tolist()
    array = whole.arrays["x"]
    return array.tobytes(), array.dtype, array.shape, labels, whole.source, digest.hexdigest()


def assert_equal(one: Any, other: Any) -> None:
    assert (one is None) == (other is None)
    if other is not None:
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("gone.npz", InputRefused),
        ("gone.csv", InputRefused),
        ("here.xyz", UsageError),
        ("bad.npz", InputRefused),
        ("bad.npz?labels=z", InputRefused),
        ("bad.parquet", InputRefused),
        ("a.npz?labels=z", UsageError),
        ("a.npz?x=yy", UsageError),
        ("mydata:load", UsageError),
        ("images:here", InputRefused),
        ("tfds:nothing", InputRefused),
        ("sklearn:irs", UsageError),
    ],
)
def test_what_is_refused_here_is_refused_there_in_the_same_words(source, kind, place):
    npz()
    for name in ("bad.npz", "bad.parquet"):
        Path(name).write_bytes(b"PK\x03\x04 nothing else")
    with fails(kind):
        open_samples(source, (X,))
    with fails(kind), opened_samples(source, (X,)):
        pass
    assert list((place.parent / "tmp").iterdir()) == []


@pytest.mark.usefixtures("place")
def test_a_sample_that_is_bad_is_refused_when_it_is_read_and_others_are_read_after_it():
    source = pictures()
    damaged = Path("pictures", "class 1", "4.png")
    damaged.write_bytes(damaged.read_bytes()[:60])
    steps = parse_preprocessing("resize=5x5&scale=1/255")
    with opened_samples(source, (PICTURE,), preprocessing=steps) as opened:
        with fails(InputRefused):
            opened.take(np.arange(COUNT))
        assert opened.take(np.array([0, 8])).count == 2


@pytest.mark.usefixtures("place")
def test_a_pass_that_is_not_finished_disturbs_no_other():
    source = npz()
    here = open_samples(source, (X,))
    with opened_samples(source, (X,)) as opened:
        first, second = (opened.chunks(np.arange(COUNT), size) for size in (2, 3))
        assert next(first).arrays["x"].tolist() == here.columns["x"][:2].tolist()
        assert next(second).arrays["x"].tolist() == here.columns["x"][:3].tolist()
        assert opened.take(np.array([8])).arrays["x"].tolist() == here.columns["x"][8:].tolist()
        assert next(first).arrays["x"].tolist() == here.columns["x"][2:4].tolist()
        assert [part.count for part in second] == [3, 3]


@pytest.mark.usefixtures("place")
def test_samples_outlive_the_child_that_read_them():
    with opened_samples(npz(), (X,)) as opened:
        samples = opened.take(np.arange(COUNT))
    assert (
        samples.arrays["x"].tolist() == open_samples("a.npz?labels=y", (X,)).columns["x"].tolist()
    )


def archive_of_zeros(rows: int) -> str:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 4)}}\n".encode()
    with (
        zipfile.ZipFile("zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(rows * 16 // MIB):
            member.write(bytes(MIB))
    return "zeros.npz"


@pytest.mark.usefixtures("started_children")
def test_the_memory_limit_holds_by_what_is_declared_and_by_what_is_used(place):
    source = archive_of_zeros(20 * MIB)
    limit = Allowance(memory_bytes=300 * MIB)
    with fails(InputRefused), opened_samples(source, (X,), allowance=limit):
        pass
    # What is declared fits, and the interpreter beside it does not.
    limit = Allowance(memory_bytes=325 * MIB)
    with fails(WorkerOutOfMemory), opened_samples(source, (X,), allowance=limit) as opened:
        opened.take(np.arange(opened.count))
    assert_nothing_is_left(place)


@pytest.mark.usefixtures("started_children")
def test_the_time_limit_holds_while_it_reads(place):
    with Path("large.csv").open("w", encoding="ascii") as file:
        file.write("a,b,c,d\n")
        for _ in range(100):
            file.write("1.25,2.5,3.75,4\n" * 40_000)
    with (
        fails(WorkerTimedOut),
        # A fast and quiet machine reads it within a second.
        opened_samples("large.csv", (X,), allowance=Allowance(timeout_s=0.3)),
    ):
        pass
    assert_nothing_is_left(place)


@pytest.mark.usefixtures("place")
def test_time_in_which_nobody_waits_for_it_does_not_count():
    allowance = Allowance(timeout_s=3)
    with opened_samples(npz(), (X,), allowance=allowance) as opened:
        parts = opened.chunks(np.arange(COUNT), 4)
        next(parts)
        end_s = time.monotonic() + 3.3
        poll_until(lambda: time.monotonic() > end_s)
        assert [part.count for part in parts] == [4, 1]


@pytest.mark.usefixtures("started_children")
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (signal.SIGKILL, WorkerKilled),
        (signal.SIGSEGV, InputRefused),
        (signal.SIGABRT, InputRefused),
    ],
)
def test_a_child_that_dies_is_an_error(number, kind, place):
    with opened_samples(npz(), (X,)) as opened:
        for child in psutil.Process().children(recursive=True):
            os.kill(child.pid, number)
        with fails(kind):
            opened.take(np.arange(2))
    assert_nothing_is_left(place)


@pytest.mark.usefixtures("started_children")
def test_an_interrupt_leaves_nothing(place):
    def interrupted() -> None:
        with opened_samples(npz(), (X,)) as opened:
            next(opened.chunks(np.arange(COUNT), 4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert_nothing_is_left(place)


def assert_nothing_is_left(place: Path) -> None:
    assert psutil.Process().children(recursive=True) == []
    assert list((place.parent / "tmp").iterdir()) == []


def test_a_link_in_place_of_the_files_of_an_answer_is_not_followed_when_they_are_removed(place):
    keep = place / "keep"
    keep.mkdir()
    (keep / "0.npy").write_bytes(b"kept")
    (keep / "finished").touch()
    with opened_samples(npz(), (X,)) as opened:
        reader = opened.reader
        call = reader.child.start(write_part, PartJob(indices=[0]))
        call.result()
        call.directory.rename(place / "moved")
        call.directory.symlink_to(keep)
        with pytest.raises(InputRefused), reader.answered(call):
            pass
        assert opened.take(np.arange(1)).count == 1
    assert (keep / "0.npy").read_bytes() == b"kept"


def test_a_link_among_the_files_of_a_child_is_not_followed(place):
    np.save(place / "secret.npy", values())
    (place / "0.npy").symlink_to(place / "secret.npy")
    assert mapped(place / "secret.npy", COUNT).shape == (COUNT, 4)
    with fails(InputRefused):
        mapped(place / "0.npy", COUNT)
    os.mkfifo(place / "1.npy")
    with fails(InputRefused):
        mapped(place / "1.npy", COUNT)


def test_no_decoder_is_loaded_by_the_caller(place):
    sources = [pictures(), parquet(), clips(), records(), csv(), "sklearn:iris"]
    program = """
        import sys
        import numpy as np
        from edgeconv import data
        from edgeconv.types import TensorSpec
        for source, shape in zip(sys.argv[1:], ["5,5,3", "4", "30", "5,5,3", "4", "4"]):
            shape = (-1, *map(int, shape.split(",")))
            steps = {"4": "none", "30": "length=30&scale=1/99"}.get(
                ",".join(map(str, shape[1:])), "resize=5x5&scale=1/255"
            )
            spec = TensorSpec(name="x", shape=shape, dtype="float32")
            steps = data.parse_preprocessing(steps)
            source = data.parse_source(source)
            with data.opened_samples(source, (spec,), preprocessing=steps) as opened:
                opened.take(np.arange(opened.count))
        loaded = {name.partition(".")[0] for name in sys.modules}
        print(sorted(loaded & {"PIL", "pyarrow", "scipy", "sklearn", "google", "google_crc32c"}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *sources],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
    )
    assert done.stdout == "[]\n"


@pytest.mark.usefixtures("place")
def test_what_may_be_read_is_what_the_source_names_links_followed():
    pictures()
    target = Path("elsewhere.png")
    target.write_bytes(encoded(np.zeros((5, 5, 3), np.uint8)))
    Path("pictures", "class 0", "link.png").symlink_to(target.resolve())
    readable = readable_of(parse_source("pictures?classes=names.txt"))
    assert readable == (Path("pictures"), Path("names.txt"), target.resolve())
    assert readable_of(parse_source("sklearn:iris")) == ()
    assert readable_of(parse_source("a/b-*.tfrecord?spec=s.toml")) == (Path("a"), Path("s.toml"))
