"""The target bazel, built and run by a Bazel, and read by the formatter of Bazel's own project.

What Debian has is Bazel 4, which knows no MODULE.bazel: it is told by a WORKSPACE where the
modules are, and rules_cc is five lines that hand on the rules which Bazel 4 has itself.
"""

import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import captured
from embed_models import HOSTILE, int8_tiny, large_tiny

from edgeconv import embed

NATIVE_CC = ("cc_library", "cc_import", "cc_binary", "cc_test", "cc_toolchain")
NATIVE_JAVA = (
    *("java_binary", "java_import", "java_library", "java_package_configuration", "java_plugin"),
    *("java_runtime", "java_test", "java_toolchain"),
)
# What Bazel 4 would fetch from the internet, and does not need for C.
WORKSPACE = """workspace(name = "app")
local_repository(name = "gesture", path = "../gesture")
local_repository(name = "rules_cc", path = "../rules_cc")
local_repository(name = "rules_java", path = "../rules_java")
local_repository(name = "remote_coverage_tools", path = "../coverage")
"""
APP = """load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_import")

cc_import(name = "litert", shared_library = "libLiteRt.so", visibility = ["//visibility:public"])
cc_binary(name = "app", srcs = ["app.c"], deps = ["@gesture", "//models/big"])
"""
MAIN = """#include <stdio.h>
#include "big.h"
#include "gesture.h"
int main(void) {
    printf("%zu %zu %.4s %.4s\\n", gesture_model_size, big_model_size,
           (const char *)gesture_model + 4, (const char *)big_model + 4);
    return 0;
}
"""
BOTH = ("@gesture//:gesture_self_test", "//models/big:big_self_test")
LITERT = ("--@gesture//:litert=//:litert", "--//models/big:litert=//:litert")


class Project:
    """An app with two models: one a repository of its own, one a package of the app."""

    def __init__(self, root: Path) -> None:
        self.app, self.gesture, self.big = root / "app", root / "gesture", root / "app/models/big"
        self.scratch = root / "bazel"
        for name in ("rules_cc/cc", "rules_java/java", "coverage", "app"):
            (root / name).mkdir(parents=True)
            (root / name / "BUILD").touch()
            (root / name.partition("/")[0] / "WORKSPACE").touch()
        for name, rules in (("rules_cc/cc", NATIVE_CC), ("rules_java/java", NATIVE_JAVA)):
            lines = [f"{rule} = native.{rule}\n" for rule in rules]
            (root / name / "defs.bzl").write_text("".join(lines))
        suite = "cc_toolchain_suite = native.cc_toolchain_suite\n"
        with (root / "rules_cc/cc/defs.bzl").open("a") as file:
            file.write(suite)
        generator = 'filegroup(name = "coverage_report_generator", visibility = ["{}"])'
        (root / "coverage/BUILD").write_text(generator.format("//visibility:public"))
        (self.app / "WORKSPACE").write_text(WORKSPACE)
        (self.app / "BUILD").write_text(APP)
        (self.app / "app.c").write_text(MAIN)
        shutil.copy(litert_library(), self.app)
        self.models = root / "published"

    def embed(self, *, vectors: int = 2) -> None:
        """Both models, as they were published."""
        small = int8_tiny(self.models / "small", name=HOSTILE)
        embed(small, "bazel", self.gesture, symbol="gesture", vectors=vectors)
        (self.gesture / "WORKSPACE").touch()
        large = large_tiny(self.models / "large", 2_000_000)
        options = {"module": "no"}
        embed(large, "bazel", self.big, symbol="big", vectors=vectors, option=options)

    def bazel(self, *arguments: object, outputs: str = "one") -> subprocess.CompletedProcess[str]:
        start = ["bazel", f"--output_user_root={self.scratch / outputs}", "--max_idle_secs=120"]
        return captured([*start, *map(str, arguments)], cwd=self.app)


def litert_library() -> Path:
    found = importlib.util.find_spec("ai_edge_litert")
    assert found.origin is not None
    return Path(found.origin).with_name("libLiteRt.so")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Iterator[Project]:
    bazel = shutil.which("bazel")
    if bazel is None:
        pytest.skip("there is no bazel on PATH; Debian's bazel-bootstrap has one")
    version = captured([bazel, "--version"])
    if not version.stdout.startswith(("bazel no_version", "bazel 4.")):
        pytest.skip(f"this test is written for Debian's Bazel 4, not for {version.stdout.strip()}")
    project = Project(tmp_path_factory.mktemp("bazel"))
    project.embed()
    yield project
    for outputs in ("one", "two"):
        project.bazel("shutdown", outputs=outputs)


# Later Bazels do so unasked.
CHECKING = "--experimental_run_validations"


@pytest.mark.slow
def test_an_app_is_built_with_both_models_and_their_self_tests_pass(project):
    built = project.bazel("build", CHECKING, "//:app", "@gesture//...", "//models/...")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(
        [project.app / "bazel-bin/app"], capture_output=True, text=True, check=True
    )
    sizes = [
        (d / f).stat().st_size
        for d, f in ((project.gesture, "gesture.tflite"), (project.big, "big.tflite"))
    ]
    assert ran.stdout == f"{sizes[0]} {sizes[1]} TFL3 TFL3\n"
    tested = project.bazel("test", CHECKING, *LITERT, *BOTH, "--test_output=all")
    assert tested.returncode == 0, tested.stderr
    assert (tested.stdout + tested.stderr).count("passed: the outputs are those of LiteRT") == 2


@pytest.mark.slow
def test_nothing_is_compiled_again_where_nothing_changed(project):
    assert project.bazel("build", "//:app").returncode == 0
    project.embed()
    again = project.bazel("build", "//:app")
    assert again.returncode == 0
    assert "1 process: 1 internal" in again.stderr


@pytest.mark.slow
def test_two_builds_from_nothing_give_equal_libraries(project):
    names = ("external/gesture/libgesture.a", "models/big/libbig.a")
    made = []
    for outputs in ("one", "two"):
        done = project.bazel("build", "@gesture//:gesture", "//models/big", outputs=outputs)
        assert done.returncode == 0, done.stderr
        made.append([(project.app / "bazel-bin" / name).read_bytes() for name in names])
    assert made[0] == made[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gesture.h", "gesture_model.c", "gesture.tflite", "gesture_golden.c"]
)
def test_a_file_that_changed_since_stops_the_build_by_name(project, name):
    file = project.gesture / name
    right = file.read_bytes()
    file.write_bytes(right + b"\n")
    try:
        done = project.bazel("build", CHECKING, "@gesture//:gesture_self_test_lib")
    finally:
        file.write_bytes(right)
    assert done.returncode != 0
    assert f"gesture/{name}:1: error: it changed since edgeconv made it" in done.stderr


@pytest.mark.slow
def test_another_large_model_is_compiled_in(project):
    """The compiler does not say that it reads the file, so Bazel alone would not know."""
    model, build = project.big / "big.tflite", project.big / "BUILD.bazel"
    library = project.app / "bazel-bin/models/big/libbig.a"
    assert project.bazel("build", CHECKING, "//models/big").returncode == 0
    right = model.read_bytes()
    other = right[:9000] + bytes([right[9000] ^ 1]) + right[9001:]
    rules, hashes = build.read_text(), [hashlib.sha256(one).hexdigest() for one in (right, other)]
    try:
        model.write_bytes(other)
        build.write_text(rules.replace(*hashes))
        assert project.bazel("build", CHECKING, "//models/big").returncode == 0
        assert other in library.read_bytes()
    finally:
        model.write_bytes(right)
        build.write_text(rules)


@pytest.fixture(scope="module")
def buildifier(tmp_path_factory) -> str:
    """The formatter and linter of Bazel's files, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here, which buildifier comes by")
    place = tmp_path_factory.mktemp("buildifier")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", place]
    wanted = [*command, "@bazel/buildifier@8.2.1"]
    done = captured(wanted)
    if done.returncode:
        pytest.skip(f"npm cannot install buildifier here: {done.stderr[-300:]}")
    return str(place / "node_modules/.bin/buildifier")


def test_the_files_are_formatted_and_have_nothing_for_the_linter(tmp_path, buildifier):
    model = int8_tiny(tmp_path / "published", name=HOSTILE)
    embed(model, "bazel", tmp_path / "out", symbol="gesture", option={"micro": "yes"})
    files = [tmp_path / "out" / one for one in ("BUILD.bazel", "MODULE.bazel", "edgeconv.bzl")]
    command = [buildifier, "-mode=check", "-lint=warn", "-warnings=all"]
    done = captured([*command, *files])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    files[2].write_text(files[2].read_text().replace("load(", "load(\n", 1))
    wrong = captured([*command, *files])
    assert wrong.returncode != 0
