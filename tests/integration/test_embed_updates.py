"""Models over the air: what the generated C and Python say of a file that came for theirs.

The same files go to Kotlin in test_embed_kotlin.py and to JavaScript in test_embed_web_page.py.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from embed_models import float_tiny, hostile_tiny, named_tiny, published
from embed_updates import broken, cases, model, plain, python_says, stream, verdict
from places import SUPPORT
from tiny_tflite import Graph, packed

from edgeconv import embed

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wundef")
# Whatever is read beside the file, or computed as C does not define it, ends the program.
CHECKED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# Reads files, each after its length, and prints a line of sentences for each. Every file is in
# memory of its own size, so that a look beyond its end is seen.
MAIN = r"""
#include "net_interface.h"
#include <stdio.h>
#include <stdlib.h>
static void say(void *context, const char *difference) {
    printf("%s%s", *(int *)context > 0 ? "; " : "", difference);
    ++*(int *)context;
}
int main(void) {
    unsigned char size[4];
    while (fread(size, 1, 4, stdin) == 4) {
        const size_t count = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16;
        unsigned char *file = (unsigned char *)malloc(count);
        int said = 0;
        if (fread(file, 1, count, stdin) != count) return 2;
        const size_t differences = net_differences(file, count, say, &said);
        if (differences != (size_t)said) return 3;
        if (net_differences(file, count, NULL, NULL) != differences) return 4;
        printf("\n");
        free(file);
    }
    return 0;
}
"""

needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++"
)


def c_program(out: Path, compiler: tuple[str, ...] = ("gcc", "-std=c11")) -> Path:
    program = out.with_name(f"{out.name}-{compiler[0]}")
    main = out.parent / "main.c"
    main.write_text(MAIN)
    sources = [str(out / f"net{part}.c") for part in ("", "_interface", "_model")]
    command = [*compiler, *WARNINGS, *CHECKED, f"-I{out}", str(main), *sources]
    done = subprocess.run(
        [*command, "-o", str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return program


def c_says(program: Path, files: list[bytes]) -> list[list[str]]:
    done = subprocess.run([program], input=stream(files), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    lines = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    return [line.split("; ") if line else [] for line in lines]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that updates come for, in C and in Python."""
    place = tmp_path_factory.mktemp("embedded")
    artifact = published(place / "m", model())
    for target in ("c", "python"):
        embed(artifact, target, place / target, symbol="net")
    embed(artifact, "c", place / "any", symbol="net", options={"micro": "no"})
    return place


@needs_gcc
@pytest.mark.parametrize(
    "compiler", [("gcc", "-std=c11"), ("g++", "-x", "c++", "-std=c++11")], ids=["C11", "C++11"]
)
def test_c_says_what_differs(embedded, compiler):
    files = [content for content, _ in cases().values()]
    said = c_says(c_program(embedded / "c", compiler), files)
    assert dict(zip(cases(), said, strict=True)) == {
        name: wanted for name, (_, wanted) in cases().items()
    }


def test_python_says_what_differs(embedded):
    files = [content for content, _ in cases().values()]
    said = map(plain, python_says(embedded / "python", files))
    assert dict(zip(cases(), said, strict=True)) == {
        name: wanted for name, (_, wanted) in cases().items()
    }


@needs_gcc
def test_no_broken_file_is_read_beyond_its_end_and_c_and_python_agree(embedded):
    files = broken()
    in_c = [verdict(said) for said in c_says(c_program(embedded / "any"), files)]
    in_python = [verdict(said) for said in python_says(embedded / "python", files)]
    assert in_c == in_python
    # What is cut off is never taken, but for the last bytes, which are of a vector's room.
    cut = len(files) - 400
    assert set(in_c[: cut - 1]) <= {"the file is damaged: what it points to is not in it"} | {
        "the file is not a .tflite model"
    }
    assert {"taken", "refused"} <= set(in_c)


@needs_gcc
@pytest.mark.parametrize("make", ["open", "hostile", "named", "no signature"])
def test_every_model_can_take_its_own_place(tmp_path, make):
    file = {
        "open": float_tiny,
        "hostile": hostile_tiny,
        "named": lambda place: named_tiny(place, [f"x{i}" for i in range(20)]),
        "no signature": lambda place: published(place, model(signature=None)),
    }[make](tmp_path / "m")
    embed(file, "c", tmp_path / "c", symbol="net")
    embed(file, "python", tmp_path / "python", symbol="net")
    assert c_says(c_program(tmp_path / "c"), [file.read_bytes()]) == [[]]
    assert python_says(tmp_path / "python", [file.read_bytes()]) == [[]]


@needs_gcc
def test_c_names_the_operators_that_the_resolver_lacks_and_places_that_changed(tmp_path):
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    own, more = graph.tensor("own", (1, 4), "float32"), graph.tensor("more", (1, 4), "float32")
    graph.operator("ADD", [x, y], [own])
    graph.operator("MyOwn", [own], [more])
    names = ("serving_default", ["x", "y"], ["more"])
    update = packed(graph.model([x, y], [more], signature=names))
    graph.operators[1].opcodeIndex = 0
    graph.operators[1].inputs = [own, own]
    graph.codes.pop()
    place = packed(graph.model([y, x], [more], signature=("serving_default", ["y", "x"], ["more"])))
    file = published(tmp_path / "m", packed(graph.model([x, y], [more], signature=names)))
    embed(file, "c", tmp_path / "c", symbol="net")
    said = c_says(c_program(tmp_path / "c"), [file.read_bytes(), update, place])
    assert said == [
        [],
        ["operator 32 MyOwn of the file is not in the resolver"],
        [
            "input x: place 0 in the app, 1 in the file",
            "input y: place 1 in the app, 0 in the file",
        ],
    ]
    embed(file, "c", tmp_path / "any", symbol="net", options={"micro": "no"})
    assert c_says(c_program(tmp_path / "any"), [update]) == [[]]


@needs_gcc
def test_the_hash_in_c_is_sha256(tmp_path, embedded):
    main = tmp_path / "main.c"
    main.write_text(
        '#include "net_interface.h"\n#include <stdio.h>\n'
        "int main(void) {\n"
        "    static unsigned char data[300];\n    unsigned char hash[32];\n"
        "    for (size_t size = 0; size <= sizeof data; ++size) {\n"
        "        net_sha256(data, size, hash);\n"
        '        for (size_t i = 0; i < 32; ++i) printf("%02x", hash[i]);\n'
        '        printf("\\n");\n'
        "        data[size % sizeof data] = (unsigned char)size;\n"
        "    }\n    return net_is_model(net_model, net_model_size) ? 0 : 1;\n}\n"
    )
    out = embedded / "c"
    sources = [str(out / f"net{part}.c") for part in ("", "_interface", "_model")]
    program = tmp_path / "program"
    command = ["gcc", "-std=c11", f"-I{out}", str(main), *sources, "-o", str(program)]
    subprocess.run(command, check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    data = bytes(size % 256 for size in range(300))
    assert lines == [hashlib.sha256(data[:size]).hexdigest() for size in range(301)]


# For a Cortex-M4 without any system: what is said goes where the third argument points to.
FIRMWARE = r"""
#include "net_interface.h"
#include <string.h>
static void add(void *context, const char *difference) {
    char *said = (char *)context;
    strcat(said, *said != 0 ? "; " : "");
    strcat(said, difference);
}
void told(const void *file, size_t size, char *said);
void told(const void *file, size_t size, char *said) {
    *said = 0;
    net_differences(file, size, add, said);
}
"""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has unicorn, an emulator of Cortex-M."""
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("needs arm-none-eabi-gcc: Debian's packages gcc-arm-none-eabi and its newlib")
    place = tmp_path_factory.mktemp("emulator")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "unicorn==2.1.4"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"unicorn cannot be installed here: {done.stderr[-200:]}")
    return place / "bin" / "python"


def test_a_cortex_m_says_what_differs_and_reads_nothing_beside_the_file(
    tmp_path, embedded, emulator
):
    (tmp_path / "main.c").write_text(FIRMWARE)
    out = embedded / "any"
    flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", "-std=c11", *WARNINGS, f"-I{out}"]
    link = ["-nostartfiles", "--specs=nano.specs", "-Wl,-etold,--no-warnings"]
    sources = [str(out / f"net{part}.c") for part in ("", "_interface", "_model")]
    program = tmp_path / "program.elf"
    command = ["arm-none-eabi-gcc", *flags, *link, str(tmp_path / "main.c"), *sources]
    subprocess.run([*command, "-o", program], check=True)
    files = [content for content, _ in cases().values()]
    (tmp_path / "files").write_bytes(stream([*files, *broken()]))
    script = SUPPORT / "cortex_m.py"
    done = subprocess.run(
        [emulator, script, program, tmp_path / "files"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    said = [one.split("; ") if one else [] for one in json.loads(done.stdout)]
    assert dict(zip(cases(), said, strict=False)) == {
        name: wanted for name, (_, wanted) in cases().items()
    }
    in_python = map(verdict, python_says(embedded / "python", broken()))
    assert list(map(verdict, said[len(files) :])) == list(in_python)
