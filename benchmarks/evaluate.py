"""How quickly `bench` gets the outputs of models, and in how much memory.

    python -m benchmarks.evaluate [--repeats 3] [--samples 6000] [--many 50000]

MobileNetV2-224 in four formats, over images stored as uint8 (1,000, again and again). In every
round, in turn: the bare invoke of each format with one thread; a plain Python loop over the images
for one format after the other, as one would write it by hand, which scales each image and runs it;
and edgeconv's evaluation of all four in one pass with all cores, its processes started and all
images hashed, scaled and checked within. The same for float32 alone, where nobody shares the cost
of the images; and for float32 alone where they are stored as float32, four times as large and
nothing to be done to them. Then `many` images of 96 x 96 are streamed from a .npy file through a
small model, and the memory of this process and of all its children is watched.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.measuring import write_result
from edgeconv import bench, data
from edgeconv.data.evaluation import EvaluationSet
from edgeconv.data.source import LocalDataSet
from edgeconv.measure.machine import LoadMonitor
from edgeconv.measure.model_files import find_model_files
from edgeconv.measure.models import BenchRun, MeasuredModel, evaluate
from edgeconv.runtimes.choice import open_runtime, parse_choice
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.local import usable_cores
from edgeconv.types import Execution, Measuring, Timing

PEERS = Path(__file__).parent / "peers"
_FORMATS = "float32,float16,dynamic,int8"
# Rounds in which other processes used more of the processors are left out, and made good.
_QUIET = 0.03
_MOST_ROUNDS = 4
_LOOK_S = 5.0
_PATIENCE_S = 900.0
_INVOKES = 200
_IMAGES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--many", type=int, default=50_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        files = made(scratch)
        pixels, floats = stored(scratch)
        result = {
            "model": "MobileNetV2-224, tf_keras.applications, random weights",
            "formats": list(files),
            "usable_cores": usable_cores(),
            "samples": options.samples,
            "repeats": options.repeats,
            "all_formats": compared(list(files.values()), pixels, options, scratch),
            "float32_alone": compared([files["float32"]], pixels, options, scratch),
            "float32_alone_of_float32_samples": compared(
                [files["float32"]], floats, options, scratch
            ),
            "memory": streamed(options.many, scratch),
        }
    print(write_result("evaluate", result).read_text(encoding="utf-8"))


def made(scratch: Path) -> dict[str, Path]:
    """MobileNetV2 as .tflite files, by recipe."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    script = [sys.executable, str(PEERS / "make_mobilenet.py"), str(scratch), "8"]
    subprocess.run(script, check=True, env=environment)
    convert = [sys.executable, "-m", "edgeconv", "convert", str(scratch / "mobilenet_v2")]
    convert += ["-o", str(scratch / "out"), "--to", _FORMATS, "-q"]
    convert += ["--calibration", str(scratch / "samples.npz")]
    subprocess.run(convert, check=True, env=environment)
    found = {path.stem.rpartition(".")[2]: path for path in (scratch / "out").glob("*.tflite")}
    return dict(sorted(found.items()))


def compared(
    files: list[Path], images: Images, options: argparse.Namespace, scratch: Path
) -> dict[str, Any]:
    """Milliseconds a sample for all models, by each way, and how they are beside each other."""
    cores = usable_cores()
    ms: dict[str, list[float]] = {"invokes_alone": [], "loop": [], "edgeconv": []}
    busy: list[float] = []
    for number in range(_MOST_ROUNDS * options.repeats):
        if len(busy) == options.repeats:
            break
        wait_for_quiet()
        watch = LoadMonitor()
        with watch:
            alone = sum(invoke_ms(file) for file in files)
            loop = sum(loop_ms(file, images) for file in files)
            ours = evaluation_ms(files, images, options.samples, scratch)
        others = watch.conditions.busy or 0.0
        print(
            f"round {number + 1}: {alone:.2f} {loop:.2f} {ours:.2f} ms, others {others:.1%}",
            flush=True,
        )
        if others <= _QUIET:
            busy.append(others)
            for way, taken in zip(ms, (alone, loop, ours), strict=True):
                ms[way].append(taken)
    if not busy:
        raise SystemExit("the machine was never quiet enough to measure on")
    ideal = [one / cores for one in ms["invokes_alone"]]
    return {
        "rate_beside_cores_times_the_invoke_rate": _ratios(ideal, ms["edgeconv"]),
        "times_faster_than_a_loop": _ratios(ms["loop"], ms["edgeconv"]),
        "used_by_other_processes": [round(one, 3) for one in busy],
        "ms_per_sample": {way: [round(one, 3) for one in each] for way, each in ms.items()},
    }


def wait_for_quiet() -> None:
    """Until other processes leave the machine alone for some seconds, or for `_PATIENCE_S`."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        watch = LoadMonitor()
        with watch:
            time.sleep(_LOOK_S)
        if (watch.conditions.busy or 0.0) <= _QUIET:
            return


def _ratios(theirs: list[float], ours: list[float]) -> dict[str, Any]:
    each = [a / b for a, b in zip(theirs, ours, strict=True)]
    return {"median": round(statistics.median(each), 3), "rounds": [round(r, 3) for r in each]}


def _interpreter(file: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(file), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def invoke_ms(file: Path) -> float:
    interpreter = _interpreter(file)
    image = np.random.default_rng(1).uniform(-1, 1, (1, 224, 224, 3)).astype(np.float32)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    for _ in range(20):
        interpreter.invoke()
    started = time.perf_counter()
    for _ in range(_INVOKES):
        interpreter.invoke()
    return (time.perf_counter() - started) / _INVOKES * 1e3


class Images(NamedTuple):
    """Stored images, and what is done to them before the model gets them."""

    file: Path
    preprocess: str
    by_hand: Callable[[Any], Any]


def stored(scratch: Path) -> tuple[Images, Images]:
    """The same images as they come from a decoder, and as float32, scaled beforehand."""
    pixels = np.random.default_rng(0).integers(0, 256, (_IMAGES, 224, 224, 3), np.uint8)
    np.save(scratch / "pixels.npy", pixels)
    np.savez(scratch / "scaled.npz", input_1=scaled(pixels))
    return (
        Images(scratch / "pixels.npy", "scale=1/127.5&mean=1", scaled),
        Images(scratch / "scaled.npz", "none", lambda image: image),
    )


def scaled(pixels: Any) -> Any:
    return pixels * np.float32(1 / 127.5) - np.float32(1)


def loop_ms(file: Path, images: Images) -> float:
    interpreter = _interpreter(file)
    taken = interpreter.get_input_details()[0]["index"]
    given = interpreter.get_output_details()[0]["index"]
    outputs = []
    (array,) = read(images)
    started = time.perf_counter()
    for image in array:
        interpreter.set_tensor(taken, images.by_hand(image)[None])
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(given))
    return (time.perf_counter() - started) / len(array) * 1e3


def read(images: Images) -> list[Any]:
    found = np.load(images.file)
    return [found] if isinstance(found, np.ndarray) else list(found.values())


class Again(EvaluationSet):
    """So many samples of the same few: 6,000 of these would need 4 GB as float32."""

    def __init__(self, source: LocalDataSet, count: int) -> None:
        super().__init__(source, None, 1)
        self.indices = np.arange(count) % source.count


def evaluation_ms(files: list[Path], images: Images, count: int, scratch: Path) -> float:
    inputs = find_model_files(files[:1], None)[0].signature.inputs
    steps = data.parse_preprocessing(images.preprocess)
    execution = Execution(threads=usable_cores())
    with (
        data.opened_samples(
            data.parse_source(str(images.file)), inputs, preprocessing=steps
        ) as source,
        open_runtime(parse_choice("litert"), RuntimeSettings(scratch=scratch)) as runtime,
    ):
        run = BenchRun(Again(source, count), Measuring(), execution, scratch, lambda _: None)
        models = [MeasuredModel(file.stem, Model(file=file), runtime) for file in files]
        started = time.perf_counter()
        evaluate(run, models)
        seconds = time.perf_counter() - started
    for measured in models:
        if measured.error:
            raise measured.error
    return seconds / count * 1e3


def streamed(count: int, scratch: Path) -> dict[str, Any]:
    """The peak memory of a whole `bench` on `count` images of 96 x 96."""
    place = scratch / "many.npy"
    images = np.lib.format.open_memmap(place, "w+", np.uint8, (count, 96, 96, 3))
    rng = np.random.default_rng(1)
    for start in range(0, count, 1000):
        stop = min(start + 1000, count)
        images[start:stop] = rng.integers(0, 256, (stop - start, 96, 96, 3), np.uint8)
    del images
    labels = scratch / "labels.npy"
    np.save(labels, rng.integers(0, 8, count))
    model = scratch / "small.tflite"
    model.write_bytes(small_model())
    watch = Watcher()
    with watch:
        started = time.perf_counter()
        bench(
            [model],
            data=f"npy:{place}?labels={labels}",
            preprocess="scale=1/255",
            measuring=Measuring(rounds=1, timing=Timing(repeats=10)),
            execution=Execution(threads=usable_cores()),
        )
        seconds = time.perf_counter() - started
    return {
        "images": count,
        "image_bytes_as_the_model_takes_them": count * 96 * 96 * 3 * 4,
        "seconds": round(seconds, 1),
        "peak_rss_mib_of_this_process": round(watch.own / 2**20, 1),
        "of_which_before": round(watch.before / 2**20, 1),
        "peak_pss_mib_of_all_processes": round(watch.all / 2**20, 1),
    }


def small_model() -> bytes:
    """Mean of the pixels of 96 x 96 images, and a dense layer: almost nothing to compute."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from tiny_tflite import Graph, packed

    graph = Graph()
    x = graph.tensor("x", (1, 96, 96, 3), "float32")
    axes = graph.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    mean = graph.tensor("mean", (1, 3), "float32")
    weights = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    w = graph.tensor("w", (8, 3), "float32", data=weights)
    y = graph.tensor("y", (1, 8), "float32")
    graph.operator("MEAN", [x, axes], [mean])
    graph.operator("FULLY_CONNECTED", [mean, w, -1], [y])
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


class Watcher:
    """The peak memory of this process, and of it with all its children, in bytes."""

    def __init__(self) -> None:
        self.own = self.all = 0
        self.before = psutil.Process().memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._done.wait(0.05):
            self.own = max(self.own, here.memory_info().rss)
            total = 0
            for one in (here, *here.children(recursive=True)):
                try:
                    total += one.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self.all = max(self.all, total)


if __name__ == "__main__":
    main()
