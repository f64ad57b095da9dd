"""`edgeconv tune` on trained models: is its budget kept on fresh samples, how small, how soon?

    python -m benchmarks.tune DATA [--models point_history,...] [--work DIRECTORY]

DATA and the models are those of `benchmarks.quality`; trained models that are kept in `--work` are
used again. Each model is tuned by its test samples, of which one half searches and the other, which
nothing of the search sees, confirms; 500 training samples calibrate. Beside it stands every
uniform recipe, made with the methods that are chosen on calibration samples, and judged by
the same two halves: the best of them is the smallest that is within the budget on both.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.quality_models import TrainedModel, run
from edgeconv import convert, tune
from edgeconv.data import parse_source
from edgeconv.measure.model_files import find_model_files, float_inputs
from edgeconv.plugins.scale.tune_samples import open_samples
from edgeconv.plugins.scale.tune_search import uniform_recipes
from edgeconv.plugins.scale.tune_trials import Evaluator, name_of, open_evaluators
from edgeconv.quantize.equalization.equalize import has_pairs
from edgeconv.requests.texts import parse_metric
from edgeconv.requests.tune import TuneRequest
from edgeconv.types import Execution, Loss, Measuring, Tuning

BUDGET = 0.005
MOST_S = 600.0
SIX = (
    *("point_history", "mnist_cnn", "spoken_digits"),
    *("cifar_mobilenet", "flowers_mobilenet", "bert_mlm"),
)


def main() -> None:
    run("tune", __doc__.splitlines()[0], measure, summary, SIX)


def measure(model: TrainedModel, scratch: Path) -> dict[str, Any]:
    """One search, with nothing in the cache, and every uniform recipe beside it."""
    os.environ["EDGECONV_CACHE_DIR"] = str(scratch / "cache")
    load = [os.getloadavg()[0]]
    request = TuneRequest(
        model=str(model.file),
        data=parse_source(str(model.test)),
        max_drop=BUDGET,
        directory=str(scratch / "tuned"),
        calibration=parse_source(str(model.calibration)),
        metric=None if model.metric == "top1" else parse_metric(model.metric),
    )
    print(f"{model.name}: tune", flush=True)
    started_s = time.perf_counter()
    tuning = tune(request)
    wall_s = time.perf_counter() - started_s
    load.append(os.getloadavg()[0])
    rows = uniform_rows(model, request, scratch)
    able = [row["bytes"] for row in rows.values() if row.get("within")]
    return {
        "load_average": [round(value, 1) for value in load],
        "wall_s": round(wall_s, 1),
        "search_samples": tuning.search,
        "fresh_samples": tuning.fresh,
        "float_bytes": tuning.float_size_bytes,
        "float": [round(one.value, 5) for one in tuning.float_loss],
        **_tuned(tuning),
        "uniform": rows,
        "best_uniform_bytes": min(able, default=None),
    }


def _tuned(tuning: Tuning) -> dict[str, Any]:
    found: dict[str, Any] = {
        "met": tuning.ok,
        "recommended": tuning.recommended,
        "trials": len(tuning.trials),
        "stopped": tuning.stopped,
        "confirmations": [
            {"trial": one.trial, "within": one.is_met, **_loss("fresh", one.loss)}
            for one in tuning.confirmations
        ],
    }
    if tuning.ok:
        found["bytes"] = tuning.trial(tuning.recommended).size_bytes
    return found


def uniform_rows(
    model: TrainedModel, request: TuneRequest, scratch: Path
) -> dict[str, dict[str, Any]]:
    """Every uniform recipe, its size, and its drop on both halves."""
    place = scratch / "uniform"
    convert(model.file, out=place, to=["float32"])
    (floating,) = find_model_files([place], None)
    inputs = float_inputs(floating.signature)
    metrics = (request.metric,) if request.metric else ()
    measuring = Measuring(runtimes=(request.runtime,), metrics=metrics)
    rows: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        samples = stack.enter_context(open_samples(request, inputs, scratch / "none.npz"))
        halves = {"search": samples.search, "fresh": samples.fresh}
        evaluators = stack.enter_context(
            open_evaluators(
                halves,
                floating.file,
                floating.signature.key,
                samples.batch,
                measuring,
                Execution(),
                place,
            )
        )
        equalizes = has_pairs(floating.file.read_bytes())
        for recipe in uniform_recipes(request, samples.calibration.count, equalizes=equalizes):
            name = name_of(recipe)
            print(f"{model.name}: {name}", flush=True)
            made = convert(
                floating.file, out=place, to=[recipe], calibration=str(model.calibration)
            )
            if made.failures:
                rows[name] = {"failed": made.failures[0].message}
                continue
            rows[name] = _row(place / made.artifacts[0].file, evaluators)
    return rows


def _row(file: Path, evaluators: Mapping[str, Evaluator]) -> dict[str, Any]:
    losses = {name: evaluator.loss(file) for name, evaluator in evaluators.items()}
    found: dict[str, Any] = {"bytes": file.stat().st_size}
    for name, loss in losses.items():
        found |= _loss(name, loss)
    found["within"] = all(loss.drop <= BUDGET for loss in losses.values())
    return found


def _loss(name: str, loss: Loss) -> dict[str, Any]:
    interval = None if loss.interval is None else [round(bound, 5) for bound in loss.interval]
    return {
        f"{name}_drop": round(loss.drop, 5),
        f"{name}_interval": interval,
        f"{name}_flips": [loss.fixed, loss.broken],
    }


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Whether each of what is asked holds for every model."""
    return {
        "budget": BUDGET,
        "models": len(models),
        "all_met_on_fresh_samples": all(one["met"] for one in models.values()),
        "slowest_s": max(one["wall_s"] for one in models.values()),
        "all_in_time": all(one["wall_s"] <= MOST_S for one in models.values()),
        "none_larger_than_the_best_uniform": all(map(_is_no_larger, models.values())),
    }


def _is_no_larger(one: Mapping[str, Any]) -> bool:
    best = one["best_uniform_bytes"]
    return best is None or (one["met"] and one["bytes"] <= best)


if __name__ == "__main__":
    main()
