"""Model modules that cannot be trained: each is refused with what is wrong and where."""

import sys

import numpy as np
import pytest
from training_modules import written

from edgeconv.tf.training.modules import load_module, read_data, spec_of
from edgeconv.types.errors import InputRefused, UsageError

RETURN = 'return Data({"x": x[:100]}, y[:100], {"x": x[100:]}, y[100:])'
BUILD = 'return Model(x, layers.Dense(3, activation="softmax", name="class")(h))'
OUTPUT = 'layers.Dense(3, activation="softmax", name="class")(h)'
LOSS, METRIC = 'LOSS = "sparse_categorical_crossentropy"', 'METRIC = "accuracy"'
NUMPY = "import numpy as np"


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch):
    """What a test imports is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("mine", "user_models", "user_models.mine"):
            del sys.modules[name]


def problem_of(module, **options):
    """The module as far as the first look at a new model; an optimizer is made as well."""
    found = load_module(module)
    data = read_data(found, "mine", None)
    chosen = {"learning_rate": 0.01, "validation_fraction": 0.0, "seed": 0, **options}
    problem = spec_of(found, "mine", data, **chosen)
    model = problem.build()
    problem.optimizer(model, 10, 1)
    return problem, model


def refused(tmp_path, match, *replaced, added="", error=InputRefused):
    module = written(tmp_path, "mine", *replaced, added=added)
    with pytest.raises(error, match=match) as found:
        problem_of(module)
    return found.value


def test_the_small_module_is_taken_and_its_measures_give_one_number_a_sample(tmp_path):
    problem, model = problem_of(written(tmp_path, "mine"))
    import tensorflow as tf

    inputs, labels = problem.train.inputs["x"][:5], problem.train.labels[:5]
    outputs, as_tensor = model(inputs), tf.constant(labels)
    wanted = -np.log(outputs.numpy()[np.arange(5), labels])
    np.testing.assert_allclose(problem.loss(as_tensor, outputs), wanted, rtol=1e-5)
    right = outputs.numpy().argmax(-1) == labels
    assert problem.metric(as_tensor, outputs).numpy().tolist() == right.tolist()
    assert problem.metric_name == "accuracy"


# The module itself


@pytest.mark.parametrize(
    ("added", "match"),
    [
        ("\ndef (:\n", r"mine\.py, when it was imported, failed: SyntaxError: .*mine\.py:\d+\)"),
        ("\nraise RuntimeError('no licence')\n", r"RuntimeError: no licence \(.*mine\.py:\d+\)"),
        ("\nnowhere\n", r"NameError: name 'nowhere' is not defined \(.*mine\.py:\d+\)"),
        ("\nimport not_there\n", r"ModuleNotFoundError: No module named 'not_there'.*mine\.py"),
        ("\nimport sys; sys.exit(3)\n", r"called exit\(3\) \(.*mine\.py:\d+\)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_its_error_and_line(
    added, match, tmp_path
):
    refused(tmp_path, match, added=added)


def test_a_module_by_its_dotted_name_that_fails_is_told_from_one_that_is_not_there(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "user_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    written(package, "mine", added="\nimport not_there\n")
    with pytest.raises(InputRefused, match="No module named 'not_there'"):
        load_module("user_models.mine")
    with pytest.raises(InputRefused, match=r"there is no module 'user_models\.other'"):
        load_module("user_models.other")


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("digit_cnn", UsageError, "unknown model module 'digit_cnn'"),
        ("a b", UsageError, "unknown model module 'a b'"),
        ("models/tiny", UsageError, "unknown model module 'models/tiny'"),
        ("../missing.py", InputRefused, r"\.\./missing\.py: no such file"),
        ("no.such.module", InputRefused, "there is no module 'no' in"),
    ],
)
def test_a_module_that_is_not_there_is_refused(name, error, match):
    with pytest.raises(error, match=match):
        load_module(name)


def test_a_misspelt_model_of_edgeconv_s_is_answered_with_the_right_name():
    with pytest.raises(UsageError) as found:
        load_module("digit_cnn")
    assert "did you mean 'digits_cnn'" in found.value.hint


def test_a_module_without_what_training_needs_is_refused_with_all_that_is_missing(tmp_path):
    (tmp_path / "mine.py").write_text("LOSS = 'mse'\nbuild = 3\nEPOCHS = 1\n")
    with pytest.raises(InputRefused, match="has no build, data, METRIC, GLOBAL_BATCH, LEARNING_RA"):
        load_module(str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("EPOCHS = 2", "EPOCHS = 0", "EPOCHS is 0; it must be an integer"),
        ("EPOCHS = 2", "EPOCHS = '2'", "EPOCHS is '2'; it must be an integer"),
        (
            "GLOBAL_BATCH = 16",
            "GLOBAL_BATCH = 16.5",
            r"GLOBAL_BATCH is 16\.5; it must be an integer",
        ),
        ("LEARNING_RATE = 1e-2", "LEARNING_RATE = 0", "LEARNING_RATE is 0; it must be above 0"),
        ("LEARNING_RATE = 1e-2", "LEARNING_RATE = None", "LEARNING_RATE is None; it must be"),
    ],
)
def test_numbers_of_a_module_that_cannot_be_are_refused(old, new, match, tmp_path):
    refused(tmp_path, match, (old, new))


def test_what_a_module_prints_and_asks_for_is_no_matter(tmp_path, capfd):
    chatty = "print('hello')\n    import numpy as np"
    problem_of(written(tmp_path, "mine", (NUMPY, chatty), added="\nprint('imported')\n"))
    assert "imported" in capfd.readouterr().out


# Its data


@pytest.mark.parametrize(
    ("new", "match"),
    [
        ("raise KeyError('column')", r"data\(\) of mine failed: KeyError: 'column' \(.*mine\.py:"),
        ("raise ValueError('not that file')", "mine has no data: not that file"),
        ("open('/no/such')", "mine has no data: .*No such file.*/no/such"),
        ("import sys; sys.exit('bye')", r"data\(\) of mine called exit\('bye'\)"),
        ("return None", r"data\(\) returns NoneType"),
        ("return ({}, 1, {}, 1)", r"data\(\) returns tuple"),
    ],
)
def test_data_that_cannot_be_had_are_refused(new, match, tmp_path):
    refused(tmp_path, match, (NUMPY, f"{NUMPY}\n    from edgeconv.models import Data\n    {new}"))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ('{"x": x[:100]}, y[:90], {"x": x}, y', "training data have 90 labels, and samples"),
        ('{"x": x}, y, {"x": x[:5]}, y[:6]', "test data have 6 labels, and samples {'x': 5}"),
        ('{"x": x[:0]}, y[:0], {"x": x}, y', "training data have 0 labels"),
        ("x, y, x, y", "training data: the samples are ndarray"),
        ('{}, y, {"x": x}, y', "training data: the samples are dict"),
        ('{"x": x.tolist()}, y, {"x": x}, y', "training data, input 'x': list"),
        ('{"x": x}, y.astype(str), {"x": x}, y', "training data, labels: an array of <U"),
        ('{"x": x}, 3, {"x": x}, y', "training data, labels: int"),
        ('{"x": x}, y, {"z": x}, y', "training samples are 'x' of 4, and its test samples 'z'"),
        ('{"x": x}, y, {"x": x[:, :3]}, y', "are 'x' of 4, and its test samples 'x' of 3"),
        ('{"z": x}, y, {"z": x}, y', "the model takes 'x' of 4, and the samples are 'z' of 4"),
        ('{"x": x[:, :3]}, y, {"x": x[:, :3]}, y', "takes 'x' of 4, and the samples are 'x' of 3"),
        ('{"x": x * np.nan}, y, {"x": x}, y', "training data, input 'x': row 0 has a NaN"),
        ('{"x": x}, y, {"x": np.where(x > 2, np.inf, x)}, y', r"test data, .*: row \d+ has a NaN"),
        ('{"x": x}, y + 1, {"x": x}, y', r"LOSS of mine, with labels from 1 to 3, failed: .* 3 "),
        ('{"x": x}, y - 1, {"x": x}, y', r"LOSS of mine, with labels from -1 to 1, failed: .*-1"),
    ],
)
def test_data_that_do_not_fit_are_refused(arguments, match, tmp_path):
    refused(tmp_path, match, (RETURN, f"return Data({arguments})"))


def test_a_share_for_validation_that_rounds_to_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"0\.001 of 100 samples leaves none to validate with"):
        problem_of(written(tmp_path, "mine"), validation_fraction=0.001)


def test_samples_that_belong_together_are_on_one_side_of_the_split(tmp_path):
    grouped = f"{RETURN[:-1]}, groups_train=np.arange(100) // 4)"
    module = written(tmp_path, "mine", (RETURN, grouped))
    problem, _ = problem_of(module, validation_fraction=0.2)
    assert len(problem.validation) == 20
    data = read_data(load_module(module), "mine", None)
    pairs = zip(data.x_train["x"], data.groups_train, strict=True)
    groups = {tuple(x): group for x, group in pairs}
    apart = {groups[tuple(x)] for x in problem.validation.inputs["x"]}
    assert len(apart) == 5
    assert apart.isdisjoint(groups[tuple(x)] for x in problem.train.inputs["x"])


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        ("np.arange(7)", r"groups_train has shape \(7,\), and there are 100 samples"),
        ("['a'] * 100", "groups_train is not an array of integers"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups, match, tmp_path):
    refused(tmp_path, match, (RETURN, f"{RETURN[:-1]}, groups_train={groups})"))


def test_the_samples_kept_apart_and_those_trained_on_are_all_of_them(tmp_path):
    problem, _ = problem_of(written(tmp_path, "mine"), validation_fraction=0.2, seed=3)
    assert (len(problem.train), len(problem.validation)) == (80, 20)
    both = np.concatenate([problem.train.inputs["x"], problem.validation.inputs["x"]])
    every = problem_of(written(tmp_path, "mine"))[0].train.inputs["x"]
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(every, axis=0))


# Its model


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (BUILD, "layers.Nope(3)", r"build\(\) of mine failed: AttributeError: .*Nope.*mine\.py:"),
        (BUILD, "import sys; sys.exit()", r"build\(\) of mine called exit\(None\)"),
        (BUILD, BUILD.removeprefix("return "), r"build\(\) returns NoneType"),
        (BUILD, "return 3", r"build\(\) returns int"),
        (
            BUILD,
            "import tensorflow as tf; tf.reshape(tf.ones(3), (2, 2))",
            "InvalidArgumentError: .*Input to reshape is a tensor with 3 values",
        ),
        (
            BUILD,
            "from tf_keras import Sequential; return Sequential([layers.Dense(3)])",
            "a model without known inputs",
        ),
        (OUTPUT, f"[{OUTPUT}, h]", "the model has 2 outputs; it must have one"),
        (OUTPUT, "layers.Activation('softmax')(x)", "has no trainable weight"),
        (OUTPUT, 'layers.Dense(2, activation="softmax")(h)', "LOSS of mine, with labels from 0"),
    ],
)
def test_a_build_that_gives_no_model_to_train_is_refused(old, new, match, tmp_path):
    refused(tmp_path, match, (old, new))


def test_a_build_that_gives_another_model_the_second_time_is_refused(tmp_path):
    other = ("Dense(8,", "Dense(WIDTHS.pop(),")
    problem, model = problem_of(written(tmp_path, "mine", other, added="\n\nWIDTHS = [9, 8]\n"))
    with pytest.raises(InputRefused, match=r"build\(\) returned one model, and then another"):
        problem.plain(model)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("(rate, steps, replicas):\n    return None", r"optimizer\(\) returns NoneType"),
        ("(rate, steps):\n    return None", r"optimizer\(\) of mine failed: TypeError: .*3 were g"),
        ("(rate, steps, replicas):\n    1 / 0", r"ZeroDivisionError: .*mine\.py:"),
        ("(*_):\n    import keras; return keras.optimizers.SGD()", r"optimizer\(\) returns SGD"),
    ],
)
def test_an_optimizer_that_is_none_is_refused(body, match, tmp_path):
    refused(tmp_path, match, added=f"\n\ndef optimizer{body}\n")


# Its loss and metric


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (LOSS, 'LOSS = "sparce"', "LOSS of the model module is 'sparce': Keras has no"),
        (LOSS, 'LOSS = "KLDivergence"', "'KLDivergence': this is a class or an object"),
        (METRIC, 'METRIC = "auc"', "METRIC of the model module is 'auc': Keras has no"),
        (METRIC, 'METRIC = "AUC"', "'AUC': this is a class or an object of Keras"),
        (METRIC, "import tf_keras\nMETRIC = tf_keras.metrics.AUC", "this is a class"),
        (METRIC, "import tf_keras\nMETRIC = tf_keras.metrics.AUC()", "or an object of Keras"),
        (METRIC, "METRIC = 3", "is 3: this is not a function"),
        (METRIC, "METRIC = lambda y, p: 1 / 0", "METRIC of mine, with .* failed: ZeroDivision"),
        (
            METRIC,
            "import tensorflow as tf\nMETRIC = lambda y, p: tf.reduce_mean(p)",
            "METRIC of the model module returns one number for a whole batch",
        ),
        (LOSS, 'LOSS = "categorical_crossentropy"', "LOSS of mine, with labels .* failed: .*hape"),
    ],
)
def test_a_measure_that_gives_no_number_for_each_sample_is_refused(old, new, match, tmp_path):
    refused(tmp_path, match, (old, new))


@pytest.mark.parametrize(
    ("new", "name"),
    [
        ("def certainty(y, p): return p[:, 0]\nMETRIC = certainty", "certainty"),
        ("METRIC = lambda y, p: p[:, 0]", "metric"),
        ("def loss(y, p): return p[:, 0]\nMETRIC = loss", "metric"),
        ('METRIC = "sparse_top_k_categorical_accuracy"', "sparse_top_k_categorical_accuracy"),
    ],
)
def test_a_metric_goes_by_its_name_unless_that_is_none_or_the_loss_s(new, name, tmp_path):
    problem, _ = problem_of(written(tmp_path, "mine", (METRIC, new)))
    assert problem.metric_name == name
