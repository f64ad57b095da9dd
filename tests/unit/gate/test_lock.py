import base64
import os
import random
import struct
import sys
import zlib
from pathlib import Path

import msgspec
import pytest
from commands import captured
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report_example import report
from wording import fails

from edgeconv.requests.config import lock
from edgeconv.requests.config.lock import (
    pack_classes,
    pack_numbers,
    pack_right,
    unpack_classes,
    unpack_numbers,
    unpack_right,
)
from edgeconv.types import Accuracy, Lock, LockedModel, LockedStage
from edgeconv.types.errors import InputRefused, OutputRefused

INPUTS = {"source": "a" * 64, "calibration data": "b" * 64}


def digits(name: str = "digits", **fields: object) -> LockedModel:
    return replace(lock.locked_model(name, report(), INPUTS), **fields)


def a_lock(*names: str) -> Lock:
    return Lock(models={name: digits(name) for name in names})


def written(found: Lock, place: Path) -> str:
    lock.write(found, place)
    return place.read_text(encoding="utf-8")


def is_refused(place: Path, text: str | bytes) -> None:
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    with fails(InputRefused):
        lock.read(place)


def test_what_is_written_is_read_again_and_equal_locks_are_equal_bytes(tmp_path):
    found = a_lock("digits", "voices")
    text = written(found, tmp_path / "edgeconv.lock")
    assert lock.read(tmp_path / "edgeconv.lock") == found
    turned = Lock(models=dict(reversed(found.models.items())))
    assert written(turned, tmp_path / "other.lock") == text


def test_every_line_is_one_fact_in_one_order(tmp_path):
    lines = written(a_lock("voices", "digits"), tmp_path / "edgeconv.lock").splitlines()
    facts = [line for line in lines if line and line[0] not in "[#"]
    assert all(line.count(" = ") == 1 for line in facts)
    assert "format = 1" in facts
    headers = [line for line in lines if line.startswith("[model.")]
    assert headers.index("[model.digits]") < headers.index("[model.voices]")
    assert "[model.digits.stage.digits_cnn-int8]" in headers


def test_the_state_of_a_report_is_what_is_locked():
    model = digits()
    example = report()
    assert model.test_sha256 == example.data.sha256
    assert model.inputs == dict(sorted(INPUTS.items()))
    assert model.tools["litert-quantizer"] == "0.10.0"
    assert model.machine["cpu"] == example.environment.cpu
    names = [stage.name for stage in model.stages]
    assert names[:2] == ["digits_cnn", "digits_cnn-float32"]
    for row in example.measurements:
        stage = model.stage_of(row)
        if row.error:
            assert row.name not in names
        else:
            assert (stage.sha256, stage.accuracy) == (row.sha256, row.accuracy)


def test_a_checkpoint_is_locked_too():
    example = report()
    assert example.baseline is not None
    checkpoint = replace(example.baseline, name="checkpoint")
    with_one = replace(example, checkpoint=checkpoint)
    model = lock.locked_model("digits", with_one, {})
    assert model.stages[0].name == "checkpoint"
    assert model.stage_of(checkpoint) == model.stages[0]
    assert lock.locked_model("digits", example, {}).stage_of(checkpoint) is None


def test_a_renamed_file_is_known_by_its_recipe():
    model = digits()
    (int8,) = (row for row in report().measurements if row.recipe == "int8")
    renamed = replace(int8, name="better-name")
    found = model.stage_of(renamed)
    assert found.name == "digits_cnn-int8"
    twice = replace(model, stages=(*model.stages, replace(found, name="digits_cnn-int8 in web")))
    # In whichever runtime it was measured: the answers of the first are compared with.
    assert twice.stage_of(renamed) == found


def test_two_models_of_one_name_cannot_be_locked():
    example = report()
    row = example.measurements[0]
    twice = replace(example, measurements=(row, row))
    with fails(InputRefused):
        lock.locked_model("digits", twice, {})


def test_a_lock_of_nothing_is_read_as_that(tmp_path):
    text = written(Lock(), tmp_path / "edgeconv.lock")
    assert "format = 1" in text
    assert lock.read(tmp_path / "edgeconv.lock") == Lock()


HOSTILE = ['"', "\\", "a.b", "]", "x\ny", "\x7f", "\u202e", "é", "'", "=", "#", " ", "\u2028", "📷"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_on_their_line_and_come_back(tmp_path, name):
    model = digits(name, machine={name: name}, preprocessing=name)
    text = written(Lock(models={name: model}), tmp_path / "edgeconv.lock")
    assert lock.read(tmp_path / "edgeconv.lock").models == {name: model}
    assert len(text.splitlines()) == len(text.split("\n")) - 1
    assert "\u202e" not in text


NUMBERS = st.floats(allow_nan=False)


@st.composite
def stages(draw):
    """A stage with any accuracy that is of one number of samples."""
    samples = draw(st.integers(0, 40))
    many = {"min_size": samples, "max_size": samples}
    accuracy = Accuracy(
        metric=draw(st.text(max_size=10)),
        value=draw(NUMBERS),
        samples=samples,
        higher_is_better=draw(st.booleans()),
        correct=draw(st.text("01", **many) | st.just("")),
        per_sample=tuple(draw(st.lists(NUMBERS, **many) | st.just([]))),
        predicted=tuple(draw(st.lists(st.integers(-(2**62), 2**62 - 1), **many) | st.just([]))),
    )
    return LockedStage(
        name=draw(st.text(max_size=10)),
        role=draw(st.sampled_from(["baseline", "artifact"])),
        sha256="c" * 64,
        size_bytes=draw(st.integers(0, 2**62)),
        latency_ratio=draw(st.none() | NUMBERS),
        accuracy=draw(st.none() | st.just(accuracy)),
    )


@given(
    st.text(max_size=12),
    st.lists(stages(), max_size=4, unique_by=lambda stage: stage.name),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)
def test_any_model_comes_back_as_it_was(tmp_path_factory, name, found, tools):
    place = tmp_path_factory.mktemp("lock") / "edgeconv.lock"
    model = LockedModel(
        name=name,
        inputs=tools,
        test_sha256="d" * 64,
        test_samples=3,
        tools=tools,
        stages=tuple(found),
    )
    lock.write(Lock(models={name: model}), place)
    assert lock.read(place).models == {name: model}


def edits(text: str) -> dict[str, str]:
    lines = text.split("\n")
    correct = next(line for line in lines if line.startswith("correct"))
    other = [line for line in lines if line.startswith("correct") and line != correct]
    return {
        "a better number": text.replace("accuracy = 0.97", "accuracy = 0.91", 1),
        "a line less": text.replace(f"{correct}\n", "", 1),
        "a line more": text.replace("[model.digits]\n", "[model.digits]\nnote = 1\n"),
        "another name": text.replace("[model.digits", "[model.letters"),
        "no checksum": text.replace(lines[lines.index("[model.digits]") + 1], ""),
        "results of another stage": text.replace(correct, other[0], 1),
        "no table": 'format = 1\nmodel.digits = "fine"\n',
        "a value": "format = 1\n[model]\ndigits = 3\n",
    }


@pytest.mark.parametrize("edit", list(edits("[model.digits]\nx\ncorrect\ncorrect 2")))
def test_a_lock_edited_by_hand_is_refused_by_the_name_of_the_model(tmp_path, edit):
    place = tmp_path / "edgeconv.lock"
    text = written(a_lock("digits", "voices"), place)
    edited = edits(text)[edit]
    assert edited != text
    is_refused(place, edited)


def test_line_ends_comments_and_order_are_no_edits(tmp_path):
    place = tmp_path / "edgeconv.lock"
    text = written(a_lock("digits"), place)
    place.write_bytes(text.replace("\n", "\r\n").replace("[model", "# mine\r\n[model").encode())
    assert lock.read(place) == a_lock("digits")


def test_the_line_of_the_model_that_was_edited_is_named(tmp_path):
    place = tmp_path / "edgeconv.lock"
    text = written(a_lock("digits", "voices"), place)
    before, after = text.split("[model.voices]")
    is_refused(place, f"{before}[model.voices]{after.replace('size-bytes = 1', 'size-bytes = 2')}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "format = 'one'\n",
        "format = true\n",
        "format = 1\n[model.digits\n",
        "format = 1\nformat = 1\n",
        f"format = {'[' * 9000}",
        f"format = {'1' * 5000}",
        "format = 1\n[modle.digits]\n",
        "format = 1\nmodel = 3\n",
        b"\xff\xfe\x00",
        # A merge with conflicts, and a newer version.
        "format = 1\n<<<<<<< HEAD\nformat = 1\n=======\n",
        "format = 2\n[[model]]\nname = 'digits'\n",
    ],
)
def test_what_is_no_lock_is_refused(tmp_path, text):
    is_refused(tmp_path / "edgeconv.lock", text)


def forged_is_refused(table: dict, place: Path) -> None:
    """A file whose checksum is right for what is in it."""
    from edgeconv.requests.config.lock import as_text, checksum

    whole = {"model": {"digits": {"checksum": checksum("digits", table), **table}}}
    is_refused(place, f"format = 1\n{as_text(whole)}")


RIGHT = {"test-sha256": "d", "test-samples": 2, "inputs": {"source": "a"}}
STAGE = {"role": "artifact", "sha256": "c", "size-bytes": 3}
STAGE |= {"metric": "top1", "accuracy": 0.5, "samples": 2, "higher-is-better": True}


@pytest.mark.parametrize(
    "stage",
    [
        {"size-bytes": "3"},
        {"role": "spare"},
        {"colour": "red"},
        {"samples": "2"},
        {"samples": -1},
        *({"correct": line} for line in ("§", "AAAA", "eA", "====", "b:")),
        {"correct": "eNpj+E8CAADafCvVAAAA"},
        {"per-sample": "eJwDAAAAAAE="},
        {"predicted": "x:eJwDAAAAAAE="},
        {"predicted": "eJw"},
        {"correct": 3},
    ],
)
def test_a_lock_that_cannot_be_read_names_the_model_and_what_is_wrong(tmp_path, stage):
    table = {**RIGHT, "stage": {"m": {**STAGE, **stage}}}
    forged_is_refused(table, tmp_path / "edgeconv.lock")


@pytest.mark.parametrize("stage", [3, {"m": 3}])
def test_a_stage_that_is_no_table_is_refused(tmp_path, stage):
    forged_is_refused({**RIGHT, "stage": stage}, tmp_path / "edgeconv.lock")


def test_a_lock_that_is_not_there_or_not_readable_is_refused(tmp_path):
    with fails(InputRefused):
        lock.read(tmp_path / "edgeconv.lock")
    with fails(InputRefused):
        lock.read(tmp_path)


def test_what_another_run_accepted_meanwhile_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    place = tmp_path / "edgeconv.lock"
    for name in ("digits", "voices", "gone"):
        lock.accept([digits(name)], place, of=("digits", "voices", "gone"))
    lock.accept([digits("digits", test_samples=7)], place, of=("digits", "voices"))
    found = lock.read(place).models
    assert list(found) == ["digits", "voices"]
    assert found["digits"].test_samples == 7


def test_a_place_that_cannot_be_written_is_refused_and_the_old_lock_stays(tmp_path, tiny_disk):
    place = tiny_disk / "edgeconv.lock"
    old = a_lock("digits")
    text = written(old, place)
    (tiny_disk / "ballast").write_bytes(b"x" * (48 << 10))
    with fails(OutputRefused):
        lock.write(a_lock(*(f"model-{i}" for i in range(9))), place)
    assert place.read_text(encoding="utf-8") == text
    assert sorted(one.name for one in tiny_disk.iterdir()) == ["ballast", "edgeconv.lock"]
    with fails(OutputRefused):
        lock.write(old, tmp_path / "not there" / "edgeconv.lock")


@pytest.mark.parametrize("fault", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_lock_and_nothing_else(tmp_path, monkeypatch, fault):
    place = tmp_path / "edgeconv.lock"
    text = written(a_lock("digits"), place)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, fault, fail)
    with fails(OutputRefused):
        lock.write(a_lock("voices"), place)
    monkeypatch.undo()
    assert place.read_text(encoding="utf-8") == text
    assert [one.name for one in tmp_path.iterdir()] == ["edgeconv.lock"]


def git(place: Path, *arguments: str, fails: bool = False) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    done = captured(["git", *settings, *arguments], cwd=place)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stdout


def merged(place: Path, base: Lock, ours: Lock, theirs: Lock, *, fails: bool = False) -> Path:
    """The lock after two branches that each wrote it are merged by git."""
    file = place / "edgeconv.lock"
    git(place, "init", "--quiet", "--initial-branch=main")
    lock.write(base, file)
    git(place, "add", file.name)
    git(place, "commit", "--quiet", "-m", "base")
    for branch, found in (("ours", ours), ("theirs", theirs)):
        git(place, "checkout", "--quiet", "-b", branch, "main")
        lock.write(found, file)
        git(place, "commit", "--quiet", "-a", "-m", branch)
    git(place, "merge", "--quiet", "ours", fails=fails)
    return file


def changed(model: LockedModel) -> LockedModel:
    """Everything other than before: each line of it."""
    text = msgspec.json.encode(model).decode()
    for old, new in (("b" * 64, "7" * 64), ("a" * 64, "8" * 64), ("0.10.0", "0.11.0")):
        text = text.replace(old, new)
    one = msgspec.json.decode(text, type=LockedModel)
    stages = [replace(each, size_bytes=each.size_bytes + 1) for each in one.stages]
    return replace(one, stages=tuple(stages), test_samples=7)


def test_git_merges_two_branches_that_changed_neighbouring_models(tmp_path):
    base = a_lock("a", "b")
    ours = Lock(models={**base.models, "a": changed(base.models["a"])})
    theirs = Lock(models={**base.models, "b": changed(base.models["b"])})
    file = merged(tmp_path, base, ours, theirs)
    assert lock.read(file).models == {"a": ours.models["a"], "b": theirs.models["b"]}


def test_git_merges_a_model_that_came_with_one_that_changed_and_one_that_went(tmp_path):
    base = a_lock("a", "b", "d", "e")
    ours = Lock(models={**base.models, "c": digits("c")})
    changes = {"a": changed(base.models["a"]), "d": changed(base.models["d"])}
    theirs = Lock(models={"b": base.models["b"], **changes})
    file = merged(tmp_path, base, ours, theirs)
    assert lock.read(file).models == {**changes, "b": base.models["b"], "c": digits("c")}


def test_a_model_that_both_branches_changed_is_refused_whatever_git_made_of_it(tmp_path):
    base = a_lock("a")
    int8 = base.models["a"].stages[-1]
    ours = Lock(models={"a": changed(base.models["a"])})
    theirs = digits("a", stages=(*base.models["a"].stages[:-1], changed_bytes(int8)))
    file = merged(tmp_path, base, ours, Lock(models={"a": theirs}), fails=True)
    with fails(InputRefused):
        lock.read(file)
    git(tmp_path, "checkout", "--theirs", "edgeconv.lock")
    assert lock.read(file) == ours
    # As the driver "union" of a careless .gitattributes would.
    text = file.read_text(encoding="utf-8").splitlines()
    other = written(Lock(models={"a": theirs}), tmp_path / "other.lock").splitlines()
    mixed = [b if a.startswith("size-bytes") else a for a, b in zip(text, other, strict=True)]
    is_refused(file, "\n".join(mixed))


def changed_bytes(stage: LockedStage) -> LockedStage:
    return replace(stage, sha256="9" * 64)


def test_reading_a_lock_loads_nothing_heavy(tmp_path):
    lock.write(a_lock("digits"), tmp_path / "edgeconv.lock")
    heavy = "{'numpy', 'scipy', 'rich', 'tensorflow', 'jinja2'}"
    code = (
        "import sys\nfrom edgeconv.requests.config import lock\n"
        f"assert lock.read({str(tmp_path / 'edgeconv.lock')!r}).models\n"
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    )
    done = captured([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr


CLASSES = st.integers(-(2**62), 2**62 - 1)


@given(st.lists(st.tuples(CLASSES, CLASSES)), st.booleans())
def test_classes_come_back_beside_others_or_alone(pairs, alone):
    classes = tuple(one for one, _ in pairs)
    beside = () if alone else tuple(other for _, other in pairs)
    assert unpack_classes(pack_classes(classes, beside), len(classes), beside) == classes


@given(st.lists(st.floats()))
def test_numbers_come_back_to_the_last_bit(numbers):
    back = unpack_numbers(pack_numbers(numbers), len(numbers))
    assert struct.pack(f"{len(back)}d", *back) == struct.pack(f"{len(numbers)}d", *numbers)


@pytest.mark.parametrize(
    ("classes", "letter"),
    [((0, 127), "b"), ((-129,), "h"), ((128,), "h"), ((40_000,), "i"), ((2**31,), "q"), ((), "b")],
)
def test_classes_take_as_many_bytes_as_they_need(classes, letter):
    assert pack_classes(classes).startswith(f"{letter}:")


def test_ten_thousand_samples_take_a_few_kilobytes():
    drawn = random.Random(5)
    correct = "".join("0" if drawn.random() < 0.02 else "1" for _ in range(10_000))
    classes = [drawn.randrange(10) for _ in correct]
    like = [one if drawn.random() > 0.01 else drawn.randrange(10) for one in classes]
    assert len(pack_right(correct)) < 1_000
    assert len(pack_classes(classes)) < 7_000
    assert len(pack_classes(like, classes)) < 700


@pytest.mark.parametrize("samples", [0, 1, 7, 9, 16, 17])
def test_lines_of_another_number_of_samples_are_refused(samples):
    with fails(ValueError):
        unpack_right(pack_right("11010101"), samples)
    with fails(ValueError):
        unpack_classes(pack_classes(range(8)), samples)
    with fails(ValueError):
        unpack_numbers(pack_numbers([0.5] * 8), samples)


def test_bits_beyond_the_samples_are_refused():
    with fails(ValueError):
        unpack_right(pack_right("10000000"), 7)


def test_classes_beside_others_are_not_read_without_them():
    packed = pack_classes((3, 4), (3, 5))
    assert unpack_classes(packed, 2, (3, 5)) == (3, 4)
    with fails(ValueError):
        unpack_classes(packed, 2, (3,))


def test_a_line_without_its_end_is_refused_though_all_numbers_are_there():
    whole = base64.b64decode(pack_numbers([0.5, 0.25]))
    for cut in (whole[:-1], whole + b"\0"):
        with fails(ValueError):
            unpack_numbers(base64.b64encode(cut).decode(), 2)


def test_a_line_that_would_fill_the_memory_is_refused_without_that():
    bomb = base64.b64encode(zlib.compress(bytes(200 << 20), 9)).decode()
    with fails(ValueError):
        unpack_right(bomb, 16)
