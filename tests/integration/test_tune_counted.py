"""What a search does once, however many trials it makes; counted, not timed."""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tune_models import samples, two_layers

import edgeconv
from edgeconv.conversion import session
from edgeconv.conversion.convert import convert
from edgeconv.data import parse_source
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.processes.tasks import PersistentChild
from edgeconv.system.processes.workers import Child
from edgeconv.system.store import notes
from edgeconv.types import Conversion, Execution, Tuning

RECIPES = ("int8x4", "int8", "weight-only-int8", "dynamic", "float16")


class Seen(NamedTuple):
    """Children started by label, files run to be verified, files hashed, and the lines told."""

    children: Counter[str]
    verified: Counter[str]
    hashed: Counter[str]
    told: list[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("counted")
    two_layers(directory / "net.tflite")
    for name, count in (("data.npz", 400), ("cal.npz", 60)):
        samples(directory / name, directory / "net.tflite", count, seed=count)
    # A file that has only just changed is hashed again each time.
    time.sleep(2 * notes.CLOCK_STEP_NS / 1e9)
    return directory


@pytest.fixture(scope="module")
def watched(place):
    """Runs something, and says what was seen of it."""

    def watch(run: Any) -> tuple[Any, Seen]:
        seen = Seen(Counter(), Counter(), Counter(), [])
        start, run_file, compute = Child.__init__, session.start_run, notes.sha256_file

        def starting(self: Child, *arguments: Any, label: str, **options: Any) -> None:
            seen.children[label] += 1
            start(self, *arguments, label=label, **options)

        def running(model: Path, *arguments: Any, **options: Any) -> Any:
            seen.verified[model.name] += 1
            return run_file(model, *arguments, **options)

        def hashing(path: Path) -> str:
            seen.hashed[path.name] += 1
            return compute(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
            patch.setattr(Child, "__init__", starting)
            patch.setattr(session, "start_run", running)
            patch.setattr(notes, "sha256_file", hashing)
            patch.setattr(notes, "_file_hashes", {})
            return run(seen.told.append), seen

    return watch


@pytest.fixture(scope="module")
def searched(place, watched) -> tuple[Tuning, Seen]:
    return watched(
        lambda told: edgeconv.tune(
            place / "net.tflite",
            f"{place / 'data.npz'}?labels=labels",
            max_drop=0.0,
            out=place / "tuned",
            to=RECIPES,
            calibration=parse_source(f"{place / 'cal.npz'}?x=x"),
            trials=12,
            time_limit_s=600,
            on_progress=told,
        )
    )


def test_a_search_of_many_trials_starts_one_child_to_quantize_and_calibrates_once(searched):
    tuning, seen = searched
    assert len(tuning.trials) >= 4
    assert seen.children["litert-quantizer"] == 1
    # Minima of each third of the samples; the moving average, which depends on their order, of each
    # two thirds; and the equalized graph. However many trials there are.
    assert sum(line.endswith("calibrating") for line in seen.told) <= 3 + 3 + 1


def test_it_runs_and_verifies_the_float32_model_once(searched):
    tuning, seen = searched
    assert sum("verifying float32" in line for line in seen.told) == 1
    assert seen.verified.pop("float.tflite") == 1
    assert seen.verified.total() == len(tuning.trials)


def test_it_reads_each_data_set_once(place, searched):
    _, seen = searched
    reading = {label: n for label, n in seen.children.items() if label.startswith("reading")}
    assert set(reading.values()) == {1}
    assert len(reading) == 2


def test_it_hashes_the_model_and_each_data_set_once(searched):
    _, seen = searched
    assert (seen.hashed["net.tflite"], seen.hashed["data.npz"], seen.hashed["cal.npz"]) == (1, 1, 1)


@pytest.mark.slow
def test_what_it_publishes_is_what_was_tried_and_what_convert_makes(place, watched, searched):
    tuning, _ = searched
    for trial in tuning.trials:
        if trial.error or trial.recipe.layers:
            continue
        request = ConvertRequest(
            model=str(place / "net.tflite"),
            directory=str(place / f"by-hand-{trial.name}"),
            to=(trial.recipe,),
            calibration={"": parse_source(f"{place / 'cal.npz'}?x=x")},
        )
        done, _ = watched(lambda told, asked=request: convert(asked, on_progress=told))
        assert done.artifacts[0].sha256 == trial.sha256, trial.name


def test_a_cold_conversion_hashes_the_model_and_reads_its_samples_once(place, watched):
    request = ConvertRequest(
        model=str(place / "net.tflite"),
        directory=str(place / "six"),
        to=make_recipes(["all"]),
        calibration={"": parse_source(f"{place / 'cal.npz'}?x=x")},
    )
    done: Conversion
    done, seen = watched(lambda told: convert(request, on_progress=told))
    assert len(done.artifacts) == 6
    assert (seen.hashed["net.tflite"], seen.hashed["cal.npz"]) == (1, 1)
    assert sum(n for label, n in seen.children.items() if label.startswith("reading")) == 1
    assert seen.children["litert-quantizer"] == 1
    assert seen.verified["float.tflite"] == 1


def test_a_crash_of_the_quantizer_costs_one_recipe_and_another_child_makes_the_rest(place, watched):
    starts: list[PersistentChild] = []
    start = PersistentChild.start

    def crashing(self: PersistentChild, *arguments: Any) -> Any:
        call = start(self, *arguments)
        if self.child.label == "litert-quantizer":
            starts.append(self)
            if len(starts) == 1:
                os.kill(self.child._process.pid, signal.SIGSEGV)
        return call

    request = ConvertRequest(
        model=str(place / "net.tflite"),
        directory=str(place / "crashed"),
        to=("float16", "dynamic", "int8"),
        calibration={"": parse_source(f"{place / 'cal.npz'}?x=x")},
        execution=Execution(use_cache=False),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PersistentChild, "start", crashing)
        done, seen = watched(lambda told: convert(request, on_progress=told))
    assert [(one.recipe, one.error) for one in done.failures] == [("float16", "WorkerCrashed")]
    assert [one.recipe.name for one in done.artifacts] == ["dynamic", "int8"]
    assert seen.children["litert-quantizer"] == 2
