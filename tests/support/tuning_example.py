"""Searches that ended in each way, fixed to the last digit."""

from typing import Any

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


def _timed(name: str, size: int, latency_us: float) -> TuningTrial:
    ends = (latency_us / 1.2, latency_us * 1.2)
    return trial(name, size, 0.001, latency_us=latency_us, latency_interval_us=ends)


_ESTIMATE = NpuEstimate(
    npu="ethos-u55-128",
    compiler="ethos-u-vela 5.2.0",
    system="Ethos_U55_High_End_Embedded",
    memory="Shared_Sram",
    latency_us=14.1,
)
_REFUSED = trial("int8x4", 50_000, 0.25, error="SNR 5.0 dB\nfar", refused=True)
_TIMED = (_timed("int8", 100, 10.5), _timed("float32", 400, 10.0), _timed("dynamic", 120, 30.0))
_NOT_MET = (Confirmation(trial="int8", loss=loss(0.008), is_met=False),)
EXAMPLES = {
    "met": tuning(),
    "refused": tuning(trials=(*tuning().trials, _REFUSED), stopped="trials"),
    "not_met": tuning(recommended="", closest="int8", confirmations=_NOT_MET, stopped="time"),
    "latency": tuning(objective="latency", trials=_TIMED, confirmations=()),
    "npu": tuning(
        objective="npu-latency",
        trials=(trial("int8", 100, 0.001, npu=_ESTIMATE),),
        confirmations=(),
    ),
    "agreement": tuning(on_agreement=True, metric="agreement"),
}
