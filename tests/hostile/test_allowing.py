"""What a user allows a project, by hand or in a configuration of their own; and every option."""

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from commands import captured
from sources import load_samples
from strangers import Place, place, watch

from edgeconv.cli import command_named, run, ship
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.config import reach
from edgeconv.requests.config.reach import NotAllowed
from edgeconv.requests.config.tables import options_of
from edgeconv.requests.request import Option, Request, leaves_of
from edgeconv.requests.table import TABLES
from edgeconv.requests.texts import TEXT
from edgeconv.system.store.user import KEYS, KINDS, read_user_config, user_configuration
from edgeconv.types import TensorSpec
from edgeconv.types.errors import UsageError

__all__ = ["place", "watch"]


def settings(text: str) -> None:
    """The user's own configuration."""
    user_configuration().parent.mkdir(parents=True, exist_ok=True)
    user_configuration().write_text(text)


def bench(*words: str) -> BenchRequest:
    request: BenchRequest = (
        command_named("bench").make_context("bench", ["int8.tflite", *words]).obj.request
    )
    return request


def refused(*words: str) -> NotAllowed:
    with pytest.raises(NotAllowed) as error:
        bench(*words)
    return error.value


def git(place: Place, *words: str) -> None:
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=place.checkout, check=True)


# Every option


def test_every_option_that_a_project_can_give_says_what_its_texts_may_name():
    for name in TABLES:
        for key, leaf in options_of(name).items():
            of_numbers = leaf.takes in ("flag", "whole", "number", "choice")
            assert of_numbers or leaf.option.text is not None, f"{name} --{key}"


# Of these, what is written is a name, a shape, a version: nobody opens, starts or asks it.
PLAIN = {
    *("target-runtime", "signature", "io", "shape", "layer", "tag", "title", "output", "to"),
    *("symbol", "option", "target", "recipe", "depfile-target", "model", "state"),
    "qat-freeze-batch-norm",
}


def test_the_options_with_plain_texts_are_the_ones_that_were_looked_at():
    plain = {
        key for name in TABLES for key, leaf in options_of(name).items() if leaf.option.text is TEXT
    }
    # Their texts are taken apart, and nothing in them is opened either.
    assert plain == PLAIN - {"target-runtime", "layer"}


class Careless(Request, frozen=True, kw_only=True):
    """A request of which an option does not say what it may name."""

    new: Annotated[str, Option()] = ""


def test_an_option_that_does_not_say_it_cannot_be_made():
    with pytest.raises(TypeError, match=r"edgeconv\.requests\.texts"):
        leaves_of(Careless)


def test_an_option_of_the_user_is_none_of_a_project(place):
    for line in ("allow = ['runtime=web']", "allow-code = true", "trust-model = []"):
        place.config(f"[bench]\n{line}\n")
        with pytest.raises(UsageError, match="unknown option"):
            bench()
    place.config("[allow]\nruntimes = ['web']\n")
    with pytest.raises(UsageError, match="unknown table"):
        bench()


# What is allowed

ALLOWED = {
    "runtime": 'runtime = "ssh:board"',
    "program": 'python = "/bin/sh"',
    "directory": 'data = "../../secret.npz"',
}


@pytest.mark.parametrize("kind", ALLOWED)
def test_the_refusal_says_what_to_type_and_that_is_enough(kind, place):
    place.config(f"[bench]\n{ALLOWED[kind]}\n")
    hint = refused().hint
    typed = hint.rpartition("--allow ")[2].split(" on the command line")[0]
    assert typed.startswith(f"{kind}=")
    bench("--allow", typed)
    assert refused("--allow", typed + "x")


@pytest.mark.parametrize("kind", ALLOWED)
def test_the_refusal_says_what_to_write_and_that_is_enough(kind, place):
    place.config(f"[bench]\n{ALLOWED[kind]}\n")
    line = refused().hint.rpartition(" on the command line, or ")[2].split(" below [allow]")[0]
    assert str(user_configuration()) in refused().hint
    settings(f"[allow]\n{line}\n")
    bench()


def test_a_tracker_and_an_address_are_allowed_word_for_word(place):
    place.config('[check]\ntrack = "mlflow:http://host:5000"\n[train]\ntpu = "local"\n')
    settings('[allow]\ntrackers = ["mlflow:http://host:5000"]\n')
    command_named("check").make_context("check", [])
    with pytest.raises(NotAllowed, match="an address"):
        command_named("train").make_context("train", ["digits_cnn"])
    command_named("train").make_context("train", ["digits_cnn", "--allow", "address=local"])
    place.config('[check]\ntrack = "mlflow:http://host:50000"\n')
    with pytest.raises(NotAllowed, match="a tracker"):
        command_named("check").make_context("check", [])


def test_what_is_typed_needs_no_leave(place):
    place.config("[bench]\nrounds = 1\n")
    asked = bench("--runtime", "web:./evil.sh", "--data", "../../secret.npz", "-o", "/tmp/out")
    assert [str(each) for each in asked.measuring.runtimes] == ["web:./evil.sh"]


def test_a_project_of_the_user_may_name_anything(place):
    place.config('[bench]\nruntime = "web"\ndata = "../../secret.npz"\nmetric = "evil:score"\n')
    settings('[allow]\nprojects = ["~/work"]\n')
    assert str(bench().data).endswith("secret.npz")
    settings('[allow]\nprojects = ["~/wor"]\n')
    refused()


def test_code_is_allowed_as_it_is_and_no_longer_when_it_changes(place):
    (place.checkout / "helper.py").write_text("WIDTH = 4\n")
    (place.checkout / "mine.py").write_text("import helper\n\ndef load(): ...\n")
    place.config('[bench]\ndata = "mine:load"\n')
    sha256 = refused().hint.rpartition("--allow code=")[2][:64]
    bench("--allow", f"code={sha256}")
    settings(f'[allow]\ncode = ["{sha256}"]\n')
    bench()
    (place.checkout / "helper.py").write_text("WIDTH = 5\n")
    refused()
    (place.checkout / "helper.py").write_text("WIDTH = 4\n")
    bench()
    # A compiled one comes before the source.
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (place.checkout / f"helper{suffix}").write_bytes(b"\x7fELF")
    refused()


def test_code_is_not_allowed_with_modules_that_take_the_place_of_installed_ones(place):
    (place.checkout / "mine.py").write_text("def load(): ...\n")
    place.config('[bench]\ndata = "mine:load"\n')
    sha256 = refused().hint.rpartition("--allow code=")[2][:64]
    (place.checkout / "own.py").write_text("")
    bench("--allow", f"code={sha256}")
    (place.checkout / "h5py").mkdir()
    bench("--allow", f"code={sha256}")
    (place.checkout / "h5py" / "__init__.py").write_text("")
    refused("--allow", f"code={sha256}")


def test_a_program_in_the_project_is_allowed_by_its_content_only(place):
    program = place.checkout / "evil.sh"
    place.config('[bench]\npython = "./evil.sh"\n')
    refused("--allow", f"program={program}")
    sha256 = refused().hint.rpartition("--allow code=")[2][:64]
    bench("--allow", f"code={sha256}")
    bench("--allow-code")
    program.write_text("#!/bin/sh\n")
    refused("--allow", f"code={sha256}")


@pytest.mark.parametrize("runtime", ["ssh:x?config=ssh_config", "web:./evil.sh"])
def test_a_runtime_that_is_allowed_runs_no_file_that_changes_with_the_project(runtime, place):
    place.config(f'[bench]\nruntime = "{runtime}"\n')
    assert "names a runtime" in refused().message
    settings(f'[allow]\nruntimes = ["{runtime}"]\n')
    assert "names code" in refused().message
    bench("--allow-code")


def test_only_the_source_that_was_looked_at_is_run(place):
    """A __pycache__ of a checkout may have anything in it, and say that it is not to be checked."""
    source = place.checkout / "mine.py"
    source.write_text((place.checkout / "evil.py").read_text())
    cached = Path(importlib.util.cache_from_source(str(source)))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(cached), invalidation_mode=mode)
    source.write_text(
        "import numpy as np\ndef load():\n    return {'x': np.ones((2, 4), np.float32)}\n"
    )
    spec = TensorSpec(name="x", dtype="float32", shape=(1, 4))
    samples = load_samples("mine:load", (spec,), allow_code=True)
    assert samples.count == 2
    assert not place.ran.exists()


def test_a_build_of_a_watch_takes_no_module_of_the_present_directory(place):
    for name in ("click.py", "edgeconv.py", "msgspec.py"):
        (place.checkout / name).write_text((place.checkout / "evil.py").read_text())
    command = [sys.executable, "-c", ship._BUILD, "build", "--help"]
    done = captured(command)
    assert "edgeconv.toml" in done.stdout, done.stderr
    assert not place.ran.exists()


# The project


def test_a_repository_is_the_project_of_a_configuration_that_it_tracks(place):
    app = place.checkout / "apps" / "a"
    app.mkdir(parents=True)
    (app / "edgeconv.toml").write_text('[bench]\ndata = "../../x.npz"\nout = "../../build"\n')
    words = ["--config", "apps/a/edgeconv.toml"]
    git(place, "init", "-q")
    assert "not in the project" in refused(*words).message
    git(place, "add", "x.npz")
    reach._project_of.cache_clear()
    refused(*words)
    git(place, "add", "apps")
    reach._project_of.cache_clear()
    assert str(bench(*words).data) == "apps/a/../../x.npz"
    (app / "edgeconv.toml").write_text('[bench]\ndata = "../../../../secret.npz"\n')
    refused(*words)
    (app / "edgeconv.toml").write_text('[bench]\nout = "../../.git/hooks"\n')
    refused(*words)


@pytest.mark.parametrize("way", ["home", "name"])
def test_a_repository_above_is_not_the_project_of_what_was_unpacked_in_it(way, place):
    top = place.home if way == "home" else place.checkout.parent
    (top / "edgeconv.toml").write_text("[bench]\n")
    place.config('[bench]\ndata = "../up.npz"\n')
    for words in (["init", "-q"], ["add", "-f", "edgeconv.toml"]):
        subprocess.run(["git", *words], cwd=top, check=True)
    if way == "home":
        inner = os.path.relpath(place.checkout / "edgeconv.toml", top)
        subprocess.run(["git", "add", "-f", inner], cwd=top, check=True)
    refused()


def test_a_worktree_is_a_project_too(place):
    (place.checkout / "sub").mkdir()
    (place.checkout / "sub" / "edgeconv.toml").write_text('[bench]\ndata = "../x.npz"\n')
    git(place, "init", "-q")
    git(place, "add", ".")
    git(place, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    git(place, "worktree", "add", "-q", "../other")
    os.chdir("../other")
    assert str(bench("--config", "sub/edgeconv.toml").data) == "sub/../x.npz"


def test_links_and_absolute_paths_within_the_project_are_followed(place):
    Path("linked.npz").symlink_to("x.npz")
    place.config(f'[bench]\ndata = "linked.npz"\nout = "{place.checkout}/build/report"\n')
    assert str(bench().data) == "linked.npz"


def test_a_folder_that_is_allowed_is_allowed_through_links_too(place):
    place.link("data", "folder")
    place.config('[bench]\ndata = "npz:data/s.npz"\n')
    refused()
    settings('[allow]\ndirectories = ["~/folder"]\n')
    assert str(bench().data) == "npz:data/s.npz"


# The user's own configuration


@pytest.mark.parametrize(
    "text",
    [
        "allowed = []",
        "[allow]\nruntime = ['web']",
        "[allow]\nruntimes = 'web'",
        "[allow]\nruntimes = ['']",
        "[allow]\nruntimes = [1]",
        "[allow]\ncode = ['*']",
        "[allow]\ndirectories = ['data']",
        "[allow]\nprojects = ['.']",
        "allow = 1",
        "[allow",
    ],
)
def test_settings_that_are_wrong_are_an_error_with_their_place(text, place):
    settings(text)
    place.config('[bench]\nruntime = "web"\n')
    with pytest.raises(UsageError, match=r"config\.toml") as error:
        bench()
    assert not isinstance(error.value, NotAllowed)


@pytest.mark.parametrize("text", ["web", "runtime=", "=x", "projects=/", "code=*", "runtimes=web"])
def test_a_wrong_allow_is_an_error(text, place):
    place.config("[bench]\nrounds = 1\n")
    with pytest.raises(UsageError, match="allow"):
        bench("--allow", text)


def test_every_kind_has_its_key_and_none_is_needed(place):
    assert place.checkout.is_dir()
    assert set(KEYS) == set(KINDS)
    assert read_user_config().allow.runtimes == ()


def test_what_would_be_refused_is_shown(place, capsys):
    place.config(
        '[model.m]\nsource = "../../secret.tflite"\n[bench]\nruntime = "web"\nrounds = 2\n'
    )
    assert run(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "not in the project" in shown["model"]["m"]["source"]["refused"]
    assert "--allow runtime=web" in shown["bench"]["runtime"]["refused"]
    assert "refused" not in shown["bench"]["rounds"]
    assert run(["config", "show"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines if "REFUSED" in line] == ["source", "runtime"]
    settings('[allow]\nprojects = ["~/work"]\n')
    assert run(["config", "show"]) == 0
    assert "REFUSED" not in capsys.readouterr().out


def test_what_init_writes_is_allowed(place, capsys):
    assert place.checkout.is_dir()
    assert run(["init", "float.tflite", "--data", "x.npz", "--calibration", "x.npz"]) == 0
    assert run(["config", "show"]) == 0
    assert "REFUSED" not in capsys.readouterr().out
    Path("edgeconv.toml").unlink()
    assert run(["init", "../../secret.tflite"]) == 0
    assert "is refused" in capsys.readouterr().err
