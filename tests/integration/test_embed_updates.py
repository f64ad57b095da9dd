"""Models over the air: which ones the generated C accepts for the one that it was made for.

Python, JavaScript, Kotlin and C++ accept the same ones in test_embed_python.py,
test_embed_web_page.py, test_embed_kotlin.py and test_embed_cmake.py.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import captured
from embed_models import published
from embed_updates import model

from edgeconv import embed
from edgeconv.types import Embedded

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wundef")
# Reads beyond a file, and arithmetic that C does not define, end the program.
CHECKED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# Takes the file from stdin into memory of its own size; arguments are an interface and a hash.
MAIN = r"""
#include "net_interface.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void show(const void *data, size_t size) {
    unsigned char hash[32];
    net_sha256(data, size, hash);
    for (size_t i = 0; i < 32; ++i) printf("%02x", hash[i]);
    printf("\n");
}
int main(int count, char **arguments) {
    static unsigned char room[1 << 16];
    const size_t size = fread(room, 1, sizeof room, stdin);
    unsigned char *file;
    if (count == 1) {
        for (size_t part = 0; part <= size; ++part) show(room, part);
        return net_is_model(net_model, net_model_size) ? 0 : 1;
    }
    file = (unsigned char *)malloc(size + (size == 0));
    memcpy(file, room, size);
    printf("%d %d\n", net_accepts(file, size, arguments[1], arguments[2]),
           net_is_model(file, size));
    free(file);
    return 0;
}
"""
pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++"
)


@pytest.fixture(
    scope="module",
    params=[("gcc", "-std=c11"), ("g++", "-x", "c++", "-std=c++11")],
    ids=["C11", "C++11"],
)
def program(request, tmp_path_factory) -> tuple[Path, Embedded]:
    """A program with the code for `model()`, and the record of the embedding."""
    place = tmp_path_factory.mktemp("embedded")
    embedded = embed(published(place / "m", model()), "c", place / "c", symbol="net")
    (place / "main.c").write_text(MAIN)
    sources = [str(place / "c" / f"net{part}.c") for part in ("", "_interface", "_model")]
    command = [*request.param, *WARNINGS, *CHECKED, f"-I{place / 'c'}", str(place / "main.c")]
    done = captured([*command, *sources, "-o", str(place / "program")])
    assert done.returncode == 0, done.stderr
    return place / "program", embedded


def ran(program: Path, file: bytes, *arguments: str) -> list[str]:
    done = subprocess.run([program, *arguments], input=file, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode().splitlines()


def test_a_file_is_accepted_with_the_interface_and_the_hash_that_were_announced(program):
    c, embedded = program
    own, update = model(), model(weights=-1)
    known = embedded.interface_id
    sha256 = hashlib.sha256(update).hexdigest()
    assert ran(c, update, known, sha256) == ["1 0"]
    assert ran(c, own, known, embedded.model_sha256) == ["1 1"]
    for file, interface_id, announced in (
        (own, known, sha256),
        (update, "0" * 32, sha256),
        (update, known[:-1], sha256),
        (update, known, embedded.model_sha256),
        (update, known, sha256[:-1]),
        (update, known, ""),
        (update, known, sha256 + "0"),
        (update[:-1], known, sha256),
        (b"", known, sha256),
    ):
        assert ran(c, file, interface_id, announced) == ["0 " + str(int(file == own))]


def test_the_hash_in_c_is_sha256(program):
    data = bytes(size % 256 for size in range(300))
    assert ran(program[0], data) == [hashlib.sha256(data[:size]).hexdigest() for size in range(301)]
