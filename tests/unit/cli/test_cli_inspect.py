import re
from pathlib import Path

import msgspec
from click.testing import CliRunner
from golden_files import assert_golden
from tiny_saved_model import meta_graph, signature, tensor, write_saved_model
from tiny_tflite import Graph, float_model, int8_model, packed

from edgeconv.cli.verbs import inspect as command
from edgeconv.model.source import inspect_model
from edgeconv.types import Inspection


def inspect(*arguments: object) -> str:
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def lines_of(path: Path) -> list[str]:
    return inspect(path).splitlines()


def without_place(shown: str, directory: Path) -> str:
    # The packing of a tiny model may change with the flatbuffers library.
    shown = re.sub(r"[0-9a-f]{64}", "HASH", shown.replace(str(directory), "DIRECTORY"))
    return re.sub(r"(size +)[\d,]+", r"\1SIZE", shown)


def test_a_quantised_tflite_is_shown_whole(tmp_path):
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(int8_model()))
    shown = without_place(inspect(file), tmp_path)
    assert_golden("inspect_int8_tflite.txt", shown)


def test_a_saved_model_is_shown_whole(tmp_path):
    graph = meta_graph(
        {"go": signature({"image": tensor((-1, 28, 28)), "any": tensor(None)}, {})},
        operators=("Placeholder",),
        function_operators=("MatMul", "MatMul"),
    )
    for version in ("2", "3"):
        write_saved_model(tmp_path / "net" / version, graph)
    shown = without_place(inspect(tmp_path / "net"), tmp_path)
    assert_golden("inspect_saved_model.txt", shown)


def test_json_is_one_document_that_decodes_to_the_noun(tmp_path):
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(float_model()))
    document = inspect(file, "--json")
    assert msgspec.json.decode(document, type=Inspection) == inspect_model(file)


def test_names_that_would_steer_the_terminal_or_rich_are_spelled_out(tmp_path):
    graph = Graph()
    x = graph.tensor("[red]x[/red]", (1,), "float32")
    y = graph.computed("y\x1b[31m\u202e", (1,), "[bold]Op\x07", [x])
    file = tmp_path / "hostile.tflite"
    file.write_bytes(packed(graph.model([x], [y])))
    shown = inspect(file)
    assert "[red]x[/red]" in shown
    assert "y\\u001b[31m\\u202e" in shown
    assert "[bold]Op\\u0007" in shown
    assert "\x1b" not in shown


def test_long_names_are_not_wrapped_where_there_is_no_terminal(tmp_path):
    file = tmp_path / "tiny.tflite"
    name = "block/" * 60
    file.write_bytes(packed(float_model(names=(name, "y"))))
    assert any(name in line for line in lines_of(file))


def test_per_channel_scales_are_shown_as_a_range(tmp_path):
    model = int8_model()
    tensor_x = model.subgraphs[0].tensors[0]
    tensor_x.quantization.scale = [0.25, 0.5, 0.125, 1.0]
    tensor_x.quantization.zeroPoint = [0, 0, 0, 0]
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(model))
    assert any("0.125 to 1 (4 channels)" in line for line in lines_of(file))


def test_a_float_model_shows_no_scale_columns_and_its_float_operators(tmp_path):
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(float_model()))
    lines = lines_of(file)
    assert "computes on float  FULLY_CONNECTED" in lines
    assert not any("scale" in line for line in lines)
    assert "signature (none in the file: inputs and outputs of the first graph)" in lines


def test_the_oldest_runtime_is_shown_with_what_sets_it_and_what_is_unknown(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    y = graph.computed("y", (1, 4), "RELU", [x], "int8", scale=0.5)
    z = graph.computed("z", (1, 4), "Own\x07", [y], "int8", scale=0.5, version=2)
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(graph.model([x], [z])))
    lines = lines_of(file)
    said = "TensorFlow Lite 2.1.0 (RELU version 2 by its tensors, 1 in the file)"
    place = lines.index(f"oldest runtime     {said}")
    assert lines[place + 1] == "                   not known for Own\\u0007 version 2"


def test_the_oldest_runtime_is_known_of_a_tflite_only(tmp_path):
    write_saved_model(tmp_path / "net" / "1", meta_graph({"go": signature({}, {})}))
    assert inspect_model(tmp_path / "net").oldest_runtime is None
    assert "oldest runtime" not in inspect(tmp_path / "net")
