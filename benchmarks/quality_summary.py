"""What the rows of `benchmarks.quality` come to: losses, their ratio, and what is recovered."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Rows = Mapping[str, Mapping[str, Any]]

FLOAT = "float32"
BOTH_PEERS = ("int8 of TFLiteConverter", "int8 of ai-edge-quantizer")
PLAIN, OURS = "int8, none", "int8, auto"
FOUR_BIT = ("weight-only-int4", "int8x4")
# What is asked: the mean loss of int8 beside TFLiteConverter's, and of what 4 bits lose.
LARGEST_LOSS_RATIO = 1 / 3
LEAST_RECOVERED = 0.8


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The int8 and the 4-bit results of all models, by what is asked of them."""
    rows = {name: model["contenders"] for name, model in models.items()}
    least = {name: model["least"] for name, model in models.items() if model["least"]}
    convolutional = [name for name, model in models.items() if model["convolutional"]]
    return {
        "int8": int8_summary(rows, least),
        "int4": {
            recipe: int4_summary({name: rows[name] for name in convolutional}, recipe)
            for recipe in FOUR_BIT
        },
    }


def int8_summary(models: Mapping[str, Rows], least: Mapping[str, float]) -> dict[str, Any]:
    """The loss of each contender, fractions of the samples, and edgeconv beside both peers."""
    contenders = (*BOTH_PEERS, PLAIN, OURS)
    losses = {
        name: {one: loss(rows, one) for one in contenders if "accuracy" in rows.get(one, {})}
        for name, rows in models.items()
    }
    # A mean over other models would be another one's.
    whole = [one for one in losses.values() if len(one) == len(contenders)]
    means = {one: statistics.fmean(row[one] for row in whole) for one in contenders if whole}
    lost, of = means.get(OURS, 0.0), means.get(BOTH_PEERS[0], 0.0)
    return {
        "losses": losses,
        "models_with_all": len(whole),
        "mean_losses": {one: round(value, 5) for one, value in means.items()},
        "mean_loss_beside_tflite_converter": round(lost / of, 3) if of > 0 else None,
        "mean_loss_is_a_third_or_less": bool(whole) and lost <= LARGEST_LOSS_RATIO * of,
        "mean_share_of_other_classes": other_classes(models.values(), contenders),
        "beside_better_peer": {
            name: found for name, rows in models.items() if (found := beside_better_peer(rows))
        },
        "least": {name: reached(models[name], wanted) for name, wanted in least.items()},
    }


def other_classes(models: Iterable[Rows], contenders: Sequence[str]) -> dict[str, float]:
    """Which share of the samples is given another class than by float, the mean of the models.

    It shows what losses hide, where as many samples change for the better as for the worse.
    Only of models that have classes and all the contenders.
    """
    whole = [
        rows
        for rows in models
        if all(rows.get(one, {}).get("agreement") is not None for one in contenders)
    ]
    return {
        one: round(statistics.fmean(1 - rows[one]["agreement"] for rows in whole), 5)
        for one in contenders
        if whole
    }


def reached(rows: Rows, wanted: float) -> dict[str, Any]:
    """Whether edgeconv's int8 has the accuracy that is asked of it."""
    accuracy = rows.get(OURS, {}).get("accuracy")
    return {"asked": wanted, "is_reached": accuracy is not None and accuracy >= wanted}


def beside_better_peer(rows: Rows) -> dict[str, Any]:
    """edgeconv's int8 less the better peer's, paired by sample; empty where one is missing.

    `is_worse`: the whole interval is below 0.
    """
    peers = [name for name in BOTH_PEERS if "accuracy" in rows.get(name, {})]
    if not peers or "accuracy" not in rows.get(OURS, {}):
        return {}
    better = max(peers, key=lambda name: rows[name]["accuracy"])
    found = rows[OURS]["less"][better]
    return {
        "peer": better,
        **found,
        "is_lower": found["difference"] < 0,
        "is_worse": found["interval"][1] < 0,
    }


def int4_summary(models: Mapping[str, Rows], recipe: str) -> dict[str, Any]:
    """What plain rounding to 4 bits loses in each model, and which part of it is recovered.

    None is recovered where plain rounding loses nothing that the samples can tell from 0.
    """
    found = {
        name: recovery(rows, f"{recipe}, none", f"{recipe}, auto")
        for name, rows in models.items()
        if all("accuracy" in rows.get(f"{recipe}, {how}", {}) for how in ("none", "auto"))
    }
    shares = [one["recovered"] for one in found.values() if one["recovered"] is not None]
    return {
        "models": found,
        "mean_recovered": round(statistics.fmean(shares), 4) if shares else None,
        "models_that_recover_enough": sum(share >= LEAST_RECOVERED for share in shares),
        "models_that_lose": len(shares),
    }


def recovery(rows: Rows, plain: str, ours: str) -> dict[str, Any]:
    """The losses of both, and the share of the first that the second does not have."""
    lost, left = loss(rows, plain), loss(rows, ours)
    is_lost = rows[plain]["less"][FLOAT]["interval"][1] < 0
    return {
        "lost": lost,
        "left": left,
        "recovered": round(1 - left / lost, 4) if is_lost else None,
    }


def loss(rows: Rows, name: str) -> float:
    """The accuracy of float less that of a contender, a fraction of the samples."""
    return round(0.0 - float(rows[name]["less"][FLOAT]["difference"]), 5)
