"""What the rows of `benchmarks.quality` come to, by what is required of the defaults."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rows = Mapping[str, Row]

FLOAT = "float32"
BOTH_PEERS = ("int8 of TFLiteConverter", "int8 of litert-quantizer")
RECIPES = ("int8", "weight-only-int4", "int8x4")
FOUR_BIT = RECIPES[1:]
# Plain quantization, and what is published without any option.
MODES = ("none", "default")
PLAIN, DEFAULT = "int8, none", "int8, default"
INT8 = (*BOTH_PEERS, PLAIN, DEFAULT)
LEAST_MEAN_AGREEMENT = 0.98
MAX_INT4_LOSS = 0.01
# Of the default over plain quantization: where the plain file is close enough, and where not.
MAX_COST_CLOSE, MAX_COST_SEARCHED = 1.1, 2.5


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The int8 and the 4-bit results of all models, and their costs, by what is required."""
    rows = {name: model["contenders"] for name, model in models.items()}
    least = {name: model["least"] for name, model in models.items() if model["least"]}
    convolutional = {name: rows[name] for name in models if models[name]["convolutional"]}
    return {
        "package_states": sorted({model["package"] for model in models.values()}),
        "int8": int8_summary(rows, least),
        "int4": {recipe: int4_summary(convolutional, recipe) for recipe in FOUR_BIT},
        "cost": {recipe: cost_summary(rows, recipe) for recipe in RECIPES},
    }


def int8_summary(models: Mapping[str, Rows], least: Mapping[str, float]) -> dict[str, Any]:
    """The loss of each file, fractions of the samples, and the default's compared with the peers'.

    `worse_than_better_peer` names the models of which the default's int8 is less accurate beyond
    the paired interval, or is not published although a peer makes a file.
    """
    # A mean over other models would be another one.
    complete = [rows for rows in models.values() if all(is_measured(rows, name) for name in INT8)]
    compared = {name: with_better_peer(rows) for name, rows in models.items()}
    agreement = mean_agreement(models.values(), (DEFAULT,)).get(DEFAULT, 0.0)
    return {
        "losses": {
            model: {name: loss(rows, name) for name in INT8 if is_measured(rows, name)}
            for model, rows in models.items()
        },
        "models_with_all": len(complete),
        "mean_losses": {
            name: round(statistics.fmean(loss(rows, name) for rows in complete), 5)
            for name in INT8
            if complete
        },
        "mean_agreement": mean_agreement(models.values(), INT8),
        "mean_agreement_of_default": agreement,
        "mean_agreement_is_enough": agreement >= LEAST_MEAN_AGREEMENT,
        "with_better_peer": {name: found for name, found in compared.items() if found},
        "worse_than_better_peer": [name for name in models if compared[name].get("is_worse")],
        "least": {
            name: {
                "required": required,
                "is_reached": models[name].get(DEFAULT, {}).get("accuracy", 0.0) >= required,
            }
            for name, required in least.items()
        },
    }


def is_measured(rows: Rows, name: str) -> bool:
    """Whether there is a file of that name, and so its accuracy."""
    return "accuracy" in rows.get(name, {})


def mean_agreement(models: Iterable[Rows], names: Sequence[str]) -> dict[str, float]:
    """The mean share of samples that are given the class that float gives them.

    It shows what losses hide, where as many samples change for the better as for the worse.
    Only of models that have classes and all of the files.
    """
    complete = [
        rows
        for rows in models
        if all(rows.get(name, {}).get("agreement") is not None for name in names)
    ]
    return {
        name: round(statistics.fmean(rows[name]["agreement"] for rows in complete), 5)
        for name in names
        if complete
    }


def with_better_peer(rows: Rows) -> dict[str, Any]:
    """The default's int8 less the better peer's, paired by sample; empty without a peer's file.

    `is_worse`: the whole interval is below 0, or there is no file to compare.
    """
    peers = [name for name in BOTH_PEERS if is_measured(rows, name)]
    if not peers:
        return {}
    better = max(peers, key=lambda name: float(rows[name]["accuracy"]))
    if not is_measured(rows, DEFAULT):
        failed = rows.get(DEFAULT, {}).get("failed", "")
        return {"peer": better, "failed": failed, "is_lower": True, "is_worse": True}
    less = rows[DEFAULT]["less"][better]
    return {
        "peer": better,
        **less,
        "is_lower": less["difference"] < 0,
        "is_worse": less["interval"][1] < 0,
    }


def int4_summary(models: Mapping[str, Rows], recipe: str) -> dict[str, Any]:
    """What plain rounding to 4 bits loses in each model, and what the default still loses.

    `beyond_a_point` names the models of which the default loses more than a point, or is not
    published. A share is recovered only where plain rounding loses what the samples can tell
    from 0.
    """
    plain, default = (f"{recipe}, {mode}" for mode in MODES)
    found = {
        name: recovery(rows, plain, default)
        for name, rows in models.items()
        if is_measured(rows, plain) and is_measured(rows, default)
    }
    shares = [model["recovered"] for model in found.values() if model["recovered"] is not None]
    return {
        "models": found,
        "beyond_a_point": [
            name
            for name, rows in models.items()
            if not is_measured(rows, default) or loss(rows, default) > MAX_INT4_LOSS
        ],
        "mean_recovered": round(statistics.fmean(shares), 4) if shares else None,
        "models_that_lose": len(shares),
    }


def recovery(rows: Rows, plain: str, default: str) -> dict[str, Any]:
    """The losses of both, and the share of the first that the second does not have."""
    lost, left = loss(rows, plain), loss(rows, default)
    is_lost = rows[plain]["less"][FLOAT]["interval"][1] < 0
    return {"lost": lost, "left": left, "recovered": round(1 - left / lost, 4) if is_lost else None}


def loss(rows: Rows, name: str) -> float:
    """The accuracy of float less that of a file, a fraction of the samples."""
    return round(0.0 - float(rows[name]["less"][FLOAT]["difference"]), 5)


def cost_summary(models: Mapping[str, Rows], recipe: str) -> dict[str, Any]:
    """How many times the CPU seconds of plain quantization the default takes.

    `beyond` names the models in which that is more than allowed: less is, where the plain file was
    close enough, and so the only trial.
    """
    plain, default = (f"{recipe}, {mode}" for mode in MODES)
    both = {
        name: (rows[plain], rows[default])
        for name, rows in models.items()
        if is_measured(rows, plain) and is_measured(rows, default)
    }
    times = {
        name: round(after["cpu_s"] / before["cpu_s"], 2) for name, (before, after) in both.items()
    }
    allowed = {
        name: MAX_COST_SEARCHED if after["trials"] > 1 else MAX_COST_CLOSE
        for name, (_, after) in both.items()
    }
    return {
        "times_cpu": times,
        "median": round(statistics.median(times.values()), 2) if times else None,
        "highest": max(times.values(), default=None),
        "beyond": [name for name in times if times[name] > allowed[name]],
    }
