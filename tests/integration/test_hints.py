"""What a refusal advises is done as it is printed, and the model converts."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

PACKAGE = ROOT / "edgeconv"
ROOMS = ("conversion", "model", "quantize", "tf")
# `train` and `bench` refuse with hints of their own.
OTHERS = ("tf/training/", "tf/baseline.py")
# What a call was told to do is in its usage.
_USAGE = "UsageError"
_WORD = re.compile("[A-Za-z]{2,}")
_FEWEST_WORDS = 3
_DEEPEST = 3
Scope = Mapping[str, Sequence[ast.expr]]


def hint_texts() -> dict[str, str]:
    """Each text that a hint may be, {} where a value is put in, and the module that has it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _modules()}
    everywhere: dict[str, list[ast.expr]] = {}
    for tree in trees.values():
        _note(tree.body, everywhere)
    found = {}
    for path, tree in trees.items():
        scope = dict(everywhere)
        own: dict[str, list[ast.expr]] = {}
        _note(ast.walk(tree), own)
        scope |= own
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) != _USAGE:
                for text in _texts_of(call, scope):
                    found[text] = str(path.relative_to(PACKAGE))
    return found


def _modules() -> list[Path]:
    paths = sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
    return [path for path in paths if not any(other in str(path) for other in OTHERS)]


def _note(nodes: Iterator[ast.AST] | Sequence[ast.AST], scope: dict[str, list[ast.expr]]) -> None:
    """Note what names are given, and what functions return."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            ends = (each for each in ast.walk(node) if isinstance(each, ast.Return))
            scope.setdefault(node.name, []).extend(end.value for end in ends if end.value)


def _texts_of(call: ast.Call, scope: Scope) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "hint":
            texts = _texts(keyword.value, scope)
            yield from (text for text in texts if len(_WORD.findall(text)) >= _FEWEST_WORDS)


def _texts(node: ast.AST, scope: Scope, depth: int = 0) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield "".join(map(str, parts))
    name = node.id if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
    if name is not None and depth < _DEEPEST:
        for value in scope.get(name, ()):
            yield from _texts(value, scope, depth + 1)
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from (
                ()
                if isinstance(child, ast.Constant) and isinstance(node, ast.JoinedStr)
                else _texts(child, scope, depth)
            )


ZOO = "hint_zoo:write"

REFUSED, FAILED = 3, 4
FLOATS = "--to float32"
QUICK = "--to int8 --methods none"
INTEGERS = f"{QUICK} --calibration"
TRAINING = "--to qat --qat-epochs 1 --training"


@pytest.fixture
def converts(models, cli) -> Callable[[str], Any]:
    """Runs `convert` with words, of which those in the directory of models are paths."""

    if not (models / "linked").exists():
        # The copy of the zoo follows links.
        (models / "linked").mkdir()
        for part in ("saved_model.pb", "variables"):
            (models / "linked" / part).symlink_to(models / "whole" / part)

    def found(word: str) -> str:
        key, equals, path = word.rpartition("=") if "labels=" not in word else ("", "", word)
        is_there = (models / path.partition("?")[0]).exists()
        return f"{key}{equals}{models / path}" if is_there else word

    def run(words: str) -> Any:
        model, *_ = words.split()
        return cli("convert", *map(found, words.split()), "-o", f"out/{model}")

    return run


def hint_of(converts: Callable[[str], Any], words: str) -> str:
    """The hint with which a command is refused."""
    refused = converts(words)
    assert refused.returncode in (REFUSED, FAILED), refused.stderr
    (hint, *_) = re.findall(r"^  next: (.*)", refused.stderr, re.MULTILINE)
    return str(hint)


def advised(hint: str) -> str:
    """The option in a hint, with a size for each that is open."""
    option = re.search(r"(--shape) ([^\s;]+[^\s;,])", hint)
    assert option is not None, hint
    return f"{option[1]} {option[2].replace('?', '12')}"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (f"bilinear.keras {FLOATS}", "--shape image=1x12x12x3"),
        (f"nearest.keras {FLOATS}", "--shape image=1x12x12x3"),
    ],
)
def test_the_option_that_is_advised_converts_the_model(words, option, converts):
    assert advised(hint_of(converts, words)) == option
    done = converts(f"{words} {option}")
    assert done.returncode == 0, done.stderr


# What is refused; and for each piece of advice some words of it, and the command that follows it.
FOLLOWED = {
    f"own.keras {FLOATS}": {
        "--custom-objects MODULE": f"own.keras {FLOATS} --custom-objects layers_of_mine.py",
        "export the model as a SavedModel": f"own {FLOATS}",
    },
    f"lambda.keras {FLOATS}": {"export the model as a SavedModel": f"lambda {FLOATS}"},
    f"unbuilt.keras {FLOATS}": {"call it on a batch": f"called.keras {FLOATS}"},
}


# The same again, in turn.
SATURATING = f"saturating {INTEGERS} x.npz"
TWO = "two_signatures --signature a --signature b --calibration a=x.npz --calibration b=x.npz"
RANGES = "--engine tflite --calibration-range"
SLOWER = {
    f"hashed {FLOATS}": {
        "give the model its number": f"by_number {FLOATS}",
        "a StringLookup with a vocabulary": f"by_index {FLOATS}",
    },
    f"lowered {FLOATS}": {"in the application and give the model their": f"by_number {FLOATS}"},
    f"counts {FLOATS}": {"take its sum": f"sums {FLOATS}", "its largest": f"largest {FLOATS}"},
    f"numbers {FLOATS}": {"look up the int64 index of a string, and gather": f"by_index {FLOATS}"},
    f"combined {FLOATS}": {
        "tf.image.non_max_suppression_padded": f"padded {FLOATS} --calibration boxes.npz"
    },
    f"grouped.keras {FLOATS}": {"concatenate a Conv3D of each part": f"split.keras {FLOATS}"},
    f"pooled.keras {FLOATS}": {"the largest, or the mean, of its slices": f"slices.keras {FLOATS}"},
    f"cut {FLOATS}": {"copy or export the model again": f"whole {FLOATS}"},
    f"dense.keras {INTEGERS} large.npz": {"scaled as in training": f"dense.keras {INTEGERS} x.npz"},
    f"huge.keras {INTEGERS} x.npz": {"the model's weights": f"dense.keras {INTEGERS} x.npz"},
    f"float32_ids.keras {INTEGERS} float32_ids.npz --io int8": {
        "leave --io out": f"float32_ids.keras {INTEGERS} float32_ids.npz",
        "an int32 input": f"int32_ids.keras {INTEGERS} int32_ids.npz --io int8",
    },
    f"centered {FLOATS}": {"take out what is computed over the batch": f"plain {FLOATS}"},
    f"powers {INTEGERS} x.npz --full-integer": {
        "leave out --full-integer": f"powers {INTEGERS} x.npz",
        "convert to dynamic instead": "powers --to dynamic",
        "or write in the model": f"logarithms {INTEGERS} x.npz --full-integer",
    },
    f"sines {INTEGERS} x.npz --io int8": {"leave out --io": f"sines {INTEGERS} x.npz"},
    f"far_from_zero {INTEGERS} x.npz": {
        "choose int16x8": "far_from_zero --to int16x8 --calibration x.npz",
        "or choose another recipe": "far_from_zero --to dynamic",
    },
    f"very_far {FLOATS}": {
        "look for differences of large numbers": f"plain {FLOATS}",
        "accept it with --min-snr-db": f"very_far {FLOATS} --min-snr-db 20",
    },
    "dense.keras --to dynamic --engine litert --min-snr-db 90": {
        "choose weight-only-int8 or float16": "dense.keras --to float16 --min-snr-db 30"
    },
    f"{TWO} --to int8 --methods bias-correction": {
        "leave these methods out": f"{TWO} --to int8 --methods none"
    },
    f"{TWO} --to int8x4": {"choose a recipe whose weights have 8 bits": f"{TWO} --to int8"},
    f"{SATURATING} --min-snr-db 60": {
        "choose another recipe": f"saturating {FLOATS} --min-snr-db 60",
        "accept it with --min-snr-db": f"{SATURATING} --min-snr-db 20",
    },
    f"powers_alone {INTEGERS} x.npz": {
        "convert to float32 or float16": "powers_alone --to float16"
    },
    f"overflowing {INTEGERS} x.npz": {"a layer that overflows": SATURATING},
    f"bessel {FLOATS}": {"no TFLite runtime has them": f"series {FLOATS}"},
    f"angles {FLOATS}": {"replace that operator": f"angles_of_equal {FLOATS}"},
    f"pads {FLOATS}": {"replace the layer": f"pads_four {FLOATS}"},
    f"asserting {FLOATS}": {"correct the model": f"plain {FLOATS}"},
    f"asserting {FLOATS} --calibration x.npz": {
        "give samples with the preprocessing used in training": f"asserting {FLOATS} "
        "--calibration low.npz"
    },
    f"random {FLOATS}": {
        "can be an input of the model": f"random_as_input {FLOATS}",
        "model of the outputs that are not random": f"plain {FLOATS}",
    },
    f"noise.keras {FLOATS} --custom-objects noise.py": {
        "act in training only": f"noise.keras {FLOATS} --custom-objects noise_in_training.py"
    },
    f"always_training.keras {FLOATS}": {
        "build the model without that training=True": f"inference.keras {FLOATS}"
    },
    f"newer {FLOATS}": {"the TensorFlow that is installed here": f"whole {FLOATS}"},
    f"future.keras {FLOATS}": {
        "export it as a SavedModel with the version of Keras": f"dense {FLOATS}"
    },
    f"own.keras {FLOATS} --custom-objects named/types.py": {
        "rename the file": f"own.keras {FLOATS} --custom-objects layers_of_mine.py"
    },
    f"own.keras {FLOATS} --custom-objects layers_of_tf_keras.py": {
        "derive it from a class of": f"own.keras {FLOATS} --custom-objects layers_of_mine.py",
        "or save the model again with the Keras of the class": f"own_of_tf.keras {FLOATS} "
        "--custom-objects layers_of_tf_keras.py",
    },
    f"choice.keras {FLOATS} --custom-objects choice.py": {
        "let its call take tensors whose values are not known": f"choice.keras {FLOATS} "
        "--custom-objects choice_of_tensors.py"
    },
    f"coded.keras {FLOATS} --custom-objects coded.py": {
        "build it with an Input": f"functional.keras {FLOATS}",
        "export a SavedModel with a signature": f"coded {FLOATS}",
    },
    f"umlaut.keras {FLOATS}": {"a name of ASCII letters": f"ascii.keras {FLOATS}"},
    f"without_file {FLOATS}": {"with its folder assets": f"of_file {FLOATS}"},
    f"short_file {FLOATS}": {"with the file that it was trained with": f"of_file {FLOATS}"},
    f"pairs.keras {FLOATS} --batch 4": {"remove --batch": f"pairs.keras {FLOATS}"},
    f"dense.keras {FLOATS} --shape x=1x2x12": {
        "give every dimension": f"dense.keras {FLOATS} --shape x=1x12"
    },
    "half.tflite --to dynamic": {
        "convert the float32 model that the file was made from": "plain --to dynamic"
    },
    f"custom.tflite {FLOATS}": {"take it out of the model": f"builtin.tflite {FLOATS}"},
    f"nameless.tflite {FLOATS}": {"a name for each signature": f"builtin.tflite {FLOATS}"},
    "dense.keras --to weight-only-int8 --engine tflite": {
        "remove --engine": "dense.keras --to weight-only-int8",
        "or use the recipe dynamic": "dense.keras --to dynamic --engine tflite",
    },
    f"dense.keras {INTEGERS} x.npz --engine tflite --layer *=int16x8": {
        "remove --engine, or --layer": f"dense.keras {INTEGERS} x.npz --engine tflite"
    },
    "dense.keras --to int8 --methods equalization --calibration x.npz --engine tflite": {
        "or name other methods": "dense.keras --to int8 --methods equalization --calibration x.npz"
    },
    f"dense.keras {INTEGERS} x.npz {RANGES} kl": {
        "use --calibration-range minmax": f"dense.keras {INTEGERS} x.npz {RANGES} minmax"
    },
}


# The same of files that are not read, or not as they are.
READ = {
    f"only.weights.h5 {FLOATS}": {
        "build the model in code, load_weights()": f"dense.keras {FLOATS}"
    },
    f"halved.keras {FLOATS}": {"copy or save the model again": f"dense.keras {FLOATS}"},
    f"other.keras {FLOATS}": {"save the whole model with model.save": f"dense.keras {FLOATS}"},
    f"no_json.keras {FLOATS}": {"save the model again": f"dense.keras {FLOATS}"},
    f"noise.tflite {FLOATS}": {"copy or convert it again": f"builtin.tflite {FLOATS}"},
    f"garbled.keras {FLOATS}": {"truncated or garbled": f"dense.keras {FLOATS}"},
    f"misnamed.tflite {FLOATS}": {"rename it to end in": f"dense.keras {FLOATS}"},
    f"absent.keras {FLOATS}": {"a SavedModel directory, a .keras": f"dense {FLOATS}"},
    f"folder {FLOATS}": {"give the model in it": f"folder/dense.keras {FLOATS}"},
    f"whole/variables/variables.index {FLOATS}": {"give its directory": f"whole {FLOATS}"},
    f"no_variables {FLOATS}": {"with variables/ in it": f"whole {FLOATS}"},
    f"linked {FLOATS}": {"cp -rL": f"whole {FLOATS}"},
    f"tagged {FLOATS}": {"choose the graph with": f"tagged {FLOATS} --tag train"},
    f"untagged {FLOATS}": {"export it with tags": f"whole {FLOATS}"},
    "quantized.tflite --to dynamic": {
        "the float model that it was made from": "whole --to dynamic"
    },
    f"scalar {FLOATS}": {"one value for each sample": f"one_for_each {FLOATS}"},
    f"any_rank {FLOATS}": {"an input_signature that gives its shape": f"plain {FLOATS}"},
    f"no_inputs {FLOATS}": {"a signature that has both": f"plain {FLOATS}"},
    f"nothing {FLOATS}": {"export it with one": f"dense {FLOATS}"},
    f"unsigned {FLOATS}": {"a signature of one of them": f"signed {FLOATS}"},
}


# The same of trainings with quantization.
TRAINED = {
    f"two.keras {TRAINING} one_label.npz": {
        "an array for each output": f"two.keras {TRAINING} two_labels.npz"
    },
    f"tanh.keras {TRAINING} seven_labels.npz": {
        "give labels of that shape": f"tanh.keras {TRAINING} right_labels.npz",
        "?labels=none": f"tanh.keras {TRAINING} seven_labels.npz?labels=none",
        "--qat-target model": f"tanh.keras {TRAINING} seven_labels.npz --qat-target model",
    },
    f"classes.keras {TRAINING} from_1.npz": {
        "check the labels": f"classes.keras {TRAINING} from_0.npz"
    },
    f"classes.keras {TRAINING} from_0.npz --qat-learning-rate 10": {
        "lower --qat-learning-rate": f"classes.keras {TRAINING} from_0.npz --qat-learning-rate 1e-5"
    },
    f"matrix.keras {TRAINING} x.npz": {
        "layers of Keras's own": f"tanh.keras {TRAINING} x.npz",
        "without quantization-aware training (--to int8)": f"matrix.keras {INTEGERS} x.npz",
    },
    f"normed.keras {TRAINING} x.npz --full-integer": {
        "without --full-integer": f"normed.keras {TRAINING} x.npz"
    },
    f"only_normed.keras {TRAINING} x.npz": {"convert to float16": "only_normed.keras --to float16"},
    f"coded.keras {TRAINING} x.npz --custom-objects coded.py": {
        "build it with an Input": f"functional.keras {TRAINING} x.npz"
    },
    f"masked.keras {TRAINING} series.npz": {
        "call it without a mask": f"unmasked.keras {TRAINING} series.npz"
    },
    # Its batch is fixed, as that of other recipes is.
    f"lstm.keras {TRAINING} series.npz --full-integer": {
        "without --full-integer": f"lstm.keras {TRAINING} series.npz"
    },
    f"plain {TRAINING} x.npz": {
        "saved with model.save('NAME.keras')": f"functional.keras {TRAINING} x.npz"
    },
    f"code_of_tf {TRAINING} x.npz": {
        "replace it by a layer of Keras's own": f"layers_of_tf.keras {TRAINING} x.npz"
    },
    f"coded_of_tf {TRAINING} input_1.npz": {
        "as a functional or Sequential model": f"functional.keras {TRAINING} x.npz"
    },
    f"cut_layers {TRAINING} x.npz": {
        "save the model as NAME.keras": f"layers_of_tf.keras {TRAINING} x.npz"
    },
    f"tanh {TRAINING} x.npz": {
        "the Keras model that it was made from": f"tanh.keras {TRAINING} x.npz"
    },
    f"huge.keras {TRAINING} x.npz": {
        "look at the model's weights": f"dense.keras {TRAINING} x.npz"
    },
}


@pytest.mark.parametrize(
    ("words", "followed"),
    [
        *(pytest.param(*row, id=row[0]) for row in FOLLOWED.items()),
        *(
            pytest.param(*row, id=row[0], marks=pytest.mark.slow)
            for row in (SLOWER | READ | TRAINED).items()
        ),
    ],
)
def test_what_is_advised_converts(words, followed, converts):
    hint = hint_of(converts, words)
    for advice, command in followed.items():
        assert advice in hint
        done = converts(command)
        assert done.returncode == 0, done.stderr


def test_a_size_is_not_advised_where_it_changes_nothing(converts):
    assert "--shape" not in hint_of(converts, f"grouped.keras {FLOATS}")


# Hints that other tests follow, by words of them.
ELSEWHERE = {
    "they fit with --preprocess": "test_calibration_faults.py::"
    "test_a_set_that_cannot_be_right_refuses_the_calibrated_recipes_only",
    "--allow-suspect-calibration converts anyway": "test_calibration_faults.py::"
    "test_what_is_allowed_is_published_with_its_warnings",
    "which edgeconv doctor MODEL DATA finds": "test_doctor_models.py::"
    "test_the_training_of_a_keras_file_is_found",
    "fix the open dimensions": "test_hints.py::test_the_option_that_is_advised_converts_the_model",
    "and link the Select-TF (Flex) delegate": "test_select_ops.py::"
    "test_a_file_with_them_is_a_source_only_where_they_are_allowed",
    "choose another recipe for this runtime": "test_runtime_gpu.py::"
    "test_what_is_wrong_there_is_not_published_and_what_is_right_is_proposed",
    "add --batch 1: the delegate": "test_runtime_gpu.py::"
    "test_a_graph_that_computes_shapes_is_refused_with_what_fixes_it",
    "`edgeconv inspect` says": "test_target_runtime.py::"
    "test_a_model_that_cannot_run_there_is_not_published_and_says_why",
}
# Hints that nothing here follows, and why.
LEFT = {
    "check the path and its permissions": "the user of the tests may read every file",
    "free some space, or set TMPDIR": "it needs a disk that is full",
    "convert it first": "no conversion refuses with it, but what takes its files",
    "choose one of {}": "a conversion looks for no signature that is not there",
    "convert to full-integer int8 first": "a conversion makes integer ends of such files only",
    "convert the model to a single .tflite file": "no converter here keeps weights apart",
    "no converter writes such a file": "no export here does either",
    "as it was before quantize()": "all other models here are as they were",
    "give a file that a TFLite converter wrote": "hostile files are refused with it",
    "allow this one file with --trust-model": "tests/hostile/test_verbs.py tells what it allows",
    "correct the data, or rename its arrays": "the rows of other tests have right names",
    "directory for temporary files with TMPDIR": "it needs a disk that is full",
    "convert with --batch 1": "the attempts before have fixed the batch themselves",
    "run it again, once nothing writes to it": "it is the same command",
    "pip install tensorflow": "it needs an environment without TensorFlow",
    "calibrate with more samples": "how many are enough depends on chance",
    "export it again with the version of TensorFlow": "it needs another version of TensorFlow",
    "replace that layer, or convert the model without": "no layer is known whose counterpart in "
    "tf_keras computes something else",
    "check the model's weights, and that the samples": "what is not finite is refused before a "
    "training, but for samples that only the training sees",
}


def test_every_hint_of_a_refusal_is_followed_or_it_is_said_why_not():
    followed = [
        advice
        for rows in (FOLLOWED, SLOWER, READ, TRAINED)
        for row in rows.values()
        for advice in row
    ]
    known = ("leave out {}", *followed, *ELSEWHERE, *LEFT)
    texts = hint_texts()
    assert [
        (where, text) for text, where in texts.items() if not any(k in text for k in known)
    ] == []
    unused = [words for words in (*ELSEWHERE, *LEFT) if not any(words in text for text in texts)]
    assert unused == []


@pytest.mark.parametrize("test", ELSEWHERE.values())
def test_what_follows_a_hint_elsewhere_is_there(test):
    file, _, name = test.partition("::")
    assert f"def {name}(" in Path(__file__).with_name(file).read_text(encoding="utf-8")
