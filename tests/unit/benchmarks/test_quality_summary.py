"""What the benchmark of post-training quality makes of its rows."""

from typing import Any

import pytest
from places import ROOT


@pytest.fixture
def quality(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import quality_summary

    return quality_summary


def model(accuracies: dict[str, float], *, width: float = 0.01, **more: Any) -> dict[str, Any]:
    """A model whose differences all have intervals of `width` on either side."""
    rows = {}
    for name, value in accuracies.items():
        less = {}
        for other, theirs in accuracies.items():
            gap = round(value - theirs, 5)
            less[other] = {"difference": gap, "interval": [gap - width, gap + width]}
        rows[name] = {"accuracy": value, "less": less, "cpu_s": 2.0, "trials": 0}
    fields = {"contenders": rows, "least": 0.0, "convolutional": True, "package": "0123"}
    return fields | more


def int8(tflite: float, aeq: float, plain: float, default: float) -> dict[str, float]:
    return {
        "float32": 0.9,
        "int8 of TFLiteConverter": tflite,
        "int8 of litert-quantizer": aeq,
        "int8, none": plain,
        "int8, default": default,
    }


def test_the_mean_losses_are_of_all_models(quality):
    found = quality.summary(
        {"a": model(int8(0.86, 0.8, 0.87, 0.89)), "b": model(int8(0.88, 0.9, 0.88, 0.9))}
    )["int8"]
    assert found["mean_losses"]["int8 of TFLiteConverter"] == pytest.approx(0.03)
    assert found["mean_losses"]["int8, default"] == pytest.approx(0.005)


def test_a_model_that_a_peer_cannot_convert_is_in_no_mean(quality):
    failed = model(int8(0.5, 0.5, 0.5, 0.5))
    failed["contenders"]["int8 of TFLiteConverter"] = {"failed": "an operator"}
    found = quality.summary({"a": failed, "b": model(int8(0.88, 0.8, 0.88, 0.9))})["int8"]
    assert found["models_with_all"] == 1
    assert found["mean_losses"]["int8, default"] == 0
    assert found["losses"]["a"]["int8, default"] == pytest.approx(0.4)
    assert found["with_better_peer"]["a"]["peer"] == "int8 of litert-quantizer"


def test_samples_of_the_same_class_are_counted_where_accuracies_cancel(quality):
    models = {name: model(int8(0.9, 0.9, 0.9, 0.9)) for name in ("a", "b", "words")}
    for name, agreement in (("a", 0.9), ("b", 0.98)):
        for row in models[name]["contenders"].values():
            row["agreement"] = agreement
    models["b"]["contenders"]["int8, default"]["agreement"] = 1.0
    found = quality.summary(models)["int8"]
    assert found["mean_agreement"]["int8 of TFLiteConverter"] == pytest.approx(0.94)
    assert found["mean_agreement"]["int8, default"] == pytest.approx(0.95)
    assert not found["mean_agreement_is_enough"]
    models["a"]["contenders"]["int8, default"]["agreement"] = 0.96
    assert quality.summary(models)["int8"]["mean_agreement_is_enough"]
    # The default's own mean is of all models, whether or not a peer has a file.
    models["words"]["contenders"]["int8, default"]["agreement"] = 0.5
    found = quality.summary(models)["int8"]
    assert found["mean_agreement_of_default"] == pytest.approx(0.82)
    assert found["mean_agreement"]["int8, default"] == pytest.approx(0.98)
    assert not found["mean_agreement_is_enough"]


def test_it_is_worse_than_a_peer_only_where_the_samples_can_tell(quality):
    found = quality.summary(
        {"a": model(int8(0.85, 0.89, 0.9, 0.885)), "b": model(int8(0.9, 0.8, 0.9, 0.88))}
    )["int8"]
    compared = found["with_better_peer"]
    assert compared["a"]["peer"] == "int8 of litert-quantizer"
    assert (compared["a"]["is_lower"], compared["a"]["is_worse"]) == (True, False)
    assert compared["b"]["peer"] == "int8 of TFLiteConverter"
    assert (compared["b"]["is_lower"], compared["b"]["is_worse"]) == (True, True)
    assert found["worse_than_better_peer"] == ["b"]


def test_a_default_that_publishes_nothing_is_worse_than_a_peer_that_does(quality):
    models = {"a": model(int8(0.9, 0.8, 0.9, 0.9)), "b": model({"float32": 0.9})}
    models["a"]["contenders"]["int8, default"] = {"failed": "SNR 2.0 dB, below 6 dB"}
    found = quality.summary(models)["int8"]
    assert found["worse_than_better_peer"] == ["a"]
    assert found["with_better_peer"]["a"]["failed"] == "SNR 2.0 dB, below 6 dB"
    assert found["models_with_all"] == 0


def test_the_accuracy_that_is_required_is_reached_or_not(quality):
    models = {
        name: model(int8(0.9, 0.9, 0.9, default), least=0.895)
        for name, default in (("a", 0.895), ("b", 0.894))
    }
    least = quality.summary(models)["int8"]["least"]
    assert {name: each["is_reached"] for name, each in least.items()} == {"a": True, "b": False}


def test_what_is_recovered_is_a_share_of_what_plain_rounding_loses(quality):
    rows = {"float32": 0.9, "int8x4, none": 0.5, "int8x4, default": 0.86}
    found = quality.summary({"a": model(rows), "no": model(rows, convolutional=False)})["int4"]
    assert found["int8x4"]["models"] == {
        "a": {"lost": 0.4, "left": 0.04, "recovered": pytest.approx(0.9)}
    }
    assert found["weight-only-int4"]["models"] == {}


def test_nothing_is_recovered_where_nothing_is_lost(quality):
    rows = {"float32": 0.9, "int8x4, none": 0.895, "int8x4, default": 0.9}
    found = quality.summary({"a": model(rows)})["int4"]["int8x4"]
    assert found["models"]["a"]["recovered"] is None
    assert found["models_that_lose"] == 0
    assert found["mean_recovered"] is None


def test_4_bits_may_lose_one_point_of_a_convolutional_model(quality):
    models = {
        name: model({"float32": 0.9, "int8x4, none": 0.5, "int8x4, default": default}, **more)
        for name, default, more in (
            ("within", 0.89, {}),
            ("beyond", 0.889, {}),
            ("words", 0.8, {"convolutional": False}),
        )
    }
    models["refused"] = model({"float32": 0.9, "int8x4, none": 0.5})
    found = quality.summary(models)["int4"]["int8x4"]
    assert found["beyond_a_point"] == ["beyond", "refused"]


@pytest.mark.parametrize(
    ("trials", "cpu_s", "beyond"),
    [(1, 2.2, []), (1, 2.3, ["a"]), (2, 5.0, []), (2, 5.1, ["a"])],
)
def test_a_search_may_cost_more_than_a_look_at_the_plain_file(quality, trials, cpu_s, beyond):
    models = {"a": model(int8(0.9, 0.9, 0.9, 0.9))}
    models["a"]["contenders"]["int8, default"] |= {"trials": trials, "cpu_s": cpu_s}
    found = quality.summary(models)["cost"]["int8"]
    assert found["times_cpu"] == {"a": pytest.approx(cpu_s / 2, abs=0.005)}
    assert found["beyond"] == beyond
    assert quality.summary(models)["cost"]["int8x4"]["median"] is None


def test_it_tells_by_which_states_of_the_package_the_models_were_converted(quality):
    models = {name: model({"float32": 0.9}, package=name[:1]) for name in ("a1", "b", "a2")}
    assert quality.summary(models)["package_states"] == ["a", "b"]
