"""The list of Keras's own names, held against the Keras versions that are installed."""

import inspect
import os
import textwrap
from pathlib import Path

from edgeconv.model.source import keras_names

_HEAD = '''"""The names that Keras 3 and tf_keras give a meaning to in the configuration of a model.

tests/integration/test_keras_names.py writes the list, and holds it against the installed ones.
"""

# A list of this length is read better as text.
# ruff: noqa: SIM905

KERAS_NAMES = frozenset(
    (
'''


def names_of_keras_3() -> set[str]:
    from keras.src import activations, constraints, initializers, layers, regularizers

    names = {name for name, value in vars(layers).items() if inspect.isclass(value)}
    for module in (activations, constraints, initializers, regularizers):
        names |= set(module.ALL_OBJECTS_DICT)
    # The models, which are looked up among the layers.
    return names | {"Functional", "Model", "Sequential"}


def names_of_tf_keras() -> set[str]:
    from tf_keras.src import activations, constraints, initializers, regularizers
    from tf_keras.src.layers import serialization

    serialization.populate_deserializable_objects()
    initializers.populate_deserializable_objects()
    names = {*serialization.LOCAL.ALL_OBJECTS, *initializers.LOCAL.ALL_OBJECTS}
    for module in (activations, constraints, regularizers):
        names |= {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        }
    return names - {"deserialize", "get", "serialize", "keras_export"}


def test_the_list_has_every_name_that_the_installed_keras_versions_know():
    known = names_of_keras_3() | names_of_tf_keras()
    path = Path(keras_names.__file__)
    if os.environ.get("EDGECONV_WRITE_GOLDEN"):
        lines = textwrap.wrap(" ".join(sorted(known)), 86, break_on_hyphens=False)
        body = "".join(f'        "{line} "\n' for line in lines)
        path.write_text(f"{_HEAD}{body}    ).split()\n)\n", encoding="utf-8")
        return
    assert known == keras_names.KERAS_NAMES, sorted(known ^ keras_names.KERAS_NAMES)
