"""The rules of docs/architecture.md, held against the code itself."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache

import pytest
from loaded_modules import HEAVY, IDLE, QUANTIZER_PACKAGES, RUN, loaded_by
from package_sources import SOURCES, Import, Source, imports

from edgeconv import plugins

TENSORFLOW = {"tensorflow", "keras", "tf_keras", "tensorflow_model_optimization"}
# It imports them at their first use.
LAZY = "edgeconv.tf.lazy"
# It is a program of its own, copied to where a model is to run, and so in one file.
SCRIPT = "runtimes/runner.py"


def test_only_the_tensorflow_folder_and_the_models_import_tensorflow_and_inside_functions():
    wrong = [
        f"{found.where} imports {found.module}"
        for source in SOURCES
        for found in imports(source)
        if (
            found.module.split(".")[0] in TENSORFLOW
            and source.name != SCRIPT
            and (found.at_once or not source.name.startswith(("tf/", "models/")))
        )
        or (found.module.startswith(LAZY) and not source.name.startswith("tf/"))
    ]
    assert wrong == []


def test_an_interpreter_is_opened_in_one_place_and_in_the_runner():
    opens = {
        source.name
        for source in SOURCES
        for found in imports(source)
        if found.module.startswith(("ai_edge_litert.interpreter", "tflite_runtime"))
        and not _is_for_types(source, found)
    }
    assert opens == {SCRIPT, "runtimes/in_process.py"}


def _is_for_types(source: Source, found: Import) -> bool:
    """Whether an import stands behind `if TYPE_CHECKING`."""
    line = int(found.where.rpartition(":")[2])
    return any(
        isinstance(node, ast.If)
        and ast.unparse(node.test) == "TYPE_CHECKING"
        and node.lineno < line <= (node.end_lineno or 0)
        for node in source.tree.body
    )


# What the standard library of Python 3.10, the oldest that is supported, does not have.
YOUNGER = {
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"StrEnum"},
    "hashlib": {"file_digest"},
    "typing": {"LiteralString", "Never", "NotRequired", "Required", "Self", "Unpack", "override"},
}


def test_what_is_imported_is_in_the_oldest_python():
    wrong = []
    for source in SOURCES:
        run = {found.where for found in imports(source) if found.is_run}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and f"{source.name}:{node.lineno}" in run:
                names = {each.name for each in node.names} & YOUNGER.get(node.module or "", set())
                wrong += [f"{source.name}:{node.lineno} imports {name}" for name in names]
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
        and found.module.split(".")[0] in QUANTIZER_PACKAGES | {"ai_edge_litert", "tflite_runtime"}
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
# Programs that run in a child, and are called by nobody else.
ENDS_ITS_CHILD = {
    "system/processes/tasks.py": {"os._exit", "sys.stdout", "sys.stderr"},
    "system/processes/failures.py": {"sys.stderr"},
    "system/processes/sandbox/enter.py": {"sys.exit"},
    "plugins/devices/web_runner.py": {"sys.stderr"},
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


def test_only_the_command_line_knows_click():
    wrong = [
        f"{found.where} imports {found.module}"
        for source in SOURCES
        for found in imports(source)
        if found.module.split(".")[0] == "click" and not source.name.startswith("cli/")
    ]
    assert wrong == []


ANYTHING = {"Exception", "BaseException"}
# What a mistake of ours raises.
MISTAKES = {"AssertionError", "AttributeError", "IndexError", "KeyError", "LookupError"}
MISTAKES |= {"NameError", "TypeError"}
# Functions, each with why no single foreign call can be named.
BROAD = {
    "data/code.py::__exit__": "code of a user's may raise anything",
    "tf/lean.py::__exit__": "TensorFlow's converter raises Exception itself, from C++",
    "data/kinds/images.py::opened_image": "Pillow decodes in the caller's block",
    "data/kinds/parquet.py::_parquet_file": "pyarrow decodes in the caller's block",
    "model/source/scanning/keras_files.py::_scan_hdf5": "h5py raises where a file is damaged",
    "model/source/keras_files.py::_count_in": "h5py raises at any access to a damaged file",
    "model/source/keras_files.py::read_hdf5_here": "h5py raises at any access to a damaged file",
    "models/archives.py::unpickled_arrays": "a damaged pickle may raise anything",
    "plugins/scale/cluster.py::_start": "Ray raises Exception itself",
    "runtimes/runner.py::answer": "what an old runtime raises is not known",
}
BY_MODULE = {source.module: source for source in SOURCES}


@cache
def assigned(module: str) -> dict[str, ast.expr]:
    """What the names of a module are assigned; nothing where it is not in the package."""
    tree = BY_MODULE[module].tree if module in BY_MODULE else ast.Module([], [])
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


@cache
def imported_by(module: str) -> dict[str, str]:
    """The names that a module has from others of the package, and from which."""
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(BY_MODULE[module].tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("edgeconv")
        # Made by protoc, or TensorFlow and Keras themselves.
        and not (node.module or "").endswith(("_pb2", "tf.lazy"))
        for alias in node.names
    }


def kinds(module: str, node: ast.AST | None) -> set[str]:
    """The names of the types in an except clause, those of named tuples of them included."""
    if node is None:
        return ANYTHING
    found = set()
    for name in (part.id for part in ast.walk(node) if isinstance(part, ast.Name)):
        home = module if name in assigned(module) else imported_by(module).get(name, "")
        value = assigned(home).get(name)
        found |= kinds(home, value) if isinstance(value, ast.Tuple) else {name}
    return found


def is_broad(module: str, clause: ast.AST | None) -> bool:
    """Whether an except clause takes what a mistake of ours would raise."""
    caught = kinds(module, clause)
    return bool(ANYTHING & caught) or len(MISTAKES & caught) > 1


def calls_ours(source: Source, body: Iterable[ast.AST]) -> bool:
    """Whether statements run code of edgeconv, but to raise."""
    ours = {*imported_by(source.module)} | {
        node.name
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }

    def is_ours(function: ast.expr) -> bool:
        name = ast.unparse(function).removeprefix("self.").partition("(")[0]
        return name in ours or name.partition(".")[0] in imported_by(source.module)

    return any(
        (isinstance(node, ast.Call) and is_ours(node.func))
        or (not isinstance(node, ast.Raise) and calls_ours(source, ast.iter_child_nodes(node)))
        for node in body
    )


def blocks_of(source: Source, context: str) -> Iterator[ast.stmt]:
    """What stands in the blocks of a module's own context manager."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.With) and any(
            ast.unparse(item.context_expr).startswith(f"{context}(") for item in node.items
        ):
            yield from node.body


def caught_broadly(source: Source) -> Iterator[str]:
    """The functions in which a mistake of ours would become another error."""
    contexts = {
        each: node.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef)
        for each in ast.walk(node)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Try):
            gives_way = any(
                isinstance(each, ast.Yield) for one in node.body for each in ast.walk(one)
            )
            body = [*node.body, *(blocks_of(source, contexts[node]) if gives_way else ())]
            for handler in node.handlers:
                if ANYTHING & kinds(source.module, handler.type) or (
                    is_broad(source.module, handler.type) and calls_ours(source, body)
                ):
                    yield contexts[node]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            if any(is_broad(source.module, each) for each in node.args):
                yield contexts[node]
        elif isinstance(node, ast.FunctionDef) and node.name == "__exit__":
            # A context that looks at what was raised in its block.
            error = [each.arg for each in node.args.args[1:]]
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if used & {*error}:
                yield node.name


def test_no_exception_is_caught_broadly():
    """Foreign exceptions are caught around the foreign call: a mistake of ours stays one."""
    broad = {f"{source.name}::{name}" for source in SOURCES for name in caught_broadly(source)}
    assert broad == BROAD.keys()


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("import edgeconv", []),
        ("import edgeconv.cli", []),
        ("import edgeconv.gate.check, edgeconv.reporting.verdicts.terminal", []),
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
    modules = HEAVY if arguments == ["--version"] else IDLE
    assert loaded_by(code, *arguments, of=modules) == set()


def test_the_look_at_loaded_modules_sees_what_is_loaded():
    assert loaded_by("import numpy") == {"numpy"}


def test_a_verb_and_a_value_are_found_in_the_package_without_click():
    code = (
        "sys.modules['click'] = None; import edgeconv; "
        "from inspect import signature; "
        "[str(signature(getattr(edgeconv, name))) for name in edgeconv.__all__]; "
        "assert {'Measuring', 'Budget', 'EdgeconvError'} <= set(dir(edgeconv)); "
        "[getattr(edgeconv, name) for name in dir(edgeconv)]"
    )
    assert not loaded_by(code) & {"tensorflow", "keras", "tf_keras", "ai_edge_litert"}
