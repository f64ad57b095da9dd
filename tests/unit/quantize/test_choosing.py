"""What auto stands for is decided by held-back calibration samples, and recorded."""

import subprocess
import sys

import numpy as np
import pytest
from places import SHARED
from tiny_tflite import Graph, packed
from two_dense import two_dense
from wording import fails

from edgeconv.model.tflite import ensure_signature, summarize
from edgeconv.model.tflite.summary import tensor_specs
from edgeconv.quantize import calibrate, quantize
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE, MethodSearch, _parts, closeness
from edgeconv.quantize.held_back import HeldBackTrials
from edgeconv.quantize.refine.simulating import simulated
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.statistics.outputs import sample_errors
from edgeconv.types import LayerRule
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import ToolFailed, UsageError

# The quantiser asks for this mode itself.
KEY = "serving_default"
# Without it, the light last layer keeps 8 bits.
ALL_INT4 = [LayerRule(pattern="*", precision="int4")]


def feed(samples: int, *, batch: int = 1, seed: int = 1) -> Feed:
    rng = np.random.default_rng(seed)
    return Feed({"x": rng.gamma(1.0, size=(samples, 8)).astype(np.float32)}, batch)


def chooser(samples: int = 200) -> MethodSearch:
    return MethodSearch(CalibratedGraph(two_dense(), {KEY: feed(samples)}, threads=1))


def recipe(name: str, **options):
    (found,) = make_recipes([name], **options)
    return found


def test_a_recipe_that_leaves_nothing_open_tries_nothing():
    plain = chooser().file(recipe("int8", methods=["none"]))
    assert plain.record is None
    named = chooser().file(recipe("int8", methods=["bias-correction"]))
    assert named.record.methods == ("bias-correction",)
    assert (named.record.trials, named.record.held_back) == ((), 0)


def test_what_auto_takes_is_the_best_of_what_it_tried():
    chosen = chooser().file(recipe("weight-only-int4", layers=ALL_INT4))
    record = chosen.record
    taken = (record.calibration_range, record.methods)
    by = {(trial.calibration_range, trial.methods): trial for trial in record.trials}
    first, best = record.trials[0], by[taken]
    assert first.methods == ()
    assert best.snr_db > first.snr_db + 1, "weights of 4 bits have much to gain"
    assert not [trial for trial in record.trials if trial.snr_db > best.snr_db + 3]
    assert record.held_back == 66
    assert chosen.choosing_s > 0


def test_auto_ranges_are_chosen_from_all_there_are():
    record = chooser().file(recipe("int8", calibration_range="auto", methods=["none"])).record
    assert [trial.calibration_range for trial in record.trials] == [
        "minmax",
        "kl",
        "mse",
        "percentile",
        "ema",
    ]
    assert all(trial.methods == () for trial in record.trials)


def test_what_auto_takes_is_as_good_on_samples_that_nothing_has_seen():
    fresh = {KEY: feed(300, seed=9)}
    expected = outputs_of(two_dense(), fresh, threads=1)

    def snr_db(methods: list[str]) -> float:
        made = chooser().file(recipe("weight-only-int4", methods=methods, layers=ALL_INT4)).file
        return lowest_snr_db(expected, outputs_of(made.model, fresh, threads=1))

    assert snr_db(["auto"]) > snr_db(["none"]) + 1


@pytest.mark.parametrize(
    ("samples", "held_back", "fitted"),
    [(30, 30, 20), (100, 66, 67), (192, 64, 128), (300, 100, 200), (900, 128, 772)],
)
def test_a_third_is_held_back_and_takes_turns_where_that_is_few(samples, held_back, fitted):
    search = chooser(samples)
    folds = search.graph.folds(*_parts(search.graph.feeds))
    assert HeldBackTrials(folds).samples == held_back
    assert folds[0].fitting.feeds[KEY].samples == fitted
    rows = [batch["x"].tobytes() for fold in folds for batch in fold.held_back[KEY]]
    assert len(set(rows)) == held_back
    for fold in folds:
        seen = {batch["x"].tobytes() for batch in fold.fitting.feeds[KEY]}
        assert not seen & {batch["x"].tobytes() for batch in fold.held_back[KEY]}


def test_the_file_is_fitted_to_all_samples_for_any_choice():
    for options in ({"name": "int8"}, {"name": "weight-only-int4", "layers": ALL_INT4}):
        chosen = chooser().file(recipe(**options))
        assert chosen.record.trials
        methods = list(chosen.record.methods) or ["none"]
        named = chooser().file(recipe(**options, methods=methods)).file
        assert chosen.file.model == named.model


def test_a_file_close_to_float_is_left_as_it_is_after_one_trial():
    chosen = chooser().file(recipe("dynamic"))
    assert (chosen.record.methods, chosen.record.closeness) == ((), "close")
    assert len(chosen.record.trials) == 1
    assert chosen.file.model == chooser().file(recipe("dynamic", methods=["none"])).file.model


def test_outputs_as_small_as_a_step_of_their_integers_are_not_called_close():
    rng, step = np.random.default_rng(0), {"y": 1 / 256}
    for logits, expected in (
        (rng.normal(size=(80, 1000)), "coarse"),
        (20 * rng.normal(size=(80, 10)), "close"),
    ):
        values = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        stored = np.rint(values * 256) / 256
        errors = sample_errors({"y": values}, {"y": stored}, step)
        assert errors.is_within_step
        assert closeness(errors) == expected


def test_38_samples_do_not_choose_a_file_that_is_worse_on_fresh_ones():
    fresh = {KEY: feed(400, seed=99)}
    expected = outputs_of(two_dense(), fresh, threads=1)
    for seed in range(6):
        files = []
        for methods in ("none", "auto"):
            feeds = {KEY: feed(38, seed=seed)}
            search = MethodSearch(CalibratedGraph(two_dense(), feeds, threads=1))
            files.append(search.file(recipe("int8", methods=[methods])).file.model)
        plain, chosen = (
            lowest_snr_db(expected, outputs_of(each, fresh, threads=1)) for each in files
        )
        assert chosen >= plain - 0.1


def test_a_method_that_fails_is_a_trial_that_failed(monkeypatch):
    def failing(*_: object, **options):
        raise ToolFailed(f"no {', '.join(options['methods'])} today")

    plain = chooser(100).file(recipe("int8", methods=["none"])).file.model
    monkeypatch.setattr(quantize, "refine_layers", failing)
    chosen = chooser(100).file(recipe("int8"))
    failed = [trial for trial in chosen.record.trials if trial.failed]
    assert [(trial.methods, trial.failed) for trial in failed] == [
        (("bias-correction",), "no bias-correction today")
    ]
    ranges = [trial.calibration_range for trial in chosen.record.trials if not trial.methods]
    assert ranges[:2] == ["minmax", "kl"], "which need no methods"
    assert chosen.record.methods == ()
    assert chosen.record.calibration_range != "minmax" or chosen.file.model == plain
    with fails(ToolFailed):
        chooser(100).file(recipe("int8", methods=["bias-correction"]))


def with_sine() -> bytes:
    """A dense layer before and one after SIN, which has no integer kernel."""
    rng = np.random.default_rng(0)
    graph = Graph()
    last = graph.tensor("x", (1, 8), "float32", dynamic=True)
    for name, shape in (("first", (64, 8)), ("sine", None), ("last", (4, 64))):
        target = graph.tensor(name, (1, shape[0] if shape else 64), "float32", dynamic=True)
        if shape:
            values = rng.normal(size=shape).astype(np.float32)
            weights = graph.tensor(f"{name}/w", shape, "float32", data=values)
            graph.operator("FULLY_CONNECTED", [last, weights, -1], [target])
        else:
            graph.operator("SIN", [last], [target])
        last = target
    return packed(graph.model([0], [last], signature=(KEY, ["x"], ["y"])))


@pytest.mark.parametrize("name", ["int8", "int16x8", "int8x4"])
def test_nothing_is_tried_where_the_graph_tells_that_the_file_will_be_refused(name, monkeypatch):
    def unwanted(*_: object) -> None:
        pytest.fail("it was tried")

    monkeypatch.setattr(HeldBackTrials, "errors", unwanted)
    search = MethodSearch(CalibratedGraph(with_sine(), {KEY: feed(100)}, threads=1))
    chosen = search.file(recipe(name, full_integer=True))
    assert chosen.file.notes[-1].startswith(NOT_TRIED)
    assert "SIN" in chosen.file.notes[-1]
    assert chosen.record is None or chosen.record.trials == ()


def test_an_operator_that_may_stay_in_float_is_no_reason_to_try_nothing():
    for options in (
        {"name": "int8"},
        {"name": "int8", "layers": [LayerRule(pattern="SIN", precision="float32")]},
        {"name": "dynamic"},
    ):
        search = MethodSearch(CalibratedGraph(with_sine(), {KEY: feed(100)}, threads=1))
        record = search.file(recipe(**options)).record
        assert record.trials


def test_floats_with_the_weights_of_int16x8_stand_in_for_its_slow_kernels():
    whole = {KEY: feed(60)}
    file = chooser().file(recipe("int16x8", methods=["none"])).file.model
    stand_in = simulated(file, two_dense())
    assert stand_in is not None
    answers, floats = (outputs_of(each, whole, threads=1) for each in (file, stand_in))
    real = outputs_of(two_dense(), whole, threads=1)
    # Their error against the float graph is the same, but for the rounding of activations.
    assert lowest_snr_db(answers, floats) > lowest_snr_db(real, answers) + 20
    assert (
        simulated(chooser().file(recipe("int8", methods=["none"])).file.model, two_dense()) is None
    )


def test_int16x8_is_predicted_with_what_rounding_its_activations_does():
    """Beside a column of large numbers, 16 bits hold little of the others."""
    weights = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    weights[:, 0] = 0
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32")
    w = graph.tensor("w", (4, 8), "float32", data=weights)
    b = graph.tensor("b", (4,), "float32", data=np.zeros(4, np.float32))
    y = graph.computed("y", (1, 4), "FULLY_CONNECTED", [x, w, b])
    model = packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))
    feeds = []
    for seed in (1, 2):
        samples = np.random.default_rng(seed).gamma(1.0, size=(200, 8)).astype(np.float32)
        samples[:, 0] *= 1e4
        feeds.append({KEY: Feed({"x": samples}, 1)})
    given, fresh = feeds
    search = MethodSearch(CalibratedGraph(model, given, threads=1))
    plain, chosen = (search.file(recipe("int16x8", methods=[each])) for each in ("none", "auto"))
    expected = outputs_of(model, fresh, threads=1)
    true_db, kept_db = (
        lowest_snr_db(expected, outputs_of(each.file.model, fresh, threads=1))
        for each in (plain, chosen)
    )
    assert true_db < 20
    assert chosen.record.trials[0].snr_db == pytest.approx(true_db, abs=2)
    # So the layer is kept in float.
    assert kept_db > 40


def test_one_pass_over_the_layers_serves_all_that_lose_by_weights_of_8_bits(monkeypatch):
    passes = []
    run = quantize.refine_layers

    def counting(*arguments, **options):
        passes.append(options["methods"])
        return run(*arguments, **options)

    monkeypatch.setattr(quantize, "refine_layers", counting)
    search = chooser()
    models = [
        search.file(recipe(name, methods=["bias-correction", "rounding"])).file.model
        for name in ("dynamic", "weight-only-int8", "int16x8")
    ]
    assert passes == [{"bias-correction", "rounding"}]
    # The few weights of the other layer stay in float, in some of them.
    weights = [tensor_specs(model, where="it")["a/w"] for model in models]
    assert weights[0].dtype == "int8"
    assert weights[0] == weights[1] == weights[2]
    search.file(recipe("int8", methods=["bias-correction"]))
    assert len(passes) == 2


def test_bias_correction_of_int16x8_lowers_the_error_that_the_real_kernels_make():
    fresh = {KEY: feed(300, seed=5)}
    expected = outputs_of(two_dense(), fresh, threads=1)

    def channel_errors(methods: list[str]):
        file = chooser().file(recipe("int16x8", methods=methods)).file
        (answers,) = outputs_of(file.model, fresh, threads=1).values()
        return np.abs((answers - next(iter(expected.values()))).mean(axis=0)).sum()

    assert channel_errors(["bias-correction"]) < 0.5 * channel_errors(["none"])


def test_the_same_samples_give_the_same_bytes():
    asked = recipe("int8x4", methods=["auto"], calibration_range="auto")
    assert chooser().file(asked).file.model == chooser().file(asked).file.model


@pytest.mark.parametrize("options", [{}, {"calibration_range": "auto"}])
def test_too_few_samples_to_choose_by_give_the_plain_file_and_a_note(options):
    few = MIN_SAMPLES_TO_CHOOSE - 1
    chosen = chooser(few).file(recipe("int8", **options))
    assert chosen.record is None
    reason = f"{few} calibration samples are too few to choose by, 24 are needed"
    assert reason in chosen.notes[-1]
    plain = chooser(few).file(recipe("int8", methods=["none"]))
    assert chosen.file.model == plain.file.model
    assert not plain.file.notes


def test_without_samples_there_is_nothing_to_choose_by_and_a_note():
    search = MethodSearch(CalibratedGraph(two_dense(), {}, threads=1))
    chosen = search.file(recipe("dynamic"))
    assert chosen.notes == (
        "no post-training methods were tried: there are no calibration samples",
    )
    assert chosen.file.model == search.file(recipe("dynamic", methods=["none"])).file.model


def test_too_few_samples_for_a_method_say_how_many_it_needs():
    with fails(UsageError):
        chooser(3).file(recipe("int8", methods=["rounding"]))


def test_ranges_of_16_bits_are_not_clipped():
    auto = recipe("int16x8", calibration_range="auto", methods=["none"])
    assert chooser().file(auto).record is None


@pytest.mark.parametrize(("samples", "batch", "held_back"), [(10, 1, 3), (10, 4, 4), (2, 1, 9)])
def test_samples_are_parted_in_whole_batches(samples, batch, held_back):
    fitting, judging = feed(samples, batch=batch).split(held_back)
    assert fitting.samples + judging.samples == samples // batch * batch
    assert min(fitting.samples, judging.samples) >= batch
    parts = [value["x"] for one in (fitting, judging) for value in one]
    whole = [value["x"] for value in feed(samples, batch=batch)]
    assert np.array_equal(np.concatenate(parts), np.concatenate(whole))


def test_answers_of_integer_inputs_and_outputs_are_real_numbers():
    whole = {KEY: feed(50)}
    made = chooser().file(recipe("int8", input_type="int8", output_type="uint8")).file
    found = outputs_of(made.model, whole, threads=1)
    assert lowest_snr_db(outputs_of(two_dense(), whole, threads=1), found) > 20


def test_the_worker_settles_linear_algebra_before_numpy_is_loaded():
    """One thread gives the same sums on every number of cores, and is read at import only."""
    program = (
        "import sys, os, edgeconv.quantize.worker as worker; before = 'numpy' in sys.modules; "
        "worker.settle_process(); print(before, os.environ['OPENBLAS_NUM_THREADS'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "1"]


LSTM = SHARED / "tflm_models/mnist_lstm__trained_lstm.tflite"


@pytest.mark.skipif(not LSTM.is_file(), reason="no ../shared/data/tflm_models beside the project")
def test_each_sample_of_a_model_with_state_begins_afresh():
    data = LSTM.read_bytes()
    (signature,) = summarize(signed := ensure_signature(data), where="it").signatures
    (spec,) = signature.inputs
    image = np.random.default_rng(0).uniform(size=(1, *spec.shape[1:])).astype(np.float32)
    found = outputs_of(
        signed, {signature.key: Feed({spec.name: np.repeat(image, 3, axis=0)}, 1)}, threads=1
    )
    (values,) = found.values()
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[0], values[2])


def test_minima_and_maxima_of_two_parts_are_those_of_all_samples():
    x = np.random.default_rng(1).gamma(1.0, size=(50, 8)).astype(np.float32)
    x[-10:] *= 2
    whole = CalibratedGraph(two_dense(), {KEY: Feed({"x": x}, 1)}, threads=1).fitted(
        "minmax", bits=8
    )
    parted = CalibratedGraph(two_dense(), {KEY: Feed({"x": x}, 1)}, threads=1)
    (fold,) = parted.folds([{KEY: range(40)}, {KEY: range(40, 50)}], 1)
    merged = parted.fitted("minmax", bits=8)
    assert merged.ranges.keys() == whole.ranges.keys()
    for name, limits in whole.ranges.items():
        np.testing.assert_array_equal(merged.ranges[name]["min"], limits["min"])
        np.testing.assert_array_equal(merged.ranges[name]["max"], limits["max"])
    narrower = fold.fitting.fitted("minmax", bits=8).ranges
    assert any((narrower[n]["max"] < limits["max"]).any() for n, limits in whole.ranges.items())


def test_samples_that_auto_has_calibrated_with_are_not_calibrated_with_again(monkeypatch):
    samples: list[int] = []
    run = calibrate.measured_ranges

    def counting(model, feeds, **options):
        if options["calibration_range"] == "minmax":
            samples.append(feeds[KEY].samples)
        return run(model, feeds, **options)

    monkeypatch.setattr(calibrate, "measured_ranges", counting)
    search = chooser(200)
    search.file(recipe("int8"))
    assert (
        search.file(recipe("int16x8", methods=["none"])).file.model
        == chooser(200).file(recipe("int16x8", methods=["none"])).file.model
    )
    # Those that are left when some are held back, perhaps twice since one graph is equalized;
    # the others; and all, where nothing had calibrated before.
    assert samples in ([134, 66, 200], [134, 134, 66, 200], [134, 134, 66, 200, 200])
