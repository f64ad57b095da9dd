"""The runtime tfserving against both interfaces, answered by TensorFlow; see serving_server.py."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import numpy as np
import pytest
from places import SUPPORT

from edgeconv import convert
from edgeconv.plugins.devices.serving_pb2 import TensorProto
from edgeconv.plugins.devices.tfserving import array_of, open_runtime, parse_served_model, tensor_of
from edgeconv.reporting.files import read_report
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.types import Allowance, RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

PATIENCE_S = 180.0
MODEL = Model(file=Path("saved_model"), batch=2)
SAMPLES = {
    "x": np.array([[1, 2, 3], [3, -1, -9], [0.5, 0.25, np.inf], [1, 1, 1]], np.float32),
    "shift": np.array([1, 2, 4, 8], np.int32),
}
TIMING = Timing(warmup=2, warmup_seconds=0.1, repeats=5, seconds=5.0)


class Server(NamedTuple):
    process: subprocess.Popen[str]
    directory: Path
    places: dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    pytest.importorskip(
        "tensorflow_serving", reason="there is no tensorflow-serving-api, which has the real stubs"
    )
    directory = tmp_path_factory.mktemp("serving")
    script = SUPPORT / "serving_server.py"
    with (directory / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(script), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    ports, deadline = directory / "ports.json", time.monotonic() + PATIENCE_S
    while not ports.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ports.exists(), (directory / "log.txt").read_text()[-3000:]
    said = json.loads(ports.read_text())
    places = {
        "rest": f"http://127.0.0.1:{said['rest']}/v1/models/two",
        "grpc": f"grpc://127.0.0.1:{said['grpc']}/two",
    }
    yield Server(process, directory, places)
    process.communicate(timeout=120)


def opened(place: str, tmp_path: Path, timeout_s: float = 30.0):
    settings = RuntimeSettings(scratch=tmp_path, allowance=Allowance(timeout_s=timeout_s))
    return open_runtime(RuntimeChoice(name="tfserving", location=place), settings)


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_a_served_model_gives_its_outputs_and_is_timed(server, tmp_path, kind):
    with opened(server.places[kind], tmp_path) as runtime:
        session = runtime.start(MODEL)
        given = session.run(SAMPLES)
        session.close()
        timed = runtime.time(MODEL, SAMPLES, TIMING)
    x, shift = SAMPLES["x"], SAMPLES["shift"]
    with np.errstate(invalid="ignore"):
        exponents = np.exp(x - x.max(axis=1, keepdims=True))
    scores = exponents / exponents.sum(axis=1, keepdims=True) / shift[:, None]
    np.testing.assert_allclose(given["scores"][[0, 1, 3]], scores[[0, 1, 3]], rtol=1e-5)
    assert np.isnan(given["scores"][2]).any()
    np.testing.assert_array_equal(given["rank"], np.argsort(x, axis=1) + shift[:, None])
    np.testing.assert_array_equal(given["large"], [True, False, True, True])
    assert {name: str(value.dtype) for name, value in given.items()} == {
        "scores": "float32",
        "rank": "int32",
        "large": "bool",
    }
    assert runtime.environment.tools == {"served model": "two, version 3"}
    assert runtime.environment.host == f"tfserving:{server.places[kind]}"
    assert len(timed.samples_us) == 5
    assert min(*timed.samples_us, timed.first_us, timed.load_us) > 50
    assert timed.warmup >= 2


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_another_signature_with_a_single_output_is_called(server, tmp_path, kind):
    model = Model(file=Path("saved_model"), signature="twice", batch=4)
    with opened(server.places[kind], tmp_path) as runtime:
        session = runtime.start(model)
        given = session.run({"x": SAMPLES["x"]})
        session.close()
    assert list(given) == ["y"]
    np.testing.assert_array_equal(given["y"], 2 * SAMPLES["x"])


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_a_call_that_the_server_does_not_take_says_what_the_server_says(server, tmp_path, kind):
    with opened(server.places[kind], tmp_path) as runtime:
        session = runtime.start(MODEL)
        with pytest.raises(ToolFailed, match=r"refused the samples: .*inputs") as raised:
            session.run({"y": SAMPLES["x"]})
        session.close()
    assert "the same signature" in raised.value.hint


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("rest", "none", "404 Servable not found"),
        ("rest", "ending", "does not serve the model: 7 END"),
        ("rest", "two/versions/9", "404 Servable not found"),
        ("grpc", "none", "Could not find any versions"),
    ],
)
def test_a_model_that_is_not_served_is_refused(server, tmp_path, kind, name, message):
    place = server.places[kind].removesuffix("two") + name
    with pytest.raises(ToolFailed, match=message) as raised, opened(place, tmp_path):
        pass
    assert "--model_name" in raised.value.hint


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_a_port_where_nothing_listens_is_refused(server, tmp_path, kind):
    place = re.sub(r":\d+", ":1", server.places[kind])
    with pytest.raises(ToolFailed, match="no TensorFlow Serving answers at") as raised:
        opened(place, tmp_path, timeout_s=5).__enter__()
    assert "tensorflow_model_server" in raised.value.hint


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_the_other_interface_is_not_taken_for_the_one_asked_for(server, tmp_path, kind):
    ports = {name: re.search(r":(\d+)/", place)[1] for name, place in server.places.items()}
    other = ports["grpc" if kind == "rest" else "rest"]
    place = server.places[kind].replace(ports[kind], other)
    with pytest.raises(ToolFailed, match="no TensorFlow Serving answers at"):
        opened(place, tmp_path, timeout_s=5).__enter__()


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_):
        pass


def test_another_web_server_is_not_taken_for_tensorflow_serving(tmp_path):
    web = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=web.serve_forever)
    thread.start()
    place = f"http://127.0.0.1:{web.server_address[1]}/v1/models/two"
    with pytest.raises(ToolFailed, match="is not a TensorFlow Serving: its answer is not JSON"):
        opened(place, tmp_path).__enter__()
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize(
    "place", ["", "127.0.0.1:8500", "http://host:8501/two", "grpc://host", "grpc://host/two/three"]
)
def test_an_address_that_is_none_is_refused(tmp_path, place):
    with pytest.raises(UsageError, match="address"):
        opened(place, tmp_path).__enter__()


def test_an_address_goes_to_text_and_back():
    for text in (
        "http://host:8501/v1/models/two",
        "https://host/behind/a/proxy/v1/models/two/versions/12",
        "grpc://host:8500/two",
        "grpc://host:8500/two/12",
    ):
        assert str(parse_served_model(text)) == text


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    ],
)
def test_an_array_goes_into_a_message_and_back(dtype):
    array = np.array([[0, 1, 3], [2, 5, 7]]).astype(dtype)
    back = array_of(tensor_of(array, "input 'x'"), "x")
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_values_that_a_message_leaves_out_are_as_the_last_one():
    tensor = TensorProto(dtype=1, float_val=[1.5, 2.5])
    tensor.tensor_shape.dim.add(size=4)
    np.testing.assert_array_equal(array_of(tensor, "x"), [1.5, 2.5, 2.5, 2.5])
    empty = TensorProto(dtype=9)
    np.testing.assert_array_equal(array_of(empty, "x"), 0)


def test_strings_are_neither_sent_nor_taken():
    with pytest.raises(InputRefused, match="input 'x' has the type <U1"):
        tensor_of(np.array(["a"]), "input 'x'")
    with pytest.raises(ToolFailed, match="output 'y' is of TensorFlow's type 7"):
        array_of(TensorProto(dtype=7), "output 'y'")


@pytest.fixture(scope="module")
def converted(server, tmp_path_factory) -> Path:
    """What was converted from the signature "twice" of the served model, and samples for it."""
    place = tmp_path_factory.mktemp("converted")
    rng = np.random.default_rng(4)
    np.savez(place / "samples.npz", x=rng.normal(size=(70, 3)).astype(np.float32))
    convert(server.directory / "model" / "3", out=place / "out", to=["float32"], signature="twice")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_bench_measures_the_served_baseline_beside_the_files(server, converted, cli, kind):
    done = cli(
        *("bench", converted / "out", "--data", converted / "samples.npz", "-o", "report"),
        *("--runtime", f"tfserving:{server.places[kind]}", "--rounds", 2, "--repeats", 5, "-q"),
    )
    assert done.returncode == 0, done.stderr
    report = read_report(Path(done.stdout.split("report: ")[1].splitlines()[0]))
    served, (own,) = report.baseline, report.measurements
    assert (served.runtime, served.error, own.error) == ("tfserving two/3", "", "")
    assert own.runtime.startswith("ai_edge_litert")
    # A call goes through a socket; the file runs in a process.
    assert served.latency.p50_us > own.latency.p50_us
    assert [len(samples) for samples in served.latency.rounds_us] == [5, 5]
    assert len(served.batched_us) > 0
    (agreement,) = own.agreement
    assert (agreement.output, agreement.reference) == ("y", "baseline")
    assert agreement.max_error == 0.0


def test_bench_without_the_server_says_where_it_looked(converted, cli):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"http://127.0.0.1:{free.getsockname()[1]}/v1/models/two"
        done = cli("bench", converted / "out", "--runtime", f"tfserving:{place}", "-q")
    assert done.returncode == 4, done.stderr
    assert place.partition("/v1")[0] in done.stderr
