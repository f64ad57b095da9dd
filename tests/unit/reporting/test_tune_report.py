"""A search as text."""

from __future__ import annotations

from typing import Any

import pytest

from edgeconv.reporting.pages import text_of
from edgeconv.types import (
    Confirmation,
    DataIdentity,
    LayerRule,
    Loss,
    NpuEstimate,
    Recipe,
    Tuning,
    TuningTrial,
)


def loss(drop: float, samples: int = 500) -> Loss:
    return Loss(
        value=0.9 - drop,
        drop=drop,
        samples=samples,
        variance=0.01,
        interval=(drop - 0.01, drop + 0.01),
        fixed=3,
        broken=round(3 + drop * samples),
    )


def trial(name: str, size: int, drop: float, **more: Any) -> TuningTrial:
    rules = (LayerRule(pattern="a[bold]", precision="int8"),) if "," in name else ()
    return TuningTrial(
        name=name,
        recipe=Recipe(name="int8x4", layers=rules),
        size_bytes=size,
        loss=loss(drop),
        chance=0.8,
        **more,
    )


def tuning(**changes: Any) -> Tuning:
    values: dict[str, Any] = {
        "key": "0",
        "model": "net.keras",
        "directory": "/out",
        "objective": "size",
        "max_drop": 0.005,
        "metric": "top1",
        "on_agreement": False,
        "runtime": "litert",
        "data": DataIdentity(source="d.npz", samples=1000, sha256="0", preprocessing="none"),
        "search": 500,
        "fresh": 500,
        "calibration": DataIdentity(source="c.npz", samples=300, sha256="0"),
        "float_size_bytes": 400_000,
        "float_loss": (loss(0.0), loss(0.0)),
        "trials": (
            trial("int8", 100_000, 0.001),
            trial("int8x4", 50_000, 0.02),
            trial("int8x4, 1 in int8", 60_000, 0.003),
            TuningTrial(name="dynamic", recipe=Recipe(name="dynamic"), error="no\nkernel"),
        ),
        "confirmations": (
            Confirmation(trial="int8x4, 1 in int8", loss=loss(0.008), is_met=False),
            Confirmation(trial="int8", loss=loss(0.002), is_met=True),
        ),
        "pareto": ("int8x4", "int8x4, 1 in int8", "int8"),
        "recommended": "int8",
        "artifact": "net.int8.tflite",
        "recipe_file": "net.recipe.toml",
        "seconds": 61.2,
    }
    return Tuning(**(values | changes))


def test_the_rows_are_by_cost_and_the_failed_one_is_last_with_its_reason():
    text = text_of(tuning())
    names = ("int8x4  ", "int8x4, 1 in int8  ", "int8  ", "dynamic  ")
    places = [text.index(f"\n{name}") for name in names]
    assert places == sorted(places)
    reason = text[places[-1] :].splitlines()[2]
    assert reason.strip() == "no"


def test_a_trial_that_verification_refused_has_its_loss_and_the_reason():
    refused = trial("int8x4", 50_000, 0.25, error="SNR 5.0 dB\nfar", refused=True)
    text = text_of(tuning(trials=(*tuning().trials, refused)))
    assert "5 trials, 3 of them converted and 1 refused" in text
    rows = text.splitlines()
    row = next(number for number, line in enumerate(rows) if "+0.2500" in line)
    assert rows[row].rstrip().endswith("refused")
    assert rows[row + 1].strip() == "SNR 5.0 dB"


def test_what_is_recommended_and_how_often_was_looked_is_said():
    text = text_of(tuning())
    assert "Recommended is int8: 100 kB, 25.0 % of float32; confirmation 2 of at most 3." in text
    assert "int8x4, 1 in int8 on 500 fresh samples: drop +0.0080" in text
    assert "over the budget of 0.005" in text
    assert "edgeconv convert net.keras --config /out/net.recipe.toml -o OUT" in text


def test_where_nothing_does_the_closest_and_what_it_lacks_are_said():
    failed = (Confirmation(trial="int8", loss=loss(0.008), is_met=False),)
    text = text_of(tuning(recommended="", closest="int8", confirmations=failed))
    assert "No trial is within the budget of 0.005." in text
    assert "The closest is int8: it loses +0.0080 on the 500 fresh samples, 0.0030 more" in text
    assert "Recommended" not in text


def test_what_is_as_fast_within_noise_and_larger_is_said_for_latency():
    def timed(name: str, size: int, latency_us: float) -> TuningTrial:
        ends = (latency_us / 1.2, latency_us * 1.2)
        return trial(name, size, 0.001, latency_us=latency_us, latency_interval_us=ends)

    trials = (timed("int8", 100, 10.5), timed("float32", 400, 10.0), timed("dynamic", 120, 30.0))
    text = text_of(tuning(objective="latency", trials=trials, confirmations=()))
    assert "equally fast within noise, but larger: float32\n" in text
    assert "10.5 µs [8.75, 12.6 µs]" in text
    assert "as fast" not in text_of(tuning())


def test_estimated_times_are_marked_and_the_chip_is_named():
    estimate = NpuEstimate(
        npu="ethos-u55-128",
        compiler="ethos-u-vela 5.2.0",
        system="Ethos_U55_High_End_Embedded",
        memory="Shared_Sram",
        latency_us=14.1,
    )
    trials = (trial("int8", 100, 0.001, npu=estimate),)
    text = text_of(tuning(objective="npu-latency", trials=trials, confirmations=()))
    assert "~14.1 µs" in text
    assert "estimates of ethos-u-vela 5.2.0, not measurements; ethos-u55-128: system " in text
    assert "estimates" not in text_of(tuning())


@pytest.mark.parametrize(
    ("stopped", "said"), [("time", "--time-limit-s"), ("trials", "--trials"), ("", "")]
)
def test_what_ended_the_search_is_said(stopped: str, said: str):
    text = text_of(tuning(stopped=stopped))
    assert said in text
    assert ("go on from here" in text or "goes on from here" in text) == bool(stopped)


def test_without_labels_it_is_the_agreement_that_is_kept():
    text = text_of(tuning(on_agreement=True, metric="agreement"))
    assert "a drop of the agreement with float32 ≤ 0.005" in text


@pytest.mark.parametrize("width", [40, 70, 100, 200])
def test_nothing_is_cut_at_any_width(width: int):
    text = text_of(tuning(), width=width)
    assert "int8x4, 1 in int8" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
