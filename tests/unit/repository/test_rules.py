"""The rules of docs/architecture.md, held against the code itself."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from loaded_modules import RUN, loaded_by
from places import ROOT

from edgeconv import plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

TENSORFLOW = {"tensorflow", "keras", "tf_keras", "tensorflow_model_optimization"}
# A unit imports those of the layers below its own, and nothing else.
LAYERS = (
    ("__main__", "pytest_plugin"),
    ("cli",),
    ("demo",),
    ("evidence",),
    ("gate", "building", "tuning"),
    ("measure", "embedding"),
    ("conversion",),
    ("training",),
    ("scanning", "verbs"),
    ("config", "quantize"),
    ("requests",),
    ("source", "tf", "reporting", "runtimes"),
    ("tflite", "data", "models"),
    ("processes",),
    ("store", "statistics"),
    ("types",),
    ("sandbox",),
    ("plugins",),
    ("errors", "progress"),
    ("escaping", ""),
)
LEVEL = {unit: level for level, units in enumerate(LAYERS) for unit in units}
MAX_FUNCTION_LINES = 60
# Not counting empty ones.
MAX_FILE_LINES = 350
# It is a program of its own, copied to where a model is to run, and so in one file.
SCRIPT = "runtimes/runner.py"
MAX_SCRIPT_LINES = 450


class Import(NamedTuple):
    """One imported module: where, and whether it is imported as soon as the file is."""

    where: str
    module: str
    at_once: bool


class Source(NamedTuple):
    """A file of the package, under its name in the package."""

    name: str
    module: str
    text: str
    tree: ast.Module


def sources() -> list[Source]:
    folders = {"": ROOT / "edgeconv", "models/": ROOT / "models"}
    found = []
    for prefix, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                # Generated.
                continue
            name = prefix + path.relative_to(folder).as_posix()
            parts = ["edgeconv", *Path(name).with_suffix("").parts]
            text = path.read_text(encoding="utf-8")
            module = ".".join(parts).removesuffix(".__init__")
            found.append(Source(name, module, text, ast.parse(text)))
    return found


SOURCES = sources()


def imports(source: Source) -> Iterator[Import]:
    """Every import; what only a type checker sees is not at once."""
    yield from _imports(source, source.tree, at_once=True)


def _imports(source: Source, node: ast.AST, *, at_once: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        where = f"{source.name}:{getattr(child, 'lineno', 0)}"
        for module in _imported(source, child):
            yield Import(where, module, at_once)
        later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        )
        yield from _imports(source, child, at_once=at_once and not later)


def _imported(source: Source, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert not node.level, f"{source.name}:{node.lineno}: a relative import"
    assert node.module is not None
    if node.module == "edgeconv":
        return [f"edgeconv.{alias.name}" for alias in node.names]
    return [node.module]


def unit(module: str) -> str:
    """The layer's entry that a module of edgeconv belongs to."""
    part = module.removeprefix("edgeconv").lstrip(".").split(".")[0]
    # Such as __version__, which is a name in edgeconv and no module.
    return part if part in LEVEL else ""


def test_every_module_has_its_place_in_the_layers():
    folder = ROOT / "edgeconv"
    units = {p.stem for p in folder.glob("*.py")} | {
        p.parent.name for p in folder.glob("*/__init__.py")
    }
    assert units - {"__init__"} | {"models", ""} == set(LEVEL)


def test_arrows_point_down_only():
    wrong = [
        f"{found.where} imports {found.module}"
        for source in SOURCES
        for found in imports(source)
        if found.module.startswith("edgeconv")
        and unit(found.module) != unit(source.module)
        and LEVEL[unit(found.module)] <= LEVEL[unit(source.module)]
        # The verbs, each imported when it is first asked for.
        and source.module != "edgeconv"
    ]
    assert wrong == []


def test_only_the_tensorflow_folder_and_the_models_import_tensorflow_and_inside_functions():
    wrong = [
        f"{found.where} imports {found.module}"
        for source in SOURCES
        for found in imports(source)
        if found.module.split(".")[0] in TENSORFLOW
        and source.name != SCRIPT
        and (found.at_once or not source.name.startswith(("tf/", "models/")))
    ]
    assert wrong == []


def test_the_tensorflow_folder_does_import_tensorflow():
    """Else the rule above would hold because nothing was looked at."""
    modules = {found.module for source in SOURCES for found in imports(source)}
    assert {"tensorflow", "tf_keras"} <= modules


def test_a_file_is_imported_without_any_runtime_or_quantiser():
    wrong = [
        f"{found.where} imports {found.module}"
        for source in SOURCES
        for found in imports(source)
        if found.at_once
        and found.module.split(".")[0] in {"ai_edge_litert", "ai_edge_quantizer", "tflite_runtime"}
    ]
    assert wrong == []


def test_extensions_never_import_each_other():
    tables = (
        plugins.SAMPLE_SOURCES,
        plugins.BASELINE_MODELS,
        plugins.EMBED_TARGETS,
        plugins.TRACKERS,
    )
    extensions = {module for table in tables for module in table.values()}
    by_module = {source.module: source for source in SOURCES}
    assert extensions <= set(by_module)
    for module in sorted(extensions):
        for found in imports(by_module[module]):
            assert found.module not in extensions - {module}, f"{found.where} {found.module}"


def test_the_runner_imports_nothing_but_the_standard_library_numpy_and_a_runtime():
    (runner,) = (source for source in SOURCES if source.name == SCRIPT)
    allowed = {"numpy", "ai_edge_litert", "tflite_runtime", "tensorflow"} | sys.stdlib_module_names
    assert {found.module.split(".")[0] for found in imports(runner)} <= allowed


PRINTING = {"print", "input", "exit", "quit", "breakpoint"}
PRINTING_ATTRIBUTES = {
    *("sys.exit", "sys.stdout", "sys.stderr", "os._exit", "os.abort"),
    *("click.echo", "click.secho", "rich.print", "logging.basicConfig"),
}
# A child of `start_task` ends itself once its answer is written; nobody else calls it.
ENDS_ITS_CHILD = {
    "processes/tasks.py": {"os._exit", "sys.stdout", "sys.stderr"},
    "sandbox/enter.py": {"sys.exit"},
}


def prints_or_exits(node: ast.AST) -> str:
    """How a piece of code prints or exits, nothing if it does neither."""
    if isinstance(node, ast.Name) and node.id in PRINTING:
        return node.id
    if isinstance(node, ast.Attribute) and ast.unparse(node) in PRINTING_ATTRIBUTES:
        return ast.unparse(node)
    if isinstance(node, ast.Raise) and node.exc and "SystemExit" in ast.unparse(node.exc):
        return "SystemExit"
    return ""


def test_only_the_command_line_prints_or_exits():
    wrong = [
        f"{source.name}:{node.lineno} {how}"
        for source in SOURCES
        if not source.name.startswith("cli/") and source.name != SCRIPT
        for node in ast.walk(source.tree)
        if (how := prints_or_exits(node)) and how not in ENDS_ITS_CHILD.get(source.name, ())
    ]
    assert wrong == []


WRITING = {
    *(PRINTING_ATTRIBUTES - {"sys.exit", "sys.stdout", "sys.stderr"}),
    *("print", "sys.__stdout__", "sys.__stderr__"),
    *("sys.stdout.write", "sys.stdout.buffer", "sys.stderr.write", "sys.stderr.buffer"),
}


def test_the_command_line_prints_through_one_file_which_escapes():
    wrong = [
        f"{source.name}:{node.lineno} {ast.unparse(node)}"
        for source in SOURCES
        if source.name.startswith("cli/") and source.name != "cli/printing.py"
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in WRITING
    ]
    assert wrong == []


def test_no_exception_is_caught_broadly():
    wrong = [
        f"{source.name}:{node.lineno}"
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException"} & {ast.unparse(part) for part in ast.walk(node.type)}
        )
    ]
    assert wrong == []


READS_TEXT = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count"),
    *("partition", "rpartition", "split", "splitlines"),
    *("search", "match", "fullmatch", "findall", "finditer", "sub"),
}


def reads_a_message(node: ast.AST) -> bool:
    """Whether a piece of code looks for words in the message of an error of edgeconv."""
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts = [node.func.value, *node.args] if node.func.attr in READS_TEXT else []
    else:
        parts = []
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "message")
        or ast.unparse(part) in {"str(error)", "str(failure)", "str(failed)"}
        for part in parts
    )


# Where the error of a tool is caught, and becomes one of ours with fields.
READS_TOOLS = {
    # A line or two of what a tool said are shown.
    *("evidence/signing.py", "tf/baseline.py", "tf/qat/flat.py"),
    *("tf/training/checkpoints.py", "tf/training/member.py"),
    # TensorFlow has no code for these.
    *("tf/keras_files.py", "tf/training/strategies.py"),
}


def test_nothing_is_decided_by_the_words_of_an_error():
    """A reason is a type or a field: who rewords a message must not change what is done."""
    wrong = {
        f"{source.name}:{node.lineno} {ast.unparse(node)}"
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Compare, ast.Call)) and reads_a_message(node)
        if source.name not in {*READS_TOOLS, "errors.py"}
    }
    assert wrong == set()


def test_files_and_functions_are_small():
    sizes = {
        source.name: len([line for line in source.text.splitlines() if line.strip()])
        for source in SOURCES
    }
    assert sizes.pop(SCRIPT) <= MAX_SCRIPT_LINES
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}
    lengths = {
        f"{source.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: size for name, size in lengths.items() if size > MAX_FUNCTION_LINES} == {}


def test_every_folder_of_code_is_in_the_package():
    """Else it works from the checkout, and not once it is installed."""
    packages = {source.module.rpartition(".")[0] for source in SOURCES} - {""}
    assert set(project_settings()["tool"]["setuptools"]["packages"]) == packages


def project_settings() -> dict[str, Any]:
    """What pyproject.toml says."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# What a user installs by name, when an error says so; a baseline model's are in its own hint.
EXTRAS = {"keras_hub", "mlflow", "pytest", "tflite_runtime"}
# The extra `sign`, and what comes with it.
EXTRAS |= {"model_signing", "OpenSSL", "cryptography", "sigstore"}
# Modules that come with the distribution that is named.
COME_WITH = {"keras": "tensorflow", "google": "protobuf", "markupsafe": "jinja2"}


def test_everything_imported_is_a_plain_dependency():
    """Else a feature of the README is missing after its first command."""
    distributions = importlib.metadata.packages_distributions()
    names = {imported.module.partition(".")[0] for s in SOURCES for imported in imports(s)}
    foreign = names - {"edgeconv", "tomllib", "tomli"} - set(sys.stdlib_module_names) - EXTRAS
    needed = {name: COME_WITH.get(name) or distributions[name][0] for name in foreign}
    declared = {
        re.split(r"[<>=;\[ ]", text)[0] for text in project_settings()["project"]["dependencies"]
    }
    assert {n: d for n, d in needed.items() if d.lower().replace("_", "-") not in declared} == {}


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("import edgeconv", []),
        ("import edgeconv.cli", []),
        (RUN, ["--help"]),
        (RUN, ["--version"]),
        *(
            (RUN, [command, "--help"])
            for command in (
                *("convert", "bench", "inspect", "demo", "doctor"),
                *("report", "compare", "visualize", "embed", "cmake-dir", "tune"),
                "verify",
            )
        ),
    ],
)
def test_nothing_heavy_is_loaded_by(code, arguments):
    assert loaded_by(code, *arguments) == set()


def test_the_look_at_loaded_modules_sees_what_is_loaded():
    assert loaded_by("import numpy") == {"numpy"}


def test_the_verbs_are_found_in_the_package_and_load_no_tensorflow():
    code = "import edgeconv; [getattr(edgeconv, name) for name in edgeconv.__all__]"
    assert not loaded_by(code) & {"tensorflow", "keras", "tf_keras", "ai_edge_litert"}
    with pytest.raises(AttributeError, match="has no attribute 'convrt'"):
        _ = __import__("edgeconv").convrt
