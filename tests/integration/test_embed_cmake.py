"""Programs that CMake builds with the package edgeconv ships, by Make and by Ninja."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from embed_models import SIGNED, float_tiny, published
from places import ROOT
from tiny_tflite import Graph, float_model, packed

from edgeconv import embed
from edgeconv.types.errors import InputRefused

GENERATORS = {"Ninja": "ninja", "Unix Makefiles": "make"}
PACKAGE = ROOT / "edgeconv" / "cmake"
STRICT = "-Wall -Wextra -Werror -pedantic"

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")

LISTS = """
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES {languages})
enable_testing()
find_package(edgeconv REQUIRED)
edgeconv_add_model(net {model} SELF_TEST)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE net_litert)
"""
PROGRAM = """
#include "net_litert.hpp"
#include <cstdio>
int main() {
    net_litert runtime;
    const float x[] = {1, 2, 3, 4};
    float y[3] = {0, 0, 0};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    if (!runtime.run(inputs, outputs)) {
        std::printf("%s\\n", runtime.error().c_str());
        return 1;
    }
    std::printf("%g %g %g\\n", y[0], y[1], y[2]);
    return runtime.self_test().verdict;
}
"""


class Project:
    """A project that uses edgeconv, and how it is built."""

    def __init__(self, place: Path, generator: str) -> None:
        self.source, self.build_directory = place / "my app", place / "build"
        self.generator = generator
        self.source.mkdir()
        self.environment = {**os.environ, "EDGECONV_CACHE_DIR": str(place / "cache")}

    def write(self, model: str, languages: str = "C CXX") -> None:
        lists = LISTS.format(model=model, languages=languages)
        (self.source / "CMakeLists.txt").write_text(lists)
        (self.source / "app.cpp").write_text(PROGRAM)

    def configure(self) -> subprocess.CompletedProcess[str]:
        return self._run(
            *("cmake", "-S", self.source, "-B", self.build_directory, "-G", self.generator),
            f"-Dedgeconv_DIR={PACKAGE}",
            f"-DEDGECONV_COMMAND={sys.executable};-m;edgeconv",
            *(f"-DCMAKE_CXX_FLAGS={STRICT}", f"-DCMAKE_C_FLAGS={STRICT}"),
        )

    def build(self) -> list[str]:
        """The steps that were done: what they say in brackets, which only those have."""
        done = self._run("cmake", "--build", self.build_directory)
        assert done.returncode == 0, done.stdout + done.stderr
        words = ("edgeconv:", "Building", "Linking")
        return [line for line in done.stdout.splitlines() if any(word in line for word in words)]

    def test(self) -> str:
        done = self._run("ctest", "--test-dir", self.build_directory, "--output-on-failure")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def app(self) -> str:
        done = self._run(self.build_directory / "app")
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _run(self, *command: object) -> subprocess.CompletedProcess[str]:
        return captured([str(part) for part in command], env=self.environment)


def calibration(place: Path, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-4, 4, (32, 4)).astype(np.float32)
    np.savez(place / "cal.npz", x=values)


# The tutorial of firmware takes the makefiles in each run.
@pytest.mark.parametrize(
    "generator", ["Ninja", pytest.param("Unix Makefiles", marks=pytest.mark.slow)]
)
def test_a_model_is_converted_built_run_and_built_again_only_when_something_changed(
    tmp_path, generator
):
    if not shutil.which(GENERATORS[generator]):
        pytest.skip(f"needs {GENERATORS[generator]}")
    project = Project(tmp_path, generator)
    (project.source / "net.tflite").write_bytes(packed(float_model(signature=SIGNED)))
    calibration(project.source, 1)
    project.write("MODEL net.tflite TO int8 CALIBRATION cal.npz DATA cal.npz")
    configured = project.configure()
    assert configured.returncode == 0, configured.stderr
    first = project.build()
    assert sum("edgeconv:" in line for line in first) == 1
    assert "100% tests passed, 0 tests failed out of 1" in project.test()
    numbers = [float(number) for number in project.app().split()]
    np.testing.assert_allclose(numbers, [49, -30, 166], atol=8)

    assert project.build() == []
    os.utime(project.source / "cal.npz")
    again = project.build()
    assert sum("edgeconv:" in line for line in again) == 1
    # The same samples give the same model, and so no program changes.
    assert not any("Building" in line or "Linking" in line for line in again)
    assert project.build() == []

    calibration(project.source, 2)
    other = project.build()
    assert sum("edgeconv:" in line for line in other) == 1
    assert any("net_model.c" in line for line in other)
    assert project.build() == []
    project.test()


def test_a_ready_artifact_is_embedded_without_being_converted(tmp_path):
    project = Project(tmp_path, "Unix Makefiles")
    float_tiny(project.source / "models")
    (project.source / "labels.txt").write_text("a\nb\nc\n")
    project.write(
        "ARTIFACT models/tiny.float32.tflite LABELS labels.txt VECTORS 3 OPTIONS bytes=file",
        languages="CXX",
    )
    assert project.configure().returncode == 0
    project.build()
    project.test()
    assert [float(number) for number in project.app().split()] == [49, -30, 166]
    assert project.build() == []
    header = project.build_directory / "net.edgeconv" / "code" / "net.h"
    assert "NET_LABEL_COUNT 3" in header.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("MODEL a.tflite", "MODEL without TO"),
        ("", "give MODEL and TO, or ARTIFACT"),
        ("MODEL a.tflite TO int8 ARTIFACT b.tflite", "give MODEL and TO, or ARTIFACT"),
        ("MODEL a.tflite TOO int8", "unknown: TOO;int8"),
        ("MODEL a.tflite TO", "without a value: TO"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_by_cmake(tmp_path, arguments, said):
    project = Project(tmp_path, "Unix Makefiles")
    project.write(arguments)
    configured = project.configure()
    assert configured.returncode != 0
    assert said in " ".join(configured.stderr.split())


def test_without_the_program_edgeconv_the_package_says_so(tmp_path):
    project = Project(tmp_path, "Unix Makefiles")
    project.write("MODEL a.tflite TO int8")
    project.environment["PATH"] = "/usr/bin:/bin"
    configured = project._run(
        *("cmake", "-S", project.source, "-B", project.build_directory),
        f"-Dedgeconv_DIR={PACKAGE}",
        # Some other prefix may have one.
        "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
    )
    assert configured.returncode != 0
    said = " ".join(configured.stderr.split())
    assert "the program edgeconv is not on the PATH; set EDGECONV_EXECUTABLE to it" in said


def test_a_refused_model_stops_the_build_with_its_reason(tmp_path):
    project = Project(tmp_path, "Unix Makefiles")
    file = float_tiny(project.source / "models")
    file.write_bytes(file.read_bytes() + b"?")
    project.write("ARTIFACT models/tiny.float32.tflite")
    assert project.configure().returncode == 0
    done = project._run("cmake", "--build", project.build_directory)
    assert done.returncode != 0
    assert "its content changed" in done.stderr
    assert "edgeconv convert" in done.stderr


def several_outputs(directory: Path) -> Path:
    """Two inputs with an open batch and two outputs, in the signature the other way round."""
    graph = Graph()
    a = graph.tensor("a", (1, 2), "float32", dynamic=True)
    b = graph.tensor("b", (1, 3), "float32", dynamic=True)
    one = graph.tensor("one", (1, 2), "float32", dynamic=True)
    two = graph.tensor("two", (1, 3), "float32", dynamic=True)
    graph.operator("RELU", [a], [one])
    graph.operator("NEG", [b], [two])
    model = graph.model([b, a], [two, one], signature=("serve", ["second", "first"], ["n", "r"]))
    signature = model.signatureDefs[0]
    signature.inputs = signature.inputs[::-1]
    signature.outputs = signature.outputs[::-1]
    return published(directory, packed(model), recipe="float32")


def test_a_project_of_its_own_passes_with_several_open_inputs_and_outputs(tmp_path):
    out = tmp_path / "out"
    embed(several_outputs(tmp_path / "m"), "cmake", out, symbol="net", option={"bytes": "file"})
    from edgeconv.runtimes.c_api import library_path

    project = Project(tmp_path, "Unix Makefiles")
    configured = project._run(
        *("cmake", "-S", out, "-B", project.build_directory, f"-DLITERT_LIBRARY={library_path()}"),
        *(f"-DCMAKE_CXX_FLAGS={STRICT}", f"-DCMAKE_C_FLAGS={STRICT}"),
    )
    assert configured.returncode == 0, configured.stderr
    project.build()
    assert "100% tests passed" in project.test()
    program = project.build_directory / "net_self_test"
    passed = project._run(program)
    assert passed.stdout.startswith("tiny: passed: the outputs are those of LiteRT\n  2 vectors;")
    other = project._run(program, float_tiny(tmp_path / "other"))
    assert other.returncode == 1
    assert "the model is not the one that this code was made for" in other.stdout
    assert "is not the announced model, or has another interface" in other.stdout
    assert project._run(program, out / "net.tflite").returncode == 0
    # Touching the file that the assembler reads builds again.
    assert project.build() == []
    os.utime(out / "net.tflite")
    assert any("net_model.c" in line for line in project.build())


def test_a_model_that_litert_cannot_load_from_c_is_refused(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 2), "float32")
    y = graph.tensor("y", (1, 2), "float32")
    state = graph.tensor("state", (1, 2), "float32")
    graph.tensors[state].isVariable = True
    graph.operator("RELU", [x], [y])
    model = graph.model([x], [y], signature=("serve", ["x"], ["y"]))
    file = published(tmp_path / "m", packed(model), recipe="float32")
    with pytest.raises(InputRefused, match="has variable tensors"):
        embed(file, "cmake", tmp_path / "out")
    embed(file, "c", tmp_path / "out")


def test_what_is_installed_is_found_and_linked_by_another_project(tmp_path):
    out, prefix = tmp_path / "model", tmp_path / "prefix"
    embed(float_tiny(tmp_path / "m"), "cmake", out, symbol="net", option={"namespace": "acme"})
    project = Project(tmp_path, "Ninja" if shutil.which("ninja") else "Unix Makefiles")
    made = project._run("cmake", "-S", out, "-B", tmp_path / "made", "-G", project.generator)
    assert made.returncode == 0, made.stderr
    for command in ("--build", "--install"):
        extra = ["--prefix", prefix] if command == "--install" else []
        done = project._run("cmake", command, tmp_path / "made", *extra)
        assert done.returncode == 0, done.stdout + done.stderr
    # What was built and embedded is gone: the installed files are all there is.
    shutil.rmtree(out)
    shutil.rmtree(tmp_path / "made")
    (project.source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\n"
        "find_package(net CONFIG REQUIRED)\n"
        "add_executable(app app.c)\ntarget_link_libraries(app PRIVATE acme::net)\n"
        "add_executable(tested tested.c)\n"
        "target_link_libraries(tested PRIVATE acme::net_self_test_lib)\n"
    )
    (project.source / "app.c").write_text(
        '#include "net.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%d\\n", net_model[4]); return 0; }\n'
    )
    (project.source / "tested.c").write_text(
        '#include "net_self_test.h"\n'
        "int main(int count, char **a) { (void)a; return net_golden[count]; }\n"
    )
    place = f"-DCMAKE_PREFIX_PATH={prefix}"
    configured = project._run(
        *("cmake", "-S", project.source, "-B", project.build_directory, "-G", project.generator),
        place,
    )
    assert configured.returncode == 0, configured.stderr
    project.build()
    assert project.app() == f"{ord('T')}\n"
    # The golden vectors are in no program but the one that asked for them.
    symbols = {
        name: project._run("nm", project.build_directory / name).stdout
        for name in ("app", "tested")
    }
    assert "net_golden" not in symbols["app"]
    assert "net_golden" in symbols["tested"]


def test_a_part_of_another_project_installs_nothing_and_has_its_alias(tmp_path):
    project = Project(tmp_path, "Unix Makefiles")
    for symbol in ("one", "two"):
        embed(float_tiny(tmp_path / "m"), "cmake", project.source / symbol, symbol=symbol)
    (project.source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C CXX)\n"
        "add_subdirectory(one)\nadd_subdirectory(two)\nadd_executable(app app.c)\n"
        "target_link_libraries(app PRIVATE one::one two::two)\n"
    )
    (project.source / "app.c").write_text(
        '#include "one.h"\n#include "two.h"\n'
        "int main(void) { return one_model[0] != two_model[0]; }\n"
    )
    configured = project._run("cmake", "-S", project.source, "-B", project.build_directory)
    assert configured.returncode == 0, configured.stderr
    project.build()
    project.app()
    prefix = tmp_path / "prefix"
    installed = project._run("cmake", "--install", project.build_directory, "--prefix", prefix)
    assert installed.returncode == 0, installed.stderr
    assert not list(prefix.rglob("*.*"))


UPDATE = (
    PROGRAM.replace("main()", "main(int, char **arguments)")
    .replace("runtime;", "runtime(arguments[1], arguments[2], arguments[3]);")
    .replace("runtime.self_test().verdict", "0")
)


def test_a_model_that_came_later_runs_in_litert_as_it_was_announced(tmp_path):
    from edgeconv.runtimes.c_api import library_path

    project = Project(tmp_path, "Unix Makefiles")
    artifact = float_tiny(tmp_path / "m")
    known = embed(artifact, "cmake", project.source / "net", symbol="net").interface_id
    (project.source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C CXX)\n"
        "add_subdirectory(net)\nadd_executable(app app.cpp)\n"
        "target_link_libraries(app PRIVATE net::net_litert)\n"
    )
    (project.source / "app.cpp").write_text(UPDATE)
    configured = project._run(
        *("cmake", "-S", project.source, "-B", project.build_directory),
        *(f"-DLITERT_LIBRARY={library_path()}", f"-DCMAKE_CXX_FLAGS={STRICT}"),
    )
    assert configured.returncode == 0, configured.stderr
    project.build()

    def ran(content: bytes, interface_id: str, sha256: str = "") -> tuple[int, str]:
        (tmp_path / "update.tflite").write_bytes(content)
        announced = (interface_id, sha256 or hashlib.sha256(content).hexdigest())
        done = project._run(project.build_directory / "app", tmp_path / "update.tflite", *announced)
        return done.returncode, done.stdout.strip()

    better = float_model(signature=SIGNED)
    weights = better.buffers[better.subgraphs[0].tensors[1].buffer]
    weights.data = (np.frombuffer(bytes(weights.data), np.float32) * 2).view(np.uint8)
    refused = (1, "the file is not the announced model, or has another interface")
    assert ran(artifact.read_bytes(), known) == (0, "49 -30 166")
    assert ran(packed(better), known) == (0, "88 -40 302")
    assert ran(packed(better), "0") == refused
    assert ran(packed(better)[:-1], known, hashlib.sha256(packed(better)).hexdigest()) == refused
    gone = project._run(project.build_directory / "app", tmp_path / "nowhere", known, "")
    assert gone.stdout.strip() == f"{tmp_path / 'nowhere'} cannot be read"
