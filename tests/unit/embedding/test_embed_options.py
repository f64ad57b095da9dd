"""What a team chooses of each target: how a value is checked, and what becomes of it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from embed_models import float_tiny, int8_tiny, tree
from embed_syntax import mistakes
from wording import fails

from edgeconv import embed
from edgeconv.cli import cli
from edgeconv.plugins import EMBED_TARGETS, embed_target
from edgeconv.types.errors import UsageError


def written(tmp_path: Path, target: str, **options: str) -> dict[str, str]:
    embed(int8_tiny(tmp_path / "m"), target, tmp_path / "out", symbol="net", option=options)
    return {name: content.decode("latin-1") for name, content in tree(tmp_path / "out").items()}


def test_every_default_is_a_value_that_the_option_can_have():
    for name in EMBED_TARGETS:
        for option, facts in embed_target(name).OPTIONS.items():
            if facts.default:
                facts.check(option, facts.default)
            if facts.example:
                facts.check(option, facts.example)


@pytest.mark.parametrize(
    ("target", "option", "value"),
    [
        ("android", "minSdk", "22"),
        ("android", "minSdk", "twenty"),
        ("android", "minSdk", "२६"),
        ("android", "compileSdk", "21"),
        ("android", "litert", "2.0.3"),
        ("android", "litert", "latest"),
        ("android", "litert", '2.1.5")\nexec("'),
        ("android", "class", "digits"),
        ("android", "class", "Float"),
        *(("android", "package", each) for each in ("digits", "Com.example", "com.example.")),
        *(("android", "package", each) for each in ("com..x", "com.fun.x", "com.new.x", "a.b c")),
        ("ios", "class", "Data"),
        ("ios", "litert", "2.3.0"),
        ("ios", "litert", 'branch:x")'),
        ("c", "section", 'a"b'),
        ("c", "section", "__DATA,__model"),
        ("c", "self_test", "elsewhere"),
        *(("c", option, "perhaps") for option in ("bytes", "micro")),
        *(("bazel", option, "perhaps") for option in ("module", "micro")),
        ("bazel", "packages", "x"),
        ("web", "bytes", "text"),
        *(("android", option, "perhaps") for option in ("module", "plugin")),
        ("ios", "runtime", "coreml"),
        ("cmake", "namespace", "a::b"),
        ("zephyr", "depends", "fpu"),
        ("zephyr", "depends", "FPU\n\tdefault y"),
        ("zephyr", "depends", "(FPU"),
        ("zephyr", "depends", "FPU)("),
        ("arduino", "depends", "Lib\nname=x"),
        ("arduino", "depends", "A,,B"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, target, option, value):
    with fails(UsageError):
        written(tmp_path, target, **{option: value})
    assert not (tmp_path / "out").exists() or tree(tmp_path / "out") == {}


def test_android_has_the_levels_versions_and_names_that_were_chosen(tmp_path):
    files = written(
        tmp_path,
        "android",
        **{"minSdk": "26", "compileSdk": "36", "litert": "2.3.2", "class": "Digits"},
        package="com.acme.app",
    )
    build = files["build.gradle.kts"]
    assert "minSdk = 26\n" in build
    assert "compileSdk = 36\n" in build
    assert 'api("com.google.ai.edge.litert:litert:2.3.2")' in build
    assert 'namespace = "com.acme.app"' in build
    assert "class Digits" in files["src/main/kotlin/com/acme/app/Digits.kt"]
    assert "class DigitsTest" in files["src/androidTest/kotlin/com/acme/app/DigitsTest.kt"]
    for name in files:
        if name.endswith((".kt", ".kts")):
            assert mistakes(tmp_path / "out" / name, "tree_sitter_kotlin") == []


@pytest.mark.parametrize(
    ("litert", "lowest"), [("1.4.2", 21), ("1.4.0", 26), ("2.1.0", 23), ("2.3.2", 23)]
)
def test_min_sdk_goes_as_low_as_that_litert_runs(tmp_path, litert, lowest):
    files = written(tmp_path, "android", minSdk=str(lowest), litert=litert)
    assert f"minSdk = {lowest}\n" in files["build.gradle.kts"]
    with fails(UsageError):
        written(tmp_path / "lower", "android", minSdk=str(lowest - 1), litert=litert)


def test_two_models_in_one_gradle_build_bring_no_plugin_twice(tmp_path):
    for symbol, plugin in (("first", {}), ("second", {}), ("third", {"plugin": "yes"})):
        place = tmp_path / "app-models" / symbol
        said = embed(
            float_tiny(tmp_path / "m"), "android", place, symbol=symbol, option=plugin
        ).notes
        assert any("include it once" in note for note in said) == bool(plugin)
    scripts = {path: path.read_text() for path in (tmp_path / "app-models").rglob("*.kt*")}
    ids = [one for text in scripts.values() for one in re.findall(r'id = "(\S+)"', text)]
    assert ids == ["edgeconv.android"]
    names = [one for text in scripts.values() for one in re.findall(r'namespace = "(\S+)"', text)]
    assert sorted(names) == ["edgeconv.first", "edgeconv.second", "edgeconv.third"]
    classes = [
        one
        for path, text in scripts.items()
        if "gradle-plugin" not in path.parts
        for package in re.findall(r"^package (\S+)", text, re.MULTILINE)
        for one in [package + "." + path.stem]
    ]
    assert len(classes) == len(set(classes)) == 9


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 'branch: "release/2.3.0"'),
        ({"litert": "from:2.3.0"}, 'from: "2.3.0"'),
        ({"litert": "exact:2.3.2"}, 'exact: "2.3.2"'),
        ({"litert": "revision:" + "0a" * 20}, f'revision: "{"0a" * 20}"'),
    ],
)
def test_the_swift_package_depends_on_the_litert_that_was_chosen(tmp_path, given, expected):
    files = written(tmp_path, "ios", **{"class": "Digits"}, **given)
    line = f'.package(url: "https://github.com/google-ai-edge/LiteRT", {expected})'
    assert line in files["Package.swift"]
    assert mistakes(tmp_path / "out" / "Package.swift", "tree_sitter_swift") == []
    assert "final class Digits " in files["Sources/DigitsModel/Digits.swift"]


def test_the_self_test_of_c_goes_where_it_was_chosen(tmp_path):
    beside = set(written(tmp_path / "beside", "c"))
    apart = set(written(tmp_path / "apart", "c", self_test="apart"))
    without = set(written(tmp_path / "no", "c", self_test="no"))
    vectors = {"net_golden.c", "net_self_test.c", "net_self_test.h"}
    assert vectors < beside
    assert {f"self_test/{name}" for name in vectors} < apart
    assert beside - vectors == without
    assert {name for name in apart if "/" not in name} == without


def test_zephyr_has_the_golden_vectors_in_a_library_of_their_own(tmp_path):
    files = written(tmp_path, "zephyr", depends="TENSORFLOW_LITE_MICRO && (FPU || !QEMU_TARGET)")
    model, self_test = files["CMakeLists.txt"].split("if(CONFIG_EDGECONV_NET_SELF_TEST)")
    assert "net_model.c" in model
    assert "golden" not in model
    assert "zephyr_library_named(edgeconv_net_self_test)" in self_test
    assert "net_golden.c" in self_test
    symbol, test_symbol = files["Kconfig"].split("config EDGECONV_NET_SELF_TEST")
    assert "\tdepends on TENSORFLOW_LITE_MICRO && (FPU || !QEMU_TARGET)\n" in symbol
    assert "\tdepends on EDGECONV_NET\n" in test_symbol
    assert "CONFIG_EDGECONV_NET_SELF_TEST=y" in files["samples/self_test/prj.conf"]


def test_arduino_and_platformio_have_the_libraries_that_were_chosen(tmp_path):
    depends = "Chirale_TensorFLowLite (>=2.0.0), ArduinoBLE"
    files = written(tmp_path, "arduino", depends=depends)
    assert f"\ndepends={depends}\n" in files["library.properties"]
    assert json.loads(files["library.json"])["dependencies"] == [
        {"name": "Chirale_TensorFLowLite", "version": ">=2.0.0"},
        {"name": "ArduinoBLE", "version": "*"},
    ]
    plain = written(tmp_path / "plain", "arduino")
    assert "depends" not in plain["library.properties"]
    assert "dependencies" not in json.loads(plain["library.json"])


def test_help_has_the_options_of_every_target():
    said = " ".join(CliRunner().invoke(cli, ["embed", "--help-all"]).output.split())
    for name in EMBED_TARGETS:
        for option, facts in embed_target(name).OPTIONS.items():
            assert f"{option}=" in said
            assert " ".join(facts.help.split()) in said


def test_the_options_may_stand_in_the_configuration(tmp_path, monkeypatch):
    int8_tiny(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgeconv.toml").write_text(
        '[embed]\ntarget = "android"\nout = "app"\noption = ["minSdk=28", "class=Digits"]\n'
    )
    done = CliRunner().invoke(cli, ["embed", "m/tiny.int8.tflite"])
    assert done.exit_code == 0, done.output
    assert "minSdk = 28\n" in (tmp_path / "app" / "build.gradle.kts").read_text()
