"""`edgeconv build`: what it does, when it does it, and how it says what is wrong."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from build_project import CONFIG, RECORD, calibrate, write_project
from embed_models import tree
from loaded_modules import RUN, loaded_by
from tiny_tflite import Graph, packed
from wording import says

from edgeconv.cli import run
from edgeconv.embedding.plan import JOURNAL
from edgeconv.system.store import Cache

Builds = Callable[..., tuple[int, str, str]]
NEXT = "`edgeconv check` shows whether it keeps the budget\n"


@pytest.fixture
def project(tmp_path, cache, monkeypatch) -> Path:
    """A project, and the directory that commands are called in."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    directory = write_project(tmp_path / "project")
    monkeypatch.chdir(directory)
    # A build does not trust what was written in the same moment.
    time.sleep(0.05)
    return directory


@pytest.fixture
def build(capfd) -> Builds:
    """Builds; returns the exit code, stdout and stderr."""

    def built(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["build", *arguments])
        return code, *capfd.readouterr()

    return built


def write(text: str) -> None:
    Path("edgeconv.toml").write_text(text, encoding="utf-8")


def no_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a step that is not fresh fails."""

    def refuse(*_: object) -> None:
        raise AssertionError("the step is done again")

    monkeypatch.setattr("edgeconv.embedding.build.convert", refuse)


# When


def test_what_was_built_is_said_once_and_then_nothing(project, build, monkeypatch):
    code, said, errors = build()
    assert (code, said) == (0, f"built net for c in {project}/app/model: 9 files\n")
    says(errors)
    assert errors.endswith(
        "net.int8.tflite was never checked, or was written since its last check: " + NEXT
    )
    assert (project / RECORD).is_file()
    no_conversion(monkeypatch)
    assert build() == (0, "", "")


def test_a_first_build_that_converted_is_noted_at_once(project, build, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "own"))
    assert build("--quiet") == (0, "", "")
    no_conversion(monkeypatch)
    assert build() == (0, "", "")


def test_what_it_does_is_said_where_that_is_asked_for(project, build):
    _, _, errors = build("--verbose")
    says(errors.splitlines()[:2])


def test_nothing_heavy_is_loaded_where_nothing_changed(project, build):
    assert build()[0] == 0
    assert loaded_by(RUN, "build") == set()
    outputs = ("--list-outputs", "--depfile", "d.d")
    assert loaded_by(RUN, "build", *outputs) == set()


def test_other_samples_change_the_files_and_the_first_ones_change_them_back(project, build):
    build()
    first = tree(project / "app")
    calibrate(project / "cal.npz", 2)
    assert build()[1].startswith("built net")
    assert tree(project / "app") != first
    calibrate(project / "cal.npz", 1)
    build()
    assert tree(project / "app") == first


def test_an_option_that_changed_is_noticed_and_one_of_another_model_is_not(
    project, build, monkeypatch
):
    write(CONFIG + 'symbol = "first"\n')
    build()
    write(CONFIG + 'symbol = "second"\n')
    build()
    names = {path.name for path in (project / "app" / "model").glob("*.h")}
    assert names == {"second.h", "second_interface.h", "second_micro.h", "second_self_test.h"}
    no_conversion(monkeypatch)
    write(CONFIG + 'symbol = "second"\n# comment\n[model.other]\nsource = "none.tflite"\n')
    assert build() == (0, "", "")


def test_steps_in_a_file_are_read_again_when_they_change(project, build):
    steps = project / "steps.toml"
    steps.write_text("[preprocess]\nscale = 1.0\n")
    write(CONFIG.replace('"cal.npz"\n', '"cal.npz"\npreprocess = "steps.toml"\n'))
    code, _, errors = build("--depfile", "d.d")
    assert code == 0, errors
    assert str(steps) in (project / "d.d").read_text()
    before = (project / RECORD).read_bytes()
    steps.write_text("[preprocess]\nscale = 0.5\n")
    build()
    assert (project / RECORD).read_bytes() != before


def test_a_file_that_was_changed_or_removed_by_hand_is_made_anew(project, build):
    build()
    first = tree(project / "app")
    (project / "app/model/net.h").write_text("mine")
    (project / "app/model/net.c").unlink()
    shutil.rmtree(project / "net.tflites")
    assert build()[1].startswith("built net")
    assert tree(project / "app") == first
    assert (project / "net.tflites" / "net.int8.tflite").is_file()


def test_a_model_that_was_edited_is_made_anew_and_named(project, build):
    build()
    file = project / "net.tflites" / "net.int8.tflite"
    first = file.read_bytes()
    file.write_bytes(first + b"mine")
    (built,) = json.loads(build("--json")[1])
    assert file.read_bytes() == first
    assert [note for note in built["notes"] if note.startswith(f"{file.name} ")]


def test_what_a_killed_run_left_is_cleared_up_though_nothing_changed(project, build):
    build()
    first = tree(project / "app")
    place = project / "app" / "model"
    (place / JOURNAL).write_text('{"files": ["net.c", "net.h"]}')
    (place / ".edgeconv-new-abcd1234").write_bytes(b"torn")
    assert build()[0] == 0
    assert tree(project / "app") == first


def test_a_function_is_asked_each_time(project, build, monkeypatch):
    monkeypatch.syspath_prepend(project)
    (project / "mine.py").write_text(
        "import numpy as np\ndef samples():\n    return {'x': np.load('cal.npz')['x']}\n"
    )
    write(CONFIG.replace("cal.npz", "mine:samples"))
    code, _, errors = build()
    assert code == 2
    says(errors)
    assert build("--allow-code")[0] == 0
    before = (project / RECORD).read_bytes()
    # No file that the configuration names has changed.
    calibrate(project / "cal.npz", 3)
    assert build("--allow-code")[1].startswith("built net")
    assert (project / RECORD).read_bytes() != before


def test_it_is_done_in_the_folder_of_the_configuration_from_anywhere(
    project, build, monkeypatch, tmp_path
):
    build()
    first = tree(project)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", os.path.relpath(os.environ["EDGECONV_CACHE_DIR"]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "app")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", f"../{os.environ['EDGECONV_CACHE_DIR']}")
    no_conversion(monkeypatch)
    assert build("--config", "../edgeconv.toml", "--depfile", "d.d") == (0, "", "")
    assert Path.cwd() == project / "app"
    assert (project / "app" / "d.d").is_file()
    (project / "app" / "d.d").unlink()
    assert build("--config", str(project / "edgeconv.toml")) == (0, "", "")
    assert tree(project) == first


def test_a_checkout_elsewhere_takes_what_was_converted_from_the_cache(
    project, build, monkeypatch, tmp_path
):
    build()
    other = write_project(tmp_path / "other")
    kept: list[str] = []
    monkeypatch.setattr(Cache, "keep", lambda _self, stage, *_: kept.append(stage))
    assert build("--config", str(other / "edgeconv.toml"), "--depfile", "d.d")[0] == 0
    assert kept == []
    assert tree(other / "app") == tree(project / "app")
    # What it stands on is its own.
    assert str(other / "cal.npz") in (project / "d.d").read_text()
    assert str(project / "cal.npz") not in (project / "d.d").read_text()
    calibrate(other / "cal.npz", 2)
    assert build("--config", str(other / "edgeconv.toml"))[1].startswith("built net")


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(project, build, monkeypatch):
    (project / "file").write_bytes(b"")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(project / "file" / "cache"))
    code, _, errors = build()
    assert code == 3
    says(errors)
    assert build("--no-cache")[1].startswith("built net")
    assert build("--no-cache") == (0, "", "")


# What is printed and written


def test_outputs_are_listed_also_where_nothing_was_to_do(project, build):
    names = (
        "net.c net.h net_golden.c net_interface.c net_interface.h net_micro.h net_model.c "
        "net_self_test.c net_self_test.h"
    )
    expected = [str(project / RECORD), *(f"{project}/app/model/{one}" for one in names.split())]
    for _ in range(2):
        code, said, _ = build("--list-outputs")
        assert code == 0
        assert sorted(said.splitlines()) == sorted(expected)
        assert all(Path(line).is_file() for line in said.splitlines())


def test_json_says_all_of_each_model(project, build):
    for is_new in (True, False):
        (one,) = json.loads(build("--json")[1])
        assert one["is_new"] is is_new
        assert one["name"] == "net"
        assert one["inputs"] == [str(project / "cal.npz"), str(project / "net.tflite")]
        assert one["directory"] == str(project / "app" / "model")
        assert str(project / RECORD) in one["outputs"]
        assert one["embedded"]["target"] == "c"


def test_a_depfile_that_cannot_be_written_is_an_error(project, build):
    code, _, errors = build("--depfile", "none/d.d")
    assert code == 3
    says(errors)


# What is wrong


def changed(old: str, new: str) -> str:
    assert old in CONFIG
    return CONFIG.replace(old, new)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("[model.net\n", 2),
        (changed("target", "targte"), 2),
        (changed('"int8"', "8"), 2),
        (changed('"c"', '"cc"'), 2),
        (changed('target = "c"\n', ""), 2),
        (changed('out = "app/model"', ""), 2),
        (changed('to = "int8"', ""), 2),
        (changed("cal.npz", "none.npz"), 3),
        (changed("net.tflite", "none.tflite"), 3),
        (changed("[model.net.embed]", "[model.net.bench]\n[x]"), 2),
        (CONFIG + "[build]\nwatch = true\n", 2),
        (CONFIG + 'recipe = "int16x8"\n', 2),
        (CONFIG + 'symbol = "a-b"\n', 2),
        (CONFIG + 'option = "bytes"\n', 2),
        (changed('"int8"', '["int8", "float32"]'), 2),
        ("", 2),
    ],
)
def test_an_error_is_a_line_that_editors_understand(project, build, config, code):
    write(config)
    found, printed, errors = build()
    assert found == code, errors
    assert printed == ""
    says(errors)
    lines = errors.splitlines()
    assert lines[0].startswith("edgeconv.toml:")
    assert ": error: " in lines[0]
    assert [line for line in lines[1:] if ": note: " not in line] == []
    assert not (project / "app").exists()


def test_an_error_elsewhere_names_the_file_as_it_was_typed(project, build, monkeypatch):
    write(changed("cal.npz", "none.npz"))
    monkeypatch.chdir(project.parent)
    code, _, errors = build("--config", "project/edgeconv.toml")
    assert code == 3
    says(errors)
    write_project(project, changed('"int8"', "8"))
    errors = build("--config", "project/edgeconv.toml")[2]
    says(errors)


def test_a_recipe_that_failed_verification_is_the_error(project, build):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    graph.operator("SIN", [x], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    (project / "net.tflite").write_bytes(packed(model))
    config = CONFIG.replace("[convert]\n", '[convert]\nio = "int8"\n')
    (project / "edgeconv.toml").write_text(config, encoding="utf-8")
    code, printed, errors = build()
    assert (code, printed) == (4, "")
    says(errors)
    assert not (project / "app").exists()


def test_without_a_configuration_there_is_no_line_to_name(tmp_path, build, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in ([], ["--watch"]):
        code, _, errors = build(*arguments)
        assert code == 2
        says(errors)


TWO = (
    CONFIG
    + """\
[model.second]
source = "net.tflite"
[model.second.embed]
target = "c"
out = "app/model/../model"
"""
)


@pytest.mark.parametrize("names", [[], ["--model", "net"], ["--model", "second"]])
def test_two_models_in_one_directory_are_refused_before_anything_is_done(
    project, build, monkeypatch, names
):
    write(TWO)
    no_conversion(monkeypatch)
    code, _, errors = build(*names)
    assert code == 2
    assert errors.startswith(
        f"edgeconv.toml:13: error: models net and second have the same `out` of [embed], "
        f"{project}/app/model"
    )


def test_two_models_converted_into_one_directory_are_refused(project, build, monkeypatch):
    convert = '[model.{}.convert]\nout = "made"\n'
    own = TWO.replace("app/model/../model", "app/second")
    write(own + convert.format("net") + convert.format("second"))
    no_conversion(monkeypatch)
    assert "models net and second have the same `out` of [convert]" in build()[2]


def test_a_general_out_has_a_folder_for_each_model(project, build):
    write(
        '[model.a]\nsource = "net.tflite"\n[model.b]\nsource = "net.tflite"\n'
        '[convert]\nto = "int8"\ncalibration = "cal.npz"\n[embed]\ntarget = "c"\nout = "app"\n'
    )
    code, said, _ = build()
    assert code == 0
    assert [line.split(":")[0] for line in said.splitlines()] == [
        f"built a for c in {project}/app/a",
        f"built b for c in {project}/app/b",
    ]
    assert build("--model", "a", "--model", "a") == (0, "", "")


def test_a_model_without_embed_is_left_out_and_named_where_it_is_asked_for(project, build):
    write(CONFIG + '[model.other]\nsource = "none.tflite"\n')
    assert build()[0] == 0
    code, _, errors = build("--model", "net", "--model", "other")
    assert code == 2
    says(errors)
    assert "did you mean 'net'" in build("--model", "nett")[2]
    write(CONFIG.partition("[model.net.embed]")[0])
    assert "edgeconv.toml:1: error: no model has an [embed] table" in build()[2]


def test_files_are_not_embedded_inside_what_they_are_made_of(project, build):
    (project / "saved").mkdir()
    write(changed("net.tflite", "saved").replace("app/model", "saved/app"))
    code, _, errors = build()
    assert code == 2
    says(errors)


def test_foreign_files_in_the_way_stay(project, build):
    (project / "app" / "model").mkdir(parents=True)
    (project / "app" / "model" / "net.h").write_text("mine")
    code, _, errors = build()
    assert code == 3
    says(errors)
    assert (project / "app" / "model" / "net.h").read_text() == "mine"
    assert tree(project / "app") == {"model/net.h": b"mine"}
