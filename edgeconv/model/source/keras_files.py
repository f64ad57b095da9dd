"""The content of a Keras file, read from its JSON config without building layers."""

import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from edgeconv.model.source.keras_names import is_usable, unknown_classes
from edgeconv.model.source.keras_signature import (
    built_for,
    declared_signature,
    layers_of,
    never_called,
)
from edgeconv.model.source.kinds import unreadable
from edgeconv.system.processes.failures import blames_input
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, OperatorCount, Signature
from edgeconv.types.errors import (
    EdgeconvError,
    InputRefused,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

_WEIGHTS = "model.weights.h5"
_MAX_CONFIG_BYTES = 2**27
_ALLOWANCE = Allowance(timeout_s=30.0, memory_bytes=2**32)
# All that zipfile raises on a damaged, encrypted or oddly compressed member.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
# All that h5py raised on damaged files, by mutation tests.
HDF5_ERRORS = (KeyError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
# A Lambda layer's function is stored as Python bytecode, and loading the file runs it.
_CODE_LAYER = "Lambda"


class KerasReadJob(msgspec.Struct, frozen=True, kw_only=True):
    """The file to read, and whether to count the weights of an archive."""

    path: str
    count: bool = False


class KerasContent(msgspec.Struct, frozen=True, kw_only=True):
    """A Keras model's layers, counted by class, with notes.

    `signature` is what the config declares; it and the numbers are None if unknown. `unknown` names
    the classes and functions that are not Keras's own.
    """

    layers: tuple[OperatorCount, ...]
    notes: tuple[str, ...]
    signature: Signature | None = None
    never_called: bool = False
    unusable_names: tuple[str, ...] = ()
    parameters: int | None = None
    unknown: tuple[str, ...] = ()


def read_keras(path: Path, *, count: bool = False) -> KerasContent:
    """The content of a .keras archive; its parameters only with `count`, which takes longer.

    A child process reads it: a hostile configuration can take any time and memory. Raises
    `InputRefused` for an archive without a model.
    """
    return _in_child(
        read_archive_here, KerasReadJob(path=str(path), count=count), "a Keras archive"
    )


def read_hdf5(path: Path) -> KerasContent:
    """The content of a Keras HDF5 file. Raises `InputRefused` for a file without a model.

    A child process reads it: on damaged files the HDF5 library can loop forever, even on Ctrl-C.
    """
    return _in_child(read_hdf5_here, KerasReadJob(path=str(path)), "an HDF5 file")


def _in_child(
    function: Callable[[KerasReadJob], KerasContent], job: KerasReadJob, what: str
) -> KerasContent:
    with scratch_directory() as scratch:
        task = start_task(
            function,
            job,
            label="reading a Keras file",
            scratch=scratch,
            access=Access(reads=(Path(job.path),)),
            allowance=_ALLOWANCE,
        )
        try:
            with task:
                return task.result()
        except (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory) as error:
            if not blames_input(error):
                raise
            raise damaged(Path(job.path), what, error) from error


def read_archive_here(job: KerasReadJob) -> KerasContent:
    """`read_keras`, in this process."""
    path = Path(job.path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            config = _member(archive, "config.json") if "config.json" in names else None
            metadata = _member(archive, "metadata.json") if "metadata.json" in names else b"{}"
            count = _count_in(path, archive) if job.count and _WEIGHTS in names else None
    except ZIP_ERRORS as error:
        raise damaged(path, "a zip archive", error) from error
    if config is None:
        raise InputRefused(
            f"{path} is a zip archive without a config.json, not a Keras model",
            hint="save the whole model with model.save('NAME.keras')",
        )
    version = decoded(path, "metadata.json", metadata).get("keras_version")
    return content_of(decoded(path, "config.json", config), version, count, is_zip=True)


def _count_in(path: Path, archive: zipfile.ZipFile) -> int | None:
    try:
        # Keras stores them uncompressed, so they are read in place.
        with archive.open(_WEIGHTS) as file:
            return _parameters_in(file)
    except (*ZIP_ERRORS, *HDF5_ERRORS) as error:
        raise damaged(path, f"an archive with a {_WEIGHTS}", error) from error


def read_hdf5_here(job: KerasReadJob) -> KerasContent:
    """`read_hdf5`, in this process."""
    import h5py

    path = Path(job.path)
    try:
        with h5py.File(path, "r") as file:
            config, version = file.attrs.get("model_config"), file.attrs.get("keras_version")
        count = _parameters_in(path)
    except HDF5_ERRORS as error:
        raise damaged(path, "an HDF5 file", error) from error
    if config is None:
        raise without_model(path)
    return content_of(decoded(path, "model_config", config), version, count, is_zip=False)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    size_bytes = max(info.file_size, info.compress_size)
    if size_bytes > _MAX_CONFIG_BYTES:
        raise zipfile.BadZipFile(f"its {name} claims {size_bytes} bytes")
    return archive.read(name)


def without_model(path: Path) -> InputRefused:
    """The refusal of an HDF5 file without a model."""
    return InputRefused(
        f"{path} holds no model, only weights at most: it has no model_config",
        hint="build the model in code, load_weights() this file into it, and save the whole "
        "model with model.save('NAME.keras')",
    )


def damaged(path: Path, what: str, error: Exception) -> InputRefused:
    """The refusal of a file with unreadable content, or what the machine refused meanwhile."""
    if isinstance(error, OSError) and error.errno:
        return unreadable(path, error)
    reason = error.message if isinstance(error, EdgeconvError) else str(error)
    return InputRefused(
        f"{path} cannot be read as {what}: {reason}",
        hint="copy or save the model again; it may be truncated",
    )


def decoded(path: Path, name: str, raw: Any) -> dict[str, Any]:
    """The JSON object in `raw`, bytes or str."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    # A TypeError is an HDF5 attribute of another type, a RecursionError hostile nesting.
    except (msgspec.DecodeError, TypeError, RecursionError, UnicodeError) as error:
        raise InputRefused(
            f"{path} holds no Keras model: its {name} is not a JSON object ({error})",
            hint="save the model again",
        ) from error


def content_of(
    config: dict[str, Any], version: Any, parameters: int | None, *, is_zip: bool
) -> KerasContent:
    """The content of a configuration; `version` is the version of Keras in the file."""
    nodes = list(_layer_nodes(config))
    counts = Counter(str(node["class_name"]) for node in nodes)
    layers = tuple(
        OperatorCount(name=name, version=0, count=count) for name, count in sorted(counts.items())
    )
    signature = declared_signature(config)
    notes = list(_notes(counts, version))
    if signature is None:
        notes.append(_why_undeclared(config))
    # tf_keras loads its own .keras files, and imports what they name.
    imports_any = is_zip and isinstance(version, str) and version.startswith("2.")
    return KerasContent(
        layers=layers,
        notes=tuple(notes),
        unknown=unknown_classes(config, imports_any=imports_any),
        signature=signature,
        never_called=never_called(config),
        unusable_names=tuple(
            name for name in map(_name_of, nodes) if not is_usable(name, has_weights=False)
        ),
        parameters=parameters,
    )


def _why_undeclared(config: dict[str, Any]) -> str:
    if never_called(config):
        return "it was never called, so it has no input, and cannot be converted"
    if layers_of(config):
        return "its config does not have the shapes of its inputs"
    built = built_for(config)
    shape = f"; it was called with shape {msgspec.json.encode(built).decode()}" if built else ""
    return f"a subclassed model: its inputs and outputs are known once it is loaded{shape}"


def _name_of(node: dict[str, Any]) -> str:
    settings = node.get("config")
    return str(settings.get("name") or "") if isinstance(settings, dict) else ""


def _layer_nodes(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every layer with its class, also in nested models and wrappers."""
    waiting: list[Any] = [config]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        settings = node.get("config")
        # A Sequential model of early Keras is its bare list of layers.
        nested = settings if isinstance(settings, list) else _nested(settings)
        if "class_name" in node and not isinstance(nested, list):
            yield node
            waiting.append(nested)
        elif isinstance(nested, list):
            waiting += nested


def _nested(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return None
    return settings.get("layers", settings.get("layer"))


def _notes(counts: Counter[str], version: Any) -> Iterator[str]:
    if isinstance(version, bytes):
        version = version.decode("utf-8", "replace")
    if isinstance(version, str):
        yield f"saved by Keras {version}"
    if counts[_CODE_LAYER]:
        yield "has Lambda layers: loading it runs code that is stored in the file"


# The number of parameters in a Keras file, by the shapes of its weights.

# Keras stores them next to the weights of the model.
_NO_WEIGHTS = frozenset({"optimizer", "optimizer_weights", "seed_generator", "metrics"})
# Where an .h5 file has them, beside others.
_OF_MODEL = "model_weights/"


def _parameters_in(file: Path | IO[bytes]) -> int | None:
    """How many numbers the weights in an HDF5 file have, None without any.

    Raises h5py's errors for a damaged one.
    """
    import h5py

    sizes: dict[str, int] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and _NO_WEIGHTS.isdisjoint(name.split("/")):
            sizes[name] = math.prod(item.shape or ())

    with h5py.File(file, "r") as root:
        root.visititems(add)
    of_model = [size for name, size in sizes.items() if name.startswith(_OF_MODEL)]
    return sum(of_model or sizes.values()) or None
