"""What the benchmark of post-training quality makes of its rows."""

from __future__ import annotations

from typing import Any

import pytest
from places import ROOT


@pytest.fixture
def quality(monkeypatch: pytest.MonkeyPatch) -> Any:
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
        rows[name] = {"accuracy": value, "less": less}
    return {"contenders": rows, "least": 0.0, "convolutional": True, **more}


def int8(tflite: float, aeq: float, plain: float, ours: float) -> dict[str, float]:
    return {
        "float32": 0.9,
        "int8 of TFLiteConverter": tflite,
        "int8 of ai-edge-quantizer": aeq,
        "int8, none": plain,
        "int8, auto": ours,
    }


def test_the_loss_ratio_is_that_of_the_mean_losses(quality: Any) -> None:
    found = quality.summary(
        {"a": model(int8(0.86, 0.8, 0.87, 0.89)), "b": model(int8(0.88, 0.9, 0.88, 0.9))}
    )["int8"]
    assert found["mean_losses"]["int8 of TFLiteConverter"] == pytest.approx(0.03)
    assert found["mean_losses"]["int8, auto"] == pytest.approx(0.005)
    assert found["mean_loss_beside_tflite_converter"] == pytest.approx(0.167)
    assert found["mean_loss_is_a_third_or_less"]


def test_a_loss_of_more_than_a_third_is_not_enough(quality: Any) -> None:
    found = quality.summary({"a": model(int8(0.87, 0.8, 0.87, 0.885))})["int8"]
    assert found["mean_loss_beside_tflite_converter"] == pytest.approx(0.5)
    assert not found["mean_loss_is_a_third_or_less"]


def test_a_model_that_a_peer_cannot_convert_is_in_no_mean(quality: Any) -> None:
    failed = model(int8(0.5, 0.5, 0.5, 0.5))
    failed["contenders"]["int8 of TFLiteConverter"] = {"failed": "an operator"}
    found = quality.summary({"a": failed, "b": model(int8(0.88, 0.8, 0.88, 0.9))})["int8"]
    assert found["models_with_all"] == 1
    assert found["mean_losses"]["int8, auto"] == 0
    assert found["losses"]["a"]["int8, auto"] == pytest.approx(0.4)
    assert found["beside_better_peer"]["a"]["peer"] == "int8 of ai-edge-quantizer"


def test_samples_of_another_class_are_counted_where_accuracies_cancel(quality: Any) -> None:
    models = {name: model(int8(0.9, 0.9, 0.9, 0.9)) for name in ("a", "b", "words")}
    for name, agreement in (("a", 0.9), ("b", 0.98)):
        for row in models[name]["contenders"].values():
            row["agreement"] = agreement
    models["b"]["contenders"]["int8, auto"]["agreement"] = 1.0
    found = quality.summary(models)["int8"]["mean_share_of_other_classes"]
    assert found["int8 of TFLiteConverter"] == pytest.approx(0.06)
    assert found["int8, auto"] == pytest.approx(0.05)


def test_it_is_worse_than_a_peer_only_where_the_samples_can_tell(quality: Any) -> None:
    found = quality.summary(
        {"a": model(int8(0.85, 0.89, 0.9, 0.885)), "b": model(int8(0.9, 0.8, 0.9, 0.88))}
    )["int8"]["beside_better_peer"]
    assert found["a"]["peer"] == "int8 of ai-edge-quantizer"
    assert (found["a"]["is_lower"], found["a"]["is_worse"]) == (True, False)
    assert found["b"]["peer"] == "int8 of TFLiteConverter"
    assert (found["b"]["is_lower"], found["b"]["is_worse"]) == (True, True)


def test_the_accuracy_that_is_asked_is_reached_or_not(quality: Any) -> None:
    models = {
        name: model(int8(0.9, 0.9, 0.9, ours), least=0.895)
        for name, ours in (("a", 0.895), ("b", 0.894))
    }
    least = quality.summary(models)["int8"]["least"]
    assert {name: one["is_reached"] for name, one in least.items()} == {"a": True, "b": False}


def test_what_is_recovered_is_a_share_of_what_plain_rounding_loses(quality: Any) -> None:
    rows = {"float32": 0.9, "int8x4, none": 0.5, "int8x4, auto": 0.86}
    found = quality.summary({"a": model(rows), "no": model(rows, convolutional=False)})
    assert found["int4"]["int8x4"]["models"] == {
        "a": {"lost": 0.4, "left": 0.04, "recovered": pytest.approx(0.9)}
    }
    assert found["int4"]["int8x4"]["models_that_recover_enough"] == 1
    assert found["int4"]["weight-only-int4"]["models"] == {}


def test_nothing_is_recovered_where_nothing_is_lost(quality: Any) -> None:
    rows = {"float32": 0.9, "int8x4, none": 0.895, "int8x4, auto": 0.9}
    found = quality.summary({"a": model(rows)})["int4"]["int8x4"]
    assert found["models"]["a"]["recovered"] is None
    assert found["models_that_lose"] == 0
    assert found["mean_recovered"] is None
