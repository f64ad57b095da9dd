"""What a command takes from edgeconv.toml: the values, which of them, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sources import runs_code
from wording import fails, says

from edgeconv import plugins
from edgeconv.cli import COMMANDS, command_named, run
from edgeconv.cli.command import CommandCall, VerbCommand
from edgeconv.conversion.plan import recipes_of
from edgeconv.data import parse_source
from edgeconv.data.location import PATH_OPTIONS
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.check import CheckRequest
from edgeconv.requests.config.chosen import Chosen
from edgeconv.requests.config.tables import OptionNames, options_of
from edgeconv.requests.request import leaves_of
from edgeconv.requests.table import VERBS
from edgeconv.requests.texts import NAMED_KINDS, STEPS, path_within, source_within
from edgeconv.types.errors import UsageError

MODELS = """\
[model.mnist]
source = "models/mnist/1"
[model.mnist.convert]
calibration = "mnist.npz"
out = "published"
[model.mnist.bench]
rounds = 7
[model.other]
source = "models/other.tflite"
[convert]
to = ["float32", "int8"]
calibration = "general.npz"
[bench]
data = "test.npz"
rounds = 2
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "edgeconv.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def called(command: str, *arguments: str) -> CommandCall:
    found: CommandCall = command_named(command).make_context(command, list(arguments)).obj
    return found


def typed(command: str, *arguments: str) -> Any:
    return called(command, *arguments).request


def texts_of(request: Any) -> dict[str, str]:
    return {key: str(source) for key, source in request.calibration.items()}


def is_refused(command: str, *arguments: str) -> None:
    with fails(UsageError):
        typed(command, *arguments)


def test_every_command_with_options_of_its_own_can_be_configured():
    for name, entry in VERBS.items():
        command = command_named(name)
        assert isinstance(command, VerbCommand)
        assert command.name == name
        users = {leaf.key for leaf in leaves_of(entry.kind) if leaf.option.is_typed}
        assert set(OptionNames().get(name, ())).isdisjoint(users)
    without = {"init", "config", "cmake-dir", "cache"}
    assert set(COMMANDS) - set(VERBS) == without
    assert set(VERBS) - set(OptionNames()) == {"scan", "verify"}


def test_every_long_option_is_a_key_but_those_that_only_a_person_may_give():
    found: set[str] = set()
    for name in OptionNames():
        command = command_named(name)
        longs = {n[2:] for option in command.params for n in option.opts if n.startswith("--")}
        found |= longs - set(options_of(name))
    users = {"config", "allow", "allow-code", "trust-model", "update", "accept-drop"}
    users |= {"status", "resume", "retry-failed", "on"}
    assert found == users | {"help-all"}


def test_what_is_not_typed_is_taken_from_the_file_and_what_is_typed_wins():
    write('[convert]\nto = "int8"\nsamples = 5\nno-cache = true\nmin-snr-db = 30\n')
    assert typed("convert", "m").to == ("int8",)
    request = typed("convert", "m", "--to", "float16", "--samples", "9")
    assert (request.to, request.samples) == (("float16",), 9)
    assert not request.execution.use_cache
    assert (request.min_snr_db, request.engine) == (30, "auto")


def test_what_is_typed_takes_the_place_of_what_the_file_may_not_name():
    """As in the recipe of a search whose samples are elsewhere."""
    write('[convert]\nto = "int8"\ncalibration = "/data/train.npz"\n')
    is_refused("convert", "m")
    assert typed("convert", "m", "--calibration", "/data/train.npz").to == ("int8",)


def test_a_repeatable_option_takes_one_value_or_an_array_and_a_list_of_names_both():
    write('[bench]\nmetric = "top5"\nruntime = ["litert", "fake"]\n')
    measuring = typed("bench", "m").measuring
    assert [str(each) for each in measuring.metrics] == ["top5"]
    assert [str(each) for each in measuring.runtimes] == ["litert", "fake"]
    write('[convert]\nto = ["float32", "int8", "qat"]\nqat-layers = "conv*,dense"\n')
    request = typed("convert", "m")
    assert request.to == ("float32", "int8", "qat")
    assert request.qat.layers == ("conv*", "dense")


@pytest.mark.parametrize(
    ("words", "gives"),
    [
        ("convert unknown.keras", "[convert] gives to, calibration"),
        ("convert unknown.keras --calibration mine.npz", "[convert] gives to"),
        ("bench unknown.tflite", "[bench] gives data, rounds"),
        ("convert unknown.keras --to int8 --calibration mine.npz", ""),
        ("convert unknown.keras --quiet", ""),
        ("convert unknown.keras --config edgeconv.toml", ""),
        ("convert models/mnist/1", ""),
        ("check", ""),
    ],
)
def test_what_is_taken_for_a_model_that_the_file_does_not_name_is_told(words, gives, capsys):
    write(MODELS)
    typed(*words.split())
    line = f"note: edgeconv.toml does not name this model; its {gives}\n"
    assert capsys.readouterr().err == (gives and line)


def test_another_file_can_be_named_and_the_one_here_is_then_not_read():
    write("[bench]\nrounds = no toml\n")
    write("[bench]\nrounds = 4\n", "other.toml")
    assert typed("bench", "m", "--config", "other.toml").measuring.rounds == 4
    with fails(UsageError):
        typed("bench", "m")


def test_pyproject_is_taken_where_it_has_the_table():
    write("[tool.edgeconv.bench]\nrounds = 6\n", "pyproject.toml")
    assert typed("bench", "m").measuring.rounds == 6
    write("[bench]\nrounds = 5\n")
    assert typed("bench", "m").measuring.rounds == 5


def test_help_is_shown_whatever_the_file_says(capsys):
    write("nonsense\n")
    assert run(["bench", "--help"]) == 0
    assert "--config FILE" in capsys.readouterr().out


def test_no_file_changes_nothing():
    call = called("bench", "m")
    assert call.config is None
    assert call.request.words() == ("m",)


def test_the_recorded_command_line_does_the_same_without_the_file():
    write('[bench]\nrounds = 4\nmetric = ["top1", "top5"]\nlayers = true\nprofile = false\n')
    request = typed("bench", "m", "--rounds", "9")
    words = request.words()
    assert words == ("m", "--rounds", "9", "--metric", "top1", "--metric", "top5", "--layers")
    Path("edgeconv.toml").unlink()
    assert typed("bench", *words) == request


def test_qat_settings_of_the_file_count_as_given():
    write('[convert]\nto = "qat"\nqat-epochs = 3\n')
    settings = typed("convert", "m").qat
    assert settings.epochs == 3
    write('[convert]\nto = "int8"\n')
    assert typed("convert", "m").qat is None


# Which model it is about


def test_a_model_that_is_the_source_of_a_table_takes_that_models_values():
    write(MODELS)
    request = typed("convert", "models/mnist/1")
    assert texts_of(request) == {"": "mnist.npz"}
    assert request.to == ("float32", "int8")
    assert typed("convert", "./models/../models/mnist/1").directory == "published"
    assert texts_of(typed("convert", "models/other.tflite")) == {"": "general.npz"}
    assert texts_of(typed("convert", "elsewhere")) == {"": "general.npz"}


def test_what_a_model_publishes_takes_that_models_values_too():
    write(MODELS)
    for place in ("published", "published/mnist.int8.tflite", "models/mnist/1"):
        assert typed("bench", place).measuring.rounds == 7
    both = typed("bench", "published/a.tflite", "published/b.tflite")
    assert both.measuring.rounds == 7
    assert typed("bench", "published/a.tflite", "other.tflites").measuring.rounds == 2
    assert called("bench", "other.tflites").model == "other"


def test_a_source_of_two_models_is_refused_where_a_model_has_to_be_chosen():
    write("[model.a]\nsource = 'm'\n[model.b]\nsource = './m'\n[convert]\nto = 'int8'\n")
    is_refused("convert", "m")
    assert typed("convert", "n").to == ("int8",)


def test_a_request_for_a_model_is_made_with_its_values():
    chosen = Chosen(CheckRequest(config=str(write(MODELS))))
    model = chosen.config.models["mnist"]
    request = chosen.request(BenchRequest, "bench", model, {"models": ("x.tflite",), "out": "out"})
    assert request.measuring.rounds == 7
    assert str(request.data) == "test.npz"
    assert (request.models, request.directory) == (("x.tflite",), "out")


# What is refused


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("bench", 'rounds = "3"'),
        ("bench", "rounds = 3.0"),
        ("bench", "rounds = true"),
        ("bench", "rounds = 0"),
        ("bench", "seconds = 0"),
        ("bench", "seconds = nan"),
        ("bench", "layers = 1"),
        ("bench", 'layers = "no"'),
        ("bench", "title = 3"),
        ("bench", 'title = ["a", "b"]'),
        ("bench", "metric = [1]"),
        ("bench", "metric = { a = 1 }"),
        ("bench", 'accelerator = "gpu"'),
        ("bench", 'data = "npx:a"'),
        ("bench", 'data = "a\\u0000b"'),
        ("convert", "to = [1]"),
        ("doctor", "samples = 1979-05-27"),
        ("check", "confidence = 1"),
        ("check", 'output = "junit"'),
        ("check", 'output = ["text=t.txt", "junot=a.xml"]'),
        ("check", 'track = "cvs:a.csv"'),
        ("check", 'track = "csv"'),
    ],
)
def test_a_value_that_the_option_does_not_take_is_refused_with_file_and_line(command, line):
    write(f"# comment\n[{command}]\n{line}\n")
    is_refused(command, *(["m", "d"] if command == "doctor" else ["m"]))


def test_a_value_of_a_models_own_table_is_refused_with_its_own_line():
    write(MODELS.replace("rounds = 7", "rounds = 0"))
    is_refused("bench", "published")
    assert typed("bench", "x").measuring.rounds == 2


@pytest.mark.parametrize("key", ["config", "allow-code", "update", "help", "roundz"])
def test_a_key_that_is_no_option_or_is_only_for_a_person_is_refused(key):
    write(f"[check]\n{key} = true\n")
    is_refused("check", "r.json")


def test_the_program_ends_with_2_and_says_where(capsys):
    write("[bench]\nrouns = 1\n")
    assert run(["bench", "m"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    says(said.err)


# Code


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("bench", 'data = "package.module:load"'),
        ("bench", 'data = "function:module:load"'),
        ("bench", 'metric = ["top1", "module:score"]'),
        ("bench", 'python = "./python"'),
        ("convert", 'training = "package.module:load"'),
        ("convert", 'calibration = "package.module:load"'),
        ("convert", 'calibration = "serve=package.module:load"'),
    ],
)
def test_code_that_a_file_names_runs_only_where_the_command_line_allows_it(command, line):
    write(
        f"[{command}]\n{line}\n[convert]\nto = 'int8'\n"
        if command == "bench"
        else f"[{command}]\n{line}\n"
    )
    words = ["m", *(["--to", "int8"] if command == "convert" else [])]
    is_refused(command, *words)
    assert called(command, *words, "--allow-code").request


def test_code_that_is_typed_needs_no_leave():
    write("[bench]\nrounds = 1\n")
    request = typed("bench", "m", "--data", "module.name:load", "--metric", "m:f")
    assert (str(request.data), *map(str, request.measuring.metrics)) == ("module.name:load", "m:f")
    assert request.execution.allow_code


def test_check_can_allow_the_code_of_the_commands_that_it_runs():
    write("[bench]\nrounds = 1\n")
    assert called("check", "--allow-code").of_config["any_code"]
    assert not called("check").of_config["any_code"]


# Paths


def test_paths_start_in_the_files_folder():
    write(
        "[convert]\n"
        'to = "int8"\n'
        'out = "made"\n'
        'calibration = ["serve=c.npz", "d.npz?labels=y"]\n'
        'preprocess = "steps.toml"\n'
        'training = "sklearn:digits"\n',
        "sub/edgeconv.toml",
    )
    Path("sub/steps.toml").write_text("[preprocess]\nscale = 0.5\n")
    request = typed(
        "convert", "m", "--signature", "serve", "--signature", "x", "--config", "sub/edgeconv.toml"
    )
    assert request.directory == "sub/made"
    assert texts_of(request) == {"serve": "sub/c.npz", "": "sub/d.npz?labels=y"}
    assert request.preprocess.file == "sub/steps.toml"
    assert str(request.training) == "sklearn:digits"


def test_a_file_with_an_equals_sign_in_its_name_has_no_key():
    write('[convert]\nto = "int8"\ncalibration = "a=b.npz"\n', "sub/e.toml")
    Path("sub/a=b.npz").touch()
    request = typed("convert", "m", "--config", "sub/e.toml")
    assert texts_of(request) == {"": "sub/a=b.npz"}


def test_paths_of_check_and_of_its_outputs_start_in_the_files_folder():
    write(
        '[check]\nlock = "e.lock"\noutput = "junit=build/j.xml"\ntrack = ["csv:t.csv"]\n',
        "sub/e.toml",
    )
    request = typed("check", "--config", "sub/e.toml")
    assert request.lock == "sub/e.lock"
    assert request.outputs == (("junit", "sub/build/j.xml"),)
    assert request.trackers == (("csv", "sub/t.csv"),)


def test_a_model_is_published_beside_the_file_that_names_it():
    write('[model.net]\nsource = "net.tflite"\n[convert]\nto = "float32"\n', "sub/e.toml")
    chosen = Chosen(CheckRequest(config="sub/e.toml"))
    (model,) = chosen.models([])
    assert chosen.converting(model).directory == "sub/net.tflites"


@pytest.mark.parametrize(
    ("source", "moved"),
    [
        ("a.npz", "f/a.npz"),
        ("/abs/a.npz", "/abs/a.npz"),
        ("npz:a.bin?x=y", "npz:f/a.bin?x=y"),
        ("a.npy?labels=l.npy", "f/a.npy?labels=f/l.npy"),
        ("a.npz?labels=y&classes=z", "f/a.npz?labels=y&classes=z"),
        ("images:dir?classes=c.txt&labels=folder", "images:f/dir?classes=f/c.txt&labels=folder"),
        ("dir?classes=c.txt", "f/dir?classes=f/c.txt"),
        ("tfrecord:t-*?spec=s.toml", "tfrecord:f/t-*?spec=f/s.toml"),
        ("t.tfrecord?spec=s.toml", "f/t.tfrecord?spec=f/s.toml"),
        ("tfds:mnist?dir=d&split=test", "tfds:mnist?dir=f/d&split=test"),
        ("tfds:version", "tfds:f/version"),
        ("sklearn:digits", "sklearn:digits"),
        ("function:m:f", "function:m:f"),
        ("package.m:f", "package.m:f"),
    ],
)
def test_every_path_in_a_source_is_moved_and_nothing_else(source, moved):
    Path("f/version").mkdir(parents=True)
    parsed = parse_source(source)
    assert str(source_within(parsed, Path("f"))) == moved
    assert source_within(parsed, Path()) is parsed


def test_every_kind_of_data_was_thought_of():
    plain = {"csv", "npz", "parquet"}
    assert plain | NAMED_KINDS | set(PATH_OPTIONS) == set(plugins.SAMPLE_SOURCES)
    for kind, option in PATH_OPTIONS.items():
        assert option in plugins.sample_source(kind).OPTIONS
    running = [k for k in plugins.SAMPLE_SOURCES if runs_code(f"{k}:p")]
    assert running == ["function"]


def test_a_remote_place_and_steps_in_a_line_stay_as_they_are():
    assert path_within("gs://bucket/x", Path("f")) == "gs://bucket/x"
    assert path_within("", Path("f")) == ""
    steps = STEPS.parse("scale=1/255")
    assert STEPS.within(steps, Path("f")) == steps


def test_a_folder_with_a_question_mark_cannot_hold_sources():
    with fails(UsageError):
        source_within(parse_source("a.npz"), Path("what?"))


def test_a_name_that_no_system_takes_is_refused_and_no_crash():
    write(f'[convert]\nto = "int8"\ncalibration = "k={"x" * 3000}.npz"\n', "sub/e.toml")
    is_refused("convert", "m", "--config", "sub/e.toml")


def test_a_report_is_held_against_the_budget_of_a_named_file_only(capsys):
    import msgspec
    from report_example import report

    unjudged = msgspec.structs.replace(report(), verdict=None)
    Path("report.json").write_bytes(msgspec.json.encode(unjudged))
    write("[budget]\nmax-size-bytes = 1\n")
    said: dict[str, Any] = {}
    for words in ("report report.json", "report report.json --config edgeconv.toml"):
        assert run(words.split()) == 0
        said[words] = capsys.readouterr().out
    plain, judged = said.values()
    assert "max-size-bytes" not in plain
    assert "max-size-bytes" in judged
    write("[bench]\nrounds = 1\n")
    assert run(["report", "report.json", "--config", "edgeconv.toml"]) == 2
    says(capsys.readouterr().err)


def test_a_configuration_is_resolved_without_anything_heavy():
    write(MODELS)
    program = (
        "import sys; from pathlib import Path\n"
        "from edgeconv.gate.check import Project\n"
        "from edgeconv.requests.check import CheckRequest\n"
        "Project(CheckRequest(), print).jobs(['mnist'])\n"
        "print(*{'numpy', 'scipy', 'rich', 'tensorflow', 'sklearn', 'h5py'} & {*sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("verb", [("convert", "--to", "float32"), ("scan",)])
def test_where_there_is_no_configuration_nothing_that_reads_one_is_imported(verb):
    program = (
        "import sys; from edgeconv.cli import run\n"
        f"run([{verb[0]!r}, 'nothing-here', *{verb[1:]!r}])\n"
        "readers = ('file', 'limits', 'written')\n"
        "names = {f'edgeconv.requests.config.{reader}' for reader in readers}\n"
        "print(*{'tomllib', 'tomli', *names} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    says(done.stderr)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("own", ["[bench]\n", "[model.net.bench]\n"])
def test_an_npu_implies_integers_alone_unless_the_file_says_no(own, capsys):
    """As in `tune`; `config show` says which line implies it."""
    text = '[model.net]\nsource = "net.tflite"\n[convert]\nto = "float32,int8"\n'
    for more, value, line in (("", True, 6), ("full-integer = false\n", False, 5)):
        write(f'{text}{more}{own}npu = "ethos-u55-128"\n', "edgeconv.toml")
        assert run(["config", "show", "--json"]) == 0
        table = json.loads(capsys.readouterr().out)["model"]["net"]["convert"]
        assert table["full-integer"] == {"value": value, "from": f"edgeconv.toml:{line}"}
        chosen = Chosen(CheckRequest(config="edgeconv.toml"))
        (model,) = chosen.models([])
        recipes = {each.name: each.only_integers for each in recipes_of(chosen.converting(model))}
        assert recipes == {"float32": False, "int8": value}
