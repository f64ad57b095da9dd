"""The C that `embed` writes, compiled by gcc and g++ and run."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import captured
from embed_models import HOSTILE, hostile_tiny, int8_tiny, large_tiny, named_tiny, published, tree
from tiny_tflite import Graph, packed

from edgeconv import embed
from edgeconv.types import Preprocessing

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wundef")
C11, CXX11 = ("gcc", "-std=c11"), ("g++", "-x", "c++", "-std=c++11")

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++"
)

# Gives the golden outputs back, changed by `change` in its first byte, to the self-test.
MAIN = """
#include "{s}_self_test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static size_t calls;
static int change;
static int replay(void *context, const void *const *inputs, void *const *outputs) {{
    const size_t stride = {S}_GOLDEN_SIZE / {S}_GOLDEN_VECTORS;
    const unsigned char *golden = {s}_golden + stride * calls;
    (void)context;
    for (size_t i = 0; i < {S}_INPUT_COUNT; ++i) {{
        if (inputs[i] != golden || (size_t)inputs[i] % 16 != 0) return 1;
        golden += ({s}_inputs[i].bytes + 15) / 16 * 16;
    }}
    for (size_t i = 0; i < {S}_OUTPUT_COUNT; ++i) {{
        if ((size_t)outputs[i] % 16 != 0) return 2;
        memcpy(outputs[i], golden, {s}_outputs[i].bytes);
        golden += ({s}_outputs[i].bytes + 15) / 16 * 16;
    }}
    ((unsigned char *)outputs[0])[0] = (unsigned char)(((unsigned char *)outputs[0])[0] + change);
    ++calls;
    return change == 100 ? 3 : 0;
}}
int main(int count, char **arguments) {{
    {s}_report report;
    (void)count;
    change = atoi(arguments[1]);
    report = {s}_self_test({s}_model, {s}_model_size - (change == 99 ? 1 : 0), replay, NULL);
    fprintf(stderr, "%d %d %d\\n", (int)report.verdict, (int)((size_t){s}_model % 16), (int)calls);
    return fwrite({s}_model, 1, {s}_model_size, stdout) == {s}_model_size ? 0 : 1;
}}
"""


def compiled(directory: Path, compiler: tuple[str, ...], main: str, *options: str) -> Path:
    """The generated files and a main program, compiled far from them."""
    place = directory.with_name(f"{directory.name}-{compiler[0]}")
    place.mkdir(exist_ok=True)
    (place / "main.c").write_text(main)
    sources = [str(path) for path in sorted(directory.glob("*.c"))]
    command = [*compiler, *WARNINGS, "-I", str(directory), *options, "main.c", *sources]
    done = captured([*command, "-o", "program"], cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "program"


def said(program: Path, change: int) -> tuple[bytes, list[int]]:
    done = subprocess.run([program, str(change)], capture_output=True, check=True)
    return done.stdout, [int(word) for word in done.stderr.split()]


@pytest.mark.parametrize("compiler", [C11, CXX11], ids=["C11", "C++11"])
@pytest.mark.parametrize("form", ["text", "file"])
def test_the_bytes_are_equal_and_aligned_and_the_self_test_tells_right_from_wrong(
    tmp_path, compiler, form
):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    embed(file, "c", out, symbol="net", option={"bytes": form}, vectors=3)
    program = compiled(out, compiler, MAIN.format(s="net", S="NET"))
    model, (verdict, rest, calls) = said(program, 0)
    assert model == file.read_bytes()
    assert (verdict, rest, calls) == (0, 0, 3)
    # Four levels are allowed to be off, five are not; a runtime may fail; a model be another.
    assert said(program, 4)[1][0] == 0
    assert said(program, 5)[1] == [3, 0, 1]
    assert said(program, 100)[1] == [2, 0, 1]
    assert said(program, 99)[1] == [1, 0, 0]


@pytest.mark.parametrize("compiler", [C11, CXX11], ids=["C11", "C++11"])
def test_hostile_names_compile_and_are_in_the_program_as_they_are(tmp_path, compiler):
    labels = tmp_path / "labels.txt"
    text = [HOSTILE.replace("\n", ""), "??/", "\\"]
    labels.write_text("\n".join(text), encoding="utf-8")
    out = tmp_path / "out"
    embed(hostile_tiny(tmp_path / "m"), "c", out, symbol="net", labels=labels)
    main = (
        '#include "net.h"\n#include <stdio.h>\nint main(void) {\n'
        'printf("%s|%s|%s|%s|%s|", NET_NAME, net_inputs[0].name, net_inputs[1].name,'
        " net_outputs[0].name, net_outputs[1].name);\n"
        'for (int i = 0; i < NET_LABEL_COUNT; ++i) printf("%s|", net_labels[i]);\n'
        "return NET_INPUT_CLASS__BYTES + NET_OUTPUT_A_B_2_DIM_1 - 8;\n}\n"
    )
    done = subprocess.run(
        [compiled(out, compiler, main, "-trigraphs")], capture_output=True, check=True
    )
    names = [HOSTILE, HOSTILE, "class", "a-b", "a b", *text, ""]
    assert done.stdout.decode().split("|") == names


@pytest.mark.parametrize("compiler", [C11, CXX11], ids=["C11", "C++11"])
def test_the_macros_of_one_tensor_are_not_those_of_another(tmp_path, compiler):
    steps = {"": Preprocessing(scale=0.5)}
    graph = named_tiny(tmp_path / "m", ["x", "x_graph", "x_normalize"])
    embed(published(tmp_path / "p", graph.read_bytes(), preprocessing=steps), "c", tmp_path / "out")
    main = (
        '#include "tiny.h"\nint main(void) {\n'
        "return TINY_INPUT_X_GRAPH_INDEX + 2 * TINY_INPUT_X_GRAPH__INDEX"
        " + 4 * TINY_INPUT_X_NORMALIZE__INDEX;\n}\n"
    )
    done = subprocess.run([compiled(tmp_path / "out", compiler, main)], check=False)
    assert done.returncode == 0 + 2 * 1 + 4 * 2


def test_quantising_in_c_is_what_it_is_in_numpy(tmp_path):
    graph = Graph()
    specs = [("int8", 0.1, -3), ("uint8", 0.5, 128), ("int16", 0.001, 0), ("int8", 3.7, 127)]
    ends = [
        graph.tensor(f"t{i}", (1, 4), dtype, scale=scale, zero_point=zero)
        for i, (dtype, scale, zero) in enumerate(specs)
    ]
    outs = [graph.tensor(f"o{i}", (1, 4), "float32") for i in range(len(specs))]
    for end, out in zip(ends, outs, strict=True):
        graph.operator("DEQUANTIZE", [end], [out])
    names = [f"t{i}" for i in range(len(specs))]
    model = graph.model(
        ends, outs, signature=("serving_default", names, [f"o{i}" for i in range(len(specs))])
    )
    directory = tmp_path / "out"
    embed(published(tmp_path / "m", packed(model)), "c", directory, symbol="net")
    calls = "".join(
        f'printf("%d %.9g\\n", net_input_t{i}_quantize(v), '
        f"(double)net_input_t{i}_dequantize(net_input_t{i}_quantize(v)));\n"
        for i in range(len(specs))
    )
    main = (
        '#include "net.h"\n#include <stdio.h>\nint main(void) {\nfloat v;\n'
        f"while (fread(&v, sizeof v, 1, stdin) == 1) {{\n{calls}}}\nreturn 0;\n}}\n"
    )
    rng = np.random.default_rng(0)
    halves = np.arange(-300, 300) * 0.25
    values = np.concatenate([rng.normal(0, 40, 500), halves, [np.inf, -np.inf, np.nan, 1e30]])
    values = values.astype(np.float32)
    done = subprocess.run(
        [compiled(directory, C11, main)], input=values.tobytes(), capture_output=True, check=True
    )
    given = np.array(done.stdout.split(), np.float64).reshape(-1, len(specs), 2)
    for index, (dtype, scale, zero) in enumerate(specs):
        limits = np.iinfo(dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            levels = np.rint(values * (np.float32(1) / np.float32(scale))) + zero
        levels = np.clip(np.where(np.isnan(levels), limits.min, levels), limits.min, limits.max)
        np.testing.assert_array_equal(given[:, index, 0], levels)
        numbers = (levels - zero).astype(np.float32) * np.float32(scale)
        np.testing.assert_allclose(given[:, index, 1], numbers, rtol=1e-7)


def test_normalising_in_c_is_what_preprocessing_does(tmp_path):
    from edgeconv.data.preprocess import preprocess

    graph = Graph()
    x = graph.tensor("x", (1, 2, 2, 3), "float32")
    y = graph.tensor("y", (1, 2, 2, 3), "float32")
    graph.operator("RELU", [x], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    steps = Preprocessing(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.2, 0.3, 0.4))
    file = published(tmp_path / "m", packed(model), recipe="float32", preprocessing={"": steps})
    out = tmp_path / "out"
    embed(file, "c", out, symbol="net")
    main = (
        '#include "net.h"\n#include <stdio.h>\nint main(void) {\n'
        "for (unsigned i = 0; i < 256; ++i)\n"
        'printf("%.9g ", (double)net_input_x_normalize((float)i, i % 3));\n'
        "puts(NET_INPUT_X_PREPROCESSING);\nreturn 0;\n}\n"
    )
    done = subprocess.run([compiled(out, CXX11, main)], capture_output=True, check=True)
    *numbers, text = done.stdout.decode().split()
    stored = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    expected = preprocess(stored, steps, "test")[np.arange(256), np.arange(256) % 3]
    np.testing.assert_allclose(np.array(numbers, np.float64), expected, rtol=1e-6, atol=1e-6)
    assert text.startswith("scale=")


HALVES = """
#include "net_self_test.h"
#include <stdio.h>
#include <string.h>
static size_t wrong;
static int replay(void *context, const void *const *inputs, void *const *outputs) {
    unsigned char *y = (unsigned char *)outputs[0];
    (void)context; (void)inputs;
    memcpy(y, net_golden + 32, 16);
    if (wrong < 8) y[2 * wrong + 1] = (unsigned char)(y[2 * wrong + 1] ^ 0x80);
    return 0;
}
int main(void) {
    for (wrong = 0; wrong <= 8; ++wrong) {
        net_report r = net_self_test(net_model, net_model_size, replay, NULL);
        printf("%d %.17g %.17g\\n", (int)r.verdict, r.expected, r.got);
    }
    return 0;
}
"""


def test_outputs_of_float16_are_read_as_the_numbers_that_they_are(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32")
    y = graph.tensor("y", (1, 8), "float16")
    graph.operator("CAST", [x], [y])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    file = published(tmp_path / "m", packed(model), recipe="float32")
    values = np.array([[1, -1.5, 65504, 0.1, -3.14159, 2048, 12.25, 6e-8]], np.float32)
    np.savez(tmp_path / "d.npz", x=values)
    out = tmp_path / "out"
    options = {"micro": "no"}
    embed(file, "c", out, symbol="net", data=str(tmp_path / "d.npz"), vectors=1, option=options)
    # The largest output sets the tolerance, which here would allow all of the others anything.
    header = (out / "net_self_test.h").read_text()
    assert "NET_OUTPUT_Y_TOLERANCE 6.55041f" in header
    strict = re.sub("TOLERANCE .*", "TOLERANCE 0.0f", header)
    (out / "net_self_test.h").write_text(strict)
    done = subprocess.run([compiled(out, C11, HALVES)], capture_output=True, text=True, check=True)
    rows = np.array(done.stdout.split(), np.float64).reshape(9, 3)
    halves = values[0].astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(rows[:8], np.stack([np.full(8, 3), halves, -halves], axis=1))
    assert rows[8].tolist() == [0, 0, 0]


def test_a_large_model_is_a_file_and_nothing_for_the_compiler(tmp_path):
    file, out = large_tiny(tmp_path / "m", 24 << 20), tmp_path / "out"
    embed(file, "c", out, symbol="net", vectors=1)
    assert {"net.tflite", "net_golden.bin"} <= set(tree(out))
    assert max(path.stat().st_size for path in out.glob("*.[ch]")) < 30_000
    program = compiled(out, C11, MAIN.format(s="net", S="NET"))
    model, (verdict, rest, _) = said(program, 0)
    assert model == file.read_bytes()
    assert (verdict, rest) == (0, 0)


def test_a_file_of_another_size_is_an_error_of_the_build(tmp_path):
    out = tmp_path / "out"
    embed(int8_tiny(tmp_path / "m"), "c", out, symbol="net", option={"bytes": "file"})
    with (out / "net.tflite").open("ab") as model:
        model.write(b"?")
    with pytest.raises(AssertionError, match=r"net\.tflite has another size than when"):
        compiled(out, C11, MAIN.format(s="net", S="NET"))


def test_a_source_changes_with_the_file_that_it_brings_in(tmp_path):
    """Else a build that goes by times would not compile it again."""
    file, seen = int8_tiny(tmp_path / "m"), set()
    for seed in (1, 2):
        data = tmp_path / f"{seed}.npz"
        np.savez(data, x=np.random.default_rng(seed).standard_normal((2, 4), np.float32))
        out = tmp_path / str(seed)
        embed(file, "c", out, symbol="net", data=str(data), option={"bytes": "file"})
        seen.add((out / "net_golden.c").read_text())
        assert (out / "net_golden.bin").stat().st_size == 64
    assert len(seen) == 2


def test_another_model_of_the_same_size_is_found_at_run_time(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    embed(file, "c", out, symbol="net", option={"bytes": "file"})
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    (out / "net.tflite").write_bytes(content)
    program = compiled(out, C11, MAIN.format(s="net", S="NET"))
    assert said(program, 0)[1] == [1, 0, 0]


def test_c23_embeds_the_file(tmp_path):
    newer = [f"{name}-{major}" for major in range(30, 14, -1) for name in ("clang", "gcc")]
    found = next((path for name in newer if (path := shutil.which(name)) and _embeds(path)), None)
    if found is None:
        pytest.skip("needs a compiler with #embed: clang 19 or gcc 15")
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    embed(file, "c", out, symbol="net", option={"bytes": "file"})
    main = MAIN.format(s="net", S="NET")
    # clang 19 takes each byte of an #embed for an int that changes its sign.
    newest = (Path(found).name, "-std=c23"), main, "-Wno-sign-conversion"
    program = compiled(out, *newest)
    model, verdict = said(program, 0)
    assert model == file.read_bytes()
    assert verdict == [0, 0, 2]
    assert b".incbin" not in _preprocessed(out, found)
    with (out / "net.tflite").open("ab") as grown:
        grown.write(b"?")
    with pytest.raises(AssertionError, match="net_model"):
        compiled(out, *newest)


def _embeds(compiler: str) -> bool:
    probe = [compiler, "-std=c23", "-fsyntax-only", "-x", "c", "-"]
    text = "#ifndef __has_embed\n#error no\n#endif\n"
    return not subprocess.run(probe, input=text, text=True, capture_output=True).returncode


def _preprocessed(out: Path, compiler: str) -> bytes:
    command = [compiler, "-std=c23", "-E", "-P", f"-I{out}", str(out / "net_model.c")]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_the_sizes_of_sections_for_a_cortex_m_are_those_of_the_model(tmp_path):
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("needs arm-none-eabi-gcc: Debian's packages gcc-arm-none-eabi and its newlib")
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    for form in ("text", "file"):
        embed(file, "c", out, symbol="net", option={"bytes": form})
        sections = _cross_compiled(out, tmp_path / form)
        model = sum(size for name, size in sections.items() if "net_model" in name)
        assert model in range(file.stat().st_size, file.stat().st_size + 32)
        # Code and tables are read-only; the answers of the self-test are all that is in RAM.
        assert sections["data"] == 0
        assert 0 < sections["bss"] <= 64
        assert 0 < sections["text"] < 4096


def _cross_compiled(out: Path, place: Path) -> dict[str, int]:
    """Bytes by section of an ELF for a Cortex-M4: all that can be called is kept."""
    place.mkdir()
    (place / "main.c").write_text(
        '#include "net_self_test.h"\n'
        "static int run(void *c, const void *const *i, void *const *o) {\n"
        "(void)c; (void)i; (void)o; return 1; }\n"
        "int main(void) { return (int)net_self_test(net_model, net_model_size, run, 0).verdict; }\n"
    )
    flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", "-ffunction-sections", "-fdata-sections"]
    link = ["--specs=nano.specs", "--specs=nosys.specs", "-Wl,--gc-sections", "-Wl,-Map=map"]
    sources = [str(path) for path in sorted(out.glob("*.c"))]
    command = ["arm-none-eabi-gcc", "-std=c11", *WARNINGS, *flags, f"-I{out}", "main.c", *sources]
    done = captured([*command, *link, "-Wl,--no-warnings", "-o", "program.elf"], cwd=place)
    assert done.returncode == 0, done.stderr
    sections = {"text": 0, "data": 0, "bss": 0}
    own = re.compile(r"^ \.(\w+)\.?(\S*)\n? +0x[0-9a-f]+ +0x([0-9a-f]+) \S*/cc\w+\.o", re.M)
    # What comes before was thrown away.
    kept = (place / "map").read_text().split("Linker script and memory map")[1]
    for kind, name, size in own.findall(kept):
        if int(size, 16):
            key = name if kind == "rodata" else kind
            sections[key] = sections.get(key, 0) + int(size, 16)
    return sections


@pytest.mark.parametrize("form", ["text", "file"])
def test_the_model_goes_into_the_section_that_was_chosen_and_nothing_else_does(tmp_path, form):
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("needs arm-none-eabi-gcc: Debian's packages gcc-arm-none-eabi and its newlib")
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    options = {"bytes": form, "section": ".model_flash", "self_test": "apart"}
    embed(file, "c", out, symbol="net", option=options)
    flags = ["-mcpu=cortex-m4", "-mthumb", "-Os", f"-I{out}", "-c"]
    sources = [str(path) for path in sorted(out.glob("*.c"))]
    command = ["arm-none-eabi-gcc", "-std=c11", *WARNINGS, *flags, *sources]
    subprocess.run(command, cwd=tmp_path, check=True)
    sizes: dict[str, int] = {}
    for compiled_file in sorted(tmp_path.glob("*.o")):
        listed = subprocess.run(
            ["arm-none-eabi-size", "-A", compiled_file], capture_output=True, text=True, check=True
        ).stdout
        for name, size in re.findall(r"^(\.\S+)\s+(\d+)\s", listed, re.M):
            sizes[name] = sizes.get(name, 0) + int(size)
    assert sizes[".model_flash"] == file.stat().st_size
    # The golden vectors are in the folder of the self-test, which was not compiled.
    assert not list(tmp_path.glob("*golden*.o"))


def test_firmware_without_the_self_test_compiles_and_with_it_apart_passes(tmp_path):
    file, out = int8_tiny(tmp_path / "m"), tmp_path / "out"
    embed(file, "c", out, symbol="net", vectors=3, option={"self_test": "apart"})
    main = MAIN.format(s="net", S="NET")
    (tmp_path / "main.c").write_text(main)
    sources = [
        *map(str, sorted(out.glob("*.c"))),
        *map(str, sorted((out / "self_test").glob("*.c"))),
    ]
    command = ["gcc", "-std=c11", *WARNINGS, f"-I{out}", f"-I{out / 'self_test'}"]
    program = tmp_path / "program"
    subprocess.run([*command, str(tmp_path / "main.c"), *sources, "-o", program], check=True)
    assert said(program, 0)[1] == [0, 0, 3]
    micro = '#include "net_micro.h"\nint main() { return NET_OPERATOR_COUNT - 1; }\n'
    (tmp_path / "main.cpp").write_text(micro)
    command = ["g++", "-std=c++11", *WARNINGS, f"-I{out}", str(tmp_path / "main.cpp")]
    subprocess.run([*command, "-o", tmp_path / "plain"], check=True)
    subprocess.run([tmp_path / "plain"], check=True)
    (tmp_path / "main.cpp").write_text(micro.replace("net_micro.h", "net_self_test_micro.h"))
    subprocess.run([*command, f"-I{out / 'self_test'}", "-c", "-o", tmp_path / "o"], check=True)


STAND_IN = """
#include "net_micro.h"
#include <stdio.h>
#include <vector>
struct Resolver {{
    std::vector<const char *> added;
    int full_at;
{methods}
    int add(const char *name) {{ added.push_back(name); return (int)added.size() == full_at; }}
}};
struct Tensor {{ size_t bytes; union {{ char *raw; }} data; }};
struct Interpreter {{
    int8_t x[4], y[3];
    Tensor in, out;
    int calls;
    Interpreter() : in(), out(), calls(0) {{
        in.bytes = 4; out.bytes = 3;
        in.data.raw = (char *)x; out.data.raw = (char *)y;
    }}
    Tensor *input(size_t i) {{ return i == 0 ? &in : nullptr; }}
    Tensor *output(size_t i) {{ return i == 0 ? &out : nullptr; }}
    int Invoke() {{
        memcpy(y, net_golden + (size_t)calls++ * NET_GOLDEN_SIZE / NET_GOLDEN_VECTORS + 16, 3);
        return 0;
    }}
}};
int main() {{
    Resolver enough = Resolver(), small = Resolver();
    small.full_at = NET_OPERATOR_COUNT;
    Interpreter interpreter;
    if (!net_add_operators(enough) || net_add_operators(small)) return 1;
    for (const char *name : enough.added) printf("%s ", name);
    alignas(16) static uint8_t arena[NET_ARENA_BYTES];
    (void)arena;
    return net_micro_self_test(interpreter).verdict;
}}
"""


def test_the_header_for_tflite_micro_is_code_that_adds_the_operators_and_runs(tmp_path):
    """Against a stand-in for its classes, whose headers are in no package."""
    out = tmp_path / "out"
    embed(int8_tiny(tmp_path / "m"), "c", out, symbol="net")
    names = ["AddFullyConnected", "AddRelu"]
    methods = "\n".join(f'    int {name}() {{ return add("{name}"); }}' for name in names)
    main = STAND_IN.format(methods=methods)
    program = compiled(out, CXX11, main, "-Wno-conversion", "-Wno-useless-cast")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "AddFullyConnected "


def test_two_models_live_in_one_program(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    embed(int8_tiny(tmp_path / "m"), "c", one, symbol="first")
    embed(hostile_tiny(tmp_path / "h"), "c", two, symbol="second")
    main = (
        '#include "first_self_test.h"\n#include "second_self_test.h"\nint main(void) {\n'
        "return first_is_model(first_model, first_model_size) &&\n"
        "second_is_model(second_model, second_model_size) &&\n"
        "!first_is_model(second_model, second_model_size) ? 0 : 1;\n}\n"
    )
    sources = [str(path) for path in two.glob("*.c")]
    subprocess.run([compiled(one, C11, main, "-I", str(two), *sources)], check=True)
