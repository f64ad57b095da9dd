"""`bench` and `tune` on a cluster of Ray: the answers of this machine, also after a kill."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import psutil
import pytest
from sweeps import write_models

import edgeconv
from edgeconv.processes.cluster import RayCluster
from edgeconv.runtimes import crew
from edgeconv.runtimes.clustered import ClusteredRuntime
from edgeconv.runtimes.crew import Crew, Crews
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.local import LocalRuntime, RuntimePython
from edgeconv.types import Measuring, Report, RuntimeChoice, Timing, Tuning, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.runtimes.cluster_worker import OpeningChoice

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")

LITERT = RuntimeChoice(name="litert")
MICRO = RuntimeChoice(name="tflite-micro")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_models(tmp_path, "a", "b")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def comparable(report: Report) -> bytes:
    """A report without what names where it was measured."""
    return msgspec.json.encode(msgspec.structs.replace(report, command=(), conditions=None))


def test_the_report_of_a_cluster_is_that_of_this_machine(folder: Path) -> None:
    files = ["nets/a.tflite", "nets/b.tflite"]
    data = "test.npz?labels=y"
    # Two runtimes, whose workers must not hold the cores against one another.
    untimed = Measuring(is_timed=False, runtimes=(LITERT, MICRO))
    here = edgeconv.bench(files, data=data, measuring=untimed)
    there = edgeconv.bench(files, data=data, measuring=untimed, on="ray")
    assert comparable(there) == comparable(here)
    assert [row.error for row in there.measurements] == [""] * 4
    assert all(row.accuracy is not None for row in there.measurements)
    assert ("--on", "ray") in zip(there.command, there.command[1:], strict=False)


def test_times_are_those_of_a_whole_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, int]] = []

    class Watched(Crew):
        def ask(self, name: str, opening: OpeningChoice, ask: Callable[[Any], Any]) -> Any:
            import ray

            free = ray.available_resources().get("CPU", 0.0)
            seen.append((free, len([each for each in workers() if each.is_running()])))
            return super().ask(name, opening, ask)

    monkeypatch.setattr(crew, "Crew", Watched)
    quick = Measuring(rounds=2, timing=Timing(warmup=1, warmup_seconds=0.0, repeats=5))
    files = ["nets/a.tflite", "nets/b.tflite"]
    report = edgeconv.bench(files, data="test.npz?labels=y", measuring=quick, on="ray")
    assert [len(row.latency.rounds_us) for row in report.measurements if row.latency] == [2, 2]
    assert all(row.accuracy is not None and row.peak_memory_bytes for row in report.measurements)
    assert [note for note in report.notes if "a node of the cluster that had nothing else" in note]
    # Each of the four timings had all cores and was the only worker.
    assert seen[:4] == [(0.0, 1)] * 4


def test_a_search_for_speed_times_on_a_whole_node(folder: Path) -> None:
    tuning = edgeconv.tune(
        "nets/a.tflite",
        data="test.npz?labels=y",
        max_drop=0.5,
        objective="latency",
        recipes=("float32", "int8"),
        trials=2,
        directory="fast",
        on="ray",
    )
    assert tuning.ok
    assert all(trial.latency_us for trial in tuning.trials if not trial.error)


def test_a_search_on_a_cluster_has_the_trials_of_this_machine(folder: Path) -> None:
    def search(out: str, **where: str) -> Tuning:
        return edgeconv.tune(
            "nets/a.tflite",
            data="test.npz?labels=y",
            max_drop=0.05,
            recipes=("weight-only-int8", "int8"),
            directory=out,
            **where,
        )

    here, there = search("here"), search("there", on="ray")
    assert here.ok
    assert untimed(there) == untimed(here)
    assert there.confirmations == here.confirmations
    assert (there.recommended, there.key) == (here.recommended, here.key)
    for name in sorted(path.name for path in (folder / "here").glob("*.tflite")):
        assert (folder / "there" / name).read_bytes() == (folder / "here" / name).read_bytes()


def untimed(tuning: Tuning) -> list[TuningTrial]:
    return [msgspec.structs.replace(trial, seconds=0.0) for trial in tuning.trials]


def workers() -> list[psutil.Process]:
    """The actors that this test's cluster started, but for those that have ended in between."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ray::ClusterWorker" in " ".join(each.cmdline()[:1]):
                found.append(each)
    return found


def test_a_killed_worker_costs_the_part_that_it_ran(folder: Path) -> None:
    model = Model(file=folder / "nets" / "a.tflite", batch=1)
    x = np.random.default_rng(1).normal(size=(20_000, 4)).astype(np.float32)
    settings = RuntimeSettings(scratch=folder)
    session = LocalRuntime(RuntimePython(), settings).start(model)
    expected = session.run({"x": x})
    session.close()
    with RayCluster("local", 2) as cluster, Crews(cluster) as crews:
        there = ClusteredRuntime(crews, LITERT, settings, is_timed=False).start(model)
        before = {each.pid for each in workers()}
        killed: list[int] = []

        def kill() -> None:
            time.sleep(0.3)
            for each in workers():
                each.kill()
                killed.append(each.pid)

        killer = threading.Thread(target=kill)
        killer.start()
        until = time.monotonic() + 30
        while (killer.is_alive() or not killed) and time.monotonic() < until:
            answers = there.run({"x": x})
            assert {n: a.tobytes() for n, a in answers.items()} == {
                n: a.tobytes() for n, a in expected.items()
            }
        killer.join()
        last = there.run({"x": x})
        after = {each.pid for each in workers()}
    assert killed
    assert before <= set(killed)
    assert after
    assert not after & set(killed)
    assert all(last[name].tobytes() == expected[name].tobytes() for name in expected)
