"""SavedModels of functions, whose inputs are declared."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Serve = Callable[..., dict[str, Any]]
# A shape, of float32; or a tuple of a shape, None for any, and a type.
Spec = list[int | None] | tuple[list[int | None] | None, Any]


def save(path: Path, serve: Serve, **specs: Spec) -> Path:
    """Write a SavedModel with the signature `serving_default`, which is `serve`.

    Variables and tables that a function closes over are saved with it.
    """
    return save_signatures(path, serving_default=(serve, specs))


def save_signatures(path: Path, **signatures: tuple[Serve, dict[str, Spec]]) -> Path:
    """Likewise several signatures, by their names."""
    import tensorflow as tf

    module = tf.Module()
    cells = (cell.cell_contents for serve, _ in signatures.values() for cell in _cells(serve))
    module.kept = [each for each in cells if hasattr(each, "_trackable_children")]
    concrete = {
        key: tf.function(serve, autograph=False).get_concrete_function(
            *(_tensor(name, spec) for name, spec in specs.items())
        )
        for key, (serve, specs) in signatures.items()
    }
    tf.saved_model.save(module, str(path), signatures=concrete)
    return path


def _cells(serve: Serve) -> Sequence[Any]:
    return serve.__closure__ or ()


def _tensor(name: str, spec: Spec) -> Any:
    import tensorflow as tf

    shape, *kind = spec if isinstance(spec, tuple) else (spec,)
    return tf.TensorSpec(shape, *kind, name=name)
