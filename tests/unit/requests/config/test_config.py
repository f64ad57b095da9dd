from pathlib import Path

import pytest
from wording import fails

from edgeconv.requests.config.file import Config, limited, load_config
from edgeconv.requests.config.reach import find_config
from edgeconv.system.store.toml_file import MOST_BYTES
from edgeconv.types import LIMIT_FIELDS, LIMIT_KINDS, Budget, Limit, Limits, RuntimeLimit
from edgeconv.types.errors import UsageError

COMMANDS = {"convert": ("to", "calibration", "out"), "bench": ("data", "rounds")}
WHOLE = """\
[model.mnist]
source = "models/mnist/1"
checkpoint = "mnist.keras"
[model.mnist.convert]
calibration = "calib.npz"
[model.mnist.budget]
max-accuracy-drop = 0.005
[model.mnist.budget.recipe.int8]
max-latency-ratio = 1.5
[model.other]
source = "/models/other.tflite"
slices = "slices.txt"
convert.to = "float32"

[convert]
to = ["float32", "int8"]
[bench]
data = "test.npz"

[budget]
max-accuracy-drop = 0.01
max-size-bytes = 500_000
max-latency-ratio = { limit = 1.0, severity = "error" }
oldest-runtime = { limit = "2.14.0", severity = "warn" }
allowed-operators = ["CONV_2D", "FULLY_CONNECTED"]
[budget.recipe.int8]
max-size-ratio = 0.3 # of the baseline
"""


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "edgeconv.toml"


def load(file: Path, text: str) -> Config:
    file.write_text(text, encoding="utf-8")
    return load_config(file, COMMANDS)


def is_refused(file: Path, text: str) -> None:
    with fails(UsageError):
        load(file, text)


def test_a_models_tables_are_the_general_ones_with_its_own_in_their_place(file):
    config = load(file, WHOLE)
    assert config.tables == {"convert": {"to": ["float32", "int8"]}, "bench": {"data": "test.npz"}}
    mnist, other = config.models.values()
    assert mnist.tables == {
        "convert": {"to": ["float32", "int8"], "calibration": "calib.npz"},
        "bench": {"data": "test.npz"},
    }
    assert other.tables["convert"] == {"to": "float32"}


def test_a_models_paths_start_in_the_files_folder(file):
    mnist, other = load(file, WHOLE).models.values()
    folder = file.parent
    assert (mnist.source, mnist.checkpoint) == (f"{folder}/models/mnist/1", f"{folder}/mnist.keras")
    assert (mnist.slices, other.checkpoint) == ("", "")
    assert (other.source, other.slices) == ("/models/other.tflite", f"{folder}/slices.txt")


def test_the_budget_has_values_alone_and_with_a_severity(file):
    assert load(file, WHOLE).budget == Budget(
        every=Limits(
            max_accuracy_drop=0.01,
            max_size_bytes=500_000.0,
            max_latency_ratio=Limit(limit=1.0),
            oldest_runtime=RuntimeLimit(limit="2.14.0", severity="warn"),
            allowed_operators=("CONV_2D", "FULLY_CONNECTED"),
        ),
        recipe={"int8": Limits(max_size_ratio=0.3)},
    )


def test_a_models_budget_is_the_general_one_with_its_own_limits_in_their_place(file):
    budget = load(file, WHOLE).models["mnist"].budget
    assert budget.every.max_accuracy_drop == 0.005
    assert budget.every.max_size_bytes == 500_000
    assert budget.recipe["int8"] == Limits(max_size_ratio=0.3, max_latency_ratio=1.5)


def test_a_model_is_not_held_to_limits_of_recipes_that_it_is_not_converted_to(file):
    budget = load(file, WHOLE).models["other"].budget
    assert budget.recipe == {}
    assert budget.every.max_accuracy_drop == 0.01


def test_it_is_known_where_each_value_is_written(file):
    config = load(file, WHOLE)
    assert config.origin("budget", "recipe", "int8", "max-size-ratio") == f"{file}:27"
    assert config.key("convert", "to", model="mnist") == ("convert", "to")
    assert config.key("convert", "calibration", model="mnist")[:2] == ("model", "mnist")
    assert config.line("model", "mnist", "convert", "calibration") == 5
    assert config.line("model", "other", "convert", "to") == 13


def test_the_line_of_what_is_not_there_is_that_of_the_table_around_it(file):
    config = load(file, WHOLE)
    assert config.line("model", "mnist", "bench", "data") == 1
    assert config.line("model", "other", "bench", "data") == 10
    assert config.line("doctor") == 1


def test_every_limit_of_the_noun_can_be_set_and_is_explained(file):
    values = dict.fromkeys(LIMIT_FIELDS, "0.5") | {
        "oldest-runtime": '"2.14.0"',
        "allowed-operators": '["ADD"]',
    }
    config = load(file, "[budget]\n" + "".join(f"{n} = {v}\n" for n, v in values.items()))
    assert list(config.budget.every.by_name()) == list(LIMIT_FIELDS)
    kinds = [LIMIT_KINDS[name] for name in LIMIT_FIELDS]
    assert sum(kind.is_above_zero for kind in kinds) == sum(kind.is_fraction for kind in kinds) == 7


def test_a_zero_drop_and_a_negative_ratio_in_decibels_are_limits(file):
    every = load(file, "[budget]\nmax-accuracy-drop = 0\nmin-output-snr-db = -3\n").budget.every
    assert (every.max_accuracy_drop, every.min_output_snr_db) == (0.0, -3.0)


def test_a_file_without_a_budget_is_a_configuration_but_no_budget(file):
    config = load(file, "[bench]\nrounds = 1\n")
    with fails(UsageError):
        limited(config)
    config = load(file, '[model.m]\nsource = "m"\nbudget.min-accuracy = 0.5\n')
    assert limited(config, "m") == Budget(every=Limits(min_accuracy=0.5))
    with fails(UsageError):
        limited(config)


@pytest.mark.parametrize(
    "text",
    [
        "# c\n[budget]\nmax-size = 1\n",
        "[budget]\nmax_size_bytes = 1\n",
        "[budget]\nevery = 1\n",
        "[budget]\nrecipes = {}\n",
        "\n[budgte]\nmin-accuracy = 1\n",
        "[budget.recipe.int18]\n",
        "[budget.recipe.int8]\nmin-acuracy = 1\n",
        "[budget.recipe.int8]\nrecipe = 1\n",
        "[budget.recipe.int8]\n",
        "\n[budget]\n",
        "[budget.recipe]\n",
        "[budget]\nrecipe.int8 = 3\n",
        "budget = 3\n",
        "[budget]\nmin-accuracy = '0.9'\n",
        "[budget]\nmin-accuracy = true\n",
        "[budget]\nmax-size-bytes = [\n1,\n2]\n",
        "[budget]\nmax-size-bytes = nan\n",
        "[budget]\nmax-size-bytes = inf\n",
        "[budget]\nmin-output-snr-db = -inf\n",
        f"[budget]\nmax-size-bytes = 1{'0' * 400}\n",
        "[budget]\nmax-size-bytes = -1\n",
        "[budget]\nmax-size-ratio = 0\n",
        "[budget]\nmin-output-snr-db = 201\n",
        "[budget]\nmax-slice-drop = 0.1\n[model.m]\nsource = 'm'\n",
        "[model.m]\nsource = 'm'\nbudget.recipe.int8.max-slice-drop = 0.1\n",
        "[budget]\nmin-accuracy = 95\n",
        "[budget]\nmax-accuracy-drop = 1.5\n",
        "[budget]\nmax-flip-rate = { limit = 2 }\n",
        "[budget]\nmax-flip-rate = { limt = 1 }\n",
        "[budget]\nmax-flip-rate = {severity='warn'}\n",
        "[budget]\nmax-flip-rate = {limit=1,severity='x'}\n",
        "[budget]\nmax-flip-rate = {limit=1,severity=[]}\n",
        "[budget]\noldest-runtime = 2.14\n",
        "[budget]\noldest-runtime = 'new'\n",
        "[budget]\nallowed-operators = []\n",
        "[budget]\nallowed-operators = 'ADD'\n",
        "[budget]\nallowed-operators = [1]\n",
        "[model]\nm = 3\n",
        "[model.m]\n",
        "[model.m]\nsource = 3\n",
        "[model.m]\nsource = ''\n",
        '[model.m]\nsource = "a\\u0000"\n',
        "[model.m]\nsource = 'm'\nsorce = 'm'\n",
        "[model.m]\nsource = 'm'\nconvert = 1\n",
        "[model.'../m']\nsource = 'm'\n",
        "[model.'']\nsource = 'm'\n",
        "[model.m]\nsource='m'\n[model.m.budget]\n",
        "[bench]\ndata = 'd'\nround = 1\n",
        "[convert]\nto = 'int8,int18'\n",
        "[convert]\nto = ['float32']\n[budget.recipe.int8]\nmin-accuracy = 1\n",
        "[convert]\nto = 'all'\n[budget.recipe.qat]\nmin-accuracy = 1\n",
        (
            "[model.m]\nsource='m'\nconvert.to='float16'\nbudget.recipe.int8.min-accuracy=1\n"
            "[convert]\nto='int8'\n"
        ),
        # No TOML, with line and column.
        "[budget]\nmin-accuracy = = 1\n",
        "[budget",
        '[bench]\na = """x\n\n',
        "[budget]\nmin-accuracy = 0.9\nmin-accuracy = 0.1\n",
        # No configuration at all.
        f"a = {'9' * 5000}\n",
        f"a = {'[' * 8_000}\n",
        f"x = 1\n{'a.' * 100_000}b = 1\n",
        "a = 1\n" * (MOST_BYTES // 6 + 1),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text, file):
    is_refused(file, text)


def test_a_general_limit_holds_where_one_of_several_models_has_the_recipe(file):
    models = "".join(
        f"[model.{name}]\nsource = 'm'\nconvert.to = '{name}'\n" for name in ("int8", "float16")
    )
    config = load(file, f"{models}[budget.recipe.int8]\nmin-accuracy = 0.5\n")
    assert set(config.models["int8"].budget.recipe) == {"int8"}
    assert config.models["float16"].budget == Budget()


def test_a_file_that_is_no_text_is_refused(file):
    file.write_bytes(b"[bench]\n\xff\xfe\x00")
    with fails(UsageError):
        load_config(file, COMMANDS)


def test_a_file_with_a_byte_order_mark_is_read(file):
    file.write_bytes(b"\xef\xbb\xbf[bench]\r\nrounds = 1\r\n")
    assert load_config(file, COMMANDS).tables == {"bench": {"rounds": 1}}


def test_a_missing_file_a_directory_and_no_path_at_all_are_refused(file):
    with fails(UsageError):
        load_config(file, COMMANDS)
    with fails(UsageError):
        load_config(file.parent, COMMANDS)
    with fails(UsageError):
        load_config(Path("a\0b"), COMMANDS)


@pytest.mark.parametrize(
    "key",
    [
        "\x1b[31mred",
        "two\nlines",
        "\u202ereversed",
        "::error::x",
        "x" * 5000,
        "__class__",
        "é" * 40,
    ],
)
def test_a_hostile_key_is_shown_escaped_and_short(key, file):
    quoted = "".join(f"\\U{ord(c):08X}" for c in key)
    for text in (f'"{quoted}" = 1\n', f'[budget]\n"{quoted}" = 1\n', f'[model."{quoted}"]\na=1\n'):
        with fails(UsageError) as caught:
            load(file, text)
        said = str(caught.value)
        assert all(line.isprintable() for line in said.split("\n"))
        assert said.count("\n") == 1
        assert len(said) < 600


def test_the_directorys_own_file_comes_before_pyproject(tmp_path):
    assert find_config(tmp_path) is None
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\nname = 'x'\n")
    assert find_config(tmp_path) is None
    project.write_text("[project]\nname = 'edgeconv-user'\n")
    assert find_config(tmp_path) is None
    project.write_text("[tool.edgeconv.bench]\nrounds = 2\n")
    assert find_config(tmp_path) == project
    (tmp_path / "edgeconv.toml").symlink_to("nowhere")
    assert find_config(tmp_path) == tmp_path / "edgeconv.toml"


def test_the_table_of_pyproject_is_read_like_a_file_of_its_own(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(
        "[project]\nname = 'x'\n[tool.other]\na = 1\n[tool.edgeconv.bench]\nrounds = 2\n"
    )
    config = load_config(project, COMMANDS)
    assert config.tables == {"bench": {"rounds": 2}}
    assert config.origin("bench", "rounds") == f"{project}:6"
    project.write_text("[tool.edgeconv.budget]\nmin-acuracy = 1\n")
    with fails(UsageError):
        load_config(project, COMMANDS)
    project.write_text("[tool.edgeconv.budget]\n")
    with fails(UsageError):
        load_config(project, COMMANDS)
    project.write_text("[tool]\nedgeconv = 3\n")
    with fails(UsageError):
        load_config(project, COMMANDS)


def test_a_pyproject_that_names_edgeconv_and_is_no_toml_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.edgeconv\n")
    with fails(UsageError):
        find_config(tmp_path)


@pytest.mark.parametrize(
    ("limit", "model", "recipe", "line"),
    [
        ("max-accuracy-drop", "mnist", "int8", 7),
        ("max-accuracy-drop", "mnist", "", 7),
        ("max-accuracy-drop", "other", "float32", 21),
        ("max-latency-ratio", "mnist", "int8", 9),
        ("max-latency-ratio", "mnist", "float32", 23),
        ("max-size-ratio", "mnist", "int8", 27),
        ("max-accuracy-drop", "", "int8", 21),
        # Not written: the tables that it would be in.
        ("min-accuracy", "mnist", "int8", 20),
        ("min-accuracy", "", "", 20),
    ],
)
def test_a_limit_is_on_the_line_of_the_table_that_holds(file, limit, model, recipe, line):
    assert load(file, WHOLE).limit_line(limit, model=model, recipe=recipe) == line


def test_a_limit_of_a_pyproject_is_on_its_line_there(tmp_path):
    text = '[project]\nname = "x"\n\n[tool.edgeconv.budget]\n# a comment\nmin-accuracy = 0.9\n'
    config = load(tmp_path / "pyproject.toml", text)
    assert config.limit_line("min-accuracy", recipe="int8") == 6
    assert config.limit_line("max-size-bytes") == 4
    assert load(tmp_path / "edgeconv.toml", "[budget]\nmin-accuracy = 1\n").limit_line("x") == 1
