"""The scan of Keras layers, and of .keras and HDF5 files: structure, then configuration.

A child process reads the files: on damaged ones the HDF5 library can loop forever or crash.
"""

import builtins
import itertools
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.model.source.keras_files import (
    HDF5_ERRORS,
    ZIP_ERRORS,
    damaged,
    decoded,
    without_model,
)
from edgeconv.model.source.keras_names import KERAS_NAMES, is_installed
from edgeconv.model.source.scanning.copying import write_archive, write_hdf5_model
from edgeconv.model.source.scanning.nodes import Findings
from edgeconv.system.processes.failures import blames_input, machine_error, no_room
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, ScanFinding
from edgeconv.types.errors import OutputRefused, WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut

# ruff: noqa: SIM905

RUNS_CODE = "loading it would run code from the file"
UNREADABLE_LAYERS = "layers that cannot be read"
QUANTIZED_BY_KERAS = "layers that Keras's quantize() made"
# Classes of Keras that call what the file names.
_CALLS = {
    "Lambda": RUNS_CODE,
    "__lambda__": RUNS_CODE,
    "TFOpLambda": "calls the function of TensorFlow that the file names",
    "SlicingOpLambda": "calls the function of TensorFlow that the file names",
    "TensorFlowOpLayer": "runs an operator that is in the file",
    "ClassMethod": "calls a method that the file names",
    "InstanceMethod": "calls a method that the file names",
    "InstanceProperty": "reads an attribute that the file names",
}
_CALLS_FUNCTION = ("TFOpLambda", "SlicingOpLambda")
_POLICIES = frozenset(
    "Policy PolicyV1 DTypePolicy DTypePolicyMap FloatDTypePolicy QuantizedDTypePolicy "
    "QuantizedFloat8DTypePolicy GPTQDTypePolicy AWQDTypePolicy LossScaleOptimizer".split()
)
# They stand for a value.
_VALUES = frozenset(
    "__tuple__ __numpy__ __tensor__ __bytes__ __ellipsis__ __slice__ __keras_tensor__ __none__ "
    "TensorShape TypeSpec CompositeTensor".split()
)
_SPEC = re.compile(r"tensorflow\.python\.(framework|ops\.ragged)\.\w+\.(Ragged|Sparse)?TensorSpec")
_OPERATIONS = re.compile(r"keras\.src\.ops\.(core|einops|image|linalg|math|nn|numpy)")
_KERAS = re.compile(r"(tf_)?keras(\..*)?")
# Keras imports these packages: their layers compute, but tokenizers read files.
_FAMILY = re.compile(r"keras_(hub|cv|nlp)(\..*)?")
_READS_FILES = re.compile(r".*(Tokenizer|Preprocessor|Converter)\w*")
# Keys whose text is the name of a function or class.
_NAMED_BY_KEY = re.compile(r".*(activation|initializer|regularizer|constraint)")
# A field of the wrappers of cells, which make a function of bytecode where it says "lambda".
_TYPE_OF_FUNCTION = "_fn_type"
# Layers that Keras's applications and its FeatureSpace make, which are not among its layers.
_UNLISTED = frozenset("CustomScaleLayer LayerScale StochasticDepth TFDConcat TFDIdentity".split())
_NAMES = (KERAS_NAMES | _UNLISTED | _POLICIES | _VALUES) - {"keras_export"}
_CLASS = re.compile(r"[A-Z]\w*")
_IMPORTED = "a loader would import the module that the file names, and call what is in it"
_LOOKED_UP = "Keras has nothing of this name, and a loader would take what it finds"
# Keys whose text is the name of a file, of layers and of columns of features.
_FILES = ("vocabulary", "vocabulary_file", "ckpt_to_load_from")
# Not read: a model is opened without its optimizer, losses and metrics.
_NOT_READ = ("compile_config", "training_config")
_MOST_CONFIG_OBJECTS = 2_000_000
# Functions of TensorFlow that compute: all in these modules, and these.
_PURE_MODULES = re.compile(
    r"(compat\.v1\.)?(math|nn|linalg|signal|strings|bitwise|random|image|sparse|ragged|"
    r"quantization|__operators__|__internal__\.nn)\.[\w.]+"
)
_IMPURE = re.compile(r".*\.(set_random_seed|set_seed|map_flat_values|map_values)")
_PURE = frozenset(
    "abs acos acosh add add_n argmax argmin argsort asin asinh atan atan2 atanh batch_to_space "
    "bitcast boolean_mask broadcast_to cast ceil clip_by_global_norm clip_by_norm clip_by_value "
    "complex concat constant convert_to_tensor cos cosh cumsum divide dynamic_partition "
    "dynamic_stitch edit_distance einsum ensure_shape equal exp expand_dims eye fill floor "
    "floordiv gather gather_nd greater greater_equal histogram_fixed_width identity identity_n "
    "is_tensor less less_equal linspace log logical_and logical_not logical_or matmul maximum "
    "meshgrid minimum mod multiply negative norm not_equal one_hot ones ones_like pad pow range "
    "rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum repeat reshape reverse reverse_sequence roll round saturate_cast "
    "scalar_mul scatter_nd searchsorted sequence_mask shape shape_n sigmoid sign sin sinh size "
    "slice sort space_to_batch space_to_batch_nd split sqrt square squeeze stack stop_gradient "
    "strided_slice subtract sum tan tanh tensor_scatter_nd_add tensor_scatter_nd_max "
    "tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile "
    "to_bfloat16 to_double to_float to_int32 to_int64 transpose truediv truncatediv truncatemod "
    "unique unique_with_counts unravel_index unsorted_segment_max unsorted_segment_mean "
    "unsorted_segment_min unsorted_segment_sum unstack where where_v2 zeros zeros_like "
    "floor_div depth_to_space space_to_depth squared_difference rsqrt to_complex64 erf lgamma "
    "arg_max arg_min extract_volume_patches".split()
)


def scan_config(
    config: Any,
    findings: Findings,
    known: frozenset[str],
    *,
    where: str,
    is_read: bool = True,
    has_graph: bool = False,
) -> None:
    """Scan every object of a configuration.

    `known` are the user's MODULE or MODULE:NAME. Without `is_read`, no loader reads it: findings
    are warnings. `has_graph`: a loader takes the graph for a name that Keras does not have.
    """
    _ConfigWalk(findings, known, has_graph).run(config, where, is_read)


class _ConfigWalk:
    def __init__(self, findings: Findings, known: frozenset[str], has_graph: bool) -> None:
        self._findings = findings
        self._has_graph = has_graph
        self._modules = frozenset(text.partition(":")[0] for text in known)

    def run(self, config: Any, where: str, is_read: bool) -> None:
        # A path, a value, and whether a loader reads it.
        waiting: list[tuple[str, Any, bool]] = [(where, config, is_read)]
        count = 0
        while waiting:
            path, node, is_read = waiting.pop()
            count += 1
            if count > _MOST_CONFIG_OBJECTS:
                what = f"more than {_MOST_CONFIG_OBJECTS} values"
                self._findings.add("structure", where, what, "takes all memory or time to read")
                return
            if isinstance(node, list):
                waiting += [(path, each, is_read) for each in node if isinstance(each, list | dict)]
            elif isinstance(node, dict):
                path = _path_of(path, node)
                self._look(path, node, is_read)
                # The function of a Lambda layer is no second finding.
                found = "config" if node.get("class_name") == "Lambda" else None
                waiting += [
                    (path, value, is_read and key not in _NOT_READ)
                    for key, value in node.items()
                    if isinstance(value, list | dict) and key != found
                ]

    def _look(self, path: str, node: dict[str, Any], is_read: bool) -> None:
        if "class_name" in node:
            self._object(path, node, is_read)
        for key, value in node.items():
            if key in _FILES and isinstance(value, str):
                why = "reads a file that the model names"
                self._findings.add("path", path, f"{key} {value!r}", why, is_error=is_read)
            elif key.endswith(_TYPE_OF_FUNCTION) and value == "lambda":
                what = f"{key} {value!r}"
                self._findings.add("function", path, what, RUNS_CODE, is_error=is_read)
            elif (
                isinstance(value, str)
                and _NAMED_BY_KEY.fullmatch(key)
                and value not in _NAMES
                and not self._modules
            ):
                self._unknown(path, value, _LOOKED_UP, is_error=is_read and not self._has_graph)

    def _object(self, path: str, node: dict[str, Any], is_read: bool) -> None:
        name, module, settings = (node.get(key) for key in ("class_name", "module", "config"))
        if not isinstance(name, str):
            self._unknown(path, str(name), _IMPORTED, is_error=is_read)
        elif name == "__typespec__":
            spec = f"{module}.{node.get('spec_name')}"
            if not _SPEC.fullmatch(spec) or node.get("registered_name") is not None:
                self._unknown(path, spec, _IMPORTED, is_error=is_read)
        elif name in _CALLS:
            function = settings.get("function") if isinstance(settings, dict) else None
            is_function = name in _CALLS_FUNCTION
            if not (is_function and isinstance(function, str) and _computes_only(function)):
                what = f"a {name} layer" + (f" of {function}" if is_function else "")
                self._findings.add("function", path, what, _CALLS[name], is_error=is_read)
        elif name not in _VALUES or module is not None:
            called = settings if name == "function" else name
            registered = node.get("registered_name")
            why = self._refusal(called, module, registered)
            # An optimizer or a loss of Keras itself is not a finding.
            is_plain = module is None or (isinstance(module, str) and _KERAS.fullmatch(module))
            if why and is_read and module == "keras.quantizers" and not registered:
                why = "they multiply integers, which TFLite's converter does not take"
                self._findings.add("class", path, QUANTIZED_BY_KERAS, why)
            elif why and (is_read or not is_plain):
                is_named = isinstance(registered, str) and ">" in registered
                shown = registered if is_named else called
                is_taken = why != _LOOKED_UP or not self._has_graph
                self._unknown(path, str(shown), why, is_error=is_read and is_taken)

    def _unknown(self, path: str, name: str, why: str, *, is_error: bool) -> None:
        what = f"{name!r}, which only the code that made the model knows"
        self._findings.add("class", path, what, why, is_error=is_error)

    def _refusal(self, name: Any, module: Any, registered: Any) -> str:
        """Why an object is refused, or ""."""
        own = (None, "", "function", name, f"keras>{name}", f"Keras>{name}", f"Custom>{name}")
        if not isinstance(name, str):
            return _IMPORTED
        is_keras = name in _NAMES and registered in own
        if module is None or module == "builtins":
            # Python's own builtins would be found; others are looked up by name.
            if module == "builtins" and hasattr(builtins, name):
                return _IMPORTED
            return "" if is_keras or self._modules else _LOOKED_UP
        if not isinstance(module, str):
            return _IMPORTED
        package = module.partition(".")[0]
        # The user's objects come first, then the module.
        if self._modules and (module in self._modules or not is_installed(package)):
            return ""
        if _KERAS.fullmatch(module) and is_keras:
            return ""
        if _OPERATIONS.fullmatch(module) and registered in own and _CLASS.fullmatch(name):
            return ""
        if _FAMILY.fullmatch(module) and not _READS_FILES.fullmatch(name):
            return ""
        return _IMPORTED


def _path_of(path: str, node: dict[str, Any]) -> str:
    settings = node.get("config")
    name = settings.get("name") if isinstance(settings, dict) else None
    if isinstance(name, str) and len(name) < 100 and len(path) < 200:
        return f"{path}/{name}"
    return path


def _computes_only(name: str) -> bool:
    """Whether a function of TensorFlow, as "math.sin", computes and does nothing else."""
    if name.removeprefix("compat.v1.") in _PURE:
        return True
    return _PURE_MODULES.fullmatch(name) is not None and _IMPURE.fullmatch(name) is None


_ALLOWANCE = Allowance(timeout_s=60.0, memory_bytes=2**32)
_CONFIGS = ("config.json", "metadata.json")
_MOST_CONFIG_BYTES = 2**27
_MOST_ENTRIES = 100_000
# Weights do not compress, texts do; this much is always allowed.
_MOST_RATIO = 100
_ALWAYS_BYTES = 2**28
_MOST_OBJECTS = 200_000
_HDF5 = b"\x89HDF\r\n\x1a\n"
_OUTSIDE = "puts the bytes of another file into the model"
_TAKES_ALL = "takes all memory or disk to read"


class KerasScanJob(msgspec.Struct, frozen=True, kw_only=True):
    """The file to scan; `known` are the user's MODULE or MODULE:NAME.

    `target` is where the model is written anew if nothing is found, "" for nowhere.
    """

    path: str
    is_archive: bool
    scratch: str
    known: tuple[str, ...] = ()
    target: str = ""


class KerasFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings in a file."""

    findings: tuple[ScanFinding, ...]


def scan_keras(
    path: Path, *, is_archive: bool, known: frozenset[str], target: Path | None = None
) -> tuple[ScanFinding, ...]:
    """The findings in a .keras or HDF5 file, which is written anew at `target` if there are none.

    Raises `InputRefused` for a damaged one, and `OutputRefused`.
    """
    with scratch_directory() as scratch:
        job = KerasScanJob(
            path=str(path),
            is_archive=is_archive,
            scratch=str(scratch),
            known=tuple(sorted(known)),
            target=str(target or ""),
        )
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
        task = start_task(
            scan_keras_here,
            job,
            label="scanning",
            scratch=scratch,
            access=Access(reads=(path,), writes=(scratch, *([target.parent] if target else []))),
            allowance=_ALLOWANCE,
        )
        try:
            with task:
                return task.result().findings
        except (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory) as error:
            if not blames_input(error):
                raise
            raise damaged(path, "a Keras file", error) from error


def scan_keras_here(job: KerasScanJob) -> KerasFindings:
    """`scan_keras`, in this process."""
    findings = Findings()
    path, known = Path(job.path), frozenset(job.known)
    _refuse_both(path, findings, is_archive=job.is_archive)
    if findings.has_error:
        return KerasFindings(findings=findings.all())
    if job.is_archive:
        _scan_archive(path, Path(job.scratch), findings, known)
    else:
        _scan_hdf5_model(path, findings, known)
    if job.target and not findings.has_error:
        _write(path, job)
    return KerasFindings(findings=findings.all())


def _refuse_both(path: Path, findings: Findings, *, is_archive: bool) -> None:
    """Add a finding for a file that is of both kinds, which one loader takes for the other."""
    if _hides_hdf5(path) if is_archive else zipfile.is_zipfile(path):
        why = "what one reader takes, another may not"
        findings.add("structure", path.name, "a zip archive and an HDF5 file in one", why)


def _hides_hdf5(path: Path) -> bool:
    """Whether an archive is an HDF5 file by something else than a file of weights in it.

    HDF5 looks for its beginning at byte 0, 512 and so on, doubled, where an archive's own file of
    weights may happen to begin.
    """
    import h5py

    if not h5py.is_hdf5(path):
        return False
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size_bytes:
            file.seek(at)
            if file.read(len(_HDF5)) == _HDF5:
                break
            at = max(512, 2 * at)
    try:
        with zipfile.ZipFile(path) as archive:
            return at not in map(_data_begins, archive.infolist(), itertools.repeat(archive.fp))
    except ZIP_ERRORS:
        return True


def _data_begins(entry: zipfile.ZipInfo, file: Any) -> int:
    """Where the content of an entry begins, behind its local header (APPNOTE.TXT, 4.3.7)."""
    file.seek(entry.header_offset + 26)
    name_bytes, extra_bytes = map(int, struct.unpack("<HH", file.read(4)))
    return entry.header_offset + 30 + name_bytes + extra_bytes


def _write(path: Path, job: KerasScanJob) -> None:
    try:
        if job.is_archive:
            write_archive(path, Path(job.target), Path(job.scratch))
        else:
            write_hdf5_model(path, Path(job.target))
    except OSError as error:
        # HDF5 gives no number, of a full disk neither; weights are read here for the first time.
        what, target = "the copy of the model", Path(job.target).parent
        refused = machine_error(error, what) or no_room(what, target)
        if error.errno is None:
            raise refused or damaged(path, "a Keras file", error) from error
        raise refused or OutputRefused(
            f"{job.target} cannot be written: {error.strerror}"
        ) from error


def _scan_archive(path: Path, scratch: Path, findings: Findings, known: frozenset[str]) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            _scan_entries(path, archive, findings)
            if findings.has_error:
                return
            for entry in archive.infolist():
                if entry.filename.endswith(".json"):
                    content = decoded(path, entry.filename, archive.read(entry))
                    _scan_json(entry.filename, content, findings, known)
                elif entry.filename.endswith((".h5", ".hdf5")):
                    # Not by its own name, which is the file's to choose.
                    unpacked = scratch / "weights.h5"
                    with archive.open(entry) as packed, unpacked.open("wb") as target:
                        shutil.copyfileobj(packed, target)
                    _scan_hdf5(unpacked, findings, where=entry.filename)
    except ZIP_ERRORS as error:
        raise damaged(path, "a zip archive", error) from error


def _scan_entries(path: Path, archive: zipfile.ZipFile, findings: Findings) -> None:
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        what = f"more than {_MOST_ENTRIES} files in the archive"
        findings.add("structure", path.name, what, _TAKES_ALL)
        return
    names = set[str]()
    for entry in entries:
        for what, why in _of_entry(entry):
            findings.add("structure", entry.filename, what, why)
        if entry.filename in names:
            why = "what one reader takes, another may not"
            findings.add("structure", entry.filename, "two files of one name", why)
        names.add(entry.filename)
    total_bytes = sum(entry.file_size for entry in entries)
    if total_bytes > _ALWAYS_BYTES + _MOST_RATIO * path.stat().st_size:
        what = f"{total_bytes} bytes packed into {path.stat().st_size}"
        findings.add("structure", path.name, what, _TAKES_ALL)


def _of_entry(entry: zipfile.ZipInfo) -> Iterator[tuple[str, str]]:
    name = entry.filename
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or _climbs(name):
        yield f"a file called {name!r}", "is written outside of the folder it is unpacked to"
    if stat.S_ISLNK(entry.external_attr >> 16):
        yield "a symbolic link", "leads out of the folder it is unpacked to"
    if name in _CONFIGS and entry.file_size > _MOST_CONFIG_BYTES:
        yield f"{name} of {entry.file_size} bytes", _TAKES_ALL
    if name.endswith((".npz", ".npy", ".pkl", ".pickle")):
        yield f"{name}, in NumPy's or Python's own format", "can hold code that runs when it loads"


def _climbs(name: str) -> bool:
    return ".." in re.split(r"[/\\]", name)


def _scan_json(name: str, content: Any, findings: Findings, known: frozenset[str]) -> None:
    scan_config(content, findings, known, where=name)
    if name not in _CONFIGS:
        # The names of further files, for weights in several.
        for text in _texts(content):
            if text.startswith("/") or _climbs(text):
                findings.add("path", name, f"a file called {text!r}", "reads a file outside")


def _texts(content: Any) -> Iterator[str]:
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            waiting += [*node, *node.values()]
        elif isinstance(node, list):
            waiting += node


def _scan_hdf5_model(path: Path, findings: Findings, known: frozenset[str]) -> None:
    import h5py

    _scan_hdf5(path, findings, where=path.name)
    if findings.has_error:
        return
    try:
        with h5py.File(path, "r") as file:
            config, training = (file.attrs.get(n) for n in ("model_config", "training_config"))
    except HDF5_ERRORS as error:
        raise damaged(path, "an HDF5 file", error) from error
    if config is None:
        raise without_model(path)
    scan_config(decoded(path, "model_config", config), findings, known, where="model_config")
    if training is not None:
        held = {"training_config": decoded(path, "training_config", training)}
        scan_config(held, findings, known, where="training_config")


def _scan_hdf5(path: Path, findings: Findings, *, where: str) -> None:
    """Scan every link and data set without following or reading it. Raises `InputRefused`."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            _Hdf5Walk(path.stat().st_size, findings, where).run(file)
    except HDF5_ERRORS as error:
        raise damaged(path, "an HDF5 file", error) from error


class _Hdf5Walk:
    def __init__(self, size_bytes: int, findings: Findings, where: str) -> None:
        self._size_bytes = size_bytes
        self._findings = findings
        self._where = where
        self._claimed_bytes = 0

    def run(self, file: Any) -> None:
        """Visit the groups, each once: a hard link may lead back."""
        import h5py

        waiting, visited, count = [("", file)], set[Any](), 0
        while waiting:
            path, group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in visited:
                continue
            visited.add(address)
            for name in group:
                count += 1
                if count > _MOST_OBJECTS:
                    what = f"more than {_MOST_OBJECTS} objects"
                    self._add(path, what, "takes all memory or time to read")
                    return
                inner = f"{path}/{name}"
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    self._add(inner, f"external link to {link.filename}", _OUTSIDE)
                elif isinstance(link, h5py.HardLink):
                    waiting += self._object(inner, group, name)
        limit = _ALWAYS_BYTES + _MOST_RATIO * self._size_bytes
        if self._claimed_bytes > limit:
            what = f"data sets of {self._claimed_bytes} bytes in a file of {self._size_bytes}"
            self._add("/", what, "takes all memory to read")

    def _object(self, path: str, group: Any, name: str) -> list[tuple[str, Any]]:
        """Scan the target of a hard link; returns it if it is a group."""
        import h5py

        kind = group.get(name, getclass=True)
        if kind is h5py.Group:
            return [(path, group[name])]
        if kind is h5py.Dataset:
            data = group[name]
            settings = data.id.get_create_plist()
            if settings.get_external_count():
                self._add(path, f"external storage in {settings.get_external(0)[0]!r}", _OUTSIDE)
            if settings.get_layout() == h5py.h5d.VIRTUAL:
                self._add(path, "virtual data set", _OUTSIDE)
            self._claimed_bytes += int(data.size or 0) * data.dtype.itemsize
        return []

    def _add(self, path: str, what: str, why: str) -> None:
        self._findings.add("structure", f"{self._where}{path}", what, why)
