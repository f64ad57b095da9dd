"""The target web in a real Chromium with LiteRT.js, and its types in a real TypeScript compiler."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import embed_updates as updates
import numpy as np
import pytest
from commands import captured
from embed_models import HOSTILE
from embed_web_models import fixed_float_model, three_inputs_model, uint8_model, web

from edgeconv.plugins.devices.web import litertjs
from edgeconv.types import Preprocessing
from edgeconv.types.errors import ToolFailed

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-extensions", "--no-default-browser-check", "--disable-dev-shm-usage"),
)
SIGNED = ("serving_default", ["x"], ["y"])
# The page to be tested is a frame of this one, which tells the server what became of it.
WATCH = """<!doctype html><meta charset="utf-8"><iframe id="frame" src="{page}"></iframe><script>
const look = async () => {{
  const page = document.getElementById("frame").contentDocument;
  const verdict = page?.documentElement?.dataset.verdict;
  if (!verdict) return setTimeout(look, 50);
  const said = {{ verdict, shown: page.getElementById("verdict").textContent, title: page.title,
    heading: page.querySelector("h1").textContent,
    report: JSON.parse(page.getElementById("report").textContent) }};
  await fetch("/said", {{ method: "POST", body: JSON.stringify(said) }});
}};
look();
</script>"""
# Runs code with the module, as an app does.
APP = """<!doctype html><meta charset="utf-8"><script type="importmap">{{"imports": {{
  "@litertjs/core": "/node_modules/@litertjs/core/dist/index.js",
  "@litertjs/wasm-utils": "/node_modules/@litertjs/wasm-utils/dist/index.js"
}}}}</script><script type="module">
let said;
try {{
  const it = await import("./gesture.js");
  said = await (async () => {{ {code} }})();
}} catch (error) {{ said = {{ error: String(error) }}; }}
await fetch("/said", {{ method: "POST", body: JSON.stringify(said) }});
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Serves a directory, and hears what the page says."""

    server: Server

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        kinds = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}
        return kinds.get(Path(path).suffix, "application/octet-stream")

    def do_POST(self) -> None:
        self.server.said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.has_said.set()

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    said: Any = None

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
        self.has_said = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that ends in the middle is no news."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A node_modules with LiteRT.js."""
    if BROWSER is None:
        pytest.skip("there is no chromium here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return installed()


def installed() -> Path:
    if not shutil.which("npm"):
        pytest.skip("there is no npm here, which LiteRT.js comes by")
    try:
        return litertjs(lambda _: None)
    except ToolFailed as error:
        pytest.skip(f"LiteRT.js cannot be installed here: {error}")


@pytest.fixture
def browse(packages, tmp_path) -> Iterator[Any]:
    """Opens a page of a directory in a browser of its own, and gives what it said."""

    def visit(directory: Path, name: str, content: str) -> Any:
        (directory / name).write_text(content, encoding="utf-8")
        if not (directory / "node_modules").exists():
            (directory / "node_modules").symlink_to(packages)
        server = Server(directory)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        address = f"http://127.0.0.1:{server.server_address[1]}/{name}"
        with (tmp_path / "log.txt").open("wb") as log:
            browser = subprocess.Popen(
                [str(BROWSER), *FLAGS, *sandbox, profile, address], stdout=log, stderr=log
            )
            try:
                assert server.has_said.wait(120), (tmp_path / "log.txt").read_text(errors="replace")
                return server.said
            finally:
                browser.terminate()
                browser.wait(120)
                server.shutdown()
                thread.join()
                server.server_close()

    return visit


def self_test(browse: Any, directory: Path, symbol: str = "gesture") -> Any:
    return browse(directory, "watch.html", WATCH.format(page=f"{symbol}_self_test.html"))


@pytest.mark.parametrize("make", ["uint8", "float", "three inputs", "no signature"])
def test_the_page_passes_its_self_test(tmp_path, browse, make):
    content = {
        "uint8": uint8_model,
        "float": lambda: fixed_float_model(signature=SIGNED),
        "three inputs": three_inputs_model,
        "no signature": fixed_float_model,
    }[make]()
    directory, _ = web(tmp_path, content, vectors=4)
    said = self_test(browse, directory)
    assert said["verdict"] == said["shown"] == said["report"]["verdict"] == "passed", said
    assert said["report"]["vectors"] == 4
    assert said["title"] == "tiny: self-test"


def test_hostile_names_change_nothing(tmp_path, browse):
    content = uint8_model(HOSTILE, "constructor")
    directory, _ = web(tmp_path, content, changes={"name": HOSTILE})
    said = self_test(browse, directory)
    assert said["verdict"] == "passed", said
    assert said["heading"] == HOSTILE


def test_a_model_that_was_exchanged_or_a_wrong_output_fails(tmp_path, browse):
    directory, _ = web(tmp_path, uint8_model())
    golden = bytearray((directory / "gesture_golden.bin").read_bytes())
    golden[16] = (golden[16] + 128) % 256
    (directory / "gesture_golden.bin").write_bytes(golden)
    said = self_test(browse, directory)
    assert said["verdict"] == "output-differs"
    assert "vector 0, output scores, element 0" in said["report"]["message"]
    model = bytearray((directory / "gesture.tflite").read_bytes())
    model[-1] ^= 1
    (directory / "gesture.tflite").write_bytes(model)
    assert self_test(browse, directory)["verdict"] == "model-changed"


def test_without_litert_js_the_page_says_so(tmp_path, browse):
    directory, _ = web(tmp_path, uint8_model(), option={"packages": "./nowhere/"})
    said = self_test(browse, directory)
    assert said["verdict"] == "run-failed"
    assert said["report"]["message"]


def test_an_app_gives_numbers_and_gets_numbers(tmp_path, browse):
    directory, _ = web(tmp_path, uint8_model(), changes={"preprocessing": {}})
    code = """
        const model = await it.load({ wasm: "/node_modules/@litertjs/core/wasm/" });
        const { scores } = await model.run({ image: [1, -2, 0.5, 10] });
        const again = await it.load();
        const same = await again.run({ image: it.inputs.image.quantize([1, -2, 0.5, 10]) });
        model.delete(); again.delete();
        return [[...scores], [...same.scores]];
    """
    said = browse(directory, "app.html", APP.format(code=code))
    assert said == [[2, -4, 1, 20], [2, -4, 1, 20]]


def test_a_model_that_came_later_runs_in_the_place_of_the_embedded_one(tmp_path, browse):
    directory, embedded = web(tmp_path, updates.model("uint8"))
    better = updates.model("uint8", weights=-updates.WEIGHTS)
    (directory / "better.tflite").write_bytes(better)
    code = """
      const wasm = "/node_modules/@litertjs/core/wasm/";
      const update = { interfaceId: "%s", sha256: "%s" };
      const model = await it.load({ wasm, url: "better.tflite", update });
      const levels = new Uint8Array([3, 3, 3, 5]);
      const said = [[...(await model.runRaw({ x: levels })).y]];
      model.delete();
      const file = new Uint8Array(await (await fetch("better.tflite")).arrayBuffer());
      said.push(await it.accepts(file, it.interfaceId, update.sha256));
      const wrong = [
        { url: "better.tflite" },
        { url: "better.tflite", update: { ...update, sha256: it.sha256 } },
        { model: file.subarray(0, 300), update },
        { model: file, update: { ...update, interfaceId: "0" } },
      ];
      for (const one of wrong) await it.load(one).catch((error) => said.push(error.message));
      return said;
    """
    code %= (embedded.interface_id, hashlib.sha256(better).hexdigest())
    said = browse(directory, "app.html", APP.format(code=code))
    last = updates.WEIGHTS[:, 3].astype(float)
    assert said == [
        list(np.rint((updates.BIASES - last) / 64) + 5),
        True,
        "better.tflite is not the model that this code was made for",
        "better.tflite is not the model that was announced",
        "the model is not the model that was announced",
        "the model has another interface than this code was made for",
    ]


@pytest.fixture(scope="module")
def tsc(tmp_path_factory) -> list[str]:
    """The TypeScript compiler, and beside it LiteRT.js and its types."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("there is no npm here, which TypeScript comes by")
    place = tmp_path_factory.mktemp("typescript")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", place]
    wanted = ["typescript@5.9.3", "@webgpu/types@0.1.66", "@litertjs/core@2.5.3"]
    done = captured([*command, *wanted])
    if done.returncode:
        pytest.skip(f"npm cannot install TypeScript here: {done.stderr[-300:]}")
    return ["node", str(place / "node_modules" / "typescript" / "bin" / "tsc")]


SETTINGS = """{"files": ["user.ts"], "compilerOptions": {
  "strict": true, "exactOptionalPropertyTypes": true, "skipLibCheck": false, "noEmit": true,
  "target": "es2022", "lib": ["es2022", "dom"], "types": ["@webgpu/types"],
  "module": "esnext", "moduleResolution": "bundler", "preserveSymlinks": true
}}"""
USER = """
import * as it from "gesture";
import {{ inputs, labels, load, outputs, type Outputs }} from "gesture";
import {{ selfTest }} from "gesture/self-test";
const shape: readonly [1, 2, 2, 1] = inputs.{image}.shape;
const levels: Uint8Array = inputs.{image}.quantize([1, 2, 3, 4]);
const ready: Float32Array = inputs.{image}.normalize(levels);
const names: readonly string[] = labels;
const model = await load({{ wasm: "wasm/", compile: {{ accelerator: "webgpu" }} }});
const numbers: Outputs = await model.run({{ {image}: levels }});
const floats: Float32Array = numbers.scores;
const raw: Uint8Array = (await model.runRaw({{ {image}: levels }})).scores;
const said: boolean = await it.accepts(levels, it.interfaceId, "00");
const update = await load({{ model: levels, update: {{ interfaceId: "0", sha256: "00" }} }});
update.delete();
const verdict: "passed" | "model-changed" | "run-failed" | "output-differs" =
  (await selfTest()).verdict;
console.log(said, shape, ready, names, floats, raw, verdict, outputs.scores.zeroPoint);
{wrong}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "name"),
    [("image", "image"), ("inPutXYScriptE", HOSTILE)],
)
def test_the_types_are_those_of_the_module(tmp_path, tsc, image, name):
    changes = {"preprocessing": {"": Preprocessing(scale=0.5)}}
    directory, _ = web(tmp_path, uint8_model(name), changes=changes)
    modules = Path(tsc[1]).parents[2]
    (tmp_path / "node_modules" / "@litertjs").mkdir(parents=True)
    (tmp_path / "node_modules" / "gesture").symlink_to(directory)
    (tmp_path / "node_modules" / "@webgpu").symlink_to(modules / "@webgpu")
    for one in ("core", "wasm-utils"):
        (tmp_path / "node_modules" / "@litertjs" / one).symlink_to(modules / "@litertjs" / one)
    (tmp_path / "tsconfig.json").write_text(SETTINGS)
    (tmp_path / "user.ts").write_text(USER.format(image=image, wrong=""))
    right = captured(tsc, cwd=tmp_path)
    assert right.returncode == 0, right.stdout
    mistakes = ["inputs.nothing;", "outputs.scores.normalize([1]);", "await model.run({});"]
    wrong = USER.format(image=image, wrong="\n".join(mistakes))
    (tmp_path / "user.ts").write_text(wrong)
    refused = captured(tsc, cwd=tmp_path)
    assert refused.stdout.count("user.ts(") == len(mistakes), refused.stdout
