"""The user's own Keras classes: which a file needs, where they are, and who may have them run."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import pytest
from tiny_saved_model import write_plain
from wording import fails

from edgeconv.cli.verbs import convert
from edgeconv.conversion.plan import make_plan
from edgeconv.conversion.run import Run
from edgeconv.data.code import custom_hash, find_custom
from edgeconv.embedding.build import inputs
from edgeconv.model.source import code_files, identify, inspect_model, load_to_run, opening_key
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.processes.sandbox import Access, policy
from edgeconv.system.processes.workers import Child
from edgeconv.system.store import Cache
from edgeconv.types import Execution, Opening
from edgeconv.types.errors import InputRefused, UsageError


def built_in(name: str, **config: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": name, "config": config, "registered_name": None}


POOL = {
    "module": "my_layers",
    "class_name": "AttentionPool",
    "config": {"inner": built_in("Dense")},
    "registered_name": "mine>AttentionPool",
}
SWISH = {
    "module": "builtins",
    "class_name": "function",
    "config": "my_swish",
    "registered_name": "function",
}


def keras_file(path: Path, *layers: dict[str, Any], version: str = "3.15.1") -> Path:
    config = {"class_name": "Functional", "module": "keras", "config": {"layers": list(layers)}}
    # What the optimizer was is nobody's concern.
    config["compile_config"] = {"optimizer": {"class_name": "MyAdam", "config": {}}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": version}))
    return path


def hdf5_file(path: Path, *layers: dict[str, Any]) -> Path:
    config = {"class_name": "Sequential", "config": {"layers": list(layers)}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.4.0"
    return path


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def module(here) -> Path:
    """A module that must not be imported by anybody who only looks for it."""
    path = here / "my_layers.py"
    path.write_text("raise SystemExit('imported')\n", encoding="utf-8")
    return path


def unknown(path: Path) -> tuple[str, ...]:
    return inspect_model(path).unknown_classes


# Which classes are unknown


def test_a_file_of_keras_s_own_layers_has_no_unknown_class(tmp_path):
    layers = [built_in("Dense", activation="relu"), built_in("Conv2D")]
    assert unknown(keras_file(tmp_path / "m.keras", *layers)) == ()
    old = [{"class_name": "Dense", "config": {"activation": "softmax"}}]
    assert unknown(hdf5_file(tmp_path / "m.h5", *old)) == ()


def test_classes_and_functions_that_keras_does_not_have_are_named_however_deep(tmp_path):
    inside = built_in("TimeDistributed", layer=built_in("Dense", activation=SWISH))
    assert unknown(keras_file(tmp_path / "m.keras", inside, built_in("Dense", layer=POOL))) == (
        "mine>AttentionPool",
        "my_swish",
    )


def test_old_files_name_a_class_and_an_activation_without_a_module(tmp_path):
    layers = [
        {"class_name": "AttentionPool", "config": {}},
        {"class_name": "Dense", "config": {"activation": "my_swish"}},
    ]
    assert unknown(hdf5_file(tmp_path / "m.h5", *layers)) == ("AttentionPool", "my_swish")


def test_a_layer_of_keras_hub_is_known_where_that_is_installed(tmp_path):
    for package, names in (("keras_hub", ()), ("keras_cv", ("keras_cv>Block",))):
        layer = {
            "module": f"{package}.src.block",
            "class_name": "Block",
            "config": {},
            "registered_name": f"{package}>Block",
        }
        assert unknown(keras_file(tmp_path / "m.keras", layer)) == names


def test_a_class_that_tf_keras_would_import_by_itself_is_known(tmp_path):
    layer = {"module": "h5py", "class_name": "File", "config": {}, "registered_name": "File"}
    assert unknown(keras_file(tmp_path / "two.keras", layer, version="2.21.0")) == ()
    assert unknown(keras_file(tmp_path / "three.keras", layer)) == ("File",)


def test_a_model_with_unknown_classes_is_refused_before_tensorflow_with_two_ways_out(tmp_path):
    file = keras_file(tmp_path / "m.keras", POOL)
    with fails(InputRefused):
        load_to_run(file)


def test_with_their_module_it_is_not_refused(tmp_path, module):
    file = keras_file(tmp_path / "m.keras", POOL)
    opening = Opening(custom_objects=("my_layers",))
    model = load_to_run(file, opening, allow_code=True)
    assert model.opening.custom_objects == ("my_layers",)
    assert model.opening.directory == str(tmp_path)


# Where the modules are


def test_a_module_is_found_by_its_dotted_name_or_its_path_and_not_imported(here, module):
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").write_text("raise SystemExit\n", encoding="utf-8")
    (here / "pkg" / "inner.py").write_text("", encoding="utf-8")
    for text, name, file in (
        ("my_layers", "my_layers", module),
        ("my_layers:AttentionPool", "my_layers", module),
        ("./my_layers.py:AttentionPool", "my_layers", module),
        (str(module), "my_layers", module),
        ("pkg.inner:A.B", "pkg.inner", here / "pkg" / "inner.py"),
        ("pkg", "pkg", here / "pkg" / "__init__.py"),
        # A file of a package is imported as part of it.
        ("pkg/inner.py", "pkg.inner", here / "pkg" / "inner.py"),
    ):
        found = find_custom(text, str(here))
        assert (found.module, found.file, found.root) == (name, file, here), text


@pytest.mark.parametrize(
    "text", ["my_layer", "./other.py", "my_layers:", ":Pool", "", "my layers", "my_layers:a b"]
)
def test_what_names_no_module_is_refused(text, here, module):
    with fails((InputRefused, UsageError)):
        find_custom(text, str(here))


def test_a_file_whose_name_python_cannot_import_is_refused_with_a_name(here):
    (here / "my-layers.py").write_text("", encoding="utf-8")
    with fails(InputRefused):
        find_custom("./my-layers.py", str(here))


def test_the_hash_is_of_the_module_and_of_what_it_imports_beside_it(here):
    (here / "my_layers.py").write_text("import numpy\nfrom parts import base\n", encoding="utf-8")
    (here / "parts").mkdir()
    (here / "parts" / "__init__.py").write_text("", encoding="utf-8")
    (here / "parts" / "base.py").write_text("from . import deep\n", encoding="utf-8")
    (here / "parts" / "deep.py").write_text("A = 1\n", encoding="utf-8")
    (here / "other.py").write_text("", encoding="utf-8")

    def now() -> str:
        return custom_hash([find_custom("my_layers", str(here))])

    before = now()
    (here / "other.py").write_text("changed = 1\n", encoding="utf-8")
    assert now() == before
    (here / "parts" / "deep.py").write_text("A = 2\n", encoding="utf-8")
    assert now() != before


def test_the_name_in_the_module_is_part_of_the_hash(here, module):
    one, two = (find_custom(f"my_layers:{name}", str(here)) for name in "AB")
    assert custom_hash([one]) != custom_hash([two])


# Plans and their keys


def plan(file: Path, *custom: str, allow_code: bool = True) -> Any:
    opening = Opening(custom_objects=custom)
    recipes = make_recipes(["float32"])
    return make_plan(
        ConvertRequest(
            model=str(file),
            directory="out",
            to=recipes,
            opening=opening,
            execution=Execution(allow_code=allow_code),
        )
    )


def test_an_edited_layer_is_converted_anew(here, module):
    file = keras_file(here / "m.keras", POOL)
    before = plan(file, "my_layers")
    assert plan(file, "my_layers").float_key == before.float_key
    assert plan(file).float_key != before.float_key
    module.write_text("changed = 1\n", encoding="utf-8")
    assert plan(file, "my_layers").float_key != before.float_key
    with fails(InputRefused):
        Run(before, Cache(None), Execution(), here, print).keep("stage", "key", {})


def test_the_key_does_not_depend_on_where_the_module_is(here, module):
    file = keras_file(here / "m.keras", POOL)
    moved = here / "elsewhere"
    moved.mkdir()
    (moved / module.name).write_bytes(module.read_bytes())
    keys = [plan(file, text).float_key for text in ("my_layers", "elsewhere/my_layers.py")]
    assert keys[0] == keys[1]


def test_a_module_that_was_not_allowed_to_run_is_refused(here, module):
    file = keras_file(here / "m.keras", POOL)
    with fails(UsageError):
        plan(file, "my_layers", allow_code=False)


def test_a_model_that_has_no_layers_takes_no_custom_objects(here, module):
    opening = Opening(custom_objects=("my_layers",))
    with fails(UsageError):
        identify(write_plain(here / "model"), opening, allow_code=True)


def test_a_keras_file_takes_no_tags(here):
    with fails(UsageError):
        identify(keras_file(here / "m.keras"), Opening(tags=("serve",)))


def test_tags_are_part_of_the_key_in_any_order(tmp_path):
    model = write_plain(tmp_path / "model")
    plain, one, other = (
        opening_key(identify(model, Opening(tags=tags))) for tags in ((), ("a", "b"), ("b", "a"))
    )
    assert one == other != plain


# A build


def test_a_build_looks_at_the_module_and_at_what_it_imports_and_at_none_that_is_not_there(here):
    (here / "my_layers.py").write_text("import parts\n", encoding="utf-8")
    (here / "parts.py").write_text("", encoding="utf-8")
    words = ["m.keras", "--to", "float32", "--custom-objects", "my_layers:Pool"]
    context = convert.make_context("convert", [*words, "--custom-objects", "gone"])
    roots = inputs(*context.obj.request.inputs()).roots
    assert roots == tuple(here / name for name in ("m.keras", "my_layers.py", "parts.py"))


IMPORTS = """
import sys
from pathlib import Path
from edgeconv.tf.custom_objects import custom_objects
from edgeconv.types import Opening

here = sys.argv[1]
found = custom_objects(Opening(custom_objects=tuple(sys.argv[2:]), directory=here), ())
assert sorted(found) == ["Own", "Scale", "inner"], found
for name in ("secret.txt", "other.py"):
    try:
        Path(here, name).read_text()
    except PermissionError:
        continue
    sys.exit(f"it read {name}")
"""


@pytest.mark.skipif(policy.available().kind == "none", reason="no sandbox here")
def test_a_child_reads_the_modules_that_are_named_and_nothing_beside_them(here):
    (here / "secret.txt").write_text("secret")
    (here / "other.py").write_text("")
    (here / "beside.py").write_text("class Base: pass")
    (here / "my_layers.py").write_text(
        "import beside\nclass Own(beside.Base): pass\nclass Scale: pass"
    )
    (here / "package" / "deep").mkdir(parents=True)
    (here / "package" / "deep" / "__init__.py").touch()
    (here / "package" / "__init__.py").write_text("from package.deep import layers")
    (here / "package" / "deep" / "layers.py").write_text(
        "from pathlib import Path\n"
        "Path(__file__).with_name('words.txt').read_text()\ndef inner(): pass"
    )
    (here / "package" / "deep" / "words.txt").write_text("one")
    named = ("my_layers", "./package/deep/layers.py:inner")
    opening = Opening(custom_objects=named, directory=str(here))
    assert {*code_files(opening)} == {here / n for n in ("my_layers.py", "beside.py", "package")}
    child = here / "child"
    child.mkdir()
    (child / "code.py").write_text(IMPORTS)
    command = [sys.executable, str(child / "code.py"), str(here), *named]
    Child(command, label="it", cwd=child, access=Access(reads=code_files(opening))).wait()
